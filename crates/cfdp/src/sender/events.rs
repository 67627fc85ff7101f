//! Events of a sending transaction: PDUs, storage, timers, requests.

use engine::{Completion, EffectError, FileId, Time};
use session::UnexpectedLength;
use session::path::{Class, Path};
use session::storage::Storage as _;
use session::timer::TICK;

use super::{Phase, Sender, Source};
use crate::core::{Alarm, Core, Job, Task};
use crate::finished::Outcome;
use crate::indication::{Indication, MetadataParts, PeerError};
use crate::pdu::{
    Ack, Acknowledged, ConditionCode, DeliveryCode, FaultHandler, Finished, KeepAlive, Nak,
    PromptResponse, SegmentRequest, TransactionStatus,
};
use crate::request::RequestError;

/// Number of EOF PDUs sent without an ACK after a cancellation, if no limit is set. They are
/// bounded, because nothing depends on them.
const CANCEL_ATTEMPTS: u32 = 30;

/// Requests for metadata, each after it was sent, that are indicated.
const METADATA_REFUSALS: u32 = 3;

type Answer = Result<Completion, EffectError>;

impl Sender {
    /// Processes the result of an effect of this transaction.
    pub(crate) fn done(&mut self, core: &mut Core, now: Time, job: Job, answer: Answer) {
        match (job, answer) {
            (Job::Open, Ok(Completion::Opened { file, len, .. })) => {
                if self.phase != Phase::Opening {
                    core.shared.close(file);
                    return;
                }
                self.opened(core, now, file, len);
            }
            (Job::Read { offset, len }, Ok(Completion::Read(bytes))) => {
                let header = &self.base.header;
                let size_max = if header.large_file { u64::MAX } else { u64::from(u32::MAX) };
                let Some(source) = self.source.as_mut() else { return };
                match source.read_done(offset, len, bytes, size_max) {
                    Ok(()) => self.data_ready(core),
                    Err(UnexpectedLength) => {
                        self.unreadable(core, now, ConditionCode::FileSizeError);
                    }
                }
            }
            (Job::Repair { offset }, Ok(Completion::Read(bytes))) => {
                let Some(source) = self.source.as_mut() else { return };
                match source.repair_done(offset, bytes) {
                    Ok(()) if source.repair_ready() => {
                        self.base.want_at(core, Class::Repair, now, self.repair_from);
                    }
                    Ok(()) => {}
                    Err(UnexpectedLength) => {
                        self.unreadable(core, now, ConditionCode::FileSizeError);
                    }
                }
            }
            (Job::Own(Task::Journal), answer) => {
                if answer.is_err() {
                    core.stats.record_errors += 1;
                }
                self.base.recorded(core, &mut self.record);
            }
            (Job::Open | Job::Read { .. } | Job::Repair { .. }, _) => {
                core.stats.storage_errors += 1;
                if self.phase == Phase::Opening {
                    self.give_up(core, ConditionCode::FilestoreRejection);
                } else {
                    self.unreadable(core, now, ConditionCode::FilestoreRejection);
                }
            }
            (
                Job::Write { .. }
                | Job::Sync
                | Job::Install
                | Job::Forget
                | Job::Own(Task::Load | Task::Request | Task::Sequence(_) | Task::Operation(_)),
                _,
            ) => {}
        }
    }

    fn opened(&mut self, core: &mut Core, now: Time, file: FileId, len: u64) {
        let size = (!self.request.unbounded || self.restored.is_some()).then_some(len);
        let skip = if self.restored.is_some() { len } else { 0 };
        let Some(source) = Source::new(file, size, skip, self.checksum) else {
            core.shared.close(file);
            self.give_up(core, ConditionCode::UnsupportedChecksumType);
            return;
        };
        self.source = Some(source);
        self.prepare(core, now, (!self.request.unbounded).then_some(len));
        if self.restored.flatten().is_some_and(|announced| announced != len) {
            // The file changed since its size was announced.
            self.metadata.sent = true;
            self.unreadable(core, now, ConditionCode::FileSizeError);
        }
    }

    /// Handles a file that changed or cannot be read. No handler can suspend or ignore that: the
    /// segment would be missing for good.
    fn unreadable(&mut self, core: &mut Core, now: Time, condition: ConditionCode) {
        match self.base.handler(core, condition) {
            FaultHandler::Abandon if self.phase == Phase::Sending => self.abandon(core, condition),
            FaultHandler::Abandon
            | FaultHandler::Cancel
            | FaultHandler::Suspend
            | FaultHandler::Ignore
            | FaultHandler::Other(_) => self.cancel(core, now, condition),
        }
    }

