//! FTP, SCPS-FP, and models of programs, over TCP.

pub mod config;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use engine::{Engine, PathId, Rng, Time};
use models::ftp;
use models::message::ReadControl;
use models::programs;

use self::config::OverTcpConfig;
use super::{engine_in, engine_of};
use crate::contract::{
    Adapter, BufferLimits, Configuration, Counters, Interfaces, Protocol, RequestError,
    SendRequest, Transport,
};
use crate::event::{Ended, Event, TransferId};
use crate::records::{self, ContentKind};
use crate::settings::{Schema, Settings};
use crate::text::SpecError;

/// Adapter of the protocol.
pub(crate) struct OverTcp;

impl Schema for OverTcp {
    fn title(&self) -> &'static str {
        "FTP and programs over TCP"
    }

    fn settings(&self) -> Box<dyn session::settings::Settings> {
        Box::new(OverTcpConfig::default())
    }

    fn has_tcp(&self) -> bool {
        true
    }
}

impl Adapter for OverTcp {
    fn configuration(
        &self,
        protocol: &Protocol,
        _entity: u64,
    ) -> Result<Box<dyn Configuration>, SpecError> {
        Ok(Box::new(config::config(protocol)?))
    }
}

impl Configuration for OverTcpConfig {
    fn build(&self, mut rng: Rng) -> Box<dyn Transport> {
        let above = match &self.program {
            Some(program) => {
                let rng = Rng::new(rng.next_u64(), "program");
                Above::Program(Box::new(programs::Node::new(program.clone(), rng)))
            }
            None => Above::Ftp(Box::new(ftp::Node::new(self.ftp.clone()))),
        };
        let node = Box::new(stack::OverTcp::new(self.streams.clone(), above, rng));
        Box::new(TcpTransport { node, paths: self.paths.clone(), requests: BTreeMap::new() })
    }

    fn adapter(&self) -> &'static dyn Adapter {
        &OverTcp
    }

    fn apply(&mut self, settings: &Settings) -> Result<(), SpecError> {
        settings.apply(self)
    }

    fn settings(&self) -> Settings {
        Settings::from_config(self)
    }

    fn set_path(&mut self, entity: u64, path: PathId) {
        self.paths.insert(entity, path);
    }

    fn set_inactivity(&mut self, silence: Duration) {
        self.set_silence(silence);
    }

    fn interfaces(&mut self) -> Option<&mut dyn Interfaces> {
        Some(self)
    }
}

impl Interfaces for OverTcpConfig {
    fn set_own(&mut self, address: Ipv4Addr, port: u16, _interfaces: &[PathId]) {
        config::take_place(&mut self.streams, address, port);
    }

    fn set_peer(&mut self, path: PathId, address: Ipv4Addr, port: u16, by: PathId) {
        config::meet(&mut self.streams, path, address, port, by);
    }
}

/// Indication of FTP or of a program.
#[derive(Debug)]
enum Indication {
    Ftp(ftp::Indication),
    Program(programs::Indication),
}

/// Protocol over TCP.
#[derive(Debug)]
enum Above {
    /// FTP.
    Ftp(Box<ftp::Node>),
    /// A program, modelled.
    Program(Box<programs::Node>),
}

impl Above {
    fn under_way(&self) -> usize {
        match self {
            Self::Ftp(node) => node.under_way(),
            Self::Program(node) => node.under_way(),
        }
    }

    /// Requests a transfer; returns the request's number.
    fn request(&mut self, peer: PathId, send: &SendRequest) -> Result<u64, String> {
        let (source, name) = (send.source.clone(), send.name.as_str());
        match self {
            Self::Ftp(node) => {
                let id = match send.kind.top().carries {
                    ContentKind::Records => {
                        let ranges = records::ranges(&send.records);
                        let path = name.to_owned();
                        node.read_records(
                            peer,
                            &ReadControl { path, forced: false, ranges },
                            source,
                        )
                    }
                    ContentKind::Changes => node.update_by(peer, source),
                    ContentKind::Copy => node.copy(peer, &records::original_of(name), name),
                    ContentKind::File if send.kind.top().is_fetched => node.get(peer, name, source),
                    ContentKind::File => node.put(peer, source, name),
                };
                id.map(|id| id.0).map_err(|error| error.to_string())
            }
            Self::Program(node) => {
                node.put(peer, source, name).map(|id| id.0).map_err(|error| error.to_string())
            }
        }
    }
}

engine_of!(Above, Indication, { Ftp: Indication::Ftp, Program: Indication::Program });

/// FTP, or a program, over TCP.
#[derive(Debug)]
struct TcpTransport {
    node: Box<stack::OverTcp<Above>>,
    /// Paths to others by their numbers.
    paths: BTreeMap<u64, PathId>,
    /// Requests of this node's user.
    requests: BTreeMap<u64, Request>,
}

