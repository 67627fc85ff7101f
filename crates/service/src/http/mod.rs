//! HTTP with JSON on local sockets, as the interfaces of nodes and emulated worlds use it.

mod client;
mod serve;

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;
use utoipa::ToSchema;

pub use hyper::Method;

pub(crate) use self::client::{ANSWER_MAX, connect, refused, wrong};
pub use self::client::{Client, ClientError, segment};
pub use self::serve::{Places, accept};

/// Media type of `/metrics`.
pub const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Maximum concurrent clients of the socket and of the address, each, so that clients of the
/// address do not block the socket; others wait.
pub const CLIENTS_MAX: usize = 64;

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
        Self { status, error: error.into() }
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

/// Opens a Unix socket that only this user may use.
///
/// # Errors
/// Errors of the system.
pub fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}
