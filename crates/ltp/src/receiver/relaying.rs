//! Session that receives a block for another engine (LTP-T): it is stored, and forwarded
//! meanwhile.

use engine::{IndexRequest, Time};
use session::Base;
use session::delivery::Delivery;
use session::ranges::Ranges;

use super::super::core::{Alarm, Core, Job, Peer, Task};
use super::super::transport::flow::{Relay, Seq, Shape};
use super::super::transport::passage::News;
use super::super::transport::record;
use super::sink::{Sink, Transit};
use super::{Phase, Receiver};
use crate::segment::CancelReason;
use crate::segment::ltpt::Congestion;

impl Receiver {
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
