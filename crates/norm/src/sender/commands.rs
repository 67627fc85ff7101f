//! Messages of a sender besides objects, and the size of their audience.

use engine::Time;
use session::path::{Class, Path};

use super::{Sender, usual_backoff};
use crate::commands::Commands;
use crate::core::{Core, since_sent};
use crate::indication::Failure;
use crate::members::Members;
use crate::message::{self, Ack, CcFeedback, CcFlags};
use crate::outgoing::Outgoing;

impl Sender {
    /// Applies `job` to the commands of the sender.
    pub(crate) fn command<T>(
        &mut self,
        core: &mut Core,
        job: impl FnOnce(&mut Commands, &Members, &mut Core) -> T,
    ) -> T {
        let was_idle = self.is_idle();
        let result = job(&mut self.commands, &self.members, core);
        if !self.commands.is_empty() {
            if was_idle {
                self.begin(core);
            }
            self.base.want(&mut core.shared, Class::Control);
        }
        result
    }

    /// Ends the session. Objects under way are given up, which is also announced separately:
    /// libnorm ignores the end of a session.
    pub(crate) fn end(&mut self, core: &mut Core, now: Time) {
        let all: Vec<_> = self.objects.iter().map(|object| object.id.number).collect();
        // The next process may resume them.
        self.objects.iter_mut().for_each(Outgoing::keep_record);
        for number in all {
            self.cancel(core, now, number, Failure::Cancelled);
        }
        self.command(core, |commands, _, core| commands.end(core, now));
    }

    /// Notes how long a receiver waited before it replied to a probe. The CLR does not wait.
    pub(super) fn count_answer(&mut self, core: &Core, now: Time, ack: &Ack<'_>) {
        let waits =
            |cc: &CcFeedback| !cc.flags.contains(CcFlags::CLR) && !cc.flags.contains(CcFlags::PLR);
        let Some(cc) = ack.cc.filter(waits) else { return };
        let Some(way) = since_sent(now, ack.grtt_response) else { return };
        let path = core.shared.paths.get(&self.path);
        let fixed = path.and_then(Path::rate_bps).map_or(f64::MAX, |rate| rate as f64 / 8.0);
        let congestion = self.transmission.congestion.as_ref();
        let rate = congestion.map_or(fixed, |congestion| congestion.rate);
        let share = message::rate(cc.rate) / rate.max(1.0);
        let bias = if cc.flags.contains(CcFlags::START) {
            share / 2.0
        } else {
            (share.clamp(0.5, 0.9) - 0.5) / 0.4
        };
        self.group_size.answered(now, cc.sequence, way, bias);
    }

    /// Announces the estimated group size, unless one is configured.
    pub(super) fn judge_group(&mut self, core: &Core) {
        let config = &core.config.sender;
        if !self.is_group || config.group_size.is_some() {
            return;
        }
        let size = self.group_size.estimate(self.members.len());
        self.transmission.set_group_size(size);
        let usual = usual_backoff(true, size);
        self.transmission.backoff = config.backoff.unwrap_or(usual).min(15);
    }
}
