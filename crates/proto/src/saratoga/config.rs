//! The settings of a Saratoga peer.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;
use wire::checksum::{Checksum, ChecksumType};
use wire::saratoga::Width;

pub use crate::storage::JournalPolicy;
pub use crate::timer::Timer;

use crate::buffers::Buffers;
use crate::sum::Sum;

/// The version that a peer speaks; it understands no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// The one before all drafts, in the layout that a capture of 2011 suggests: get and nothing
    /// else, without a checksum.
    V0,
    /// draft-wood-tsvwg-saratoga-22.
    #[default]
    V1,
}

/// The settings of one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The version it speaks.
    pub version: Version,
    /// Its name, as beacons tell it.
    pub eid: String,
    /// What is known of other peers, by the paths to them.
    pub remotes: BTreeMap<PathId, Remote>,
    /// What holds for all others.
    pub default_remote: Remote,
    /// The widest descriptor it takes. A longer file is refused.
    pub descriptor: Width,
    /// The checksum that goes with files.
    pub checksum: ChecksumKind,
    /// What others may ask for here.
    pub permissions: Permissions,
    /// Whether and where it says that it is there.
    pub beacons: Option<Beacons>,
    /// Whether DATA may come by UDP-Lite, and the content of files that are sent to those who take
    /// that may be damaged: they go without a checksum. [`super::lite`] says to the driver what
    /// goes by UDP-Lite.
    pub udp_lite: bool,
    /// When the progress of a reception is saved, so that it can go on after a restart.
    pub journal: JournalPolicy,
    /// Bounds on what the peer holds.
    pub limits: Limits,
    /// How much of a path's rate may be made up for when the driver comes late.
    pub catch_up: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            version: Version::V1,
            eid: String::new(),
            remotes: BTreeMap::new(),
            default_remote: Remote::default(),
            descriptor: Width::W64,
            checksum: ChecksumKind::Crc32,
            permissions: Permissions::default(),
            beacons: None,
            udp_lite: false,
            journal: JournalPolicy::default(),
            limits: Limits::default(),
            catch_up: Duration::ZERO,
        }
    }
}

impl Config {
    /// What holds for the peer at the other end of a path.
    #[must_use]
    pub fn remote(&self, path: PathId) -> &Remote {
        self.remotes.get(&path).unwrap_or(&self.default_remote)
    }
}

/// The checksum of a file. MD5 and SHA-1 find what happened by accident; whoever means harm can
/// make another file with the same sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChecksumKind {
    /// None.
    None,
    /// CRC-32C.
    #[default]
    Crc32,
    /// MD5.
    Md5,
    /// SHA-1.
    Sha1,
}

impl ChecksumKind {
    /// The checksum of nothing yet.
    pub(crate) fn sum(self) -> Option<Sum> {
        match self {
            Self::None => None,
            Self::Crc32 => Checksum::new(ChecksumType::Crc32c).map(Sum::Check),
            Self::Md5 => Some(Sum::md5()),
            Self::Sha1 => Some(Sum::sha1()),
        }
    }
}

/// Whether a sender heeds congestion on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Congestion {
    /// It sends at the path's rate, whatever is lost: for links of its own.
    #[default]
    Off,
    /// TFRC (RFC 5348) within the path's rate, by the losses that STATUS packets tell of. Every loss
    /// counts as congestion, so that it is slow over links with bit errors. Nothing tells of the
    /// losses of [`Put::Blind`](super::Put::Blind) and of version 0, which are sent as if it were off.
    Tfrc,
}

/// What others may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// Put files here, in place of those that have their names.
    pub put: bool,
    /// Get files, and list directories.
    pub get: bool,
    /// Delete files: by itself, or with a get.
    pub delete: bool,
}

impl Default for Permissions {
    /// Put, and nothing else.
    fn default() -> Self {
        Self { put: true, get: false, delete: false }
    }
}

