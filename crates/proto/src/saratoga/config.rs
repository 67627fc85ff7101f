//! The settings of a Saratoga peer.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;
use wire::checksum::{Checksum, ChecksumType};
use wire::saratoga::Width;

pub use crate::storage::JournalPolicy;
pub use crate::timer::Timer;

use crate::buffers::{Buffers, DATAGRAM_MIN};
use crate::settings::form::{Leaf, Span};
use crate::settings::{Kind, Peers, Settings, Value, Visited, Visitor, Wrong};
use crate::sum::Sum;
use crate::{numbers, settings, words};

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

settings! {
    /// Settings of one peer.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config [check: Self::check_version] {
        /// Version of the peer: 0 is for `saratoga-get` alone, and with `checksum = "none"` (§4).
        pub version: Version as Numbered = Version::V1,
        /// Name in beacons (§4.1). The default is `ipn:N.0`, with N of `--entity` or of the node.
        pub eid: String as Text = String::new(),
        /// Settings of other peers, by the paths to them.
        pub remotes: BTreeMap<PathId, Remote> = BTreeMap::new(),
        /// Settings of all others.
        pub default_remote: Remote = Remote::default(),
        /// Bits of the widest descriptor (§4.2). A longer file is refused.
        pub descriptor: Width as Numbered = Width::W64,
        /// Checksum of files: `none`, `crc32` (CRC-32C), `md5` or `sha1` (§4.3).
        pub checksum: ChecksumKind as Word = ChecksumKind::Crc32,
        /// Requests of other peers that are served.
        pub permissions: Permissions as Table = Permissions::default(),
        /// Beacons, and the paths that they take.
        pub beacons: Option<Beacons> as Off<BeaconInterval> [Interval] = None,
        /// Whether DATA may come by UDP-Lite, and the content of files that are sent to those who
        /// take that may be damaged: they go without a checksum. [`super::lite`] says to the driver
        /// what goes by UDP-Lite.
        pub udp_lite: bool = false,
        /// Journal, by which a reception resumes after a restart.
        pub journal: JournalPolicy as Table = JournalPolicy::default(),
        /// Bounds on what the peer holds.
        pub limits: Limits as Table = Limits::default(),
        /// Time by which a late driver may catch up with a path's rate. Over sockets it is 10 ms.
        pub catch_up: Duration as Span = Duration::ZERO,
    }
}

impl Config {
    /// What holds for the peer at the other end of a path.
    #[must_use]
    pub fn remote(&self, path: PathId) -> &Remote {
        self.remotes.get(&path).unwrap_or(&self.default_remote)
    }

    fn check_version(&mut self) -> Result<(), Wrong> {
        if self.version == Version::V0 && self.checksum != ChecksumKind::None {
            return Err("version 0 sends no checksum: write checksum = \"none\" beside it".into());
        }
        Ok(())
    }
}

/// Settings of a peer, and those of others by name until drivers know the paths to them.
#[derive(Debug)]
pub struct Named<'a> {
    /// Settings of the peer.
    pub config: &'a mut Config,
    /// Settings of others.
    pub remotes: &'a mut BTreeMap<String, Remote>,
}

impl Settings for Named<'_> {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        self.config.visit(visitor)?;
        visitor.peers(self)
    }

    fn check(&mut self) -> Result<(), Wrong> {
        self.config.check()
    }
}

impl Peers for Named<'_> {
    fn default(&mut self) -> &mut dyn Settings {
        &mut self.config.default_remote
    }

    fn each(
        &mut self,
        visit: &mut dyn FnMut(Option<String>, &mut dyn Settings) -> Visited,
    ) -> Visited {
        self.config.remotes.values_mut().try_for_each(|remote| visit(None, remote))?;
        self.remotes.iter_mut().try_for_each(|(name, remote)| visit(Some(name.clone()), remote))
    }

    fn entry(&mut self, name: &str) -> Result<&mut dyn Settings, String> {
        let remote = self.config.default_remote.clone();
        Ok(self.remotes.entry(name.to_owned()).or_insert(remote))
    }
}

numbers!(Version, "version is 0 or 1" { 0 = Version::V0, 1 = Version::V1 });

numbers!(Width, "a descriptor has 16, 32, 64 or 128 bits" {
    16 = Width::W16,
    32 = Width::W32,
    64 = Width::W64,
    128 = Width::W128,
});

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

words!(ChecksumKind {
    "none" = Self::None,
    "crc32" = Self::Crc32,
    "md5" = Self::Md5,
    "sha1" = Self::Sha1,
});

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

words!(Congestion { "off" = Self::Off, "tfrc" = Self::Tfrc });

settings! {
    /// Requests of other peers that are served.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Permissions {
        /// Put files here, in place of those with their names (§4.2).
        pub put: bool as Flag = true,
        /// Get files, and list directories (§4.2). True in a scenario, and with `--serve`.
        pub get: bool as Flag = false,
        /// Delete files: by itself, or with a get (§4.2, §6.1.4). True with `--allow-delete`.
        pub delete: bool as Flag = false,
    }
}

