//! Settings of a NORM node.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;
use session::buffers::Buffers;
use session::settings;
use session::settings::form::{Form, Leaf, Many, Share};
use session::settings::{Field, Kind, Value, Visited, Visitor, Wrong};
use session::storage::JournalPolicy;
use session::timer::Timer;
use session::visit;
use session::words;

use crate::message::Scheme;

/// Largest round trip that messages can express.
pub(crate) const GRTT_MOST: Duration = Duration::from_secs(1000);

settings! {
    /// Settings of a node.
    #[derive(Clone, Debug)]
    pub struct Config [check: Self::check_code] {
        /// Number of the node, `NormNodeId`; 0 chooses one at random.
        pub node: u32 as Number = 0,
        /// Paths that lead to multicast groups.
        pub groups: Vec<PathId> = Vec::new(),
        /// Settings of the node's sender.
        pub sender: SenderConfig as Table = SenderConfig::default(),
        /// Settings of the node's receiver.
        pub receiver: ReceiverConfig as Table = ReceiverConfig::default(),
        /// Rates by path, in bit/s, which override the paths' own; 0 does not pace.
        pub rate_bps: BTreeMap<PathId, u64> = BTreeMap::new(),
        /// Rate for all other paths, which overrides their own; `"0"` does not pace.
        pub rate_all_bps("rate"): Option<u64> as Maybe<Rate> = None,
        /// Maximum driver delay that the pacer makes up for.
        pub catch_up: Duration as Span = Duration::from_millis(2),
        /// Journal of received files. Of short files, progress is saved more often.
        pub journal: JournalPolicy as Table = JournalPolicy::default(),
        /// Limits of the node.
        pub limits: Limits as Table = Limits::default(),
    }
}

impl Config {
    /// Checks that these settings can be used.
    ///
    /// # Errors
    /// The first unusable setting.
    pub fn check(&self) -> Result<(), String> {
        let sender = &self.sender;
        if sender.congestion_control && sender.is_one_way() {
            let given = if sender.confidence.is_some() { "confidence" } else { "carousel" };
            return Err(format!(
                "with {given}, receivers do not report the rate of their path: set a rate (rate, \
                 --rate), and no congestion_control"
            ));
        }
        super::coding::Coding::new(sender).map(drop)
    }

    fn check_code(&mut self) -> Result<(), Wrong> {
        Ok(Self::check(self)?)
    }

    /// Smallest datagram size, in bytes, with which a file can be sent.
    ///
    /// # Errors
    ///
    /// As [`Config::check`].
    pub fn least_datagram(&self) -> Result<usize, String> {
        let coding = super::coding::Coding::new(&self.sender)?;
        Ok(coding.least_path(self.sender.end, self.sender.fti_in_data))
    }

    /// Uses full-length GF(2^8) blocks, and sends enough proactive parity to survive a loss of 10
    /// %: of 206 + 49 segments, 49 are lost once in a million blocks.
    pub fn use_proactive_parity(&mut self) {
        self.sender.block_len = 206;
        self.sender.parity = 49;
        self.sender.auto_parity = 49;
    }

    /// Whether a path leads to a group.
    #[must_use]
    pub fn is_group(&self, path: PathId) -> bool {
        self.groups.contains(&path)
    }
}

