//! LTP, NORM and Saratoga over sockets: what their commands have in common.
//!
//! Here a session is one file, or one question. What an LTP session was does not outlive its
//! process; what came of a file by Saratoga does.

mod client;
mod leave;
mod onward;
mod said;
mod server;
mod stream;

pub(crate) use self::client::{Ends, Wish, run};
pub(crate) use self::onward::Ways;
pub(crate) use self::server::{Announce, Service, serve};
pub(crate) use self::stream::{Source, receive as receive_stream, send as send_stream};

use self::said::Said;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use engine::{PathInfo, Time};
use proto::{ltp, ltpt, norm, saratoga};
use transport::engines::{AnyEngine, AnyIndication, EngineConfig};
use transport::protocol::Family;
use transport::quantity::Rate;

use crate::transfer::{self, CATCH_UP, Options, UNPACED_WINDOW};

/// What an engine tells, as far as a command cares.
enum Notice {
    /// A file is being received.
    Receiving {
        id: Id,
        name: String,
        size: Option<u64>,
        resumed: u64,
    },
    /// A session is over.
    Ended(Ended),
    /// What a directory holds.
    Listing(Vec<saratoga::Listed>),
    /// What an application says to all that hear it.
    Command(Said),
    /// Of a block on its way to another engine.
    Onward(ltpt::Indication),
    /// Something for people to know.
    Said(String),
    /// Something for a log.
    Noted(String),
    Nothing,
}

/// A session of either protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Id {
    Ltp(ltp::segment::SessionId),
    Saratoga(saratoga::SessionId),
    Norm(norm::ObjectId),
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ltp(id) => id.fmt(f),
            Self::Saratoga(id) => id.fmt(f),
            Self::Norm(id) => id.fmt(f),
        }
    }
}

/// How a session ended.
#[derive(Debug)]
pub(crate) struct Ended {
    id: Id,
    /// Whether this is the sender's view.
    pub(crate) at_sender: bool,
    /// The file's name at the receiver.
    pub(crate) name: String,
    /// Its octets.
    pub(crate) size: u64,
    /// Octets that an earlier session brought.
    pub(crate) resumed: u64,
    /// Whether the other end said so, or this one saw it.
    pub(crate) is_confirmed: bool,
    /// Whether all is well, or why not.
    pub(crate) result: Result<(), String>,
}

impl Ended {
    /// The session, as people read it.
    pub(crate) fn id(&self) -> String {
        self.id.to_string()
    }

    /// The number of the engine that began it, where engines have numbers.
    pub(crate) fn originator(&self) -> Option<u64> {
        match self.id {
            Id::Ltp(id) => Some(id.originator),
            Id::Saratoga(_) | Id::Norm(_) => None,
        }
    }
}

fn notice(indication: AnyIndication) -> Notice {
    match indication {
        AnyIndication::Ltp(indication) => of_ltp(indication),
        AnyIndication::Saratoga(indication) => of_saratoga(indication),
        AnyIndication::Norm(indication) => of_norm(indication),
        // CFDP has commands of its own, and FTP none.
        AnyIndication::Cfdp(_) | AnyIndication::OverTcp(_) | AnyIndication::Bundles(_) => {
            Notice::Nothing
        }
    }
}

fn of_ltp(indication: ltp::Indication) -> Notice {
    match indication {
        ltp::Indication::Receiving { id, .. } => {
            // The name of a block comes last.
            Notice::Receiving { id: Id::Ltp(id), name: String::new(), size: None, resumed: 0 }
        }
        ltp::Indication::Finished(finished) => Notice::Ended(Ended {
            id: Id::Ltp(finished.id),
            at_sender: finished.role == ltp::segment::End::Sender,
            name: finished.name,
            size: finished.size,
            resumed: 0,
            is_confirmed: finished.is_confirmed,
            result: finished.result.map_err(|failure| failure.to_string()),
        }),
        ltp::Indication::LimitReached(limit) => Notice::Noted(format!("limit reached: {limit:?}")),
        ltp::Indication::PeerError { id, error } => Notice::Said(format!("{id}: {error}")),
        ltp::Indication::Elsewhere { engine, address, is_taken } => {
            let from = address.map_or_else(|| "another address".to_owned(), |it| it.to_string());
            Notice::Said(match is_taken {
                true => format!("engine {engine} sends from {from}; replies go to its own address"),
                false => {
                    format!("segments of engine {engine} from {from} are dropped: not its host")
                }
            })
        }
        ltp::Indication::Interrupted { sessions } => Notice::Said(format!(
            "{sessions} interrupted sessions are cancelled when they are heard of"
        )),
        ltp::Indication::Transport(told) => Notice::Onward(told),
        ltp::Indication::Started(_) | ltp::Indication::Data { .. } => Notice::Nothing,
    }
}

