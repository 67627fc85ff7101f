//! The settings of an LTP engine: its management information base (RFC 5326 §6).

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;
use wire::ltp::SessionId;

use super::auth::Authentication;
use super::file::Description;
use super::indication::Cause;
use super::sender::least_segment;
use crate::buffers::Buffers;
use crate::timer;
pub use crate::timer::Timer;

/// The client service of files, from the range for private use.
pub const FILE_SERVICE: u64 = 64;

/// The settings of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The engine's own number.
    pub engine: u64,
    /// What is known of other engines, by their numbers.
    pub remotes: BTreeMap<u64, Remote>,
    /// What holds for all others.
    pub default_remote: Remote,
    /// The client service that takes blocks here, and that sends name; data for another is answered
    /// by a cancellation, UNREACH.
    pub service: u64,
    /// How a file is a block.
    pub format: Format,
    /// Whether a receiver puts a cookie into what it says, without which it hears nothing more of the
    /// session once the sender has it (RFC 5327 §2.2). Cookies of others are always sent back.
    pub cookies: bool,
    /// How small units of client data share a block (CCSDS 734.1-B, service data aggregation); `None`
    /// neither sends nor takes such blocks.
    pub aggregation: Option<Aggregation>,
    /// Whether it is written down that a sender was told of a part of a block, so that a later run of
    /// this engine cancels the session. Without that, a sender may take a block for delivered of which
    /// each run had a part.
    pub journal: bool,
    /// Whether and how this engine speaks LTP-T: what it sends goes to its destination over other engines, and
    /// it passes on what comes for others.
    pub transport: Option<super::transport::Config>,
    /// Bounds on what the engine holds.
    pub limits: Limits,
    /// Octets that the numbers of own sessions take on the wire, from 4 to 10.
    pub session_octets: u32,
    /// How much of a path's rate may be made up for when the driver comes late.
    pub catch_up: Duration,
}

/// When a block of gathered units is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregation {
    /// Before the block has more octets; a unit that is larger goes alone.
    pub size: usize,
    /// When its first unit has waited so long.
    pub age: Duration,
}

impl Default for Aggregation {
    fn default() -> Self {
        Self { size: 16 << 10, age: Duration::from_secs(1) }
    }
}

/// How a file is a block.
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

impl Default for Config {
    fn default() -> Self {
        Self {
            engine: 1,
            remotes: BTreeMap::new(),
            default_remote: Remote::default(),
            service: FILE_SERVICE,
            format: Format::Described,
            cookies: false,
            aggregation: None,
            journal: true,
            transport: None,
            limits: Limits::default(),
            session_octets: 4,
            catch_up: Duration::ZERO,
        }
    }
}

impl Config {
    /// What holds for the engine numbered `id`.
    #[must_use]
    pub fn remote(&self, id: u64) -> &Remote {
        self.remotes.get(&id).unwrap_or(&self.default_remote)
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
        let len = self.session_octets.clamp(4, 10);
        let least = 1u64 << (7 * (len - 1));
        (least, 1u64.checked_shl(7 * len).map_or(u64::MAX, |end| end - 1))
    }
}

