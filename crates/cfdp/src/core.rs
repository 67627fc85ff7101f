//! State shared by all transactions of an entity, and state common to each transaction.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use ::session::journal::Slot;
use ::session::path::{Burst, Class, Clock, Handle, Path};
use ::session::timer::{self, TICK};
use ::session::{self, Alarm as _, Credit, Reason, Seat, User};
use engine::{IndexRequest, Time};

use super::config::{Config, Remote};
use super::indication::{Indication, Limit, handler_or_cancel};
use super::stats::Stats;
use super::user_operations::Operations;
use crate::pdu::{
    Ack, Acknowledged, Body, ConditionCode, Direction, FaultHandler, Header, Pdu, TransactionId,
    TransactionStatus, TransmissionMode,
};

/// A transaction's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// Timeout of the ACK of an EOF or Finished.
    Ack,
    /// Timeout of the data requested by a NAK.
    Nak,
    /// Silence of the peer.
    Inactivity,
    /// Check whether an unacknowledged file is complete, or closed.
    Check,
    /// Probe of a waiting sender.
    Probe,
    /// Keep Alive.
    KeepAlive,
    /// Prompt for a NAK.
    Prompt,
    /// Prompt for a Keep Alive.
    Progress,
    /// The receiver does not report its progress.
    Window,
    /// Request for gaps while the file still arrives.
    Periodic,
    /// Save the progress.
    Journal,
    /// End of a host delay.
    Ready(Class),
}

impl session::Alarm for Alarm {
    fn why(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Nak => "nak",
            Self::Inactivity => "inactivity",
            Self::Check => "check",
            Self::Probe => "probe",
            Self::KeepAlive => "keep alive",
            Self::Prompt => "prompt",
            Self::Progress => "progress",
            Self::Window => "window",
            Self::Periodic => "periodic nak",
            Self::Journal => "journal",
            Self::Ready(_) => "host delay",
        }
    }

    fn awaits_peer(self) -> bool {
        match self {
            Self::Ack
            | Self::Nak
            | Self::Inactivity
            | Self::Check
            | Self::Probe
            | Self::KeepAlive
            | Self::Prompt
            | Self::Progress
            | Self::Periodic => true,
            // Without a reply the window opens after a while.
            Self::Window | Self::Journal | Self::Ready(_) => false,
        }
    }

    fn is_local(self) -> bool {
        matches!(self, Self::Journal | Self::Ready(_))
    }
}

/// Purpose of an effect that only CFDP has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Reads the records of an earlier run.
    Load,
    /// Carries out a filestore request of the peer.
    Request,
    /// Stores or removes a record.
    Journal,
    /// Reserves sequence numbers below this one.
    Sequence(u64),
    /// Carries out a step of a user operation, by its number.
    Operation(u64),
}

pub(crate) type Job = session::Job<Task>;

pub(crate) type Shared = session::Shared<Alarm, Task>;

/// State shared by all transactions of an entity.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) shared: Shared,
    pub(crate) user: User<Indication, Limit>,
    pub(crate) stats: Stats,
    /// Ranges tracked in all receptions.
    pub(crate) ranges: usize,
    /// Number of finished receptions, which orders their records.
    pub(crate) finished: u64,
    pub(crate) operations: Operations,
}

impl Core {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            shared: Shared::new(config.limits.buffers),
            user: User::new(),
            stats: Stats::default(),
            ranges: 0,
            finished: 0,
            operations: Operations::default(),
            config,
        }
    }

    /// Order number for another finished reception.
    pub(crate) fn finished_order(&mut self) -> u64 {
        self.finished += 1;
        self.finished
    }
}

/// State common to transactions of both roles.
#[derive(Debug)]
pub(crate) struct Base {
    session: session::Base<Alarm>,
    /// Header of PDUs sent by this side.
    pub(crate) header: Header,
    pub(crate) peer: u64,
    pub(crate) remote: Remote,
    /// Fault handlers set by the Metadata for this transaction.
    pub(crate) overrides: Vec<(ConditionCode, FaultHandler)>,
    /// Bytes that may be sent to the peer.
    pub(crate) credit: Credit,
}

/// Dereferences to the transaction's session.
impl Deref for Base {
    type Target = session::Base<Alarm>;

    fn deref(&self) -> &Self::Target {
        &self.session
    }
}

impl DerefMut for Base {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.session
    }
}

