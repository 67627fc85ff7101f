//! LTP and Saratoga over sockets: what their commands have in common.
//!
//! Here a session is one file, or one question. What an LTP session was does not outlive its
//! process; what came of a file by Saratoga does.

mod client;
mod server;

pub(crate) use self::client::{Ends, Wish, run};
pub(crate) use self::server::{Service, serve};

use std::time::Duration;

use anyhow::{Result, ensure};
use engine::{PathInfo, PathKind, Time};
use lab::engines::{AnyEngine, AnyIndication, EngineConfig};
use lab::protocol::Family;
use lab::quantity::Rate;
use proto::{ltp, saratoga};

use crate::transfer::{CATCH_UP, OVERHEAD, Options, UNPACED_WINDOW};

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
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ltp(id) => id.fmt(f),
            Self::Saratoga(id) => id.fmt(f),
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
            Id::Saratoga(_) => None,
        }
    }
}

fn notice(indication: AnyIndication) -> Notice {
    match indication {
        AnyIndication::Ltp(indication) => of_ltp(indication),
        AnyIndication::Saratoga(indication) => of_saratoga(indication),
        // CFDP has commands of its own.
        AnyIndication::Cfdp(_) => Notice::Nothing,
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
        ltp::Indication::Started(_) | ltp::Indication::Data { .. } => Notice::Nothing,
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
            Notice::Said(format!("{} is there", about.eid.escape_debug()))
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
        AnyEngine::Cfdp(_) => Vec::new(),
    }
}

/// Datagrams with something in them that were sent and received.
fn counts(engine: &AnyEngine) -> Option<(u64, u64)> {
    match engine {
        AnyEngine::Ltp(node) => Some((node.stats().sent.total(), node.stats().received.total())),
        AnyEngine::Saratoga(node, _) => {
            Some((node.stats().sent.total(), node.stats().received.total()))
        }
        AnyEngine::Cfdp(_) => None,
    }
}

/// Ends a session early.
fn cancel(engine: &mut AnyEngine, now: Time, id: Id) {
    // One that is over needs no end.
    match (engine, id) {
        (AnyEngine::Ltp(node), Id::Ltp(id)) => drop(node.cancel(now, id)),
        (AnyEngine::Saratoga(node, _), Id::Saratoga(id)) => drop(node.cancel(now, id)),
        (AnyEngine::Ltp(_) | AnyEngine::Saratoga(..) | AnyEngine::Cfdp(_), _) => {}
    }
}

/// Rights that a server of Saratoga gives, and whether what came in part is kept.
#[derive(Clone, Copy, Debug)]
struct Rights {
    permissions: saratoga::Permissions,
    keeps: bool,
}

/// The settings of an engine, and what it is told of paths.
fn settings(options: &Options, entity: u64, rights: Rights) -> Result<(EngineConfig, PathInfo)> {
    let protocol = options.full_protocol();
    let family = protocol.kind.family();
    ensure!(options.mib.is_none(), "--mib is for CFDP; {protocol} has its settings by --profile");
    let mut config = EngineConfig::new(&protocol, entity, None)?;
    let rate_bps = options.rate.map(Rate::bps).filter(|rate| *rate > 0);
    match &mut config {
        EngineConfig::Ltp(config) => {
            config.catch_up = CATCH_UP;
            config.default_remote.unpaced_window = Some(UNPACED_WINDOW);
        }
        EngineConfig::Saratoga(config, _) => {
            config.catch_up = CATCH_UP;
            config.default_remote.unpaced_window = Some(UNPACED_WINDOW);
            config.permissions = rights.permissions;
            config.journal.enabled = rights.keeps;
        }
        EngineConfig::Cfdp(_) => {}
    }
    debug_assert!(family != Family::Cfdp, "CFDP has commands of its own");
    let info = PathInfo {
        kind: PathKind::Datagram { mtu: options.datagram },
        rate_bps,
        overhead: OVERHEAD,
        owlt: options.delay.map(lab::quantity::Span::duration),
        until: None,
    };
    Ok((config, info))
}

/// Removes what an earlier process that was killed left of receptions that cannot go on.
fn sweep(store: &mut rt::FileStore, family: Family) -> Result<()> {
    let prefix = match family {
        Family::Ltp => "ltp-",
        Family::Saratoga => "sar-",
        Family::Cfdp => return Ok(()),
    };
    let swept = store.sweep(prefix, "")?;
    if swept > 0 {
        tracing::info!(swept, "working files of an earlier process were removed");
    }
    Ok(())
}

fn random() -> Result<engine::Rng> {
    use anyhow::Context as _;
    rt::entropy().context("no entropy")
}

/// How long an end stays to answer those who did not hear the last of it.
const LINGER: Duration = Duration::from_millis(500);
