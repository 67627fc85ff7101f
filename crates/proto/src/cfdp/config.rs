//! What an entity knows of itself and of others: the management information base
//! (CCSDS 727.0-B-5 §8).

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;
use wire::cfdp::{ChecksumType, ConditionCode, FaultHandler, TransmissionMode, Version, Width};

pub use crate::storage::JournalPolicy;
pub use crate::timer::Timer;

use super::user_operations::{Permissions, UserOperations};
use crate::buffers::Buffers;
use crate::settings::form::{Form as _, Leaf, Word, Words as _};
use crate::settings::{Base, Field, Kind, Remotes, Settings, Value, Visited, Visitor};
use crate::{numbers, settings, words};

settings! {
    /// Settings of one entity.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config [more: Self::visit_remotes] {
        /// Number of the entity.
        pub entity: u64 as Number = 1,
        /// Bytes of the transaction sequence numbers it gives, 1 to 8.
        pub sequence_width("sequence_octets"): Width as Octets [Range(1, 8)] = Width::TWO,
        /// First sequence number it gives. Without one it is random, so that an entity that lost its
        /// records does not repeat itself.
        pub first_sequence: Option<u64> as Maybe<Number> = None,
        /// Number of recent acknowledged transactions whose Finished PDU is sent again after a
        /// restart, for paths on which a request takes long.
        pub told_again: usize = 0,
        /// Settings of other entities, by their numbers.
        pub remotes: BTreeMap<u64, Remote> = BTreeMap::new(),
        /// Settings of all others.
        pub default_remote: Remote = Remote::default(),
        /// Whether entities that `remotes` does not name may send files here.
        pub accept_unknown: bool as Flag = true,
        /// Bounds on what the entity holds.
        pub limits: Limits as Table = Limits::default(),
        /// Optional indications.
        pub indications: Indications as Table = Indications::default(),
        /// Handlers of faults, unless the transaction overrides them (§4.8).
        pub faults: Faults as Table = Faults::default(),
        /// Journal, by which a reception resumes after a restart.
        pub journal: JournalPolicy as Table = JournalPolicy::default(),
        /// Time by which a late driver may catch up with a path's rate. Zero keeps every datagram at
        /// its distance from the one before.
        pub catch_up: Duration = Duration::ZERO,
        /// Whether an incomplete file is delivered when its transaction ends early, rather than
        /// discarded.
        pub keep_incomplete: bool as Flag = false,
        /// Services for others: routes, and bounds on what is stored and served.
        pub user_operations: UserOperations as Table = UserOperations::default(),
    }
}

impl Config {
    /// What holds for the entity numbered `id`.
    #[must_use]
    pub fn remote(&self, id: u64) -> &Remote {
        self.remotes.get(&id).unwrap_or(&self.default_remote)
    }

    fn visit_remotes(&mut self, visitor: &mut dyn Visitor) -> Visited {
        let Self { default_remote: default, remotes, .. } = self;
        visitor.peers(&mut Remotes { default, remotes })
    }
}

