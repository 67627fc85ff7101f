//! NORM: files and streams to groups.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{Engine as _, PathId, Rng, Time};
use norm::{self, Piece};

use super::{engine_in, no_profile};
use crate::contract::{
    Adapter, Configuration, Counters, Feature, FileCode, Groups, Membership, Process, Progress,
    Protocol, RequestError, SendRequest, Spool, Streams, Transport,
};
use crate::event::{Ended, Event, Reception, StreamEvent, TransferId};
use crate::settings::{Schema, Settings};
use crate::text::SpecError;

/// Configuration of a NORM node.
#[derive(Clone, Debug, Default)]
pub struct NormConfig {
    /// The node or peer itself.
    pub config: norm::Config,
    /// Paths to others, by their numbers in the scenario.
    pub paths: BTreeMap<u64, PathId>,
}

/// Number of a NORM node. The highest number means any.
pub(crate) fn norm_node(entity: u64) -> u32 {
    u32::try_from(entity).unwrap_or(0).min(u32::MAX - 1)
}

/// Profiles of NORM.
pub const NORM_PROFILES: &[&str] =
    &["default", "cc", "coded", "coded-cc", "coded-eager", "nrl-2011"];

/// NORM configuration of a profile, slowlight's own if none is named.
///
/// # Errors
///
/// There is no such profile.
pub fn norm_config(protocol: &Protocol) -> Result<norm::Config, SpecError> {
    let name = protocol.profile.as_deref().unwrap_or("default");
    let config = norm::profile(name);
    let mut config = config.ok_or_else(|| no_profile(protocol.kind.name(), name, NORM_PROFILES))?;
    if protocol.kind.has(Feature::Coded) {
        config.use_proactive_parity();
    }
    Ok(config)
}

/// Maximum number of receivers of one sender.
const RECEIVERS_MAX: usize = 1024;

/// Working files of a node.
pub(crate) const NORM_SPOOLS: &[Spool] = &[Spool::with_prefix(norm::SPOOL_PREFIX)];

/// Adapter of the protocol.
pub(crate) struct Norm;

impl Schema for Norm {
    fn title(&self) -> &'static str {
        "NORM"
    }

    fn settings(&self) -> Box<dyn session::settings::Settings> {
        Box::new(norm::Config::default())
    }
}

impl Adapter for Norm {
    fn spools(&self) -> &'static [Spool] {
        NORM_SPOOLS
    }

    fn record_prefixes(&self) -> &'static [&'static str] {
        &[norm::SPOOL_PREFIX]
    }

    fn configuration(
        &self,
        protocol: &Protocol,
        _entity: u64,
    ) -> Result<Box<dyn Configuration>, SpecError> {
        let config = norm_config(protocol)?;
        Ok(Box::new(NormConfig { config, ..NormConfig::default() }))
    }
}

impl Configuration for NormConfig {
    fn build(&self, rng: Rng) -> Box<dyn Transport> {
        let node = Box::new(norm::Node::new(self.config.clone(), rng));
        Box::new(NormTransport { node, paths: self.paths.clone() })
    }

    fn adapter(&self) -> &'static dyn Adapter {
        &Norm
    }

    fn apply(&mut self, settings: &Settings) -> Result<(), SpecError> {
        settings.apply(&mut self.config)
    }

    fn settings(&self) -> Settings {
        Settings::from_config(&self.config)
    }

    fn check(&self, protocol: &Protocol) -> Result<(), SpecError> {
        let wrong = |error| SpecError::invalid(format!("{protocol}: {error}"));
        self.config.check().map_err(wrong)
    }

    fn set_entity(&mut self, entity: u64) {
        self.config.node = norm_node(entity);
    }

    fn set_path(&mut self, entity: u64, path: PathId) {
        self.paths.insert(entity, path);
    }

    fn set_inactivity(&mut self, silence: Duration) {
        self.config.receiver.inactivity = norm::Timer::Fixed(silence);
        self.config.sender.patience = norm::Timer::Fixed(silence);
    }

    fn allow_catch_up(&mut self, least: Duration) {
        self.config.catch_up = least.max(self.config.catch_up);
    }

    fn least_datagram(
        &self,
        _destination: u64,
        _name: &str,
        _size: u64,
    ) -> Result<Option<u64>, SpecError> {
        let least = self.config.least_datagram().map_err(SpecError::invalid)?;
        Ok(Some(least as u64))
    }

    fn prepare(&mut self, process: &Process) -> Result<(), SpecError> {
        self.config.catch_up = process.catch_up;
        // Many may receive, and each needs its own number, chosen at random.
        self.config.node = 0;
        if !process.role.is_server() && !process.is_group {
            // A group gets fewer probes, as each member replies.
            self.config.sender.probe_interval_max = process.reply_interval;
        }
        Ok(())
    }

    fn finish(&mut self, process: &Process) -> Result<Option<u64>, SpecError> {
        self.config.receiver.enabled &= process.role.is_server();
        let rate = self.config.rate_all_bps.take();
        let is_paced = process.rate_bps.or(rate).is_some_and(|rate| rate > 0);
        // Without a rate, the receivers report the rate of their paths.
        self.config.sender.congestion_control |= !is_paced;
        Ok(rate)
    }

    fn peer_ports(&self) -> usize {
        // Receivers reply from any address.
        RECEIVERS_MAX
    }

    fn store_unnamed(&mut self, name: Option<&str>) {
        self.config.receiver.store_data |= name.is_none();
    }

    fn membership(&mut self) -> Option<&mut dyn Membership> {
        Some(self)
    }

    fn resumes(&self) -> bool {
        let norm::Config { journal, groups, .. } = &self.config;
        journal.enabled && groups.is_empty() && !self.is_one_way()
    }

    fn file_code(&mut self) -> Option<&mut dyn FileCode> {
        self.config.sender.has_long_blocks().then_some(self)
    }
}

