//! Error models against their formulas. Bounds are five standard errors around the exact value,
//! and seeds are fixed, so a failure means that the model changed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use engine::{Rng, Time};
use link::{
    Config, ErrorKind, ErrorModel, ErrorVector, Fate, Framing, Link, LossCause, StateErrors, Window,
};

/// Returns the fates of `n` packets of `len` bytes, one every microsecond.
fn fates(config: Config, seed: u64, n: u64, len: usize) -> Vec<Fate> {
    let mut link = Link::new(config, Rng::new(seed, "link")).unwrap();
    (0..n)
        .map(|index| {
            let now = Time::from_nanos(index * 1_000);
            link.push(now, len, index).unwrap();
            let departure = link.pop(now).unwrap();
            assert_eq!(departure.item, index);
            departure.fate
        })
        .collect()
}

fn with(model: ErrorModel) -> Config {
    Config { errors: vec![model], ..Config::default() }
}

/// Returns the indices of lost packets.
fn lost(fates: &[Fate]) -> Vec<u64> {
    (0_u64..).zip(fates).filter(|(_, fate)| matches!(fate, Fate::Lost(_))).map(|(i, _)| i).collect()
}

fn bits(fate: &Fate) -> Vec<u32> {
    match fate {
        Fate::Damaged(damage) => damage.bits().collect(),
        Fate::Delivered => Vec::new(),
        Fate::Lost(cause) => panic!("lost: {cause:?}"),
    }
}

/// Asserts that `count` successes of `n` trials match probability `p` within five standard errors.
fn assert_binomial(count: u64, n: u64, p: f64) {
    let (n, count) = (n as f64, count as f64);
    let sigma = (n * p * (1.0 - p)).sqrt();
    assert!((count - n * p).abs() <= 5.0 * sigma, "{count} of {n}, expected {}", n * p);
}

#[test]
fn per_packet_loss_has_its_ratio_at_any_length() {
    for (seed, p, len) in [(1, 1e-1, 10), (2, 1e-2, 1_500), (3, 1e-3, 10), (4, 1e-3, 60_000)] {
        let all = fates(with(ErrorModel::dropping(ErrorKind::PerPacket(p))), seed, 300_000, len);
        assert_binomial(lost(&all).len() as u64, 300_000, p);
    }
    let of =
        |p| lost(&fates(with(ErrorModel::dropping(ErrorKind::PerPacket(p))), 1, 1_000, 9)).len();
    assert_eq!((of(0.0), of(1.0)), (0, 1_000));
}

#[test]
fn per_packet_losses_are_independent() {
    let n = 300_000;
    let all = fates(with(ErrorModel::dropping(ErrorKind::PerPacket(0.1))), 5, n, 100);
    let lost = lost(&all);
    let pairs = lost.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() as u64;
    // Given a loss, the next packet is lost with the same probability.
    assert_binomial(pairs, lost.len() as u64, 0.1);
}

#[test]
fn bit_errors_lose_packets_by_their_length() {
    let ethernet = Framing::Ethernet { fcs: true, preamble: true, ifg: true };
    for (seed, ber, len, framing, frame_bytes) in [
        (1, 1e-5, 1_500, Framing::Raw, 1_500),
        (2, 1e-5, 40, Framing::Raw, 40),
        (3, 1e-4, 1_500, Framing::Raw, 1_500),
        (4, 1e-3, 200, Framing::Raw, 200),
        // Errors hit header and check sequence, but not preamble and gap.
        (5, 1e-4, 50, ethernet, 68),
        (6, 1e-4, 50, Framing::Custom(100), 150),
    ] {
        let model = ErrorModel::dropping(ErrorKind::BitErrorRate(ber));
        let config = Config { framing, ..with(model) };
        let n = 200_000;
        let count = lost(&fates(config, seed, n, len)).len() as u64;
        let p = 1.0 - (1.0 - ber).powi(frame_bytes * 8);
        assert_binomial(count, n, p);
    }
}

