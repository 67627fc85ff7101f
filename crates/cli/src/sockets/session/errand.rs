//! Requests to peers, as far as the drivers that carry them depend on the request.

use anyhow::Result;
use cfdp::{Config, PutRequest};
use transport::protocol::Kind;

use super::job::{Ends, Job, Wish};
use super::place::Place;
use crate::sockets::groups;
use crate::sockets::transfer::Options;

impl<W: Errand> Job<W> {
    /// The store for the job with the peer at `to`. `resumes`: the protocol's settings let the same
    /// command resume a transfer.
    pub(super) fn open_store(
        &self,
        to: &str,
        resumes: bool,
        waker: &rt::Waker,
    ) -> Result<(rt::FileStore, Place)> {
        self.wish.open_store(&self.options, &self.ends, to, resumes, waker)
    }
}

/// Request, as far as its driver depends on it.
pub(crate) trait Errand {
    /// Whether it keeps partial receptions.
    fn keeps(&self) -> bool;

    /// Whether a file is deleted at its sender once its receiver has it.
    fn moves(&self) -> bool;

    /// Options of groups, if it sends.
    fn groups(&self) -> Option<&groups::SendOptions>;

    /// Plans the request by a protocol to CFDP entity `remote`, and limits this end's entity to it.
    ///
    /// # Errors
    ///
    /// A file's name is invalid.
    fn plan_put(&mut self, kind: Kind, remote: u64, config: &mut Config) -> Result<()>;

    /// The request to a CFDP entity, if there is one.
    fn put(&self) -> Option<&PutRequest>;

    /// See [`Job::open_store`].
    fn open_store(
        &self,
        options: &Options,
        ends: &Ends,
        to: &str,
        resumes: bool,
        waker: &rt::Waker,
    ) -> Result<(rt::FileStore, Place)>;
}

impl Errand for Wish {
    fn keeps(&self) -> bool {
        matches!(self, Self::Get { .. })
    }

    fn moves(&self) -> bool {
        match self {
            Self::Send(file) => file.directories.give,
            Self::Get { takes, .. } => *takes,
            Self::List(_) | Self::Delete(_) => false,
        }
    }

    fn groups(&self) -> Option<&groups::SendOptions> {
        match self {
            Self::Send(file) => Some(&file.groups),
            Self::Get { .. } | Self::List(_) | Self::Delete(_) => None,
        }
    }

    fn plan_put(&mut self, kind: Kind, remote: u64, config: &mut Config) -> Result<()> {
        config.limits.transactions = 1;
        if let Self::Send(file) = self {
            file.put = Some(file.put_request(kind, remote, config)?);
        }
        Ok(())
    }

    fn put(&self) -> Option<&PutRequest> {
        match self {
            Self::Send(file) => file.put.as_ref(),
            Self::Get { .. } | Self::List(_) | Self::Delete(_) => None,
        }
    }

    fn open_store(
        &self,
        options: &Options,
        _ends: &Ends,
        to: &str,
        resumes: bool,
        waker: &rt::Waker,
    ) -> Result<(rt::FileStore, Place)> {
        Place::open(self, options, to, resumes, waker)
    }
}
