//! Algorithms based on the round trip and the delivery rate.

use std::time::Duration;

use super::bottleneck::{Connection, Losses, Moment, Path};
use super::*;
use crate::cc::Sent;

/// 10 Mbit/s, 100 ms, a queue of five times the bandwidth-delay product.
fn path() -> Path {
    let rtt = Duration::from_millis(100);
    Path { rate: 1.25e6, rtt, queue: 625.0, ..Path::wide(100) }
}

#[test]
fn vegas_keeps_between_alpha_and_beta_segments_in_the_queue() {
    for vegas in [Vegas::LINUX, Vegas::PAPER, Vegas::SCPS] {
        let start = control(Algorithm::Vegas(vegas), 4 * MSS, u64::MAX);
        let mut connection = Connection::new(path(), start);
        connection.run(200.0);
        let (alpha, beta) = (f64::from(vegas.alpha), f64::from(vegas.beta));
        let bdp = path().bdp();
        let windows: Vec<f64> =
            connection.between(150.0, 200.0).map(|moment| moment.cwnd).collect();
        let (least, most) = windows
            .iter()
            .fold((f64::MAX, 0.0_f64), |(least, most), cwnd| (least.min(*cwnd), most.max(*cwnd)));
        assert_eq!(least, most, "{vegas:?}: the window is stable");
        let queued = least - bdp;
        assert!((alpha - 1.0..=beta + 1.0).contains(&queued), "{vegas:?}: {queued}");
        assert_eq!(connection.lost, 0, "{vegas:?}");
        assert!(connection.goodput(150.0, 200.0) > 1_249.0 * 0.999, "{vegas:?}");
    }
}

#[test]
fn vegas_leaves_slow_start_before_the_queue_overflows() {
    // Linux doubles each round, and sees the effect of a doubling one round later.
    for (vegas, bdps) in [(Vegas::LINUX, 3.0), (Vegas::PAPER, 1.5)] {
        let start = control(Algorithm::Vegas(vegas), 4 * MSS, u64::MAX);
        let mut connection = Connection::new(path(), start);
        connection.run(10.0);
        let most = connection.trace.iter().map(|moment| moment.queued).fold(0.0, f64::max);
        assert!(most < bdps * path().bdp(), "{vegas:?}: {most}");
    }
}

#[test]
fn the_papers_slow_start_doubles_every_other_round() {
    let windows = |vegas| {
        let start = control(Algorithm::Vegas(vegas), 4 * MSS, u64::MAX);
        let mut connection = Connection::new(Path::wide(100), start);
        connection.run(1.01);
        [0.15, 0.35, 0.55, 0.75, 0.95]
            .map(|at| connection.between(0.0, at).last().map(|moment| moment.cwnd).unwrap())
    };
    let [a, b, c, d, e] = windows(Vegas::PAPER);
    assert!(e / a <= 20.0 && e > 3.0 * a, "{a} {b} {c} {d} {e}");
    let linux = windows(Vegas::LINUX);
    assert!(linux[4] > 8.0 * e, "{linux:?}");
}

#[test]
fn vegas_decreases_by_a_quarter_or_a_half() {
    for (vegas, left) in [(Vegas::LINUX, 20), (Vegas::PAPER, 30), (Vegas::SCPS, 20)] {
        let mut control = control(Algorithm::Vegas(vegas), 40 * MSS, u64::MAX);
        control.on_congestion(Time::ZERO, &loss(40 * MSS));
        assert_eq!(control.cwnd(), left * MSS, "{vegas:?}");
    }
}

#[test]
fn vegas_grows_from_a_window_of_one_segment() {
    for vegas in [Vegas::LINUX, Vegas::PAPER, Vegas::SCPS] {
        let mut control = control(Algorithm::Vegas(vegas), 8 * MSS, u64::MAX);
        control.on_timeout(Time::ZERO, &Timeout { flight_size: 8 * MSS, is_first: true });
        control.on_recovered(Time::ZERO);
        assert_eq!(control.cwnd(), MSS, "{vegas:?}");
        // Each segment is sent when nothing is in flight, and its acknowledgment ends a round.
        for round in 1..=4 {
            let now = Time::from_nanos(round * 300_000_000);
            let sent = Sent { bytes: MSS, in_flight: 0, app_limited: false, retransmission: false };
            control.on_sent(now, &sent);
            let rtt = Some(Duration::from_millis(300));
            let prior_in_flight = MSS;
            control.on_ack(now, &Ack { rtt, round: true, prior_in_flight, ..ack(MSS) });
        }
        assert!(control.cwnd() >= 2 * MSS, "{vegas:?}: {}", control.cwnd());
    }
}

#[test]
fn scps_vegas_halves_to_one_segment_and_needs_samples() {
    let mut control = control(Algorithm::Vegas(Vegas::SCPS), 2 * MSS, u64::MAX);
    control.on_congestion(Time::ZERO, &loss(2 * MSS));
    assert_eq!((control.cwnd(), control.ssthresh()), (MSS, u64::MAX));
    let round = |rtt: Option<Duration>| Ack { rtt, round: true, prior_in_flight: MSS, ..ack(MSS) };
    control.on_ack(Time::ZERO, &round(None));
    assert_eq!(control.cwnd(), MSS);
    control.on_ack(Time::ZERO, &round(Some(Duration::from_millis(100))));
    assert_eq!(control.cwnd(), 2 * MSS);
}