settings! {
    /// Settings of a sender.
    #[derive(Clone, Debug)]
    pub struct SenderConfig {
        /// Bytes of a segment, at most 0xffff; `off` uses the longest that the path's MTU allows.
        pub segment_size: Option<u16> as Off<Number> [Least(1)] = None,
        /// FEC scheme of the blocks (RFC 5740 §4.2.1): id 0, 5, 129, or 2 with m = 16. `long`, id
        /// 130 with instances of our own, is for blocks of thousands of segments, as is `raptorq`,
        /// id 6 (RFC 6330), which needs a build with the feature `raptorq`.
        pub fec: Scheme as Word = Scheme::ReedSolomon8,
        /// Maximum number of source segments in a block.
        pub block_len: u16 as Number = 64,
        /// Number of parity segments of a block, proactive ones included. For `long`, rounded up to
        /// a power of two; 0 chooses it by the length of the blocks. `raptorq` ignores it.
        pub parity: u16 as Number = 32,
        /// Number of proactive parity segments sent with each block.
        pub auto_parity: u16 as Number = 0,
        /// Blocks between repetitions of NORM_INFO when proactive parity is sent; 0: never
        /// repeated. With repetitions, a lost NORM_INFO costs no round of repairs.
        pub info_every: u32 as Number = 8,
        /// Whether each NORM_DATA carries the FEC object transmission information. A late receiver
        /// then needs no other message.
        pub fti_in_data: bool as Flag = true,
        /// `K` of the back-off, 0 to 15. `off` uses 0 towards one receiver; in a group 1, 2 or 4,
        /// for an estimated size of up to 200, up to 2000, or more.
        pub backoff: Option<u8> as Off<Number> [Most(15)] = None,
        /// Group size announced to receivers. `auto` estimates it from the delay of their replies
        /// to probes, and never below the number of known receivers (RFC 5740 §5.5.4).
        pub group_size: Option<u32> as Auto<Number> = None,
        /// Whether NACKs of a group are collected for `K` + 1 greatest round trips (RFC 5740
        /// §5.4.1). Otherwise each NACK is served at once, and later ones only for additional
        /// requests.
        pub collect: bool as Flag = false,
        /// Whether the last blocks carry as much parity as earlier blocks lacked. Repairs at the
        /// end include a few spare segments, so that another round is rarely needed.
        pub tail_parity: bool as Flag = true,
        /// Number of repetitions of messages that may be lost: `NORM_ROBUST_FACTOR`.
        pub robust_factor: u32 as Number [Least(1)] = 20,
        /// Whether the rate follows the receivers' reports (RFC 5740 §5.5.2), up to the path's
        /// rate.
        pub congestion_control: bool as Flag = false,
        /// Greatest round trip of the group before one was measured.
        pub grtt_initial: Duration as Span [Interval] = Duration::from_millis(500),
        /// Whether the light time of the path replaces `grtt_initial`.
        pub grtt_of_path: bool as Flag = true,
        /// Upper limit of the greatest round trip.
        pub grtt_max: Duration as Span [Interval] = GRTT_MOST,
        /// Minimum time between two probes of the round trip.
        pub probe_interval_min: Duration as Span [Interval] = Duration::from_secs(1),
        /// Maximum time between two probes of the round trip.
        pub probe_interval_max: Duration as Span [Interval] = Duration::from_secs(30),
        /// End of a transfer: `acknowledged` waits for all receivers, `flush` does not.
        pub end: EndGame as Word = EndGame::Acknowledged,
        /// Number of receivers that must be known before `acknowledged` completes; 0: the receivers
        /// known so far.
        pub receivers: u32 as Number = 0,
        /// Maximum bytes of a block of fec `long` or `raptorq`.
        pub block_bytes: usize as Size [Least(1 << 16)] = 32 << 20,
        /// Limit of the parity of fec `long` or `raptorq` that is sent before receivers report that
        /// they need it: a share of the least time of the transfer, `"0"` for none, or
        /// `round-trip` to send it until they report that they have enough.
        pub waste: Waste as WasteForm = Waste::Share(0.01),
        /// Loss to the receivers before their first reports. `auto` is that of the last transfer to
        /// the same receivers, or `loss_assumed`.
        pub loss: Option<f64> as Auto<Share> = None,
        /// Loss of an earlier transfer to the same receivers, and the number of segments that it
        /// was measured with.
        pub loss_before: Option<(f64, f64)> = None,
        /// Loss assumed before one is known.
        pub loss_assumed: f64 as Share = 0.01,
        /// Probability with which an object of fec `long` or `raptorq` arrives at each receiver
        /// that cannot reply. The transfer ends without acknowledgements then.
        pub confidence: Option<f64> as Off<Share> = None,
        /// Time for which objects of fec `long` or `raptorq` are sent again in rounds, for receivers
        /// that cannot reply and may start late. Each round is enough for a receiver with the
        /// probability `confidence`, or 0.99.
        pub carousel: Option<Duration> as Off<Span> [Interval] = None,
        /// Silence after which `acknowledged` gives up a receiver that was sent everything, counted
        /// from its last message. `auto` is one hour plus eight round trips.
        pub patience: Timer as Auto<Span> [Interval] = Timer::Auto,
    }
}

impl SenderConfig {
    /// Whether receivers cannot reply.
    #[must_use]
    pub fn is_one_way(&self) -> bool {
        self.confidence.is_some() || self.carousel.is_some()
    }

