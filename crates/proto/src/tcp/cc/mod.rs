//! Congestion control: how much may be in flight, and how fast it goes.
//!
//! A [`Control`] is told what was sent, acknowledged and lost, and answers with a window, and with a
//! rate if it paces. It counts bytes and knows nothing of sequence numbers: which bytes are lost,
//! when a loss belongs to a new window and what is sent again is the connection's business.
//!
//! # Who does what in recovery
//!
//! The connection tells a loss once a window ([`Control::on_congestion`]). The control then sets
//! [`Control::ssthresh`], and [`Control::cwnd`] to the same (Tahoe: to one segment). How the window
//! gets from its former size to the new one (inflation by duplicate ACKs, proportional rate reduction,
//! rate halving) is the connection's, until [`Control::on_recovered`]. In between the control does not
//! grow its window ([`Ack::in_recovery`]). A control whose [`Control::recovery`] is [`Recovery::Own`]
//! is left alone: its window holds in recovery, too.
//!
//! After a time-out the window grows from one segment by slow start: [`Ack::in_recovery`] is false. Of
//! one ACK, the congestion that it reveals and the end of a recovery are told before the ACK itself.

mod bbr;
mod bic;
mod cubic;
mod hystart;
mod names;
mod none;
mod reno;
mod vegas;
mod window;

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use engine::Time;

use self::bbr::Bbr;
use self::bic::BicControl;
use self::cubic::CubicControl;
use self::none::Unlimited;
use self::reno::Reno;
use self::vegas::VegasControl;
use self::window::Window;

pub use self::bic::Bic;
pub use self::cubic::{Cubic, Friendliness};
pub use self::hystart::HyStart;
pub use self::names::Named;
pub use self::reno::Counting;
pub use self::vegas::{Vegas, VegasVariant};

/// The state of one connection's congestion control.
pub trait Control: fmt::Debug + Send {
    /// The handshake is over and took this long, if it was measured.
    fn on_established(&mut self, _now: Time, _rtt: Option<Duration>) {}

    /// Bytes were sent.
    fn on_sent(&mut self, now: Time, sent: &Sent);

    /// An ACK acknowledged something new, cumulatively or selectively.
    fn on_ack(&mut self, now: Time, ack: &Ack);

    /// The network is congested; called once a window.
    fn on_congestion(&mut self, now: Time, congestion: &Congestion);

    /// What was in flight when the last congestion or the time-out was told is acknowledged.
    fn on_recovered(&mut self, now: Time);

    /// The retransmission timer ran out with this much in flight.
    fn on_timeout(&mut self, now: Time, timeout: &Timeout);

    /// The last congestion or time-out turned out to be none (RFC 3708, RFC 4015): take it back.
    fn on_spurious(&mut self, now: Time);

    /// About to send after a pause; only if the connection restarts after pauses.
    fn on_idle(&mut self, now: Time, idle: &Idle);

    /// The size of a full segment changed: another path MTU was learnt.
    fn on_mss(&mut self, mss: u64);

    /// Bytes that may be in flight, one segment at least.
    fn cwnd(&self) -> u64;

    /// Below this window slow start goes on; `u64::MAX` before any loss.
    fn ssthresh(&self) -> u64;

    /// The rate to pace at in bit/s, of TCP's payload; `None` if the control does not pace.
    fn pacing_rate_bps(&self) -> Option<u64> {
        None
    }

    /// What the connection does after a loss.
    fn recovery(&self) -> Recovery {
        Recovery::Window
    }

    /// Windows that the send buffer has room for: two, so that there is something to send when the
    /// window doubles.
    fn windows_buffered(&self) -> u64 {
        2
    }

    /// Whether the window is the control's own in recovery, too: the connection neither inflates nor
    /// reduces it.
    fn governs_recovery(&self) -> bool {
        self.recovery() == Recovery::Own
    }
}

/// What a connection does after a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Everything in flight counts as lost and is sent again from one segment on by slow start, as
    /// after a time-out, but without its back-off (Tahoe, 1988).
    Restart,
    /// The first ACK that acknowledges something new ends it (Reno, 1990; RFC 2001).
    FirstAck,
    /// It ends when all is acknowledged that was in flight (RFC 6582, RFC 6675, RFC 6937).
    Window,
    /// The same, but the window is the control's all the time.
    Own,
}

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of payload.
    pub bytes: u64,
    /// Bytes in flight before them.
    pub in_flight: u64,
    /// The application had less to send than was allowed.
    pub app_limited: bool,
    /// They were sent before.
    pub retransmission: bool,
}

