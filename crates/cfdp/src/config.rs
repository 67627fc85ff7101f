//! Settings of an entity: the management information base (CCSDS 727.0-B-5 §8).

pub(crate) mod user_operations;

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;
use session::buffers::Buffers;
use session::numbers;
use session::settings;
use session::settings::form::{Form as _, Leaf, Word, Words as _};
use session::settings::{Base, Field, Kind, Remotes, Settings, Value, Visited, Visitor};
pub use session::storage::JournalPolicy;
pub use session::timer::Timer;
use session::words;

use self::user_operations::{Permissions, UserOperations};
use crate::pdu::{ChecksumType, ConditionCode, FaultHandler, TransmissionMode, Version, Width};
use crate::width::WidthForm;

settings! {
    /// Settings of one entity.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config [more: Self::visit_remotes] {
        /// Number of the entity.
        pub entity: u64 as Number = 1,
        /// Bytes of assigned transaction sequence numbers, 1 to 8.
        pub sequence_width("sequence_octets"): Width as WidthForm [Range(1, 8)] = Width::TWO,
        /// First assigned sequence number. Random by default, so that an entity that lost its
        /// records does not reuse numbers.
        pub first_sequence: Option<u64> as Maybe<Number> = None,
        /// Number of recent acknowledged transactions whose Finished PDU is sent again after a
        /// restart. Saves a round trip on long paths.
        pub finished_resends: usize = 0,
        /// Settings for remote entities, by their numbers.
        pub remotes: BTreeMap<u64, Remote> = BTreeMap::new(),
        /// Settings for all other remote entities.
        pub default_remote: Remote = Remote::default(),
        /// Whether entities not listed in `remotes` may send files here.
        pub accept_unknown: bool as Flag = true,
        /// Limits of the entity.
        pub limits: Limits as Table = Limits::default(),
        /// Optional indications.
        pub indications: Indications as Table = Indications::default(),
        /// Fault handlers, unless the transaction overrides them (§4.8).
        pub faults: Faults as Table = Faults::default(),
        /// Journal from which receptions resume after a restart.
        pub journal: JournalPolicy as Table = JournalPolicy::default(),
        /// Maximum driver delay that the pacer makes up for. Zero keeps the spacing of all
        /// datagrams.
        pub catch_up: Duration = Duration::ZERO,
        /// Whether an incomplete file is delivered when its transaction ends early, rather than
        /// discarded.
        pub keep_incomplete: bool as Flag = false,
        /// Whether a reception of class 2 whose sender is silent for `inactivity` is kept until the
        /// sender transmits again, instead of being cancelled. `recv` sets it.
        pub keep_silent: bool as Flag = false,
        /// Services for remote entities: routes, and limits on stored and served files.
        pub user_operations: UserOperations as Table = UserOperations::default(),
    }
}

impl Config {
    /// Settings for the entity numbered `id`.
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
        /// Path to the entity. `None` sends replies on the path on which its PDUs arrived, and
        /// everything else on the only path.
        pub path: Option<PathId> = None,
        /// PDU version of transactions started here: 0 for issues 1 to 4 of the book, 1 for issue
        /// 5.
        pub version: Version as Numbered = Version::V1,
        /// Default transmission class of puts: 1 is unacknowledged, 2 acknowledged.
        pub mode("class"): TransmissionMode as Numbered = TransmissionMode::Acknowledged,
        /// Default of unacknowledged puts: whether closure is requested.
        pub closure: bool as Flag = false,
        /// Default checksum of puts.
        pub checksum: ChecksumType as Word = ChecksumType::Crc32c,
        /// Whether PDUs carry a CRC, in both directions: PDUs without one are dropped.
        pub crc: bool as Flag = false,
        /// Bytes of entity numbers on the wire, 1 to 8. By default the smallest width that fits
        /// both.
        pub entity_width("entity_octets"): Option<Width> as WidthForm [Range(1, 8)] = None,
        /// Bytes of file data in a PDU. By default a PDU fills the datagram.
        pub segment_max: Option<usize> as Maybe<Size> = None,
        /// Bytes of a PDU. By default a PDU fills the path's MTU.
        pub datagram_max: Option<usize> as Maybe<Size> = None,
        /// Requests for missing data.
        pub naks: Naks as Inline = Naks::default(),
        /// Maximum number of copies of a repair sent at once; 1 sends no extra copy. Where a round
        /// trip costs more than a few packets, a copy is cheaper than the risk of another round.
        /// The number used follows from the path's rate and light time, and from the losses so far.
        pub repair_copies: u32 as Number = 4,
        /// Timeout for the ACK of an EOF or Finished PDU.
        pub ack_timer: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Number of EOF or Finished PDUs sent without an ACK before a fault is declared. By
        /// default only `inactivity` limits it.
        pub ack_limit: Option<u32> as Maybe<Number> = None,
        /// Silence after which an inactivity fault is declared; `auto` is one hour plus eight reply
        /// times.
        pub inactivity: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Time between checks of an unacknowledged file whose EOF arrived before all data. An
        /// unacknowledged sender waits equally long for its closure.
        pub check_timer: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Number of consecutive checks without new data before a fault is declared.
        pub check_limit: Option<u32> as Maybe<Number> = Some(3),
        /// Time between Keep Alive PDUs while a file is received. By default they are sent only
        /// when prompted.
        pub keep_alive: Option<Duration> as Maybe<Span> [Interval] = None,
        /// Bytes by which the receiver may lag before a fault is declared.
        pub keep_alive_discrepancy: Option<u64> as Maybe<Size> = None,
        /// For senders without a rate: bytes of new data sent beyond the progress in the receiver's
        /// Keep Alive PDUs, which the sender prompts for; `None` is unlimited. A receiver that does
        /// not reply is soon no longer prompted.
        pub unpaced_window: Option<u64> = None,
        /// Time between prompts for a Keep Alive while a file is sent: the user sees that the
        /// receiver is there, and what it has. `None` sends none.
        pub progress_prompt: Option<Duration> as Maybe<Span> [Interval] = None,
        /// Time between prompts for a NAK while a file is sent. By default none is sent.
        pub prompt: Option<Duration> as Maybe<Span> [Interval] = None,
        /// Time after which a sender that awaits Finished sends its EOF again, doubled with each
        /// attempt.
        pub probe: Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Rate that overrides the path's own; `"0"` does not pace.
        pub rate_bps("rate"): Option<u64> as Maybe<Rate> = None,
        /// Round trip assumed before it is configured or measured.
        pub initial_rtt: Duration as Span [Interval] = Duration::from_secs(1),
        /// Processing delays before replies, to reproduce a measured host.
        pub host_delays: HostDelays as Table = HostDelays::default(),
        /// Permitted requests of the entity.
        pub permissions: Permissions as Table = Permissions::default(),
    }
}

