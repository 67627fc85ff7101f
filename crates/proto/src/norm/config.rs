//! Settings of a NORM node.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;
use wire::norm::Scheme;

use crate::buffers::Buffers;
use crate::timer::Timer;

/// The greatest round trip that messages can name.
pub(crate) const GRTT_MOST: Duration = Duration::from_secs(1000);

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its number, `NormNodeId`; 0 lets it choose one at random.
    pub node: u32,
    /// Paths that are multicast groups.
    pub groups: Vec<PathId>,
    /// How it sends.
    pub sender: SenderConfig,
    /// How it receives.
    pub receiver: ReceiverConfig,
    /// Rates, in bit/s, in place of those of the paths; 0 sends as fast as the driver takes.
    pub rate_bps: BTreeMap<PathId, u64>,
    /// The same for all other paths.
    pub rate_all_bps: Option<u64>,
    /// How far behind its rate a driver may come and make up for that.
    pub catch_up: Duration,
    /// Bounds.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node: 0,
            groups: Vec::new(),
            sender: SenderConfig::default(),
            receiver: ReceiverConfig::default(),
            rate_bps: BTreeMap::new(),
            rate_all_bps: None,
            catch_up: Duration::from_millis(2),
            limits: Limits::default(),
        }
    }
}

impl Config {
    /// Whether these settings can be used.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(&self) -> Result<(), String> {
        super::coding::Coding::new(&self.sender).map(drop)
    }

    /// Bytes of the least datagram with which a file can be sent.
    ///
    /// # Errors
    ///
    /// As [`Config::check`].
    pub fn least_datagram(&self) -> Result<usize, String> {
        let coding = super::coding::Coding::new(&self.sender)?;
        Ok(coding.least_path(self.sender.end, self.sender.fti_in_data))
    }

    /// Makes blocks as long as a code over GF(2^8) has them, and sends so much parity with each
    /// that one segment in ten may be lost: of 206 + 49 segments, 49 are lost once in a million
    /// blocks.
    pub fn send_parity_unasked(&mut self) {
        self.sender.block_len = 206;
        self.sender.parity = 49;
        self.sender.auto_parity = 49;
    }

    /// Whether a path is a group.
    #[must_use]
    pub fn is_group(&self, path: PathId) -> bool {
        self.groups.contains(&path)
    }
}

/// How a node sends.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// Octets of a segment; `None` makes them as long as the path takes, and 0xffff at most.
    pub segment_size: Option<u16>,
    /// The code (RFC 5740 §4.2.1, `fec_id`): [`Scheme::ReedSolomon8`],
    /// [`Scheme::SmallBlockSystematic`], [`Scheme::ReedSolomonM`] with 16 bits, or
    /// [`Scheme::NoCode`].
    pub fec: Scheme,
    /// Most source segments of a block.
    pub block_len: u16,
    /// Parity segments that a block has for repairs; those sent unasked are among them.
    pub parity: u16,
    /// Parity segments sent with each block unasked.
    pub auto_parity: u16,
    /// With parity that is sent unasked, NORM_INFO goes out again before each so many blocks, so
    /// that its loss does not cost a round of repairs. 0 sends it once.
    pub info_every: u32,
    /// Whether each NORM_DATA carries the FEC object transmission information, so that a receiver
    /// that begins late needs no other message.
    pub fti_in_data: bool,
    /// `K` of the back-off, 0 to 15; `None` stands for 0 towards one receiver, and
    /// in a group for 1, 2 or 4, as that is thought to have up to 200, up to 2000 or more.
    pub backoff: Option<u8>,
    /// The group's size that is told to receivers; `None` tells what is estimated from how soon
    /// they answer probes, and at least as many as were heard of (RFC 5740 §5.5.4).
    pub group_size: Option<u32>,
    /// Whether requests of a group are collected for `K` + 1 greatest round trips before they are
    /// answered (RFC 5740 §5.4.1); else each is at once, and later ones get what they ask for beyond
    /// that.
    pub collect: bool,
    /// Whether the last blocks are sent with as much parity as those before lacked, and repairs at
    /// the end with some more than was asked for, so that no round of repairs is waited for in vain.
    pub tail_parity: bool,
    /// How often what may be lost is repeated: `NORM_ROBUST_FACTOR`.
    pub robust_factor: u32,
    /// Whether the rate follows what receivers report (RFC 5740 §5.5.2), within that of the path.
    pub congestion_control: bool,
    /// The greatest round trip in the group, until one was measured.
    pub grtt_initial: Duration,
    /// Whether the light time that the path tells takes the place of `grtt_initial`.
    pub grtt_of_path: bool,
    /// Most that the greatest round trip may be.
    pub grtt_max: Duration,
    /// Least time between two probes of the round trip.
    pub probe_interval_min: Duration,
    /// Most time between two of them.
    pub probe_interval_max: Duration,
    /// How it ends.
    pub end: EndGame,
    /// Receivers that must be heard before [`EndGame::Acknowledged`] is over; 0 waits for those
    /// that were heard of.
    pub receivers: u32,
    /// With [`EndGame::Acknowledged`], silence after which a receiver is given up that was sent
    /// everything, counted from its last message. [`Timer::Auto`] is an hour and eight round trips.
    pub patience: Timer,
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self {
            segment_size: None,
            fec: Scheme::ReedSolomon8,
            block_len: 64,
            parity: 32,
            auto_parity: 0,
            info_every: 8,
            fti_in_data: true,
            backoff: None,
            group_size: None,
            collect: false,
            tail_parity: true,
            robust_factor: 20,
            congestion_control: false,
            grtt_initial: Duration::from_millis(500),
            grtt_of_path: true,
            grtt_max: GRTT_MOST,
            probe_interval_min: Duration::from_secs(1),
            probe_interval_max: Duration::from_secs(30),
            end: EndGame::Acknowledged,
            receivers: 0,
            patience: Timer::Auto,
        }
    }
}

