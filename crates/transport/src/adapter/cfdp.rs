//! CFDP: an entity whose PDUs are datagrams.

use std::time::Duration;

use cfdp::pdu::{ConditionCode, DeliveryCode, FaultHandler, FileStatus, TransactionId, Width};
use cfdp::{
    self, Entity, Indication, Limit, NoRoom, OperationIndication, Role, State, TransactionFinished,
};
use engine::{Engine as _, PathId, Rng, Time};

use super::{engine_in, no_profile, repeated_silence};
use crate::adapter::layered_cfdp::{put_request, transactions};
use crate::contract::{
    Adapter, CfdpUser, Configuration, Counters, Kind, Process, Progress, Protocol, RequestError,
    Role as ProcessRole, SendRequest, Spool, Transport,
};
use crate::event::{Ended, Event, TransferId};
use crate::mib::Class;
use crate::overlay::Overlay;
use crate::settings::{Schema, Settings};
use crate::text::SpecError;

/// Configuration of an entity.
#[derive(Clone, Debug)]
struct EntityConfiguration {
    config: cfdp::Config,
    has_profile: bool,
}

/// Profiles of CFDP.
pub const CFDP_PROFILES: &[&str] = &["default", "gsfc-2007", "extended-b3"];

/// CFDP configuration of a profile, slowlight's own if none is named.
///
/// # Errors
///
/// There is no such profile.
pub fn cfdp_config(protocol: &Protocol) -> Result<cfdp::Config, SpecError> {
    let Some(name) = &protocol.profile else { return Ok(cfdp::Config::default()) };
    cfdp::profile(name).ok_or_else(|| no_profile(protocol.kind.name(), name, CFDP_PROFILES))
}

/// Makes an entity indicate the end of each transaction, regardless of its MIB: a command has no
/// other report of a file.
pub fn tell_of_ends(config: &mut cfdp::Config) {
    config.indications.transaction_finished = true;
}

/// Working files of an entity.
pub(super) const SPOOL: Spool =
    Spool { prefix: cfdp::SPOOL_PREFIX, record_prefix: cfdp::RECORD_PREFIX };

/// Adapter of the protocol.
pub(crate) struct Cfdp;

impl Schema for Cfdp {
    fn title(&self) -> &'static str {
        "CFDP"
    }

    fn settings(&self) -> Box<dyn session::settings::Settings> {
        Box::new(cfdp::Config::default())
    }
}

impl Adapter for Cfdp {
    fn spools(&self) -> &'static [Spool] {
        &[SPOOL]
    }

    fn resumes(&self, _kind: Kind) -> bool {
        true
    }

    fn configuration(
        &self,
        protocol: &Protocol,
        _entity: u64,
    ) -> Result<Box<dyn Configuration>, SpecError> {
        let config = cfdp_config(protocol)?;
        Ok(Box::new(EntityConfiguration { config, has_profile: protocol.profile.is_some() }))
    }

    fn class(&self, settings: &Settings, remote: Option<u64>) -> Option<Class> {
        Class::of(settings, remote)
    }

    fn add_route(
        &self,
        settings: &mut Settings,
        to: u64,
        next: u64,
    ) -> Result<Option<u64>, SpecError> {
        let too_large = |_| SpecError::invalid(format!("{next} is too large for a number"));
        let next = i64::try_from(next).map_err(too_large)?;
        let known = settings.set(&["user_operations", "routes", &to.to_string()], next);
        Ok(known.and_then(|known| u64::try_from(known.as_integer()?).ok()))
    }

    fn permit(
        &self,
        settings: &mut Settings,
        from: u64,
        overlay: Overlay,
    ) -> Result<(), SpecError> {
        let key = match overlay {
            Overlay::Sfo => "store_and_forward",
            Overlay::Extended => "relay",
        };
        let path = ["remotes", &from.to_string(), "permissions", key];
        if settings.get(&path).is_none() {
            settings.set(&path, true);
        }
        Ok(())
    }
}