    fn abandon(&mut self, core: &mut Core, condition: ConditionCode) {
        let (id, progress) = (self.base.id(), self.progress());
        core.user.indicate(Indication::Abandoned { id, condition, progress });
        self.close(core);
    }

    fn data_ready(&mut self, core: &mut Core) {
        self.read_ahead(core);
        self.eof_when_ready(core);
        if self.metadata.sent {
            self.base.want(core, Class::Bulk);
        }
    }

    pub(crate) fn on_ack(&mut self, core: &mut Core, now: Time, ack: &Ack) {
        match ack.directive {
            Acknowledged::Eof => {}
            // Only receivers get such PDUs.
            Acknowledged::Finished | Acknowledged::Other(_) => return,
        }
        if !self.eof.ever_sent {
            return;
        }
        if let Phase::Cancelled { condition } = self.phase
            && ack.condition != condition
        {
            // The ACK replies to an EOF from before the cancellation; the receiver must still be
            // informed of the cancellation.
            return;
        }
        match ack.status {
            TransactionStatus::Active => self.received(now),
            // The transaction has ended there: that is a reply, but no sign of life, so that the
            // inactivity limit ends the wait if no Finished arrives either.
            TransactionStatus::Terminated
            | TransactionStatus::Unrecognized
            | TransactionStatus::Undefined
            | TransactionStatus::Other(_) => {}
        }
        if let Some(left) = self.eof_left.take().filter(|_| self.eof.attempts == 1)
            && let Some(path) = self.base.seat.path.and_then(|id| core.shared.paths.get_mut(&id))
        {
            path.rtt.sample(now.since(left));
        }
        self.base.disarm(core, Alarm::Ack);
        self.eof.acknowledged = true;
        self.eof.attempts = 0;
        match self.phase {
            Phase::Cancelled { .. } => self.close(core),
            Phase::Sending => self.wait(core, now),
            Phase::Opening | Phase::Acknowledging | Phase::Done => {}
        }
    }

    fn received(&mut self, now: Time) {
        self.base.last_received = now;
    }

    pub(crate) fn on_nak(&mut self, core: &mut Core, now: Time, nak: &Nak<'_>) {
        self.received(now);
        if self.phase != Phase::Sending || !self.metadata.sent {
            return;
        }
        self.eof.waits = 0;
        if nak.requests.into_iter().any(|request| request == SegmentRequest::METADATA) {
            self.metadata_requested(core, now);
        }
        self.confirm(core, nak);
        let fills = self.fills(core, now);
        let max = core.config.limits.gaps;
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let segment = self.segment(path.map_or(0, Path::mtu).max(64)).unwrap_or(1);
        let mut beyond = false;
        let mut idle = true;
        let Some(source) = self.source.as_mut() else {
            self.metadata.due = true;
            self.base.want(core, Class::Metadata);
            return;
        };
        for request in nak.requests {
            if request == SegmentRequest::METADATA {
                self.metadata.due = true;
                continue;
            }
            beyond |= source.size.is_some_and(|size| request.end > size);
            idle &= !source.has_repairs();
            if fills {
                continue;
            }
            if request.start < request.end && !source.request(request.start, request.end, max) {
                break;
            }
        }
        if idle && source.has_repairs() {
            self.repair_from = now + self.base.remote.host_delays.nak_to_repair;
        }
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        if let Some(path) = path.filter(|_| !fills) {
            // While others have new data to send, a copy of a repair takes its place.
            let is_needed = path.is_wanted_by_others(Class::Bulk, self.base.seat.handle);
            let copies = if is_needed { 1 } else { self.base.remote.repair_copies };
            source.choose_copies(copies, segment, path.times(segment));
        }
        source.read_repairs(&mut core.shared, self.base.seat.handle);
        if self.metadata.due {
            self.base.want(core, Class::Metadata);
        }
        if beyond {
            self.peer_error(core, PeerError::NakBeyondEnd);
        }
        if self.eof.acknowledged {
            self.wait(core, now);
        }
    }

