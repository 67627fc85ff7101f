//! Settings of a stack and of a connection.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use engine::PathId;
use session::settings;
use session::settings::form::{Leaf, Number, OFF, Size, Word};
use session::settings::{Base, Kind, Value, Visited, Visitor, Wrong};
use session::visit;
use session::words;

use super::cc::{Algorithm, Cubic, IdleRule};
use super::scps::Scps;

/// Settings of a stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Routes; the longest prefix wins. Addresses without a route use the interface of the lowest
    /// number that is up.
    pub routes: Vec<Route>,
    /// Settings of all connections over an interface. They override the requested settings, so
    /// that a proxy's connections can differ by side.
    pub interfaces: BTreeMap<PathId, Options>,
    /// Addresses of the stack. Packets to others are ignored; if empty, any address is accepted.
    pub addresses: Vec<IpAddr>,
    /// Whether segments of unknown connections get a reset (RFC 9293 §3.10.7.1).
    pub reset_strangers: bool,
    /// Ephemeral ports.
    pub ports: RangeInclusive<u16>,
    /// Checks of RFC 5961 §3, §4 and §5: a reset needs the exact number; a SYN within a connection
    /// and an out-of-range acknowledgment get a challenge ACK.
    pub robust: bool,
    /// Minimum time between two challenge ACKs, or replies to out-of-window segments, of one
    /// connection.
    pub challenge_interval: Duration,
    /// Time for which a closed connection is remembered (2 MSL).
    pub time_wait: Duration,
    /// Time to wait for the FIN of a peer that was informed that nobody reads any more.
    pub fin_wait: Duration,
    /// Limits of the stack.
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

/// Route to some addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination prefix, with [`Route::bits`].
    pub prefix: IpAddr,
    /// Prefix length.
    pub bits: u8,
    /// Interface.
    pub path: PathId,
}

/// Limits of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of connections, including connections of a backlog.
    pub connections: usize,
    /// Number of closed connections remembered; the oldest is forgotten.
    pub time_wait: usize,
    /// Number of queued replies to unknown connections; further ones are dropped.
    pub replies: usize,
    /// Number of gaps in received data of one connection; segments that would open another are
    /// dropped.
    pub gaps: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 65_536, time_wait: 16_384, replies: 256, gaps: 4096 }
    }
}

settings! {
    /// Backlog of a listener.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Backlog {
        /// Maximum number of half-open connections.
        pub half_open: usize as Number [Least(1)] = 256,
        /// SYN cookies (RFC 4987): `when-full` (for SYNs beyond `half_open`), `never` or `always`.
        pub cookies: Cookies as Word = Cookies::WhenFull,
    }
}

/// Use of SYN cookies (RFC 4987 §3.6), which take no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cookies {
    /// Never: a SYN beyond the backlog is dropped, and retransmitted by the peer.
    Never,
    /// Cookies for SYNs beyond the backlog.
    WhenFull,
    /// For all SYNs.
    Always,
}

words!(Cookies {
    "never" = Self::Never,
    "when-full" = Self::WhenFull,
    "always" = Self::Always,
});