impl Configuration for EntityConfiguration {
    fn build(&self, rng: Rng) -> Box<dyn Transport> {
        Box::new(EntityTransport { entity: Box::new(Entity::new(self.config.clone(), rng)) })
    }

    fn adapter(&self) -> &'static dyn Adapter {
        &Cfdp
    }

    fn apply(&mut self, settings: &Settings) -> Result<(), SpecError> {
        settings.apply(&mut self.config)
    }

    fn settings(&self) -> Settings {
        Settings::of(&self.config)
    }

    fn number(&self) -> Option<u64> {
        Some(self.config.entity)
    }

    fn set_entity(&mut self, entity: u64) {
        self.config.entity = entity;
        tell_of_ends(&mut self.config);
    }

    fn set_path(&mut self, entity: u64, path: PathId) {
        let remote = self.config.remote(entity).clone();
        self.config.remotes.entry(entity).or_insert(remote).path = Some(path);
    }

    fn set_inactivity(&mut self, silence: Duration) {
        let config = &mut self.config;
        let remotes = config.remotes.values_mut().chain([&mut config.default_remote]);
        remotes.for_each(|remote| remote.inactivity = cfdp::Timer::Fixed(silence));
    }

    fn allow_catch_up(&mut self, least: Duration) {
        self.config.catch_up = least.max(self.config.catch_up);
    }

    fn prepare(&mut self, process: &Process) -> Result<(), SpecError> {
        // The engines of profiles start at a fixed number in each run. Here a reused number would
        // get the result of the transaction that had it first.
        self.config.first_sequence = None;
        self.config.catch_up = process.catch_up;
        self.config.default_remote.unpaced_window = Some(process.unpaced_window);
        // What was received survives a silence, and the sender's command resumes.
        match process.role {
            ProcessRole::Client { .. } => {
                let silence = ConditionCode::InactivityDetected;
                self.config.faults.set(silence, FaultHandler::Suspend);
            }
            ProcessRole::Server { .. } => self.config.keep_silent = true,
        }
        self.config.indications.suspended = true;
        if !self.has_profile {
            // Random numbers must not collide: 2^32 of them.
            self.config.sequence_width = Width::FOUR;
        }
        Ok(())
    }

    fn finish(&mut self, process: &Process) -> Result<Option<u64>, SpecError> {
        let config = &mut self.config;
        if process.rate_bps.is_some() {
            // A remote's rate would override the given rate of the path.
            config.default_remote.rate_bps = None;
            config.remotes.values_mut().for_each(|remote| remote.rate_bps = None);
        }
        tell_of_ends(config);
        let remote = process.remote.map(|remote| config.remote(remote));
        Ok(remote.unwrap_or(&config.default_remote).rate_bps)
    }

    fn cfdp(&mut self) -> Option<&mut cfdp::Config> {
        Some(&mut self.config)
    }
}

#[derive(Debug)]
struct EntityTransport {
    entity: Box<Entity>,
}

engine_in!(EntityTransport, entity);

impl EntityTransport {
    fn event(&mut self) -> Option<Event> {
        self.entity.poll_indication().map(Event::from)
    }
}

impl Transport for EntityTransport {
    fn send(&mut self, now: Time, request: &SendRequest) -> Result<TransferId, RequestError> {
        if request.overlay != Some(Overlay::Sfo) {
            return sent(self.entity.put(now, put_request(request)));
        }
        let request = cfdp::SfoPutRequest {
            destination: request.destination,
            source: Some(request.source.clone()),
            destination_name: request.name.clone(),
            label: request.name.clone().into(),
            trace: cfdp::TraceControl::Source,
            mode: request.class.into(),
            ..cfdp::SfoPutRequest::default()
        };
        sent(self.entity.sfo_put(now, &request))
    }

