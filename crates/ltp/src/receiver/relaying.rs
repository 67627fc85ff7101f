//! Session that receives a block for another engine (LTP-T): it is stored, and forwarded
//! meanwhile.

use engine::{IndexRequest, OpenMode, Time};
use session::Base;
use session::ranges::Ranges;
use session::spool::Spool;

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
        let mut spool = Spool::new(record::file(peer.session));
        let (handle, mode, nothing) = (base.seat.handle, OpenMode::Truncate, Ranges::new());
        spool.open_summed(&mut core.shared, handle, None, mode, &nothing);
        let service = relay.service;
        let sink = Sink::Relay(Box::new(Transit { spool, relay }));
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
                file: transit.spool.file(),
                unwritten: transit.spool.unwritten(),
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
        let (start, end) = self.sink.spool().map_or((0, 0), Spool::unwritten);
        if self.phase != Phase::Receiving || start == end {
            return false;
        }
        self.flush_spool(core);
        true
    }

    /// Stores a block for another engine once it has arrived as far as it will.
    pub(super) fn keep_all(&mut self, core: &mut Core) {
        self.base.disarm(&mut core.shared, Alarm::Inactivity);
        self.extent.fix_end();
        self.phase = Phase::Syncing;
        self.flush_spool(core);
        self.sync(core);
    }

    /// Records the route of a synced block for another engine, so that a restarted engine can
    /// forward it.
    pub(super) fn write_down(&mut self, core: &mut Core) {
        let Some(relay) = self.sink.relay_mut() else { return };
        // Green data is not promised to anyone.
        if !core.config.journal || self.extent.red == Some(0) {
            self.written_down(core);
            return;
        }
        relay.is_recorded = true;
        let shape = Shape {
            // Later data is not stored safely yet.
            parts: std::mem::take(&mut relay.synced),
            end: self.extent.end,
            red: self.extent.red.unwrap_or_default(),
            last: relay.last.clone(),
        };
        let value = record::encode(&relay.onward, relay.service, &shape);
        let request = IndexRequest::Put { key: record::key(self.peer.session), value };
        core.shared.index(self.base.seat.handle, Job::Own(Task::Record), request);
    }

    pub(super) fn written_down(&mut self, core: &mut Core) {
        match self.phase {
            Phase::Receiving => self.safe(core),
            Phase::Installing => self.installed(core, core.now),
            Phase::Verifying
            | Phase::Syncing
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
            Phase::Receiving | Phase::Verifying | Phase::Syncing | Phase::Installing => {
                self.discard(core);
            }
            Phase::Telling | Phase::Cancelling { .. } | Phase::Closing | Phase::Done => {}
        }
        self.close(core);
    }
}
