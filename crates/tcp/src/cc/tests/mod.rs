//! Comparison of the algorithms with their specifications.

mod bottleneck;
mod delay;
mod loss;
mod slow_start;

use std::time::Duration;

use engine::Time;

use super::{
    Ack, Algorithm, Bic, Cause, Congestion, Control, Counting, Idle, IdleRule, Recovery, Timeout,
    Vegas, new,
};

const MSS: u64 = 1000;

fn control(algorithm: Algorithm, initial: u64, ssthresh: u64) -> Box<dyn Control> {
    new(algorithm, MSS, initial, ssthresh, 1)
}

/// An ACK of this many bytes outside of recovery, by a sender that its window limits.
fn ack(acked: u64) -> Ack {
    Ack {
        acked,
        sacked: 0,
        newly_delivered: acked,
        delivered: acked,
        lost: 0,
        rtt: None,
        srtt: None,
        min_rtt: None,
        prior_in_flight: 0,
        in_flight: 0,
        round: false,
        rate: None,
        in_recovery: false,
        cwnd_limited: true,
        ecn_echo: false,
    }
}

fn loss(flight_size: u64) -> Congestion {
    Congestion { cause: Cause::Loss, flight_size, cwnd_limited: true }
}

#[test]
fn reno_doubles_a_round_then_adds_a_segment_a_round() {
    let counting = Counting::Bytes { limit: 1 };
    let mut reno = control(Algorithm::NewReno(counting), 4 * MSS, 16 * MSS);
    let mut round = || {
        for _ in 0..reno.cwnd() / MSS {
            reno.on_ack(Time::ZERO, &ack(MSS));
        }
        reno.cwnd()
    };
    assert_eq!(
        [round(), round(), round(), round(), round()],
        [8 * MSS, 16 * MSS, 17 * MSS, 18 * MSS, 19 * MSS]
    );
}

#[test]
fn a_limit_of_bytes_holds_stretch_acks_back_only_in_slow_start() {
    let mut reno = control(Algorithm::NewReno(Counting::Bytes { limit: 2 }), 4 * MSS, 8 * MSS);
    reno.on_ack(Time::ZERO, &ack(4 * MSS));
    assert_eq!(reno.cwnd(), 6 * MSS);
    reno.on_ack(Time::ZERO, &ack(2 * MSS));
    assert_eq!(reno.cwnd(), 8 * MSS);
    reno.on_ack(Time::ZERO, &ack(8 * MSS));
    assert_eq!(reno.cwnd(), 9 * MSS);
}

#[test]
fn counting_acks_makes_delayed_acks_halve_the_growth() {
    let mut reno = control(Algorithm::Reno(Counting::Acks), 4 * MSS, u64::MAX);
    for _ in 0..2 {
        reno.on_ack(Time::ZERO, &ack(2 * MSS));
    }
    assert_eq!(reno.cwnd(), 6 * MSS);
}

#[test]
fn a_loss_halves_and_a_timeout_restarts() {
    let mut reno = control(Algorithm::NewReno(Counting::default()), 20 * MSS, u64::MAX);
    reno.on_congestion(Time::ZERO, &loss(20 * MSS));
    assert_eq!((reno.cwnd(), reno.ssthresh()), (10 * MSS, 10 * MSS));
    let first = Timeout { flight_size: 10 * MSS, is_first: true };
    reno.on_timeout(Time::ZERO, &first);
    assert_eq!((reno.cwnd(), reno.ssthresh()), (MSS, 5 * MSS));
    let next = Timeout { flight_size: 10 * MSS, is_first: false };
    reno.on_timeout(Time::ZERO, &next);
    assert_eq!((reno.cwnd(), reno.ssthresh()), (MSS, 5 * MSS));
    reno.on_congestion(Time::ZERO, &loss(MSS));
    assert_eq!(reno.ssthresh(), 2 * MSS, "two segments at least");
}

#[test]
fn reductions_count_only_bytes_in_flight() {
    let mut reno = control(Algorithm::NewReno(Counting::default()), 20 * MSS, u64::MAX);
    let congestion = Congestion { cause: Cause::Ecn, flight_size: 8 * MSS, cwnd_limited: false };
    reno.on_congestion(Time::ZERO, &congestion);
    assert_eq!((reno.cwnd(), reno.ssthresh()), (4 * MSS, 4 * MSS));
}

#[test]
fn tahoe_restarts_at_a_loss() {
    let mut tahoe = control(Algorithm::Tahoe(Counting::Acks), 20 * MSS, u64::MAX);
    assert_eq!(tahoe.recovery(), Recovery::Restart);
    tahoe.on_congestion(Time::ZERO, &loss(20 * MSS));
    assert_eq!((tahoe.cwnd(), tahoe.ssthresh()), (MSS, 10 * MSS));
}

#[test]
fn spurious_reductions_are_undone_once() {
    let mut reno = control(Algorithm::NewReno(Counting::default()), 20 * MSS, 40 * MSS);
    reno.on_timeout(Time::ZERO, &Timeout { flight_size: 20 * MSS, is_first: true });
    reno.on_spurious(Time::ZERO);
    assert_eq!((reno.cwnd(), reno.ssthresh()), (20 * MSS, 40 * MSS));
    reno.on_congestion(Time::ZERO, &loss(20 * MSS));
    reno.on_spurious(Time::ZERO);
    reno.on_spurious(Time::ZERO);
    assert_eq!((reno.cwnd(), reno.ssthresh()), (20 * MSS, 40 * MSS));
}

#[test]
fn a_window_that_does_not_limit_does_not_grow() {
    let mut reno = control(Algorithm::NewReno(Counting::default()), 4 * MSS, u64::MAX);
    reno.on_ack(Time::ZERO, &Ack { cwnd_limited: false, ..ack(MSS) });
    reno.on_ack(Time::ZERO, &Ack { in_recovery: true, ..ack(MSS) });
    assert_eq!(reno.cwnd(), 4 * MSS);
}

#[test]
fn a_pause_restarts_or_decays() {
    let after = |rule, lasted| {
        let mut reno = control(Algorithm::NewReno(Counting::default()), 4 * MSS, u64::MAX);
        for _ in 0..28 {
            reno.on_ack(Time::ZERO, &ack(MSS));
        }
        assert_eq!(reno.cwnd(), 32 * MSS);
        let rto = Duration::from_secs(1);
        reno.on_idle(Time::ZERO, &Idle { lasted: Duration::from_secs(lasted), rto, rule });
        reno.cwnd()
    };
    assert_eq!(after(IdleRule::Restart, 1), 4 * MSS);
    assert_eq!(after(IdleRule::Decay, 1), 16 * MSS);
    assert_eq!(after(IdleRule::Decay, 2), 8 * MSS);
    assert_eq!(after(IdleRule::Decay, 100), 4 * MSS);
}

#[test]
fn without_control_nothing_changes_the_window() {
    let mut none = control(Algorithm::None { window: Some(7 * MSS) }, MSS, u64::MAX);
    none.on_ack(Time::ZERO, &ack(MSS));
    none.on_congestion(Time::ZERO, &loss(MSS));
    none.on_timeout(Time::ZERO, &Timeout { flight_size: MSS, is_first: true });
    assert_eq!((none.cwnd(), none.governs_recovery()), (7 * MSS, true));
}