    fn cancel(&mut self, now: Time, id: &TransferId) {
        if let Some(id) = transaction(&self.entity, id) {
            // A completed transfer needs no cancellation.
            drop(self.entity.cancel(now, id));
        }
    }

    fn transfers(&self) -> Vec<Progress> {
        progress(&self.entity)
    }

    fn under_way(&self) -> usize {
        transactions(&self.entity)
    }

    fn is_ready(&self) -> bool {
        self.entity.is_restored()
    }

    fn counters(&self) -> Counters {
        let stats = self.entity.stats();
        let datagrams = Some((stats.sent.total(), stats.received.total()));
        Counters { datagrams, ..Counters::default() }
    }

    fn silence(&self) -> Option<Duration> {
        repeated_silence(self.transfers().is_empty())
    }

    fn cfdp(&self) -> Option<&dyn CfdpUser> {
        Some(self)
    }

    fn cfdp_mut(&mut self) -> Option<&mut dyn CfdpUser> {
        Some(self)
    }
}

impl CfdpUser for EntityTransport {
    fn entity(&self) -> &Entity {
        &self.entity
    }

    fn put(
        &mut self,
        now: Time,
        request: cfdp::PutRequest,
    ) -> Result<TransactionId, cfdp::RequestError> {
        self.entity.put(now, request)
    }

    fn report(&self, indication: Indication) -> Event {
        report(&self.entity, indication)
    }

    fn replies_below(&self) -> bool {
        false
    }

    fn operate(&mut self, _now: Time, operation: &mut dyn FnMut(&mut Entity)) {
        operation(&mut self.entity);
    }
}

/// Transfer of a requested transaction.
pub(super) fn sent(
    answer: Result<TransactionId, cfdp::RequestError>,
) -> Result<TransferId, RequestError> {
    answer.map(TransferId::from).map_err(RequestError::new)
}

/// Transaction of a transfer.
pub(super) fn transaction(entity: &Entity, id: &TransferId) -> Option<TransactionId> {
    entity.transactions().map(|report| report.id).find(|known| id.is(known))
}

/// Progress of an entity's transactions.
pub(super) fn progress(entity: &Entity) -> Vec<Progress> {
    let progress = |report: cfdp::Report| Progress {
        id: report.id.into(),
        bytes: report.progress,
        size: report.size,
        name: report.destination_name,
        wait: match report.state {
            State::Opening => Some("opening"),
            State::Suspended => Some("suspended"),
            State::Waiting => Some("waiting for the receiver"),
            State::Transferring | State::Completing | State::Closing => None,
        },
    };
    entity.transactions().map(progress).collect()
}

