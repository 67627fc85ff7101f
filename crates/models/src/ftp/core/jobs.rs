//! Purposes of effects.

use engine::{FileName, PathId};

use super::DataId;
use crate::flow::Job;

/// Purpose of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ftp) enum Use {
    /// Data of a file on a data connection.
    Flow(DataId, Job),
    /// A data connection.
    Data(DataId),
    Client(PathId, ClientJob),
    Server(PathId, ServerJob),
}

/// Purpose of an effect of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ftp) enum ClientJob {
    /// Opens the file to send, or the working file of a download.
    Open,
    /// Renames a downloaded file.
    Install,
    /// Opens the sent file again to compare its CRC with the server's.
    OpenToSum,
    Sum,
    /// The result is ignored.
    Forget,
}

/// Purpose of an effect of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ftp) enum ServerJob {
    /// Sends this file.
    Retrieve(String),
    /// Receives a file from this offset on, or at its end.
    Store {
        name: String,
        offset: Option<u64>,
    },
    /// Reports a file's length or modification time.
    Size,
    Modified,
    /// Changes to a directory.
    Change(String),
    /// Lists a directory, or the entry of this name.
    List {
        details: bool,
        only: Option<String>,
        directory: FileName,
    },
    /// Operation on a name whose success has this reply.
    Done(u16, &'static str),
    /// Edits a file: open, read, open for writing, write, sync.
    Edit(Edit),
    /// The result is ignored.
    Forget,
}

/// Store operation of a file being edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ftp) enum Edit {
    OpenToRead,
    Read,
    OpenToWrite,
    Write,
    Sync,
}
