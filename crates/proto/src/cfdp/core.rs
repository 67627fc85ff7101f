//! What all transactions of an entity share, and what each transaction has in common.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use engine::{IndexRequest, Time};
use wire::cfdp::{
    Ack, Acknowledged, Body, ConditionCode, Direction, FaultHandler, Header, Pdu, TransactionId,
    TransactionStatus, TransmissionMode,
};

use super::config::{Config, Remote};
use super::indication::{Indication, Limit, handler_or_cancel};
use super::stats::Stats;
use super::user_operations::Operations;
use crate::journal::Slot;
use crate::path::{Burst, Class, Clock, Handle, Path};
use crate::session::{self, Alarm as _, Reason, Seat, User};
use crate::timer::{self, TICK};

/// A transaction's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// The ACK of an EOF or Finished is overdue.
    Ack,
    /// What a NAK asked for is overdue.
    Nak,
    /// Nothing came for too long.
    Inactivity,
    /// Look again whether an unacknowledged file is complete, or closed.
    Check,
    /// A waiting sender asks whether the receiver is still there.
    Probe,
    /// Send a Keep Alive.
    KeepAlive,
    /// Send a Prompt.
    Prompt,
    /// The receiver does not say how far it is.
    Window,
    /// Ask for gaps while the file still comes.
    Periodic,
    /// Save the progress.
    Journal,
    /// A host delay is over.
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
            | Self::Periodic => true,
            // Without an answer the window lets more through after a while.
            Self::Window | Self::Journal | Self::Ready(_) => false,
        }
    }

    fn is_local(self) -> bool {
        matches!(self, Self::Journal | Self::Ready(_))
    }
}

/// What an effect was for that only CFDP has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Take up the records of an earlier run.
    Load,
    /// A filestore request of the peer.
    Request,
    /// A record was kept or forgotten.
    Journal,
    /// Sequence numbers below this were set aside.
    Sequence(u64),
    /// A step of a user operation, by its number.
    Operation(u64),
}

pub(crate) type Job = session::Job<Task>;

pub(crate) type Shared = session::Shared<Alarm, Task>;

/// What all transactions of an entity share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) shared: Shared,
    pub(crate) user: User<Indication, Limit>,
    pub(crate) stats: Stats,
    /// Ranges tracked, in all receptions.
    pub(crate) ranges: usize,
    /// How many receptions were over; orders the records of them.
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

    /// The place of one more finished reception in their order.
    pub(crate) fn finished_order(&mut self) -> u64 {
        self.finished += 1;
        self.finished
    }
}

/// What each transaction has, whichever side it is on.
#[derive(Debug)]
pub(crate) struct Base {
    session: session::Base<Alarm>,
    /// The header of what this side sends.
    pub(crate) header: Header,
    pub(crate) peer: u64,
    pub(crate) remote: Remote,
    /// Fault handlers that the Metadata sets for this transaction.
    pub(crate) overrides: Vec<(ConditionCode, FaultHandler)>,
}

