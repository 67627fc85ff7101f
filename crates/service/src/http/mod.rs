//! HTTP with JSON on local sockets, as the interfaces of nodes and emulated worlds use it.

mod client;

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use axum::{Json, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use utoipa::ToSchema;

pub use hyper::Method;

pub(crate) use self::client::{ANSWER_MAX, connect, refused, wrong};
pub use self::client::{Client, ClientError, segment};

/// Media type of `/metrics`.
pub const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Maximum concurrent clients of the socket and of the address, each, so that clients of the
/// address do not block the socket; others wait.
pub const CLIENTS_MAX: usize = 64;
/// Time that a client may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

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

/// Serves clients of one listener, up to [`CLIENTS_MAX`] at a time.
pub async fn accept<L: Listener>(mut listener: L, router: Router) {
    let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&clients).acquire_owned().await else { return };
        // `accept` itself pauses when the system has no descriptor left.
        let (stream, _) = listener.accept().await;
        let router = router.clone();
        tokio::spawn(async move {
            answer(stream, router).await;
            drop(permit);
        });
    }
}

/// Serves one client until it disconnects.
async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let service = TowerToHyperService::new(router);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!("a client: {error}");
    }
}
