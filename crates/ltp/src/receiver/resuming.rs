//! Records of a session that receives, from which a restarted engine goes on.

use bytes::Bytes;
use session::Base;
use session::path::Class;
use session::ranges::Ranges;
use session::record::{Reader, Writer};
use session::storage::JournalPolicy;
use session::sum::Sum;
use wire::checksum::ChecksumType;

use super::super::config::Format;
use super::super::core::{Alarm, Core, Peer};
use super::super::file::Description;
use super::super::records::Record;
use super::extent::Extent;
use super::sink::{Filing, Sink};
use super::{Phase, Receiver};
use crate::segment::CancelReason;

const VERSION: u8 = 1;

/// File received in part by an earlier run.
#[derive(Debug, PartialEq)]
pub(crate) struct Stored {
    service: u64,
    extent: Extent,
    /// Description of the file, and its offset.
    description: Option<(u64, Vec<u8>)>,
    /// Parts of the block that are stored: those of the file in its working file.
    parts: Ranges,
    /// Whether the file was complete, and perhaps has its name.
    is_whole: bool,
}

impl Stored {
    fn encode(&self) -> Bytes {
        let mut out = Writer::new(VERSION);
        out.u64(self.service);
        let Extent { red, end, green, red_front } = self.extent;
        out.option(red);
        out.option(end);
        out.u64(green);
        out.u64(red_front);
        out.option(self.description.as_ref().map(|(offset, _)| *offset));
        out.bytes(self.description.as_ref().map_or(&[], |(_, bytes)| bytes));
        out.ranges(&self.parts);
        out.flag(self.is_whole);
        out.finish()
    }

    /// Decodes a record; `None` if it is damaged, or the session cannot go on.
    pub(crate) fn decode(record: &Bytes) -> Option<Self> {
        let mut fields = Reader::new(VERSION, record)?;
        let service = fields.u64()?;
        let (red, end) = (fields.option()?, fields.option()?);
        let extent = Extent { red, end, green: fields.u64()?, red_front: fields.u64()? };
        let (offset, bytes) = (fields.option()?, fields.bytes()?);
        let description = offset.map(|offset| (offset, bytes.to_vec()));
        let (parts, is_whole) = (fields.ranges()?, fields.flag()?);
        let stored = Self { service, extent, description, parts, is_whole };
        fields.is_empty().then_some(stored)
    }

    /// The file, if all of it was verified.
    fn file(&self, format: &Format) -> Option<Description> {
        if !self.is_whole {
            return None;
        }
        match (format, &self.description) {
            (Format::Described, Some((_, bytes))) => Description::decode(bytes),
            (Format::Described, None) => None,
            (Format::Raw { name }, _) => {
                let size = self.extent.end?;
                Some(Description { name: name.clone(), size, checksum: 0 })
            }
        }
    }
}

impl Receiver {
    /// Continues a session of an earlier run.
    pub(crate) fn resumed(base: Base<Alarm>, peer: Peer, core: &mut Core, stored: Stored) -> Self {
        let mut filing = Box::new(Filing::new(peer.session));
        let file = stored.file(&core.config.format);
        filing.resume(&stored.parts, stored.description, file);
        let mut receiver = Self::with(base, peer, core, stored.service, Sink::File(filing));
        receiver.extent = stored.extent;
        receiver.ranges = stored.parts.clone();
        receiver.record = Record::restored(stored.parts);
        receiver.is_resumed = true;
        receiver.count_ranges(core, receiver.ranges.len());
        receiver.watch_silence(core, core.now);
        if stored.is_whole {
            receiver.phase = Phase::Storing;
            receiver.install(core);
        } else {
            receiver.start_file(core);
        }
        receiver
    }

    /// Opens the working file.
    pub(super) fn start_file(&mut self, core: &mut Core) {
        let Sink::File(filing) = &mut self.sink else { return };
        if !filing.delivery.spool.is_started() {
            let sum = Sum::checksum(ChecksumType::Crc32c);
            filing.delivery.open(&mut core.shared, self.base.seat.handle, sum);
        }
    }

    /// Whether a restarted engine goes on with the session. A last hop of LTP-T would not know its
    /// transfer.
    fn can_resume(&self) -> bool {
        matches!(self.sink, Sink::File(_)) && self.flow.is_none()
    }

    /// Parts that may be claimed: those on record. A session that a restarted engine cancels in any
    /// case may claim everything.
    pub(super) fn claimable(&self, core: &Core) -> &Ranges {
        let is_marked = !self.can_resume() && !self.record.parts().is_empty();
        if !core.config.journal || self.is_safe || is_marked {
            &self.ranges
        } else {
            self.record.parts()
        }
    }

