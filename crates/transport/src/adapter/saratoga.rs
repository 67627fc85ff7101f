//! Saratoga: peers that put, fetch, list and delete files.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{Engine as _, PathId, Rng, Time};
use session::settings::{Visited, Visitor, Wrong};

use super::{engine_in, no_profile};
use crate::contract::{
    Adapter, Beacons, Configuration, Counters, Directories, Kind, NamedPeers, Process, Progress,
    Protocol, RequestError, Role, SendRequest, Spool, Transport,
};
use crate::event::{Ended, Event, Reception, TransferId};
use crate::settings::{Changes, Schema, Settings};
use crate::text::SpecError;

/// Settings for other peers, by name.
pub type Remotes = BTreeMap<String, saratoga::Remote>;

/// Configuration of a Saratoga peer, and settings for others until their paths exist.
#[derive(Clone, Debug, Default)]
pub struct SaratogaConfig {
    /// The node or peer itself.
    pub config: saratoga::Config,
    /// Settings for others, by their names: in a scenario their numbers.
    pub remotes: Remotes,
    /// Paths to others, by their numbers in the scenario.
    pub paths: BTreeMap<u64, PathId>,
}

impl session::settings::Settings for SaratogaConfig {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        let Self { config, remotes, .. } = self;
        saratoga::Named { config, remotes }.visit(visitor)
    }

    fn check(&mut self) -> Result<(), Wrong> {
        self.config.check()
    }
}

/// Changes of a Saratoga peer and of its settings for other peers.
pub type SaratogaSettings = Changes<SaratogaConfig>;

/// Profiles of Saratoga.
pub const SARATOGA_PROFILES: &[&str] = &["default", "deferred", "sha1", "tfrc", "grc-perl-2011"];

/// Saratoga configuration of a profile, slowlight's own if none is named.
///
/// # Errors
///
/// There is no such profile.
pub fn saratoga_config(protocol: &Protocol) -> Result<saratoga::Config, SpecError> {
    let Some(name) = &protocol.profile else { return Ok(saratoga::Config::default()) };
    let config = saratoga::profile(name);
    let config = config.ok_or_else(|| no_profile(protocol.kind.name(), name, SARATOGA_PROFILES))?;
    check_version(protocol, config.version)?;
    Ok(config)
}

pub(crate) fn check_version(
    protocol: &Protocol,
    version: saratoga::Version,
) -> Result<(), SpecError> {
    if version == saratoga::Version::V1 || protocol.kind.top().is_fetched {
        return Ok(());
    }
    let profile = protocol.profile.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
    let why = format!("version 0 of Saratoga knows no put: write \"saratoga-get{profile}\"");
    Err(SpecError::invalid(why))
}

/// Working files of a peer.
pub(crate) const SARATOGA_SPOOLS: &[Spool] = &[Spool::with_prefix(saratoga::SPOOL_PREFIX)];

/// Adapter of the protocol.
pub(crate) struct Saratoga;

impl Schema for Saratoga {
    fn title(&self) -> &'static str {
        "Saratoga"
    }

    fn settings(&self) -> Box<dyn session::settings::Settings> {
        Box::new(SaratogaConfig::default())
    }
}

impl Adapter for Saratoga {
    fn spools(&self) -> &'static [Spool] {
        SARATOGA_SPOOLS
    }

    fn record_prefixes(&self) -> &'static [&'static str] {
        &[saratoga::RECORD_PREFIX]
    }

    fn resumes(&self, kind: Kind) -> bool {
        kind.is_reliable()
    }

    fn configuration(
        &self,
        protocol: &Protocol,
        entity: u64,
    ) -> Result<Box<dyn Configuration>, SpecError> {
        let mut config = saratoga_config(protocol)?;
        config.eid = format!("ipn:{entity}.0");
        // In a simulated world of their own, any peer may fetch files.
        config.permissions.get = true;
        // Their hosts stand for a server that does not know who requests files.
        config.proof_from_all = true;
        Ok(Box::new(SaratogaConfig { config, ..SaratogaConfig::default() }))
    }
}

impl Configuration for SaratogaConfig {
    fn build(&self, rng: Rng) -> Box<dyn Transport> {
        let node = Box::new(saratoga::Node::new(self.config.clone(), rng));
        Box::new(SaratogaTransport { node, paths: self.paths.clone() })
    }