settings! {
    /// Settings of a connection. Each can be changed separately.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Options [more: Self::visit_buffers] {
        /// Congestion control.
        pub congestion: Algorithm as Word = Algorithm::Cubic(Cubic::LINUX),
        /// Maximum segment size announced and sent, in bytes without headers; `off` uses what fits
        /// the interface's MTU. Header options reduce the data in a segment.
        pub mss: Option<u16> as Off<Number> [Least(64)] = None,
        /// Window scaling (RFC 7323 §2); without it windows are limited to 65,535 bytes.
        pub window_scale: bool as Flag = true,
        /// Timestamps, and protection against wrapped sequence numbers by them (RFC 7323 §3, §5).
        pub timestamps: bool as Flag = true,
        /// Selective acknowledgment (RFC 2018).
        pub sack: bool as Flag = true,
        /// Reports of duplicates, sent and used (RFC 2883).
        pub duplicate_sack: bool as Flag = true,
        /// Loss recovery: RFC 6582, RFC 6675, RFC 6937, or as in Linux up to 3.1.
        pub recovery: LossRecovery as Word = LossRecovery::Prr,
        /// Loss detection by sending times (RFC 8985); needs `sack`. It also detects lost
        /// retransmissions.
        pub rack: bool as Flag = true,
        /// Tail loss probes after two round trips of silence, before the timeout (RFC 8985 §7).
        pub tail_loss_probe: bool as Flag = false,
        /// Limited transmit: new data for the first two duplicate acknowledgments (RFC 3042).
        pub limited_transmit: bool as Flag = true,
        /// Undo of the reaction to a spurious loss (RFC 3708, RFC 4015).
        pub undo: bool as Flag = true,
        /// Explicit congestion notification (RFC 3168).
        pub ecn: bool as Flag = false,
        /// Nagle's algorithm: a short segment waits until all data is acknowledged (RFC 9293
        /// §3.7.4).
        pub nagle: bool as Flag = true,
        /// Minshall's variant, as in Linux: a short segment waits only for other short ones. The
        /// end of a user's write follows full segments at once.
        pub minshall: bool as Flag = true,
        /// Acknowledgments.
        pub acks("ack"): AckPolicy as Table = AckPolicy::default(),
        /// Limits of the retransmission timeout.
        pub timeouts("rto"): Timeouts as Table = Timeouts::default(),
        /// Retransmissions of a SYN.
        pub syn_retries: u32 as Number = 6,
        /// Retransmissions of data by the timer before the connection is closed: R2 of RFC 9293
        /// §3.8.3.
        pub retries: u32 as Number = 15,
        /// Keep-alive probes of an idle peer.
        pub keep_alive: Option<KeepAlive> as Off<Table> = None,
        /// Whether repeated timeouts of a full segment reduce the segment size (RFC 4821,
        /// RFC 8899). A probe raises it again. Linux: `tcp_mtu_probing`.
        pub mtu_probing: bool as Flag = false,
        /// Initial congestion window in segments; `off` follows RFC 3390.
        pub initial_window: InitialWindow as Segments [Least(1)] = InitialWindow::Segments(10),
        /// Congestion window after a retransmission timeout without sending: `decay` (RFC 2861),
        /// `restart` (RFC 5681), or `off` (unchanged).
        pub idle: Option<IdleRule> as Off<Word> = Some(IdleRule::Decay),
        /// Bytes that the user may write ahead of acknowledgments.
        pub send_buffer: Buffer = Buffer::Auto { initial: 16 << 10, max: 4 << 20 },
        /// Whether the user is notified of any free space in the send buffer, instead of a third of
        /// it as in Linux, which makes writes fewer and larger.
        pub any_room: bool as Flag = false,
        /// Bytes that the peer may send ahead of the user's reads.
        pub receive_buffer: Buffer = Buffer::Auto { initial: 64 << 10, max: 6 << 20 },
        /// Pacing for congestion controls without their own rate: at twice the window per round
        /// trip in slow start, and 1.2 times the window later.
        pub pacing: bool as Flag = false,
        /// TTL or hop limit of packets.
        pub hop_limit: u8 = 64,
        /// Differentiated services code point (DSCP), 6 bits.
        pub dscp: u8 = 0,
        /// SCPS-TP, if used.
        pub scps: Option<Scps> as Off<Table> = None,
    }
}

settings! {
    /// Limits of the retransmission timeout (RFC 6298).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Timeouts [check: Self::order] {
        /// Timeout before the round trip is known.
        pub initial: Duration as Span [Interval] = Duration::from_secs(1),
        /// Minimum timeout.
        pub min: Duration as Span [Interval] = Duration::from_millis(200),
        /// Maximum timeout, and maximum time between two probes of a closed window.
        pub max: Duration as Span [Interval] = Duration::from_secs(120),
        /// Minimum margin above the smoothed round trip, where four times the variation is less:
        /// the clock granularity of RFC 6298; 200 ms in Linux.
        pub margin: Duration as Span = Duration::from_millis(200),
    }
}

impl Timeouts {
    fn order(&mut self) -> Result<(), Wrong> {
        if self.min <= self.max {
            return Ok(());
        }
        let text = "min is {} and {table}max {}; the least must not be above the most: set both";
        Err(Wrong { text: text.to_owned(), values: [self.min, self.max].map(Value::Span).into() })
    }
}

settings! {
    /// Acknowledgment of received data (RFC 9293 §3.8.6.3).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AckPolicy {
        /// Full segments per acknowledgment; 1: each at once. `off` acknowledges only after the
        /// delay, even out-of-order and duplicate data.
        pub every: u32 as Off<Number> [Least(1)] = 2,
        /// Maximum delay of an acknowledgment.
        pub max_delay: Duration as Span = Duration::from_millis(40),
        /// Number of initial segments acknowledged at once.
        pub quick: u32 as Number = 16,
    }
}

