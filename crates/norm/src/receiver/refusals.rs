//! Reports of objects that cannot be stored.

use session::path::{Burst, Class};

use super::Receiver;
use crate::core::Core;
use crate::message::{Ack, Body, Extension, Extensions};
use crate::refusal::EXT_REFUSED;

impl Receiver {
    /// Reports an object that cannot be stored: when that shows, and for each flush of the object.
    pub(super) fn want_refusal(&mut self, core: &mut Core) {
        if !core.config.receiver.silent {
            self.base.want(&mut core.shared, Class::Control);
        }
    }

    pub(super) fn emit_refusal(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let Some(refusal) = self.refused.due().filter(|_| !core.config.receiver.silent) else {
            return true;
        };
        let value = refusal.encode();
        let others = [Extension { kind: EXT_REFUSED, value: &value }];
        let ack = self.ack(Ack::CC, burst.departure(), &[]);
        let went =
            self.push(core, burst, Body::Ack(Ack { others: Extensions::new(&others), ..ack }));
        if went {
            self.refused.sent();
            self.feedback_left(core, burst.departure());
        }
        went
    }
}
