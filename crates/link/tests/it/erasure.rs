//! Erasure codes over frames.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use engine::{Rng, Time};
use link::{
    Config, ConfigError, Delay, Departure, Erasure, ErrorKind, ErrorModel, Fate, HeaderCompression,
    Link, LossCause, Outages, Queue, Rate, Reorder, WhileDown, Window,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn ms(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

/// Returns a line of one packet of 1,000 bytes per millisecond, and 10 ms of delay.
fn line(k: u32, n: u32, kind: ErrorKind) -> Config {
    Config {
        rate: Rate::Constant(8_000_000),
        queue: Queue { packets: None, bytes: None },
        delay: Delay::Constant(Duration::from_millis(10)),
        errors: vec![ErrorModel::dropping(kind)],
        erasure: Some(Erasure { k, n, close: Duration::from_millis(5) }),
        ..Config::default()
    }
}

/// Pushes packets of 1,000 bytes at these times, in ms; returns the departures in order, each
/// popped when it is due.
fn run(link: &mut Link<usize>, pushes: &[u64]) -> Vec<Departure<usize>> {
    let mut all = Vec::new();
    let mut pushes = pushes.iter().map(|at| ms(*at)).enumerate().peekable();
    loop {
        let push = pushes.peek().map(|(_, at)| *at);
        let Some(now) = link.next().into_iter().chain(push).min() else { return all };
        while let Some((item, at)) = pushes.next_if(|(_, at)| *at == now) {
            link.push(at, 1_000, item).unwrap();
        }
        while let Some(departure) = link.pop(now) {
            assert_eq!(departure.at, now, "popped when it is due");
            all.push(departure);
        }
    }
}

/// Returns the arrivals in ms, with the item, and the items lost.
fn outcome(departures: &[Departure<usize>]) -> (Vec<(u64, usize)>, Vec<usize>) {
    let (lost, came): (Vec<_>, Vec<_>) =
        departures.iter().partition(|one| matches!(one.fate, Fate::Lost(_)));
    let arrivals = came.iter().map(|one| (one.at.as_nanos() / MS, one.item));
    (arrivals.collect(), lost.iter().map(|one| one.item).collect())
}

fn coded(k: u32, n: u32, kind: ErrorKind) -> Link<usize> {
    Link::new(line(k, n, kind), Rng::new(1, "link")).unwrap()
}

#[test]
fn a_lost_packet_arrives_with_the_parity_that_replaces_it() {
    // Frames: 0 to 3, two of parity, then packet 4 behind them.
    let mut link = coded(4, 6, ErrorKind::DropList(vec![1]));
    let (arrivals, lost) = outcome(&run(&mut link, &[0, 0, 0, 0, 0]));
    assert_eq!(arrivals, [(11, 0), (13, 2), (14, 3), (15, 1), (17, 4)]);
    assert!(lost.is_empty());
    let stats = link.stats();
    assert_eq!((stats.recovered.packets, stats.delivered.packets), (1, 5));
    // Packet 4 is a matrix of its own, with one parity frame.
    assert_eq!((stats.parity.packets, stats.line.packets, stats.line.bytes), (3, 8, 8_000));
}

#[test]
fn lost_parity_is_replaced_by_other_parity() {
    let mut link = coded(4, 6, ErrorKind::DropList(vec![0, 4]));
    let (arrivals, lost) = outcome(&run(&mut link, &[0, 0, 0, 0]));
    assert_eq!(arrivals, [(12, 1), (13, 2), (14, 3), (16, 0)]);
    assert!(lost.is_empty());
}

#[test]
fn a_matrix_with_too_few_frames_recovers_nothing() {
    let mut link = coded(4, 6, ErrorKind::DropList(vec![0, 2, 4]));
    let departures = run(&mut link, &[0, 0, 0, 0, 0]);
    let (arrivals, lost) = outcome(&departures);
    assert_eq!(arrivals, [(12, 1), (14, 3), (17, 4)]);
    assert_eq!(lost, [0, 2]);
    assert_eq!(link.stats().lost(LossCause::DropList).packets, 2);
    assert_eq!(link.stats().recovered.packets, 0);
}

#[test]
fn a_short_matrix_closes_when_no_frame_follows() {
    // The first two packets and the third are 3 ms apart, less than `close`.
    let mut link = coded(10, 15, ErrorKind::DropList(vec![1]));
    let (arrivals, _) = outcome(&run(&mut link, &[0, 0, 5, 40]));
    // Three data frames have two of parity. The last data frame ends at 6 ms, and the first parity
    // frame at 12 ms.
    assert_eq!(arrivals, [(11, 0), (16, 2), (22, 1), (51, 3)]);
    assert_eq!(link.stats().parity.packets, 3, "a matrix of one data frame has one of parity");
}

#[test]
fn captures_keep_the_order_of_transmission() {
    let mut link = coded(4, 6, ErrorKind::DropList(vec![1]));
    for item in 0..5 {
        link.push(Time::ZERO, 1_000, item).unwrap();
    }
    let reported = |link: &mut Link<usize>, at| {
        let mut items = Vec::new();
        while let Some(departure) = link.next_decided(ms(at)) {
            items.push(departure.item);
        }
        items
    };
    assert_eq!(reported(&mut link, 3), [0], "packet 1 is undecided");
    assert_eq!(link.undecided(), 3);
    assert_eq!(reported(&mut link, 4), [1, 2, 3], "its parity has left");
    assert_eq!(reported(&mut link, 6), [4]);
    assert_eq!(link.undecided(), 0);
}

#[test]
fn a_frame_cut_by_an_outage_is_recovered_after_it() {
    let down = Window { start: Time::from_nanos(MS / 2), end: ms(20) };
    let outages = Outages::List(vec![down]);
    let config = Config { outages, ..line(2, 3, ErrorKind::DropList(Vec::new())) };
    let mut link = Link::new(config, Rng::new(1, "link")).unwrap();
    let (arrivals, lost) = outcome(&run(&mut link, &[0, 0]));
    // The first frame is cut; the matrix of one frame closes 5 ms later, its parity waits.
    assert_eq!(arrivals, [(31, 0), (32, 1)]);
    assert!(lost.is_empty());
}

#[test]
fn a_change_closes_the_open_matrix() {
    let mut link = coded(100, 150, ErrorKind::DropList(vec![0]));
    for item in 0..3 {
        link.push(Time::ZERO, 1_000, item).unwrap();
    }
    let config = Config { erasure: None, ..link.config().clone() };
    link.set_config(ms(1), config).unwrap();
    let (arrivals, lost) = outcome(&run(&mut link, &[]));
    // Frame 1 began at 1 ms; two data frames have one of parity, which goes before packet 2.
    assert_eq!(arrivals, [(12, 1), (13, 0), (14, 2)]);
    assert!(lost.is_empty());
}

#[test]
fn rates_are_those_of_data() {
    let link = coded(512, 640, ErrorKind::PerPacket(0.1));
    assert_eq!(link.rate_at(Time::ZERO), Some(6_400_000));
}

#[test]
fn contradictions_are_refused() {
    let base = line(4, 6, ErrorKind::PerPacket(0.1));
    let refused = |config: Config| Link::<()>::new(config, Rng::new(1, "link")).unwrap_err();
    let close = Duration::from_millis(1);
    for (k, n) in [(0, 4), (4, 4), (5, 4), (4, 65_537)] {
        let erasure = Some(Erasure { k, n, close });
        assert_eq!(refused(Config { erasure, ..base.clone() }), ConfigError::Matrix { k, n });
    }
    let erasure = Some(Erasure { k: 4, n: 6, close: Duration::ZERO });
    assert_eq!(refused(Config { erasure, ..base.clone() }), ConfigError::NeverOpen);
    let errors = vec![ErrorModel::damaging(ErrorKind::PerPacket(0.1))];
    assert_eq!(refused(Config { errors, ..base.clone() }), ConfigError::Undetected);
    let reorder = Some(Reorder { probability: 0.1, by: close });
    assert_eq!(refused(Config { reorder, ..base.clone() }), ConfigError::Coded);
    let framing = link::Framing::Ppp {
        fcs: link::Fcs::Bits16,
        compressed: false,
        stuffing: link::Stuffing::Exact,
        serial: false,
    };
    let header_compression = Some(HeaderCompression::default());
    assert_eq!(refused(Config { header_compression, framing, ..base }), ConfigError::Coded);
}

/// Returns the probability that fewer than `k` of `n` frames arrive.
fn too_few(k: u32, n: u32, p: f64) -> f64 {
    let mut ln_choose = 0.0;
    let mut sum = 0.0;
    for arrived in 0..k {
        let (arrived, rest) = (f64::from(arrived), f64::from(n - arrived));
        sum += (ln_choose + arrived * (1.0 - p).ln() + rest * p.ln()).exp();
        ln_choose += (rest / (arrived + 1.0)).ln();
    }
    sum
}

/// The share of matrices that fail is that of the binomial distribution, within four standard
/// deviations.
#[test]
fn residual_losses_follow_the_binomial_distribution() {
    const MATRICES: u32 = 1_000;
    for n in [576, 640, 768] {
        for per in [0.05, 0.1, 0.2] {
            let (failed, residual) = failures(512, n, per, MATRICES);
            let expected = too_few(512, n, per);
            let deviation = (expected * (1.0 - expected) / f64::from(MATRICES)).sqrt();
            assert!(
                (failed - expected).abs() <= 4.0 * deviation + 1e-9,
                "512 of {n}, {per}: {failed} of the matrices fail, expected {expected}"
            );
            // Of a failed matrix, the data frames that were lost.
            assert!(residual <= failed * per * 1.5, "{residual}");
        }
    }
}

/// Returns the share of matrices with losses after the code, and the share of packets lost.
fn failures(k: u32, n: u32, per: f64, matrices: u32) -> (f64, f64) {
    let config = Config { rate: Rate::Infinite, ..line(k, n, ErrorKind::PerPacket(per)) };
    let mut link = Link::new(config, Rng::new(u64::from(n), "link")).unwrap();
    let (mut failed, mut lost) = (0, 0);
    for matrix in 0..matrices {
        let before = lost;
        let now = Time::ZERO + Duration::from_secs(u64::from(matrix));
        for _ in 0..k {
            link.push(now, 1_000, ()).unwrap();
        }
        let end = now + Duration::from_millis(100);
        while let Some(departure) = link.pop(end) {
            lost += u32::from(matches!(departure.fate, Fate::Lost(_)));
        }
        failed += u32::from(lost > before);
    }
    assert_eq!(link.stats().parity.packets, u64::from(matrices) * u64::from(n - k));
    (f64::from(failed) / f64::from(matrices), f64::from(lost) / f64::from(matrices * k))
}

fn config() -> impl Strategy<Value = Config> {
    let rate = prop_oneof![Just(None), (1_000_000_u64..100_000_000).prop_map(Some)];
    let outages = prop_oneof![
        Just(Outages::Never),
        (1_u64..50, 1_u64..20).prop_map(|(up, down)| Outages::Periodic {
            period: Duration::from_millis(up + down),
            down: Duration::from_millis(down),
            offset: Time::from_nanos(up * MS),
        }),
    ];
    let code = (1_u32..20, 1_u32..10, 1_u64..20);
    let queue = prop::option::of(0_usize..20);
    let per = 0_u32..80;
    (rate, outages, code, queue, per, any::<bool>()).prop_map(
        |(rate, outages, (k, parity, close), packets, per, drop)| Config {
            rate: rate.into(),
            queue: Queue { packets, bytes: None },
            outages,
            while_down: if drop { WhileDown::Drop } else { WhileDown::Hold },
            erasure: Some(Erasure { k, n: k + parity, close: Duration::from_millis(close) }),
            ..line(1, 2, ErrorKind::PerPacket(f64::from(per) / 100.0))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Departures do not depend on the times of calls. Each packet departs once, and is reported
    /// once in the order of transmission.
    #[test]
    fn a_late_driver_sees_the_same_departures(
        config in config(),
        arrivals in prop::collection::vec((0_u64..3_000_000, 1_usize..3_000), 1..200),
        seed: u64,
    ) {
        let run = |punctual: bool| {
            let mut link = Link::new(config.clone(), Rng::new(seed, "link")).unwrap();
            let (mut log, mut reported) = (Vec::new(), Vec::new());
            let (mut now, mut accepted) = (Time::ZERO, 0);
            for (index, (gap, len)) in arrivals.iter().enumerate() {
                now += Duration::from_nanos(*gap);
                while let Some(at) = link.next().filter(|at| punctual && *at <= now) {
                    while let Some(departure) = link.next_decided(at) {
                        reported.push(departure.item);
                    }
                    log.extend(link.pop(at));
                }
                let free = link.free_at(now, *len);
                prop_assert!(free.is_none_or(|at| link.free_for(at, *len)));
                let pushed = link.push(now, *len, index);
                prop_assert_eq!(pushed.is_ok(), free == Some(now));
                accepted += usize::from(pushed.is_ok());
            }
            while let Some(at) = link.next() {
                while let Some(departure) = link.next_decided(at) {
                    reported.push(departure.item);
                }
                log.extend(link.pop(at));
            }
            prop_assert_eq!(log.len(), accepted);
            prop_assert!(reported.is_sorted());
            let stats = link.stats();
            prop_assert_eq!(stats.delivered.packets + stats.lost_total().packets, stats.pushed.packets);
            prop_assert_eq!(stats.queued.packets, 0);
            Ok(log)
        };
        prop_assert_eq!(run(true)?, run(false)?);
    }

    /// The first moment with room is exact: before it there is none.
    #[test]
    fn room_in_the_queue_is_predicted(
        config in config(),
        pushes in 1_usize..100,
        seed: u64,
    ) {
        let mut link = Link::new(config, Rng::new(seed, "link")).unwrap();
        let mut now = Time::ZERO;
        for item in 0..pushes {
            let Some(at) = link.free_at(now, 1_000) else { break };
            if at > now {
                let before = at - Duration::from_nanos(1);
                prop_assert!(!link.free_for(before, 1_000));
            }
            now = at;
            prop_assert!(link.free_for(now, 1_000));
            prop_assert!(link.push(now, 1_000, item).is_ok());
        }
    }
}
