//! Reports of a receiver on coded objects.

use std::collections::BTreeSet;
use std::time::Duration;

use session::path::{Burst, Class};

use super::Receiver;
use super::requests::NACK_HEADER;
use crate::coding::is_long;
use crate::config::Nacking;
use crate::core::{Alarm, Core};
use crate::digest::former_of;
use crate::incoming::Incoming;
use crate::incoming::identity::Identity;
use crate::message::{Extension, FIELD_BITS_ASSUMED, Info, RequestWriter};
use crate::report::{EXT_LIST, ListOf, REPORT_LEN, Report, ReportOf};

/// Bytes of EXT_LIST in a header.
const LIST_LEN: usize = 8;

/// Maximum number of empty lists that wait.
const STORED_MAX: usize = 64;

/// Minimum silence of a sender before another one may resume its object.
const YIELD_LEAST: Duration = Duration::from_millis(200);

/// Maximum number of objects that may resume others at a message.
const FRESH_MAX: usize = 8;

/// Object of a session that another one resumes.
#[derive(Debug)]
pub(crate) enum Yield {
    Nothing,
    /// Its sender may still be there.
    Waits,
    Object(Box<Incoming>),
}

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
    /// Objects of which a list is due that has nothing.
    stored: BTreeSet<u16>,
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

    /// Sends an empty list of what a coded object lacks that was stored before, if its sender
    /// resumes it.
    pub(crate) fn confirm_stored(&mut self, core: &mut Core, info: &Info<'_>) {
        let number = self.numbers.unwrap(info.object);
        let resumes = is_long(info.fec) && former_of(&info.others).is_some();
        if resumes && self.numbers.is_done(number) && self.coded.stored.len() < STORED_MAX {
            self.coded.stored.insert(info.object);
            self.want_list(core);
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
        while let Some(object) = self.coded.stored.first().copied() {
            if !burst.has_room(header) {
                return false;
            }
            let list = ListOf { object, end: u32::MAX }.encode();
            let list = Extension { kind: EXT_LIST, value: &list };
            let requests = RequestWriter::new(&mut [], FIELD_BITS_ASSUMED).finish();
            self.push_nack(core, burst, report, Some(list), requests);
            self.coded.stored.remove(&object);
        }
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
            self.push_nack(core, burst, report, Some(list), writer.finish());
        }
        self.coded.is_list_due = false;
        true
    }

    /// Fresh objects that may resume others, with their identities, and the instances of the sender
    /// that they name: the object of this number, or the next few.
    pub(crate) fn fresh(
        &mut self,
        core: &Core,
        number: Option<u64>,
    ) -> Vec<(u64, Identity, Option<u16>)> {
        let range = number.map_or(self.fresh_from..=u64::MAX, |number| number..=number);
        let fresh = self.objects.range(range).filter(|(_, object)| object.is_fresh(core));
        let named = |(number, object): (&u64, &Incoming)| {
            Some((*number, object.identity()?, object.former))
        };
        let fresh: Vec<_> = fresh.filter_map(named).take(FRESH_MAX).collect();
        if number.is_none() {
            self.fresh_from = fresh.last().map_or(0, |(number, ..)| number + 1);
        }
        fresh
    }

    /// Whether another session may resume one of the objects.
    pub(crate) fn is_resumable(&self) -> bool {
        self.objects.values().any(Incoming::is_resumable)
    }

    /// Gives an object to another session that resumes it: at once if that names this instance of
    /// the sender, otherwise once the sender is silent.
    pub(crate) fn yield_to(
        &mut self,
        core: &mut Core,
        identity: &Identity,
        former: Option<u16>,
    ) -> Yield {
        let mut objects = self.objects.iter();
        let found = objects.find_map(|(number, it)| Some((*number, it.is_adoptable(identity)?)));
        let Some((number, is_adoptable)) = found else { return Yield::Nothing };
        let least = (self.timing.grtt / 4).max(YIELD_LEAST);
        let is_silent = core.now.since(self.base.last_received) >= least;
        let is_over = former == Some(self.life.instance) || is_silent;
        let taken = is_adoptable && is_over;
        let Some(mut object) = taken.then(|| self.objects.remove(&number)).flatten() else {
            return Yield::Waits;
        };
        object.yields(core);
        self.numbers.fails(number, false);
        self.on_removed(core);
        Yield::Object(Box::new(object))
    }
}
