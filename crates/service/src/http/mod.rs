//! HTTP with JSON on local sockets, as the interfaces of nodes and emulated worlds use it.

mod client;
mod connection;
mod metrics;
mod pace;
mod places;
mod serve;

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;
use transport::text::shortened;
use utoipa::ToSchema;

pub use hyper::Method;

pub use self::client::{Client, ClientError, segment};
pub(crate) use self::connection::{Connection, request, wrong};
pub use self::metrics::{Kind, Metrics};
pub(crate) use self::pace::Pause;
pub use self::serve::{Clients, Times, accept};

/// Maximum length of an error message in characters.
const ERROR_MAX: usize = 1800;

/// Body of the response to a request that is refused.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Message: the fault and its remedy.
    pub error: String,
}

/// A request that is refused.
#[derive(Debug)]
pub struct Refusal {
    /// Status of the response.
    pub status: StatusCode,
    /// Message: the fault and its remedy.
    pub error: String,
}

impl Refusal {
    /// Creates a refusal with this status.
    pub fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: shortened(&error.into(), ERROR_MAX) }
    }

    /// Creates a refusal because of a request's content.
    pub fn wrong(error: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(Problem { error: self.error })).into_response()
    }
}

/// Adds refusals of other paths, and of other methods of a path.
pub fn with_fallbacks<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    no_path: &'static str,
    no_method: &'static str,
) -> Router<S> {
    let refused = |status, error| move || std::future::ready(Refusal::new(status, error));
    router
        .fallback(refused(StatusCode::NOT_FOUND, no_path))
        .method_not_allowed_fallback(refused(StatusCode::METHOD_NOT_ALLOWED, no_method))
}

/// Reason why there is no interface.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another program has the port.
    #[error("{0}: another program listens there; take another port, or 0 for any that is free")]
    InUse(SocketAddr),
    /// This user may not bind the port, or the machine has no such address.
    #[error("{0}: {1}; take 127.0.0.1 and a port above 1023")]
    Address(SocketAddr, io::Error),
    /// The system refused.
    #[error("{what}: {error}")]
    System {
        /// Action that failed.
        what: String,
        /// Error of the system.
        error: io::Error,
    },
}

/// Creates a runtime for an interface, which one thread runs.
///
/// # Errors
/// The system refuses.
pub fn runtime() -> Result<tokio::runtime::Runtime, ServeError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(not_started)
}

/// Error of an interface that cannot be started.
pub(crate) fn not_started(error: io::Error) -> ServeError {
    ServeError::System { what: "starting the interface".to_owned(), error }
}

/// Users that may use a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Permissions of the socket.
    pub mode: u32,
    /// Group of the socket; default: that of the process.
    pub group: Option<u32>,
}

impl Default for Access {
    /// Only the user of this process.
    fn default() -> Self {
        Self { mode: 0o600, group: None }
    }
}

/// Removes a socket that an ended process left, if any.
///
/// # Errors
/// Something else has this path, or errors of the system.
pub fn remove_socket(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?.file_type(),
    };
    if found.is_socket() {
        return std::fs::remove_file(path);
    }
    let kind = if found.is_symlink() {
        "a symbolic link"
    } else if found.is_dir() {
        "a folder"
    } else {
        "a file"
    };
    let error = format!("{kind} has this path; remove it, or choose another path for the socket");
    Err(io::Error::new(io::ErrorKind::AlreadyExists, error))
}

/// Opens a Unix socket in place of one that an ended process left, if any. Folders of the path are
/// made.
///
/// # Errors
/// Another process has it, or the system refuses.
pub fn replace_unix(path: &Path, access: Access) -> Result<UnixListener, ServeError> {
    let system = |error| ServeError::System { what: path.display().to_string(), error };
    if UnixStream::connect(path).is_ok() {
        let error = io::Error::new(io::ErrorKind::AddrInUse, "another process answers there");
        return Err(system(error));
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(system)?;
    }
    remove_socket(path).and_then(|()| bind_unix(path, access)).map_err(system)
}

/// Opens a Unix socket.
///
/// # Errors
/// Errors of the system. Only root may give the socket to a group of which it is no member.
pub fn bind_unix(path: &Path, access: Access) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    // The group comes first: until then nobody else has access.
    std::fs::set_permissions(path, Permissions::from_mode(access.mode & 0o700))?;
    if let Some(group) = access.group {
        std::os::unix::fs::chown(path, None, Some(group)).map_err(|error| {
            let hint = "the user of this process must be a member of the socket's group";
            io::Error::new(error.kind(), format!("{error}; {hint}"))
        })?;
    }
    std::fs::set_permissions(path, Permissions::from_mode(access.mode))?;
    Ok(listener)
}
