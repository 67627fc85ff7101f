//! Requests of a user.

use bytes::Bytes;
use engine::FileName;

use crate::ftp::core::Core;
use crate::ftp::indication::{Failure, Indication, RequestId};
use crate::ftp::relay::{Half, Relayed};

/// Request of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ftp) struct Request {
    pub(in crate::ftp) id: RequestId,
    pub(in crate::ftp) what: What,
    /// Request that this one depends on.
    pub(in crate::ftp) needs: Option<RequestId>,
    /// Number of interrupted attempts.
    pub(in crate::ftp) attempts: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ftp) enum What {
    Put {
        source: Source,
        name: String,
    },
    Get {
        name: String,
        target: FileName,
        /// Whether the request is a READ, whose name denotes a control file.
        records: bool,
    },
    /// Command without a data transfer.
    Command(String),
    /// Half of a transfer between two servers.
    Relay {
        name: String,
        half: Half,
    },
}

impl What {
    /// Name of the file at the server.
    pub(in crate::ftp) fn name(&self) -> &str {
        match self {
            Self::Put { name, .. } | Self::Get { name, .. } | Self::Relay { name, .. } => name,
            Self::Command(_) => "",
        }
    }
}

/// Content of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ftp) enum Source {
    File(FileName),
    Text(Bytes),
}

/// Indicates a failed request; for a transfer between two servers, once for both halves.
pub(super) fn failed(request: &Request, why: Failure, core: &mut Core) {
    match request.what {
        What::Relay { .. } => core.relayed.push_back((request.id, Relayed::Failed(why))),
        What::Put { .. } | What::Get { .. } | What::Command(_) => {
            core.indicate(Indication::Failed { request: request.id, why });
        }
    }
}

/// Working file of a request, before it is renamed.
pub(super) fn spool_of(request: RequestId) -> FileName {
    FileName::spool(&format!("ftp-{}", request.0)).expect("letters and digits are a name")
}
