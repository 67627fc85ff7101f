//! Summary statistics of many runs.

use serde::Serialize;

/// Mean, median, standard error of the mean, minimum and maximum of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The mean.
    pub mean: f64,
    /// The middle sample, or the mean of the middle two.
    pub median: f64,
    /// The standard error of the mean, s / sqrt(n); 0 for a single sample.
    pub sem: f64,
    /// Standard deviation of the samples, s; 0 for a single sample.
    #[serde(skip)]
    pub sd: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

impl Summary {
    /// Returns the summary of `samples`; `None` if there are none.
    #[must_use]
    pub fn from_samples(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len();
        let mean = mean(&sorted);
        let median = f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]);
        let squares: f64 = sorted.iter().map(|sample| (sample - mean).powi(2)).sum();
        let variance = if n > 1 { squares / (n - 1) as f64 } else { 0.0 };
        let (sem, sd) = ((variance / n as f64).sqrt(), variance.sqrt());
        Some(Self { mean, median, sem, sd, min, max })
    }
}

/// Returns the mean of `samples`; 0 if there are none.
#[must_use]
pub fn mean(samples: &[f64]) -> f64 {
    if samples.is_empty() { 0.0 } else { samples.iter().sum::<f64>() / samples.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_known_samples() {
        let summary = Summary::from_samples(&[4.0, 2.0, 6.0, 8.0]).unwrap();
        // Deviations 3, 1, 1, 3: s² = 20 / 3, sem = sqrt(20 / 3 / 4).
        assert_eq!((summary.mean, summary.median), (5.0, 5.0));
        assert_eq!((summary.min, summary.max), (2.0, 8.0));
        assert!((summary.sem - 1.290_994).abs() < 1e-6);
        assert!((summary.sd - 2.581_989).abs() < 1e-6);
        assert_eq!(Summary::from_samples(&[]), None);
        let single = Summary::from_samples(&[3.0]).unwrap();
        assert_eq!((single.sem, single.sd), (0.0, 0.0));
        assert_eq!(Summary::from_samples(&[1.0, 9.0, 2.0]).unwrap().median, 2.0);
    }
}
