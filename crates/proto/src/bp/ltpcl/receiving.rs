//! Reception of blocks.

use bytes::Bytes;
use engine::{FileName, FilestoreRequest, StoreEffect, Time};
use wire::ltp::{AGGREGATION_SERVICE, CancelReason, SessionId, Unit};

use super::super::layer::{Event, LinkId, Refusal, TransferId};
use super::{BUNDLE_SERVICE, Ltpcl};
use crate::ltp::{Block, BlockContent};

/// A block on whose bundles the agent must decide.
#[derive(Debug)]
pub(super) struct Incoming {
    link: LinkId,
    /// Bundles without a decision.
    waiting: usize,
    /// Reason for the sender, if one of them is refused.
    refused: Option<CancelReason>,
    file: Option<FileName>,
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
            None => self.not_wanted(now, block.id, CancelReason::User),
            Some(link) if self.neighbours.is_held(link) => self.held.push_back((link, block)),
            Some(link) => self.hand_on(now, link, block),
        }
    }

    /// Cancels a session whose block is refused.
    fn not_wanted(&mut self, now: Time, id: SessionId, why: CancelReason) {
        // The session may have ended in the meantime.
        let _over = self.ltp.cancel_for(now, id, why);
    }

    fn hand_on(&mut self, now: Time, link: LinkId, block: Block) {
        let Block { id, service, content, .. } = block;
        let mut incoming = Incoming { link, waiting: 0, refused: None, file: None };
        match content {
            BlockContent::File(name, len) => {
                let transfer = self.begins(link, id, len);
                incoming.waiting = 1;
                incoming.file = Some(name.clone());
                self.whole(link, transfer, Some((name, len)));
            }
            BlockContent::Bytes(bytes) if service == AGGREGATION_SERVICE => {
                let units = Unit::decode_all(&bytes).unwrap_or_default();
                let of_bundles = units.iter().filter(|unit| unit.service == BUNDLE_SERVICE);
                for unit in of_bundles {
                    incoming.waiting += 1;
                    self.bytes(link, id, bytes.slice_ref(unit.data));
                }
            }
            BlockContent::Bytes(bytes) => {
                incoming.waiting = 1;
                self.bytes(link, id, bytes);
            }
        }
        if incoming.waiting > 0 {
            self.incoming.insert(id, incoming);
            return;
        }
        // It is not a bundle, and a retransmission would not be one either.
        self.neighbours.statistics.faults += 1;
        self.neighbours
            .events
            .push_back(Event::PeerFault { link, what: "a block without a bundle" });
        self.accept(now, id);
    }

    fn begins(&mut self, link: LinkId, id: SessionId, len: u64) -> TransferId {
        let transfer = TransferId(self.next_transfer);
        self.next_transfer += 1;
        self.transfers.insert(transfer, id);
        self.neighbours.events.push_back(Event::Begins { link, transfer, bytes: Some(len) });
        transfer
    }

    fn bytes(&mut self, link: LinkId, id: SessionId, bytes: Bytes) {
        let transfer = self.begins(link, id, bytes.len() as u64);
        self.neighbours.events.push_back(Event::Piece { link, transfer, bytes });
        self.whole(link, transfer, None);
    }

    fn whole(&mut self, link: LinkId, transfer: TransferId, file: Option<(FileName, u64)>) {
        self.neighbours.statistics.received += 1;
        self.neighbours.events.push_back(Event::Whole { link, transfer, file });
    }

    /// Handles the agent's decision on a bundle.
    pub(super) fn decided(&mut self, now: Time, transfer: TransferId, why: Option<Refusal>) {
        let Some(id) = self.transfers.remove(&transfer) else { return };
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        incoming.waiting -= 1;
        incoming.refused = match (why, incoming.refused) {
            (Some(Refusal::NoResources | Refusal::Retransmit), _) => Some(CancelReason::User),
            // A retransmission would not be accepted either.
            (Some(Refusal::NotAcceptable), None) => Some(CancelReason::Unreachable),
            (Some(Refusal::NotAcceptable | Refusal::Completed) | None, before) => before,
        };
        if incoming.waiting > 0 {
            return;
        }
        let Some(Incoming { refused, file, .. }) = self.incoming.remove(&id) else { return };
        if let Some(reason) = refused {
            self.not_wanted(now, id, reason);
            return;
        }
        self.accept(now, id);
        if let Some(name) = file.filter(|_| why.is_some()) {
            // No bundle was accepted.
            let ticket = self.blocks.nobody();
            let request = FilestoreRequest::DenyFile(name);
            self.effects.push_back(StoreEffect::Filestore { ticket, request }.into());
        }
    }

    fn accept(&mut self, now: Time, id: SessionId) {
        // The session may have ended in the meantime.
        let _over = self.ltp.accept_block(now, id);
    }

    /// Handles a receiving session that ended before its block was accepted: the sender cancelled,
    /// or nothing more came.
    pub(super) fn not_received(&mut self, id: SessionId) {
        self.held.retain(|(_, block)| block.id != id);
    }

    /// Resumes reporting a neighbour's bundles to the agent.
    pub(super) fn resume(&mut self, now: Time, link: LinkId) {
        self.neighbours.hold(link, false);
        for (of, block) in std::mem::take(&mut self.held) {
            if of == link {
                self.hand_on(now, link, block);
            } else {
                self.held.push_back((of, block));
            }
        }
    }
}
