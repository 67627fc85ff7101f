//! Settings of an LTP engine: its management information base (RFC 5326 §6).

pub(crate) mod transport;

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{FileName, PathId};
use session::authentication::Authentication;
use session::buffers::{Buffers, DATAGRAM_MIN};
use session::settings;
use session::settings::form::Leaf;
use session::settings::{Base, Field, Kind, Remotes, Value, Visited, Visitor};
use session::timer;
pub use session::timer::Timer;
use session::words;

use super::file::Description;
use super::indication::Cause;
use crate::authentication;
use crate::segment::{SessionId, least_segment};

/// Client service number of files, from the range for private use.
pub const FILE_SERVICE: u64 = 64;

settings! {
    /// Settings of an LTP engine.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config [more: Self::visit_others] {
        /// Number of the engine (§3.1). `recv` uses 2 by default.
        pub engine: u64 as Number = 1,
        /// Settings for remote engines, by their numbers.
        pub remotes: BTreeMap<u64, Remote> = BTreeMap::new(),
        /// Settings for all other remote engines.
        pub default_remote: Remote = Remote::default(),
        /// Client service that accepts blocks here, and that outgoing blocks name (§3.2.1).
        /// Sessions for another service are cancelled (UNREACH).
        pub service: u64 as Number = FILE_SERVICE,
        /// Content of a block: a file with its description, or a file alone, stored under this
        /// name.
        pub format: Format as FormatForm = Format::Described,
        /// Whether a receiver adds a cookie to its segments (RFC 5327 §2.2). From then on it drops
        /// segments of the session without it. Cookies of peers are always echoed.
        pub cookies: bool as Flag = false,
        /// Aggregation of small units of client data in a block (CCSDS 734.1-B); `off` neither
        /// sends nor accepts such blocks.
        pub aggregation: Option<Aggregation> as Off<Table> = None,
        /// Whether files being sent and received are recorded, so that a restarted engine goes on
        /// with them. Without records, a sender may take a block for delivered although each run
        /// of its receiver received only a part of it.
        pub journal: bool as Flag = true,
        /// LTP-T settings, if the engine speaks it: blocks reach their destination via several
        /// engines, and those for other engines are forwarded.
        pub transport: Option<transport::Config> = None,
        /// Limits of the engine.
        pub limits: Limits as Table = Limits::default(),
        /// Bytes of the numbers of own sessions, 4 to 10 (§9.1).
        pub session_bytes: u32 as Number = 4,
        /// Maximum driver delay that the pacer makes up for. Over sockets it is 10 ms.
        pub catch_up: Duration as Span = Duration::ZERO,
    }
}

settings! {
    /// Time and size at which a block of aggregated units is sent.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Aggregation {
        /// Size of a block of units, in bytes, at which the block is sent. A larger unit is sent
        /// alone.
        pub size: usize as Size = 16 << 10,
        /// Longest wait of the first unit of a block.
        pub age: Duration as Span = Duration::from_secs(1),
    }
}

/// Content of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// File followed by its description in the last segment: name, size and checksum. A file counts
    /// as received only if they match.
    Described,
    /// Nothing but the file. Received data is stored under this name; an earlier file of that name
    /// is replaced.
    Raw {
        /// Name of the stored file.
        name: String,
    },
}

/// Form of a [`Format`].
#[derive(Debug)]
struct FormatForm;

impl Leaf<Format> for FormatForm {
    fn kind() -> Kind {
        Kind::from(Base::Named("raw", Box::new(Base::Text))).or("described")
    }

    fn get(format: &Format) -> Option<Value> {
        Some(match format {
            Format::Described => Value::Word("described"),
            Format::Raw { name } => Value::Named("raw", Box::new(Value::Text(name.clone()))),
        })
    }

    fn set(format: &mut Format, value: Value) -> Result<(), String> {
        let Value::Named(_, name) = value else {
            *format = Format::Described;
            return Ok(());
        };
        let Value::Text(name) = *name else { return Err(".raw is a name".to_owned()) };
        FileName::file(&name).map_err(|error| format!(".raw {name:?}: {error}"))?;
        *format = Format::Raw { name };
        Ok(())
    }
}

