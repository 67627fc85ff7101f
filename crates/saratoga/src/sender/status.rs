//! Congestion control of a sender, and its reaction to a receiver that is silent or makes no
//! progress.

use engine::Time;
use session::path::{Class, Path};
use session::source::Source;

use super::requests::Echo;
use super::{Phase, Sender};
use crate::config::{Congestion, Version};
use crate::congestion::{Answer, Control};
use crate::core::{Alarm, Core};
use crate::packet::{Status, StatusCode};

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

    /// Notes a sent data packet, after `before` requests for a STATUS.
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

    /// Notes a STATUS. A receiver that repeats the same STATUS for ever counts as silent. Otherwise
    /// both would exchange packets without end about a file that makes no progress.
    pub(super) fn status_arrived(&mut self, now: Time, status: &Status<'_>) {
        let sent = self.source.as_ref().map_or(0, Source::sent);
        if self.requests.arrived(status, sent) || !self.is_sending() {
            self.base.last_received = now;
            self.requests.news();
            self.filling.news();
        }
    }

    /// Requests overdue replies at once when the path comes up.
    pub(crate) fn path_up(&mut self, core: &mut Core) {
        self.request_due |= matches!(self.phase, Phase::Asking);
        self.requests.is_due |= self.is_sending() && self.requests.end_sent();
        self.want_all(core);
    }

    /// Processes a timer.
    pub(crate) fn alarm(&mut self, core: &mut Core, now: Time, alarm: Alarm) {
        match (alarm, &self.phase) {
            (Alarm::Request, Phase::Asking) => {
                self.requests.misses += 1;
                self.request_due = true;
                self.base.want(&mut core.shared, Class::Control);
            }
            (Alarm::Poll, Phase::Sending) if self.unproven.is_some() => self.unproved(core),
            (Alarm::Poll, Phase::Sending) if self.resuming.is_some() => {
                self.requests.missed();
                self.request_parts_again(core);
            }
            (Alarm::Poll, Phase::Sending) => {
                self.requests.missed();
                self.metadata_due |= !self.metadata_known && self.offer.version() == Version::V1;
                self.want_all(core);
            }
            (Alarm::Window, Phase::Sending) => {
                if let (Some(window), Some(source)) = (self.window.as_mut(), self.source.as_ref()) {
                    window.silent(source.sent());
                }
                self.requests.hurry(now);
                self.base.want(&mut core.shared, Class::Bulk);
            }
            (Alarm::Pace, Phase::Sending) => self.want_all(core),
            (Alarm::Silence, Phase::Sending) => self.silence(core, now),
            (
                Alarm::Inactivity,
                Phase::Opening | Phase::Summing { .. } | Phase::Asking | Phase::Sending,
            ) => {
                let limit = core.given_up_at(&self.base, &self.remote);
                let is_over = self.source.as_ref().is_some_and(Source::at_end);
                if limit > now {
                    let wait = limit.since(now);
                    self.base.alarm(&mut core.shared, Alarm::Inactivity, now, wait);
                } else if self.is_sending() && !is_over && !self.requests.is_waiting() {
                    // Nothing was requested, and new data is still sent: the result shows at the
                    // end.
                    self.base.last_received = now;
                    let wait = core.given_up_at(&self.base, &self.remote).since(now);
                    self.base.alarm(&mut core.shared, Alarm::Inactivity, now, wait);
                } else {
                    self.end(core, StatusCode::RequestTimeout);
                }
            }
            (
                Alarm::Request
                | Alarm::Poll
                | Alarm::Window
                | Alarm::Pace
                | Alarm::Silence
                | Alarm::Inactivity
                | Alarm::Voluntary
                | Alarm::Save
                | Alarm::Beacon,
                Phase::Opening
                | Phase::Summing { .. }
                | Phase::Asking
                | Phase::Sending
                | Phase::Ending
                | Phase::Done,
            ) => {}
        }
    }
}
