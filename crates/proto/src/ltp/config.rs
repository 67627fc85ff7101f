//! The settings of an LTP engine: its management information base (RFC 5326 §6).

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{FileName, PathId};
use wire::ltp::SessionId;

use super::file::Description;
use super::indication::Cause;
use super::sender::least_segment;
use crate::authentication::Authentication;
use crate::buffers::{Buffers, DATAGRAM_MIN};
use crate::settings::form::Leaf;
use crate::settings::{Base, Field, Kind, Remotes, Value, Visited, Visitor};
use crate::timer;
pub use crate::timer::Timer;
use crate::{settings, words};

/// The client service of files, from the range for private use.
pub const FILE_SERVICE: u64 = 64;

settings! {
    /// Settings of one engine.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config [more: Self::visit_others] {
        /// Number of the engine (§3.1). `recv` has 2 if it is not given.
        pub engine: u64 as Number = 1,
        /// Settings of other engines, by their numbers.
        pub remotes: BTreeMap<u64, Remote> = BTreeMap::new(),
        /// Settings of all others.
        pub default_remote: Remote = Remote::default(),
        /// Client service that takes blocks here, and that sends name (§3.2.1). Data for another is
        /// cancelled (UNREACH).
        pub service: u64 as Number = FILE_SERVICE,
        /// Content of a block: a file and its description, or a file alone, which gets this name.
        pub format: Format as FormatForm = Format::Described,
        /// Whether a receiver puts a cookie into its segments (RFC 5327 §2.2). From then on it takes
        /// no segment of the session without it. Cookies of others are always sent back.
        pub cookies: bool as Flag = false,
        /// Aggregation of small units of client data in a block (CCSDS 734.1-B); `off` neither sends
        /// nor takes such blocks.
        pub aggregation: Option<Aggregation> as Off<Table> = None,
        /// Whether reports of a part of a block are recorded, so that a later run cancels the session.
        /// Without that, a sender may take a block for delivered of which each
        /// run had a part.
        pub journal: bool as Flag = true,
        /// LTP-T, if the engine speaks it: blocks go to their destination over other engines, and
        /// those for others are forwarded.
        pub transport: Option<super::transport::Config> = None,
        /// Bounds on what the engine holds.
        pub limits: Limits as Table = Limits::default(),
        /// Bytes of the numbers of own sessions, from 4 to 10 (§9.1).
        pub session_bytes: u32 as Number = 4,
        /// Time by which a late driver may catch up with a path's rate. Over sockets it is 10 ms.
        pub catch_up: Duration as Span = Duration::ZERO,
    }
}

settings! {
    /// Time and size at which a block of gathered units is sent.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Aggregation {
        /// Most bytes of a block of units. A unit that is larger goes alone.
        pub size: usize as Size = 16 << 10,
        /// Most time that the first unit of a block waits.
        pub age: Duration as Span = Duration::from_secs(1),
    }
}

/// Content of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// The last segment of the block describes the file before it: its name, size and checksum. A
    /// file counts as received only if they are right.
    Described,
    /// The block is the file, and nothing else. What arrives gets this name; an earlier file of
    /// that name is replaced.
    Raw {
        /// The name.
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
    /// What holds for the engine numbered `id`.
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
                visitor.absent(field, &mut super::transport::Config::default(), why)?;
            }
        }
        let Self { default_remote: default, remotes, .. } = self;
        visitor.peers(&mut Remotes { default, remotes })
    }

    /// Bytes of the least datagram over which a file of this name and size can be sent to the
    /// engine `destination`. Cookies and the extensions of LTP-T come on top.
    #[must_use]
    pub fn least_datagram(&self, destination: u64, name: &str, size: u64) -> u64 {
        let (_, number) = self.session_numbers();
        let session = SessionId { originator: self.engine, number };
        let description = match self.format {
            Format::Described => Description::len(name),
            Format::Raw { .. } => 0,
        };
        let authentication = self.remote(destination).authentication.as_ref();
        authentication.map_or(0, Authentication::len) as u64
            + least_segment(session, self.service, size, description)
    }

    /// The least and the greatest number of own sessions.
    pub(crate) fn session_numbers(&self) -> (u64, u64) {
        // Seven bits a byte (RFC 5326 §2.1); the tenth has one.
        let len = self.session_bytes.clamp(4, 10);
        let least = 1u64 << (7 * (len - 1));
        (least, 1u64.checked_shl(7 * len).map_or(u64::MAX, |end| end - 1))
    }
}

