//! Bundles of neighbours that are not accepted whatever their payload, by their heads.

use super::super::layer::Refusal;
use super::head::Head;
use super::{Agent, Reply};

impl Agent {
    /// Reason to refuse a bundle as soon as its head has come.
    pub(super) fn refuses(&self, head: &Head) -> Option<Refusal> {
        let is_unused = !self.config.versions.contains(&head.version());
        is_unused.then_some(Refusal::NotAcceptable)
    }

    /// Refuses a bundle that is being received if its head shows that it is not accepted; returns
    /// whether it does.
    pub(super) fn is_turned_away(&mut self, number: u64) -> bool {
        let Some(intake) = self.intakes.get(number) else { return true };
        let Some(why) = intake.head().and_then(|head| self.refuses(head)) else { return false };
        let (giver, id) = (intake.giver, intake.id());
        self.drop_intake(number);
        self.reply(giver, id, Reply::Refused(why));
        true
    }
}