    /// Whether objects have long blocks, and parity until the receivers have enough.
    #[must_use]
    pub fn has_long_blocks(&self) -> bool {
        super::coding::is_long(self.fec)
    }
}

/// Limit of parity that is sent before receivers report that they need it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Waste {
    /// None is sent.
    #[default]
    Nothing,
    /// Share of the least time of the transfer by which it may be prolonged, or capacity be wasted.
    Share(f64),
    /// Parity is sent until receivers report that they have enough.
    RoundTrip,
}

/// Form of [`Waste`].
struct WasteForm;

const ROUND_TRIP: &str = "round-trip";

impl Leaf<Waste> for WasteForm {
    fn kind() -> Kind {
        <Share as Leaf<f64>>::kind().or(ROUND_TRIP)
    }

    fn get(place: &Waste) -> Option<Value> {
        Some(match place {
            Waste::Nothing => Value::Text("0".to_owned()),
            Waste::Share(share) => Value::Text(share.to_string()),
            Waste::RoundTrip => Value::Word(ROUND_TRIP),
        })
    }

    fn set(place: &mut Waste, value: Value) -> Result<(), String> {
        if value == Value::Word(ROUND_TRIP) {
            *place = Waste::RoundTrip;
            return Ok(());
        }
        let mut share = 0.0;
        Share::set(&mut share, value)?;
        *place = if share > 0.0 { Waste::Share(share) } else { Waste::Nothing };
        Ok(())
    }
}

/// End of a transfer at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndGame {
    /// Sends NORM_CMD(FLUSH) `robust_factor` times, at intervals of twice the greatest round trip
    /// and at least 50 ms, unless receivers request repairs (RFC 5740 §5.1.1).
    Flush,
    /// Like `Flush`, but each known receiver is requested to acknowledge (§5.5.3), and the transfer
    /// ends once all have. A large group sends many acknowledgements; unknown receivers are not
    /// waited for.
    Acknowledged,
}

settings! {
    /// Settings of a receiver.
    #[derive(Clone, Debug)]
    pub struct ReceiverConfig {
        /// Whether the node receives at all.
        pub enabled: bool as Flag = true,
        /// Whether the receiver never sends anything. Losses are then repaired only by proactive
        /// parity and by the requests of others.
        pub silent: bool as Flag = false,
        /// Whether NACKs are sent to the sender alone instead of to the group.
        pub unicast_nack: bool as Flag = false,
        /// Silence, in units of two greatest round trips, after which missing data is requested:
        /// `NORM_ROBUST_FACTOR`. At most one hour; requests are repeated after each such silence.
        pub robust_factor: u32 as Number = 20,
        /// Silence after which objects are given up, counted from the sender's last message. `auto`
        /// is one hour plus eight round trips.
        pub inactivity: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Silence after which a complete stream is given up, if longer than `inactivity`. A live
        /// sender probes the round trip from time to time.
        pub stream_silence: Duration as Span [Interval] = Duration::from_secs(3600),
        /// First object received from a sender that started earlier: the next one, the current one,
        /// or all that it still has (RFC 5740 §5.2).
        pub sync: SyncPolicy as Word = SyncPolicy::Object,
        /// Requested data: `normal` (everything), `info` (NORM_INFO) or `none`.
        pub nacking: Nacking as Word = Nacking::Normal,
        /// Time of requests: when a later `block` or a later `object` begins.
        pub repair_boundary: RepairBoundary as Word = RepairBoundary::Block,
        /// Whether objects that are not files are also stored as files, named by their numbers.
        /// `recv` stores them.
        pub store_data: bool as Flag = false,
        /// Start of received streams: their `beginning` if still available, or the first block
        /// `heard`; `off` receives no streams. The application must read them: unread data
        /// blocks all other reception.
        pub streams: Option<Join> as Off<Word> = None,
    }
}

/// Start of a received stream that was already under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Join {
    /// Start of the stream if the sender may still hold it, otherwise the first received block.
    #[default]
    Beginning,
    /// The first block received, as in the reference library.
    FirstBlock,
}

/// First object received from a newly discovered sender in the middle of a transfer. Everything
/// after it is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// First object with a NORM_INFO, with a segment of its first block that is not a repair, or
    /// named by a flush: `NORM_SYNC_CURRENT` of the reference library. A late receiver then causes
    /// few repairs.
    Current,
    /// The sender's current object, from its start.
    Object,
    /// Like `Object`, plus up to 255 earlier objects that the sender still has: `NORM_SYNC_ALL`.
    All,
}