/// How a sender ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndGame {
    /// NORM_CMD(FLUSH) goes out `robust_factor` times, twice the greatest round trip apart and 50 ms at
    /// the least, unless receivers ask for repairs (RFC 5740 §5.1.1).
    Flush,
    /// The same, but each receiver that was heard of is asked to acknowledge (§5.5.3), and once
    /// all did, it is over. In a large group these acknowledgements are many, and a receiver that
    /// was never heard of is not waited for.
    Acknowledged,
}

/// How a node receives.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// Whether it receives at all.
    pub enabled: bool,
    /// Whether it never sends anything: losses are repaired only by parity that is sent unasked,
    /// and by what others ask for.
    pub silent: bool,
    /// Whether NACKs go to the sender alone instead of to the group.
    pub unicast_nack: bool,
    /// A sender that is silent for twice so many of the greatest round trip is asked for what is
    /// missing, after an hour at the most, and again after each such time: `NORM_ROBUST_FACTOR`.
    pub robust_factor: u32,
    /// Silence after which objects are given up, counted from the sender's last message.
    /// [`Timer::Auto`] is an hour and eight round trips.
    pub inactivity: Timer,
    /// Silence after which a stream is given up of which nothing is missing, if that is longer: its
    /// sender probes the round trip from time to time as long as it is there.
    pub stream_silence: Duration,
    /// What is received of a sender that began before (RFC 5740 §5.2).
    pub sync: SyncPolicy,
    /// What is asked for.
    pub nacking: Nacking,
    /// When something is asked for.
    pub repair_boundary: RepairBoundary,
    /// Whether objects that are no files are stored as files, too, named by their numbers.
    pub store_data: bool,
    /// Whether streams are received, and where one is begun. Who receives them must fetch them: what
    /// nobody fetches keeps all else from being received.
    pub streams: Option<Join>,
}

/// Where a stream is begun to be received that was under way before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// At its beginning if the sender may still have that, else at the first block that is heard of.
    Beginning,
    /// At the first block that is heard of, as the reference library has it.
    Heard,
}

/// What a receiver begins with, if a sender that it did not hear before is in the middle of something.
/// From then on it receives everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// The first object of which NORM_INFO comes, or a segment of the first block that is no repair, or
    /// for which a flush names it: `NORM_SYNC_CURRENT` of the reference library. Little is asked for
    /// again on account of a receiver that comes late.
    Current,
    /// The object that the sender is at, and the whole of it.
    Object,
    /// The same, and the objects before it that the sender still has, 255 at the most:
    /// `NORM_SYNC_ALL`.
    All,
}

/// What a receiver asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nacking {
    /// Everything that it misses: `NORM_NACK_NORMAL`.
    Normal,
    /// NORM_INFO alone; data is there if nothing of it was lost, or was recovered:
    /// `NORM_NACK_INFO_ONLY`.
    InfoOnly,
    /// Nothing: `NORM_NACK_NONE`. Unlike a silent receiver it answers probes and acknowledges.
    None,
}

/// When a receiver asks for what it misses. At the end of what is sent it always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairBoundary {
    /// Once a later block begins: `NORM_BOUNDARY_BLOCK`.
    Block,
    /// Once a later object begins, but for its NORM_INFO: `NORM_BOUNDARY_OBJECT`.
    Object,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            silent: false,
            unicast_nack: false,
            robust_factor: 20,
            inactivity: Timer::Auto,
            stream_silence: Duration::from_secs(3600),
            sync: SyncPolicy::Object,
            nacking: Nacking::Normal,
            repair_boundary: RepairBoundary::Block,
            store_data: false,
            streams: None,
        }
    }
}

/// Bounds of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Senders that are received from.
    pub senders: usize,
    /// Objects under way, of each sender.
    pub objects: usize,
    /// Receivers that a sender remembers.
    pub receivers: usize,
    /// Octets of an object.
    pub object: u64,
    /// Octets of a stream that are kept, sent or received.
    pub stream: usize,
    /// Octets of blocks that came in part, in all objects.
    pub assembly: usize,
    /// Buffers between the store and the paths.
    pub buffers: Buffers,
    /// Blocks of an object of which it is remembered that they were repaired.
    pub repairs: usize,
    /// Commands of the application that a sender repeats at one time, and questions that wait.
    pub commands: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            senders: 64,
            objects: 256,
            receivers: 1000,
            object: 1 << 40,
            stream: 16 << 20,
            assembly: 128 << 20,
            buffers: Buffers::default(),
            repairs: 65_536,
            commands: 16,
        }
    }
}
