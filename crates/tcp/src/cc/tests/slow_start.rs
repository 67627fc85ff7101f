//! End of slow start.

use std::time::Duration;

use super::super::{Cubic, HyStart};
use super::bottleneck::{Connection, Path};
use super::*;

/// 10 Mbit/s, with a queue of `bdps` times the bandwidth-delay product.
fn path(rtt_ms: u64, bdps: f64) -> Path {
    let path = Path { rate: 1.25e6, ..Path::wide(rtt_ms) };
    Path { queue: bdps * path.bdp(), ..path }
}

/// Connection at the end of slow start.
fn after_slow_start(hystart: HyStart, path: Path) -> Connection {
    let cubic = Cubic { hystart, ..Cubic::LINUX };
    let start = control(Algorithm::Cubic(cubic), 10 * MSS, u64::MAX);
    let mut connection = Connection::new(path, start);
    while connection.control.ssthresh() == u64::MAX {
        connection.run(0.01);
    }
    connection
}

#[test]
fn hystart_leaves_before_the_queue_overflows() {
    // HyStart++ continues for five rounds after it detected the queue, for confirmation.
    for (hystart, bdps) in [(HyStart::Train, 1.0), (HyStart::PlusPlus, 10.0)] {
        for rtt_ms in [40, 100, 600] {
            let path = path(rtt_ms, bdps);
            let off = after_slow_start(HyStart::Off, path);
            assert!(off.dropped > 0, "without it the queue overflows");
            let connection = after_slow_start(hystart, path);
            assert_eq!(connection.dropped, 0, "{hystart:?} at {rtt_ms} ms");
            let filled = connection.control.cwnd() as f64 / MSS as f64 / path.bdp();
            assert!((0.4..1.0 + bdps).contains(&filled), "{hystart:?} {rtt_ms}: {filled}");
        }
    }
}

#[test]
fn a_growing_round_trip_that_falls_again_does_not_end_slow_start() {
    let mut cubic = control(Algorithm::Cubic(Cubic::RFC9438), 10 * MSS, u64::MAX);
    let mut round = |millis: u64| {
        let before = cubic.cwnd();
        for sample in 0..10 {
            let rtt = Some(Duration::from_millis(millis));
            let ack = Ack { rtt, round: sample == 0, ..ack(MSS) };
            cubic.on_ack(Time::ZERO, &ack);
        }
        (cubic.cwnd() - before, cubic.ssthresh())
    };
    assert_eq!(round(100), (10 * MSS, u64::MAX));
    // After eight samples the window grows by a quarter of the acknowledged bytes.
    assert_eq!(round(120), (7 * MSS + 3 * MSS / 4, u64::MAX));
    // Back to the former round trip: no queue, full growth.
    let (grown, ssthresh) = round(100);
    assert!(grown > 4 * MSS && ssthresh == u64::MAX, "{grown}");
    assert_eq!(round(100), (10 * MSS, u64::MAX));
    // For good: it ends after five rounds.
    for _ in 0..5 {
        assert_eq!(round(130).1, u64::MAX);
    }
    assert_ne!(round(130).1, u64::MAX);
}

#[test]
fn old_kernels_began_with_a_threshold() {
    for algorithm in [Algorithm::Bic(Bic::default()), Algorithm::Cubic(Cubic::LINUX_2_6_19)] {
        assert_eq!(control(algorithm, 3 * MSS, u64::MAX).ssthresh(), 100 * MSS);
        assert_eq!(control(algorithm, 3 * MSS, 50 * MSS).ssthresh(), 50 * MSS);
    }
}
