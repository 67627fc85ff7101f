//! Settings of a NORM node.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;
use wire::norm::Scheme;

use crate::buffers::Buffers;
use crate::settings::form::{Form, Many};
use crate::settings::{Field, Visited, Visitor, Wrong};
use crate::timer::Timer;
use crate::{settings, visit, words};

/// The greatest round trip that messages can name.
pub(crate) const GRTT_MOST: Duration = Duration::from_secs(1000);

settings! {
    /// Settings of a node.
    #[derive(Clone, Debug)]
    pub struct Config [check: Self::check_code] {
        /// Number of the node, `NormNodeId`; 0 chooses one at random.
        pub node: u32 as Number = 0,
        /// Paths that are multicast groups.
        pub groups: Vec<PathId> = Vec::new(),
        /// Settings of its sender.
        pub sender: SenderConfig as Table = SenderConfig::default(),
        /// Settings of its receiver.
        pub receiver: ReceiverConfig as Table = ReceiverConfig::default(),
        /// Rates, in bit/s, in place of those of the paths; 0 sends as fast as the driver takes.
        pub rate_bps: BTreeMap<PathId, u64> = BTreeMap::new(),
        /// Rate in place of those of all other paths; `"0"` does not pace.
        pub rate_all_bps("rate"): Option<u64> as Maybe<Rate> = None,
        /// Time by which a late driver may catch up with a path's rate.
        pub catch_up: Duration as Span = Duration::from_millis(2),
        /// Bounds on what the node holds.
        pub limits: Limits as Table = Limits::default(),
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

    fn check_code(&mut self) -> Result<(), Wrong> {
        Ok(Self::check(self)?)
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

settings! {
    /// Settings of a sender.
    #[derive(Clone, Debug)]
    pub struct SenderConfig {
        /// Bytes of a segment; `off` makes them as long as the path takes, and 0xffff at most.
        pub segment_size: Option<u16> as Off<Number> [Least(1)] = None,
        /// Code of the blocks (RFC 5740 §4.2.1): id 0, 5, 129, or 2 with m = 16.
        pub fec: Scheme as Word = Scheme::ReedSolomon8,
        /// Most source segments of a block.
        pub block_len: u16 as Number = 64,
        /// Parity segments that a block has for repairs; those sent unprompted are among them.
        pub parity: u16 as Number = 32,
        /// Parity segments sent unprompted with each block.
        pub auto_parity: u16 as Number = 0,
        /// Blocks after which NORM_INFO is sent again, where parity is sent unprompted; 0: never.
        /// Its loss does then not cost a round of repairs.
        pub info_every: u32 as Number = 8,
        /// Whether each NORM_DATA carries the FEC object transmission information. A receiver that
        /// begins late then needs no other message.
        pub fti_in_data: bool as Flag = true,
        /// `K` of the back-off, 0 to 15. `off` is 0 towards one receiver, and in a group 1, 2 or 4,
        /// as that is thought to have up to 200, up to 2000 or more.
        pub backoff: Option<u8> as Off<Number> [Most(15)] = None,
        /// Size of the group that is sent to receivers. `auto` is estimated from how soon they reply
        /// to probes, and at least as many as were received from (RFC 5740 §5.5.4).
        pub group_size: Option<u32> as Auto<Number> = None,
        /// Whether NACKs of a group are collected for `K` + 1 greatest round trips (RFC 5740 §5.4.1).
        /// Else each is served at once, and later ones get what they
        /// request beyond that.
        pub collect: bool as Flag = false,
        /// Whether the last blocks are sent with as much parity as those before lacked. Repairs at the
        /// end have some more than was requested, so that a last round of repairs is rare.
        pub tail_parity: bool as Flag = true,
        /// Repetitions of what may be lost: `NORM_ROBUST_FACTOR`.
        pub robust_factor: u32 as Number [Least(1)] = 20,
        /// Whether the rate follows what receivers report (RFC 5740 §5.5.2), within that of the path.
        pub congestion_control: bool as Flag = false,
        /// Greatest round trip in the group, until one was measured.
        pub grtt_initial: Duration as Span [Interval] = Duration::from_millis(500),
        /// Whether the light time of the path takes the place of `grtt_initial`.
        pub grtt_of_path: bool as Flag = true,
        /// Limit of the greatest round trip.
        pub grtt_max: Duration as Span [Interval] = GRTT_MOST,
        /// Least time between two probes of the round trip.
        pub probe_interval_min: Duration as Span [Interval] = Duration::from_secs(1),
        /// Most time between two of them.
        pub probe_interval_max: Duration as Span [Interval] = Duration::from_secs(30),
        /// End of a transfer: `acknowledged` by all receivers, or after a `flush`.
        pub end: EndGame as Word = EndGame::Acknowledged,
        /// Receivers that must be known before `acknowledged` is over; 0: those received from.
        pub receivers: u32 as Number = 0,
        /// Silence after which `acknowledged` gives up a receiver that was sent everything. It counts
        /// from its last message; `auto` is an hour and eight round trips.
        pub patience: Timer as Auto<Span> [Interval] = Timer::Auto,
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

settings! {
    /// Settings of a receiver.
    #[derive(Clone, Debug)]
    pub struct ReceiverConfig {
        /// Whether it receives at all.
        pub enabled: bool as Flag = true,
        /// Whether it never sends anything. Losses are repaired only by parity that is sent
        /// unprompted, and by what others request.
        pub silent: bool as Flag = false,
        /// Whether NACKs go to the sender alone instead of to the group.
        pub unicast_nack: bool as Flag = false,
        /// Half of the round trips of silence after which missing data is requested:
        /// `NORM_ROBUST_FACTOR`. That is after an hour at the most, and again after each such time.
        pub robust_factor: u32 as Number = 20,
        /// Silence after which objects are given up; `auto` is an hour and eight round trips. It
        /// counts from the sender's last message.
        pub inactivity: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Silence after which a complete stream is given up, if that is longer than `inactivity`.
        /// Its sender probes the round trip from time to time as long as it is there.
        pub stream_silence: Duration as Span [Interval] = Duration::from_secs(3600),
        /// First object of a sender that began before: the next, the one under way, or all it still
        /// has (RFC 5740 §5.2).
        pub sync: SyncPolicy as Word = SyncPolicy::Object,
        /// Requests for missing data: `normal` (everything), `info` (NORM_INFO) or `none`.
        pub nacking: Nacking as Word = Nacking::Normal,
        /// Time of requests: when a later `block` begins, or a later `object`.
        pub repair_boundary: RepairBoundary as Word = RepairBoundary::Block,
        /// Whether objects that are no files are stored as files, too, named by their numbers. `recv`
        /// stores them.
        pub store_data: bool as Flag = false,
        /// Begin of streams: at their `beginning`, if that is to be had, or where they are first
        /// `received`; `off` receives none. The application must fetch them: what nobody fetches keeps
        /// all else from being received.
        pub streams: Option<Join> as Off<Word> = None,
    }
}

/// Where a stream is begun to be received that was under way before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Join {
    /// At its beginning if the sender may still have that, else at the first block that is heard of.
    #[default]
    Beginning,
    /// At the first block that is heard of, as the reference library has it.
    FirstBlock,
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

settings! {
    /// Bounds of a node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Senders that are received from.
        pub senders: usize as Number [Least(1)] = 64,
        /// Objects under way, of each sender.
        pub objects: usize as Number [Least(1)] = 256,
        /// Receivers that a sender remembers.
        pub receivers: usize as Number [Least(1)] = 1000,
        /// Bytes of an object.
        pub object: u64 as Size = 1 << 40,
        /// Bytes of a stream that are kept, sent or received.
        pub stream: usize as Size = 16 << 20,
        /// Bytes of blocks received in part, in all objects. Segments of files beyond it go to the
        /// file as they come, and parity is of no use.
        pub assembly: usize as Size [Least(1 << 20)] = 128 << 20,
        /// Buffers between the store and the paths.
        pub buffers: Buffers as BuffersForm = Buffers::default(),
        /// Blocks of an object that are remembered as repaired.
        pub repairs: usize as Number = 65_536,
        /// Commands of the application that a sender repeats at one time, and questions that wait.
        pub commands: usize as Number = 16,
    }
}

words!(Scheme {
    "none" = Self::NoCode,
    "rs8" = Self::ReedSolomon8,
    "rs8-129" = Self::SmallBlockSystematic,
    "rs16" = Self::ReedSolomonM,
});
words!(EndGame { "flush" = Self::Flush, "acknowledged" = Self::Acknowledged });
words!(SyncPolicy { "current" = Self::Current, "object" = Self::Object, "all" = Self::All });
words!(Nacking { "normal" = Self::Normal, "info" = Self::InfoOnly, "none" = Self::None });
words!(RepairBoundary { "block" = Self::Block, "object" = Self::Object });
words!(Join { "beginning" = Self::Beginning, "heard" = Self::FirstBlock });

/// Buffers of a node, which collects no writes and has replies of other bounds.
struct BuffersForm;

impl Form<Buffers, Many> for BuffersForm {
    fn visit(_: &Field, buffers: &mut Buffers, visitor: &mut dyn Visitor) -> Visited {
        visit! { visitor;
            /// Bytes of received data that wait to be written.
            "write_buffer": buffers.write_buffer as Size [Least(65_535)],
            /// Bytes read ahead of what is sent, for each object.
            "read_ahead": buffers.read_ahead as Size [Least(65_536)],
            /// Limit of all objects together, which share it equally.
            "read_ahead_total": buffers.read_ahead_total as Size,
            /// Bytes requested in one read.
            "read_piece": buffers.read_piece as Size [Least(65_536)],
        }
        Ok(())
    }
}
