//! Settings of a Saratoga peer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::PathId;
use session::buffers::{Buffers, DATAGRAM_MIN};
use session::numbers;
use session::settings;
use session::settings::form::{Leaf, Span};
use session::settings::{Kind, Peers, Settings, Value, Visited, Visitor, Wrong};
pub use session::storage::JournalPolicy;
use session::sum::Sum;
pub use session::timer::Timer;
use session::words;
use wire::checksum::{Checksum, ChecksumType};

use crate::packet::Width;

/// Protocol version of a peer, the only one it understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Version before all drafts, in the layout inferred from a capture of 2011: only get, without
    /// a checksum.
    V0,
    /// draft-wood-tsvwg-saratoga-22.
    #[default]
    V1,
}

settings! {
    /// Settings of a Saratoga peer.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config [check: Self::check_version] {
        /// Protocol version: 0 is only for `saratoga-get`, with `checksum = "none"` (§4).
        pub version: Version as Numbered = Version::V1,
        /// Name in beacons (§4.1). The default is `ipn:N.0`, with N of `--entity` or of the node.
        pub eid: String as Text = String::new(),
        /// Settings for remote peers, by path.
        pub remotes: BTreeMap<PathId, Remote> = BTreeMap::new(),
        /// Paths of configured peers besides those of `remotes`. Others get no file before they
        /// have proved that they receive.
        pub known: BTreeSet<PathId> = BTreeSet::new(),
        /// Whether configured peers, too, prove that they receive before they get a file. Nothing
        /// in version 0 can prove it.
        pub proof_from_all: bool = false,
        /// Settings for all other peers.
        pub default_remote: Remote = Remote::default(),
        /// Bits of the widest descriptor (§4.2). Files that need more are refused.
        pub descriptor: Width as Numbered = Width::W64,
        /// Checksum of files: `none`, `crc32` (CRC-32C), `md5` or `sha1` (§4.3).
        pub checksum: ChecksumKind as Word = ChecksumKind::Crc32,
        /// Permitted requests of remote peers.
        pub permissions: Permissions as Table = Permissions::default(),
        /// Beacons and their paths.
        pub beacons: Option<Beacons> as Off<BeaconInterval> [Interval] = None,
        /// Whether DATA may arrive by UDP-Lite. The content of files sent to peers that accept
        /// UDP-Lite may then be damaged, and has no checksum. [`super::lite`] selects the packets
        /// for the driver.
        pub udp_lite: bool = false,
        /// Journal from which receptions resume after a restart.
        pub journal: JournalPolicy as Table = JournalPolicy::default(),
        /// Limits of the peer.
        pub limits: Limits as Table = Limits::default(),
        /// Maximum driver delay that the pacer makes up for. Over sockets it is 10 ms.
        pub catch_up: Duration as Span = Duration::ZERO,
    }
}

impl Config {
    /// Settings for the peer on a path.
    #[must_use]
    pub fn remote(&self, path: PathId) -> &Remote {
        self.remotes.get(&path).unwrap_or(&self.default_remote)
    }

    /// Whether the peer on a path is configured.
    #[must_use]
    pub fn knows(&self, path: PathId) -> bool {
        self.known.contains(&path) || self.remotes.contains_key(&path)
    }

    /// Whether a requester has to prove that it receives.
    #[must_use]
    pub fn wants_proof(&self, path: PathId) -> bool {
        !self.knows(path) || self.proof_from_all && self.version != Version::V0
    }

    fn check_version(&mut self) -> Result<(), Wrong> {
        if self.version == Version::V0 && self.checksum != ChecksumKind::None {
            return Err("version 0 sends no checksum: write checksum = \"none\" beside it".into());
        }
        Ok(())
    }
}

/// Settings of a peer, and of remote ones by name until drivers know the paths to them.
#[derive(Debug)]
pub struct Named<'a> {
    /// Settings of this peer.
    pub config: &'a mut Config,
    /// Settings for remote peers.
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

/// Checksum of a file. MD5 and SHA-1 detect accidental damage; an attacker can construct another
/// file with the same checksum.
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
    /// Initial checksum state.
    pub(crate) fn sum(self) -> Option<Sum> {
        match self {
            Self::None => None,
            Self::Crc32 => Checksum::new(ChecksumType::Crc32c).map(Sum::Check),
            Self::Md5 => Some(Sum::md5()),
            Self::Sha1 => Some(Sum::sha1()),
        }
    }
}

/// Congestion control of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Congestion {
    /// No congestion control: sends at the path's rate, whatever is lost. For dedicated links.
    #[default]
    Off,
    /// TFRC (RFC 5348) up to the path's rate, by the losses in STATUS packets. Every loss counts as
    /// congestion, so it is slow over links with bit errors. [`Put::Blind`](super::Put::Blind) and
    /// version 0, whose losses are not reported, are sent without it.
    Tfrc,
}

words!(Congestion { "off" = Self::Off, "tfrc" = Self::Tfrc });