/// Indication of an entity, as other protocols report theirs.
pub(super) fn report(entity: &Entity, indication: Indication) -> Event {
    match indication {
        Indication::Restored { transactions } => Event::Restored(transactions),
        Indication::MetadataReceived(metadata) if metadata.destination_name.is_empty() => {
            let (id, from) = (metadata.id, metadata.source);
            Event::Notice(format!("{id}: messages from entity {from}"))
        }
        Indication::MetadataReceived(metadata) => Event::Receiving {
            id: metadata.id.into(),
            name: metadata.destination_name,
            size: metadata.size,
            resumed: 0,
        },
        Indication::TransactionFinished(finished) => Event::Ended(ended(finished)),
        Indication::Abandoned { id, condition, .. } => {
            Event::Abandoned { id: id.into(), why: condition.to_string() }
        }
        Indication::Displaced(id) => Event::Continued(id.into()),
        Indication::NoRoom(NoRoom { id, name, progress }) => {
            Event::NoRoom { id: id.into(), name, bytes: progress }
        }
        Indication::FinishedRepeated { id, condition, delivery } => Event::Repeated {
            id: id.into(),
            condition: condition.to_string(),
            is_whole: condition == ConditionCode::NoError && delivery == DeliveryCode::Complete,
        },
        Indication::Fault { id, condition, .. } => Event::Notice(format!("{id}: {condition}")),
        Indication::Suspended { id, condition: ConditionCode::InactivityDetected } => {
            let is_ours = id.source.0 == entity.config().entity;
            let rest = if is_ours { "" } else { "; what arrived is kept until the sender resumes" };
            let why = format!("{}{rest}", ConditionCode::InactivityDetected);
            Event::Abandoned { id: id.into(), why }
        }
        Indication::Suspended { id, condition } => {
            Event::Notice(format!("{id}: suspended: {condition}"))
        }
        Indication::PeerError { id, error, .. } => Event::Notice(format!("{id}: {error}")),
        Indication::Misdirected { destination, .. } => {
            let here = entity.config().entity;
            Event::Notice(format!(
                "PDUs for entity {destination} come here and are dropped: this is entity {here}"
            ))
        }
        Indication::LimitReached(Limit::Transactions) => Event::Warning(
            "as many transactions as allowed are under way; one makes room for another".to_owned(),
        ),
        // Data dropped at these limits is requested again.
        Indication::LimitReached(
            limit @ (Limit::Gaps | Limit::WriteBuffer | Limit::Replies | Limit::Refusals),
        ) => Event::Log(format!("limit reached: {limit:?}")),
        Indication::RecordRefused { key } => {
            Event::Warning(format!("the record {key} of an earlier transfer cannot be read"))
        }
        Indication::UserOperation(operation) => operation_report(&operation),
        Indication::Transaction(_)
        | Indication::EofSent(_)
        | Indication::FileSegmentReceived { .. }
        | Indication::EofReceived(_)
        | Indication::Resumed { .. }
        | Indication::Report(_) => Event::Update,
    }
}

/// End of a transaction as its user sees it: completed if the file is in its place.
fn ended(finished: TransactionFinished) -> Ended {
    let at_sender = finished.role == Role::Sender;
    let is_kept = match finished.file_status {
        FileStatus::Retained | FileStatus::Unreported => true,
        FileStatus::Discarded | FileStatus::FilestoreRejection | FileStatus::Other(_) => false,
    };
    let is_error = finished.condition != ConditionCode::NoError;
    let is_whole = !is_error && finished.delivery == DeliveryCode::Complete && is_kept;
    let result = is_whole.then_some(()).ok_or(finished.condition);
    let (name, stored) = match finished.role {
        Role::Sender => (&finished.destination_name, None),
        Role::Receiver => (&finished.source_name, Some(finished.destination_name.clone())),
    };
    let end = Ended::new(finished.id.into(), at_sender, &**name, &result);
    Ended {
        stored,
        size: finished.size,
        // Class 1 without closure has no report.
        is_confirmed: !at_sender || is_error || finished.file_status != FileStatus::Unreported,
        peer: Some(finished.peer.0),
        transaction: Some(Box::new(finished)),
        ..end
    }
}

/// Report of an operation that another entity requested.
fn operation_report(operation: &OperationIndication) -> Event {
    Event::Notice(match operation {
        OperationIndication::Refused { from, id, reason } => {
            format!("{id}: refused a request of entity {from}: {reason}")
        }
        OperationIndication::ProxyPut { from, original, id } => {
            format!("{id}: sending a file for entity {from} ({original})")
        }
        OperationIndication::SfoForwarded { original, next, condition } => {
            format!("{original}: handed on to entity {next}: {condition}")
        }
        OperationIndication::Relayed { id, condition } => format!("{id}: relayed: {condition}"),
        // The transaction that brings a file or a reply has its own report.
        OperationIndication::SfoReceived { .. }
        | OperationIndication::SfoReport(_)
        | OperationIndication::ProxyPutResponse { .. }
        | OperationIndication::DirectoryListing { .. }
        | OperationIndication::RemoteStatusReport { .. }
        | OperationIndication::RemoteSuspend { .. }
        | OperationIndication::RemoteResume { .. } => return Event::Update,
    })
}
