//! Reports of a receiver on coded objects.

use super::Receiver;
use crate::norm::incoming::Incoming;
use crate::norm::report::{Report, ReportOf};

/// State of the reports to a sender.
#[derive(Debug, Default)]
pub(super) struct CodedReports {
    /// Number of the newest message received.
    newest: Option<u16>,
    /// Runs of messages lost.
    runs: u16,
    /// Newest coded object, and its last state.
    last: Option<(u64, ReportOf)>,
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
        let of = |(number, object): (&u64, &Incoming)| Some((*number, object.report_of()?));
        let under_way = self.objects.iter().rev().find_map(of);
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
}