/// What an ACK told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ack {
    /// Bytes that the cumulative acknowledgement moved over.
    pub acked: u64,
    /// Bytes newly acknowledged by SACK blocks.
    pub sacked: u64,
    /// Bytes that this ACK tells were delivered, each counted once: when first acknowledged,
    /// cumulatively or selectively.
    pub newly_delivered: u64,
    /// The same summed over the connection, this ACK included.
    pub delivered: u64,
    /// Bytes newly held for lost.
    pub lost: u64,
    /// A sample of the round trip, not of bytes that were sent twice unless time stamps tell (Karn).
    pub rtt: Option<Duration>,
    /// The smoothed round trip (RFC 6298); `None` before the first sample.
    pub srtt: Option<Duration>,
    /// The least round trip of the connection.
    pub min_rtt: Option<Duration>,
    /// Bytes in flight before this ACK.
    pub prior_in_flight: u64,
    /// Bytes in flight after it.
    pub in_flight: u64,
    /// It is the first that acknowledges cumulatively what was sent since the last round began: a new
    /// round trip begins.
    pub round: bool,
    /// The rate at which data was delivered.
    pub rate: Option<RateSample>,
    /// In recovery from a loss or an ECN mark, not from a time-out.
    pub in_recovery: bool,
    /// The congestion window, not the application or the peer's window, limited what was sent.
    pub cwnd_limited: bool,
    /// The peer echoes a congestion mark (ECE).
    pub ecn_echo: bool,
}

/// A sample of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes delivered over the interval.
    pub delivered: u64,
    /// The longer of the time it took to send them and the time it took to acknowledge them, not zero.
    pub interval: Duration,
    /// Bytes that the connection had delivered when the newest byte acknowledged was sent.
    pub prior_delivered: u64,
    /// The application limited what was sent: the path may be faster.
    pub app_limited: bool,
}

impl RateSample {
    /// Bytes a second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.delivered as f64 / self.interval.as_secs_f64()
    }
}

/// Congestion in a window of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// How it showed.
    pub cause: Cause,
    /// Bytes sent and not cumulatively acknowledged (`FlightSize`, RFC 5681 §2).
    pub flight_size: u64,
    /// The congestion window limited what was sent.
    pub cwnd_limited: bool,
}

/// How congestion showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A segment was lost.
    Loss,
    /// A router marked a packet (RFC 3168).
    Ecn,
}

/// A time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    /// Bytes sent and not cumulatively acknowledged.
    pub flight_size: u64,
    /// It is the first since something new was acknowledged; the others do not reduce the threshold
    /// further (RFC 5681 §3.1).
    pub is_first: bool,
}

/// A pause in sending that was longer than the retransmission time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// How long nothing was sent.
    pub lasted: Duration,
    /// The retransmission time-out.
    pub rto: Duration,
    /// What a window is worth after it.
    pub rule: IdleRule,
}

/// What a window is worth after a pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleRule {
    /// The initial window, if it was larger (RFC 5681 §4.1).
    Restart,
    /// Half for each time-out that passed, not less than the initial window (RFC 2861).
    #[default]
    Decay,
}

/// Which control a connection has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Algorithm {
    /// Slow start, congestion avoidance, fast retransmit; a loss restarts from one segment (Jacobson
    /// 1988).
    Tahoe(Counting),
    /// With fast recovery, which the first new ACK ends (RFC 2001).
    Reno(Counting),
    /// With a recovery that lasts for a window (RFC 5681, RFC 6582).
    NewReno(Counting),
    /// By the round trip: [`Vegas::LINUX`], [`Vegas::PAPER`], [`Vegas::SCPS`].
    Vegas(Vegas),
    /// Linux's default from 2.6.8 to 2.6.18.
    Bic(Bic),
    /// [`Cubic::RFC9438`], [`Cubic::LINUX`] and older kernels'.
    Cubic(Cubic),
    /// BBR version 1, as Linux has it.
    Bbr,
    /// No control: the window is as given and never changes. Something else, like a rate, limits what
    /// is sent.
    None {
        /// Bytes that may be in flight; `None`: any number.
        window: Option<u64>,
    },
}

/// A control for a new connection.
///
/// `mss` is the payload of a full segment, `initial_window` and `ssthresh` are in bytes; `ssthresh` is
/// `u64::MAX` if nothing is known of the path. `seed` decides where chance is part of the algorithm.
#[must_use]
pub fn new(
    algorithm: Algorithm,
    mss: u64,
    initial_window: u64,
    ssthresh: u64,
    seed: u64,
) -> Box<dyn Control> {
    let window = Window::new(mss, initial_window, ssthresh);
    match algorithm {
        Algorithm::Tahoe(counting) => Box::new(Reno::new(window, counting, Recovery::Restart)),
        Algorithm::Reno(counting) => Box::new(Reno::new(window, counting, Recovery::FirstAck)),
        Algorithm::NewReno(counting) => Box::new(Reno::new(window, counting, Recovery::Window)),
        Algorithm::Vegas(vegas) => Box::new(VegasControl::new(window, vegas)),
        Algorithm::Bic(bic) => Box::new(BicControl::new(window, bic)),
        Algorithm::Cubic(cubic) => Box::new(CubicControl::new(window, cubic)),
        Algorithm::Bbr => Box::new(Bbr::new(mss, initial_window, seed)),
        Algorithm::None { window: fixed } => Box::new(Unlimited::new(fixed.unwrap_or(u64::MAX))),
    }
}