impl Base {
    pub(crate) fn new(handle: Handle, header: Header, peer: u64, remote: Remote) -> Self {
        let session = session::Base::unfrozen(Seat::new(handle, remote.path), Time::ZERO);
        Self { session, header, peer, remote, overrides: Vec::new(), credit: Credit::Unlimited }
    }

    pub(crate) fn id(&self) -> TransactionId {
        self.header.transaction()
    }

    pub(crate) fn acknowledged(&self) -> bool {
        self.header.mode == TransmissionMode::Acknowledged
    }

    /// Requests a turn to send something of this class.
    pub(crate) fn want(&mut self, core: &mut Core, class: Class) {
        self.seat.want(&mut core.shared.paths, class);
    }

    /// Requests a turn to send after a host delay.
    pub(crate) fn want_at(&mut self, core: &mut Core, class: Class, now: Time, at: Time) {
        if at <= now {
            self.want(core, class);
            return;
        }
        let sooner = core
            .shared
            .timers
            .get((self.seat.handle, Alarm::Ready(class)))
            .is_none_or(|d| at < d.at);
        if sooner {
            self.alarm(core, Alarm::Ready(class), at);
        }
    }

    /// Whether the peer may move to another path. It may not if its path is configured, or while it
    /// is received on the current one, because anyone can write its number into a PDU.
    pub(crate) fn may_move(&self, core: &Core, now: Time) -> bool {
        let Some(path) = self.seat.path else { return true };
        if self.remote.path.is_some() {
            return false;
        }
        let patience = self.answer_time(core).max(Duration::from_secs(1));
        let is_up = core.shared.paths.get(&path).is_some_and(Path::is_up);
        !is_up || now.since(self.last_received) >= patience
    }

    /// Arms a timer; while clocks are stopped, it is armed when they run again.
    pub(crate) fn alarm(&mut self, core: &mut Core, alarm: Alarm, at: Time) {
        if alarm.runs(self.clock()) {
            self.session.arm(&mut core.shared, alarm, at);
        }
    }

    /// Arms a timer, unless it is armed to fire at the same time or earlier; then it is checked
    /// again when it fires.
    pub(crate) fn alarm_no_later(&mut self, core: &mut Core, alarm: Alarm, at: Time) {
        if core.shared.timers.get((self.seat.handle, alarm)).is_none_or(|deadline| at < deadline.at)
        {
            self.alarm(core, alarm, at);
        }
    }

    /// Disarms a timer. While clocks are stopped, its remaining time limits the next timer of its
    /// kind.
    pub(crate) fn disarm(&mut self, core: &mut Core, alarm: Alarm) {
        self.session.disarm_running(&mut core.shared, alarm);
    }

    pub(crate) fn disarm_protocol(&mut self, core: &mut Core) {
        self.session.disarm_protocol(&mut core.shared);
    }

    pub(crate) fn disarm_all(&mut self, core: &mut Core) {
        self.session.disarm_all(&mut core.shared);
    }

    /// Suspends the transaction until it is resumed, and indicates that if enabled.
    pub(crate) fn suspend(&mut self, core: &mut Core, now: Time, condition: ConditionCode) {
        self.session.freeze(&mut core.shared, now, Reason::User);
        if core.config.indications.suspended {
            core.user.indicate(Indication::Suspended { id: self.id(), condition });
        }
    }

    /// Resumes the transaction. Returns `false` if it was not suspended.
    pub(crate) fn resume(&mut self, core: &mut Core, now: Time, progress: u64) -> bool {
        if !self.is_suspended() {
            return false;
        }
        self.session.thaw(now, Reason::User);
        if core.config.indications.resumed {
            core.user.indicate(Indication::Resumed { id: self.id(), progress });
        }
        true
    }

    /// Ends a suspension and all protocol timers, because the outcome is decided.
    pub(crate) fn settle(&mut self, core: &mut Core, now: Time) {
        self.session.thaw(now, Reason::User);
        self.disarm_protocol(core);
    }

    /// Resumes when both directions of the path are up. The silence so far ends here, unless the
    /// path was down: then it keeps counting. Returns the remaining time of each timer.
    pub(crate) fn path_resumed(&mut self, now: Time) -> Vec<(Alarm, Duration)> {
        if !self.is_frozen() {
            self.last_received = now;
        }
        self.session.thaw(now, Reason::Path)
    }

