//! What a sender does when it hears nothing, or nothing new.

use engine::Time;
use wire::saratoga::{Status, StatusCode};

use super::{Phase, Sender};
use crate::path::Class;
use crate::saratoga::config::Version;
use crate::saratoga::core::{Alarm, Core};
use crate::source::Source;

impl Sender {
    /// The receiver lives. One that says the same for ever counts as silent, or both would talk
    /// without end about a file that never gets further.
    pub(super) fn heard(&mut self, now: Time, status: &Status<'_>) {
        let holes = status.holes.iter().map(|hole| (hole.last - hole.start).saturating_add(1));
        let missing = holes.fold(0, u64::saturating_add);
        let sent = self.source.as_ref().map_or(0, Source::sent);
        let standing = (status.progress, status.in_response_to, missing, sent);
        self.is_known = true;
        if self.phase != Phase::Sending || standing != self.standing {
            self.base.last_heard = now;
            self.misses = 0;
            self.is_waiting = false;
            self.fill.news();
        }
        self.standing = standing;
    }

    /// A question left. The wait for an answer begins with the first one after an answer.
    pub(super) fn question_went(&mut self, at: Time) {
        self.asked += 1;
        if !std::mem::replace(&mut self.is_waiting, true) {
            self.base.last_heard = self.base.last_heard.max(at);
        }
    }

    /// The path came up: what waits for a reply is asked at once.
    pub(crate) fn path_up(&mut self, core: &mut Core) {
        self.request_due |= self.phase == Phase::Asking;
        self.ask_due |= self.phase == Phase::Sending && self.end_sent;
        self.want_all(core);
    }

    /// A timer went off.
    pub(crate) fn alarm(&mut self, core: &mut Core, now: Time, alarm: Alarm) {
        match (alarm, self.phase) {
            (Alarm::Request, Phase::Asking) => {
                self.misses += 1;
                self.request_due = true;
                self.base.want(&mut core.shared, Class::Control);
            }
            (Alarm::Poll, Phase::Sending) => {
                self.misses += 1;
                self.overdue = self.asked;
                self.ask_due = true;
                self.metadata_due |= !self.metadata_known && self.version == Version::V1;
                self.want_all(core);
            }
            (Alarm::Window, Phase::Sending) => {
                if let (Some(window), Some(source)) = (self.window.as_mut(), self.source.as_ref()) {
                    window.silent(source.sent());
                }
                self.next_ask = Some(now);
                self.base.want(&mut core.shared, Class::Bulk);
            }
            (Alarm::Pace, Phase::Sending) => self.want_all(core),
            (Alarm::Silence, Phase::Sending) => self.silence(core, now),
            (Alarm::Inactivity, Phase::Asking | Phase::Sending) => {
                let limit = core.given_up_at(&self.base, &self.remote);
                let is_over = self.source.as_ref().is_some_and(Source::at_end);
                if limit > now {
                    let wait = limit.since(now);
                    self.base.alarm(&mut core.shared, Alarm::Inactivity, now, wait);
                } else if self.phase == Phase::Sending && !is_over && !self.is_waiting {
                    // Nothing was asked, and new data still goes out: how that ends is seen at the
                    // end.
                    self.base.last_heard = now;
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
                | Phase::Summing
                | Phase::Asking
                | Phase::Sending
                | Phase::Ending
                | Phase::Done,
            ) => {}
        }
    }
}