/// A transaction is a session.
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
        Self { session, header, peer, remote, overrides: Vec::new() }
    }

    pub(crate) fn id(&self) -> TransactionId {
        self.header.transaction()
    }

    pub(crate) fn acknowledged(&self) -> bool {
        self.header.mode == TransmissionMode::Acknowledged
    }

    /// Asks for a chance to send something of this class.
    pub(crate) fn want(&mut self, core: &mut Core, class: Class) {
        self.seat.want(&mut core.shared.paths, class);
    }

    /// The same, after a host delay.
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

    /// Whether the peer may go on by another path than the one it used: not if the settings name
    /// its path, nor while it is heard on the other, because anybody can write its number into a
    /// PDU.
    pub(crate) fn may_move(&self, core: &Core, now: Time) -> bool {
        let Some(path) = self.seat.path else { return true };
        if self.remote.path.is_some() {
            return false;
        }
        let patience = self.answer_time(core).max(Duration::from_secs(1));
        let is_up = core.shared.paths.get(&path).is_some_and(Path::is_up);
        !is_up || now.since(self.last_received) >= patience
    }

    /// Arms a timer, unless it stands still now: then it is armed when the clock runs again.
    pub(crate) fn alarm(&mut self, core: &mut Core, alarm: Alarm, at: Time) {
        if alarm.runs(self.clock()) {
            self.session.arm(&mut core.shared, alarm, at);
        }
    }

    /// Arms a timer unless it is armed to go off no later: it then looks again by itself.
    pub(crate) fn alarm_no_later(&mut self, core: &mut Core, alarm: Alarm, at: Time) {
        if core.shared.timers.get((self.seat.handle, alarm)).is_none_or(|deadline| at < deadline.at)
        {
            self.alarm(core, alarm, at);
        }
    }

    /// Disarms a timer. If it stands still, what is left of it bounds the next one of its kind.
    pub(crate) fn disarm(&mut self, core: &mut Core, alarm: Alarm) {
        self.session.disarm_running(&mut core.shared, alarm);
    }

    pub(crate) fn disarm_protocol(&mut self, core: &mut Core) {
        self.session.disarm_protocol(&mut core.shared);
    }

    pub(crate) fn disarm_all(&mut self, core: &mut Core) {
        self.session.disarm_all(&mut core.shared);
    }

    /// Suspends the transaction until it is resumed, and reports that if it is wanted.
    pub(crate) fn suspend(&mut self, core: &mut Core, now: Time, condition: ConditionCode) {
        self.session.freeze(&mut core.shared, now, Reason::User);
        if core.config.indications.suspended {
            core.user.indicate(Indication::Suspended { id: self.id(), condition });
        }
    }

    /// Resumes the transaction; `false` if it was not suspended.
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

    /// Ends a suspension and all timers of the protocol, as the outcome is decided.
    pub(crate) fn settle(&mut self, core: &mut Core, now: Time) {
        self.session.thaw(now, Reason::User);
        self.disarm_protocol(core);
    }

    /// Resumes with both directions of the path. The silence so far ends here, unless the path was
    /// down: then it counts on. Returns the time that was left of each timer.
    pub(crate) fn path_resumed(&mut self, now: Time) -> Vec<(Alarm, Duration)> {
        if !self.is_frozen() {
            self.last_received = now;
        }
        self.session.thaw(now, Reason::Path)
    }

    /// Lets timers that are armed again end no later than what was left of them. Otherwise none
    /// would ever go off where contacts are short.
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

    /// Whether timers run: not while suspended, nor while a direction of the path is known to be
    /// down.
    pub(crate) fn running(&self, core: &Core) -> bool {
        !self.is_suspended() && core.shared.paths.clock(self.seat.path) == Clock::Running
    }

    /// Time within which the peer should have answered.
    pub(crate) fn answer_time(&self, core: &Core) -> Duration {
        self.seat.round_trip(&core.shared.paths).timeout(self.remote.initial_rtt)
    }

    /// Time between two looks whether an unacknowledged transaction is complete, or closed.
    pub(crate) fn check_time(&self, core: &Core) -> Duration {
        let answer = self.answer_time(core);
        let auto = match self.header.direction {
            // A sender waits for its receiver's checks.
            Direction::TowardReceiver => answer.max(Duration::from_secs(1)) * 2,
            Direction::TowardSender => answer.max(Duration::from_millis(500)),
        };
        self.remote.check_timer.duration(auto, 0)
    }

    /// Silence after which the transaction is faulty.
    pub(crate) fn inactivity(&self, core: &Core) -> Duration {
        self.remote.inactivity.duration(timer::inactivity(self.answer_time(core)), 0)
    }

    /// What to do about a fault (§4.8): the transaction's own handler, else the entity's.
    pub(crate) fn handler(&self, core: &Core, condition: ConditionCode) -> FaultHandler {
        let own = self.overrides.iter().rev().find(|(other, _)| *other == condition);
        let handler = own.map_or_else(|| core.config.faults.get(condition), |(_, h)| *h);
        handler_or_cancel(handler)
    }

    /// Carries out an operation on the transaction's record.
    pub(crate) fn record(&self, core: &mut Core, slot: &mut Slot, request: IndexRequest) {
        let to = (self.seat.handle, Job::Own(Task::Journal));
        slot.submit(&mut core.shared, to, request);
    }

    /// Notes that an operation on the transaction's record is done; whether all of them are.
    pub(crate) fn recorded(&self, core: &mut Core, slot: &mut Slot) -> bool {
        slot.done(&mut core.shared, (self.seat.handle, Job::Own(Task::Journal)))
    }

    /// The largest PDU this transaction may send.
    pub(crate) fn pdu_max(&self, mtu: usize) -> usize {
        self.remote.datagram_max.map_or(mtu, |max| max.min(mtu))
    }

    /// Writes one PDU into the batch; `false` if it must wait for the next one. A PDU that is
    /// larger than the path takes cannot be sent at all, and is left out.
    pub(crate) fn push(&self, core: &mut Core, burst: &mut Burst<'_>, body: Body<'_>) -> bool {
        let pdu = Pdu { header: self.header, body };
        let len = pdu.encoded_len();
        if len > burst.mtu() {
            core.stats.oversize += 1;
            return true;
        }
        let Some(place) = burst.push(len) else { return false };
        if pdu.encode(place).is_err() {
            // Nothing this entity sends is out of range; an empty datagram is ignored by all.
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

/// The header of PDUs that answer one with `header`.
pub(crate) fn reverse(header: &Header) -> Header {
    let direction = match header.direction {
        Direction::TowardReceiver => Direction::TowardSender,
        Direction::TowardSender => Direction::TowardReceiver,
    };
    Header { direction, ..*header }
}