settings! {
    /// Keep-alive probes of an idle peer (RFC 9293 §3.8.4).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct KeepAlive {
        /// Idle time after which a peer is probed.
        pub idle: Duration as Span [Interval] = Duration::from_secs(7200),
        /// Time between probes.
        pub interval: Duration as Span [Interval] = Duration::from_secs(75),
        /// Number of unanswered probes before the connection is closed.
        pub probes: u32 as Number [Least(1)] = 9,
    }
}

/// Transmission after a loss, and the reduction of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossRecovery {
    /// One segment per round trip, at partial acknowledgments (RFC 6582). With SACK, known data is
    /// skipped, but SACK is not used otherwise.
    NewReno,
    /// Recovery by the scoreboard, up to the reduced window (RFC 6675).
    Sack6675,
    /// Like `Sack6675`, with the reduction spread over the round trip (RFC 6937).
    Prr,
    /// Like `Sack6675`, with one segment per two acknowledged (Linux up to 3.1).
    RateHalving,
}

/// Initial congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialWindow {
    /// Two to four segments, about 4,380 bytes (RFC 3390, RFC 5681 §3.1).
    Rfc3390,
    /// This many segments.
    Segments(u32),
}

impl InitialWindow {
    /// Window in bytes.
    #[must_use]
    pub fn bytes(self, mss: u64) -> u64 {
        match self {
            Self::Rfc3390 => (4 * mss).min((2 * mss).max(4380)),
            Self::Segments(count) => mss * u64::from(count.max(1)),
        }
    }
}

/// Size of a buffer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Constant size.
    Fixed(u64),
    /// Grows with the connection's throughput per round trip.
    Auto {
        /// Initial size.
        initial: u64,
        /// Maximum size.
        max: u64,
    },
}

impl Buffer {
    /// Initial size.
    #[must_use]
    pub fn initial(self) -> u64 {
        match self {
            Self::Fixed(size) => size.max(1),
            Self::Auto { initial, max } => initial.min(max).max(1),
        }
    }

    /// Maximum size.
    #[must_use]
    pub fn max(self) -> u64 {
        match self {
            Self::Fixed(size) => size.max(1),
            Self::Auto { max, .. } => max.max(1),
        }
    }
}

/// Form of an [`InitialWindow`].
#[derive(Debug)]
struct Segments;

impl Leaf<InitialWindow> for Segments {
    fn kind() -> Kind {
        <Number as Leaf<u32>>::kind().or(OFF)
    }

    fn get(window: &InitialWindow) -> Option<Value> {
        Some(match window {
            InitialWindow::Rfc3390 => Value::Word(OFF),
            InitialWindow::Segments(count) => Value::Number((*count).into()),
        })
    }

    fn set(window: &mut InitialWindow, value: Value) -> Result<(), String> {
        let Value::Number(_) = value else {
            *window = InitialWindow::Rfc3390;
            return Ok(());
        };
        let mut count = 0_u32;
        Number::set(&mut count, value)?;
        *window = InitialWindow::Segments(count);
        Ok(())
    }
}

words!(LossRecovery {
    "newreno" = Self::NewReno,
    "sack" = Self::Sack6675,
    "prr" = Self::Prr,
    "rate-halving" = Self::RateHalving,
});

words!(IdleRule { "restart" = Self::Restart, "decay" = Self::Decay });

/// Share of Linux's receive buffer that is announced (`scaling_ratio`, `tcp_measure_rcv_mss`): a
/// packet of 1,500 bytes has 1,448 bytes of data and takes 2,304 bytes of memory, which is rounded
/// to 160 / 256.
const WINDOW: u64 = 5;
const MEMORY: u64 = 8;

/// Growth limit of a connection's buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BufferLimit {
    /// Linux defaults (`net.ipv4.tcp_wmem` and `tcp_rmem`): 4 MiB to send and 6 MiB to receive, 32
    /// MiB since 6.16. 6 MiB hold a window of 3.75 MiB.
    Linux,
    /// 256 MiB, more than any window here needs.
    #[default]
    Unlimited,
}

words!(BufferLimit { "linux" = Self::Linux, "unlimited" = Self::Unlimited });

impl BufferLimit {
    /// All, in listing order.
    pub const ALL: &[Self] = &[Self::Linux, Self::Unlimited];

