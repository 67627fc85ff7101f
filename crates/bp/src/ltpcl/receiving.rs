//! Reception of blocks.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::{FileName, Time};
use ltp::segment::{AGGREGATION_SERVICE, CancelReason, SessionId, Unit};
use ltp::{Block, BlockContent, Cause, Failure};

use super::super::layer::{Event, LinkId, Refusal, TransferId};
use super::cutting::Rest;
use super::{BUNDLE_SERVICE, Ltpcl};

/// A block on whose bundles the agent must decide.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) link: LinkId,
    /// Bundles reported to the agent.
    pub(super) total: usize,
    /// Bundles without a decision.
    pub(super) waiting: usize,
    /// Whether the agent has one of them.
    is_taken: bool,
    /// Reason for the sender, if one of them is refused.
    pub(super) refused: Option<CancelReason>,
    /// Working file, deleted when the block is accepted.
    pub(super) file: Option<FileName>,
    /// Whether the working file itself was renamed and passed to the agent.
    pub(super) is_passed_on: bool,
    /// Bundles that were not reported yet.
    pub(super) rest: Rest,
}

impl Incoming {
    const fn new(link: LinkId, file: Option<FileName>, rest: Rest) -> Self {
        let (total, waiting, refused) = (0, 0, None);
        Self { link, total, waiting, is_taken: false, refused, file, is_passed_on: false, rest }
    }
}

impl Ltpcl {
    /// Accepts a block, or keeps it while the neighbour is paused.
    pub(super) fn block(&mut self, now: Time, block: Block) {
        let Self { incoming, held, .. } = self;
        let is_owed = |link| {
            let incoming = incoming.values().map(|incoming| incoming.link);
            incoming.chain(held.iter().map(|(link, _)| *link)).any(|of| of == link)
        };
        match self.neighbours.met(block.id.originator, is_owed) {
            None => self.cancel_block(now, block.id, CancelReason::User),
            Some(link) if self.neighbours.is_held(link) => self.held.push_back((link, block)),
            Some(link) => self.begin_block(now, link, block),
        }
    }

    /// Cancels a session whose block is refused.
    fn cancel_block(&mut self, now: Time, id: SessionId, why: CancelReason) {
        // The session may have ended in the meantime.
        let _over = self.ltp.cancel_for(now, id, why);
    }

    fn begin_block(&mut self, now: Time, link: LinkId, block: Block) {
        let Block { id, service, content, .. } = block;
        match content {
            BlockContent::File(name, len) => {
                let name = self.blocks.scope.file(name);
                let rest = Rest::of_file(name.clone(), len);
                self.incoming.insert(id, Incoming::new(link, Some(name), rest));
            }
            BlockContent::Bytes(bytes) if service == AGGREGATION_SERVICE => {
                self.incoming.insert(id, Incoming::new(link, None, Rest::Nothing));
                self.units(link, id, &bytes);
            }
            BlockContent::Bytes(bytes) => {
                self.incoming.insert(id, Incoming::new(link, None, Rest::Memory(bytes)));
            }
        }
        self.advance(now, id);
    }

    /// Reports the bundles among the units of a block.
    fn units(&mut self, link: LinkId, id: SessionId, block: &Bytes) {
        let units = Unit::decode_all(block).unwrap_or_default();
        let mut of_bundles = units.iter().filter(|unit| unit.service == BUNDLE_SERVICE).peekable();
        if of_bundles.peek().is_none() {
            // It is not a bundle, and a retransmission would not be one either.
            self.neighbours.report_fault(Some(link), "a block without a bundle");
        }
        for unit in of_bundles {
            self.bytes(link, id, block.slice_ref(unit.data));
        }
    }

    pub(super) fn begins(&mut self, link: LinkId, id: SessionId, len: u64) -> TransferId {
        let transfer = TransferId(self.next_transfer);
        self.next_transfer += 1;
        if let Some(incoming) = self.incoming.get_mut(&id) {
            incoming.total += 1;
            incoming.waiting += 1;
        }
        self.transfers.insert(transfer, id);
        self.neighbours.events.push_back(Event::Begins { link, transfer, bytes: Some(len) });
        transfer
    }

    pub(super) fn bytes(&mut self, link: LinkId, id: SessionId, bytes: Bytes) {
        let transfer = self.begins(link, id, bytes.len() as u64);
        self.neighbours.events.push_back(Event::Piece { link, transfer, bytes });
        self.whole(link, transfer, None);
    }

