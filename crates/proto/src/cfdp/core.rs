//! What all transactions of an entity share, and what each transaction has in common.

use std::time::Duration;

use engine::Time;
use wire::cfdp::{
    Ack, Acknowledged, Body, ConditionCode, Direction, FaultHandler, Header, Pdu, TransactionId,
    TransactionStatus, TransmissionMode,
};

use super::config::{Config, Remote};
use super::indication::{Indication, Limit, handler_or_cancel};
use super::stats::Stats;
use super::user_operations::Operations;
use crate::kernel::{self, Alarm as _, Clock, Seat, User, bounds};
use crate::path::{Burst, Class, Handle, Path};
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

impl kernel::Alarm for Alarm {
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
}

impl Alarm {
    /// Timers that stand still while a transaction is suspended or its path is down.
    pub(crate) const PROTOCOL: [Self; 9] = [
        Self::Ack,
        Self::Nak,
        Self::Inactivity,
        Self::Check,
        Self::Probe,
        Self::KeepAlive,
        Self::Prompt,
        Self::Window,
        Self::Periodic,
    ];
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

pub(crate) type Job = kernel::Job<Task>;

pub(crate) type Kernel = kernel::Kernel<Alarm, Task>;

/// What all transactions of an entity share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) kernel: Kernel,
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
            kernel: Kernel::new(bounds!(config.limits)),
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
    pub(crate) seat: Seat,
    /// The header of what this side sends.
    pub(crate) header: Header,
    pub(crate) peer: u64,
    pub(crate) remote: Remote,
    pub(crate) suspended: bool,
    pub(crate) last_heard: Time,
    /// Fault handlers that the Metadata sets for this transaction.
    pub(crate) overrides: Vec<(ConditionCode, FaultHandler)>,
    /// Set while a direction of the path is down.
    paused: Option<Paused>,
}

/// Timers that stand still, because a direction of the path is down.
#[derive(Debug)]
struct Paused {
    /// Which timers still run.
    clock: Clock,
    since: Time,
    left: Vec<(Alarm, Duration)>,
}

impl Base {
    pub(crate) fn new(handle: Handle, header: Header, peer: u64, remote: Remote) -> Self {
        Self {
            seat: Seat::new(handle, remote.path),
            header,
            peer,
            remote,
            suspended: false,
            last_heard: Time::ZERO,
            overrides: Vec::new(),
            paused: None,
        }
    }

    pub(crate) fn id(&self) -> TransactionId {
        self.header.transaction()
    }

    pub(crate) fn acknowledged(&self) -> bool {
        self.header.mode == TransmissionMode::Acknowledged
    }

    /// Asks for a chance to send something of this class.
    pub(crate) fn want(&mut self, core: &mut Core, class: Class) {
        self.seat.want(&mut core.kernel.paths, class);
    }

    /// The same, after a host delay.
    pub(crate) fn want_at(&mut self, core: &mut Core, class: Class, now: Time, at: Time) {
        if at <= now {
            self.want(core, class);
            return;
        }
        let sooner = core
            .kernel
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
        let is_up = core.kernel.paths.get(&path).is_some_and(Path::is_up);
        !is_up || now.since(self.last_heard) >= patience
    }

    /// Arms a timer, unless it stands still now: then it is armed when the clock goes on.
    pub(crate) fn alarm(&self, core: &mut Core, alarm: Alarm, at: Time) {
        if Alarm::PROTOCOL.contains(&alarm) && !self.clock().runs(alarm.awaits_peer()) {
            return;
        }
        core.kernel.timers.set((self.seat.handle, alarm), at, alarm.why());
    }

    /// Arms a timer unless it is armed to go off no later: it then looks again by itself.
    pub(crate) fn alarm_no_later(&self, core: &mut Core, alarm: Alarm, at: Time) {
        if core.kernel.timers.get((self.seat.handle, alarm)).is_none_or(|deadline| at < deadline.at)
        {
            self.alarm(core, alarm, at);
        }
    }