    fn adapter(&self) -> &'static dyn Adapter {
        &Saratoga
    }

    fn apply(&mut self, settings: &Settings) -> Result<(), SpecError> {
        settings.apply(self)
    }

    fn settings(&self) -> Settings {
        Settings::from_config(self)
    }

    fn check(&self, protocol: &Protocol) -> Result<(), SpecError> {
        check_version(protocol, self.config.version)
    }

    fn set_path(&mut self, entity: u64, path: PathId) {
        self.paths.insert(entity, path);
        self.config.known.insert(path);
        self.apply_to(path, &entity.to_string());
        self.add(path, None);
    }

    fn set_inactivity(&mut self, silence: Duration) {
        let Self { config, remotes, .. } = self;
        let known = config.remotes.values_mut().chain(remotes.values_mut());
        let all = known.chain([&mut config.default_remote]);
        all.for_each(|remote| remote.inactivity = saratoga::Timer::Fixed(silence));
    }

    fn allow_catch_up(&mut self, least: Duration) {
        self.config.catch_up = least.max(self.config.catch_up);
    }

    fn prepare(&mut self, process: &Process) -> Result<(), SpecError> {
        self.config.catch_up = process.catch_up;
        self.config.default_remote.unpaced_window = Some(process.unpaced_window);
        self.config.permissions = saratoga::Permissions::default();
        self.config.proof_from_all = false;
        Ok(())
    }

    fn finish(&mut self, process: &Process) -> Result<Option<u64>, SpecError> {
        if process.rate_bps.is_some() {
            self.config.default_remote.rate_bps = None;
            self.remotes.values_mut().for_each(|remote| remote.rate_bps = None);
        }
        match process.role {
            Role::Client { keeps } => {
                self.config.permissions =
                    saratoga::Permissions { put: false, get: false, delete: false };
                self.config.journal.enabled &= keeps;
            }
            Role::Server { gets, deletes } => {
                self.config.permissions.get |= gets;
                self.config.permissions.delete |= deletes;
            }
        }
        self.config.udp_lite = process.udp_lite;
        if process.udp_lite && self.config.version != saratoga::Version::V1 {
            return Err(SpecError::invalid("--udp-lite is for version 1 of Saratoga"));
        }
        Ok(self.config.default_remote.rate_bps)
    }

    fn named_peers(&mut self) -> Option<&mut dyn NamedPeers> {
        Some(self)
    }

    fn beacons(&mut self) -> Option<&mut dyn Beacons> {
        Some(self)
    }
}

impl NamedPeers for SaratogaConfig {
    fn names(&self) -> Vec<String> {
        self.remotes.keys().cloned().collect()
    }

    fn apply_to(&mut self, path: PathId, name: &str) -> Option<u64> {
        let remote = self.remotes.get(name)?.clone();
        let rate = remote.rate_bps;
        self.config.remotes.insert(path, remote);
        rate
    }
}

impl Beacons for SaratogaConfig {
    fn is_on(&self) -> bool {
        self.config.beacons.is_some()
    }

    fn add(&mut self, path: PathId, interval: Option<Duration>) {
        if let Some(interval) = interval {
            let paths = self.config.beacons.take().map_or(Vec::new(), |beacons| beacons.paths);
            self.config.beacons = Some(saratoga::Beacons { paths, interval });
        }
        if let Some(beacons) = &mut self.config.beacons {
            beacons.paths.push(path);
        }
    }

    fn identifier(&self) -> &str {
        &self.config.eid
    }

    fn set_identifier(&mut self, identifier: &str) {
        identifier.clone_into(&mut self.config.eid);
    }
}

#[derive(Debug)]
struct SaratogaTransport {
    node: Box<saratoga::Node>,
    /// Paths to others by their numbers.
    paths: BTreeMap<u64, PathId>,
}

engine_in!(SaratogaTransport, node);

impl SaratogaTransport {
    fn event(&mut self) -> Option<Event> {
        let indication = self.node.poll_indication()?;
        Some(event(&self.node, indication))
    }
}

