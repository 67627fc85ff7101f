//! Questions of the sender's application, and the end of its session (RFC 5740 §4.2.3.2,
//! §4.2.3.6).

use session::path::{Burst, Class};

use super::{Receiver, SenderId, is_listed};
use crate::answers::QuestionState;
use crate::core::{Alarm, Core};
use crate::indication::{Failure, Indication};
use crate::message::{Ack, Body, NodeId, NodeList};

impl Receiver {
    /// Processes the end of the sender's session (§4.2.3.2): incomplete objects fail.
    pub(super) fn on_end(&mut self, core: &mut Core) {
        if std::mem::replace(&mut self.life.has_ended, true) {
            return;
        }
        let SenderId { path: peer, node: NodeId(node) } = self.sender;
        self.abandon(core, &Failure::Ended);
        core.user.indicate(Indication::SenderEnded { peer, node });
    }

    /// Processes a question of the sender's application (§4.2.3.6). Acknowledgements of probes and
    /// flushes are not requested in this way, and other kinds are undefined.
    pub(super) fn on_question(&mut self, core: &mut Core, kind: u8, id: u8, ackers: &NodeList<'_>) {
        if kind < Ack::APPLICATION {
            core.stats.stray += 1;
            return;
        }
        if core.config.receiver.silent || !is_listed(core.node, ackers) {
            return;
        }
        match self.answers.question(kind, id) {
            QuestionState::New => {
                let SenderId { path: peer, node: NodeId(node) } = self.sender;
                core.user.indicate(Indication::Question { peer, node, kind, id });
            }
            QuestionState::Answered => self.want_answer(core),
            QuestionState::Waiting => {}
        }
    }

    /// Stores the application's answer to a question. Returns `false` if there is no such question.
    pub(crate) fn answer_question(
        &mut self,
        core: &mut Core,
        kind: u8,
        id: u8,
        bytes: bytes::Bytes,
    ) -> bool {
        let is_known = self.answers.answer(kind, id, bytes);
        if is_known {
            self.want_answer(core);
        }
        is_known
    }

    /// Schedules the reply within a round trip, so that not all receivers reply at once (§5.5.3).
    fn want_answer(&mut self, core: &mut Core) {
        let now = core.now;
        if self.is_alone() {
            self.answers.is_due = true;
            self.base.want(&mut core.shared, Class::Control);
        } else if !self.base.is_armed(Alarm::Answer) {
            let wait = self.timing.grtt.mul_f64(core.rng.unit());
            self.base.alarm(&mut core.shared, Alarm::Answer, now, wait);
        }
    }

    /// Sends the application's answers. Returns `false` if an answer must wait for the next batch.
    pub(super) fn emit_answers(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        while self.answers.is_due
            && let Some((kind, id, bytes)) = self.answers.due()
        {
            let ack = Ack { id, ..self.ack(kind, burst.departure(), &bytes) };
            if !self.push(core, burst, Body::Ack(ack)) {
                return false;
            }
            self.answers.went(kind, id);
        }
        self.answers.is_due = false;
        true
    }
}
