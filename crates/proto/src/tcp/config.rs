//! The settings of a stack and of a connection.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use engine::PathId;

use super::cc::{Algorithm, Cubic, IdleRule};
use super::scps::Scps;
use crate::settings::form::{Leaf, Number, OFF, Size, Word};
use crate::settings::{Base, Kind, Value, Visited, Visitor, Wrong};
use crate::{settings, visit, words};

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

settings! {
    /// Connections that wait to be established at a listener.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Backlog {
        /// Connections that may wait to be established.
        pub half_open: usize as Number [Least(1)] = 256,
        /// SYN cookies (RFC 4987): `when-full`, for a SYN beyond `half_open`, `never` or `always`.
        pub cookies: Cookies as Word = Cookies::WhenFull,
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

words!(Cookies {
    "never" = Self::Never,
    "when-full" = Self::WhenFull,
    "always" = Self::Always,
});

settings! {
    /// Settings of a connection. Each can be switched by itself.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Options [more: Self::visit_buffers] {
        /// Congestion control.
        pub congestion: Algorithm as Word = Algorithm::Cubic(Cubic::LINUX),
        /// Longest segment to be announced and sent, in bytes without headers; `off` takes what fits
        /// into the interface's MTU. Options of the header take their room from it.
        pub mss: Option<u16> as Off<Number> [Least(64)] = None,
        /// Window scale (RFC 7323 §2); without it no window is longer than 65,535 bytes.
        pub window_scale: bool as Flag = true,
        /// Timestamps, and with them protection against wrapped sequence numbers (RFC 7323 §3, §5).
        pub timestamps: bool as Flag = true,
        /// Selective acknowledgment (RFC 2018).
        pub sack: bool as Flag = true,
        /// Reports of duplicates, which are sent and heeded (RFC 2883).
        pub duplicate_sack: bool as Flag = true,
        /// Recovery from losses: RFC 6582, RFC 6675, RFC 6937, or as Linux up to 3.1.
        pub recovery: LossRecovery as Word = LossRecovery::Prr,
        /// Loss detection by the times at which segments were sent (RFC 8985); needs `sack`. It finds
        /// lost retransmissions, too.
        pub rack: bool as Flag = true,
        /// Probes after two round trips of silence, before the timeout (RFC 8985 §7).
        pub tail_loss_probe: bool as Flag = false,
        /// New data for the first two duplicate acknowledgments (RFC 3042).
        pub limited_transmit: bool as Flag = true,
        /// Undo of the reaction to a loss that was none (RFC 3708, RFC 4015).
        pub undo: bool as Flag = true,
        /// Explicit congestion notification (RFC 3168).
        pub ecn: bool as Flag = false,
        /// Nagle's algorithm: a short segment waits until everything is acknowledged (RFC 9293
        /// §3.7.4).
        pub nagle: bool as Flag = true,
        /// Minshall's variant, which Linux has: a short segment waits for other short ones alone. The
        /// end of what a user writes goes at once behind full segments.
        pub minshall: bool as Flag = true,
        /// Acknowledgments.
        pub acks("ack"): AckPolicy as Table = AckPolicy::default(),
        /// Bounds of the retransmission timeout.
        pub timeouts("rto"): Timeouts as Table = Timeouts::default(),
        /// Retransmissions of a SYN.
        pub syn_retries: u32 as Number = 6,
        /// Retransmissions of data by the timer before the connection is given up: R2 of RFC 9293
        /// §3.8.3.
        pub retries: u32 as Number = 15,
        /// Probes of an idle peer.
        pub keep_alive: Option<KeepAlive> as Off<Table> = None,
        /// Whether repeated timeouts of a full segment lower the segment size (RFC 4821, RFC 8899). A
        /// probe raises it again. It is `tcp_mtu_probing` of Linux.
        pub mtu_probing: bool as Flag = false,
        /// Segments that may be sent before anything is acknowledged; `off` is as many as RFC 3390
        /// allows.
        pub initial_window: InitialWindow as Segments [Least(1)] = InitialWindow::Segments(10),
        /// Congestion window after a timeout without sending: `decay` (RFC 2861), `restart` (RFC
        /// 5681), or `off`, unchanged.
        pub idle: Option<IdleRule> as Off<Word> = Some(IdleRule::Decay),
        /// Bytes that the user may write ahead of what is acknowledged.
        pub send_buffer: Buffer = Buffer::Auto { initial: 16 << 10, max: 4 << 20 },
        /// Whether the user is notified of any room in the send buffer, or, as by Linux, of a third.
        /// Then it writes seldom and much.
        pub any_room: bool as Flag = false,
        /// Bytes that the peer may send ahead of what the user reads.
        pub receive_buffer: Buffer = Buffer::Auto { initial: 64 << 10, max: 6 << 20 },
        /// Pacing, where the congestion control has no rate of its own. It sends twice the window a
        /// round trip in slow start, and 1.2 times the window later.
        pub pacing: bool as Flag = false,
        /// Routers a packet may cross.
        pub hop_limit: u8 = 64,
        /// The differentiated services code point, 6 bits.
        pub dscp: u8 = 0,
        /// SCPS-TP, if any of it is used.
        pub scps: Option<Scps> as Off<Table> = None,
    }
}

