//! Transport of an entity, whatever carries its PDUs.

use std::fmt;
use std::time::Duration;

use bp::app::{self, Application, Order};
use bp::codec::bp7::Eid;
use cfdp::pdu::TransactionId;
use cfdp::{Entity, PutRequest, SfoPutRequest, TraceControl};
use engine::{Engine, Time};
use ut::{Below, LayeredEntity, LtpLayer, OverService, ServiceLayer};

use super::report::{advancing, progress, report};
use crate::adapter::{engine_in, repeated_silence};
use crate::contract::{CfdpUser, Counters, Progress, RequestError, SendRequest, Transport};
use crate::event::{Event, TransferId};
use crate::overlay::Overlay;

/// An entity with what carries its PDUs.
pub trait EntityEngine: CfdpUser + Engine<Indication: Into<Event>> + fmt::Debug {
    /// Number of transactions that advance by themselves, or of PDUs below, if more.
    fn under_way(&self) -> usize {
        advancing(self.entity())
    }

    /// Number of datagrams, or PDUs of the entity, sent and received.
    fn datagrams(&self) -> (u64, u64) {
        let stats = self.entity().stats();
        (stats.sent.total(), stats.received.total())
    }

    /// Whether the peers have confirmed all that a layer below sent.
    fn is_confirmed(&self) -> bool {
        true
    }
}

impl EntityEngine for Entity {}

impl CfdpUser for Entity {
    fn entity(&self) -> &Entity {
        self
    }

    fn put(&mut self, now: Time, request: PutRequest) -> Result<TransactionId, cfdp::RequestError> {
        self.put(now, request)
    }

    fn report(&self, indication: cfdp::Indication) -> Event {
        report(self, indication)
    }

    fn replies_below(&self) -> bool {
        false
    }

    fn operate(&mut self, _now: Time, operation: &mut dyn FnMut(&mut Entity)) {
        operation(self);
    }
}

/// Layer that carries the PDUs of an entity.
pub trait Layer: Below + fmt::Debug + Sized {
    /// Whether it replies to its peer after a transfer.
    const REPLIES: bool;

    /// Number of its datagrams, sent and received, if it counts them.
    fn datagrams(entity: &LayeredEntity<Self>) -> Option<(u64, u64)>;

    /// Whether its peers have confirmed all that it sent.
    fn is_confirmed(entity: &LayeredEntity<Self>) -> bool;
}

impl Layer for LtpLayer {
    const REPLIES: bool = true;

    fn datagrams(entity: &LayeredEntity<Self>) -> Option<(u64, u64)> {
        let stats = entity.ltp().stats();
        Some((stats.sent.total(), stats.received.total()))
    }

    fn is_confirmed(entity: &LayeredEntity<Self>) -> bool {
        entity.ltp().sessions().next().is_none()
    }
}

impl Layer for ServiceLayer {
    const REPLIES: bool = false;

    fn datagrams(_entity: &LayeredEntity<Self>) -> Option<(u64, u64)> {
        None
    }

    fn is_confirmed(_entity: &LayeredEntity<Self>) -> bool {
        true
    }
}

impl<L: Layer> EntityEngine for LayeredEntity<L> {
    fn under_way(&self) -> usize {
        carried_under_way(self)
    }

    fn datagrams(&self) -> (u64, u64) {
        let stats = self.entity().stats();
        L::datagrams(self).unwrap_or((stats.sent.total(), stats.received.total()))
    }

    fn is_confirmed(&self) -> bool {
        L::is_confirmed(self)
    }
}

impl<L: Layer> CfdpUser for LayeredEntity<L> {
    fn entity(&self) -> &Entity {
        self.entity()
    }

    fn put(&mut self, now: Time, request: PutRequest) -> Result<TransactionId, cfdp::RequestError> {
        self.put(now, request)
    }

    fn report(&self, indication: cfdp::Indication) -> Event {
        report(self.entity(), indication)
    }

    fn replies_below(&self) -> bool {
        L::REPLIES
    }

    fn operate(&mut self, now: Time, operation: &mut dyn FnMut(&mut Entity)) {
        self.with_entity(now, |entity| operation(entity));
    }
}

