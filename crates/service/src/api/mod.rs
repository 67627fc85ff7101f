//! A bundle node's interface for applications: HTTP on a Unix socket.
//!
//! The agent's thread passes indications to a [`Hub`], which dispatches them to applications;
//! requests are closures for the agent. Long payloads are files of the store, written and read
//! here.

mod client;
mod courier;
mod driver;
mod echo;
mod hub;
mod listing;
mod log;
mod metrics;
pub mod model;
mod payload;
mod receivers;
mod request;
mod routes;
mod sending;
mod settings;
#[cfg(test)]
mod tests;
mod upload;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bp::codec::bp7::Eid;
use rt::node::Handle;
use sd_notify::NotifyState;
use tokio::net::UnixListener;

pub use self::client::{Coming, NodeClient};
pub use self::courier::{Courier, CourierConfig, Handed, News, Outcome};
pub use self::driver::{ApplicationDriver, DriverConfig, DriverError, Observer};
pub use self::hub::Hub;

use crate::http::{
    Access, Clients, ServeError, Times, accept, remove_socket, replace_unix, runtime,
};
use crate::monitor::tell_systemd;
use crate::node::Reload;

/// Bounds on clients. Streams of deliveries count, so there are many places. `/node` and
/// `/metrics` are served beyond them.
const CLIENTS: Clients =
    Clients { most: 2048, spare: 64, paths: &["/node", "/metrics"], times: Times::DEFAULT };

/// Rounds of the server, of 100 ms, between two looks at the agent.
const WATCH_ROUNDS: u64 = 10;

/// State shared by all requests to a node.
#[derive(Debug)]
pub struct Shared {
    /// Node ID.
    pub node: Eid,
    /// Access to its agent.
    pub handle: Handle,
    /// Dispatcher of its agent's indications.
    pub hub: Arc<Hub>,
    /// Folder of the working files, if any.
    pub spool: Option<PathBuf>,
    /// Convergence layers.
    pub layers: Vec<model::Layer>,
    /// Settings that can be read again.
    pub reload: Arc<Reload>,
}

/// Open socket of the interface.
#[derive(Debug)]
pub struct NodeServer {
    runtime: tokio::runtime::Runtime,
    listener: UnixListener,
    path: PathBuf,
}

impl NodeServer {
    /// Opens the socket; replaces one that an ended node left.
    ///
    /// # Errors
    ///
    /// Another node has it, or the system refuses.
    pub fn bind(path: &Path, access: Access) -> Result<Self, ServeError> {
        let runtime = runtime()?;
        let inside = runtime.enter();
        let listener = replace_unix(path, access)?;
        drop(inside);
        Ok(Self { runtime, listener, path: path.to_owned() })
    }

    /// Serves requests until `end` returns true; it is called ten times a second.
    pub fn run(self, shared: Shared, end: impl Fn() -> bool) {
        let Self { runtime, listener, path } = self;
        let (handle, hub) = (shared.handle.clone(), Arc::clone(&shared.hub));
        let reload = Arc::clone(&shared.reload);
        runtime.block_on(async {
            tokio::spawn(accept(listener, routes::router(Arc::new(shared)), CLIENTS));
            tell_systemd(&[NotifyState::Ready]);
            let mut rounds = 0_u64;
            while !end() {
                tokio::time::sleep(Duration::from_millis(100)).await;
                rounds += 1;
                let lines = reload.follow();
                if !lines.is_empty() {
                    let hub = Arc::clone(&hub);
                    handle.ask(move |now, _| hub.discovered(now, &lines));
                }
                if rounds.is_multiple_of(WATCH_ROUNDS) {
                    let hub = Arc::clone(&hub);
                    handle.ask(move |now, agent| {
                        hub.watch(now, agent);
                        tell_systemd(&[NotifyState::Watchdog]);
                    });
                }
            }
        });
        tell_systemd(&[NotifyState::Stopping]);
        // A successor that starts meanwhile has its own socket by then.
        let _ = remove_socket(&path);
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
}
