//! A bundle node's interface for applications: HTTP on a Unix socket.
//!
//! The agent's thread tells a [`Hub`] what it has to say, which hands it to whoever waits for it; requests go to the agent as
//! closures. Payloads that are long cross as files of the store, written and read here.

mod client;
mod courier;
mod entity;
mod hub;
mod metrics;
pub mod model;
mod payload;
mod routes;
#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rt::node::Handle;
use tokio::net::UnixListener;
use wire::bp7::Eid;

pub use self::client::{Coming, NodeClient};
pub use self::courier::{Courier, CourierConfig, Handed, News, Outcome, Outgoing};
pub use self::entity::{EntityConfig, EntityDriver, EntityError, Observer, Receives};
pub use self::hub::Hub;

use crate::http::{ServeError, accept, bind_unix};

/// The node whose interface it is.
#[derive(Debug)]
pub struct Shared {
    /// Its name.
    pub node: Eid,
    /// Asks its agent.
    pub handle: Handle,
    /// What its agent tells all that it says.
    pub hub: Arc<Hub>,
    /// The folder of the working files, if there are any.
    pub spool: Option<PathBuf>,
    /// What applications may ask for.
    pub limits: Limits,
    /// Its layers.
    pub layers: Vec<model::Layer>,
}

/// What an application may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Payloads up to this length are handed to the agent in memory.
    pub inline: usize,
    /// Bytes of one payload.
    pub payload: u64,
}

/// The interface's socket, which is open.
#[derive(Debug)]
pub struct NodeServer {
    runtime: tokio::runtime::Runtime,
    listener: UnixListener,
    path: PathBuf,
}

impl NodeServer {
    /// Opens the socket; one that a node left which has ended is replaced.
    ///
    /// # Errors
    /// Another node has it, or the system refuses.
    pub fn bind(path: &Path) -> Result<Self, ServeError> {
        let system = |error| ServeError::System { what: path.display().to_string(), error };
        if UnixStream::connect(path).is_ok() {
            let error = io::Error::new(io::ErrorKind::AddrInUse, "a node answers there already");
            return Err(system(error));
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(system)?;
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(system(error)),
            Ok(()) | Err(_) => {}
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(system)?;
        let inside = runtime.enter();
        let listener = bind_unix(path).map_err(system)?;
        drop(inside);
        Ok(Self { runtime, listener, path: path.to_owned() })
    }

    /// Answers until `end` is over, which is asked ten times a second.
    pub fn run(self, shared: Shared, end: impl Fn() -> bool) {
        let Self { runtime, listener, path } = self;
        runtime.block_on(async {
            tokio::spawn(accept(listener, routes::router(Arc::new(shared))));
            while !end() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        // Who begins while this one ends has a socket of its own by then.
        let _ = std::fs::remove_file(path);
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
}
