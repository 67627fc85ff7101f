//! The emulated world that a command is about.

use control::folder::{self, FolderError};
use service::http::{Client, ClientError};

use crate::Usage;

/// World of a command.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// Name of the world [default: the only one]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Which {
    pub(super) fn world(&self) -> anyhow::Result<folder::Running> {
        folder::find(self.name.as_deref()).map_err(folder_error)
    }

    pub(super) fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(&folder::socket(&self.world()?.path)))
    }
}

/// Error of a client; requests that the server rejects are wrong usage.
pub(super) fn client_error(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::Refused { status: 400..500, error } => Usage(error).into(),
        ClientError::Refused { .. } | ClientError::Unreachable { .. } | ClientError::Answer(_) => {
            error.into()
        }
    }
}

/// Error of the folder of worlds; names that are wrong are wrong usage.
pub(super) fn folder_error(error: FolderError) -> anyhow::Error {
    match error {
        FolderError::Name(_)
        | FolderError::Taken(_)
        | FolderError::Unknown { .. }
        | FolderError::None
        | FolderError::Several(_) => Usage(error.to_string()).into(),
        FolderError::Foreign(_) | FolderError::System { .. } => error.into(),
    }
}