fn of_norm(indication: norm::Indication) -> Notice {
    let text = |info: &[u8]| String::from_utf8_lossy(info).into_owned();
    match indication {
        norm::Indication::Receiving { id, size } => {
            // NORM_INFO, which has the name, may come later.
            let (id, name) = (Id::Norm(id), String::new());
            Notice::Receiving { id, name, size: Some(size), resumed: 0 }
        }
        norm::Indication::Finished(finished) => Notice::Ended(Ended {
            id: Id::Norm(finished.id),
            at_sender: finished.is_sender,
            name: finished.name.map_or_else(|| text(&finished.info), |name| name.to_string()),
            size: finished.size,
            resumed: 0,
            is_confirmed: finished.is_confirmed,
            result: finished.result.map_err(|failure| failure.to_string()),
        }),
        norm::Indication::SenderHeard { node, .. } => {
            Notice::Noted(format!("sender {node:08x} is heard"))
        }
        norm::Indication::LimitReached(limit) => Notice::Noted(format!("limit reached: {limit:?}")),
        norm::Indication::Command { node, octets, .. } => {
            Notice::Command(Said { sender: node, octets })
        }
        norm::Indication::SenderEnded { node, .. } => {
            Notice::Said(format!("sender {node:08x} ended its session"))
        }
        norm::Indication::Started { .. }
        | norm::Indication::Info { .. }
        | norm::Indication::CommandSaid { .. }
        | norm::Indication::Question { .. }
        | norm::Indication::Answered { .. }
        | norm::Indication::QuestionOver { .. }
        | norm::Indication::Stream { .. }
        | norm::Indication::Readable { .. }
        | norm::Indication::Writable { .. }
        | norm::Indication::Flushed { .. }
        | norm::Indication::SessionEnded { .. } => Notice::Nothing,
    }
}

fn of_saratoga(indication: saratoga::Indication) -> Notice {
    match indication {
        saratoga::Indication::Restored { partials: 0 } | saratoga::Indication::Started { .. } => {
            Notice::Nothing
        }
        saratoga::Indication::Restored { partials } => {
            Notice::Said(format!("{partials} files came in part; they go on when they come again"))
        }
        saratoga::Indication::Receiving { id, name, size, resumed } => {
            Notice::Receiving { id: Id::Saratoga(id), name, size, resumed }
        }
        saratoga::Indication::Finished(finished) => Notice::Ended(Ended {
            id: Id::Saratoga(finished.id),
            at_sender: finished.id.role == saratoga::Role::Sender,
            name: finished.name,
            size: finished.size,
            resumed: finished.resumed,
            is_confirmed: finished.is_confirmed,
            result: finished.result.map_err(|failure| failure.to_string()),
        }),
        saratoga::Indication::Listing { entries, .. } => Notice::Listing(entries),
        saratoga::Indication::Beacon { about, .. } => {
            // They come again and again; `slowlight peers` lists them.
            Notice::Noted(format!("{} is there", about.eid.escape_debug()))
        }
        saratoga::Indication::LimitReached(limit) => {
            Notice::Noted(format!("limit reached: {limit:?}"))
        }
    }
}

/// A session under way.
struct Progress {
    id: Id,
    octets: u64,
    size: Option<u64>,
    name: String,
}

fn under_way(engine: &AnyEngine) -> Vec<Progress> {
    match engine {
        AnyEngine::Ltp(node) => {
            let progress = |report: ltp::Report| Progress {
                id: Id::Ltp(report.id),
                octets: report.progress,
                size: report.size,
                name: report.name,
            };
            node.sessions().map(progress).collect()
        }
        AnyEngine::Saratoga(node, _) => {
            let progress = |report: saratoga::Report| Progress {
                id: Id::Saratoga(report.id),
                octets: report.progress,
                size: report.size,
                name: report.name,
            };
            node.sessions().map(progress).collect()
        }
        AnyEngine::Norm(node, _) => {
            let progress = |report: norm::Report| Progress {
                id: Id::Norm(report.id),
                octets: report.progress,
                size: report.size,
                name: String::from_utf8_lossy(&report.info).into_owned(),
            };
            node.objects().map(progress).collect()
        }
        AnyEngine::Cfdp(_)
        | AnyEngine::CfdpLtp(_)
        | AnyEngine::OverTcp(_)
        | AnyEngine::Bundles(_) => Vec::new(),
    }
}

