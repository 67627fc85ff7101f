//! The settings of a stack and of a connection.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use engine::PathId;

use super::cc::{Algorithm, Cubic, IdleRule};
use super::scps::Scps;

/// The settings of a stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where packets to an address go; the longest prefix wins. To an address without a route they
    /// go to the interface of the lowest number that is up.
    pub routes: Vec<Route>,
    /// The settings of all connections over an interface, in place of those that were asked for: a
    /// proxy's connections are of one kind on one side and of another on the other.
    pub interfaces: BTreeMap<PathId, Options>,
    /// The stack's own addresses. Packets to others are left alone; none: any address is its own.
    pub addresses: Vec<IpAddr>,
    /// Whether a segment for a connection that does not exist is answered with a reset
    /// (RFC 9293 §3.10.7.1).
    pub reset_strangers: bool,
    /// Ports for connections that name none of their own.
    pub ports: RangeInclusive<u16>,
    /// The checks of RFC 5961 §3, §4 and §5: a reset counts only with the exact number, a SYN within
    /// a connection and an acknowledgment out of bounds are challenged.
    pub robust: bool,
    /// Least time between two challenges, or answers to what is out of window, of one connection.
    pub challenge_interval: Duration,
    /// How long a closed connection's numbers are remembered (2 MSL).
    pub time_wait: Duration,
    /// How long the end of a peer is awaited that was told that nobody reads any more.
    pub fin_wait: Duration,
    /// Bounds on what the stack holds.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            routes: Vec::new(),
            interfaces: BTreeMap::new(),
            addresses: Vec::new(),
            reset_strangers: true,
            ports: 32_768..=60_999,
            robust: true,
            challenge_interval: Duration::from_millis(500),
            time_wait: Duration::from_secs(60),
            fin_wait: Duration::from_secs(60),
            limits: Limits::default(),
        }
    }
}

/// Where packets to some addresses go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The addresses, with [`Route::bits`].
    pub prefix: IpAddr,
    /// Leading bits of the prefix that count.
    pub bits: u8,
    /// The interface.
    pub path: PathId,
}

/// Bounds on what a stack holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections, those of a backlog included.
    pub connections: usize,
    /// Closed connections whose numbers are remembered; the oldest makes room.
    pub time_wait: usize,
    /// Segments to strangers that wait to be sent; further ones are left out.
    pub replies: usize,
    /// Gaps in what one connection received; a segment that would make one more is dropped.
    pub gaps: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 65_536, time_wait: 16_384, replies: 256, gaps: 4096 }
    }
}

/// How many connections may wait to be established at a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Connections that are not established yet.
    pub half_open: usize,
    /// What becomes of a SYN beyond them.
    pub cookies: Cookies,
}

impl Default for Backlog {
    fn default() -> Self {
        Self { half_open: 256, cookies: Cookies::WhenFull }
    }
}

/// Whether connections are made of SYN cookies (RFC 4987 §3.6), which take no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cookies {
    /// Never: a SYN beyond the backlog is dropped, and sent again.
    Never,
    /// For a SYN beyond the backlog.
    WhenFull,
    /// For each SYN.
    Always,
}

/// The settings of a connection. Each can be switched by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The longest segment to be announced and sent, in octets without headers; `None`: what fits
    /// into the interface's MTU. Options of the header take their room from it.
    pub mss: Option<u16>,
    /// Window scale (RFC 7323 §2); without it no window is longer than 65,535 octets.
    pub window_scale: bool,
    /// Time stamps, and with them protection against wrapped sequence numbers (RFC 7323 §3, §5).
    pub timestamps: bool,
    /// Selective acknowledgment (RFC 2018).
    pub sack: bool,
    /// Reporting what arrives twice, and heeding such reports (RFC 2883).
    pub duplicate_sack: bool,
    /// What is sent after a loss.
    pub recovery: LossRecovery,
    /// Telling losses from the time at which what arrived was sent (RFC 8985), lost retransmissions
    /// among them; needs [`Options::sack`].
    pub rack: bool,
    /// Sending something after two round trips of silence, before the time-out (RFC 8985 §7).
    pub tail_loss_probe: bool,
    /// New data for the first two duplicate acknowledgments (RFC 3042).
    pub limited_transmit: bool,
    /// Taking back what was done for a loss that was none (RFC 3708, RFC 4015).
    pub undo: bool,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// A short segment waits until everything is acknowledged (RFC 9293 §3.7.4).
    pub nagle: bool,
    /// It waits for other short ones only: the end of what a user writes goes at once behind full
    /// segments (Minshall's variant, which Linux has).
    pub minshall: bool,
    /// When what arrives is acknowledged.
    pub acks: AckPolicy,
    /// The bounds of the retransmission time-out.
    pub timeouts: Timeouts,
    /// How often a SYN is sent again.
    pub syn_retries: u32,
    /// How often data is sent again by the timer before the connection is given up: R2 of
    /// RFC 9293 §3.8.3.
    pub retries: u32,
    /// Asking an idle peer whether it is still there.
    pub keep_alive: Option<KeepAlive>,
    /// Whether repeated timeouts of a full segment lower the segment size, and a probe raises it again
    /// (RFC 4821, RFC 8899): `tcp_mtu_probing` of Linux.
    pub mtu_probing: bool,
    /// What may be sent before anything is acknowledged.
    pub initial_window: InitialWindow,
    /// What becomes of the congestion window when nothing was sent for a time-out; `None`: nothing.
    pub idle: Option<IdleRule>,
    /// Octets that the user may write ahead of what is acknowledged.
    pub send_buffer: Buffer,
    /// Whether the user hears of any room in the send buffer. Otherwise it is told once a third of it
    /// is free, as by Linux, so that it writes seldom and much.
    pub any_room: bool,
    /// Octets that the peer may send ahead of what the user reads.
    pub receive_buffer: Buffer,
    /// Congestion control.
    pub congestion: Algorithm,
    /// Sending at twice the window a round trip in slow start and at 1.2 times the window later,
    /// where the congestion control has no rate of its own.
    pub pacing: bool,
    /// Routers a packet may cross.
    pub hop_limit: u8,
    /// The differentiated services code point, 6 bits.
    pub dscp: u8,
    /// SCPS-TP, if any of it is wanted.
    pub scps: Option<Scps>,
}

