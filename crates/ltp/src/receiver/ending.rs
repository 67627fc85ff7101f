//! End of a receiving session: by silence, by either engine, or by success.

use std::time::Duration;

use engine::Time;
use session::path::Class;

use super::super::core::{Alarm, Core};
use super::super::indication::{Cause, Failure, Finished, Indication};
use super::super::transport::flow::{Outcome, Shape};
use super::sink::Sink;
use super::{Phase, Receiver};
use crate::segment::{CancelReason, End};

/// Silence after which a session with a single segment is forgotten, in addition to two reply
/// times.
const HALF_OPEN_MAX: Duration = Duration::from_secs(60);

impl Receiver {
    pub(super) fn finished(&mut self, core: &mut Core, result: Result<(), Failure>) {
        if self.is_half_open {
            // The user was not informed of the session.
            return;
        }
        if let Some(flow) = self.flow {
            let outcome = match (result, &mut self.sink) {
                (Err(failure), _) => Outcome::Broken { flow, failure },
                (Ok(()), Sink::File(_) | Sink::Units(_) | Sink::Block(_)) => {
                    Outcome::Delivered { flow }
                }
                (Ok(()), Sink::Relay(transit)) => Outcome::Kept {
                    flow,
                    file: transit.delivery.spool.release(),
                    shape: Shape {
                        parts: self.ranges.clone(),
                        end: self.extent.end,
                        red: self.extent.red.unwrap_or_default(),
                        last: transit.relay.last.clone(),
                    },
                },
            };
            core.outcomes.push_back(outcome);
            if self.sink.relay().is_some() {
                return;
            }
        }
        let file = self.sink.file();
        core.user.indicate(Indication::Finished(Finished {
            id: self.peer.session,
            role: End::Receiver,
            result,
            is_confirmed: result.is_ok(),
            name: file.map(|file| file.name.clone()).unwrap_or_default(),
            size: file.map_or(self.ranges.covered(), |file| file.size),
        }));
    }

    /// Silence of the sender after which the session ends.
    fn silence_max(&self, core: &Core) -> Duration {
        let reply = core.answer_time(&self.base, &self.peer.remote);
        let most = self.peer.remote.silence_max(reply);
        if self.is_half_open { most.min(HALF_OPEN_MAX + 2 * reply) } else { most }
    }

    pub(super) fn watch_silence(&mut self, core: &mut Core, now: Time) {
        let wait = self.silence_max(core);
        self.base.alarm(&mut core.shared, Alarm::Inactivity, now, wait);
    }

    pub(super) fn look_for_life(&mut self, core: &mut Core, now: Time) {
        let limit = self.base.last_received + self.silence_max(core);
        if limit > now {
            self.base.alarm(&mut core.shared, Alarm::Inactivity, now, limit.since(now));
            return;
        }
        let is_kept = self.sink.relay().is_some() && (self.is_safe || self.extent.red == Some(0));
        match self.phase {
            // The rest is green and will not arrive; the data so far is being delivered.
            Phase::Receiving if self.is_half_open => self.give_way(core),
            Phase::Receiving if is_kept && self.sink.open_file().is_some() => self.keep_all(core),
            Phase::Receiving => {
                let failure = Failure::new(End::Receiver, CancelReason::System);
                self.fail(core, Failure { cause: Some(Cause::Silence), ..failure });
            }
            Phase::Telling => self.close(core),
            Phase::Storing
            | Phase::Offered
            | Phase::Cancelling { .. }
            | Phase::Closing
            | Phase::Done => {}
        }
    }

    /// Processes the sender's cancellation.
    pub(crate) fn on_cancel(&mut self, core: &mut Core, reason: CancelReason) {
        self.cancel_ack_due = true;
        self.base.want(&mut core.shared, Class::Control);
        match self.phase {
            // Too late: the file has its name, or is about to.
            Phase::Storing if self.is_stored() => {}
            // An offered block was not accepted yet.
            Phase::Receiving | Phase::Storing | Phase::Offered => {
                self.finished(core, Err(Failure::new(End::Sender, reason)));
                self.discard(core);
                self.phase = Phase::Closing;
            }
            Phase::Done | Phase::Closing => {}
            Phase::Telling | Phase::Cancelling { .. } => self.phase = Phase::Closing,
        }
    }

    /// Processes the acknowledgement of the cancellation.
    pub(crate) fn on_cancel_ack(&mut self, core: &mut Core) {
        if matches!(self.phase, Phase::Cancelling { .. }) {
            self.close(core);
        }
    }

    /// Cancels the session and notifies the sender.
    pub(crate) fn cancel(&mut self, core: &mut Core, reason: CancelReason) {
        self.fail(core, Failure::new(End::Receiver, reason));
    }

    pub(super) fn fail(&mut self, core: &mut Core, failure: Failure) {
        let reason = failure.reason;
        match self.phase {
            Phase::Receiving | Phase::Storing | Phase::Offered => {}
            Phase::Telling | Phase::Cancelling { .. } | Phase::Closing | Phase::Done => return,
        }
        self.finished(core, Err(failure));
        self.discard(core);
        if let Some(cause) = failure.store_refusal() {
            self.peer.set_store_refusal(cause);
        }
        self.refused = Some(reason);
        let most = self.peer.remote.cancel_limit(failure.cause);
        core.shared.places.yield_first(self.base.seat.handle);
        self.phase = Phase::Cancelling { reason, due: true, attempts: 0, most };
        self.base.want(&mut core.shared, Class::Control);
        if self.base.seat.path.is_none() {
            self.close(core);
        }
    }

    /// Discards received data.
    pub(super) fn discard(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.shared);
        self.reporting.clear();
        if let Some(delivery) = self.sink.delivery_mut() {
            delivery.discard(&mut core.shared, self.base.seat.handle);
        }
        if self.sink.relay().is_some_and(|relay| relay.is_recorded) {
            core.remove_record(self.peer.session);
        }
    }

    pub(super) fn close(&mut self, core: &mut Core) {
        self.record.remove(core, self.base.seat.handle, self.peer.session);
        self.base.disarm_all(&mut core.shared);
        self.leave(core);
        self.phase = Phase::Done;
    }

    /// Closes the working file and discards data not handed to the store.
    pub(super) fn leave(&mut self, core: &mut Core) {
        if let Some(delivery) = self.sink.delivery_mut() {
            delivery.leave(&mut core.shared);
        }
    }
}
