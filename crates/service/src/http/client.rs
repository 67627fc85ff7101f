//! Client of an interface on a Unix socket.

use std::io;
use std::os::unix::net::UnixStream as Probe;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Body;
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::Problem;

/// Maximum length of a response in bytes.
pub(crate) const ANSWER_MAX: usize = 64 << 20;
/// Timeout of a response.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server refused the request.
    #[error("{error}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Message: the fault and its remedy.
        error: String,
    },
    /// The server is unreachable.
    #[error("{}: {error}", socket.display())]
    Unreachable {
        /// Socket of the server.
        socket: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The response is malformed.
    #[error("its answer: {0}")]
    Answer(String),
}

/// Client of one server.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// Creates a client of the server with this socket.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Returns the process ID of the server in this PID namespace.
    ///
    /// # Errors
    ///
    /// No server listens there.
    pub fn pid(&self) -> Result<i32, ClientError> {
        let attempt = || {
            let stream = Probe::connect(&self.socket)?;
            let peer = rustix::net::sockopt::socket_peercred(&stream)?;
            Ok(peer.pid.as_raw_nonzero().get())
        };
        attempt().map_err(|error| self.unreachable(error))
    }

    /// Sends a request and waits for the response.
    ///
    /// # Errors
    ///
    /// [`ClientError`] gives the reason.
    pub fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| self.unreachable(error))?;
        let answer =
            async { tokio::time::timeout(PATIENCE, self.exchange(method, path, body)).await };
        let late = |_| self.unreachable(io::Error::from(io::ErrorKind::TimedOut));
        runtime.block_on(answer).map_err(late)?
    }

    /// Sends a GET request.
    ///
    /// # Errors
    ///
    /// [`ClientError`] gives the reason.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let answer = self.ask(Method::GET, path, None)?;
        serde_json::from_value(answer).map_err(|error| wrong(&error))
    }

    fn unreachable(&self, error: io::Error) -> ClientError {
        ClientError::Unreachable { socket: self.socket.clone(), error }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let (mut sender, connection) = connect(&self.socket).await?;
        let request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
        let request = match body {
            Some(body) => request
                .header(header::CONTENT_TYPE, "application/json")
                .body(Body::from(body.to_string())),
            None => request.body(Body::empty()),
        };
        let response = sender
            .send_request(request.map_err(|error| wrong(&error))?)
            .await
            .map_err(|error| wrong(&error))?;
        let answer = read(response).await;
        drop(sender);
        connection.abort();
        answer
    }
}

pub(crate) fn wrong(error: &impl ToString) -> ClientError {
    ClientError::Answer(error.to_string())
}

/// Opens a connection, with the task that serves it.
pub(crate) async fn connect(
    socket: &Path,
) -> Result<(SendRequest<Body>, JoinHandle<hyper::Result<()>>), ClientError> {
    let unreachable = |error| ClientError::Unreachable { socket: socket.to_owned(), error };
    let stream = UnixStream::connect(socket).await.map_err(unreachable)?;
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| wrong(&error))?;
    Ok((sender, tokio::spawn(connection)))
}

/// Returns the error of a refusal.
pub(crate) fn refused(status: StatusCode, bytes: &[u8]) -> ClientError {
    let problem: Result<Problem, _> = serde_json::from_slice(bytes);
    let error = problem
        .map_or_else(|_| String::from_utf8_lossy(bytes).into_owned(), |problem| problem.error);
    ClientError::Refused { status: status.as_u16(), error }
}

async fn read(response: Response<hyper::body::Incoming>) -> Result<Value, ClientError> {
    let status = response.status();
    let bytes = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
    let bytes = bytes.map_err(|error| wrong(&error))?.to_bytes();
    if status.is_success() {
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        return serde_json::from_slice(&bytes).map_err(|error| wrong(&error));
    }
    Err(refused(status, &bytes))
}

/// Encodes a text as one segment of a path.
#[must_use]
pub fn segment(text: &str) -> String {
    let mut path = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.:~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path += &format!("%{byte:02X}");
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_paths() {
        assert_eq!(segment("near:far-1"), "near:far-1");
        assert_eq!(segment("a/b c?"), "a%2Fb%20c%3F");
    }
}