settings! {
    /// Settings for one remote entity.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Remote {
        /// The path to it; `None` replies where its PDUs came from and otherwise uses the one path
        /// there is.
        pub path: Option<PathId> = None,
        /// Version of PDUs of transactions that start here: 0 for issues 1 to 4 of the book, 1 for
        /// issue 5.
        pub version: Version as Numbered = Version::V1,
        /// Transmission class of puts that do not say: 1 is unacknowledged, 2 acknowledged.
        pub mode("class"): TransmissionMode as Numbered = TransmissionMode::Acknowledged,
        /// Whether closure is requested by unacknowledged puts that do not say.
        pub closure: bool as Flag = false,
        /// Checksum of puts that do not say.
        pub checksum: ChecksumType as Word = ChecksumType::Crc32c,
        /// Whether each PDU carries a CRC, in both directions: what comes without one is refused.
        pub crc: bool as Flag = false,
        /// Bytes of entity numbers on the wire, 1 to 8. Without it they are the fewest that fit both.
        pub entity_width("entity_octets"): Option<Width> as Octets [Range(1, 8)] = None,
        /// Most file bytes in a PDU. Without it a PDU fills the datagram.
        pub segment_max: Option<usize> as Maybe<Size> = None,
        /// Most bytes in a PDU. Without it a PDU fills the path's MTU.
        pub datagram_max: Option<usize> as Maybe<Size> = None,
        /// Requests of missing data.
        pub naks: Naks as Inline = Naks::default(),
        /// Most copies of a repair that are sent at once; 1 sends none. Where a round trip costs more
        /// than a few packets, another copy is cheaper than the chance of another round; how many
        /// are worth it follows from the path's rate and light time and from the losses so far.
        pub repair_copies: u32 as Number = 4,
        /// Time to wait for the ACK of an EOF or Finished.
        pub ack_timer: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// EOF or Finished PDUs sent without an ACK before it is a fault. Without it `inactivity` is
        /// the only limit.
        pub ack_limit: Option<u32> as Maybe<Number> = None,
        /// Silence after which a transaction is faulty; `auto` is one hour and eight reply times.
        pub inactivity: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Time between checks of an unacknowledged file whose end came before all of its data. An
        /// unacknowledged sender waits as long for its closure.
        pub check_timer: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Checks in a row without new data before it is a fault.
        pub check_limit: Option<u32> as Maybe<Number> = Some(3),
        /// Time between Keep Alive PDUs while a file is received. Without it none is sent unprompted.
        pub keep_alive: Option<Duration> as Maybe<Span> [Interval] = None,
        /// Bytes that the receiver may be behind before it is a fault.
        pub keep_alive_discrepancy: Option<u64> as Maybe<Size> = None,
        /// On a path without a rate, bytes that new data may run ahead of what the receiver says it
        /// has, when prompted for a Keep Alive; `None` sends as fast as the path takes it. A receiver
        /// that does not reply is soon not prompted any more.
        pub unpaced_window: Option<u64> = None,
        /// Time between prompts for a NAK while a file is sent. Without it none is sent.
        pub prompt: Option<Duration> as Maybe<Span> [Interval] = None,
        /// Time after which a sender that waits in silence for Finished sends its EOF again; it
        /// doubles each time.
        pub probe: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Rate in place of the path's own; `"0"` does not pace.
        pub rate_bps("rate"): Option<u64> as Maybe<Rate> = None,
        /// Round trip assumed before it is known or measured.
        pub initial_rtt: Duration as Span [Interval] = Duration::from_secs(1),
        /// Delays of this host's replies, to reproduce a machine that was measured.
        pub host_delays: HostDelays as Table = HostDelays::default(),
        /// Requests of the entity that are served here.
        pub permissions: Permissions as Table = Permissions::default(),
    }
}

settings! {
    /// Requests of a receiver for missing data.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Naks {
        /// Time of NAKs: `immediate`, `deferred`, `prompted`, or an interval (asynchronous).
        pub mode("nak_mode"): NakMode as NakModeForm [Interval] = NakMode::Deferred,
        /// Most gaps in one NAK PDU. Without it a NAK fills the datagram.
        pub gaps_max("nak_gaps_max"): Option<usize> as Maybe<Number> = None,
        /// Most NAK PDUs sent at once, at least 1; the next follow when those are served. Without it
        /// everything that is missing is requested.
        pub pdus_per_round_max("nak_pdus_per_round_max"): Option<u32> as Maybe<Positive> = None,
        /// Time to wait for what a NAK requested.
        pub timer("nak_timer"): Timer as Auto<Span> [Interval] = Timer::Auto,
        /// NAK rounds in a row without any progress before it is a fault. Without it `inactivity` is
        /// the only limit.
        pub limit("nak_limit"): Option<u32> as Maybe<Number> = None,
    }
}

/// Time of a receiver's requests for missing data (§4.6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakMode {
    /// As soon as a gap shows.
    Immediate,
    /// When the end of the file was announced.
    Deferred,
    /// When the sender prompts for it, and after the end of the file.
    Prompted,
    /// At regular intervals, and after the end of the file.
    Asynchronous(Duration),
}

/// Form of a [`NakMode`].
#[derive(Debug)]
struct NakModeForm;

impl Leaf<NakMode> for NakModeForm {
    fn kind() -> Kind {
        Kind::from(Base::Span).or("immediate").or("deferred").or("prompted")
    }

    fn get(mode: &NakMode) -> Option<Value> {
        Some(match mode {
            NakMode::Immediate => Value::Word("immediate"),
            NakMode::Deferred => Value::Word("deferred"),
            NakMode::Prompted => Value::Word("prompted"),
            NakMode::Asynchronous(interval) => Value::Span(*interval),
        })
    }

    fn set(mode: &mut NakMode, value: Value) -> Result<(), String> {
        *mode = match value {
            Value::Word("immediate") => NakMode::Immediate,
            Value::Word("prompted") => NakMode::Prompted,
            Value::Span(interval) => NakMode::Asynchronous(interval),
            _ => NakMode::Deferred,
        };
        Ok(())
    }
}

words!(ChecksumType {
    "modular" = Self::Modular,
    "proximity1" = Self::Proximity1Crc32,
    "crc32c" = Self::Crc32c,
    "crc32" = Self::Crc32,
    "null" = Self::Null,
});