/// Settings for one remote engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The path to it; `None` answers where its segments came from and otherwise uses the one path
    /// there is.
    pub path: Option<PathId>,
    /// From where its segments are taken, if a path is set. Replies go there in any case.
    pub pin: Pin,
    /// Most octets of the block in a segment; `None` fills the datagram.
    pub segment_max: Option<usize>,
    /// Most octets in a segment; `None` fills the path's MTU.
    pub datagram_max: Option<usize>,
    /// Octets of red data after which a checkpoint is set before the end of the red part; `None`
    /// sets none.
    pub checkpoint_every: Option<u64>,
    /// Time after which the first new red segment is a checkpoint, counted from the one before or
    /// from the first segment; `None` sets none.
    pub checkpoint_interval: Option<Duration>,
    /// Whether a receiver reports a gap as soon as later data shows it, before a checkpoint asks
    /// (RFC 5326 §6.11, asynchronous reports).
    pub report_gaps: bool,
    /// The keys with which segments are authenticated (RFC 5327 §2.1), in both directions; what comes
    /// without is dropped. `None` sends none and does not look. Whoever names an engine of which
    /// nothing is said falls under [`Config::default_remote`], which must have keys, too, if nobody
    /// else is to be heard.
    pub authentication: Option<Authentication>,
    /// Time to wait for the report on a checkpoint.
    pub checkpoint_timer: Timer,
    /// Time to wait for the acknowledgement of a report.
    pub report_timer: Timer,
    /// Time to wait for the acknowledgement of a cancellation.
    pub cancel_timer: Timer,
    /// Retransmissions of a checkpoint, report or cancellation before it is given up. `None`
    /// retransmits checkpoints and reports until [`Remote::inactivity`] is over, and a cancellation
    /// 30 times, or three times if the peer's silence is its reason.
    pub retransmission_limit: Option<u32>,
    /// Reports in a row that bring nothing new before a session is cancelled.
    pub cycle_limit: u32,
    /// Most copies of a repair that are sent at once, where a round trip costs more than they do.
    pub repair_copies: u32,
    /// Silence after which a session is given up: at a sender, of a receiver from which a report is
    /// expected. `Auto` is one hour and eight reply times.
    pub inactivity: Timer,
    /// The round trip assumed before it is known or measured.
    pub initial_rtt: Duration,
    /// Rate in bit/s in place of the path's own; `Some(0)` does not pace.
    pub rate_bps: Option<u64>,
    /// Without a rate, octets of new red data that are sent beyond what reports told of; checkpoints
    /// ask for those. A block with a green part does not heed it: nobody reports on that.
    pub unpaced_window: Option<u64>,
    /// Least time between two segments, to reproduce an engine that sent one a tick of its clock.
    pub interval: Duration,
    /// Time this host takes to answer a checkpoint or a report, to reproduce one that was measured.
    pub host_delay: Duration,
}

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

impl Default for Remote {
    fn default() -> Self {
        Self {
            path: None,
            pin: Pin::Host,
            segment_max: None,
            datagram_max: None,
            checkpoint_every: None,
            checkpoint_interval: None,
            report_gaps: false,
            authentication: None,
            checkpoint_timer: Timer::Auto,
            report_timer: Timer::Auto,
            cancel_timer: Timer::Auto,
            retransmission_limit: None,
            cycle_limit: 30,
            repair_copies: 4,
            inactivity: Timer::Auto,
            initial_rtt: Duration::from_secs(1),
            rate_bps: None,
            unpaced_window: None,
            interval: Duration::ZERO,
            host_delay: Duration::ZERO,
        }
    }
}

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

/// Bounds on what an engine holds. What happens at each bound is said with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions under way. A request beyond it is refused; a peer's is cancelled.
    pub sessions: usize,
    /// Sessions of one path. More are cancelled.
    pub sessions_per_path: usize,
    /// Sessions that are over and remembered, so that late segments begin nothing. The oldest is
    /// forgotten.
    pub closed: usize,
    /// Gaps tracked in a session. Data that would open one more is dropped and asked for later.
    pub gaps: usize,
    /// The same for all receptions together.
    pub gaps_total: usize,
    /// Octets of a block. Data beyond it is dropped.
    pub block: u64,
    /// Octets of a block of units. A request beyond it is refused, data is dropped.
    pub units: usize,
    /// The same for all such blocks together: those that are gathered, sent and received.
    pub units_total: usize,
    /// Buffers between the store and the paths.
    pub buffers: Buffers,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 1000,
            sessions_per_path: 750,
            closed: 4096,
            gaps: 65_536,
            gaps_total: 1 << 20,
            block: 1 << 40,
            units: 64 << 10,
            units_total: 8 << 20,
            buffers: Buffers::default(),
        }
    }
}
