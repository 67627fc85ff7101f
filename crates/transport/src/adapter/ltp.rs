//! LTP, and LTP-T, whose blocks are relayed by other engines.

use std::time::Duration;

use engine::{Engine as _, PathId, Rng, Time};
use ltp::ltpt;

use super::{EPOCH, engine_in, no_profile, repeated_silence};
use crate::contract::{
    Adapter, Configuration, Counters, Feature, Process, Progress, Protocol, RequestError,
    SendRequest, Spool, Transport,
};
use crate::event::{Ended, Event, Reception, TransferId};
use crate::settings::{Schema, Settings};
use crate::text::SpecError;

/// Ports from which an LTP engine may send besides its listening port.
const PEER_PORTS: usize = 64;

/// Result of a session whose receiver expects another protocol over LTP.
const OTHER_SERVICE: &str = "the program there speaks LTP, but receives no files by it: another \
                             protocol over LTP, such as cfdp-ltp, has another client service";

/// Profiles of LTP.
pub const LTP_PROFILES: &[&str] =
    &["default", "checkpoints", "async-reports", "ltplib-2011", "ltplib-2007"];

/// LTP configuration of a profile, slowlight's own if none is named.
///
/// # Errors
///
/// There is no such profile.
pub fn ltp_config(protocol: &Protocol) -> Result<ltp::Config, SpecError> {
    let config = match &protocol.profile {
        Some(name) => ltp::profile(name)
            .ok_or_else(|| no_profile(protocol.kind.name(), name, LTP_PROFILES))?,
        None => ltp::Config::default(),
    };
    let transport = ltpt::Config { clock: EPOCH, ..ltpt::Config::default() };
    let transport = protocol.kind.has(Feature::Relays).then_some(transport);
    Ok(ltp::Config { transport, ..config })
}

/// Adapter of the protocol.
pub(crate) struct Ltp;

impl Schema for Ltp {
    fn title(&self) -> &'static str {
        "LTP"
    }

    fn settings(&self) -> Box<dyn session::settings::Settings> {
        Box::new(ltp::Config::default())
    }
}

/// Working files of blocks below bundles.
pub(crate) const LTP_NODE_SPOOLS: &[Spool] = &[Spool::with_prefix(ltp::SPOOL_PREFIX)];

impl Adapter for Ltp {
    fn spools(&self) -> &'static [Spool] {
        // Records of LTP-T list the blocks kept for other engines.
        const { &[Spool::with_prefix(ltp::SPOOL_PREFIX), Spool::with_prefix(ltpt::SPOOL_PREFIX)] }
    }

    fn record_prefixes(&self) -> &'static [&'static str] {
        &[ltp::RECORD_PREFIX]
    }

    fn configuration(
        &self,
        protocol: &Protocol,
        _entity: u64,
    ) -> Result<Box<dyn Configuration>, SpecError> {
        Ok(Box::new(ltp_config(protocol)?))
    }
}

impl Configuration for ltp::Config {
    fn build(&self, rng: Rng) -> Box<dyn Transport> {
        Box::new(LtpTransport { node: Box::new(ltp::Node::new(self.clone(), rng)) })
    }

    fn adapter(&self) -> &'static dyn Adapter {
        &Ltp
    }

    fn apply(&mut self, settings: &Settings) -> Result<(), SpecError> {
        settings.apply(self)
    }

    fn settings(&self) -> Settings {
        Settings::from_config(self)
    }

    fn number(&self) -> Option<u64> {
        Some(self.engine)
    }

    fn set_entity(&mut self, entity: u64) {
        self.engine = entity;
    }

    fn set_path(&mut self, entity: u64, path: PathId) {
        let remote = self.remote(entity).clone();
        self.remotes.entry(entity).or_insert(remote).path = Some(path);
    }

    fn set_inactivity(&mut self, silence: Duration) {
        let remotes = self.remotes.values_mut().chain([&mut self.default_remote]);
        remotes.for_each(|remote| remote.inactivity = ltp::Timer::Fixed(silence));
    }

    fn store_unnamed(&mut self, name: Option<&str>) {
        if let (ltp::Format::Raw { name: known }, Some(name)) = (&mut self.format, name) {
            name.clone_into(known);
        }
    }

    fn allow_catch_up(&mut self, least: Duration) {
        self.catch_up = least.max(self.catch_up);
    }

    fn least_datagram(
        &self,
        destination: u64,
        name: &str,
        size: u64,
    ) -> Result<Option<u64>, SpecError> {
        Ok(Some(self.least_datagram(destination, name, size)))
    }

    fn prepare(&mut self, process: &Process) -> Result<(), SpecError> {
        if let Some(transport) = self.transport.as_mut() {
            transport.clock = process.clock_ms;
        }
        self.catch_up = process.catch_up;
        self.default_remote.unpaced_window = Some(process.unpaced_window);
        let remote = &mut self.default_remote;
        if !process.role.is_server() && remote.checkpoint_every.is_none() {
            remote.checkpoint_interval.get_or_insert(process.reply_interval);
        }
        Ok(())
    }

    fn finish(&mut self, process: &Process) -> Result<Option<u64>, SpecError> {
        if process.rate_bps.is_some() {
            // A remote's rate would override the given rate of the path.
            self.default_remote.rate_bps = None;
            self.remotes.values_mut().for_each(|remote| remote.rate_bps = None);
        }
        let remote = process.remote.map(|remote| self.remote(remote));
        Ok(remote.unwrap_or(&self.default_remote).rate_bps)
    }

    fn resumes(&self) -> bool {
        self.journal && self.transport.is_none() && self.format == ltp::Format::Described
    }

    fn peer_ports(&self) -> usize {
        PEER_PORTS
    }

    fn relaying(&mut self) -> Option<&mut ltpt::Routing> {
        self.transport.as_mut().map(|transport| &mut transport.routing)
    }
}

