//! Congestion control: how much may be in flight, and how fast it is sent.
//!
//! A [`Control`] receives the sent, acknowledged and lost bytes, and returns a window, and a rate
//! if it paces. It counts bytes without sequence numbers: the connection decides which bytes are
//! lost, when a loss belongs to a new window, and which bytes are retransmitted.
//!
//! # Responsibilities in recovery
//!
//! The connection reports a loss once per window ([`Control::on_congestion`]). The control then
//! sets [`Control::ssthresh`], and [`Control::cwnd`] to the same (Tahoe: to one segment). The
//! connection handles the transition from the former window to the new one (inflation by duplicate
//! ACKs, proportional rate reduction, rate halving), until [`Control::on_recovered`]. Meanwhile
//! the control does not grow its window ([`Ack::in_recovery`]). A control whose
//! [`Control::recovery`] is [`Recovery::Own`] is not modified: its window applies in recovery,
//! too.
//!
//! After a timeout the window grows from one segment by slow start: [`Ack::in_recovery`] is false.
//! Congestion revealed by an ACK, and the end of a recovery, are reported before the ACK itself.

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

/// State of one connection's congestion control.
pub trait Control: fmt::Debug + Send {
    /// End of the handshake, which took `rtt` if measured.
    fn on_established(&mut self, _now: Time, _rtt: Option<Duration>) {}

    /// Bytes were sent.
    fn on_sent(&mut self, now: Time, sent: &Sent);

    /// An ACK acknowledged new data, cumulatively or selectively.
    fn on_ack(&mut self, now: Time, ack: &Ack);

    /// The network is congested; called once per window.
    fn on_congestion(&mut self, now: Time, congestion: &Congestion);

    /// Data in flight at the last congestion or timeout was acknowledged.
    fn on_recovered(&mut self, now: Time);

    /// The retransmission timer expired.
    fn on_timeout(&mut self, now: Time, timeout: &Timeout);

    /// The last congestion or timeout was spurious (RFC 3708, RFC 4015): undo the reaction.
    fn on_spurious(&mut self, now: Time);

    /// Data is about to be sent after an idle time; called only if the connection restarts after
    /// idle times.
    fn on_idle(&mut self, now: Time, idle: &Idle);

    /// The size of a full segment changed with the path MTU.
    fn on_mss(&mut self, mss: u64);

    /// Bytes that may be in flight, at least one segment.
    fn cwnd(&self) -> u64;

    /// Slow start threshold; `u64::MAX` before any loss.
    fn ssthresh(&self) -> u64;

    /// Pacing rate in bit/s of TCP payload; `None` if the control does not pace.
    fn pacing_rate_bps(&self) -> Option<u64> {
        None
    }

    /// Recovery of the connection after a loss.
    fn recovery(&self) -> Recovery {
        Recovery::Window
    }

    /// Number of windows in the send buffer: two, so that there is data when the window doubles.
    fn windows_buffered(&self) -> u64 {
        2
    }

    /// Whether the window is the control's own in recovery, too: the connection neither inflates
    /// nor reduces it.
    fn governs_recovery(&self) -> bool {
        self.recovery() == Recovery::Own
    }
}

/// Recovery of a connection after a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Everything in flight counts as lost and is retransmitted by slow start from one segment, as
    /// after a timeout, but without its back-off (Tahoe, 1988).
    Restart,
    /// Ends with the first ACK of new data (Reno, 1990; RFC 2001).
    FirstAck,
    /// Ends when all data in flight at its start is acknowledged (RFC 6582, RFC 6675, RFC 6937).
    Window,
    /// Like [`Recovery::Window`], with the control's own window.
    Own,
}

/// Sent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of payload.
    pub bytes: u64,
    /// Bytes in flight before them.
    pub in_flight: u64,
    /// Whether the application had less to send than allowed.
    pub app_limited: bool,
    /// Whether they were sent before.
    pub retransmission: bool,
}

