//! Loss-based algorithms.

use std::time::Duration;

use super::super::bic::per_increment;
use super::super::cubic::{plateau, w_cubic};
use super::super::{Cubic, Friendliness};
use super::bottleneck::{Connection, Losses, Path};
use super::*;

/// Mean window in packets over a path that loses each n-th packet, in steady state.
fn mean_window(algorithm: Algorithm, rtt_ms: u64, n: u64, seconds: f64) -> f64 {
    let path = Path { losses: Losses::Every(n, n), ..Path::wide(rtt_ms) };
    let mut connection = Connection::new(path, control(algorithm, 10 * MSS, 10 * MSS));
    connection.run(seconds);
    assert_eq!(connection.timeouts, 0);
    connection.goodput(seconds / 2.0, seconds) * path.rtt.as_secs_f64()
}

fn assert_near(value: f64, expected: f64, share: f64) {
    assert!((value / expected - 1.0).abs() < share, "{value} is not {expected}");
}

#[test]
fn renos_window_is_1_22_over_the_root_of_the_loss_rate() {
    let reno = Algorithm::NewReno(Counting::Bytes { limit: 1 });
    for n in [1_600, 6_400, 25_600] {
        let expected = 1.5_f64.sqrt() * (n as f64).sqrt();
        // The round of a recovery, in which the window does not grow, is not in the formula.
        assert_near(mean_window(reno, 100, n, 2_400.0), expected, 0.06);
    }
}

#[test]
fn cubics_window_is_1_054_of_rtt_over_p_to_the_three_quarters() {
    // RFC 9438 §5.1, equation 6. The pull to the equilibrium vanishes near it, less than a segment
    // a cycle, so the connection begins there and has to stay.
    let cubic =
        Cubic { fast_convergence: false, friendliness: Friendliness::Off, ..Cubic::RFC9438 };
    for (rtt_ms, n) in [(100, 10_000), (100, 100_000), (400, 10_000)] {
        let expected = 1.054 * (f64::from(rtt_ms) / 1e3 * n as f64).powf(0.75);
        let w_max = expected * 4.0 / 3.7;
        let path =
            Path { losses: Losses::Every(2 * w_max as u64 + 200, n), ..Path::wide(rtt_ms as u64) };
        let start = control(Algorithm::Cubic(cubic), 10 * MSS, w_max as u64 * MSS);
        let mut connection = Connection::new(path, start);
        connection.run(300.0);
        assert!(connection.congestions > 10);
        let window = connection.goodput(50.0, 300.0) * path.rtt.as_secs_f64();
        assert_near(window, expected, 0.05);
        // A cycle ends exactly at the plateau.
        let most = connection.between(50.0, 300.0).map(|moment| moment.cwnd).fold(0.0, f64::max);
        assert_near(most, w_max, 0.06);
    }
}

#[test]
fn cubic_is_as_fast_as_reno_where_reno_is_faster() {
    // RFC 9438 §5.1: at 10 ms and this loss rate the cubic function alone would be slower.
    let reno = mean_window(Algorithm::NewReno(Counting::default()), 10, 400, 120.0);
    let alone = Cubic { friendliness: Friendliness::Off, ..Cubic::RFC9438 };
    let alone = mean_window(Algorithm::Cubic(alone), 10, 400, 120.0);
    assert!(alone < 0.6 * reno, "{alone}, {reno}");
    for cubic in [Cubic::RFC9438, Cubic::LINUX] {
        assert_near(mean_window(Algorithm::Cubic(cubic), 10, 400, 120.0), reno, 0.1);
    }
}

#[test]
fn cubic_follows_its_function_between_losses() {
    let path = Path { losses: Losses::Numbers(&[4_000]), ..Path::wide(50) };
    let cubic = Cubic { friendliness: Friendliness::Off, ..Cubic::RFC9438 };
    let mut connection =
        Connection::new(path, control(Algorithm::Cubic(cubic), 10 * MSS, 400 * MSS));
    connection.run(15.0);
    let begins = connection.trace.iter().position(|moment| moment.in_recovery).unwrap();
    let w_max = connection.trace[begins - 1].cwnd;
    let epoch = connection.trace[begins..].iter().find(|moment| !moment.in_recovery).unwrap();
    let (began, low) = (epoch.at, epoch.cwnd);
    assert_near(low, 0.7 * w_max, 0.01);
    let k = plateau(0.4, w_max, low);
    let mut most = 0.0_f64;
    for moment in connection.trace.iter().filter(|moment| moment.at > began) {
        let t = moment.at.since(began).as_secs_f64();
        // A window that aims a round trip ahead is somewhere between the two.
        let (now, ahead) =
            (w_cubic(0.4, t, k, w_max.max(low)), w_cubic(0.4, t + 0.05, k, w_max.max(low)));
        let off = (now - moment.cwnd).max(moment.cwnd - ahead);
        most = most.max(off);
    }
    assert!(most < 2.0, "{most} segments off");
    let last = connection.trace.last().unwrap();
    assert!(last.at.since(began) > Duration::from_secs_f64(1.5 * k), "both halves were observed");
    assert!(last.cwnd > w_max);
}