/// Runs a BBR connection.
fn bbr(path: Path, seconds: f64) -> Connection {
    let mut connection = Connection::new(path, control(Algorithm::Bbr, 10 * MSS, u64::MAX));
    connection.run(seconds);
    connection
}

fn rates(connection: &Connection, from: f64, to: f64) -> Vec<f64> {
    connection.between(from, to).map(|moment| moment.pacing_bps as f64 / 1e7).collect()
}

#[test]
fn bbr_starts_by_2_885_drains_and_cycles() {
    let connection = bbr(path(), 9.0);
    let startup: Vec<&Moment> = connection.between(0.0, 9.0).take_while(|m| m.slow_start).collect();
    let peak = startup.iter().map(|moment| moment.pacing_bps as f64 / 1e7).fold(0.0, f64::max);
    assert!((peak / (2.885 * 0.99) - 1.0).abs() < 0.01, "{peak}");
    let left = startup.last().unwrap().at.as_secs_f64();
    assert!((0.5..1.6).contains(&left), "{left}");
    let drain = rates(&connection, left + 0.001, 9.0)[1];
    assert!((drain / (0.99 / 2.885) - 1.0).abs() < 0.02, "{drain}");
    // Every rate of steady state is one of the three gains, and all three occur.
    let steady = rates(&connection, 4.0, 9.0);
    for gain in [1.25, 0.75, 1.0] {
        let near = |rate: &&f64| (**rate / (gain * 0.99) - 1.0).abs() < 0.02;
        assert!(steady.iter().filter(near).count() > 50, "{gain}");
    }
}

#[test]
fn bbr_fills_the_link_with_less_than_a_bdp_in_the_queue() {
    let connection = bbr(path(), 40.0);
    let goodput = connection.goodput(4.0, 40.0) / 1_250.0;
    assert!(goodput > 0.94, "{goodput}");
    let queued =
        |from, to| connection.between(from, to).map(|moment| moment.queued).fold(0.0, f64::max);
    assert!(queued(4.0, 40.0) < path().bdp(), "{}", queued(4.0, 40.0));
    assert_eq!(connection.lost, 0);
}

/// Times at which the window is small, start and end in seconds.
fn probes(connection: &Connection) -> Vec<(f64, f64)> {
    let mut probes: Vec<(f64, f64)> = Vec::new();
    for moment in connection.trace.iter().filter(|moment| moment.cwnd <= 4.0) {
        let at = moment.at.as_secs_f64();
        match probes.last_mut() {
            Some((_, end)) if at - *end < 1.0 => *end = at,
            Some(_) | None => probes.push((at, at)),
        }
    }
    probes
}

#[test]
fn bbr_probes_a_round_trip_that_stays_as_it_is() {
    // Without a queue each round trip equals the minimum, and none of them is lower.
    let all = probes(&bbr(path(), 45.0));
    assert!((2..=4).contains(&all.len()), "{all:?}");
}

#[test]
fn bbr_probes_the_round_trip_every_ten_seconds() {
    // A path that grows longer never shows the minimum round trip again.
    let probes = probes(&bbr(Path { rtt_growth: 1e-3, ..path() }, 45.0));
    assert!((3..=4).contains(&probes.len()), "{probes:?}");
    for (begin, end) in &probes {
        // Data in flight has to drain first.
        assert!((0.2..0.6).contains(&(end - begin)), "{probes:?}");
    }
    assert!(probes.windows(2).all(|pair| (10.0..12.0).contains(&(pair[1].0 - pair[0].0))));
}

#[test]
fn bbr_does_not_treat_losses_as_congestion() {
    for p in [0.01, 0.05] {
        let connection = bbr(Path { losses: Losses::Random(p), ..path() }, 40.0);
        let goodput = connection.goodput(4.0, 40.0) / (1_250.0 * (1.0 - p));
        assert!(goodput > 0.85, "{p}: {goodput}");
        let reno = control(Algorithm::NewReno(Counting::default()), 10 * MSS, u64::MAX);
        let mut reno = Connection::new(Path { losses: Losses::Random(p), ..path() }, reno);
        reno.run(40.0);
        assert!(reno.goodput(4.0, 40.0) < 0.3 * 1_250.0);
    }
}

#[test]
fn bbr_recovers_its_window_after_a_timeout() {
    let mut connection = bbr(path(), 5.0);
    let before = connection.control.cwnd();
    let timeout = Timeout { flight_size: before, is_first: true };
    connection.control.on_timeout(connection.now, &timeout);
    assert_eq!(connection.control.cwnd(), MSS);
    connection.control.on_recovered(connection.now);
    // The ACK that ends it restores the window.
    connection.control.on_ack(connection.now, &ack(MSS));
    let after = connection.control.cwnd();
    assert!(after.abs_diff(before) <= 4 * MSS, "{after} after {before}");
}

#[test]
fn bbr_finds_a_policer() {
    // A bucket without a queue drops traffic above its rate: more than a fifth in start-up.
    let connection = bbr(Path { queue: 8.0, ..path() }, 30.0);
    let goodput = connection.goodput(5.0, 30.0) / 1_250.0;
    assert!(goodput > 0.8, "{goodput}");
}
