//! The one transfer or request of a command.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use cfdp::{Config, PutRequest};
use engine::FileName;
use transport::protocol::Kind;
use transport::quantity::Span;

use super::put::CfdpOptions;
use crate::sockets::cfdp_over_node::Node;
use crate::sockets::transfer::Options;
use crate::sockets::{directories, groups};

/// Request of a command to one peer.
pub(crate) struct Job<W = Wish> {
    pub(crate) options: Options,
    pub(crate) ends: Ends,
    pub(crate) wish: W,
    pub(crate) timeout: Option<Span>,
    /// The bundle node that carries PDUs, in place of a socket.
    pub(crate) node: Option<Node>,
}

/// Request for one file or directory.
#[derive(Debug)]
pub(crate) enum Wish {
    /// Send a file.
    Send(Box<SendFile>),
    /// Fetch a file into the directory `root`, as `name`.
    Get {
        remote: String,
        root: PathBuf,
        name: String,
        /// Whether to delete the file at the peer after delivery.
        takes: bool,
    },
    /// List a directory.
    List(String),
    /// Delete a file.
    Delete(String),
}

/// A file to send: `name` of the directory `root`, called `remote` at the receiver.
#[derive(Debug)]
pub(crate) struct SendFile {
    pub(crate) root: PathBuf,
    pub(crate) name: String,
    pub(crate) remote: String,
    /// Name of the file as the user wrote it.
    pub(crate) called: String,
    /// Folder for the state, in place of the user's.
    pub(crate) state: Option<PathBuf>,
    pub(crate) cfdp: CfdpOptions,
    pub(crate) groups: groups::SendOptions,
    pub(crate) directories: directories::DeliveryOptions,
    /// The request to a CFDP entity, if there is one.
    pub(crate) put: Option<PutRequest>,
}

impl SendFile {
    /// Request for the file to CFDP entity `remote` by this protocol, with an entity's settings.
    ///
    /// # Errors
    ///
    /// The file's name is invalid.
    pub(super) fn put_request(
        &self,
        kind: Kind,
        remote: u64,
        config: &Config,
    ) -> Result<PutRequest> {
        Ok(PutRequest {
            source: Some(FileName::file(&self.name)?),
            source_name: Some(self.called.clone()),
            destination_name: self.remote.clone(),
            ..self.cfdp.request(kind, remote, config)
        })
    }
}

impl Wish {
    pub(super) fn verb(&self) -> &'static str {
        match self {
            Self::Send(_) => "sending",
            Self::Get { .. } => "fetching",
            Self::List(_) => "listing",
            Self::Delete(_) => "deleting",
        }
    }

    /// Name at the peer.
    pub(super) fn remote(&self) -> &str {
        match self {
            Self::Send(file) => &file.remote,
            Self::Get { remote, .. } => remote,
            Self::List(name) | Self::Delete(name) => name,
        }
    }

    /// Local file.
    pub(super) fn local(&self) -> PathBuf {
        match self {
            Self::Send(file) => file.root.join(&file.name),
            Self::Get { root, name, .. } => root.join(name),
            Self::List(_) | Self::Delete(_) => PathBuf::new(),
        }
    }

    pub(super) fn is_send(&self) -> bool {
        matches!(self, Self::Send(_))
    }
}

/// Addresses and numbers of both ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) to: SocketAddr,
    /// Multicast group at that address, if it is one.
    pub(crate) group: Option<rt::Group>,
    pub(crate) listen: SocketAddr,
    /// The number given to this end, if any.
    pub(crate) entity: Option<u64>,
    pub(crate) remote_entity: u64,
    /// LTP-T engine at that address, if it is not the destination.
    pub(crate) via: Option<u64>,
}

impl Ends {
    /// Ends without addresses, at a bundle node.
    pub(crate) fn at_node(entity: u64, remote_entity: u64) -> Self {
        let any = ([0, 0, 0, 0], 0).into();
        let entity = Some(entity);
        Self { to: any, group: None, listen: any, entity, remote_entity, via: None }
    }

    /// Address of the peer, unless a bundle node or another engine leads to it.
    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        (self.to.port() != 0 && self.via.is_none()).then_some(self.to)
    }

    /// Engine at that address.
    pub(crate) fn next(&self) -> u64 {
        self.via.unwrap_or(self.remote_entity)
    }
}
