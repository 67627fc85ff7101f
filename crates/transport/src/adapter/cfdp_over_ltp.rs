//! CFDP over LTP: an entity whose PDUs are blocks of LTP.

use std::time::Duration;

use cfdp::pdu::{TransactionId, Width};
use cfdp::{self, Entity};
use engine::{Engine as _, PathId, Rng, Time};
use ut::{self, Below, LayeredEntity, LtpLayer, OverLtp, ServiceLayer};

use super::cfdp::{progress, report, sent, tell_of_ends, transaction};
use super::{engine_in, repeated_silence};
use crate::adapter::layered_cfdp::{
    CfdpLtpConfig, carried_under_way, cfdp_ltp_config, put_request,
};
use crate::contract::{
    Adapter, CfdpUser, Configuration, Counters, Kind, Process, Progress, Protocol, RequestError,
    SendRequest, Spool, Transport,
};
use crate::event::{Event, TransferId};
use crate::mib::Class;
use crate::settings::{Schema, Settings};
use crate::text::SpecError;

/// Adapter of the protocol.
pub(crate) struct CfdpOverLtp;

impl Schema for CfdpOverLtp {
    fn title(&self) -> &'static str {
        "CFDP over LTP"
    }

    fn settings(&self) -> Box<dyn session::settings::Settings> {
        Box::new(CfdpLtpConfig::default())
    }
}

impl Adapter for CfdpOverLtp {
    fn spools(&self) -> &'static [Spool] {
        const { &[super::cfdp::SPOOL, Spool::of(ltp::SPOOL_PREFIX)] }
    }

    fn resumes(&self, _kind: Kind) -> bool {
        true
    }

    fn configuration(
        &self,
        protocol: &Protocol,
        _entity: u64,
    ) -> Result<Box<dyn Configuration>, SpecError> {
        Ok(Box::new(cfdp_ltp_config(protocol)?))
    }

    fn class(&self, settings: &Settings, remote: Option<u64>) -> Option<Class> {
        Class::of(&settings.below("cfdp")?, remote)
    }
}

impl Configuration for CfdpLtpConfig {
    fn build(&self, rng: Rng) -> Box<dyn Transport> {
        let Self { cfdp, ut, below } = self;
        let entity = OverLtp::over_ltp(cfdp.clone(), ut.clone(), below, rng);
        Box::new(EntityOver::new(entity))
    }

    fn adapter(&self) -> &'static dyn Adapter {
        &CfdpOverLtp
    }

    fn apply(&mut self, settings: &Settings) -> Result<(), SpecError> {
        settings.apply(self)
    }

    fn settings(&self) -> Settings {
        Settings::of(self)
    }

    fn number(&self) -> Option<u64> {
        Some(self.cfdp.entity)
    }

    fn set_entity(&mut self, entity: u64) {
        self.cfdp.entity = entity;
        self.below.ltp.engine = entity;
        tell_of_ends(&mut self.cfdp);
    }

    fn set_path(&mut self, entity: u64, path: PathId) {
        let ltp = &mut self.below.ltp;
        let remote = ltp.remote(entity).clone();
        ltp.remotes.entry(entity).or_insert(remote).path = Some(path);
        self.ut.peers.insert(entity);
    }

    fn set_inactivity(&mut self, silence: Duration) {
        // The entity's timers follow those of LTP.
        let ltp = &mut self.below.ltp;
        let remotes = ltp.remotes.values_mut().chain([&mut ltp.default_remote]);
        remotes.for_each(|remote| remote.inactivity = ltp::Timer::Fixed(silence));
    }

    fn allow_catch_up(&mut self, least: Duration) {
        let ltp = &mut self.below.ltp;
        ltp.catch_up = least.max(ltp.catch_up);
    }

    fn prepare(&mut self, process: &Process) -> Result<(), SpecError> {
        self.cfdp.sequence_width = Width::FOUR;
        self.below.ltp.catch_up = process.catch_up;
        self.below.ltp.default_remote.unpaced_window = Some(process.unpaced_window);
        Ok(())
    }

    fn finish(&mut self, process: &Process) -> Result<Option<u64>, SpecError> {
        self.set_entity(self.cfdp.entity);
        let ltp = &mut self.below.ltp;
        if process.rate_bps.is_some() {
            // A remote's rate would override the given rate of the path.
            ltp.default_remote.rate_bps = None;
            ltp.remotes.values_mut().for_each(|remote| remote.rate_bps = None);
        }
        // A client keeps no session records.
        ltp.journal &= process.role.is_server();
        let remote = process.remote.map(|remote| ltp.remote(remote));
        Ok(remote.unwrap_or(&ltp.default_remote).rate_bps)
    }

    fn peer_ports(&self) -> usize {
        super::ltp::PEER_PORTS
    }

    fn cfdp(&mut self) -> Option<&mut cfdp::Config> {
        Some(&mut self.cfdp)
    }
}