#[test]
fn damaged_bits_have_the_bit_error_rate_and_lie_anywhere() {
    let (n, len, ber) = (20_000_u64, 1_000, 1e-3);
    let config = with(ErrorModel::damaging(ErrorKind::BitErrorRate(ber)));
    let mut first_half = 0;
    let mut count = 0;
    let mut clean = 0;
    for fate in fates(config, 9, n, len) {
        let bits = bits(&fate);
        assert!(bits.windows(2).all(|pair| pair[0] < pair[1]) && bits.iter().all(|b| *b < 8_000));
        clean += u64::from(bits.is_empty());
        count += bits.len() as u64;
        first_half += bits.iter().filter(|bit| **bit < 4_000).count() as u64;
    }
    assert_binomial(count, n * 8_000, ber);
    assert_binomial(first_half, count, 0.5);
    assert_binomial(clean, n, (1.0 - ber).powi(8_000));
}

#[test]
fn damage_flips_the_bits_it_names() {
    let config = with(ErrorModel::damaging(ErrorKind::BitErrorRate(0.01)));
    let mut link = Link::new(config, Rng::new(3, "link")).unwrap();
    let clean = [0xa5_u8; 500];
    let mut flipped = 0_u32;
    for _ in 0..200 {
        link.push(Time::ZERO, clean.len(), clean).unwrap();
        let mut departure = link.pop(Time::ZERO).unwrap();
        if let Fate::Damaged(damage) = departure.fate {
            damage.apply(&mut departure.item);
            let differ = departure.item.iter().zip(&clean).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!(damage.bits().count() as u32, differ);
            flipped += differ;
            link.recycle(damage);
        }
    }
    assert_binomial(flipped.into(), 200 * 4_000, 0.01);
    let stats = link.stats();
    assert_eq!(stats.delivered.packets, 200, "damaged packets are delivered");
    assert!(stats.damaged.packets > 190);
}

#[test]
fn errors_in_the_frame_around_a_packet_damage_nothing() {
    // Every bit of the frame may be hit, but only bits of the packet are flipped.
    let framing = Framing::Ethernet { fcs: true, preamble: true, ifg: true };
    let model = ErrorModel::damaging(ErrorKind::BitErrorRate(1.0));
    let all = fates(Config { framing, ..with(model) }, 1, 3, 10);
    assert!(all.iter().all(|fate| bits(fate) == (0..80).collect::<Vec<_>>()));
}

#[test]
fn an_error_vector_repeats_exactly() {
    // 1,003 is coprime to the packet's length in bits, so every alignment occurs.
    let vector = ErrorVector { period: 1_003, errors: vec![3, 7, 500, 501, 1_002] };
    let struck = |bit: u64| vector.errors.contains(&(bit % vector.period));
    let config = with(ErrorModel::damaging(ErrorKind::Vector(vector.clone())));
    for (index, fate) in (0_u64..).zip(fates(config, 1, 5_000, 40)) {
        let expected: Vec<u32> =
            (0..320).filter(|bit| struck(index * 320 + u64::from(*bit))).collect();
        assert_eq!(bits(&fate), expected, "packet {index}");
    }
    // The same for frames: 4 bytes of header before each packet.
    let config = with(ErrorModel::dropping(ErrorKind::Vector(vector.clone())));
    let all = fates(Config { framing: Framing::Custom(4), ..config }, 1, 5_000, 2);
    for (index, fate) in (0_u64..).zip(&all) {
        let hit = (index * 48..(index + 1) * 48).any(struck);
        assert_eq!(*fate == Fate::Lost(LossCause::ErrorVector), hit, "packet {index}");
    }
}

#[test]
fn an_error_vector_is_read_from_bytes() {
    let vector = ErrorVector::from_bytes(&[0x80, 0x00, 0x03]);
    assert_eq!(vector, ErrorVector { period: 24, errors: vec![0, 22, 23] });
    let none = ErrorVector::from_bytes(&[0; 4]);
    let all = fates(with(ErrorModel::dropping(ErrorKind::Vector(none))), 1, 1_000, 100);
    assert!(lost(&all).is_empty());
}