settings! {
    /// Bounds of the retransmission timeout (RFC 6298).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Timeouts [check: Self::order] {
        /// Timeout before anything is known of the round trip.
        pub initial: Duration as Span [Interval] = Duration::from_secs(1),
        /// Least timeout.
        pub min: Duration as Span [Interval] = Duration::from_millis(200),
        /// Greatest timeout, and the most between two probes of a closed window.
        pub max: Duration as Span [Interval] = Duration::from_secs(120),
        /// Least allowance beyond the smoothed round trip, where four times the variation is less:
        /// the clock's granularity of RFC 6298, and 200 ms in Linux.
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
    /// Acknowledgments of what arrives (RFC 9293 §3.8.6.3).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AckPolicy {
        /// Full segments for each of which an acknowledgment is sent; 1: at once. `off` acknowledges
        /// after the delay alone, whatever comes, out of order or twice.
        pub every: u32 as Off<Number> [Least(1)] = 2,
        /// Greatest delay of an acknowledgment.
        pub max_delay: Duration as Span = Duration::from_millis(40),
        /// Segments at the beginning that are acknowledged at once.
        pub quick: u32 as Number = 16,
    }
}

settings! {
    /// Probes of an idle peer (RFC 9293 §3.8.4).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct KeepAlive {
        /// Time without a segment after which an idle peer is probed.
        pub idle: Duration as Span [Interval] = Duration::from_secs(7200),
        /// Time between probes.
        pub interval: Duration as Span [Interval] = Duration::from_secs(75),
        /// Probes before the connection is given up.
        pub probes: u32 as Number [Least(1)] = 9,
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
    /// Two to four segments, about 4,380 bytes (RFC 3390, RFC 5681 §3.1).
    Rfc3390,
    /// So many segments.
    Segments(u32),
}

impl InitialWindow {
    /// In bytes.
    #[must_use]
    pub fn bytes(self, mss: u64) -> u64 {
        match self {
            Self::Rfc3390 => (4 * mss).min((2 * mss).max(4380)),
            Self::Segments(count) => mss * u64::from(count.max(1)),
        }
    }
}

/// The size of a buffer, in bytes.
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

/// Growth limit of a connection's buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BufferLimit {
    /// As far as Linux lets them unless it is configured (`net.ipv4.tcp_wmem` and `tcp_rmem`): 4 MiB
    /// to send and 6 MiB to receive; from 6.16 on a receiver has 32 MiB.
    Linux,
    /// To 256 MiB, which is more than any window here needs.
    #[default]
    Unlimited,
}

words!(BufferLimit { "linux" = Self::Linux, "unlimited" = Self::Unlimited });

impl BufferLimit {
    /// All, in the order in which they are listed.
    pub const ALL: &[Self] = &[Self::Linux, Self::Unlimited];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Unlimited => "unlimited",
        }
    }

    /// Most bytes of the send buffer and of the receive buffer.
    #[must_use]
    pub fn most(self) -> (u64, u64) {
        match self {
            Self::Linux => (4 << 20, 6 << 20),
            Self::Unlimited => (256 << 20, 256 << 20),
        }
    }

    /// Changes the most that the buffers of a connection grow to. Fixed ones stay as they are.
    pub fn apply(self, options: &mut Options) {
        let (send, receive) = self.most();
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

/// Form of a buffer by its size, or the most that it grows to. A size alone does not grow.
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

/// Form of a buffer by its size at the beginning.
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

/// The least buffer: one with less than a few segments is of no use.
const BUFFER_MIN: u64 = 1000;

impl Options {
    fn visit_buffers(&mut self, visitor: &mut dyn Visitor) -> Visited {
        visit! { visitor;
            /// Growth limit of both buffers: `unlimited` or `linux`. Sizes take precedence.
            "buffers": (*self) as Growth,
            /// Bytes of the send buffer, or the most that it grows to. A size alone does not grow.
            "send_buffer": self.send_buffer as Most [Least(BUFFER_MIN)],
            /// Bytes of the send buffer at the beginning; `off` does not grow.
            "send_buffer_initial": self.send_buffer as Initial [Least(BUFFER_MIN)],
            /// Bytes of the receive buffer, which is the window offered, or the most that it grows to.
            "receive_buffer": self.receive_buffer as Most [Least(BUFFER_MIN)],
            /// Bytes of the receive buffer at the beginning; `off` does not grow.
            "receive_buffer_initial": self.receive_buffer as Initial [Least(BUFFER_MIN)],
        }
        Ok(())
    }

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