fn event(node: &saratoga::Node, indication: saratoga::Indication) -> Event {
    match indication {
        saratoga::Indication::Restored { partials: 0 } | saratoga::Indication::Started { .. } => {
            Event::Update
        }
        saratoga::Indication::Restored { partials } => Event::Notice(format!(
            "{partials} files were received in part; they resume when they are sent again"
        )),
        saratoga::Indication::Receiving { id, name, size, resumed } => {
            let from = node.peer_address(id);
            Event::Receiving(Reception { id: TransferId::new(id), name, size, resumed, from })
        }
        saratoga::Indication::Finished(finished) => {
            let at_sender = finished.id.role == saratoga::Role::Sender;
            let id = TransferId::new(finished.id);
            let end = Ended::new(id, at_sender, finished.name, &finished.result);
            let failure = finished.result.err();
            let here = failure.and_then(|failure| failure.cause).map(|cause| cause.to_string());
            let there = failure.filter(|_| at_sender).and_then(|it| it.reported_cause());
            let refusal = here.or(there.map(str::to_owned));
            Event::Ended(Ended {
                size: finished.size,
                resumed: finished.resumed,
                is_confirmed: finished.is_confirmed,
                ..end.with_refusal(refusal)
            })
        }
        saratoga::Indication::Listing { entries, .. } => Event::Listing(entries),
        saratoga::Indication::Beacon { about, .. } => {
            // Beacons repeat; `slowlight peers` lists them.
            Event::Log(format!("{} is there", about.eid.escape_debug()))
        }
        saratoga::Indication::LimitReached(limit) => {
            Event::Log(format!("limit reached: {limit:?}"))
        }
    }
}

impl SaratogaTransport {
    /// The path to the peer of a request.
    fn path(&self, request: &SendRequest) -> Result<PathId, RequestError> {
        let known = request.group.or_else(|| self.paths.get(&request.destination).copied());
        known.ok_or_else(|| RequestError::no_path(request.destination))
    }

    fn put(
        &mut self,
        now: Time,
        request: &SendRequest,
        peer: PathId,
    ) -> Result<saratoga::SessionId, saratoga::RequestError> {
        let put = match request.kind.is_reliable() {
            _ if request.asks_first => saratoga::Put::Ask,
            true => saratoga::Put::Push,
            false => saratoga::Put::Blind,
        };
        let SendRequest { source, name, session, resumes, .. } = request.clone();
        let terms = saratoga::PutRequest::new(peer, source, name);
        self.node.put(now, saratoga::PutRequest { put, session, resumes, ..terms })
    }
}

fn sent(
    answer: Result<saratoga::SessionId, saratoga::RequestError>,
) -> Result<TransferId, RequestError> {
    answer.map(TransferId::new).map_err(RequestError::new)
}

impl Transport for SaratogaTransport {
    fn send(&mut self, now: Time, request: &SendRequest) -> Result<TransferId, RequestError> {
        if request.kind.top().is_fetched {
            return self.fetch(now, request);
        }
        let peer = self.path(request)?;
        sent(self.put(now, request, peer))
    }

    fn cancel(&mut self, now: Time, id: &TransferId) {
        let session = self.node.sessions().map(|report| report.id).find(|known| id.is(known));
        if let Some(session) = session {
            // A completed transfer needs no cancellation.
            drop(self.node.cancel(now, session));
        }
    }

    fn transfers(&self) -> Vec<Progress> {
        let progress = |report: saratoga::Report| Progress {
            id: TransferId::new(report.id),
            bytes: report.progress,
            confirmed: report.confirmed,
            size: report.size,
            name: report.name,
            wait: None,
        };
        self.node.sessions().map(progress).collect()
    }

    fn under_way(&self) -> usize {
        self.node.sessions().count()
    }

    fn is_ready(&self) -> bool {
        self.node.is_restored()
    }

    fn counters(&self) -> Counters {
        let stats = self.node.stats();
        let datagrams = Some((stats.sent.total(), stats.received.total()));
        Counters { datagrams, ..Counters::default() }
    }

    fn directories(&mut self) -> Option<&mut dyn Directories> {
        Some(self)
    }
}

impl Directories for SaratogaTransport {
    fn fetch(&mut self, now: Time, request: &SendRequest) -> Result<TransferId, RequestError> {
        let request = saratoga::GetRequest {
            peer: self.path(request)?,
            name: request.name.clone(),
            destination: request.source.clone(),
            delete: request.takes,
        };
        sent(self.node.get(now, request))
    }

    fn list(
        &mut self,
        now: Time,
        peer: PathId,
        directory: &str,
    ) -> Result<TransferId, RequestError> {
        sent(self.node.list(now, peer, directory.to_owned()))
    }

    fn delete(&mut self, now: Time, peer: PathId, name: &str) -> Result<TransferId, RequestError> {
        sent(self.node.delete(now, peer, name.to_owned()))
    }

    fn set_free_space(&mut self, kib: Option<u64>) {
        self.node.set_free_space(kib);
    }
}
