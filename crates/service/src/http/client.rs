//! Client of an interface on a Unix socket.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Body;
use hyper::{Method, header};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::connection::{Connection, request, wrong};

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
            let stream = UnixStream::connect(&self.socket)?;
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
        let mut request = request(method, path);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let bytes = Connection::new(&self.socket).whole(request, body).await?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|error| wrong(&error))
    }
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
