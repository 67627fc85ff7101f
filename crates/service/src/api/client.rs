//! Client of a node's interface.

use std::io::Read;
use std::path::Path;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;
use hyper::http::request::Builder;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use super::model::{Delivery, Purged, Sent};
use crate::http::{ClientError, Connection, Problem, request, segment, wrong};

/// Bytes of a body read at a time.
const PIECE: usize = 256 << 10;

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

/// Confirms a delivery.
pub(super) async fn confirm(
    connection: &mut Connection,
    delivery: &Delivery,
) -> Result<(), ClientError> {
    let uri = uri(&format!("/deliveries/{}", delivery.delivery), &[("id", &delivery.id)]);
    connection.whole(request(Method::DELETE, &uri), Body::empty()).await.map(|_| ())
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
        let request = request(Method::GET, &uri(path, query));
        self.runtime.block_on(self.connection.json(request, Body::empty()))
    }

    /// Sends a DELETE request.
    ///
    /// # Errors
    ///
    /// [`ClientError`] gives the reason.
    pub fn delete(&mut self, path: &str, query: &[(&str, &str)]) -> Result<(), ClientError> {
        let request = request(Method::DELETE, &uri(path, query));
        self.runtime.block_on(self.connection.whole(request, Body::empty())).map(|_| ())
    }

    /// Deletes all bundles that the query selects.
    ///
    /// # Errors
    ///
    /// [`ClientError`] gives the reason.
    pub fn purge(&mut self, query: &[(&str, &str)]) -> Result<Purged, ClientError> {
        let request = request(Method::DELETE, &uri("/bundles", query));
        self.runtime.block_on(self.connection.json(request, Body::empty()))
    }

    /// Confirms a delivery.
    ///
    /// # Errors
    ///
    /// There is no such delivery, or [`ClientError`] gives the reason.
    pub fn confirm(&mut self, delivery: &Delivery) -> Result<(), ClientError> {
        self.runtime.block_on(confirm(&mut self.connection, delivery))
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
        let request = request(Method::POST, &uri("/bundles", query));
        self.runtime.block_on(self.connection.json(request, Body::from_stream(pieces)))
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
        let request = request(Method::POST, &uri(path, query));
        let coming = Coming::open(&mut self.connection, request, Body::empty());
        let mut coming = self.runtime.block_on(coming)?;
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
        self.runtime.block_on(Coming::take(&mut self.connection, query))
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
    /// Sends a request whose response is a stream: the connection has no other use.
    pub(super) async fn open(
        connection: &mut Connection,
        request: Builder,
        body: Body,
    ) -> Result<Self, ClientError> {
        let response = connection.exchange(request, body).await?;
        Ok(Self { body: response.into_body(), bytes: BytesMut::new() })
    }

    /// Takes the bundles of an endpoint from now on: the connection has no other use.
    pub(super) async fn take(
        connection: &mut Connection,
        query: &[(&str, &str)],
    ) -> Result<Self, ClientError> {
        let request = request(Method::GET, &uri("/deliveries", query));
        Self::open(connection, request, Body::empty()).await
    }

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
