//! LTP-T: routes of blocks for other engines, and reports about relayed blocks.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use ltp::ltpt::{Indication, Otherwise, Routing, Transfer};
use ltp::segment::ltpt::Address;
use transport::Configuration;

use crate::sockets::outcome::print_json;
use crate::sockets::peers::paths;
use crate::sockets::screen::Screen;
use crate::sockets::transfer::Options;

/// Routes of blocks for other engines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    /// Neighbour engines and their addresses.
    peers: Vec<(u64, SocketAddr)>,
    /// Next hop by destination engine.
    routes: BTreeMap<u64, u64>,
    /// Next hop of the default route.
    otherwise: Option<u64>,
}

impl Routes {
    /// Routes with these peers, from `--route` options.
    pub(crate) fn new(peers: Vec<(u64, SocketAddr)>, routes: &[String]) -> Result<Self> {
        let mut known = Self { peers, ..Self::default() };
        for text in routes {
            let (last, next) = text
                .split_once('=')
                .and_then(|(last, next)| Some((last, next.parse().ok()?)))
                .filter(|(last, _)| *last == ANY || last.parse::<u64>().is_ok())
                .with_context(|| {
                    format!(
                        "invalid --route {text:?}: expected one like 4=3, or {ANY}=3 for all others"
                    )
                })?;
            ensure!(
                known.peers.iter().any(|(id, _)| *id == next),
                "--route {text}: the address of engine {next} is unknown; give --peer {next}=ADDR"
            );
            let before = match last.parse() {
                Ok(last) => known.routes.insert(last, next),
                Err(_) => known.otherwise.replace(next),
            };
            ensure!(before.is_none(), "--route {text}: there is another route to {last}; keep one");
        }
        Ok(known)
    }

    /// Sets the routes in a configuration; returns the addresses of paths, numbered from zero.
    pub(super) fn settle(&self, config: &mut dyn Configuration) -> Result<Vec<SocketAddr>> {
        if let Some(own) = config.number() {
            ensure!(
                self.peers.iter().all(|(id, _)| *id != own),
                "--peer {own}: that is this engine's own number; give it another with --entity"
            );
        }
        let paths = paths(&self.peers)?;
        let mut to: BTreeMap<u64, u64> = self.peers.iter().map(|(id, _)| (*id, *id)).collect();
        to.extend(&self.routes);
        for (id, path) in paths.to {
            config.set_path(id, path);
        }
        if let Some(routing) = config.relaying() {
            let otherwise = self.otherwise.map_or(Otherwise::Nowhere, Otherwise::By);
            *routing = Routing::Static { to, otherwise };
        }
        Ok(paths.addresses)
    }

    /// Prints the routes of relayed blocks, or the addresses of replies if it relays none.
    pub(super) fn print(&self, screen: &Screen, forwards: bool) {
        for (id, address) in &self.peers {
            if forwards {
                screen.print(format_args!("blocks for engine {id} are forwarded to {address}"));
            } else {
                screen.print(format_args!("replies to engine {id} go to {address}"));
            }
        }
        for (last, next) in &self.routes {
            screen.print(format_args!("blocks for engine {last} are forwarded to engine {next}"));
        }
        if let Some(next) = self.otherwise {
            screen.print(format_args!("all other blocks are forwarded to engine {next}"));
        }
    }
}

/// Destination of the default route.
const ANY: &str = "any";

/// Line of text about a relayed block.
pub(super) fn words(indication: &Indication) -> String {
    match indication {
        Indication::Relaying(transfer) => format!("{}: forwarding", block(transfer)),
        Indication::Kept(transfer) => format!("{}: stored completely", block(transfer)),
        Indication::Forwarded(transfer) => format!("{}: the next engine has it", block(transfer)),
        Indication::Undeliverable { transfer, reason } => {
            format!("{}: given up: {reason}", block(transfer))
        }
        Indication::Congested { transfer, retry_after } => {
            let wait = humantime::format_duration(*retry_after);
            format!("{}: the next engine has no room; next attempt in {wait}", block(transfer))
        }
        Indication::Refused { transfer } => format!("{}: no room for it here", block(transfer)),
        Indication::Restored { blocks } => {
            format!("{blocks} stored blocks of an earlier process are forwarded")
        }
    }
}

/// Source engine of a block and its session number.
fn block(transfer: &Transfer) -> String {
    format!("{} for engine {}", name(transfer), transfer.destination)
}

fn name(transfer: &Transfer) -> String {
    let flow = transfer.flow;
    match source(transfer) {
        Some(source) => format!("{source}_{}", flow.number),
        None => format!("{:?}_{}", flow.source.address, flow.number),
    }
}

fn source(transfer: &Transfer) -> Option<u64> {
    match transfer.flow.source.address {
        Address::Engine(number) => Some(number),
        Address::V4(_) | Address::V6(_) => None,
    }
}

/// Outcome of a relayed block: forwarded, or the reason why it was not.
pub(super) fn outcome(indication: &Indication) -> Option<(Transfer, Result<(), String>)> {
    match indication {
        Indication::Forwarded(transfer) => Some((*transfer, Ok(()))),
        Indication::Undeliverable { transfer, reason } => {
            Some((*transfer, Err(reason.to_string())))
        }
        Indication::Relaying(_)
        | Indication::Kept(_)
        | Indication::Congested { .. }
        | Indication::Refused { .. }
        | Indication::Restored { .. } => None,
    }
}

/// Prints the outcome of a relayed block as a line of JSON.
pub(super) fn print(
    options: &Options,
    transfer: &Transfer,
    result: &Result<(), String>,
) -> Result<()> {
    print_json(&serde_json::json!({
        "protocol": options.protocol.to_string(),
        "role": "relay",
        "transaction": name(transfer),
        "source_entity": source(transfer),
        "destination_entity": transfer.destination,
        "completed": result.is_ok(),
        "condition": result.as_ref().err().map_or("no error", String::as_str),
    }))
}
