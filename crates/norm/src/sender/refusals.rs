//! Receivers that cannot store an object.

use engine::Time;

use super::Sender;
use crate::core::Core;
use crate::indication::Failure;
use crate::message::NodeId;
use crate::refusal::Refusal;

impl Sender {
    /// Notes that a receiver cannot store an object. It is not polled any more; if all receivers
    /// are known and none can store it, the object ends.
    pub(super) fn on_refusal(
        &mut self,
        core: &mut Core,
        now: Time,
        node: NodeId,
        refusal: Refusal,
    ) {
        let mut objects = self.objects.iter();
        let object = objects.find(|object| object.number() == refusal.object);
        let Some(object) = object.filter(|object| !object.is_open_stream()) else { return };
        let number = object.id.number;
        if !self.members.refuse(node, number) {
            return;
        }
        let receivers = core.config.sender.receivers;
        let standing = self.members.standing(number, receivers);
        let are_known = !self.is_group || receivers > 0;
        if are_known && standing.is_complete() && standing.have == 0 {
            self.cancel(core, now, number, Failure::Refused(refusal.reason));
        } else {
            self.finish_objects(core, now);
            self.check_flush(core, now);
        }
    }
}