settings! {
    /// Permitted requests of remote peers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Permissions {
        /// Whether peers may put files here, replacing those with the same names (§4.2).
        pub put: bool as Flag = true,
        /// Whether peers may get files and list directories (§4.2). True in a scenario, and with
        /// `--serve`.
        pub get: bool as Flag = false,
        /// Whether peers may delete files, separately or with a get (§4.2, §6.1.4). True with
        /// `--allow-delete`.
        pub delete: bool as Flag = false,
    }
}

/// Paths and interval of beacons (draft-wood-tsvwg-saratoga-22 §4.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beacons {
    /// Paths of beacons, which may be groups.
    pub paths: Vec<PathId>,
    /// Time between two beacons.
    pub interval: Duration,
}

/// Form of beacons, given by their interval.
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
    /// Settings for one remote peer.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Remote {
        /// Bytes of file data in a DATA packet; `off` fills the datagram (§4.4).
        pub payload_max: Option<usize> as Off<Size> [Least(1)] = None,
        /// Bytes of a packet; `off` fills the path's MTU.
        pub datagram_max: Option<usize> as Off<Size> [Least(DATAGRAM_MIN)] = None,
        /// Bits of the narrowest descriptor used (§4.3).
        pub descriptor_min: Width as Numbered = Width::W16,
        /// Time between two requests for a STATUS while new data is sent (§4.4). `auto` is half of
        /// a reply time; `off` requests only one at the end.
        pub status_interval: Option<Timer> as Off<Auto<Span>> [Interval] = Some(Timer::Auto),
        /// Time between two unrequested STATUS packets while data arrives (§4.5). `off` sends one
        /// at the start, one at the end, and others only after silence.
        pub voluntary_interval: Option<Duration> as Off<Span> [Interval] = None,
        /// Timeout for the reply to a request (§4.2). `auto` measures the round trip; its later
        /// timeouts are half of the first, and at least 250 ms.
        pub request_timer: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Timeout for a STATUS before the sender requests it again (§6.1.1). Later timeouts are as
        /// for `request_timer`. A silent receiver sends a STATUS after twice this time, and less
        /// often later.
        pub answer_timer: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Silence after which a session is given up; `auto` is one hour plus eight reply times. At
        /// 22 light minutes that is 6 h 53 min.
        pub inactivity: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Maximum number of copies of a repair, or of data whose reply is delayed; 1 sends no
        /// extra copy. Copies are sent where a round trip costs more than they do, and where a thin
        /// return link delays replies.
        pub repair_copies: u32 as Number = 4,
        /// Round trip assumed before it is configured (`--delay`) or measured.
        pub initial_rtt: Duration as Span [Interval] = Duration::from_secs(1),
        /// Rate that overrides the path's own; `"0"` does not pace.
        pub rate_bps("rate"): Option<u64> as Maybe<Rate> = None,
        /// For senders without a rate: bytes of new data sent beyond the last reported position;
        /// `off` is unlimited. Over sockets the default is 16 MiB.
        pub unpaced_window: Option<u64> as Off<Size> = None,
        /// Minimum time between two packets.
        pub interval: Duration as Span = Duration::ZERO,
        /// Minimum size for which each packet is paced, to reproduce a sender that paces packets
        /// rather than bytes.
        pub pace_as: Option<usize> as Off<Size> = None,
        /// Congestion control: `off` or `tfrc` (RFC 5348).
        pub congestion: Congestion as Word = Congestion::Off,
    }
}

settings! {
    /// Limits of a peer, and the effect of each.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Sessions under way; an eighth of them is reserved for this node's own. Beyond the limit,
        /// a half-open session is dropped; if there is none, requests are refused, local and
        /// remote.
        pub sessions: usize as Number [Least(1)] = 1000,
        /// Sessions of one path once half of all are under way. Beyond the limit, a half-open
        /// session of the path is dropped; if there is none, requests are refused.
        pub sessions_per_path: usize as Number [Least(1)] = 750,
        /// Finished sessions remembered, to reply to repeated requests. The oldest is forgotten.
        pub closed: usize as Number = 4096,
        /// Incomplete files that may be resumed. The oldest is deleted.
        pub partials: usize as Number = 1000,
        /// Received bytes of all incomplete files without a session. The oldest is deleted, except
        /// for the last one.
        pub partial_bytes: u64 as Size = 64 << 30,
        /// Time since the last session of an incomplete file, or since the node's start. An older
        /// one is deleted when the next reception begins or ends.
        pub partial_age: Duration as Span = Duration::from_secs(30 * 24 * 3600),
        /// Gaps tracked in a session (§4.5). Data that would open another gap is dropped, and
        /// requested later.
        pub gaps: usize as Number = 65_536,
        /// Size of a file, in bytes (§4.5). Longer files are refused.
        pub file: u64 as Size = 1 << 40,
        /// Bytes of a received directory listing, and of all listings being sent (§5). Larger ones
        /// are refused.
        pub directory: u64 as Size = 16 << 20,
        /// Buffers between the store and the paths.
        pub buffers: Buffers as Inline = Buffers::default(),
    }
}