    /// Indicates a receiver that does not accept the metadata: each PDU had time to arrive.
    fn metadata_requested(&mut self, core: &mut Core, now: Time) {
        let metadata = &mut self.metadata;
        let round_trip = self.base.seat.round_trip(&core.shared.paths).least();
        if metadata.due || now < metadata.left + round_trip {
            return;
        }
        metadata.refusals += 1;
        if metadata.refusals == METADATA_REFUSALS {
            let parts = MetadataParts {
                checksum: self.checksum,
                requests: !self.request.filestore_requests.is_empty(),
                messages: !self.request.messages.is_empty(),
                options: !self.request.fault_handlers.is_empty()
                    || self.request.flow_label.is_some(),
            };
            let times = metadata.times;
            self.peer_error(core, PeerError::MetadataNotAccepted { times, parts });
        }
    }

    fn peer_error(&self, core: &mut Core, error: PeerError) {
        let path = self.base.seat.path.unwrap_or_default();
        core.user.indicate(Indication::PeerError { path, id: self.base.id(), error });
    }

    pub(crate) fn on_keep_alive(&mut self, core: &mut Core, now: Time, report: KeepAlive) {
        self.received(now);
        let sent = self.progress();
        if let Some(window) = self.window.as_mut() {
            window.replied(report.progress, sent);
            if window.room(sent) > 0 {
                self.base.disarm(core, Alarm::Window);
                self.base.want(core, Class::Bulk);
            }
        }
        // A late, older report brings no news.
        self.kept_alive = self.kept_alive.max(report.progress);
        let Some(limit) = self.base.remote.keep_alive_discrepancy else { return };
        let behind = sent.saturating_sub(self.kept_alive);
        if self.phase == Phase::Sending && behind > limit.saturating_add(self.under_way(core)) {
            self.fault(core, now, ConditionCode::KeepAliveLimitReached);
        }
    }

    /// Bytes sent at the path's rate before a reply can cover them do not count as the receiver's
    /// lag. At 1 Mbit/s and a round trip of 44 min, these are 331 MB.
    fn under_way(&self, core: &Core) -> u64 {
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let bps = path.and_then(Path::rate_bps).unwrap_or_default();
        let bits = u128::from(bps) * self.base.answer_time(core).as_nanos() / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }

    /// Processes Finished, with success or failure.
    pub(crate) fn on_finished(&mut self, core: &mut Core, now: Time, finished: &Finished<'_>) {
        let good = finished.condition == ConditionCode::NoError && finished.end_system;
        if good && !self.eof.ever_sent && self.restored.is_none() {
            // No receiver can have a complete file whose end was not announced: this Finished
            // belongs to another transaction of the same number.
            self.peer_error(core, PeerError::FinishedBeforeEof);
            return;
        }
        self.received(now);
        if self.base.acknowledged() {
            self.end_system_finished |= finished.end_system;
            let at = now + self.base.remote.host_delays.finished_to_ack;
            self.ack_due = Some((finished.condition, at));
            self.base.want_at(core, Class::Control, now, at);
        }
        let over = match self.phase {
            Phase::Opening | Phase::Sending | Phase::Cancelled { .. } => false,
            Phase::Acknowledging | Phase::Done => true,
        };
        // A waypoint's Finished is not the final one.
        if over || !finished.end_system {
            return;
        }
        let was_cancelled = matches!(self.phase, Phase::Cancelled { .. });
        self.base.settle(core, now);
        if !was_cancelled {
            self.finished(core, Outcome::from_wire(finished));
        }
        self.say_no_more();
        if self.ack_due.is_some() {
            self.phase = Phase::Acknowledging;
            self.base.alarm(core, Alarm::Inactivity, now + self.base.inactivity(core));
        } else {
            self.close(core);
        }
    }