/// Paths and interval of beacons (draft-wood-tsvwg-saratoga-22 §4.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beacons {
    /// The paths, which may be groups.
    pub paths: Vec<PathId>,
    /// Time between two.
    pub interval: Duration,
}

/// Beacons by their interval.
#[derive(Debug)]
struct BeaconInterval;

impl Leaf<Beacons> for BeaconInterval {
    fn kind() -> Kind {
        Span::kind()
    }

    fn get(beacons: &Beacons) -> Option<Value> {
        Span::get(&beacons.interval)
    }

    fn set(beacons: &mut Beacons, value: Value) -> Result<(), String> {
        Span::set(&mut beacons.interval, value)
    }
}

settings! {
    /// Settings for one other peer.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Remote {
        /// Most bytes of a file in a DATA packet; `off` fills the datagram (§4.4).
        pub payload_max: Option<usize> as Off<Size> [Least(1)] = None,
        /// Most bytes in a packet; `off` fills the path's MTU.
        pub datagram_max: Option<usize> as Off<Size> [Least(DATAGRAM_MIN)] = None,
        /// Bits of the narrowest descriptor to use (§4.3).
        pub descriptor_min: Width as Numbered = Width::W16,
        /// Time between two requests for a STATUS while new data is sent (§4.4). `auto` is half of
        /// the time that an answer takes; `off` requests one at the end alone.
        pub status_interval: Option<Timer> as Off<Auto<Span>> [Interval] = Some(Timer::Auto),
        /// Time between two unprompted STATUS while data comes (§4.5). `off` sends one at the
        /// beginning, one at the end, and others only after silence.
        pub voluntary_interval: Option<Duration> as Off<Span> [Interval] = None,
        /// Time to wait for the reply to a request before it is sent again (§4.2). Of `auto`, which
        /// measures the round trip, later waits are half of the first, and at least 250 ms.
        pub request_timer: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Time to wait for a STATUS before the sender requests it again (§6.1.1). Later waits are as
        /// of `request_timer`. A silent receiver sends a STATUS after twice this time, and less
        /// often later.
        pub answer_timer: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Silence after which a session is given up; `auto` is an hour and eight reply times. At 22
        /// minutes of light that is 6 h 53.
        pub inactivity: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Most copies of a repair, or of data whose reply is delayed; 1 sends none. They are sent
        /// where a round trip costs more than they do, and where a thin return link delays replies.
        pub repair_copies: u32 as Number = 4,
        /// Round trip assumed before it is known (`--delay`) or measured.
        pub initial_rtt: Duration as Span [Interval] = Duration::from_secs(1),
        /// Rate in place of the path's own; `"0"` does not pace.
        pub rate_bps("rate"): Option<u64> as Maybe<Rate> = None,
        /// Bytes of new data sent without a rate beyond what the receiver reported; `off` has no
        /// bound. Over sockets it is 16 MiB.
        pub unpaced_window: Option<u64> as Off<Size> = None,
        /// Least time between two packets.
        pub interval: Duration as Span = Duration::ZERO,
        /// Size of a packet whose time each packet takes at least at a rate. It reproduces a sender
        /// that paced packets and not bytes.
        pub pace_as: Option<usize> as Off<Size> = None,
        /// Congestion control: `off`, or `tfrc` (RFC 5348).
        pub congestion: Congestion as Word = Congestion::Off,
    }
}

settings! {
    /// Bounds on what a peer holds, with what happens at each.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Sessions under way, of which an eighth is kept for this node's own. Beyond that, a
        /// half-open session makes room; if there is none, requests are refused, here and to others.
        pub sessions: usize as Number [Least(1)] = 1000,
        /// Sessions of one path, once half of all are under way. Beyond that, one of the same path
        /// makes room; if there is none, more are refused.
        pub sessions_per_path: usize as Number [Least(1)] = 750,
        /// Sessions that are over and remembered, to reply to repeated requests. The oldest is
        /// forgotten.
        pub closed: usize as Number = 4096,
        /// Files received in part that may resume. The one that waited longest is deleted.
        pub partials: usize as Number = 1000,
        /// Gaps tracked in a session (§4.5). Data that would open one more is dropped, and requested
        /// later.
        pub gaps: usize as Number = 65_536,
        /// Bytes of a file (§4.5). Longer ones are refused.
        pub file: u64 as Size = 1 << 40,
        /// Bytes of a directory's listing that is received, and of all that are sent at one time
        /// (§5). Those beyond are refused.
        pub directory: u64 as Size = 16 << 20,
        /// Buffers between the store and the paths.
        pub buffers: Buffers as Inline = Buffers::default(),
    }
}