    pub(super) fn whole(
        &mut self,
        link: LinkId,
        transfer: TransferId,
        file: Option<(FileName, u64)>,
    ) {
        self.neighbours.statistics.received += 1;
        self.neighbours.events.push_back(Event::Whole { link, transfer, file });
    }

    /// Handles the agent's decision on a bundle.
    pub(super) fn decided(&mut self, now: Time, transfer: TransferId, why: Option<Refusal>) {
        let Some(id) = self.transfers.remove(&transfer) else { return };
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        incoming.waiting -= 1;
        incoming.is_taken |= matches!(why, None | Some(Refusal::Completed));
        if why.is_none() && incoming.is_passed_on {
            // The agent owns it.
            incoming.file = None;
        }
        match why {
            Some(Refusal::NoResources | Refusal::Retransmit) => {
                self.stop_cutting(id, Some(CancelReason::User));
            }
            // A retransmission would not be accepted either.
            Some(Refusal::NotAcceptable) => {
                incoming.refused = incoming.refused.or(Some(CancelReason::Unreachable));
            }
            Some(Refusal::Completed) | None => {}
        }
        if why.is_some() {
            self.skip(id, transfer);
        }
        self.advance(now, id);
    }

    /// Replies to the sender of a block once the agent has decided on all its bundles.
    ///
    /// A block has one result. It is refused for later if the agent has no room for one of its
    /// bundles, and for good only if the agent has none of them: a retransmission of the others
    /// would not help.
    pub(super) fn settle(&mut self, now: Time, id: SessionId) {
        if self.incoming.get(&id).is_none_or(|incoming| incoming.waiting > 0) {
            return;
        }
        let Some(Incoming { refused, is_taken, is_passed_on, mut file, .. }) =
            self.incoming.remove(&id)
        else {
            return;
        };
        if let Some(reason) = refused.filter(|why| *why == CancelReason::User || !is_taken) {
            self.cancel_block(now, id, reason);
            // Otherwise the engine deletes it.
            file = file.filter(|_| is_passed_on);
        } else {
            self.accept(now, id);
        }
        if let Some(name) = file {
            // The agent does not own it.
            self.blocks.delete(name);
        }
    }

    fn accept(&mut self, now: Time, id: SessionId) {
        // The session may have ended in the meantime.
        let _over = self.ltp.accept_block(now, id);
    }

    /// Reports a bundle that the engine refused: the agent has not seen it.
    pub(super) fn report_refused(&mut self, id: SessionId, failure: Failure) {
        let why = match failure.cause {
            Some(Cause::Store(_)) => Refusal::NoResources,
            Some(Cause::TooLong) => Refusal::NotAcceptable,
            Some(Cause::Silence | Cause::Empty | Cause::TooNarrow { .. }) | None => return,
        };
        if let Some(link) = self.neighbours.met(id.originator, |_| true) {
            self.neighbours.events.push_back(Event::Refused { link, why });
        }
    }

    /// Handles a receiving session that ended before its block was accepted: the sender cancelled,
    /// or nothing more came.
    pub(super) fn on_session_over(&mut self, now: Time, id: SessionId) {
        self.held.retain(|(_, block)| block.id != id);
        if self.incoming.contains_key(&id) {
            self.stop_cutting(id, None);
            self.settle(now, id);
        }
    }

    /// Continues with blocks of links that are no more, over the links in their place, if any. The
    /// agent resumes no former link.
    pub(super) fn follow_links(
        &mut self,
        now: Time,
        successors: &BTreeMap<LinkId, Option<LinkId>>,
    ) {
        let mut sessions = Vec::new();
        for (id, incoming) in &mut self.incoming {
            if let Some(next) = successors.get(&incoming.link) {
                incoming.link = next.unwrap_or(incoming.link);
                sessions.push(*id);
            }
        }
        for (of, block) in std::mem::take(&mut self.held) {
            if successors.contains_key(&of) {
                self.block(now, block);
            } else {
                self.held.push_back((of, block));
            }
        }
        for id in sessions {
            self.advance(now, id);
        }
    }

    /// Resumes reporting a neighbour's bundles to the agent.
    pub(super) fn resume(&mut self, now: Time, link: LinkId) {
        self.neighbours.hold(link, false);
        for (of, block) in std::mem::take(&mut self.held) {
            if of == link {
                self.begin_block(now, link, block);
            } else {
                self.held.push_back((of, block));
            }
        }
        let of_link = self.incoming.iter().filter(|(_, incoming)| incoming.link == link);
        let sessions: Vec<SessionId> = of_link.map(|(id, _)| *id).collect();
        for id in sessions {
            self.advance(now, id);
        }
    }
}