settings! {
    /// Requests of a receiver for missing data.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Naks {
        /// Time of NAKs: `immediate`, `deferred`, `prompted`, or an interval (asynchronous).
        pub mode("nak_mode"): NakMode as NakModeForm [Interval] = NakMode::Deferred,
        /// Maximum number of gaps in a NAK PDU. By default a NAK fills the datagram.
        pub gaps_max("nak_gaps_max"): Option<usize> as Maybe<Number> = None,
        /// Maximum number of NAK PDUs sent at once, at least 1; the next ones follow after their
        /// repairs. By default everything missing is requested.
        pub pdus_per_round_max("nak_pdus_per_round_max"): Option<u32> as Maybe<Positive> = None,
        /// Timeout for requested data.
        pub timer("nak_timer"): Timer as Auto<Span> [Interval] = Timer::Auto,
        /// Number of consecutive NAK rounds without progress before a fault is declared. By default
        /// only `inactivity` limits it.
        pub limit("nak_limit"): Option<u32> as Maybe<Number> = None,
    }
}

/// Time at which a receiver requests missing data (§4.6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakMode {
    /// When a gap appears.
    Immediate,
    /// When the EOF has arrived.
    Deferred,
    /// When the sender prompts for it, and after the EOF.
    Prompted,
    /// At regular intervals, and after the EOF.
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

numbers!(TransmissionMode, "class is 1 or 2" {
    1 = TransmissionMode::Unacknowledged,
    2 = TransmissionMode::Acknowledged,
});

numbers!(Version, "version is 0 or 1" { 0 = Version::V0, 1 = Version::V1 });

settings! {
    /// Delays between a cause and the PDU that it triggers. All are zero unless a profile models a
    /// measured host.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HostDelays {
        /// Time from the Metadata PDU to the first data.
        pub metadata_to_data: Duration as Span = Duration::ZERO,
        /// Time from an EOF to its ACK.
        pub eof_to_ack: Duration as Span = Duration::ZERO,
        /// Time from the ACK of an EOF to the first NAK.
        pub ack_to_nak: Duration as Span = Duration::ZERO,
        /// Time from a NAK to the first repair.
        pub nak_to_repair: Duration as Span = Duration::ZERO,
        /// Time from the last byte to Finished, independent of the file's size.
        pub complete_to_finished: Duration as Span = Duration::ZERO,
        /// Time from the last byte to Finished, added for each 10^6 bytes of the file.
        pub complete_to_finished_per_mb: Duration as Span = Duration::ZERO,
        /// Time from Finished to its ACK.
        pub finished_to_ack: Duration as Span = Duration::ZERO,
    }
}

settings! {
    /// Limits of an entity, and the effect of each.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Transactions under way. Further puts are refused; a peer's replaces the reception that
        /// gained least for its age. An eighth is reserved for puts, and one host gets at most
        /// three quarters.
        pub transactions: usize as Number = 1000,
        /// Finished transactions remembered, to reply to repeated PDUs. The oldest is forgotten.
        pub finished: usize as Number = 4096,
        /// Gaps tracked in a reception. Data that would open another gap is dropped, and requested
        /// later.
        pub gaps: usize as Number = 65_536,
        /// Gaps tracked in all receptions together.
        pub gaps_total: usize as Number = 1 << 20,
        /// Buffers between the store and the paths.
        pub buffers: Buffers as Inline = Buffers::default(),
        /// Bytes of a file of unannounced size. Data beyond it is dropped.
        pub file_size: u64 as Size = 1 << 40,
        /// Number of messages to user, filestore requests and other options of one Metadata PDU.
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
        /// Transaction-Finished at the receiving entity. Commands rely on it: keep it enabled.
        pub transaction_finished: bool as Flag = true,
        /// Suspended.
        pub suspended: bool as Flag = true,
        /// Resumed.
        pub resumed: bool as Flag = true,
    }
}

/// Fault handlers (§4.8): cancel by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(BTreeMap<ConditionCode, FaultHandler>);

impl Faults {
    /// Sets the handler of a condition.
    pub fn set(&mut self, condition: ConditionCode, handler: FaultHandler) {
        self.0.insert(condition, handler);
    }

    /// Handler of a condition.
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