    /// Limits rearmed timers to their remaining time. Otherwise none would ever fire where contacts
    /// are short.
    pub(crate) fn rearm_no_later(
        &mut self,
        core: &mut Core,
        now: Time,
        left: Vec<(Alarm, Duration)>,
    ) {
        for (alarm, left) in left {
            if core.shared.timers.get((self.seat.handle, alarm)).is_some() {
                self.alarm_no_later(core, alarm, now + left.max(TICK));
            }
        }
    }

    /// Whether timers run: not while suspended or while a direction of the path is known to be
    /// down.
    pub(crate) fn running(&self, core: &Core) -> bool {
        !self.is_suspended() && core.shared.paths.clock(self.seat.path) == Clock::Running
    }

    /// Time within which the peer should have replied.
    pub(crate) fn answer_time(&self, core: &Core) -> Duration {
        self.seat.round_trip(&core.shared.paths).timeout(self.remote.initial_rtt)
    }

    /// Time between two checks whether an unacknowledged transaction is complete, or closed.
    pub(crate) fn check_time(&self, core: &Core) -> Duration {
        let answer = self.answer_time(core);
        let auto = match self.header.direction {
            // A sender waits for its receiver's checks.
            Direction::TowardReceiver => answer.max(Duration::from_secs(1)) * 2,
            Direction::TowardSender => answer.max(Duration::from_millis(500)),
        };
        self.remote.check_timer.duration(auto, 0)
    }

    /// Silence after which an inactivity fault is declared.
    pub(crate) fn inactivity(&self, core: &Core) -> Duration {
        self.remote.inactivity.duration(timer::inactivity(self.answer_time(core)), 0)
    }

    /// Handler of a fault (§4.8): the transaction's own, otherwise the entity's.
    pub(crate) fn handler(&self, core: &Core, condition: ConditionCode) -> FaultHandler {
        let own = self.overrides.iter().rev().find(|(other, _)| *other == condition);
        let handler = own.map_or_else(|| core.config.faults.get(condition), |(_, h)| *h);
        handler_or_cancel(handler)
    }

    /// Requests an operation on the transaction's record.
    pub(crate) fn record(&self, core: &mut Core, slot: &mut Slot, request: IndexRequest) {
        slot.submit(&mut core.shared, self.seat.handle, Job::Own(Task::Journal), request);
    }

    /// Notes that an operation on the transaction's record is done. Returns whether all operations
    /// are done.
    pub(crate) fn recorded(&self, core: &mut Core, slot: &mut Slot) -> bool {
        slot.done(&mut core.shared, self.seat.handle, Job::Own(Task::Journal))
    }

    /// Bytes of the largest PDU of this transaction.
    pub(crate) fn pdu_max(&self, mtu: usize) -> usize {
        self.remote.datagram_max.map_or(mtu, |max| max.min(mtu))
    }

    /// Writes a PDU into the batch; `false` if it must wait for the next one. A PDU larger than the
    /// path's MTU, or than the peer's credit, is dropped.
    pub(crate) fn push(&mut self, core: &mut Core, burst: &mut Burst<'_>, body: Body<'_>) -> bool {
        let pdu = Pdu { header: self.header, body };
        let len = pdu.encoded_len();
        if len > burst.mtu() {
            core.stats.oversize += 1;
            return true;
        }
        if !burst.has_room(len) {
            return false;
        }
        if !self.credit.spend(len) {
            core.stats.held_back += 1;
            return true;
        }
        let Some(place) = burst.push(len) else { return false };
        if pdu.encode(place).is_err() {
            // Nothing sent by this entity is out of range; an empty datagram is ignored by all.
            debug_assert!(false, "a PDU of our own cannot be encoded");
            place.fill(0);
        }
        core.stats.sent.count(&body);
        true
    }

    pub(crate) fn ack(&self, of: Acknowledged, condition: ConditionCode) -> Body<'static> {
        Body::Ack(Ack {
            directive: of,
            subtype: u8::from(of == Acknowledged::Finished),
            condition,
            status: TransactionStatus::Active,
        })
    }
}

/// Header of PDUs that reply to a PDU with `header`.
pub(crate) fn reverse(header: &Header) -> Header {
    let direction = match header.direction {
        Direction::TowardReceiver => Direction::TowardSender,
        Direction::TowardSender => Direction::TowardReceiver,
    };
    Header { direction, ..*header }
}
