//! Reception of payloads, one after the other.

use std::collections::VecDeque;

use bytes::BytesMut;
use engine::{EffectError, EffectResult, FileName, FilestoreRequest};

use super::joining::{self, Joined};
use super::taking::{Step, Taking};
use super::{Files, Indication, Limits, Use};
use crate::app::{ArrivalId, Delivery, Order, Piece};
use crate::codec::file_part::HEADER_MAX;

/// Payloads that came, and the files that they belong to.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) limits: Limits,
    waiting: VecDeque<Delivery>,
    pub(super) current: Option<Box<Taking>>,
    pub(super) files: joining::Files,
    /// Number of payloads received.
    count: u64,
}

impl Receiving {
    pub(super) fn new(limits: Limits) -> Self {
        let (waiting, files) = (VecDeque::new(), joining::Files::default());
        Self { limits, waiting, current: None, files, count: 0 }
    }

    pub(super) fn under_way(&self) -> usize {
        self.waiting.len() + usize::from(self.current.is_some())
    }

    pub(super) fn takes_more(&self) -> bool {
        self.waiting.len() < self.limits.arrivals
    }
}

impl Files {
    /// Incomplete files.
    pub fn joined(&self) -> impl Iterator<Item = &Joined> {
        self.receiving.files.incomplete()
    }

    /// The incomplete file of which a part is arriving, with the number of bytes of the part.
    #[must_use]
    pub fn arriving(&self) -> Option<(&Joined, u64)> {
        let taking = self.receiving.current.as_deref()?;
        let Step::Part(part) = &taking.step else { return None };
        Some((self.receiving.files.get(&part.key)?, part.bytes()))
    }

    pub(super) fn came(&mut self, delivery: Delivery) {
        self.receiving.waiting.push_back(delivery);
        self.begin_next();
    }

    fn begin_next(&mut self) {
        while self.receiving.current.is_none()
            && let Some(mut delivery) = self.receiving.waiting.pop_front()
        {
            let Piece { bytes: ahead, is_last } = std::mem::take(&mut delivery.first);
            let step = Step::Beginning;
            let taking = Taking { delivery, ahead, is_last, is_void: false, step };
            self.look(Box::new(taking));
        }
    }

    /// Decides what a payload is, once enough of it is there.
    fn look(&mut self, taking: Box<Taking>) {
        if taking.ahead.len() < HEADER_MAX && !taking.is_last {
            return self.pull(taking);
        }
        if let Some(taking) = self.begin_part(taking) {
            self.begin_whole(taking, None);
        }
    }

    /// Asks for the next bytes.
    pub(super) fn pull(&mut self, taking: Box<Taking>) {
        if self.is_stopped || taking.is_void {
            return self.abandon(taking);
        }
        self.orders.push_back(Order::Read(taking.delivery.arrival));
        self.receiving.current = Some(taking);
    }

    pub(super) fn on_read(&mut self, arrival: ArrivalId, piece: Piece) {
        let Some(mut taking) = self.take_current(arrival) else { return };
        taking.is_last = piece.is_last;
        match &taking.step {
            Step::Beginning => {
                let mut beginning = BytesMut::from(&taking.ahead[..]);
                beginning.extend_from_slice(&piece.bytes);
                taking.ahead = beginning.freeze();
                self.look(taking);
            }
            Step::Part(_) => {
                taking.ahead = piece.bytes;
                self.go_on_with_part(taking);
            }
            Step::Whole(_) => {
                taking.ahead = piece.bytes;
                self.go_on_with_whole(taking);
            }
        }
        self.begin_next();
    }

    pub(super) fn receiving_done(&mut self, arrival: ArrivalId, result: EffectResult) {
        let Some(taking) = self.take_current(arrival) else {
            return self.effects.close_orphan(&result);
        };
        match &taking.step {
            Step::Beginning => self.receiving.current = Some(taking),
            Step::Part(_) => self.part_done(taking, result),
            Step::Whole(_) => self.whole_done(taking, result),
        }
        self.begin_next();
    }

    fn take_current(&mut self, arrival: ArrivalId) -> Option<Box<Taking>> {
        self.receiving.current.take_if(|taking| taking.delivery.arrival == arrival)
    }

    /// Reports a file, and confirms its last bundle.
    pub(super) fn received(&mut self, taking: &Taking, name: String, place: FileName, bytes: u64) {
        let from = taking.delivery.source.clone();
        self.indications.push_back(Indication::Received { from, name, place, bytes });
        self.orders.push_back(Order::Confirm(taking.delivery.arrival));
        self.receiving.count += 1;
        if self.config.most.is_some_and(|most| self.receiving.count >= most) {
            self.is_stopped = true;
            self.leave_arrivals();
        }
    }

    /// Leaves a payload in the node that cannot be stored.
    pub(super) fn set_aside(&mut self, taking: Box<Taking>, error: EffectError) {
        let bundle = taking.delivery.bundle.clone();
        self.indications.push_back(Indication::SetAside { bundle, error });
        self.abandon(taking);
    }

    /// Leaves a payload in the node.
    fn abandon(&mut self, taking: Box<Taking>) {
        match taking.step {
            Step::Beginning => {}
            Step::Part(part) => self.abandon_part(&part),
            Step::Whole(whole) => self.abandon_whole(*whole),
        }
        if !taking.is_void {
            self.orders.push_back(Order::Leave(taking.delivery.arrival));
        }
    }

    /// Leaves all payloads in the node, but one that is in the store already.
    pub(super) fn leave_arrivals(&mut self) {
        let waiting = self.receiving.waiting.drain(..);
        self.orders.extend(waiting.map(|delivery| Order::Leave(delivery.arrival)));
        let pulling = |taking: &mut Box<Taking>| taking.step.is_pulling();
        if let Some(taking) = self.receiving.current.take_if(pulling) {
            self.abandon(taking);
        }
    }

    /// Forgets a payload that the node no longer has.
    pub(super) fn on_expired(&mut self, arrival: ArrivalId) {
        self.receiving.waiting.retain(|delivery| delivery.arrival != arrival);
        if let Some(mut taking) = self.take_current(arrival) {
            taking.is_void = true;
            if taking.step.is_pulling() {
                self.abandon(taking);
            } else {
                self.receiving.current = Some(taking);
            }
        }
        self.begin_next();
    }

    /// Forgets the payloads of a node that is gone.
    pub(super) fn forget_arrivals(&mut self) {
        self.receiving.waiting.clear();
        let current = self.receiving.current.as_ref().map(|taking| taking.delivery.arrival);
        if let Some(arrival) = current {
            self.on_expired(arrival);
        }
    }

    pub(super) fn delete(&mut self, name: FileName) {
        self.effects.filestore(Use::Nobody, FilestoreRequest::DenyFile(name));
    }
}
