//! A session that receives a block for another engine (LTP-T): it is kept, and goes on meanwhile.

use engine::{IndexRequest, OpenMode, Time};
use wire::ltp::CancelReason;
use wire::ltpt::Congestion;

use super::super::core::{Alarm, Core, Job, Peer, Task};
use super::{Phase, Receiver};
use crate::kernel::Base;
use crate::ltpt::flow::{Relay, Seq, Shape};
use crate::ltpt::passage::News;
use crate::ltpt::record;
use crate::ranges::Ranges;
use crate::spool::Spool;

impl Receiver {
    /// A session whose block is for another engine; what the block is does not matter here.
    pub(crate) fn of_relay(
        base: Base<Alarm>,
        peer: Peer,
        core: &mut Core,
        now: Time,
        (flow, relay): (Seq, Relay),
    ) -> Self {
        let mut receiver = Self::with(base, peer, core, relay.service);
        receiver.spool = Spool::new(record::file(receiver.peer.session));
        (receiver.flow, receiver.relay) = (Some(flow), Some(relay));
        let (handle, mode, nothing) =
            (receiver.base.seat.handle, OpenMode::Truncate, Ranges::new());
        receiver.spool.open_summed(&mut core.kernel, handle, None, mode, &nothing);
        receiver.begin(core, now)
    }

    /// The transfer of which this is a hop, if the block is for another engine.
    pub(crate) fn relays(&self) -> Option<Seq> {
        self.flow.filter(|_| self.relay.is_some())
    }

    /// All that has arrived.
    pub(crate) fn arrived(&self) -> &Ranges {
        &self.ranges
    }

    /// What came since the last time, for the sender behind this: where the red part ends, or at least
    /// where green data begins, and whether the former.
    pub(crate) fn news(&mut self) -> ((u64, bool), News) {
        let fresh = self.relay.as_mut().map(|relay| std::mem::take(&mut relay.fresh));
        let news = News {
            fresh: fresh.unwrap_or_default(),
            file: self.spool.file(),
            unwritten: self.spool.unwritten(),
            total: self.end,
            last: self.relay.as_ref().and_then(|relay| relay.last.clone()),
        };
        ((self.red.unwrap_or(self.green), self.red.is_some()), news)
    }

    /// Hands collected data to the store, because too much waits in this engine; whether there was any.
    pub(crate) fn flush(&mut self, core: &mut Core) -> bool {
        let (start, end) = self.spool.unwritten();
        if self.phase != Phase::Receiving || start == end {
            return false;
        }
        self.spool.flush(&mut core.kernel, self.base.seat.handle);
        true
    }

    /// All of a block for another engine is here that will be: makes it safe.
    pub(super) fn keep_all(&mut self, core: &mut Core) {
        self.base.disarm(&mut core.kernel, Alarm::Inactivity);
        // If nobody said so, the red part ends where the green one begins: there is no gap between them.
        self.red = self.red.or(Some(self.green));
        self.phase = Phase::Syncing;
        self.spool.flush(&mut core.kernel, self.base.seat.handle);
        self.sync(core);
    }

    /// What is synced of a block for another engine is written down, so that a later run knows whereto
    /// it goes.
    pub(super) fn write_down(&mut self, core: &mut Core) {
        let Some(relay) = self.relay.as_mut() else { return };
        // Nobody counts on green data.
        if !core.config.journal || self.red == Some(0) {
            self.written_down(core);
            return;
        }
        relay.is_recorded = true;
        let shape = Shape {
            // What came since is not safe yet.
            parts: std::mem::take(&mut relay.synced),
            end: self.end,
            red: self.red.unwrap_or_default(),
            last: relay.last.clone(),
        };
        let value = record::encode(&relay.onward, relay.service, &shape);
        let request = IndexRequest::Put { key: record::key(self.peer.session), value };
        core.kernel.index(self.base.seat.handle, Job::Own(Task::Record), request);
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

    /// Ends the session for want of room, and tells the sender when there may be some.
    pub(crate) fn refuse_more(&mut self, core: &mut Core, congestion: Congestion) {
        self.peer.set_congestion(congestion);
        self.cancel(core, CancelReason::System);
    }

    /// The sender begins anew: forgets the session, without a word about it.
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