numbers!(TransmissionMode, "class is 1 or 2" {
    1 = TransmissionMode::Unacknowledged,
    2 = TransmissionMode::Acknowledged,
});

numbers!(Version, "version is 0 or 1" { 0 = Version::V0, 1 = Version::V1 });

settings! {
    /// Delays between a cause and the PDU it brings about. All zero unless a profile models a host
    /// that was measured.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HostDelays {
        /// From the Metadata PDU to the first data.
        pub metadata_to_data: Duration as Span = Duration::ZERO,
        /// From an EOF to its ACK.
        pub eof_to_ack: Duration as Span = Duration::ZERO,
        /// From the ACK of an EOF to the first NAK.
        pub ack_to_nak: Duration as Span = Duration::ZERO,
        /// From a NAK to the first repair.
        pub nak_to_repair: Duration as Span = Duration::ZERO,
        /// From the last byte to Finished, for any file.
        pub complete_to_finished: Duration as Span = Duration::ZERO,
        /// From the last byte to Finished, for each 10^6 bytes of the file.
        pub complete_to_finished_per_mb: Duration as Span = Duration::ZERO,
        /// From Finished to its ACK.
        pub finished_to_ack: Duration as Span = Duration::ZERO,
    }
}

settings! {
    /// Bounds on what an entity holds, with what happens at each.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Transactions under way. A put beyond it is refused; a peer's is ignored, with an
        /// indication. An eighth of it is kept for puts, and one path gets at most three quarters.
        pub transactions: usize as Number = 1000,
        /// Finished transactions remembered, to reply to repeated PDUs. The oldest is forgotten.
        pub finished: usize as Number = 4096,
        /// Gaps tracked in a reception. Data that would open one more is dropped and requested later.
        pub gaps: usize as Number = 65_536,
        /// Gaps tracked in all receptions together.
        pub gaps_total: usize as Number = 1 << 20,
        /// Buffers between the store and the paths.
        pub buffers: Buffers as Inline = Buffers::default(),
        /// Bytes of a file whose size was not announced. Data beyond it is dropped.
        pub file_size: u64 as Size = 1 << 40,
        /// Messages to the user, filestore requests and other options of one Metadata PDU.
        pub options: usize as Number = 64,
    }
}

settings! {
    /// Optional indications of an entity (§8.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Indications {
        /// EOF-Sent.
        pub eof_sent: bool as Flag = true,
        /// EOF-Recv.
        pub eof_received: bool as Flag = true,
        /// File-Segment-Recv, for each data PDU.
        pub file_segment_received: bool as Flag = false,
        /// Transaction-Finished at the receiving entity. Commands rely on it: it stays on.
        pub transaction_finished: bool as Flag = true,
        /// Suspended.
        pub suspended: bool as Flag = true,
        /// Resumed.
        pub resumed: bool as Flag = true,
    }
}

/// What to do about each fault (§4.8): cancel, unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(BTreeMap<ConditionCode, FaultHandler>);

impl Faults {
    /// Sets the handler of a condition.
    pub fn set(&mut self, condition: ConditionCode, handler: FaultHandler) {
        self.0.insert(condition, handler);
    }

    /// The handler of a condition.
    #[must_use]
    pub fn get(&self, condition: ConditionCode) -> FaultHandler {
        self.0.get(&condition).copied().unwrap_or(FaultHandler::Cancel)
    }
}

impl Settings for Faults {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        for (key, condition) in ConditionCode::words() {
            let field = Field { key, doc: &[" Handler of this condition."], bound: None };
            let before = self.get(condition);
            let mut handler = before;
            Word::visit(&field, &mut handler, visitor)?;
            if handler != before {
                self.set(condition, handler);
            }
        }
        Ok(())
    }
}

words!(FaultHandler {
    "cancel" = Self::Cancel,
    "suspend" = Self::Suspend,
    "ignore" = Self::Ignore,
    "abandon" = Self::Abandon,
});

words!(ConditionCode {
    "ack-limit" = Self::PositiveAckLimitReached,
    "keep-alive-limit" = Self::KeepAliveLimitReached,
    "invalid-mode" = Self::InvalidTransmissionMode,
    "filestore-rejection" = Self::FilestoreRejection,
    "checksum-failure" = Self::FileChecksumFailure,
    "file-size-error" = Self::FileSizeError,
    "nak-limit" = Self::NakLimitReached,
    "inactivity" = Self::InactivityDetected,
    "check-limit" = Self::CheckLimitReached,
    "unsupported-checksum" = Self::UnsupportedChecksumType,
});