#[test]
fn pauses_do_not_advance_the_cubic_epoch() {
    let path = Path { losses: Losses::Numbers(&[4_000]), ..Path::wide(50) };
    let cubic = Algorithm::Cubic(Cubic::RFC9438);
    let mut connection = Connection::new(path, control(cubic, 10 * MSS, 400 * MSS));
    connection.run(2.0);
    let before = connection.control.cwnd();
    connection.pause(100.0);
    connection.run(0.2);
    let grown = connection.control.cwnd() - before;
    // Four round trips of the concave part, and not 100 s of the convex one.
    assert!(grown < 60 * MSS, "{grown}");
}

#[test]
fn fast_convergence_aims_lower_after_a_second_loss() {
    let mut cubic = control(Algorithm::Cubic(Cubic::RFC9438), 100 * MSS, 100 * MSS);
    cubic.on_congestion(Time::ZERO, &loss(100 * MSS));
    assert_eq!(cubic.cwnd(), 70 * MSS);
    cubic.on_congestion(Time::ZERO, &loss(70 * MSS));
    assert_eq!(cubic.cwnd(), 49 * MSS);
    // W_max = 70 (1 + 0.7) / 2 = 59.5: K = cbrt(10.5 / 0.4) = 2.97 s later the window is reached.
    let at = |seconds: f64| Time::ZERO + Duration::from_secs_f64(seconds);
    let rtt = Some(Duration::from_millis(10));
    for step in 0..=297 {
        for _ in 0..60 {
            cubic.on_ack(at(f64::from(step) / 100.0), &Ack { min_rtt: rtt, ..ack(MSS) });
        }
    }
    // The Reno-friendly window, which grows by 0.53 and then by 1 a round, is above it by then.
    let friendly = cubic.cwnd();
    let alone = Cubic { friendliness: Friendliness::Off, ..Cubic::RFC9438 };
    let mut cubic = control(Algorithm::Cubic(alone), 100 * MSS, 100 * MSS);
    cubic.on_congestion(Time::ZERO, &loss(100 * MSS));
    cubic.on_congestion(Time::ZERO, &loss(70 * MSS));
    for step in 0..=297 {
        for _ in 0..60 {
            cubic.on_ack(at(f64::from(step) / 100.0), &Ack { min_rtt: rtt, ..ack(MSS) });
        }
    }
    assert!((58 * MSS..=62 * MSS).contains(&cubic.cwnd()), "{}", cubic.cwnd());
    assert!(friendly > 2 * cubic.cwnd(), "{friendly}");
}

#[test]
fn spurious_losses_leave_cubic_and_bic_unchanged() {
    for algorithm in [Algorithm::Cubic(Cubic::LINUX), Algorithm::Bic(Bic::default())] {
        let [undone, never, lost] = [Some(true), None, Some(false)].map(|loses| {
            let mut control = control(algorithm, 100 * MSS, 100 * MSS);
            if let Some(is_undone) = loses {
                control.on_congestion(Time::ZERO, &loss(100 * MSS));
                assert!(control.cwnd() < 80 * MSS);
                if is_undone {
                    control.on_spurious(Time::ZERO);
                }
            }
            for _ in 0..100 {
                control.on_ack(Time::ZERO, &ack(MSS));
            }
            control.cwnd()
        });
        assert_eq!(undone, never, "{algorithm:?}");
        assert!(lost < never, "{algorithm:?}");
    }
}

