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

/// The settings of one entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The entity's own number.
    pub entity: u64,
    /// Octets of the transaction sequence numbers it gives.
    pub sequence_width: Width,
    /// The first sequence number it gives; `None` draws one, so that an entity that lost its
    /// records does not repeat itself.
    pub first_sequence: Option<u64>,
    /// Of how many transactions that ended last, and were acknowledged, the sources are told once more when it begins anew: for
    /// ways on which to ask takes long.
    pub told_again: usize,
    /// What is known of other entities, by their numbers.
    pub remotes: BTreeMap<u64, Remote>,
    /// What holds for all others.
    pub default_remote: Remote,
    /// Whether entities that `remotes` does not name may send files here.
    pub accept_unknown: bool,
    /// Bounds on what the entity holds.
    pub limits: Limits,
    /// Which optional indications it gives.
    pub indications: Indications,
    /// What it does about each fault unless the transaction overrides it (§4.8).
    pub faults: Faults,
    /// When it saves the progress of a reception.
    pub journal: JournalPolicy,
    /// How much of a path's rate may be made up for when the driver comes late: as much as leaves
    /// in this time, at once. Zero keeps every datagram at its distance from the one before.
    pub catch_up: Duration,
    /// Whether an incomplete file is delivered when its transaction ends early, rather than
    /// discarded.
    pub keep_incomplete: bool,
    /// What it does for others: routes, and bounds on what it stores and serves.
    pub user_operations: UserOperations,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            entity: 1,
            sequence_width: Width::TWO,
            first_sequence: None,
            told_again: 0,
            remotes: BTreeMap::new(),
            default_remote: Remote::default(),
            accept_unknown: true,
            limits: Limits::default(),
            indications: Indications::default(),
            faults: Faults::default(),
            journal: JournalPolicy::default(),
            catch_up: Duration::ZERO,
            keep_incomplete: false,
            user_operations: UserOperations::default(),
        }
    }
}

impl Config {
    /// What holds for the entity numbered `id`.
    #[must_use]
    pub fn remote(&self, id: u64) -> &Remote {
        self.remotes.get(&id).unwrap_or(&self.default_remote)
    }
}

/// Settings for one remote entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The path to it; `None` answers where its PDUs came from and otherwise uses the one path
    /// there is.
    pub path: Option<PathId>,
    /// Issue of the book for PDUs of transactions that start here.
    pub version: Version,
    /// Transmission mode of puts that do not say.
    pub mode: TransmissionMode,
    /// Whether closure is requested by unacknowledged puts that do not say.
    pub closure: bool,
    /// Checksum of puts that do not say.
    pub checksum: ChecksumType,
    /// Whether each PDU carries a CRC, in both directions: what comes without one is refused.
    pub crc: bool,
    /// Octets of entity numbers on the wire; `None` takes the fewest that fit both.
    pub entity_width: Option<Width>,
    /// Most file bytes in a PDU; `None` fills the datagram.
    pub segment_max: Option<usize>,
    /// Most bytes in a PDU; `None` fills the path's MTU.
    pub datagram_max: Option<usize>,
    /// When missing data is asked for.
    pub nak_mode: NakMode,
    /// Most gaps in one NAK PDU; `None` fills the datagram.
    pub nak_gaps_max: Option<usize>,
    /// Most NAK PDUs sent at once, at least 1; the next follow when those are answered. `None`
    /// asks for everything that is missing.
    pub nak_pdus_per_round_max: Option<u32>,
    /// Most copies of a repair that are sent at once. Where a round trip costs more than a few
    /// packets, another copy is cheaper than the chance of another round; how many are worth it
    /// follows from the path's rate and light time and from the losses so far. 1 sends no copies.
    pub repair_copies: u32,
    /// Time to wait for the ACK of an EOF or Finished.
    pub ack_timer: Timer,
    /// EOF or Finished PDUs sent without an ACK before it is a fault; `None` leaves it to
    /// `inactivity`.
    pub ack_limit: Option<u32>,
    /// Time to wait for what a NAK asked for.
    pub nak_timer: Timer,
    /// NAK rounds in a row without any progress before it is a fault; `None` leaves it to
    /// `inactivity`.
    pub nak_limit: Option<u32>,
    /// Silence after which a transaction is faulty.
    pub inactivity: Timer,
    /// Time between checks of an unacknowledged file whose end came before all of its data, and
    /// the time an unacknowledged sender waits for its closure.
    pub check_timer: Timer,
    /// Checks in a row without new data before it is a fault; `None` leaves it to `inactivity`.
    pub check_limit: Option<u32>,
    /// Time between Keep Alive PDUs while a file is received; `None` sends none unprompted.
    pub keep_alive: Option<Duration>,
    /// How far, in bytes, the receiver may be behind before it is a fault.
    pub keep_alive_discrepancy: Option<u64>,
    /// On a path without a rate, bytes that new data may run ahead of what the receiver says it
    /// has, when prompted for a Keep Alive; `None` sends as fast as the path takes it. A receiver
    /// that does not answer is soon not asked any more.
    pub unpaced_window: Option<u64>,
    /// Time between prompts for a NAK while a file is sent; `None` sends none.
    pub prompt: Option<Duration>,
    /// Time after which a sender that waits in silence for Finished sends its EOF again; it
    /// doubles each time.
    pub probe: Timer,
    /// Rate in bit/s in place of the path's own; `Some(0)` does not pace.
    pub rate_bps: Option<u64>,
    /// The round trip assumed before it is known or measured.
    pub initial_rtt: Duration,
    /// Time the host takes before it answers, to reproduce a machine that was measured.
    pub host_delays: HostDelays,
    /// What it may ask this entity for.
    pub permissions: Permissions,
}