/// Unfinished transfers of an entity over another protocol, as counted by
/// [`Transport::under_way`].
pub(crate) fn carried_under_way<B: Below>(carried: &LayeredEntity<B>) -> usize {
    advancing(carried.entity()).max(carried.under_way())
}

/// Transport of a CFDP entity.
#[derive(Debug)]
pub struct CfdpTransport<C: EntityEngine> {
    engine: Box<C>,
}

/// Transport of a CFDP entity whose PDUs are bundles of a node elsewhere.
pub type CfdpOverService = CfdpTransport<OverService>;

engine_in!(CfdpTransport<C>, engine, C: EntityEngine);

impl Application for CfdpOverService {
    fn endpoint(&self) -> Option<Eid> {
        self.engine.endpoint()
    }

    fn poll_order(&mut self) -> Option<Order> {
        self.engine.poll_order()
    }

    fn handle_event(&mut self, now: Time, event: app::Event) {
        self.engine.handle_event(now, event);
    }

    fn takes_more(&self) -> bool {
        self.engine.takes_more()
    }

    fn stop(&mut self) {
        self.engine.stop();
    }
}

impl<C: EntityEngine> CfdpTransport<C> {
    /// A transport of this entity.
    #[must_use]
    pub fn new(engine: C) -> Self {
        Self { engine: Box::new(engine) }
    }

    /// The entity with its layer.
    #[must_use]
    pub fn inner(&self) -> &C {
        &self.engine
    }

    /// Mutable entity with its layer.
    pub fn inner_mut(&mut self) -> &mut C {
        &mut self.engine
    }

    fn event(&mut self) -> Option<Event> {
        self.engine.poll_indication().map(Into::into)
    }
}

impl<C: EntityEngine> Transport for CfdpTransport<C> {
    fn send(&mut self, now: Time, request: &SendRequest) -> Result<TransferId, RequestError> {
        if request.overlay != Some(Overlay::Sfo) {
            return sent(self.engine.put(now, put_request(request)));
        }
        let request = SfoPutRequest {
            destination: request.destination,
            source: Some(request.source.clone()),
            destination_name: request.name.clone(),
            label: request.name.clone().into(),
            trace: TraceControl::Source,
            mode: request.class.into(),
            ..SfoPutRequest::default()
        };
        let mut put = Err(cfdp::RequestError::NoPath(request.destination));
        self.engine.operate(now, &mut |entity| put = entity.sfo_put(now, &request));
        sent(put)
    }

    fn cancel(&mut self, now: Time, id: &TransferId) {
        let mut known = self.engine.entity().transactions().map(|report| report.id);
        let found = known.find(|known| id.is(known));
        drop(known);
        if let Some(id) = found {
            // A completed transfer needs no cancellation.
            self.engine.operate(now, &mut |entity| drop(entity.cancel(now, id)));
        }
    }

    fn transfers(&self) -> Vec<Progress> {
        progress(self.engine.entity())
    }

    fn under_way(&self) -> usize {
        self.engine.under_way()
    }

    fn is_ready(&self) -> bool {
        self.engine.entity().is_restored()
    }

    fn counters(&self) -> Counters {
        Counters { datagrams: Some(self.engine.datagrams()), ..Counters::default() }
    }

    fn silence(&self) -> Option<Duration> {
        repeated_silence(self.transfers().is_empty() && self.engine.is_confirmed())
    }

    fn cfdp(&self) -> Option<&dyn CfdpUser> {
        Some(&*self.engine)
    }

    fn cfdp_mut(&mut self) -> Option<&mut dyn CfdpUser> {
        Some(&mut *self.engine)
    }
}

/// Transfer of a requested transaction.
pub(crate) fn sent(
    answer: Result<TransactionId, cfdp::RequestError>,
) -> Result<TransferId, RequestError> {
    answer.map(TransferId::from).map_err(RequestError::new)
}

/// A request to send a file by CFDP.
pub(crate) fn put_request(send: &SendRequest) -> PutRequest {
    PutRequest {
        destination: send.destination,
        source: Some(send.source.clone()),
        source_name: Some(send.name.clone()),
        destination_name: send.name.clone(),
        mode: Some(send.class.into()),
        ..PutRequest::default()
    }
}