/// The bounds of the retransmission time-out (RFC 6298).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Before anything is known of the round trip.
    pub initial: Duration,
    /// The least.
    pub min: Duration,
    /// The most, and the most between two probes of a closed window.
    pub max: Duration,
    /// Least allowance beyond the smoothed round trip, where four times the variation is less: the
    /// clock's granularity of RFC 6298, and 200 ms in Linux.
    pub margin: Duration,
}

/// When what arrives is acknowledged (RFC 9293 §3.8.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// At each so many full segments; 1: at once. 0: only after the delay, whatever comes, out of
    /// order or twice.
    pub every: u32,
    /// And after so long at the latest.
    pub max_delay: Duration,
    /// At once for so many segments at the beginning.
    pub quick: u32,
}

/// Asking an idle peer whether it is still there (RFC 9293 §3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// After so long without a segment of it.
    pub idle: Duration,
    /// Again after so long.
    pub interval: Duration,
    /// And so often, before the connection is given up.
    pub probes: u32,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// What is sent after a loss, and how the window gets down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossRecovery {
    /// One segment a round trip, as partial acknowledgments come (RFC 6582). With SACK the holes
    /// are known and are not filled one by one, but nothing else is made of it.
    NewReno,
    /// What the scoreboard says, up to the reduced window (RFC 6675).
    Sack6675,
    /// The same, with the reduction spread over the round trip (RFC 6937).
    Prr,
    /// The same, with one segment for every two that arrive (Linux up to 3.1).
    RateHalving,
}

/// What may be sent before anything is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialWindow {
    /// Two to four segments, about 4,380 octets (RFC 3390, RFC 5681 §3.1).
    Rfc3390,
    /// So many segments.
    Segments(u32),
}

impl InitialWindow {
    /// In octets.
    #[must_use]
    pub fn octets(self, mss: u64) -> u64 {
        match self {
            Self::Rfc3390 => (4 * mss).min((2 * mss).max(4380)),
            Self::Segments(count) => mss * u64::from(count.max(1)),
        }
    }
}

/// The size of a buffer, in octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Always the same.
    Fixed(u64),
    /// It grows with what the connection carries in a round trip.
    Auto {
        /// At the beginning.
        initial: u64,
        /// At most.
        max: u64,
    },
}

impl Buffer {
    /// At the beginning.
    #[must_use]
    pub fn initial(self) -> u64 {
        match self {
            Self::Fixed(size) => size.max(1),
            Self::Auto { initial, max } => initial.min(max).max(1),
        }
    }

    /// At most.
    #[must_use]
    pub fn max(self) -> u64 {
        match self {
            Self::Fixed(size) => size.max(1),
            Self::Auto { max, .. } => max.max(1),
        }
    }
}

impl Options {
    /// By how much windows are shifted so that the longest fits its field.
    pub(crate) fn receive_scale(&self) -> u8 {
        let max = self.receive_buffer.max();
        let shift = (0..14).find(|shift| max >> shift <= 65_535).unwrap_or(14);
        if self.window_scale { shift } else { 0 }
    }

    /// The receive buffer at the beginning. A window of less than the field's unit could not be told.
    pub(crate) fn receive_capacity(&self) -> u64 {
        self.receive_buffer.initial().max(1 << self.receive_scale())
    }
}

impl Default for Options {
    /// What a Linux of today does, but for its tail loss probes.
    fn default() -> Self {
        Self {
            mss: None,
            window_scale: true,
            timestamps: true,
            sack: true,
            duplicate_sack: true,
            recovery: LossRecovery::Prr,
            rack: true,
            tail_loss_probe: false,
            limited_transmit: true,
            undo: true,
            ecn: false,
            nagle: true,
            minshall: true,
            acks: AckPolicy { every: 2, max_delay: Duration::from_millis(40), quick: 16 },
            timeouts: Timeouts {
                initial: Duration::from_secs(1),
                min: Duration::from_millis(200),
                max: Duration::from_secs(120),
                margin: Duration::from_millis(200),
            },
            syn_retries: 6,
            retries: 15,
            keep_alive: None,
            mtu_probing: false,
            initial_window: InitialWindow::Segments(10),
            idle: Some(IdleRule::Decay),
            send_buffer: Buffer::Auto { initial: 16 << 10, max: 4 << 20 },
            any_room: false,
            receive_buffer: Buffer::Auto { initial: 64 << 10, max: 6 << 20 },
            congestion: Algorithm::Cubic(Cubic::LINUX),
            pacing: false,
            hop_limit: 64,
            dscp: 0,
            scps: None,
        }
    }
}
