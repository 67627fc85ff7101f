//! PDUs in transit below, and the indications that depend on them.

use std::collections::{BTreeMap, VecDeque};

use ::cfdp::pdu::{
    Body, ConditionCode, DeliveryCode, FileStatus, Header, Pdu, TransactionId, TransmissionMode,
};
use ::cfdp::{self, Role, TransactionFinished};
use bytes::Bytes;
use engine::{Engine as _, Input, PathEvent, Time};

use super::below::{Below, Refused, Unit};
use super::{Indication, LayeredEntity};

/// A PDU in transit.
#[derive(Debug)]
struct Flight {
    to: u64,
    /// The PDU, while it may have to be sent again.
    pdu: Bytes,
    tries: u32,
    id: Option<TransactionId>,
    is_acknowledged: bool,
    /// Whether it ends a file of class 2, to which the receiver replies with all missing parts.
    is_end: bool,
}

/// PDUs in transit.
#[derive(Debug, Default)]
pub(super) struct Sending {
    flights: BTreeMap<Unit, Flight>,
    /// PDUs to send again: refused by the layer below for lack of room, or failed.
    again: VecDeque<Flight>,
    /// Number for each entity, including those waiting.
    counts: BTreeMap<u64, usize>,
    /// Finished puts with PDUs in transit.
    ends: BTreeMap<TransactionId, TransactionFinished>,
    /// Whether the layer below may have room since the last refusal.
    pub(super) is_room: bool,
}

impl Sending {
    pub(super) fn under_way(&self) -> usize {
        self.flights.len() + self.again.len()
    }

    pub(super) fn memory(&self) -> usize {
        let flights = self.flights.values().chain(&self.again);
        flights.map(|flight| flight.pdu.len() + size_of::<Flight>()).sum()
    }

    fn has(&self, id: TransactionId) -> bool {
        self.flights.values().chain(&self.again).any(|flight| flight.id == Some(id))
    }

    /// Forgets an entity without PDUs in transit.
    pub(super) fn forget(&mut self, number: u64) {
        self.counts.remove(&number);
    }

    pub(super) fn count(&self, to: u64) -> usize {
        self.counts.get(&to).copied().unwrap_or_default()
    }
}

/// Whether a PDU announces the end of a file.
fn is_end(pdu: &[u8]) -> bool {
    let decoded = Pdu::decode(pdu).map(|pdu| pdu.body);
    matches!(decoded, Ok(Body::Eof(eof)) if eof.condition == ConditionCode::NoError)
}

impl<B: Below> LayeredEntity<B> {
    /// Passes waiting PDUs and new ones of the entity to the layer below, as far as there is room;
    /// returns whether there were any.
    pub(super) fn hand_down(&mut self, now: Time) -> bool {
        let mut some = self.hand_down_again(now);
        loop {
            self.tx.clear();
            let Some(transmit) = self.entity.poll_transmit(now, &mut self.tx) else { return some };
            some = true;
            let Some(to) = self.by_path.get(&transmit.path).copied() else { continue };
            let pdu = Bytes::copy_from_slice(self.tx.bytes());
            let header = Header::decode(&pdu).ok();
            let flight = Flight {
                to,
                pdu,
                tries: 0,
                id: header.map(|header| header.transaction()),
                is_acknowledged: header
                    .is_some_and(|header| header.mode == TransmissionMode::Acknowledged),
                is_end: false,
            };
            let flight = Flight { is_end: flight.is_acknowledged && is_end(&flight.pdu), ..flight };
            self.statistics.carried += 1;
            *self.sending.counts.entry(to).or_default() += 1;
            if let Some(flight) = self.carry(now, flight) {
                self.sending.again.push_back(flight);
            }
            self.look_at_window(now, to);
        }
    }

    fn hand_down_again(&mut self, now: Time) -> bool {
        if !std::mem::take(&mut self.sending.is_room) {
            return false;
        }
        let waiting = std::mem::take(&mut self.sending.again);
        let before = waiting.len();
        for flight in waiting {
            if let Some(flight) = self.carry(now, flight) {
                self.sending.again.push_back(flight);
            }
        }
        self.sending.again.len() < before
    }

