//! Congestion control of a sender.

use engine::Time;
use session::path::Path;

use super::Sender;
use super::requests::Echo;
use crate::config::Congestion;
use crate::congestion::{Answer, Control};
use crate::core::{Alarm, Core};
use crate::packet::Status;

impl Sender {
    /// Rate control of this session, if enabled.
    pub(super) fn control(&self, core: &Core) -> Option<Control> {
        match self.remote.congestion {
            Congestion::Tfrc if self.offer.is_reported() => {
                let path = core.shared.paths.get(&self.id.peer);
                let segment = self.room(path.map_or(0, Path::mtu).max(64), false).unwrap_or(1);
                let rtt = path.and_then(|path| path.rtt.measured());
                let (late, most) = (core.config.catch_up, core.config.limits.gaps);
                Some(Control::new(segment, rtt, late, most))
            }
            Congestion::Tfrc | Congestion::Off => None,
        }
    }

    /// Notes a sent data packet, after `questions` requests for a STATUS.
    pub(super) fn data_left(
        &mut self,
        core: &mut Core,
        at: Time,
        offset: u64,
        len: usize,
        before: u64,
    ) {
        if self.control.is_some() && !self.base.is_armed(Alarm::Silence) {
            self.await_answer(core, at);
        }
        if let Some(control) = self.control.as_mut() {
            control.sent(at, offset, len, before);
        }
    }

    /// Starts to wait for a reply that reports losses.
    fn await_answer(&mut self, core: &mut Core, at: Time) {
        let Some(control) = self.control.as_mut() else { return };
        let wait = control.wait().max(core.answer_time(&self.base, &self.remote));
        self.base.alarm(&mut core.shared, Alarm::Silence, at, wait);
    }

    /// Returns whether the rate control allows a packet now; if not, arms a timer.
    pub(super) fn pace(&mut self, core: &mut Core, at: Time) -> bool {
        let Some(control) = self.control.as_mut() else { return true };
        let Err(again) = control.check_pace(at) else { return true };
        if !self.base.is_armed(Alarm::Pace) {
            self.base.alarm(&mut core.shared, Alarm::Pace, at, again.since(at));
        }
        false
    }

    /// Passes losses and the round trip in a STATUS to the rate control.
    pub(super) fn heed(&mut self, core: &mut Core, now: Time, status: &Status<'_>, echo: Echo) {
        let Some(control) = self.control.as_mut() else { return };
        let holes: Vec<_> = status.holes.iter().collect();
        let behind_holes = holes.last().map_or(0, |hole| hole.last.saturating_add(1));
        let answer = Answer {
            at: echo.at,
            question: echo.number,
            is_prompt: !status.is_voluntary,
            is_partial: status.is_partial,
            known_to: status.progress.max(status.in_response_to).max(behind_holes),
            holes: &holes,
        };
        if control.answered(now, &answer) {
            self.await_answer(core, now);
        }
        self.base.disarm(&mut core.shared, Alarm::Pace);
        self.want_all(core);
    }

    /// Slows down and requests a STATUS after too long without one.
    pub(super) fn silence(&mut self, core: &mut Core, now: Time) {
        if self.control.as_mut().is_some_and(|control| control.silence(now)) {
            self.await_answer(core, now);
        }
        self.requests.hurry(now);
        self.want_all(core);
    }
}