/// Request of this node's user.
#[derive(Clone, Debug)]
struct Request {
    /// The file's name at the server.
    name: String,
    /// Whether the server sends the file.
    is_fetched: bool,
}

engine_in!(TcpTransport, node);

impl TcpTransport {
    fn event(&mut self) -> Option<Event> {
        Some(match self.node.poll_indication()? {
            Indication::Ftp(indication) => self.of_ftp(indication),
            Indication::Program(indication) => self.of_program(indication),
        })
    }

    fn of_ftp(&mut self, indication: ftp::Indication) -> Event {
        match indication {
            ftp::Indication::Begun { request } => Event::Begins(self.name(request.0)),
            ftp::Indication::Finished { request, missing, .. } => {
                self.ended(request.0, &all_but(missing))
            }
            ftp::Indication::Failed { request, why, .. } => {
                self.ended(request.0, &Err(why.to_string()))
            }
            ftp::Indication::Received { name, missing, .. } => {
                served(&name, false, &all_but(missing)).into()
            }
            ftp::Indication::Changed { name, .. } => served(&name, false, &Ok(())).into(),
            // A server gets no confirmation of a fetched file.
            ftp::Indication::Sent { name, .. } => {
                Ended { is_confirmed: false, ..served(&name, true, &Ok(())) }.into()
            }
            ftp::Indication::Aborted { name, incoming, .. } => {
                served(&name, !incoming, &Err(BROKE_OFF.to_owned())).into()
            }
            ftp::Indication::Refused { .. } => served("", false, &Err(NO_ROOM.to_owned())).into(),
            ftp::Indication::LoggedIn { .. }
            | ftp::Indication::Answered { .. }
            | ftp::Indication::Missing { .. } => Event::Update,
        }
    }

    fn of_program(&mut self, indication: programs::Indication) -> Event {
        match indication {
            programs::Indication::Begun { request } => Event::Begins(self.name(request.0)),
            programs::Indication::Echoed { request, latency } => {
                Event::Latency(self.name(request.0), latency)
            }
            programs::Indication::Finished { request, .. } => self.ended(request.0, &Ok(())),
            programs::Indication::Failed { request, why } => {
                self.ended(request.0, &Err(why.to_string()))
            }
            programs::Indication::Received { name, .. } => served(&name, false, &Ok(())).into(),
            programs::Indication::Aborted { name, .. } => {
                served(&name, false, &Err(BROKE_OFF.to_owned())).into()
            }
            programs::Indication::Refused { .. } => {
                served("", false, &Err(NO_ROOM.to_owned())).into()
            }
        }
    }

    /// Name of the file of a request.
    fn name(&self, request: u64) -> String {
        self.requests.get(&request).map(|request| request.name.clone()).unwrap_or_default()
    }

    /// End of a request of this node's user.
    fn ended(&mut self, request: u64, result: &Result<(), String>) -> Event {
        // A control file is part of another transfer.
        let Some(Request { name, is_fetched }) = self.requests.remove(&request) else {
            return Event::Update;
        };
        Ended::new(TransferId::new(request), !is_fetched, name, result).into()
    }
}

/// End of a transfer that a peer requested.
fn served(name: &str, outgoing: bool, result: &Result<(), String>) -> Ended {
    Ended::new(TransferId::default(), outgoing, name.trim_start_matches('/'), result)
}

/// Result of a file with this many bytes missing.
fn all_but(missing: u64) -> Result<(), String> {
    match missing {
        0 => Ok(()),
        _ => Err(format!("{missing} bytes are missing and were filled with zeros")),
    }
}

const BROKE_OFF: &str = "the transfer was interrupted";
const NO_ROOM: &str = "there was no room, or no login in time";

impl Transport for TcpTransport {
    fn send(&mut self, now: Time, request: &SendRequest) -> Result<TransferId, RequestError> {
        let known = self.paths.get(&request.destination).copied();
        let peer = known.ok_or_else(|| RequestError::no_path(request.destination))?;
        let (name, is_fetched) = (request.name.clone(), request.kind.top().is_fetched);
        // The request is known before its first indication is polled.
        let id = self.node.call(now, |node| node.request(peer, request));
        let id = id.map_err(RequestError::new)?;
        self.requests.insert(id, Request { name, is_fetched });
        Ok(TransferId::new(id))
    }

    fn under_way(&self) -> usize {
        self.node.above().under_way()
    }

    fn counters(&self) -> Counters {
        let counts = self.node.below().totals();
        Counters {
            // Acknowledgments request nothing.
            repairs: Some((counts.retransmissions, 0)),
            buffers: Some(BufferLimits::from_counts(&counts)),
            ..Counters::default()
        }
    }
}