    /// Passes a PDU to the layer below; returns it if there is no room.
    fn carry(&mut self, now: Time, mut flight: Flight) -> Option<Flight> {
        // The layer below may deliver it first: then all data in transit would be requested again.
        if flight.is_end && flight.id.is_some_and(|id| self.sending.has(id)) {
            return Some(flight);
        }
        match self.below.carry(now, flight.to, flight.pdu.clone()) {
            Ok(unit) => {
                if flight.tries > 0 {
                    self.statistics.repeated += 1;
                }
                flight.tries += 1;
                if !B::REPEATS {
                    flight.pdu = Bytes::new();
                }
                self.sending.flights.insert(unit, flight);
                None
            }
            Err(Refused::Later) => Some(flight),
            Err(Refused::Never(why)) => {
                self.lost(now, &flight, why);
                None
            }
        }
    }

    /// Handles a PDU that was delivered, or sent.
    pub(super) fn delivered(&mut self, now: Time, unit: Unit) {
        let Some(flight) = self.sending.flights.remove(&unit) else { return };
        self.gone(now, &flight);
    }

    pub(super) fn failed(&mut self, now: Time, unit: Unit, is_final: bool, why: &'static str) {
        let Some(flight) = self.sending.flights.remove(&unit) else { return };
        self.sending.is_room = true;
        if B::REPEATS && !is_final && flight.tries < self.config.attempts {
            self.sending.again.push_back(flight);
        } else {
            self.lost(now, &flight, why);
        }
    }

    /// Removes a PDU from those in transit.
    fn gone(&mut self, now: Time, flight: &Flight) {
        self.sending.is_room = true;
        let count = self.sending.counts.entry(flight.to).or_default();
        *count -= 1;
        if *count == 0 {
            self.sending.counts.remove(&flight.to);
        }
        self.look_at_window(now, flight.to);
        if let Some(id) = flight.id.filter(|id| !self.sending.has(*id))
            && let Some(finished) = self.sending.ends.remove(&id)
        {
            let indication = cfdp::Indication::TransactionFinished(finished);
            self.indications.push_back(Indication::Cfdp(indication));
        }
    }

    /// Handles a lost PDU. In class 2 the receiver requests it again; a put of class 1 has failed.
    fn lost(&mut self, now: Time, flight: &Flight, why: &'static str) {
        self.statistics.lost += 1;
        if let Some(id) = flight.id {
            self.indications.push_back(Indication::Lost { id, why });
            let is_ours = id.source.0 == self.entity.config().entity;
            if is_ours && !flight.is_acknowledged {
                if let Some(finished) = self.sending.ends.get_mut(&id) {
                    finished.condition = ConditionCode::CancelRequestReceived;
                    finished.delivery = DeliveryCode::Incomplete;
                } else {
                    // The transaction may already be over.
                    let _over = self.entity.cancel(now, id);
                }
            }
        }
        self.gone(now, flight);
    }

    /// Blocks or unblocks the entity's PDUs for a peer, by the window.
    pub(super) fn look_at_window(&mut self, now: Time, to: u64) {
        let most = self.config.limits.window;
        let window = self.below.window(to).map_or(most, |fills| fills.min(most));
        let is_full = self.sending.count(to) >= window.max(1);
        let Some(peer) = self.peers.get_mut(&to).filter(|peer| peer.is_up) else { return };
        if peer.is_blocked == is_full {
            return;
        }
        peer.is_blocked = is_full;
        let event = if is_full { PathEvent::Blocked } else { PathEvent::Writable };
        let path = peer.path;
        self.entity.handle_input(now, Input::Path(path, event));
    }

    /// Reports an indication of the entity. Holds back Transaction-Finished of a complete
    /// but unconfirmed put until its PDUs are delivered below.
    pub(super) fn indicate(&mut self, indication: cfdp::Indication) {
        match indication {
            cfdp::Indication::TransactionFinished(finished)
                if finished.role == Role::Sender
                    && finished.delivery == DeliveryCode::Complete
                    && finished.file_status == FileStatus::Unreported
                    && self.sending.has(finished.id) =>
            {
                self.sending.ends.insert(finished.id, finished);
            }
            indication => self.indications.push_back(Indication::Cfdp(indication)),
        }
    }
}
