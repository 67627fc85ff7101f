//! Connection of a client to a server with a Unix socket.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::{ClientError, Problem};

/// Maximum length of a response in bytes.
const ANSWER_MAX: usize = 64 << 20;

/// Longest idle time of a connection that is reused. The server closes it after ten seconds,
/// perhaps just as the next request leaves.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// A connection to one server, reconnected when it has ended.
pub(crate) struct Connection {
    /// Socket of the server.
    pub(crate) socket: PathBuf,
    sender: Option<SendRequest<Body>>,
    /// Time of the sender's last use.
    used: Instant,
}

impl Connection {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), sender: None, used: Instant::now() }
    }

    pub(crate) async fn open(&mut self) -> Result<&mut SendRequest<Body>, ClientError> {
        let is_fresh = self.used.elapsed() < IDLE_MAX;
        let live = self.sender.take().filter(|sender| is_fresh && !sender.is_closed());
        self.used = Instant::now();
        let sender = match live {
            Some(sender) => sender,
            None => connect(&self.socket).await?,
        };
        Ok(self.sender.insert(sender))
    }

    /// Sends a request; a refusal is an error.
    pub(crate) async fn exchange(
        &mut self,
        request: Builder,
        body: Body,
    ) -> Result<Response<Incoming>, ClientError> {
        let request = request.body(body).map_err(|error| wrong(&error))?;
        let sender = self.open().await?;
        sender.ready().await.map_err(|error| wrong(&error))?;
        let response = sender.send_request(request).await.map_err(|error| wrong(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = whole(response).await?;
        let problem: Result<Problem, _> = serde_json::from_slice(&bytes);
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        let error = problem.map_or_else(|_| text(), |problem| problem.error);
        Err(ClientError::Refused { status: status.as_u16(), error })
    }

    /// Sends a request and returns the whole response.
    pub(crate) async fn whole(
        &mut self,
        request: Builder,
        body: Body,
    ) -> Result<Bytes, ClientError> {
        whole(self.exchange(request, body).await?).await
    }

    /// Sends a request whose response is JSON.
    pub(crate) async fn json<T: DeserializeOwned>(
        &mut self,
        request: Builder,
        body: Body,
    ) -> Result<T, ClientError> {
        let bytes = self.whole(request, body).await?;
        serde_json::from_slice(&bytes).map_err(|error| wrong(&error))
    }
}

/// Begins a request.
pub(crate) fn request(method: Method, uri: &str) -> Builder {
    Request::builder().method(method).uri(uri).header(header::HOST, "localhost")
}

async fn connect(socket: &Path) -> Result<SendRequest<Body>, ClientError> {
    let unreachable = |error| ClientError::Unreachable { socket: socket.to_owned(), error };
    let stream = UnixStream::connect(socket).await.map_err(unreachable)?;
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| wrong(&error))?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn whole(response: Response<Incoming>) -> Result<Bytes, ClientError> {
    let body = Limited::new(response.into_body(), ANSWER_MAX);
    Ok(body.collect().await.map_err(|error| wrong(&error))?.to_bytes())
}

/// Error of a malformed response.
pub(crate) fn wrong(error: &impl ToString) -> ClientError {
    ClientError::Answer(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// Reads a request without a body, and replies with `{}`.
    fn reply(stream: &UnixStream) {
        let head = BufReader::new(stream).lines().map(Result::unwrap);
        assert!(head.take_while(|line| !line.is_empty()).count() > 0);
        let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        (&*stream).write_all(reply).unwrap();
    }

    #[test]
    fn idle_connections_are_not_reused() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let node = std::thread::spawn(move || {
            let (first, _) = listener.accept().unwrap();
            reply(&first);
            reply(&first);
            reply(&listener.accept().unwrap().0);
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut connection = Connection::new(&socket);
        for idle in [Duration::ZERO, Duration::ZERO, IDLE_MAX] {
            connection.used = Instant::now().checked_sub(idle).unwrap();
            let response = connection.json(request(Method::GET, "/node"), Body::empty());
            let _: serde_json::Value = runtime.block_on(response).unwrap();
        }
        node.join().unwrap();
    }
}