    /// Processes a timer.
    pub(crate) fn alarm(&mut self, core: &mut Core, now: Time, alarm: Alarm) {
        match alarm {
            Alarm::Ready(class) => self.base.want(core, class),
            Alarm::Ack => self.ack_overdue(core, now),
            Alarm::Probe => {
                self.eof.waits += 1;
                self.eof.due = true;
                self.base.want(core, Class::Bulk);
            }
            Alarm::Check => {
                self.eof.waits += 1;
                let is_over = match self.base.remote.check_limit {
                    Some(limit) => self.eof.waits > limit,
                    None => self.silence_limit(core) <= now,
                };
                if is_over {
                    self.eof.waits = 0;
                    self.fault(core, now, ConditionCode::CheckLimitReached);
                }
                if self.phase == Phase::Sending && !self.base.is_suspended() {
                    self.base.alarm(core, Alarm::Check, now + self.base.check_time(core));
                }
            }
            Alarm::Inactivity => self.look_for_life(core, now),
            Alarm::Prompt => {
                if let (Phase::Sending, Some(every)) = (&self.phase, self.base.remote.prompt) {
                    self.want_prompt(core, PromptResponse::Nak);
                    self.base.alarm(core, Alarm::Prompt, now + every.max(TICK));
                }
            }
            Alarm::Progress => {
                let is_sending = self
                    .source
                    .as_ref()
                    .is_some_and(|source| !source.at_end() || source.has_repairs());
                if is_sending && self.phase == Phase::Sending {
                    self.want_prompt(core, PromptResponse::KeepAlive);
                }
                self.await_progress(core, now);
            }
            Alarm::Window => {
                let sent = self.progress();
                if let Some(window) = self.window.as_mut().filter(|window| window.room(sent) == 0) {
                    window.silent(sent);
                    self.base.want(core, Class::Bulk);
                }
            }
            Alarm::Nak | Alarm::KeepAlive | Alarm::Periodic | Alarm::Journal => {}
        }
    }

    fn look_for_life(&mut self, core: &mut Core, now: Time) {
        let is_silent = self.silence_limit(core) <= now;
        match self.phase {
            Phase::Sending if is_silent => {
                self.base.last_received = now;
                self.fault(core, now, ConditionCode::InactivityDetected);
            }
            // The user has the outcome, and the receiver has a limit as well.
            Phase::Cancelled { .. } | Phase::Acknowledging if is_silent => self.close(core),
            Phase::Opening
            | Phase::Sending
            | Phase::Cancelled { .. }
            | Phase::Acknowledging
            | Phase::Done => {}
        }
        let waits = match self.phase {
            Phase::Sending => !self.base.is_suspended(),
            Phase::Cancelled { .. } | Phase::Acknowledging => true,
            Phase::Opening | Phase::Done => false,
        };
        if waits {
            let limit = self.silence_limit(core).max(now + TICK);
            self.base.alarm(core, Alarm::Inactivity, limit);
        }
    }

    /// Time at which the receiver's silence is a fault. While it receives requested data, which may
    /// take longer than any limit, it has nothing to send.
    pub(super) fn silence_limit(&self, core: &Core) -> Time {
        self.base.last_received.max(self.repaired) + self.base.inactivity(core)
    }

    fn ack_overdue(&mut self, core: &mut Core, now: Time) {
        let cancelled = matches!(self.phase, Phase::Cancelled { .. });
        let limit = self.base.remote.ack_limit.or(cancelled.then_some(CANCEL_ATTEMPTS));
        if limit.is_some_and(|limit| self.eof.attempts >= limit.max(1)) {
            self.eof.attempts = 0;
            if cancelled {
                // The receiver is unreachable; its own inactivity limit ends the transaction there.
                self.close(core);
                return;
            }
            self.fault(core, now, ConditionCode::PositiveAckLimitReached);
        }
        if matches!(self.phase, Phase::Sending | Phase::Cancelled { .. })
            && !self.base.is_suspended()
        {
            self.eof.due = true;
            self.base.want(core, Class::Bulk);
        }
    }

    /// Handles a fault according to its handler (§4.8).
    fn fault(&mut self, core: &mut Core, now: Time, condition: ConditionCode) {
        if self.phase != Phase::Sending {
            return;
        }
        match self.base.handler(core, condition) {
            FaultHandler::Cancel | FaultHandler::Other(_) => self.cancel(core, now, condition),
            FaultHandler::Suspend => self.suspend(core, now, condition),
            FaultHandler::Ignore => {
                let (id, progress) = (self.base.id(), self.progress());
                core.user.indicate(Indication::Fault { id, condition, progress });
                self.base.last_received = now;
            }
            FaultHandler::Abandon => self.abandon(core, condition),
        }
    }