/// Datagrams with something in them that were sent and received.
fn counts(engine: &AnyEngine) -> Option<(u64, u64)> {
    match engine {
        AnyEngine::Ltp(node) => Some((node.stats().sent.total(), node.stats().received.total())),
        AnyEngine::Saratoga(node, _) => {
            Some((node.stats().sent.total(), node.stats().received.total()))
        }
        AnyEngine::Norm(node, _) => {
            Some((node.stats().sent.total(), node.stats().received.total()))
        }
        AnyEngine::Cfdp(_)
        | AnyEngine::CfdpLtp(_)
        | AnyEngine::OverTcp(_)
        | AnyEngine::Bundles(_) => None,
    }
}

/// Ends a session early.
fn cancel(engine: &mut AnyEngine, now: Time, id: Id) {
    // One that is over needs no end.
    match (engine, id) {
        (AnyEngine::Ltp(node), Id::Ltp(id)) => drop(node.cancel(now, id)),
        (AnyEngine::Saratoga(node, _), Id::Saratoga(id)) => drop(node.cancel(now, id)),
        (AnyEngine::Norm(node, _), Id::Norm(id)) => drop(node.cancel(now, id)),
        (
            AnyEngine::Ltp(_)
            | AnyEngine::Saratoga(..)
            | AnyEngine::Norm(..)
            | AnyEngine::Cfdp(_)
            | AnyEngine::CfdpLtp(_)
            | AnyEngine::OverTcp(_)
            | AnyEngine::Bundles(_),
            _,
        ) => {}
    }
}

/// What a command does for others, and whether it keeps what came in part.
#[derive(Clone, Copy, Debug)]
enum Rights {
    /// Nothing: it is about one file, which may be fetched.
    Client { keeps: bool },
    /// What its settings allow, and what options allow as well.
    Server { gets: bool, deletes: bool },
}

impl Rights {
    /// Holds the settings to it.
    fn settle(self, config: &mut saratoga::Config) {
        match self {
            Self::Client { keeps } => {
                config.permissions =
                    saratoga::Permissions { put: false, get: false, delete: false };
                config.journal.enabled &= keeps;
            }
            Self::Server { gets, deletes } => {
                config.permissions.get |= gets;
                config.permissions.delete |= deletes;
            }
        }
    }
}

/// The settings of an engine, and the facts of its paths, which lead to or begin at `address`.
/// Options come before the file, and that before `default`, the usual number of this end. With
/// LTP, most paths lead to `remote`.
fn settings(
    (options, address): (&Options, SocketAddr),
    given: Option<u64>,
    default: u64,
    remote: Option<u64>,
    rights: Rights,
) -> Result<(EngineConfig, PathInfo)> {
    let protocol = options.full_protocol()?;
    let mut config = EngineConfig::new(&protocol, given.unwrap_or(default))?;
    match &mut config {
        EngineConfig::Ltp(config) => {
            if let Some(transport) = config.transport.as_mut() {
                transport.clock = onward::clock();
            }
            config.catch_up = CATCH_UP;
            config.default_remote.unpaced_window = Some(UNPACED_WINDOW);
            // What only sends has nothing to remember.
            config.journal = matches!(rights, Rights::Server { .. });
        }
        EngineConfig::Saratoga(peer) => {
            peer.config.catch_up = CATCH_UP;
            peer.config.default_remote.unpaced_window = Some(UNPACED_WINDOW);
            peer.config.permissions = saratoga::Permissions::default();
        }
        EngineConfig::Norm(node) => {
            node.config.catch_up = CATCH_UP;
            // Many may receive, and each needs a number of its own: chosen at random.
            node.config.node = 0;
        }
        EngineConfig::Cfdp(_) => {}
        EngineConfig::CfdpLtp(_) | EngineConfig::OverTcp(_) | EngineConfig::Bundles(_) => {
            anyhow::bail!("{protocol} runs in the simulator: slowlight sim and slowlight compare")
        }
    }
    if let Some(path) = &options.mib {
        config.apply_file(path)?;
    }
    if let Some(given) = given {
        config.set_entity(given);
    }
    let rate_bps = match &mut config {
        EngineConfig::Ltp(config) => {
            if options.rate.is_some() {
                // A remote's rate would count before the path's, which is the one given.
                config.default_remote.rate_bps = None;
                config.remotes.values_mut().for_each(|remote| remote.rate_bps = None);
            }
            remote.map_or(&config.default_remote, |remote| config.remote(remote)).rate_bps
        }
        EngineConfig::Saratoga(peer) => {
            if options.rate.is_some() {
                peer.config.default_remote.rate_bps = None;
                peer.remotes.values_mut().for_each(|remote| remote.rate_bps = None);
            }
            rights.settle(&mut peer.config);
            peer.config.udp_lite = options.udp_lite;
            let is_v1 = peer.config.version == saratoga::Version::V1;
            ensure!(is_v1 || !options.udp_lite, "--udp-lite is for version 1 of Saratoga");
            peer.config.default_remote.rate_bps
        }
        EngineConfig::Norm(node) => {
            node.config.receiver.enabled &= matches!(rights, Rights::Server { .. });
            let rate = node.config.rate_all_bps.take();
            let is_paced = options.rate.map(Rate::bps).or(rate).is_some_and(|rate| rate > 0);
            // Without a rate the receivers say how fast they can be sent to.
            node.config.sender.congestion_control |= !is_paced;
            rate
        }
        EngineConfig::Cfdp(_)
        | EngineConfig::CfdpLtp(_)
        | EngineConfig::OverTcp(_)
        | EngineConfig::Bundles(_) => None,
    };
    config.check(&protocol).map_err(|error| within(options, error.into()))?;
    Ok((config, options.path(rate_bps, address)))
}

