//! Transfers between two servers, controlled by this client: one listens (PASV), and the other
//! connects to it (PORT; RFC 959 §5.2).
//!
//! ```text
//! client                 taking server            giving server
//!   |--- PASV ---------------->|                        |
//!   |<-- 227 (address) --------|                        |
//!   |--- PORT (address) ------------------------------->|
//!   |<-- 200 -------------------------------------------|
//!   |--- RETR ----------------------------------------->|
//!   |<-- 150 -------------------------------------------|  a missing file overwrites none
//!   |--- STOR ---------------->|<======================>|
//!   |<-- 150, 226 -------------|                        |
//!   |<-- 226 -------------------------------------------|
//! ```

use std::net::SocketAddr;

use engine::PathId;

use super::Node;
use super::indication::{Failure, Indication, RequestId};

/// Role of a server in a transfer between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Gives,
    Takes,
}

/// Event of a half's control connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Relayed {
    /// The taking server listens at this address.
    Listens(SocketAddr),
    /// The taking server waits for the giving one.
    Waits,
    /// The giving server sends.
    Begins,
    /// A server has finished its half; holds the number of bytes that the taking server lacks.
    Done(Half, u64),
    Failed(Failure),
}

/// Transfer between two servers.
#[derive(Debug)]
pub(super) struct Relay {
    gives: PathId,
    takes: PathId,
    address: Option<SocketAddr>,
    waits: bool,
    /// Finished half.
    done: Option<Half>,
    missing: u64,
}

impl Relay {
    pub(super) fn new(gives: PathId, takes: PathId) -> Self {
        Self { gives, takes, address: None, waits: false, done: None, missing: 0 }
    }
}

impl Node {
    /// Passes an event from one half to the other.
    pub(super) fn relayed(&mut self, id: RequestId, outcome: Relayed) {
        let Some(relay) = self.relays.get_mut(&id) else { return };
        match outcome {
            Relayed::Listens(address) => relay.address = Some(address),
            Relayed::Waits => relay.waits = true,
            Relayed::Begins => {
                self.core.indicate(Indication::Begun { request: id });
                if let Some(client) = self.clients.get_mut(&relay.takes) {
                    client.relay_begins();
                }
            }
            Relayed::Done(half, missing) => {
                relay.missing += missing;
                let missing = relay.missing;
                if relay.done.replace(half).is_some_and(|other| other != half) {
                    self.relays.remove(&id);
                    self.core.indicate(Indication::Finished { request: id, bytes: 0, missing });
                }
                return;
            }
            Relayed::Failed(why) => {
                let paths = [relay.gives, relay.takes];
                self.relays.remove(&id);
                for path in paths {
                    if let Some(client) = self.clients.get_mut(&path) {
                        client.drop_relay(id, &mut self.core);
                    }
                }
                self.core.indicate(Indication::Failed { request: id, why });
                return;
            }
        }
        if let Some(address) = relay_ready(self.relays.get_mut(&id)) {
            let gives = self.relays.get(&id).map(|relay| relay.gives);
            if let Some(client) = gives.and_then(|path| self.clients.get_mut(&path)) {
                client.relay_to(address);
            }
        }
    }
}

/// Address for the giving server to connect to, once both are ready.
fn relay_ready(relay: Option<&mut Relay>) -> Option<SocketAddr> {
    let relay = relay.filter(|relay| relay.waits)?;
    let address = relay.address.take()?;
    relay.waits = false;
    Some(address)
}
