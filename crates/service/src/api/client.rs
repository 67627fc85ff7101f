//! Client of a node's interface.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request, Response, header};
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use super::model::{Delivery, Purged, Sent};
use crate::http::{ANSWER_MAX, ClientError, Problem, connect, refused, segment, wrong};

/// Bytes of a body read at a time.
const PIECE: usize = 256 << 10;

/// Longest idle time of a connection that is reused. The node closes it after ten seconds, perhaps
/// just as the next request leaves.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// A connection to one node, reconnected when it has ended.
pub(super) struct Connection {
    socket: PathBuf,
    sender: Option<SendRequest<Body>>,
    /// Time of the sender's last use.
    used: Instant,
}

/// Client of one node, over one connection.
pub struct NodeClient {
    runtime: Runtime,
    connection: Connection,
}

impl std::fmt::Debug for NodeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeClient")
            .field("socket", &self.connection.socket)
            .finish_non_exhaustive()
    }
}

/// Returns a path with a query.
pub(super) fn uri(path: &str, query: &[(&str, &str)]) -> String {
    let pairs: Vec<String> =
        query.iter().map(|(key, value)| format!("{key}={}", segment(value))).collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

impl Connection {
    pub(super) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), sender: None, used: Instant::now() }
    }

    async fn open(&mut self) -> Result<&mut SendRequest<Body>, ClientError> {
        let is_fresh = self.used.elapsed() < IDLE_MAX;
        let live = self.sender.take().filter(|sender| is_fresh && !sender.is_closed());
        self.used = Instant::now();
        let sender = match live {
            Some(sender) => sender,
            None => connect(&self.socket).await?.0,
        };
        Ok(self.sender.insert(sender))
    }

    /// Sends a request; a refusal is an error.
    pub(super) async fn exchange(
        &mut self,
        method: Method,
        uri: &str,
        body: Body,
    ) -> Result<Response<Incoming>, ClientError> {
        let request = Request::builder().method(method).uri(uri).header(header::HOST, "localhost");
        let request = request.body(body).map_err(|error| wrong(&error))?;
        let sender = self.open().await?;
        sender.ready().await.map_err(|error| wrong(&error))?;
        let response = sender.send_request(request).await.map_err(|error| wrong(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        Err(refused(status, &whole(response).await?))
    }

    /// Takes the bundles of an endpoint from now on: this connection has no other use.
    pub(super) async fn take(&mut self, query: &[(&str, &str)]) -> Result<Coming, ClientError> {
        self.stream(Method::GET, &uri("/deliveries", query), Body::empty()).await
    }

    /// Sends a request whose response is a stream: this connection has no other use.
    pub(super) async fn stream(
        &mut self,
        method: Method,
        uri: &str,
        body: Body,
    ) -> Result<Coming, ClientError> {
        let response = self.exchange(method, uri, body).await?;
        Ok(Coming { body: response.into_body(), bytes: BytesMut::new() })
    }

    pub(super) async fn get<T: DeserializeOwned>(&mut self, uri: &str) -> Result<T, ClientError> {
        let response = self.exchange(Method::GET, uri, Body::empty()).await?;
        serde_json::from_slice(&whole(response).await?).map_err(|error| wrong(&error))
    }

    pub(super) async fn confirm(&mut self, delivery: &Delivery) -> Result<(), ClientError> {
        let path = format!("/deliveries/{}", delivery.delivery);
        let uri = uri(&path, &[("id", &delivery.id)]);
        let response = self.exchange(Method::DELETE, &uri, Body::empty()).await?;
        whole(response).await.map(|_| ())
    }
}

pub(super) async fn whole(response: Response<Incoming>) -> Result<Bytes, ClientError> {
    let body = http_body_util::Limited::new(response.into_body(), ANSWER_MAX);
    Ok(body.collect().await.map_err(|error| wrong(&error))?.to_bytes())
}

impl NodeClient {
    /// Connects to the node with this socket.
    ///
    /// # Errors
    ///
    /// No node listens there.
    pub fn connect(socket: &Path) -> Result<Self, ClientError> {
        let unreachable = |error| ClientError::Unreachable { socket: socket.to_owned(), error };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(unreachable)?;
        let mut connection = Connection::new(socket);
        runtime.block_on(connection.open())?;
        Ok(Self { runtime, connection })
    }

    fn exchange(
        &mut self,
        method: Method,
        uri: &str,
        body: Body,
    ) -> Result<Response<Incoming>, ClientError> {
        self.runtime.block_on(self.connection.exchange(method, uri, body))
    }

    fn whole(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        self.runtime.block_on(whole(response))
    }

    /// Sends a GET request.
    ///
    /// # Errors
    ///
    /// [`ClientError`] gives the reason.
    pub fn get<T: DeserializeOwned>(
        &mut self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        self.runtime.block_on(self.connection.get(&uri(path, query)))
    }

    /// Sends a DELETE request.
    ///
    /// # Errors
    ///
    /// [`ClientError`] gives the reason.
    pub fn delete(&mut self, path: &str, query: &[(&str, &str)]) -> Result<(), ClientError> {
        let response = self.exchange(Method::DELETE, &uri(path, query), Body::empty())?;
        self.whole(response).map(|_| ())
    }

    /// Deletes all bundles that the query selects.
    ///
    /// # Errors
    ///
    /// [`ClientError`] gives the reason.
    pub fn purge(&mut self, query: &[(&str, &str)]) -> Result<Purged, ClientError> {
        let response = self.exchange(Method::DELETE, &uri("/bundles", query), Body::empty())?;
        serde_json::from_slice(&self.whole(response)?).map_err(|error| wrong(&error))
    }

    /// Confirms a delivery.
    ///
    /// # Errors
    ///
    /// There is no such delivery, or [`ClientError`] gives the reason.
    pub fn confirm(&mut self, delivery: &Delivery) -> Result<(), ClientError> {
        self.runtime.block_on(self.connection.confirm(delivery))
    }

    /// Sends a bundle whose payload is read to its end. The bundle is stored when this returns.
    ///
    /// # Errors
    ///
    /// [`ClientError`] gives the reason.
    pub fn send(
        &mut self,
        query: &[(&str, &str)],
        payload: impl Read + Send + 'static,
    ) -> Result<Sent, ClientError> {
        let pieces = stream::unfold(payload, |mut payload| async move {
            let mut piece = Vec::with_capacity(PIECE);
            // A blocking read is fine: the program has no other work meanwhile.
            match payload.by_ref().take(PIECE as u64).read_to_end(&mut piece) {
                Ok(0) => None,
                Ok(_) => Some((Ok(Bytes::from(piece)), payload)),
                Err(error) => Some((Err(error), payload)),
            }
        });
        let response =
            self.exchange(Method::POST, &uri("/bundles", query), Body::from_stream(pieces))?;
        serde_json::from_slice(&self.whole(response)?).map_err(|error| wrong(&error))
    }

    /// Sends a request whose response comes line by line; `on` returns whether to continue.
    ///
    /// # Errors
    ///
    /// [`ClientError`] gives the reason.
    pub fn lines<T: DeserializeOwned>(
        &mut self,
        path: &str,
        query: &[(&str, &str)],
        mut on: impl FnMut(T) -> bool,
    ) -> Result<(), ClientError> {
        let uri = uri(path, query);
        let request = self.connection.stream(Method::POST, &uri, Body::empty());
        let mut coming = self.runtime.block_on(request)?;
        while let Some(line) = self.runtime.block_on(coming.line())? {
            let value = serde_json::from_slice(&line).map_err(|error| {
                let problem: Result<Problem, _> = serde_json::from_slice(&line);
                problem.map_or_else(
                    |_| wrong(&error),
                    |problem| ClientError::Refused { status: 200, error: problem.error },
                )
            });
            if !on(value?) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes the bundles of an endpoint from now on.
    ///
    /// # Errors
    ///
    /// Another application has the endpoint, or [`ClientError`] gives the reason.
    pub fn take(&mut self, query: &[(&str, &str)]) -> Result<Coming, ClientError> {
        self.runtime.block_on(self.connection.take(query))
    }

    /// Returns the next bundle, after skipping the rest of the previous one.
    ///
    /// # Errors
    ///
    /// The node has ended.
    pub fn next(&mut self, coming: &mut Coming) -> Result<Option<Delivery>, ClientError> {
        self.runtime.block_on(coming.next())
    }

    /// Returns the next bytes of a payload of which `left` are to come.
    ///
    /// # Errors
    ///
    /// The node has ended.
    pub fn piece(&mut self, coming: &mut Coming, left: u64) -> Result<Bytes, ClientError> {
        self.runtime.block_on(coming.piece(left))
    }
}

/// A stream of bundles.
#[derive(Debug)]
pub struct Coming {
    body: Incoming,
    bytes: BytesMut,
}

impl Coming {
    async fn more(&mut self) -> Result<bool, ClientError> {
        match self.body.frame().await {
            None => Ok(false),
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    self.bytes.extend_from_slice(&bytes);
                }
                Ok(true)
            }
            Some(Err(error)) => Err(wrong(&error)),
        }
    }

    /// Returns the next line; `None` at the end.
    pub(super) async fn line(&mut self) -> Result<Option<BytesMut>, ClientError> {
        loop {
            if let Some(at) = self.bytes.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.bytes.split_to(at + 1)));
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    /// Returns the next bundle, after skipping the rest of the previous one; `None` if the node has
    /// ended.
    pub(super) async fn next(&mut self) -> Result<Option<Delivery>, ClientError> {
        let Some(line) = self.line().await? else { return Ok(None) };
        serde_json::from_slice(&line).map(Some).map_err(|error| wrong(&error))
    }

    /// Returns the next bytes of a payload of which `left` are to come.
    pub(super) async fn piece(&mut self, left: u64) -> Result<Bytes, ClientError> {
        while self.bytes.is_empty() {
            if !self.more().await? {
                return Err(ClientError::Answer("the node has ended".to_owned()));
            }
        }
        let here = self.bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        Ok(self.bytes.split_to(here).freeze())
    }
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
        let mut client = NodeClient::connect(&socket).unwrap();
        for idle in [Duration::ZERO, Duration::ZERO, IDLE_MAX] {
            client.connection.used = Instant::now().checked_sub(idle).unwrap();
            let _: serde_json::Value = client.get("/node", &[]).unwrap();
        }
        node.join().unwrap();
    }
}