    pub(crate) fn disarm(&self, core: &mut Core, alarm: Alarm) {
        core.kernel.timers.cancel((self.seat.handle, alarm));
    }

    pub(crate) fn disarm_protocol(&self, core: &mut Core) {
        for alarm in Alarm::PROTOCOL {
            self.disarm(core, alarm);
        }
    }

    /// Stands still until it is resumed, and tells the user if that is wanted.
    pub(crate) fn suspend(&mut self, core: &mut Core, condition: ConditionCode) {
        self.suspended = true;
        self.disarm_protocol(core);
        if core.config.indications.suspended {
            core.user.indicate(Indication::Suspended { id: self.id(), condition });
        }
    }

    /// Goes on; `false` if it was not suspended.
    pub(crate) fn resume(&mut self, core: &mut Core, progress: u64) -> bool {
        if !self.suspended {
            return false;
        }
        self.suspended = false;
        if core.config.indications.resumed {
            core.user.indicate(Indication::Resumed { id: self.id(), progress });
        }
        true
    }

    /// The timers that run.
    pub(crate) fn clock(&self) -> Clock {
        self.paused.as_ref().map_or(Clock::Running, |paused| paused.clock)
    }

    /// Stops the timers that do not run by this clock, and keeps what was left of them.
    pub(crate) fn pause(&mut self, core: &mut Core, now: Time, clock: Clock) {
        let handle = self.seat.handle;
        let started = || Paused { clock, since: now, left: Vec::new() };
        let paused = self.paused.get_or_insert_with(started);
        paused.clock = clock;
        let runs = |alarm: Alarm| clock.runs(alarm.awaits_peer());
        for alarm in Alarm::PROTOCOL.into_iter().filter(|alarm| !runs(*alarm)) {
            if let Some(deadline) = core.kernel.timers.cancel((handle, alarm)) {
                paused.left.retain(|(other, _)| *other != alarm);
                paused.left.push((alarm, deadline.at.since(now)));
            }
        }
        for (alarm, left) in paused.left.extract_if(.., |(alarm, _)| runs(*alarm)) {
            core.kernel.timers.set((handle, alarm), now + left.max(TICK), alarm.why());
        }
    }

    /// Whether timers stand still since a direction of the path went down.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// The silence so far ends here, unless the path was down: then it goes on.
    pub(crate) fn hear_again(&mut self, now: Time) {
        self.last_heard = match &mut self.paused {
            // While suspended, the peer may have been heard after the path came up again.
            Some(paused) => {
                paused.clock = Clock::Running;
                (self.last_heard + now.since(paused.since)).min(now)
            }
            None => now,
        };
    }

    /// Lets timers that are armed again end no later than what was left of them. Otherwise none
    /// would ever go off where contacts are short.
    pub(crate) fn rearm_no_later(&mut self, core: &mut Core, now: Time) {
        let Some(paused) = self.paused.take() else { return };
        for (alarm, left) in paused.left {
            if core.kernel.timers.get((self.seat.handle, alarm)).is_some() {
                self.alarm_no_later(core, alarm, now + left.max(TICK));
            }
        }
    }

    pub(crate) fn disarm_all(&self, core: &mut Core) {
        self.disarm_protocol(core);
        self.disarm(core, Alarm::Journal);
        for class in Class::ALL {
            self.disarm(core, Alarm::Ready(class));
        }
    }

    /// Whether timers run: not while suspended, nor while a direction of the path is known to be
    /// down.
    pub(crate) fn running(&self, core: &Core) -> bool {
        !self.suspended && core.kernel.paths.clock(self.seat.path) == Clock::Running
    }

    /// Time within which the peer should have answered.
    pub(crate) fn answer_time(&self, core: &Core) -> Duration {
        self.seat.round_trip(&core.kernel.paths).timeout(self.remote.initial_rtt)
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