#[test]
fn gilbert_elliott_has_its_ratio_and_run_length() {
    let (p_gb, p_bg, n) = (0.01, 0.2, 400_000_u64);
    let model = ErrorModel::dropping(ErrorKind::GilbertElliott {
        p_gb,
        p_bg,
        good: StateErrors::default(),
        bad: StateErrors { loss: 1.0, ber: 0.0 },
    });
    let lost = lost(&fates(with(model), 11, n, 100));
    // Losses form a two-state chain: the variance of their number is the binomial one times (1 + r)
    // / (1 - r), where r = 1 - p_gb - p_bg is the correlation from one packet to the next.
    let (bad, r) = (p_gb / (p_gb + p_bg), 1.0 - p_gb - p_bg);
    let sigma = (n as f64 * bad * (1.0 - bad) * (1.0 + r) / (1.0 - r)).sqrt();
    let count = lost.len() as f64;
    assert!((count - n as f64 * bad).abs() < 5.0 * sigma, "{count}");
    // Runs are geometric with mean 1 / p_bg and standard deviation sqrt(1 - p_bg) / p_bg.
    let runs = 1.0 + lost.windows(2).filter(|pair| pair[1] > pair[0] + 1).count() as f64;
    let mean = count / runs;
    assert!((mean - 1.0 / p_bg).abs() < 5.0 * (1.0 - p_bg).sqrt() / p_bg / runs.sqrt(), "{mean}");
}

#[test]
fn gilbert_elliott_has_a_loss_and_a_bit_error_rate_a_state() {
    let good = StateErrors { loss: 0.001, ber: 1e-6 };
    let bad = StateErrors { loss: 0.3, ber: 1e-4 };
    // A few long states would widen the bounds; these mix within ten packets.
    let (p_gb, p_bg, n, frame_bits) = (0.1, 0.1, 300_000_u64, 8_000);
    let model = ErrorModel::dropping(ErrorKind::GilbertElliott { p_gb, p_bg, good, bad });
    let count = lost(&fates(with(model), 12, n, 1_000)).len() as f64;
    let loss = |s: StateErrors| 1.0 - (1.0 - s.loss) * (1.0 - s.ber).powi(frame_bits);
    let (q, r) = (0.5 * (loss(good) + loss(bad)), 1.0 - p_gb - p_bg);
    // Binomial variance plus twice the covariances, which decay with r.
    let between = 0.25 * (loss(bad) - loss(good)).powi(2);
    let variance = n as f64 * (q * (1.0 - q) + 2.0 * between * r / (1.0 - r));
    assert!((count - n as f64 * q).abs() < 5.0 * variance.sqrt(), "{count} {}", n as f64 * q);
}

#[test]
fn gilbert_elliott_without_transitions_stays_good() {
    let bad = StateErrors { loss: 1.0, ber: 0.0 };
    let kind =
        |p_gb, p_bg| ErrorKind::GilbertElliott { p_gb, p_bg, good: StateErrors::default(), bad };
    let count = |kind| lost(&fates(with(ErrorModel::dropping(kind)), 1, 1_000, 100)).len();
    assert_eq!(count(kind(0.0, 0.0)), 0);
    assert_eq!(count(kind(1.0, 0.0)), 1_000, "a state that is never left is the initial one");
    assert_eq!(count(kind(1.0, 1.0)), 500, "alternating");
}

#[test]
fn a_drop_list_strikes_exactly_its_packets() {
    let list = vec![0, 3, 4, 999, 5_000];
    let all = fates(with(ErrorModel::dropping(ErrorKind::DropList(list))), 1, 1_000, 100);
    assert_eq!(lost(&all), [0, 3, 4, 999]);
    assert_eq!(all[3], Fate::Lost(LossCause::DropList));
    let all = fates(with(ErrorModel::damaging(ErrorKind::DropList(vec![2]))), 1, 4, 100);
    assert_eq!(all.iter().map(|fate| bits(fate).len()).collect::<Vec<_>>(), [0, 0, 1, 0]);
}

#[test]
fn indices_continue_when_the_models_change() {
    let mut link: Link<u64> = Link::new(Config::default(), Rng::new(1, "link")).unwrap();
    let mut lost = Vec::new();
    for index in 0..10 {
        if index == 4 {
            let list = ErrorModel::dropping(ErrorKind::DropList(vec![2, 6]));
            link.set_errors(Time::ZERO, vec![list]).unwrap();
        }
        link.push(Time::ZERO, 100, index).unwrap();
        let departure = link.pop(Time::ZERO).unwrap();
        lost.extend((departure.fate != Fate::Delivered).then_some(departure.item));
    }
    assert_eq!(lost, [6]);
}