impl Membership for NormConfig {
    fn join(&mut self, path: PathId) {
        self.config.groups.push(path);
    }

    fn set_receivers(&mut self, count: u32, settings: Option<&Settings>) {
        let is_given = |key| settings.is_some_and(|given| given.get(&["sender", key]).is_some());
        let sender = &mut self.config.sender;
        if !is_given("receivers") {
            sender.receivers = count;
        }
        if !is_given("group_size") {
            sender.group_size = Some(sender.group_size.unwrap_or_default().max(count));
        }
    }

    fn set_earlier_loss(&mut self, loss: f64, segments: f64) {
        self.config.sender.loss_before = Some((loss, segments));
    }

    fn receive_stream(&mut self) {
        self.config.receiver.streams.get_or_insert(norm::Join::Beginning);
        // Files cannot be stored.
        self.config.limits.object = 0;
    }

    fn is_one_way(&self) -> bool {
        self.config.sender.is_one_way()
    }
}

impl FileCode for NormConfig {
    fn send_one_way(&mut self, confidence: Option<f64>, carousel: Option<Duration>) {
        let sender = &mut self.config.sender;
        sender.confidence = confidence.or(sender.confidence);
        sender.carousel = carousel.or(sender.carousel);
    }
}

#[derive(Debug)]
struct NormTransport {
    node: Box<norm::Node>,
    /// Paths to others by their numbers.
    paths: BTreeMap<u64, PathId>,
}

engine_in!(NormTransport, node);

impl NormTransport {
    fn event(&mut self) -> Option<Event> {
        let indication = self.node.poll_indication()?;
        Some(event(&self.node, indication))
    }

    fn object(&self, id: &TransferId) -> Result<norm::ObjectId, RequestError> {
        let object = self.node.objects().map(|report| report.id).find(|known| id.is(known));
        object.ok_or_else(|| RequestError::new(format!("there is no object {id}")))
    }
}

fn text(info: &[u8]) -> String {
    String::from_utf8_lossy(info).into_owned()
}

fn event(node: &norm::Node, indication: norm::Indication) -> Event {
    match indication {
        norm::Indication::Receiving { id, size, resumed } => {
            let from = node.peer_address(id);
            // NORM_INFO, which has the name, may arrive later.
            let (id, name) = (TransferId::new(id), String::new());
            Event::Receiving(Reception { id, name, size: Some(size), resumed, from })
        }
        norm::Indication::Finished(finished) if finished.result == Err(norm::Failure::Resumed) => {
            Event::Continued(TransferId::new(finished.id))
        }
        norm::Indication::Finished(finished) => {
            let id = TransferId::new(finished.id);
            let end = Ended::new(id, finished.is_sender, text(&finished.info), &finished.result);
            let refusal = match &finished.result {
                Err(norm::Failure::Refused(reason)) => Some(*reason),
                Err(failure) if !finished.is_sender => failure.store_refusal(),
                Ok(()) | Err(_) => None,
            };
            Event::Ended(Ended {
                stored: finished.name.map(|name| name.to_string()),
                size: finished.size,
                is_confirmed: finished.is_confirmed,
                ..end.with_refusal(refusal)
            })
        }
        norm::Indication::SenderDiscovered { node, .. } => {
            Event::Log(format!("sender {node:08x} sends"))
        }
        norm::Indication::LimitReached(limit) => Event::Log(format!("limit reached: {limit:?}")),
        norm::Indication::Command { node, bytes, .. } => {
            Event::Message { sender: node, content: bytes }
        }
        norm::Indication::SenderEnded { node, .. } => {
            Event::Notice(format!("sender {node:08x} ended its session"))
        }
        norm::Indication::Stream { id, .. } => {
            Event::Stream(StreamEvent::Opened(TransferId::new(id)))
        }
        norm::Indication::Readable { id } => {
            Event::Stream(StreamEvent::Readable(TransferId::new(id)))
        }
        norm::Indication::SessionEnded { .. } => Event::Left,
        norm::Indication::Started { .. }
        | norm::Indication::Info { .. }
        | norm::Indication::CommandSent { .. }
        | norm::Indication::Question { .. }
        | norm::Indication::Answered { .. }
        | norm::Indication::QuestionOver { .. }
        | norm::Indication::Writable { .. }
        | norm::Indication::Flushed { .. } => Event::Update,
    }
}