/// Layer that carries the PDUs of an entity.
pub trait Layer: Below + std::fmt::Debug {
    /// Whether it replies to its peer after a transfer.
    const REPLIES: bool;

    /// Number of datagrams, or PDUs of the entity, sent and received.
    fn datagrams(entity: &LayeredEntity<Self>) -> (u64, u64)
    where
        Self: Sized;

    /// Whether its peers have confirmed all that it sent.
    fn is_confirmed(entity: &LayeredEntity<Self>) -> bool
    where
        Self: Sized;
}

impl Layer for LtpLayer {
    const REPLIES: bool = true;

    fn datagrams(entity: &LayeredEntity<Self>) -> (u64, u64) {
        let stats = entity.ltp().stats();
        (stats.sent.total(), stats.received.total())
    }

    fn is_confirmed(entity: &LayeredEntity<Self>) -> bool {
        entity.ltp().sessions().next().is_none()
    }
}

impl Layer for ServiceLayer {
    const REPLIES: bool = false;

    fn datagrams(entity: &LayeredEntity<Self>) -> (u64, u64) {
        let stats = entity.entity().stats();
        (stats.sent.total(), stats.received.total())
    }

    fn is_confirmed(_entity: &LayeredEntity<Self>) -> bool {
        true
    }
}

/// Transport of a CFDP entity on a layer below it.
#[derive(Debug)]
pub struct EntityOver<L: Layer> {
    entity: Box<LayeredEntity<L>>,
}

/// Transport of a CFDP entity whose PDUs are bundles of a node elsewhere.
pub type CfdpOverService = EntityOver<ServiceLayer>;

engine_in!(EntityOver<L>, entity, L: Layer);

impl<L: Layer> EntityOver<L> {
    /// A transport of this entity.
    #[must_use]
    pub fn new(entity: LayeredEntity<L>) -> Self {
        Self { entity: Box::new(entity) }
    }

    /// The entity with its layer.
    #[must_use]
    pub fn inner(&self) -> &LayeredEntity<L> {
        &self.entity
    }

    /// Mutable entity with its layer.
    pub fn inner_mut(&mut self) -> &mut LayeredEntity<L> {
        &mut self.entity
    }

    fn event(&mut self) -> Option<Event> {
        self.entity.poll_indication().map(event)
    }
}

/// Event of an entity over another protocol.
pub(super) fn event(indication: ut::Indication) -> Event {
    match indication {
        ut::Indication::Cfdp(indication) => indication.into(),
        ut::Indication::Lost { why, .. } => Event::Lost(why),
        ut::Indication::Noted(note) => Event::Warning(note.to_string()),
    }
}

impl<L: Layer> Transport for EntityOver<L> {
    fn send(&mut self, now: Time, request: &SendRequest) -> Result<TransferId, RequestError> {
        sent(self.entity.put(now, put_request(request)))
    }

    fn cancel(&mut self, now: Time, id: &TransferId) {
        if let Some(id) = transaction(self.entity.entity(), id) {
            // A completed transfer needs no cancellation.
            drop(self.entity.cancel(now, id));
        }
    }

    fn transfers(&self) -> Vec<Progress> {
        progress(self.entity.entity())
    }

    fn under_way(&self) -> usize {
        carried_under_way(&self.entity)
    }

    fn is_ready(&self) -> bool {
        self.entity.entity().is_restored()
    }

    fn counters(&self) -> Counters {
        Counters { datagrams: Some(L::datagrams(&self.entity)), ..Counters::default() }
    }

    fn silence(&self) -> Option<Duration> {
        repeated_silence(self.transfers().is_empty() && L::is_confirmed(&self.entity))
    }

    fn cfdp(&self) -> Option<&dyn CfdpUser> {
        Some(self)
    }

    fn cfdp_mut(&mut self) -> Option<&mut dyn CfdpUser> {
        Some(self)
    }
}

impl<L: Layer> CfdpUser for EntityOver<L> {
    fn entity(&self) -> &Entity {
        self.entity.entity()
    }

    fn put(
        &mut self,
        now: Time,
        request: cfdp::PutRequest,
    ) -> Result<TransactionId, cfdp::RequestError> {
        self.entity.put(now, request)
    }

    fn report(&self, indication: cfdp::Indication) -> Event {
        report(self.entity(), indication)
    }

    fn replies_below(&self) -> bool {
        L::REPLIES
    }

    fn operate(&mut self, now: Time, operation: &mut dyn FnMut(&mut Entity)) {
        self.entity.with_entity(now, |entity| operation(entity));
    }
}