/// Where and how often a peer says that it is there (draft-wood-tsvwg-saratoga-22 §4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beacons {
    /// The paths, which may be groups.
    pub paths: Vec<PathId>,
    /// Time between two.
    pub interval: Duration,
}

/// Settings for one other peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Most octets of a file in a DATA packet; `None` fills the datagram.
    pub payload_max: Option<usize>,
    /// Most octets in a packet; `None` fills the path's MTU.
    pub datagram_max: Option<usize>,
    /// The narrowest descriptor to use.
    pub descriptor_min: Width,
    /// Time between two requests for a STATUS while new data is sent: `Timer::Auto` is half of the
    /// time that an answer takes. `None` asks only at the end.
    pub status_interval: Option<Timer>,
    /// Time between two STATUS that nobody asked for, while data comes. `None` sends one at the
    /// beginning, one at the end, and others only after silence.
    pub voluntary_interval: Option<Duration>,
    /// Time to wait for the reply to a request before it is sent again. Of `Timer::Auto`, later
    /// waits are half of the first, and at least 250 ms.
    pub request_timer: Timer,
    /// Time to wait for a STATUS before the sender requests it again, with later waits as of
    /// `request_timer`. A silent receiver sends a STATUS after twice this time, and less often later.
    pub answer_timer: Timer,
    /// Silence after which a session is given up: `Timer::Auto` is an hour and eight reply times,
    /// at 22 minutes of light 6 h 53.
    pub inactivity: Timer,
    /// Most copies of a repair that are sent at once, where a round trip costs more than they do,
    /// and of data whose reply a thin return link delays.
    pub repair_copies: u32,
    /// The round trip assumed before it is known or measured.
    pub initial_rtt: Duration,
    /// Rate in bit/s in place of the path's own; `Some(0)` does not pace.
    pub rate_bps: Option<u64>,
    /// Without a rate, octets of new data that are sent beyond what the receiver told of.
    pub unpaced_window: Option<u64>,
    /// Least time between two packets.
    pub interval: Duration,
    /// At a path's rate, each packet takes at least the time of one with so many octets, to reproduce
    /// a sender that paced packets and not octets.
    pub pace_as: Option<usize>,
    /// Whether the rate follows the losses on the way.
    pub congestion: Congestion,
}

impl Default for Remote {
    fn default() -> Self {
        Self {
            payload_max: None,
            datagram_max: None,
            descriptor_min: Width::W16,
            status_interval: Some(Timer::Auto),
            voluntary_interval: None,
            request_timer: Timer::Auto,
            answer_timer: Timer::Auto,
            inactivity: Timer::Auto,
            repair_copies: 4,
            initial_rtt: Duration::from_secs(1),
            rate_bps: None,
            unpaced_window: None,
            interval: Duration::ZERO,
            pace_as: None,
            congestion: Congestion::Off,
        }
    }
}

/// Bounds on what a peer holds. What happens at each bound is said with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions under way, of which an eighth is kept for this node's own. Beyond that, a half-open
    /// session makes room; if there is none, requests are refused, here and to others.
    pub sessions: usize,
    /// Sessions of one path, once half of all are under way. Beyond that, one of the same path makes
    /// room; if there is none, more are refused.
    pub sessions_per_path: usize,
    /// Sessions that are over and remembered, to answer those who ask again. The oldest is
    /// forgotten.
    pub closed: usize,
    /// Files that came in part and may go on. The one that waited longest is deleted.
    pub partials: usize,
    /// Gaps tracked in a session. Data that would open one more is dropped, and asked for later.
    pub gaps: usize,
    /// Octets of a file. Longer ones are refused.
    pub file: u64,
    /// Octets of a directory's listing that is received, and of all that are sent at one time.
    /// Those beyond are refused.
    pub directory: u64,
    /// Buffers between the store and the paths.
    pub buffers: Buffers,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 1000,
            sessions_per_path: 750,
            closed: 4096,
            partials: 1000,
            gaps: 65_536,
            file: 1 << 40,
            directory: 16 << 20,
            buffers: Buffers::default(),
        }
    }
}