impl Default for Remote {
    fn default() -> Self {
        Self {
            path: None,
            version: Version::V1,
            mode: TransmissionMode::Acknowledged,
            closure: false,
            checksum: ChecksumType::Crc32c,
            crc: false,
            entity_width: None,
            segment_max: None,
            datagram_max: None,
            nak_mode: NakMode::Deferred,
            nak_gaps_max: None,
            nak_pdus_per_round_max: None,
            repair_copies: 4,
            ack_timer: Timer::Auto,
            ack_limit: None,
            nak_timer: Timer::Auto,
            nak_limit: None,
            inactivity: Timer::Auto,
            check_timer: Timer::Auto,
            check_limit: Some(3),
            keep_alive: None,
            keep_alive_discrepancy: None,
            unpaced_window: None,
            prompt: None,
            probe: Timer::Auto,
            rate_bps: None,
            initial_rtt: Duration::from_secs(1),
            host_delays: HostDelays::default(),
            permissions: Permissions::default(),
        }
    }
}

/// When a receiver asks for missing data (§4.6.4).
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

/// Extra time between a cause and the PDU it brings about. All zero unless a profile models a
/// host that was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostDelays {
    /// From the Metadata PDU to the first data.
    pub metadata_to_data: Duration,
    /// From an EOF to its ACK.
    pub eof_to_ack: Duration,
    /// From the ACK of an EOF to the first NAK.
    pub ack_to_nak: Duration,
    /// From a NAK to the first repair.
    pub nak_to_repair: Duration,
    /// From the last byte to Finished, for any file.
    pub complete_to_finished: Duration,
    /// The same, for each 10^6 bytes of the file.
    pub complete_to_finished_per_mb: Duration,
    /// From Finished to its ACK.
    pub finished_to_ack: Duration,
}

/// Bounds on what an entity holds. What happens at each bound is said with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Transactions under way. A put beyond it is refused; a peer's is ignored, with an
    /// indication. An eighth of it is kept for puts, and one path gets at most three quarters.
    pub transactions: usize,
    /// Finished transactions remembered, to answer repeated PDUs. The oldest is forgotten.
    pub finished: usize,
    /// Gaps tracked in a reception. Data that would open one more is dropped and asked for later.
    pub gaps: usize,
    /// Gaps tracked in all receptions together.
    pub gaps_total: usize,
    /// Buffers between the store and the paths.
    pub buffers: Buffers,
    /// Bytes of a file whose size was not announced. Data beyond it is dropped.
    pub file_size: u64,
    /// Messages to the user, filestore requests and other options of one Metadata PDU.
    pub options: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            transactions: 1000,
            finished: 4096,
            gaps: 65_536,
            gaps_total: 1 << 20,
            buffers: Buffers::default(),
            file_size: 1 << 40,
            options: 64,
        }
    }
}

/// Which optional indications an entity gives (§8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indications {
    /// EOF-Sent.
    pub eof_sent: bool,
    /// EOF-Recv.
    pub eof_received: bool,
    /// File-Segment-Recv, for each data PDU.
    pub file_segment_received: bool,
    /// Transaction-Finished at the receiving entity.
    pub transaction_finished: bool,
    /// Suspended.
    pub suspended: bool,
    /// Resumed.
    pub resumed: bool,
}

impl Default for Indications {
    fn default() -> Self {
        Self {
            eof_sent: true,
            eof_received: true,
            file_segment_received: false,
            transaction_finished: true,
            suspended: true,
            resumed: true,
        }
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