impl Config {
    /// Settings for the engine numbered `id`.
    #[must_use]
    pub fn remote(&self, id: u64) -> &Remote {
        self.remotes.get(&id).unwrap_or(&self.default_remote)
    }

    fn visit_others(&mut self, visitor: &mut dyn Visitor) -> Visited {
        let field = &Field { key: "transport", doc: &[" LTP-T."], bound: None };
        match &mut self.transport {
            Some(transport) => visitor.table(field, transport)?,
            None => {
                let why = " is of LTP-T; the protocol with it is called ltp-t";
                visitor.absent(field, &mut transport::Config::default(), why)?;
            }
        }
        let Self { default_remote: default, remotes, .. } = self;
        visitor.peers(&mut Remotes { default, remotes })
    }

    /// Bytes of the smallest datagram over which a file of this name and size can be sent to the
    /// engine `destination`. Cookies and LTP-T extensions come on top.
    #[must_use]
    pub fn least_datagram(&self, destination: u64, name: &str, size: u64) -> u64 {
        let (_, number) = self.session_numbers();
        let session = SessionId { originator: self.engine, number };
        let description = match self.format {
            Format::Described => Description::len(name),
            Format::Raw { .. } => 0,
        };
        let authentication = self.remote(destination).authentication.as_ref();
        authentication.map_or(0, authentication::len) as u64
            + least_segment(session, self.service, size, description)
    }

    /// Smallest and largest number of own sessions.
    pub(crate) fn session_numbers(&self) -> (u64, u64) {
        // Seven bits per byte (RFC 5326 §2.1); the tenth has one.
        let len = self.session_bytes.clamp(4, 10);
        let least = 1u64 << (7 * (len - 1));
        (least, 1u64.checked_shl(7 * len).map_or(u64::MAX, |end| end - 1))
    }
}

settings! {
    /// Settings for one remote engine.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Remote {
        /// Path to the engine. `None` sends replies on the path on which its segments arrived, and
        /// everything else on the only path.
        pub path: Option<PathId> = None,
        /// Accepted origin of its segments, if its address is configured: anywhere, any port of its
        /// host, or that address and port. Replies go to the configured address in any case.
        pub pin: Pin as Word = Pin::Host,
        /// Bytes of block data in a segment; `off` fills the datagram (§6.1). The description of a
        /// file must fit in one segment: 20 bytes and the name.
        pub segment_max: Option<usize> as Off<Size> [Least(SEGMENT_MIN)] = None,
        /// Bytes of a segment; `off` fills the path's MTU (§6.1).
        pub datagram_max: Option<usize> as Off<Size> [Least(DATAGRAM_MIN)] = None,
        /// Bytes of red data after which a checkpoint is set; `off` sets one only at the end of the
        /// red part (§6.2).
        pub checkpoint_every: Option<u64> as Off<Size> [Least(1)] = None,
        /// Time after which the next new red segment is a checkpoint, or `off` (§6.2). It counts
        /// from the previous checkpoint, or from the first segment.
        pub checkpoint_interval: Option<Duration> as Off<Span> [Interval] = None,
        /// Whether a receiver reports a gap as soon as later data reveals it (§6.11), by
        /// asynchronous reports that no checkpoint requested.
        pub report_gaps: bool as Flag = false,
        /// Shared keys for both directions, or `off` (RFC 5327 §2.1). Unauthenticated segments are
        /// dropped; `off` neither sends nor checks authentication. An engine without its own
        /// settings uses [`Config::default_remote`], which must have keys, too, to exclude all
        /// others.
        pub authentication: Option<Authentication> as Keys = None,
        /// Timeout for the report on a checkpoint (§6.2, §6.7); `auto` measures the round trip.
        pub checkpoint_timer: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Timeout for the acknowledgement of a report (§6.3, §6.8).
        pub report_timer: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Timeout for the acknowledgement of a cancellation (§6.15, §6.16).
        pub cancel_timer: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Retransmissions of a checkpoint, report or cancellation before it is given up (RLEXC;
        /// §6.7, §6.8, §6.16). With `off`, checkpoints and reports are retransmitted until
        /// `inactivity` ends the session. Cancellations are retransmitted 30 times, or three times
        /// if the peer's silence caused them.
        pub retransmission_limit: Option<u32> as Off<Number> = None,
        /// Consecutive reports without new data after which a session is cancelled (RXMTCYCEXC,
        /// §6.22).
        pub cycle_limit: u32 as Number = 30,
        /// Maximum number of copies of a repair; 1 sends no extra copy. Copies are sent where a
        /// round trip costs more than they do.
        pub repair_copies: u32 as Number = 4,
        /// Silence after which a session is given up; `auto` is one hour plus eight reply times. A
        /// sender counts from when it first awaited a report.
        pub inactivity: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Round trip assumed before it is configured (`--delay`) or measured (§6.2).
        pub initial_rtt: Duration as Span [Interval] = Duration::from_secs(1),
        /// Rate that overrides the path's own; `"0"` does not pace.
        pub rate_bps("rate"): Option<u64> as Maybe<Rate> = None,
        /// For senders without a rate: bytes of new red data sent beyond what reports confirmed;
        /// `off` is unlimited. Over sockets the default is 16 MiB. Checkpoints request these
        /// reports. Blocks with a green part ignore it, as green data is not reported.
        pub unpaced_window: Option<u64> as Off<Size> = None,
        /// Minimum time between two segments, to reproduce an engine that sends one segment per
        /// clock tick.
        pub interval: Duration as Span = Duration::ZERO,
        /// Processing delay before replying to a checkpoint or a report, to reproduce a measured
        /// host.
        pub host_delay: Duration as Span = Duration::ZERO,
    }
}