#[test]
fn unchanged_models_keep_their_state_when_others_change() {
    let struck = vec![false, false, false, true];
    let errors = vec![ErrorModel::dropping(ErrorKind::Trace { struck, repeat: true })];
    let config = Config { errors, ..Config::default() };
    let mut link: Link<u64> = Link::new(config.clone(), Rng::new(1, "link")).unwrap();
    let mut lost = Vec::new();
    for index in 0..10 {
        let framing = Framing::Custom(index as u16);
        link.set_config(Time::ZERO, Config { framing, ..config.clone() }).unwrap();
        link.push(Time::ZERO, 100, index).unwrap();
        let departure = link.pop(Time::ZERO).unwrap();
        lost.extend((departure.fate != Fate::Delivered).then_some(departure.item));
    }
    assert_eq!(lost, [3, 7]);
}

#[test]
fn traces_are_replayed() {
    let struck = vec![false, true, true, false, false];
    let trace = |repeat| {
        let kind = ErrorKind::Trace { struck: struck.clone(), repeat };
        lost(&fates(with(ErrorModel::dropping(kind)), 1, 12, 100))
    };
    assert_eq!(trace(false), [1, 2]);
    assert_eq!(trace(true), [1, 2, 6, 7, 11]);
    let window = |start, end| Window { start: Time::from_nanos(start), end: Time::from_nanos(end) };
    let times = ErrorKind::LossTimes(vec![window(2_000, 4_000), window(7_500, 9_001)]);
    assert_eq!(lost(&fates(with(ErrorModel::dropping(times)), 1, 12, 100)), [2, 3, 8, 9]);
}

#[test]
fn models_are_combined_and_do_not_disturb_each_other() {
    let random = ErrorModel::dropping(ErrorKind::PerPacket(0.1));
    let list = ErrorModel::dropping(ErrorKind::DropList((0..500).collect()));
    let damage = ErrorModel::damaging(ErrorKind::BitErrorRate(1e-3));
    let run = |errors| fates(Config { errors, ..Config::default() }, 7, 1_000, 100);
    let alone = run(vec![random.clone()]);
    let all = run(vec![random, list, damage]);
    assert!(all[..500].iter().all(|fate| matches!(fate, Fate::Lost(_))));
    assert!(all[500..].iter().any(|fate| matches!(fate, Fate::Damaged(_))));
    let after = |fates: &[Fate]| lost(&fates[500..]);
    assert_eq!(after(&alone), after(&all));
}

#[test]
fn results_depend_only_on_the_seed() {
    let config = || with(ErrorModel::damaging(ErrorKind::BitErrorRate(1e-4)));
    assert_eq!(fates(config(), 1, 2_000, 1_000), fates(config(), 1, 2_000, 1_000));
    assert_ne!(fates(config(), 1, 2_000, 1_000), fates(config(), 2, 2_000, 1_000));
}

#[test]
fn invalid_bytes_are_refused() {
    let kinds = [
        ErrorKind::PerPacket(1.1),
        ErrorKind::BitErrorRate(f64::NAN),
        ErrorKind::Vector(ErrorVector { period: 8, errors: vec![8] }),
        ErrorKind::Vector(ErrorVector { period: 8, errors: vec![3, 3] }),
        ErrorKind::Vector(ErrorVector { period: 0, errors: vec![] }),
        ErrorKind::DropList(vec![2, 1]),
        ErrorKind::Trace { struck: vec![], repeat: true },
    ];
    for kind in kinds {
        let config = with(ErrorModel::dropping(kind.clone()));
        assert!(Link::<()>::new(config, Rng::new(1, "link")).is_err(), "{kind:?}");
    }
}

#[test]
fn causes_are_listed_in_their_order() {
    for (index, cause) in LossCause::ALL.into_iter().enumerate() {
        assert_eq!(cause as usize, index, "{}", cause.name());
        assert_eq!(cause.is_error(), index >= 2, "{}", cause.name());
    }
}
