//! A bundle node's interface for applications: HTTP on a Unix socket.
//!
//! The agent's thread tells a [`Hub`] what it has to say, which hands it to whoever waits for it; requests go to the agent as
//! closures. Payloads that are long cross as files of the store, written and read here.

mod client;
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

pub use self::client::{Coming, NodeClient};
pub use self::hub::{Echo, Hub};

use crate::server::{ServeError, accept, bind_unix};

/// What handlers share.
pub(crate) struct Shared {
    pub(crate) handle: Handle,
    pub(crate) hub: Arc<Hub>,
    /// Of the working files, if there are any.
    pub(crate) spool: Option<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) layers: Vec<model::Layer>,
}

/// What an application may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Payloads up to this length are handed to the agent in memory.
    pub inline: usize,
    /// Octets of one payload.
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
    pub fn run(
        self,
        (handle, hub): (Handle, Arc<Hub>),
        (limits, spool): (Limits, Option<PathBuf>),
        layers: Vec<model::Layer>,
        end: impl Fn() -> bool,
    ) {
        let shared = Arc::new(Shared { handle, hub, spool, limits, layers });
        let Self { runtime, listener, path } = self;
        runtime.block_on(async {
            tokio::spawn(accept(listener, routes::router(Arc::clone(&shared))));
            while !end() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        // Who begins while this one ends has a socket of its own by then.
        let _ = std::fs::remove_file(path);
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
}