impl Transport for NormTransport {
    fn send(&mut self, now: Time, request: &SendRequest) -> Result<TransferId, RequestError> {
        let known = request.group.or_else(|| self.paths.get(&request.destination).copied());
        let peer = known.ok_or_else(|| RequestError::no_path(request.destination))?;
        for message in &request.messages {
            self.node.command(now, peer, message.clone(), None).map_err(RequestError::new)?;
        }
        let request = norm::SendRequest {
            peer,
            content: norm::Content::File(request.source.clone()),
            info: request.name.clone().into(),
        };
        self.node.send(now, request).map(TransferId::new).map_err(RequestError::new)
    }

    fn cancel(&mut self, now: Time, id: &TransferId) {
        if let Ok(object) = self.object(id) {
            // A completed transfer needs no cancellation.
            drop(self.node.cancel(now, object));
        }
    }

    fn transfers(&self) -> Vec<Progress> {
        let progress = |report: norm::Report| Progress {
            id: TransferId::new(report.id),
            bytes: report.progress,
            confirmed: None,
            size: report.size,
            name: text(&report.info),
            wait: None,
        };
        self.node.objects().map(progress).collect()
    }

    fn under_way(&self) -> usize {
        self.node.objects().count()
    }

    fn silence(&self) -> Option<Duration> {
        Some(self.node.silence())
    }

    fn is_ready(&self) -> bool {
        self.node.is_restored()
    }

    fn counters(&self) -> Counters {
        let stats = self.node.stats();
        let is_coded = self.node.config().sender.has_long_blocks();
        Counters {
            repair_bytes: (!is_coded).then_some(stats.repair_bytes),
            datagrams: Some((stats.sent.total(), stats.received.total())),
            repairs: Some((stats.parity_repairs + stats.explicit_repairs, stats.sent.nacks)),
            ..Counters::default()
        }
    }

    fn groups(&mut self) -> Option<&mut dyn Groups> {
        Some(self)
    }

    fn streams(&mut self) -> Option<&mut dyn Streams> {
        Some(self)
    }
}

impl Groups for NormTransport {
    fn loss(&self) -> Option<(f64, f64)> {
        self.node.loss()
    }

    fn leave(&mut self, now: Time, peer: PathId) -> bool {
        // Receivers keep state of a sender, with or without its file.
        self.node.end(now, peer)
    }
}

impl Streams for NormTransport {
    fn open(
        &mut self,
        now: Time,
        path: PathId,
        name: &str,
        push: bool,
    ) -> Result<TransferId, RequestError> {
        let buffer = self.node.config().limits.stream;
        let request = norm::SendRequest {
            peer: path,
            content: norm::Content::Stream(norm::StreamOptions { buffer, push }),
            info: name.to_owned().into(),
        };
        self.node.send(now, request).map(TransferId::new).map_err(RequestError::new)
    }

    fn write(&mut self, now: Time, id: &TransferId, bytes: &[u8]) -> Result<usize, RequestError> {
        let object = self.object(id)?;
        self.node.write(now, object, bytes).map_err(RequestError::new)
    }

    fn flush(&mut self, now: Time, id: &TransferId) -> Result<(), RequestError> {
        let object = self.object(id)?;
        self.node.flush(now, object).map_err(RequestError::new)
    }

    fn close(&mut self, now: Time, id: &TransferId) -> Result<(), RequestError> {
        let object = self.object(id)?;
        self.node.close(now, object).map_err(RequestError::new)
    }

    fn read(&mut self, now: Time, id: &TransferId) -> Option<Piece> {
        let object = self.object(id).ok()?;
        self.node.read(now, object)
    }
}