    /// Name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Unlimited => "unlimited",
        }
    }

    /// Maximum bytes of the send buffer and of the receive buffer, in Linux's memory.
    #[must_use]
    pub fn most(self) -> (u64, u64) {
        match self {
            Self::Linux => (4 << 20, 6 << 20),
            Self::Unlimited => (256 << 20, 256 << 20),
        }
    }

    /// Maximum receive window, in bytes.
    #[must_use]
    pub fn window(self) -> u64 {
        let (_, memory) = self.most();
        match self {
            Self::Linux => memory * WINDOW / MEMORY,
            Self::Unlimited => memory,
        }
    }

    /// Bytes of Linux's receive buffer for a window, at most those of `Unlimited`.
    #[must_use]
    pub fn memory_of_window(window: u64) -> u64 {
        let (_, most) = Self::Unlimited.most();
        most.min(window.saturating_mul(MEMORY) / WINDOW)
    }

    /// Changes the maximum of a connection's growing buffers. Fixed ones are unchanged.
    pub fn apply(self, options: &mut Options) {
        let (send, receive) = (self.most().0, self.window());
        for (buffer, most) in
            [(&mut options.send_buffer, send), (&mut options.receive_buffer, receive)]
        {
            if let Buffer::Auto { max, .. } = buffer {
                *max = most;
            }
        }
    }
}

/// Form of the buffers by their growth limit.
#[derive(Debug)]
struct Growth;

impl Leaf<Options> for Growth {
    fn kind() -> Kind {
        <Word as Leaf<BufferLimit>>::kind()
    }

    fn get(_: &Options) -> Option<Value> {
        None
    }

    fn set(options: &mut Options, value: Value) -> Result<(), String> {
        let mut limit = BufferLimit::default();
        Word::set(&mut limit, value)?;
        limit.apply(options);
        Ok(())
    }
}

/// Form of a buffer by its size or its maximum. A size alone is fixed.
#[derive(Debug)]
struct Most;

impl Leaf<Buffer> for Most {
    fn kind() -> Kind {
        Base::Size.into()
    }

    fn get(buffer: &Buffer) -> Option<Value> {
        Some(Value::Size(match *buffer {
            Buffer::Fixed(size) => size,
            Buffer::Auto { max, .. } => max,
        }))
    }

    fn set(buffer: &mut Buffer, value: Value) -> Result<(), String> {
        let mut size = 0_u64;
        Size::set(&mut size, value)?;
        *buffer = Buffer::Fixed(size);
        Ok(())
    }
}

/// Form of a buffer by its initial size.
#[derive(Debug)]
struct Initial;

impl Leaf<Buffer> for Initial {
    fn kind() -> Kind {
        Kind::from(Base::Size).or(OFF)
    }

    fn get(buffer: &Buffer) -> Option<Value> {
        Some(match *buffer {
            Buffer::Fixed(_) => Value::Word(OFF),
            Buffer::Auto { initial, .. } => Value::Size(initial),
        })
    }

    fn set(buffer: &mut Buffer, value: Value) -> Result<(), String> {
        let max = buffer.max();
        *buffer = match value {
            Value::Size(initial) => Buffer::Auto { initial, max },
            _ => Buffer::Fixed(max),
        };
        Ok(())
    }
}

/// Minimum buffer: a buffer below a few segments is useless.
const BUFFER_MIN: u64 = 1000;

impl Options {
    fn visit_buffers(&mut self, visitor: &mut dyn Visitor) -> Visited {
        visit! { visitor;
            /// Growth limit of both buffers: `unlimited` or `linux`. Sizes take precedence.
            "buffers": (*self) as Growth,
            /// Bytes of the send buffer, or its maximum. A size alone is fixed.
            "send_buffer": self.send_buffer as Most [Least(BUFFER_MIN)],
            /// Initial bytes of the send buffer; `off` makes it fixed.
            "send_buffer_initial": self.send_buffer as Initial [Least(BUFFER_MIN)],
            /// Bytes of the receive buffer, which is the offered window, or its maximum.
            "receive_buffer": self.receive_buffer as Most [Least(BUFFER_MIN)],
            /// Initial bytes of the receive buffer; `off` makes it fixed.
            "receive_buffer_initial": self.receive_buffer as Initial [Least(BUFFER_MIN)],
        }
        Ok(())
    }

    /// Minimum window shift with which the largest window fits its field.
    pub(crate) fn receive_scale(&self) -> u8 {
        let max = self.receive_buffer.max();
        let shift = (0..14).find(|shift| max >> shift <= 65_535).unwrap_or(14);
        if self.window_scale { shift } else { 0 }
    }

    /// Initial receive buffer. A window below the field's unit could not be announced.
    pub(crate) fn receive_capacity(&self) -> u64 {
        self.receive_buffer.initial().max(1 << self.receive_scale())
    }
}
