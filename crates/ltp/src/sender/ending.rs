//! End of a sending session: by either engine, or by success.

use session::path::Class;

use super::{Phase, Sender};
use crate::core::Core;
use crate::indication::{Cause, Failure, Finished, Indication};
use crate::records;
use crate::segment::ltpt::Congestion;
use crate::segment::{CancelReason, End};
use crate::supply::Supply;
use crate::transport::flow::Outcome;

impl Sender {
    /// Whether the receiver holds all of the red part.
    pub(super) fn is_red_claimed(&self) -> bool {
        self.reports.claimed().covered() >= self.layout.red
    }

    pub(super) fn red_is_there(&mut self, core: &mut Core) {
        let is_over = self.source.as_ref().is_some_and(Supply::at_end);
        if self.layout.is_red_known && is_over && self.layout.is_description_sent() {
            // Green data is never confirmed.
            self.succeed(core, self.layout.red > 0 && self.layout.is_red());
        }
    }

    /// Processes the receiver's cancellation.
    pub(crate) fn on_cancel(
        &mut self,
        core: &mut Core,
        failure: Failure,
        congestion: Option<Congestion>,
    ) {
        self.congestion = congestion;
        self.cancel_ack_due = true;
        self.base.want(&mut core.shared, Class::Control);
        if matches!(self.phase, Phase::Opening | Phase::Sending) {
            self.finished(core, Err(failure), true);
            self.end(core);
        }
    }

    /// Processes the receiver's acknowledgement of the cancellation.
    pub(crate) fn on_cancel_ack(&mut self, core: &mut Core) {
        if matches!(self.phase, Phase::Cancelling { .. }) {
            self.close(core);
        }
    }

    /// Cancels the session and notifies the receiver.
    pub(crate) fn cancel(&mut self, core: &mut Core, reason: CancelReason) {
        self.fail(core, Failure::new(End::Sender, reason));
    }

    pub(super) fn fail(&mut self, core: &mut Core, failure: Failure) {
        let reason = failure.reason;
        let silent = match self.phase {
            Phase::Opening => !self.is_resumed,
            Phase::Sending => self.source.as_ref().is_none_or(|source| source.sent() == 0),
            Phase::Closing | Phase::Cancelling { .. } | Phase::Done => return,
        };
        self.finished(core, Err(failure), false);
        self.end(core);
        if silent {
            // The receiver has no such session.
            self.close(core);
            return;
        }
        let most = self.peer.remote.cancel_limit(failure.cause);
        self.phase = Phase::Cancelling { reason, due: true, attempts: 0, most };
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Finishes the session once the whole red part, if any, is confirmed.
    pub(super) fn succeed(&mut self, core: &mut Core, is_confirmed: bool) {
        self.finished(core, Ok(()), is_confirmed);
        self.end(core);
    }

    fn finished(&mut self, core: &mut Core, result: Result<(), Failure>, is_confirmed: bool) {
        if let Some(flow) = self.flow {
            let (size, congestion) = (self.layout.content, self.congestion);
            core.outcomes.push_back(Outcome::Sent { flow, result, is_confirmed, size, congestion });
            return;
        }
        core.user.indicate(Indication::Finished(Finished {
            id: self.peer.session,
            role: End::Sender,
            result,
            is_confirmed,
            name: self.name.clone(),
            size: self.layout.content,
        }));
    }

    /// Stops sending data; queued replies are still sent.
    fn end(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.shared);
        self.checkpoints.clear();
        if self.kept.take().is_some() {
            records::forget_sending(core, self.peer.session);
        }
        if let Some(source) = self.source.take() {
            source.close(core);
        }
        self.phase = Phase::Closing;
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Ends a session whose receiver never replied, to make room for another.
    pub(crate) fn give_way(&mut self, core: &mut Core) {
        if matches!(self.phase, Phase::Opening | Phase::Sending) {
            let failure = Failure::new(End::Sender, CancelReason::RetransmissionLimit);
            let failure = Failure { cause: Some(Cause::Silence), ..failure };
            self.finished(core, Err(failure), false);
            self.end(core);
        }
        self.close(core);
    }

    pub(super) fn close(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.shared);
        self.phase = Phase::Done;
    }
}