#[test]
fn bic_searches_halfway_between_lost_and_safe_windows() {
    let bic = Bic::default();
    let growth = |cwnd: f64, w_max: f64| cwnd / per_increment(&bic, cwnd, w_max, true);
    // Far below: linear, 16 segments a round. Nearer: a quarter of the distance.
    assert_eq!(growth(200.0, 1_000.0), 16.0);
    assert_eq!(growth(160.0, 200.0), 10.0);
    assert_eq!(growth(190.0, 200.0), 2.0);
    // At the plateau: four segments in 20 rounds.
    assert_eq!(growth(198.0, 200.0), 0.2);
    assert_eq!(growth(201.0, 200.0), 0.2);
    // Beyond: a third of the way it has come, up to 16.
    assert_eq!(growth(230.0, 200.0), 10.0);
    assert_eq!(growth(260.0, 200.0), 16.0);
    // Small windows: Reno. Before any loss: 5 % a round.
    assert_eq!(growth(14.0, 200.0), 1.0);
    assert_eq!(per_increment(&bic, 1_000.0, 0.0, false), 20.0);
}

#[test]
fn bic_grows_by_its_function_between_losses() {
    let path = Path { losses: Losses::Numbers(&[1_500]), ..Path::wide(100) };
    let bic = Bic { ssthresh_first: Some(200), ..Bic::default() };
    let mut connection = Connection::new(path, control(Algorithm::Bic(bic), 10 * MSS, u64::MAX));
    connection.run(20.0);
    let begins = connection.trace.iter().position(|moment| moment.in_recovery).unwrap();
    let w_max = connection.trace[begins - 1].cwnd;
    let after = &connection.trace[begins..];
    let start = after.iter().find(|moment| !moment.in_recovery).unwrap();
    assert_near(start.cwnd, w_max * 819.0 / 1024.0, 0.01);
    let rounds: Vec<f64> = (0..120)
        .map(|round| start.at + Duration::from_millis(100 * round))
        .map(|at| after.iter().find(|moment| moment.at >= at).unwrap().cwnd)
        .collect();
    for window in rounds.windows(3) {
        // Data acknowledged in a round is the window of the previous round.
        let expected = (0..window[0] as u32)
            .fold(window[1], |cwnd, _| cwnd + 1.0 / per_increment(&bic, cwnd, w_max, true));
        assert!((window[2] - expected).abs() < 2.0, "{window:?}: {expected}");
    }
    assert!(rounds[119] > w_max + 60.0, "beyond the plateau");
}

#[test]
fn tahoe_is_slower_than_reno_over_the_same_path() {
    let tahoe = mean_window(Algorithm::Tahoe(Counting::Bytes { limit: 1 }), 100, 400, 600.0);
    let reno = mean_window(Algorithm::NewReno(Counting::Bytes { limit: 1 }), 100, 400, 600.0);
    assert!(tahoe < 0.9 * reno, "{tahoe} {reno}");
}

#[test]
fn marks_fill_a_link_without_a_loss() {
    let path = Path { rate: 1.25e6, queue: 200.0, marks_above: Some(60.0), ..Path::wide(40) };
    for algorithm in [Algorithm::NewReno(Counting::default()), Algorithm::Cubic(Cubic::LINUX)] {
        let mut connection = Connection::new(path, control(algorithm, 10 * MSS, u64::MAX));
        connection.run(60.0);
        assert_eq!(connection.lost, 0);
        assert!(connection.congestions > 3, "{}", connection.congestions);
        // Once per window: at most one per round trip, far fewer than packets marked.
        assert!(connection.congestions < 600);
        assert_near(connection.goodput(5.0, 60.0), 1_250.0, 0.02);
    }
}

#[test]
fn losses_leave_a_window_of_at_least_one_segment() {
    let algorithms = [
        Algorithm::Tahoe(Counting::Acks),
        Algorithm::Reno(Counting::Acks),
        Algorithm::NewReno(Counting::default()),
        Algorithm::Vegas(Vegas::LINUX),
        Algorithm::Vegas(Vegas::PAPER),
        Algorithm::Vegas(Vegas::SCPS),
        Algorithm::Bic(Bic::default()),
        Algorithm::Cubic(Cubic::RFC9438),
        Algorithm::Cubic(Cubic::LINUX),
        Algorithm::Cubic(Cubic::LINUX_2_6_19),
        Algorithm::Cubic(Cubic::LINUX_2_6_32),
        Algorithm::Bbr,
    ];
    for algorithm in algorithms {
        for p in [0.02, 0.2, 0.5] {
            let path = Path { rate: 1e6, queue: 20.0, losses: Losses::Random(p), ..Path::wide(50) };
            let mut connection = Connection::new(path, control(algorithm, 10 * MSS, u64::MAX));
            connection.run(30.0);
            assert!(connection.trace.iter().all(|moment| moment.cwnd >= 1.0), "{algorithm:?} {p}");
            assert!(connection.trace.len() > 5, "{algorithm:?} {p}");
        }
    }
}