settings! {
    /// Settings for one remote engine.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Remote {
        /// The path to it; `None` replies where its segments came from and otherwise uses the one
        /// path there is.
        pub path: Option<PathId> = None,
        /// Origin of its segments, if its address is given: anywhere, any port of its host, or that
        /// address and port. Replies go there in any case.
        pub pin: Pin as Word = Pin::Host,
        /// Most bytes of the block in a segment; `off` fills the datagram (§6.1). A file's
        /// description is in one segment: 20 bytes and its name.
        pub segment_max: Option<usize> as Off<Size> [Least(SEGMENT_MIN)] = None,
        /// Most bytes in a segment; `off` fills the path's MTU (§6.1).
        pub datagram_max: Option<usize> as Off<Size> [Least(DATAGRAM_MIN)] = None,
        /// Bytes of red data after which a checkpoint is set; `off` sets one at the end of the red
        /// part alone (§6.2).
        pub checkpoint_every: Option<u64> as Off<Size> [Least(1)] = None,
        /// Time after which the first new red segment is a checkpoint, or `off` (§6.2). It counts
        /// from the one before or from the first segment.
        pub checkpoint_interval: Option<Duration> as Off<Span> [Interval] = None,
        /// Whether a receiver reports a gap as soon as later data shows it (§6.11). Those are
        /// asynchronous reports: no checkpoint requests them.
        pub report_gaps: bool as Flag = false,
        /// Keys shared with it, in both directions, or `off` (RFC 5327 §2.1). What comes without is
        /// dropped; `off` sends none and does not look. An engine without settings of its own falls
        /// under [`Config::default_remote`], which must have keys, too, to exclude all others.
        pub authentication: Option<Authentication> as Keys = None,
        /// Time to wait for the report on a checkpoint (§6.2, §6.7); `auto` measures the round trip.
        pub checkpoint_timer: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Time to wait for the acknowledgement of a report (§6.3, §6.8).
        pub report_timer: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Time to wait for the acknowledgement of a cancellation (§6.15, §6.16).
        pub cancel_timer: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Retransmissions of a checkpoint, report or cancellation before it is given up (RLEXC;
        /// §6.7, §6.8, §6.16). `off` retransmits checkpoints and reports until `inactivity` is over,
        /// and a cancellation 30 times, or three times if the peer's silence is its reason.
        pub retransmission_limit: Option<u32> as Off<Number> = None,
        /// Reports in a row without new data before a session is cancelled (RXMTCYCEXC, §6.22).
        pub cycle_limit: u32 as Number = 30,
        /// Most copies of a repair; 1 sends none. They are sent where a round trip costs more than
        /// they do.
        pub repair_copies: u32 as Number = 4,
        /// Silence after which a session is given up; `auto` is one hour and eight reply times. A
        /// sender counts from when it first waited for a report.
        pub inactivity: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Round trip assumed before it is known (`--delay`) or measured (§6.2).
        pub initial_rtt: Duration as Span [Interval] = Duration::from_secs(1),
        /// Rate in place of the path's own; `"0"` does not pace.
        pub rate_bps("rate"): Option<u64> as Maybe<Rate> = None,
        /// Bytes of new red data sent without a rate beyond what reports confirmed; `off` has no
        /// bound. Over sockets it is 16 MiB. Checkpoints request reports on them. A block with a
        /// green part does not heed it: nobody reports on that.
        pub unpaced_window: Option<u64> as Off<Size> = None,
        /// Least time between two segments, to reproduce an engine that sent one a tick of its clock.
        pub interval: Duration as Span = Duration::ZERO,
        /// Time this host takes to reply to a checkpoint or a report, to reproduce one that was
        /// measured.
        pub host_delay: Duration as Span = Duration::ZERO,
    }
}

/// Least bytes of a segment: what describes a file, with a short name, must fit one.
const SEGMENT_MIN: u64 = 64;

/// From where segments of an engine are taken whose address is known. An engine is its number;
/// some listen on one port and send from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// From anywhere.
    Off,
    /// From any port of its host.
    Host,
    /// From its address and port alone.
    Address,
}

words!(Pin { "off" = Self::Off, "host" = Self::Host, "address" = Self::Address });

/// Retransmissions of a cancellation where no limit is set.
const CANCELS_MAX: u32 = 30;

/// Retransmissions of a cancellation to a peer whose silence is the reason. It ends the session
/// itself, and 30 at intervals of several light times would keep a place for days.
const SILENT_CANCELS_MAX: u32 = 3;

impl Remote {
    /// Retransmissions of a cancellation before it is given up.
    pub(crate) fn cancel_limit(&self, cause: Option<Cause>) -> u32 {
        let most = self.retransmission_limit.unwrap_or(CANCELS_MAX);
        match cause {
            Some(Cause::Silence) => most.min(SILENT_CANCELS_MAX),
            Some(Cause::Empty | Cause::TooNarrow { .. }) | None => most,
        }
    }

    /// Silence after which a session is given up, if the peer takes `reply` to reply.
    pub(crate) fn silence_max(&self, reply: Duration) -> Duration {
        self.inactivity.duration(timer::inactivity(reply), 0)
    }
}

settings! {
    /// Bounds on what an engine holds, with what happens at each.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Sessions under way (§9.1). A request beyond it is refused; a peer's is cancelled.
        pub sessions: usize as Number [Least(1)] = 1000,
        /// Sessions of one path, once half of all are under way (§9.1). More are cancelled.
        pub sessions_per_path: usize as Number [Least(1)] = 750,
        /// Sessions that are over and remembered, so that late segments begin nothing (§6.20). The
        /// oldest is forgotten.
        pub closed: usize as Number = 4096,
        /// Gaps tracked in a session. Data that would open one more is dropped and requested later.
        pub gaps: usize as Number = 65_536,
        /// Gaps tracked in all receptions together.
        pub gaps_total: usize as Number = 1 << 20,
        /// Bytes of a block (§9.1). Data beyond it is dropped.
        pub block: u64 as Size = 1 << 40,
        /// Bytes of a block of units (CCSDS 734.1-B). A request beyond it is refused, data is
        /// dropped.
        pub units: usize as Size = 64 << 10,
        /// Bytes of all blocks of units together: those that are gathered, sent and received.
        pub units_total: usize as Size = 8 << 20,
        /// Buffers between the store and the paths.
        pub buffers: Buffers as Inline = Buffers::default(),
    }
}