    /// Cancels: the user is notified at once, the receiver by an EOF.
    pub(crate) fn cancel(&mut self, core: &mut Core, now: Time, condition: ConditionCode) {
        match self.phase {
            Phase::Opening | Phase::Sending => {}
            Phase::Cancelled { .. } | Phase::Acknowledging | Phase::Done => return,
        }
        let silent = !self.metadata.sent;
        if let Some(source) = self.source.as_mut() {
            source.forget_repairs();
        }
        self.base.settle(core, now);
        let outcome = Outcome {
            condition,
            delivery: DeliveryCode::Incomplete,
            fault_location: Some(crate::pdu::EntityId(core.config.entity)),
            ..Outcome::new(DeliveryCode::Complete)
        };
        self.finished(core, outcome);
        if silent {
            // The receiver has no such transaction.
            self.close(core);
            return;
        }
        self.phase = Phase::Cancelled { condition };
        self.data_from = Time::ZERO;
        self.eof.due = true;
        self.eof.acknowledged = false;
        self.eof.attempts = 0;
        self.base.want(core, Class::Bulk);
        // Nothing may be sent any more, and then no other timer is ever armed.
        self.base.alarm(core, Alarm::Inactivity, now + self.base.inactivity(core));
    }

    pub(crate) fn suspend(&mut self, core: &mut Core, now: Time, condition: ConditionCode) {
        if self.base.is_suspended() || !matches!(self.phase, Phase::Opening | Phase::Sending) {
            return;
        }
        self.base.suspend(core, now, condition);
    }

    pub(crate) fn resume(&mut self, core: &mut Core, now: Time) {
        if !self.base.resume(core, now, self.progress()) {
            return;
        }
        self.rearm(core, now);
    }

    /// Arms the next prompt for a Keep Alive.
    pub(super) fn await_progress(&mut self, core: &mut Core, now: Time) {
        let every = self.base.remote.progress_prompt.filter(|_| self.base.acknowledged());
        if let (Phase::Sending, Some(every)) = (&self.phase, every) {
            self.base.alarm(core, Alarm::Progress, now + every.max(TICK));
        }
    }

    /// Prompts the receiver (§4.6.5).
    pub(crate) fn prompt(
        &mut self,
        core: &mut Core,
        response: PromptResponse,
    ) -> Result<(), RequestError> {
        if !self.base.acknowledged() || self.phase != Phase::Sending {
            return Err(RequestError::NotApplicable("only an acknowledged put can prompt"));
        }
        self.want_prompt(core, response);
        Ok(())
    }

    pub(super) fn want_prompt(&mut self, core: &mut Core, response: PromptResponse) {
        if !self.prompts_due.contains(&response) {
            self.prompts_due.push(response);
        }
        self.base.want(core, Class::Control);
    }

    /// Rearms the timers after they were stopped, and requests turns.
    pub(crate) fn rearm(&mut self, core: &mut Core, now: Time) {
        self.want_all(core);
        if !self.base.running(core) {
            return;
        }
        let before = self.base.last_received;
        let left = self.base.path_resumed(now);
        self.repaired = (self.repaired + self.base.last_received.since(before)).min(now);
        if self.eof.ever_sent && matches!(self.phase, Phase::Sending | Phase::Cancelled { .. }) {
            if self.base.acknowledged() {
                let limit = self.silence_limit(core);
                self.base.alarm(core, Alarm::Inactivity, limit.max(now + TICK));
                // Requests a reply at once: an earlier one may have been lost during the outage.
                self.eof.due = true;
                self.base.want(core, Class::Bulk);
            } else {
                self.base.alarm(core, Alarm::Check, now + self.base.check_time(core));
            }
        }
        if matches!(self.phase, Phase::Cancelled { .. } | Phase::Acknowledging) {
            let limit = self.silence_limit(core).max(now + TICK);
            self.base.alarm(core, Alarm::Inactivity, limit);
        }
        if let (Phase::Sending, Some(every)) = (&self.phase, self.base.remote.prompt) {
            self.base.alarm(core, Alarm::Prompt, now + every.max(TICK));
        }
        self.await_progress(core, now);
        self.base.rearm_no_later(core, now, left);
    }

    /// Requests a turn for everything queued.
    pub(crate) fn want_all(&mut self, core: &mut Core) {
        if self.ack_due.is_some() || !self.prompts_due.is_empty() {
            self.base.want(core, Class::Control);
        }
        if self.metadata.due {
            self.base.want(core, Class::Metadata);
        }
        if self.source.as_ref().is_some_and(Source::repair_ready) {
            self.base.want(core, Class::Repair);
        }
        if self.phase != Phase::Opening && self.phase != Phase::Done {
            self.base.want(core, Class::Bulk);
        }
    }
}
