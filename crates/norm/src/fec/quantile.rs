//! Number of symbols to send so that enough of them arrive.

/// Greatest quantile of the normal distribution for which the binomial distribution is summed; a
/// probability of 1e-12 is beyond it.
const SIGMAS_MAX: f64 = 7.0;

/// Greatest quantile. Bursts of losses multiply it.
const BURSTS_MAX: f64 = 100.0;

/// Products of wanted symbols and loss below which the binomial distribution is summed.
const EXACT_BELOW: f64 = 10.0;

/// Least number of symbols of which at least `wanted` arrive with the probability that a normal
/// variable is below `sigmas`. Each is lost with probability `loss`, independently of others.
#[must_use]
pub fn needed(wanted: u32, loss: f64, sigmas: f64) -> u32 {
    if wanted == 0 {
        return 0;
    }
    let loss = loss.clamp(0.0, 0.999);
    let normal = normal(wanted, loss, sigmas.clamp(-BURSTS_MAX, BURSTS_MAX));
    if f64::from(wanted) * loss > EXACT_BELOW || sigmas.abs() > SIGMAS_MAX {
        return normal;
    }
    let fails = 0.5 * libm::erfc(sigmas / std::f64::consts::SQRT_2);
    let mut count = normal.max(wanted);
    while too_few(wanted, count, loss) > fails {
        count += 1;
    }
    while count > wanted && too_few(wanted, count - 1, loss) <= fails {
        count -= 1;
    }
    count
}

/// Approximation by the mean, the variance and the skewness of the number of symbols (Cornish and
/// Fisher): 1,111.1 + 52.8 + 4.4 − 0.5 for 1,000 symbols, a loss of 0.1 and 4.753 sigmas.
fn normal(wanted: u32, loss: f64, sigmas: f64) -> u32 {
    let (wanted, arrive) = (f64::from(wanted), 1.0 - loss);
    let spread = sigmas * (wanted * loss).sqrt();
    let skew = (sigmas * sigmas - 1.0) / 6.0 * (1.0 + loss);
    let skew = if loss > 0.0 { skew } else { 0.0 };
    // Casts saturate.
    ((wanted + spread + skew) / arrive - 0.5).ceil().max(wanted) as u32
}

/// Probability that fewer than `wanted` of `count` symbols arrive.
fn too_few(wanted: u32, count: u32, loss: f64) -> f64 {
    if count < wanted {
        return 1.0;
    }
    if loss < 0.5 {
        // More than `spare` are lost.
        1.0 - up_to(count - wanted, count, loss)
    } else {
        up_to(wanted - 1, count, 1.0 - loss)
    }
}

/// Probability of at most `most` events in `count` trials.
fn up_to(most: u32, count: u32, probability: f64) -> f64 {
    if probability <= 0.0 {
        return 1.0;
    }
    let odds = probability / (1.0 - probability);
    let mut term = (f64::from(count) * libm::log1p(-probability)).exp();
    let mut sum = term;
    for event in 0..most.min(count) {
        term *= odds * f64::from(count - event) / f64::from(event + 1);
        sum += term;
    }
    sum.min(1.0)
}

/// Value below which a standard normal variable lies with a probability.
///
/// P. Acklam's rational approximation, with a relative error below 1.15e-9.
#[must_use]
pub fn quantile(probability: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    const LOW: f64 = 0.024_25;
    fn polynomial(coefficients: &[f64], at: f64) -> f64 {
        coefficients.iter().fold(0.0, |sum, coefficient| sum * at + coefficient)
    }
    let tail = |probability: f64| {
        let at = (-2.0 * probability.ln()).sqrt();
        polynomial(&C, at) / polynomial(&D, at)
    };
    let probability = probability.clamp(1e-300, 1.0 - f64::EPSILON / 2.0);
    if probability < LOW {
        return tail(probability);
    }
    if probability > 1.0 - LOW {
        return -tail(1.0 - probability);
    }
    let centred = probability - 0.5;
    let square = centred * centred;
    polynomial(&A, square) * centred / polynomial(&B, square)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        let known = [
            (0.5, 0.0),
            (0.9, 1.281_551_565_545),
            (0.99, 2.326_347_874_041),
            (0.999, 3.090_232_306_168),
            (1.0 - 1e-6, 4.753_424_308_823),
            (0.01, -2.326_347_874_041),
        ];
        for (probability, sigmas) in known {
            assert!((quantile(probability) - sigmas).abs() < 1e-7, "{probability}");
        }
    }

    #[test]
    fn counts_are_those_of_exact_sums() {
        let probabilities = [0.5, 0.9, 0.99, 0.999, 1.0 - 1e-6];
        let known = [
            (11, 0.1, [12, 14, 16, 17, 22]),
            (100, 0.01, [101, 102, 104, 105, 109]),
            (100, 0.1, [111, 116, 120, 124, 132]),
            (1_000, 0.01, [1_010, 1_014, 1_018, 1_021, 1_029]),
            (1_000, 0.1, [1_111, 1_125, 1_138, 1_147, 1_168]),
            (1_000, 0.3, [1_428, 1_460, 1_487, 1_508, 1_553]),
            (10_031, 0.1, [11_145, 11_191, 11_228, 11_256, 11_317]),
            (56_403, 0.1, [62_670, 62_777, 62_865, 62_930, 63_071]),
        ];
        for (wanted, loss, counts) in known {
            for (probability, count) in probabilities.into_iter().zip(counts) {
                let found = needed(wanted, loss, quantile(probability));
                assert!(found.abs_diff(count) <= 1, "{wanted} {loss} {probability}: {found}");
            }
        }
        assert_eq!(needed(0, 0.1, 3.0), 0);
        assert_eq!([needed(5, 0.0, 3.0), needed(5, -1.0, 3.0)], [5, 5]);
        assert!(needed(1, 1.0, 3.0) > 1_000);
    }
}
