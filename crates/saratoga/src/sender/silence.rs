//! Handling of a receiver that is silent or makes no progress.

use engine::Time;
use session::path::Class;
use session::source::Source;

use super::{Phase, Sender};
use crate::config::Version;
use crate::core::{Alarm, Core};
use crate::packet::{Status, StatusCode};

impl Sender {
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