    /// Whether all that a report claims may be claimed.
    pub(super) fn may_claim(&self, core: &Core, serial: u64) -> bool {
        let parts = self.claimable(core);
        let is_on_record = |(start, end)| parts.gaps(start, end).next().is_none();
        let report = self.reporting.reports.get(serial);
        report.is_none_or(|report| report.received().all(is_on_record))
    }

    /// Begins to record what has arrived, so that it may be claimed.
    pub(super) fn record_parts(&mut self, core: &mut Core) {
        if !core.config.journal || self.is_safe || self.record.is_busy() {
            return;
        }
        match &self.sink {
            Sink::File(filing) if self.can_resume() => {
                if filing.delivery.spool.is_started() {
                    self.saved_at = core.now;
                    self.save(core);
                } else if self.ranges.iter().eq(filing.described()) {
                    self.put_record(core, self.ranges.clone(), false);
                } else {
                    self.put_mark(core);
                }
            }
            _ if self.record.is_used() => {}
            _ => self.put_mark(core),
        }
    }

    /// Saves data that arrived some time ago: less has to be sent again after a restart.
    pub(super) fn save_in_time(&mut self, core: &mut Core) {
        let Some(delivery) = self.sink.delivery().filter(|it| it.spool.file().is_some()) else {
            return;
        };
        let is_due = core.now >= self.saved_at + delivery.save_wait(JournalPolicy::default());
        if is_due && self.can_resume() {
            self.record_parts(core);
        }
    }

    /// Records that a restarted engine cancels the session: it would have none of its data.
    fn put_mark(&mut self, core: &mut Core) {
        let (handle, id) = (self.base.seat.handle, self.peer.session);
        self.record.put(core, handle, id, self.ranges.clone(), Bytes::new());
    }

    /// Continues when the parts being saved are stored.
    pub(super) fn saved(&mut self, core: &mut Core) {
        match self.sink.delivery().map(|delivery| delivery.safe().clone()) {
            Some(parts) if core.config.journal && self.can_resume() => {
                self.put_record(core, parts, false);
            }
            _ => self.safe(core),
        }
    }

    /// Continues when all of the file is stored.
    pub(super) fn stored(&mut self, core: &mut Core) {
        if self.record.is_used() && self.can_resume() {
            // Otherwise a restarted engine would miss a file that has its name already.
            self.put_record(core, self.ranges.clone(), true);
        } else {
            self.install(core);
        }
    }

    fn put_record(&mut self, core: &mut Core, parts: Ranges, is_whole: bool) {
        let Sink::File(filing) = &self.sink else { return };
        let stored = Stored {
            service: self.service,
            extent: self.extent,
            description: filing.description().cloned(),
            parts: parts.clone(),
            is_whole,
        };
        let (handle, id) = (self.base.seat.handle, self.peer.session);
        self.record.put(core, handle, id, parts, stored.encode());
    }

    /// Continues when a record was written.
    pub(super) fn recorded(&mut self, core: &mut Core) {
        match self.phase {
            Phase::Receiving => {
                let red = self.extent.red.unwrap_or_default();
                let is_recorded = self.record.parts().gaps(0, red).next().is_none();
                if self.extent.is_mixed() && is_recorded && self.can_resume() {
                    self.safe(core);
                }
            }
            Phase::Storing if self.is_stored() => self.install(core),
            Phase::Storing
            | Phase::Offered
            | Phase::Telling
            | Phase::Cancelling { .. }
            | Phase::Closing
            | Phase::Done => {}
        }
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Cancels a session whose working file has lost parts that an earlier run claimed.
    pub(super) fn check_resumed(&mut self, core: &mut Core) {
        let is_here = |(start, end)| self.ranges.gaps(start, end).next().is_none();
        if !self.record.parts().iter().all(is_here) {
            self.cancel(core, CancelReason::System);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_damage_is_detected() {
        let extent = Extent { red: Some(1 << 40), end: None, green: u64::MAX, red_front: 9000 };
        let mut parts = Ranges::new();
        parts.insert(0, 7000);
        parts.insert(8000, 9000);
        let description = Some((1 << 39, b"description".to_vec()));
        let stored = Stored { service: 64, extent, description, parts, is_whole: true };
        let record = stored.encode();
        assert_eq!(Stored::decode(&record), Some(stored));
        for i in 0..record.len() {
            let mut damaged = record.to_vec();
            damaged[i] ^= 4;
            assert_eq!(Stored::decode(&damaged.into()), None, "byte {i}");
            assert_eq!(Stored::decode(&record.slice(..i)), None);
        }
    }
}
