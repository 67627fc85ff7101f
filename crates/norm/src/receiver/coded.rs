//! Reports of a receiver on coded objects.

use std::time::Duration;

use session::path::{Burst, Class};

use super::Receiver;
use super::requests::NACK_HEADER;
use crate::config::Nacking;
use crate::core::{Alarm, Core};
use crate::incoming::Incoming;
use crate::incoming::partials::Identity;
use crate::indication::Failure;
use crate::message::{Extension, FIELD_BITS_ASSUMED, RequestWriter};
use crate::report::{EXT_LIST, ListOf, REPORT_LEN, Report, ReportOf};

/// Bytes of EXT_LIST in a header.
const LIST_LEN: usize = 8;

/// Minimum silence of a sender before another one may resume its object.
const YIELD_LEAST: Duration = Duration::from_millis(200);

/// State of the reports to a sender.
#[derive(Debug, Default)]
pub(super) struct CodedReports {
    /// Number of the newest message received.
    newest: Option<u16>,
    /// Runs of messages lost.
    runs: u16,
    /// Newest coded object, and its last state.
    last: Option<(u64, ReportOf)>,
    /// Whether a list of what is missing is due.
    is_list_due: bool,
}

impl CodedReports {
    /// Notes a message of the sender.
    pub(super) fn arrived(&mut self, sequence: u16) {
        let Some(newest) = self.newest else {
            self.newest = Some(sequence);
            return;
        };
        let ahead = sequence.wrapping_sub(newest);
        if (1..0x8000).contains(&ahead) {
            self.newest = Some(sequence);
            self.runs = self.runs.wrapping_add(u16::from(ahead > 1));
        }
    }
}

impl Receiver {
    /// Report on the newest coded object.
    pub(super) fn coded_report(&mut self) -> Option<Report> {
        let newest = self.coded.newest?;
        let state = |(number, object): (&u64, &Incoming)| Some((*number, object.report_of()?));
        let under_way = self.objects.iter().rev().find_map(state);
        let (number, of) = match (under_way, self.coded.last) {
            // The object is complete, or was given up.
            (Some((older, _)), Some((number, of))) if older < number => {
                (number, ReportOf { missing: 0, ..of })
            }
            (None, Some((number, of))) => (number, ReportOf { missing: 0, ..of }),
            (Some(state), _) => state,
            (None, None) => return None,
        };
        self.coded.last = Some((number, of));
        let object = (number & 0xffff) as u16;
        Some(Report { object, newest, of, runs: self.coded.runs })
    }

    /// Records the progress of an object if a record is due, or later.
    pub(super) fn save(&mut self, core: &mut Core, number: u64) {
        let now = core.now;
        let Some(object) = self.objects.get_mut(&number) else { return };
        let (is_unsaved, is_due) = object.unsaved(core);
        if is_due {
            object.save(core);
        } else if is_unsaved && !self.base.is_armed(Alarm::Save) {
            let wait = core.config.journal.interval;
            self.base.alarm(&mut core.shared, Alarm::Save, now, wait);
        }
    }

    /// Sends lists of what resumed objects lack.
    pub(super) fn want_list(&mut self, core: &mut Core) {
        let config = &core.config.receiver;
        if !config.silent && config.nacking == Nacking::Normal {
            self.coded.is_list_due = true;
            self.base.want(&mut core.shared, Class::Control);
        }
    }

    /// Sends a list of everything that a resumed object lacks. Returns `false` if the message must
    /// wait for the next batch.
    pub(super) fn emit_list(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        if !self.coded.is_list_due {
            return true;
        }
        let now = burst.departure();
        let report = self.coded_report();
        let header = NACK_HEADER + REPORT_LEN + LIST_LEN;
        loop {
            let mut due = self.objects.iter_mut().filter(|(_, object)| object.is_list_due());
            let Some((number, object)) = due.next() else { break };
            let mut room = vec![0; burst.mtu().saturating_sub(header)];
            if !burst.has_room(header + room.len()) {
                return burst.is_empty() && {
                    self.coded.is_list_due = false;
                    true
                };
            }
            let mut writer = RequestWriter::new(&mut room, FIELD_BITS_ASSUMED);
            let end = object.list(&mut writer, now);
            let list = ListOf { object: (number & 0xffff) as u16, end }.encode();
            let list = Extension { kind: EXT_LIST, value: &list };
            self.push_nack(core, burst, (report, Some(list)), writer.finish());
        }
        self.coded.is_list_due = false;
        true
    }

    /// Fresh coded object, with its identity.
    pub(crate) fn fresh(&self, core: &Core) -> Option<(u64, Identity)> {
        let mut fresh = self.objects.iter().filter(|(_, object)| object.is_fresh(core));
        fresh.find_map(|(number, object)| Some((*number, object.identity()?)))
    }

    /// Gives up an object for another session that resumes it. Returns `None` if there is no such
    /// object, and `false` if its sender is not silent.
    pub(crate) fn yield_to(&mut self, core: &mut Core, identity: &Identity) -> Option<bool> {
        let now = core.now;
        let mut objects = self.objects.values_mut();
        let object = objects.find(|object| {
            object.is_suspendable() && object.identity().as_ref() == Some(identity)
        })?;
        let least = (self.timing.grtt / 4).max(YIELD_LEAST);
        if now.since(self.base.last_received) < least {
            return Some(false);
        }
        object.fail(core, Failure::Resumed);
        self.settle(core);
        Some(true)
    }
}