/// Information in an ACK.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ack {
    /// Bytes by which the cumulative acknowledgment advanced.
    pub acked: u64,
    /// Bytes newly acknowledged by SACK blocks.
    pub sacked: u64,
    /// Bytes delivered according to this ACK, each counted once: when first acknowledged,
    /// cumulatively or selectively.
    pub newly_delivered: u64,
    /// Total bytes delivered on the connection, including this ACK.
    pub delivered: u64,
    /// Bytes newly considered lost.
    pub lost: u64,
    /// Round trip sample; not from retransmitted bytes, unless by timestamps (Karn).
    pub rtt: Option<Duration>,
    /// Smoothed round trip (RFC 6298); `None` before the first sample.
    pub srtt: Option<Duration>,
    /// Minimum round trip of the connection.
    pub min_rtt: Option<Duration>,
    /// Bytes in flight before this ACK.
    pub prior_in_flight: u64,
    /// Bytes in flight after it.
    pub in_flight: u64,
    /// Whether this ACK starts a round trip: it is the first to acknowledge cumulatively data sent
    /// since the last round began.
    pub round: bool,
    /// Delivery rate.
    pub rate: Option<RateSample>,
    /// Whether the connection recovers from a loss or an ECN mark, not from a timeout.
    pub in_recovery: bool,
    /// Whether the congestion window limited sending, not the application or the peer's window.
    pub cwnd_limited: bool,
    /// Whether the peer echoes a congestion mark (ECE).
    pub ecn_echo: bool,
}

/// Sample of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes delivered over the interval.
    pub delivered: u64,
    /// The longer of the time it took to send the bytes and the time to acknowledge them; not
    /// zero.
    pub interval: Duration,
    /// Total bytes delivered when the newest acknowledged byte was sent.
    pub prior_delivered: u64,
    /// Whether the application limited sending: the path may be faster.
    pub app_limited: bool,
}

impl RateSample {
    /// Rate in bytes per second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.delivered as f64 / self.interval.as_secs_f64()
    }
}

/// Congestion in a window of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// Cause.
    pub cause: Cause,
    /// Bytes sent and not cumulatively acknowledged (`FlightSize`, RFC 5681 §2).
    pub flight_size: u64,
    /// Whether the congestion window limited sending.
    pub cwnd_limited: bool,
}

/// Cause of congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A segment was lost.
    Loss,
    /// A router marked a packet (RFC 3168).
    Ecn,
}

/// Timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    /// Bytes sent and not cumulatively acknowledged.
    pub flight_size: u64,
    /// Whether it is the first since new data was acknowledged; later ones do not reduce the
    /// threshold further (RFC 5681 §3.1).
    pub is_first: bool,
}

/// Idle time longer than the retransmission timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Duration.
    pub lasted: Duration,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Rule for the window after an idle time.
    pub rule: IdleRule,
}

/// Window after an idle time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleRule {
    /// Initial window, if the window was larger (RFC 5681 §4.1).
    Restart,
    /// Half for each retransmission timeout that passed, not less than the initial window
    /// (RFC 2861).
    #[default]
    Decay,
}

/// Congestion control of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Algorithm {
    /// Slow start, congestion avoidance, fast retransmit; restarts from one segment after a loss
    /// (Jacobson 1988).
    Tahoe(Counting),
    /// Adds fast recovery, which ends with the first new ACK (RFC 2001).
    Reno(Counting),
    /// Adds a recovery that lasts for a window (RFC 5681, RFC 6582).
    NewReno(Counting),
    /// Delay-based: [`Vegas::LINUX`], [`Vegas::PAPER`], [`Vegas::SCPS`].
    Vegas(Vegas),
    /// Default of Linux 2.6.8 to 2.6.18.
    Bic(Bic),
    /// [`Cubic::RFC9438`], [`Cubic::LINUX`] and the variants of older kernels.
    Cubic(Cubic),
    /// BBR version 1, as in Linux.
    Bbr,
    /// No congestion control: a constant window. Something else, like a rate, limits sending.
    None {
        /// Bytes that may be in flight; `None`: unlimited.
        window: Option<u64>,
    },
}

/// Creates the control of a new connection.
///
/// `mss` is the payload of a full segment, `initial_window` and `ssthresh` are in bytes;
/// `ssthresh` is `u64::MAX` for an unknown path. `seed` seeds randomised algorithms.
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