/// The addresses of the peers that settings of Saratoga name, each with its name.
fn named(config: &EngineConfig) -> Result<Vec<(SocketAddr, String)>> {
    let EngineConfig::Saratoga(peers) = config else { return Ok(Vec::new()) };
    let mut named: Vec<(SocketAddr, String)> = Vec::new();
    for name in peers.remotes.keys() {
        let address = transfer::resolve(name)
            .with_context(|| format!("[remotes.{name:?}]: peers are called by their addresses"))?;
        ensure!(named.iter().all(|(known, _)| *known != address), "[remotes] has {address} twice");
        named.push((address, name.clone()));
    }
    Ok(named)
}

/// The file in which `error` stands.
fn within(options: &Options, error: anyhow::Error) -> anyhow::Error {
    match &options.mib {
        Some(path) => error.context(path.display().to_string()),
        None => error,
    }
}

/// The number of an engine, where it has one.
fn number(config: &EngineConfig) -> Option<u64> {
    match config {
        EngineConfig::Ltp(config) => Some(config.engine),
        EngineConfig::Saratoga(_)
        | EngineConfig::Norm(_)
        | EngineConfig::Cfdp(_)
        | EngineConfig::CfdpLtp(_)
        | EngineConfig::OverTcp(_)
        | EngineConfig::Bundles(_) => None,
    }
}

/// Removes what an earlier process that was killed left of receptions that cannot go on.
pub(crate) fn sweep(store: &mut rt::FileStore, family: Family) -> Result<()> {
    let prefixes: &[&str] = match family {
        // Of LTP-T, records say what is kept for other engines.
        Family::Ltp => &["ltp-", "ltpt-"],
        Family::CfdpLtp => &["ltp-"],
        Family::Saratoga => &["sar-"],
        Family::Norm => &["norm-"],
        Family::Cfdp | Family::OverTcp | Family::Bundles => &[],
    };
    let mut swept = 0;
    for prefix in prefixes {
        swept += store.sweep(prefix, "")?;
    }
    if swept > 0 {
        tracing::info!(swept, "working files of an earlier process were removed");
    }
    Ok(())
}

/// How UDP-Lite is used; `assumed` says that the other end is known to take it.
fn udp_lite(options: &Options, assumed: bool) -> Option<rt::UdpLite> {
    options.udp_lite.then_some(rt::UdpLite {
        coverage: saratoga::lite::coverage,
        coverage_min: saratoga::lite::COVERAGE_MIN,
        offer: saratoga::lite::offer,
        assumed,
    })
}

fn random() -> Result<engine::Rng> {
    rt::entropy().context("no entropy")
}

/// How long an end stays to answer those who did not hear the last of it.
const LINGER: Duration = Duration::from_millis(500);