/// Data that a receiver requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nacking {
    /// Everything missing: `NORM_NACK_NORMAL`.
    Normal,
    /// Only NORM_INFO; data completes only if nothing was lost or parity recovers it:
    /// `NORM_NACK_INFO_ONLY`.
    InfoOnly,
    /// Nothing: `NORM_NACK_NONE`. Unlike a silent receiver, it replies to probes and acknowledges.
    None,
}

/// Time at which a receiver requests missing data. At the end of the transfer it always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairBoundary {
    /// When a later block begins: `NORM_BOUNDARY_BLOCK`.
    Block,
    /// When a later object begins, except for its NORM_INFO: `NORM_BOUNDARY_OBJECT`.
    Object,
}

settings! {
    /// Limits of a node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Number of senders received at the same time.
        pub senders: usize as Number [Least(1)] = 64,
        /// Number of objects under way for each sender.
        pub objects: usize as Number [Least(1)] = 256,
        /// Number of receivers remembered by a sender.
        pub receivers: usize as Number [Least(1)] = 1000,
        /// Size of an object, in bytes.
        pub object: u64 as Size = 1 << 40,
        /// Bytes of a stream kept in memory, sent or received.
        pub stream: usize as Size = 16 << 20,
        /// Bytes of incomplete blocks of all objects. Beyond it, segments of files are written as
        /// they arrive, and parity cannot recover them; of fec `long`, the last blocks are dropped
        /// and received again.
        pub assembly: usize as Size [Least(1 << 20)] = 128 << 20,
        /// Number of coefficients computed to recover a block, which takes time. Beyond it, further
        /// lost segments are requested one by one. `long` computes none.
        pub coding_work: usize as Number = 1 << 26,
        /// Buffers between the store and the paths.
        pub buffers: Buffers as BuffersForm = Buffers::default(),
        /// Number of incomplete files kept for later sessions. The oldest is deleted.
        pub partials: usize as Number = 64,
        /// Received bytes of all incomplete files without a session. The oldest is deleted,
        /// except for the last one.
        pub partial_bytes: u64 as Size = 64 << 30,
        /// Time since the last session of an incomplete file, or since the node's start. An
        /// older one is deleted when the next one is kept.
        pub partial_age: Duration as Span = Duration::from_secs(30 * 24 * 3600),
        /// Number of repaired blocks remembered for an object.
        pub repairs: usize as Number = 65_536,
        /// Number of application commands repeated at the same time, and of queued questions.
        pub commands: usize as Number = 16,
    }
}

words!(Scheme {
    "none" = Self::NoCode,
    "rs8" = Self::ReedSolomon8,
    "rs8-129" = Self::SmallBlockSystematic,
    "rs16" = Self::ReedSolomonM,
    "long" = Self::Compact,
    "raptorq" = Self::RaptorQ,
});
words!(EndGame { "flush" = Self::Flush, "acknowledged" = Self::Acknowledged });
words!(SyncPolicy { "current" = Self::Current, "object" = Self::Object, "all" = Self::All });
words!(Nacking { "normal" = Self::Normal, "info" = Self::InfoOnly, "none" = Self::None });
words!(RepairBoundary { "block" = Self::Block, "object" = Self::Object });
words!(Join { "beginning" = Self::Beginning, "heard" = Self::FirstBlock });

/// Form of the buffers of a node, which does not coalesce writes and has its own limits for
/// replies.
struct BuffersForm;

impl Form<Buffers, Many> for BuffersForm {
    fn visit(_: &Field, buffers: &mut Buffers, visitor: &mut dyn Visitor) -> Visited {
        visit! { visitor;
            /// Bytes of received data waiting to be written.
            "write_buffer": buffers.write_buffer as Size [Least(65_535)],
            /// Bytes read ahead for each object sent.
            "read_ahead": buffers.read_ahead as Size [Least(65_536)],
            /// Bytes read ahead for all objects together, shared equally.
            "read_ahead_total": buffers.read_ahead_total as Size,
            /// Bytes requested in one read.
            "read_piece": buffers.read_piece as Size [Least(65_536)],
        }
        Ok(())
    }
}