/// Minimum bytes of a segment: the description of a file with a short name must fit.
const SEGMENT_MIN: u64 = 64;

/// Accepted origin of an engine's segments if its address is known. Engines are identified by
/// their numbers; some listen on one port and send from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// Any address.
    Off,
    /// Any port of its host.
    Host,
    /// Only its address and port.
    Address,
}

words!(Pin { "off" = Self::Off, "host" = Self::Host, "address" = Self::Address });

/// Retransmissions of a cancellation if no limit is set.
const CANCELS_MAX: u32 = 30;

/// Retransmissions of a cancellation to a silent peer. The peer ends the session itself, and 30
/// retransmissions at intervals of several light times would keep a slot for days.
const SILENT_CANCELS_MAX: u32 = 3;

impl Remote {
    /// Retransmissions of a cancellation before it is given up.
    pub(crate) fn cancel_limit(&self, cause: Option<Cause>) -> u32 {
        let most = self.retransmission_limit.unwrap_or(CANCELS_MAX);
        match cause {
            Some(Cause::Silence) => most.min(SILENT_CANCELS_MAX),
            Some(Cause::Empty | Cause::Store(_) | Cause::TooLong | Cause::TooNarrow { .. })
            | None => most,
        }
    }

    /// Silence after which a session is given up, if the peer's reply time is `reply`.
    pub(crate) fn silence_max(&self, reply: Duration) -> Duration {
        self.inactivity.duration(timer::inactivity(reply), 0)
    }
}

settings! {
    /// Limits of an engine, and the effect of each.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Sessions under way (§9.1). Further requests are refused; a peer's sessions are
        /// cancelled.
        pub sessions: usize as Number [Least(1)] = 1000,
        /// Sessions of one host once half of all are under way (§9.1). Further ones replace others
        /// of that host.
        pub sessions_per_path: usize as Number [Least(1)] = 750,
        /// Finished sessions remembered, so that late segments start nothing (§6.20). The oldest is
        /// forgotten.
        pub closed: usize as Number = 4096,
        /// Gaps tracked in a session. Data that would open another gap is dropped and requested
        /// later.
        pub gaps: usize as Number = 65_536,
        /// Gaps tracked in all receptions together.
        pub gaps_total: usize as Number = 1 << 20,
        /// Size of a block, in bytes (§9.1). Data beyond it is dropped.
        pub block: u64 as Size = 1 << 40,
        /// Size of a block of units, in bytes (CCSDS 734.1-B). Larger requests are refused; data
        /// beyond it is dropped.
        pub units: usize as Size = 64 << 10,
        /// Bytes of all blocks of units together: queued, sent and received.
        pub units_total: usize as Size = 8 << 20,
        /// Buffers between the store and the paths.
        pub buffers: Buffers as Inline = Buffers::default(),
    }
}