#[derive(Debug)]
struct LtpTransport {
    node: Box<ltp::Node>,
}

engine_in!(LtpTransport, node);

impl LtpTransport {
    fn event(&mut self) -> Option<Event> {
        let indication = self.node.poll_indication()?;
        Some(event(&self.node, indication))
    }
}

fn number(id: ltp::segment::SessionId) -> TransferId {
    TransferId::new(id).begun_by(id.originator)
}

fn event(node: &ltp::Node, indication: ltp::Indication) -> Event {
    match indication {
        ltp::Indication::Receiving { id, .. } => Event::Receiving(Reception {
            id: number(id),
            // The name of a block arrives with its last segment.
            name: String::new(),
            size: None,
            resumed: 0,
            from: node.peer_address(id),
        }),
        ltp::Indication::Displaced(id) => Event::Continued(number(id)),
        ltp::Indication::Finished(finished) => {
            let at_sender = finished.role == ltp::segment::End::Sender;
            let end = Ended::new(number(finished.id), at_sender, finished.name, &finished.result);
            let refusal = finished.result.err().and_then(|failure| failure.store_refusal());
            let result = match finished.result.err() {
                // Other hops have other reasons.
                Some(failure)
                    if at_sender
                        && failure.is_of_other_service()
                        && node.config().transport.is_none() =>
                {
                    Err(OTHER_SERVICE.to_owned())
                }
                Some(_) | None => end.result,
            };
            let end = Ended { result, ..end };
            Event::Ended(Ended {
                size: finished.size,
                is_confirmed: finished.is_confirmed,
                peer: (!at_sender).then_some(finished.id.originator),
                ..end.with_refusal(refusal)
            })
        }
        ltp::Indication::LimitReached(limit) => Event::Log(format!("limit reached: {limit:?}")),
        ltp::Indication::PeerError { id, error } => Event::Notice(format!("{id}: {error}")),
        ltp::Indication::Elsewhere { engine, address, is_taken } => {
            let from = address.map_or_else(|| "another address".to_owned(), |it| it.to_string());
            Event::Notice(if is_taken {
                format!("engine {engine} sends from {from}; replies go to its own address")
            } else {
                format!("segments of engine {engine} from {from} are dropped: not its host")
            })
        }
        ltp::Indication::Interrupted { sessions } => Event::Notice(format!(
            "{sessions} interrupted sessions are cancelled when their peers send again"
        )),
        ltp::Indication::Transport(indication) => Event::Relay(indication),
        ltp::Indication::Started(_) | ltp::Indication::Data { .. } => Event::Update,
    }
}

impl Transport for LtpTransport {
    fn send(&mut self, now: Time, request: &SendRequest) -> Result<TransferId, RequestError> {
        let request = ltp::SendRequest {
            destination: request.destination,
            source: request.source.clone(),
            name: request.name.clone(),
            red: request.kind.red(),
        };
        self.node.send(now, request).map(number).map_err(RequestError::new)
    }

    fn cancel(&mut self, now: Time, id: &TransferId) {
        let session = self.node.sessions().map(|report| report.id).find(|known| id.is(known));
        if let Some(session) = session {
            // A completed transfer needs no cancellation.
            drop(self.node.cancel(now, session));
        }
    }

    fn transfers(&self) -> Vec<Progress> {
        let progress = |report: ltp::Report| Progress {
            id: number(report.id),
            bytes: report.progress,
            confirmed: report.confirmed,
            size: report.size,
            name: report.name,
            wait: None,
        };
        self.node.sessions().map(progress).collect()
    }

    fn under_way(&self) -> usize {
        // Blocks for other engines wait without a session.
        self.node.sessions().count().max(self.node.transfers())
    }

    fn is_ready(&self) -> bool {
        self.node.is_restored()
    }

    fn counters(&self) -> Counters {
        let stats = self.node.stats();
        let datagrams = Some((stats.sent.total(), stats.received.total()));
        Counters { datagrams, repair_bytes: Some(stats.repair_bytes), ..Counters::default() }
    }

    fn silence(&self) -> Option<Duration> {
        repeated_silence(self.under_way() == 0)
    }
}
