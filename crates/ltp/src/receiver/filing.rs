//! Session that receives into a working file: its checks, the steps until it is safely stored, the
//! records from which a restarted engine goes on, and the block of another engine (LTP-T), which
//! is forwarded meanwhile.

use bytes::Bytes;
use engine::{FileName, IndexRequest, Time};
use session::delivery::{Delivery, Event};
use session::path::Class;
use session::ranges::Ranges;
use session::record::{Reader, Writer};
use session::storage::JournalPolicy;
use session::sum::{Sum, Value};
use session::{Base, StoreRefusal};
use wire::checksum::ChecksumType;

use super::super::config::Format;
use super::super::core::{Alarm, Core, Job, Peer, Task};
use super::super::file::Description;
use super::super::indication::{Failure, Indication, PeerError};
use super::super::records::{self, Record};
use super::super::transport::flow::{Relay, Seq, Shape};
use super::super::transport::passage::News;
use super::super::transport::record;
use super::extent::Extent;
use super::sink::{Filing, Sink, Transit};
use super::{Phase, Receiver};
use crate::segment::CancelReason;
use crate::segment::ltpt::Congestion;

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
    /// Finishes the session if everything has arrived.
    pub(super) fn check_complete(&mut self, core: &mut Core) {
        if self.phase != Phase::Receiving {
            return;
        }
        match self.sink {
            Sink::Units(_) | Sink::Block(_) => self.check_memory(core),
            Sink::File(_) | Sink::Relay(_) => self.check_stored(core),
        }
    }

    fn check_stored(&mut self, core: &mut Core) {
        let is_open = self.sink.open_file().is_some();
        let whole = self.extent.end.filter(|end| self.ranges.gaps(0, *end).next().is_none());
        if whole.is_none() {
            if is_open && self.extent.end.is_some() {
                self.verify(core, u64::MAX);
            }
            let is_recorded = self.sink.relay().is_some_and(|relay| relay.is_recorded);
            if self.red_is_here() && self.extent.is_mixed() && !self.is_safe && !is_recorded {
                // Green data may arrive late or never; the red part is stored without it.
                self.save(core);
            }
            return;
        }
        if !is_open {
            return;
        }
        if self.sink.relay().is_some() {
            self.keep_all(core);
            return;
        }
        self.phase = Phase::Storing;
        self.base.disarm(&mut core.shared, Alarm::Inactivity);
        if let Some(delivery) = self.sink.delivery_mut() {
            delivery.complete(&mut core.shared, self.base.seat.handle);
        }
        self.summed_up(core);
    }

    /// Processes the completion of an effect on the working file.
    pub(super) fn on_delivery(&mut self, core: &mut Core, now: Time, event: &Event) {
        match (event, &self.sink) {
            (Event::Opened, sink) => {
                let described = match sink {
                    Sink::File(filing) => filing.described(),
                    Sink::Units(_) | Sink::Block(_) | Sink::Relay(_) => None,
                };
                if let Some((start, end)) = described {
                    self.ranges.insert(start, end);
                }
                if self.is_resumed {
                    self.check_resumed(core);
                }
                self.check_complete(core);
                // A report may wait for a record of what the file holds.
                self.base.want(&mut core.shared, Class::Control);
            }
            (Event::Summed, _) => self.summed_up(core),
            (Event::Saved | Event::Stored, Sink::Relay(_)) => self.write_down(core),
            (Event::Saved, Sink::File(_) | Sink::Units(_) | Sink::Block(_)) => self.saved(core),
            (Event::Stored, Sink::File(_)) if core.blocks.is_some() => self.hand_over_file(core),
            (Event::Stored, Sink::File(_) | Sink::Units(_) | Sink::Block(_)) => self.stored(core),
            (Event::Installed, _) => self.installed(core, now),
            (Event::NotInstalled(cause) | Event::Failed(cause), _) => {
                self.cannot_store(core, *cause);
            }
        }
    }

    /// Syncs the data received so far.
    pub(super) fn save(&mut self, core: &mut Core) {
        let delivery = self.sink.delivery_mut();
        if let Some(delivery) = delivery.filter(|delivery| !delivery.is_saving()) {
            let handle = self.base.seat.handle;
            delivery.save(&mut core.shared, handle, core.now, &self.ranges);
        }
    }

    /// Computes the checksum of the working file, whose content has `content` bytes. Returns it
    /// once all of it is computed.
    fn verify(&mut self, core: &mut Core, content: u64) -> Option<Value> {
        let prefix = self.ranges.prefix().min(content);
        let (shared, handle) = (&mut core.shared, self.base.seat.handle);
        self.sink.delivery_mut()?.verify(shared, handle, prefix, Some(content))
    }

    /// Continues after a part of the checksum was computed.
    pub(super) fn summed_up(&mut self, core: &mut Core) {
        let content = match &self.sink {
            Sink::File(filing) => filing.content(self.extent.end),
            Sink::Units(_) | Sink::Block(_) | Sink::Relay(_) => None,
        };
        let Some(content) = content else { return };
        let Some(sum) = self.verify(core, content) else { return };
        let Sink::File(filing) = &mut self.sink else { return };
        match filing.check(&core.config.format, content, sum) {
            Ok(()) => {
                filing.delivery.sync(&mut core.shared, self.base.seat.handle);
            }
            Err(error) => self.refuse(core, error),
        }
    }

    pub(super) fn refuse(&mut self, core: &mut Core, error: PeerError) {
        core.user.indicate(Indication::PeerError { id: self.peer.session, error });
        self.cancel(core, CancelReason::System);
    }

    pub(super) fn cannot_store(&mut self, core: &mut Core, cause: StoreRefusal) {
        core.stats.storage_errors += 1;
        self.fail(core, Failure::of_store(cause));
    }

    /// Gives the file its name.
    pub(super) fn install(&mut self, core: &mut Core) {
        let Sink::File(filing) = &mut self.sink else { return };
        let name = filing.file().map_or("", |file| &file.name);
        match FileName::file(name) {
            Ok(to) => filing.delivery.install(&mut core.shared, self.base.seat.handle, to),
            Err(error) => self.fail(core, Failure::of_store((&error).into())),
        }
    }

    /// Notes that the red part is safely stored, and replies to waiting checkpoints.
    pub(super) fn safe(&mut self, core: &mut Core) {
        self.is_safe = true;
        let red = self.extent.red.unwrap_or_default();
        for checkpoint in std::mem::take(&mut self.reporting.waiting) {
            let (lower, upper) = match self.reporting.reports.get(checkpoint.report) {
                Some(before) => (before.lower, before.upper),
                None => (0, red),
            };
            self.make_reports(core, checkpoint.serial, lower, upper);
        }
    }

    pub(super) fn installed(&mut self, core: &mut Core, now: Time) {
        // From now on a later run may receive segments of the session again without harm. The agent
        // discards a copy of a bundle, which costs less if nothing of it was recorded.
        let is_recorded = core.blocks.is_none() || self.record.is_used();
        if self.sink.file().is_some() && is_recorded {
            records::record_done(core, self.peer.session, self.extent.red.unwrap_or_default());
        }
        self.record.remove(core, self.base.seat.handle, self.peer.session);
        self.safe(core);
        core.shared.places.include(self.base.seat.handle);
        self.phase = Phase::Telling;
        self.finished(core, Ok(()));
        self.watch_silence(core, now);
        if self.extent.red == Some(0) || self.base.seat.path.is_none() {
            self.close(core);
        } else {
            self.close_if_reported(core);
        }
    }

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

    /// Session whose block is for another engine, in any format.
    pub(crate) fn of_relay(
        base: Base<Alarm>,
        peer: Peer,
        core: &mut Core,
        now: Time,
        flow: Seq,
        relay: Relay,
    ) -> Self {
        let mut delivery = Delivery::new(record::file(peer.session));
        delivery.open(&mut core.shared, base.seat.handle, None);
        let service = relay.service;
        let sink = Sink::Relay(Box::new(Transit { delivery, relay }));
        let mut receiver = Self::with(base, peer, core, service, sink);
        receiver.flow = Some(flow);
        receiver.begin(core, now)
    }

    /// Transfer of which this is a hop, if the block is for another engine.
    pub(crate) fn relays(&self) -> Option<Seq> {
        self.flow.filter(|_| self.sink.relay().is_some())
    }

    /// All data received.
    pub(crate) fn arrived(&self) -> &Ranges {
        &self.ranges
    }

    /// Data received since the last call, for the onward sender. Returns the end of the red part,
    /// or the known start of green data, and whether it is the former.
    pub(crate) fn news(&mut self) -> ((u64, bool), News) {
        let total = self.extent.end;
        let news = match &mut self.sink {
            Sink::Relay(transit) => News {
                fresh: std::mem::take(&mut transit.relay.fresh),
                file: transit.delivery.spool.file(),
                unwritten: transit.delivery.spool.unwritten(),
                total,
                last: transit.relay.last.clone(),
            },
            Sink::File(_) | Sink::Units(_) | Sink::Block(_) => {
                News { fresh: Vec::new(), file: None, unwritten: (0, 0), total, last: None }
            }
        };
        (self.extent.colors(), news)
    }

    /// Hands collected data to the store, because too much waits in this engine. Returns whether
    /// there was any.
    pub(crate) fn flush(&mut self, core: &mut Core) -> bool {
        let Some(delivery) = self.sink.delivery_mut() else { return false };
        let (start, end) = delivery.spool.unwritten();
        if self.phase != Phase::Receiving || start == end {
            return false;
        }
        delivery.spool.flush(&mut core.shared, self.base.seat.handle);
        true
    }

    /// Stores a block for another engine once it has arrived as far as it will.
    pub(super) fn keep_all(&mut self, core: &mut Core) {
        self.base.disarm(&mut core.shared, Alarm::Inactivity);
        self.extent.fix_end();
        self.phase = Phase::Storing;
        if let Some(delivery) = self.sink.delivery_mut() {
            delivery.sync(&mut core.shared, self.base.seat.handle);
        }
    }

    /// Records the route of a synced block for another engine, so that a restarted engine can
    /// forward it.
    pub(super) fn write_down(&mut self, core: &mut Core) {
        let Sink::Relay(transit) = &mut self.sink else { return };
        // Green data is not promised to anyone.
        if !core.config.journal || self.extent.red == Some(0) {
            self.written_down(core);
            return;
        }
        let Transit { delivery, relay } = &mut **transit;
        relay.is_recorded = true;
        let shape = Shape {
            // Later data is not stored safely yet.
            parts: delivery.recordable(&self.ranges),
            end: self.extent.end,
            red: self.extent.red.unwrap_or_default(),
            last: relay.last.clone(),
        };
        let value = record::encode(&relay.onward, relay.service, &shape);
        let request = IndexRequest::Put { key: record::key(self.peer.session), value };
        core.shared.index(self.base.seat.handle, Job::Own(Task::Route), request);
    }

    pub(super) fn written_down(&mut self, core: &mut Core) {
        match self.phase {
            Phase::Receiving => self.safe(core),
            Phase::Storing if self.is_stored() => self.installed(core, core.now),
            Phase::Storing
            | Phase::Offered
            | Phase::Telling
            | Phase::Cancelling { .. }
            | Phase::Closing
            | Phase::Done => {}
        }
    }

    /// Ends the session for lack of room, and notifies the sender when to retry.
    pub(crate) fn refuse_more(&mut self, core: &mut Core, congestion: Congestion) {
        self.peer.set_congestion(congestion);
        self.cancel(core, CancelReason::System);
    }

    /// Forgets the session silently, because the sender restarted the transfer.
    pub(crate) fn supersede(&mut self, core: &mut Core) {
        match self.phase {
            Phase::Receiving | Phase::Storing | Phase::Offered => self.discard(core),
            Phase::Telling | Phase::Cancelling { .. } | Phase::Closing | Phase::Done => {}
        }
        self.close(core);
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
