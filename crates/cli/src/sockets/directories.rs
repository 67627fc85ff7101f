//! Options of protocols with directories: Saratoga.

use std::path::Path;

use transport::{Role, Transport};

use crate::sockets::scope;

/// Options of a sender.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = scope::SARATOGA)]
pub(crate) struct DeliveryOptions {
    /// Request permission before sending the file
    #[arg(long)]
    pub(crate) ask: bool,

    /// Delete the local file after delivery
    #[arg(long)]
    pub(crate) give: bool,
}

/// Options of a command that fetches a file.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = scope::SARATOGA)]
pub(crate) struct FetchOptions {
    /// Delete the file at the peer after delivery
    #[arg(long)]
    pub(crate) take: bool,
}

/// Options of a server.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = scope::SARATOGA_BESIDE_OTHERS)]
pub(crate) struct ServeOptions {
    /// Let peers fetch files and list directories, for `get`, `ls` and `send --checksum`
    #[arg(long)]
    serve: bool,

    /// Let peers delete files
    #[arg(long)]
    allow_delete: bool,
}

impl ServeOptions {
    /// Role of a process with these options.
    pub(crate) fn role(&self) -> Role {
        Role::Server { gets: self.serve, deletes: self.allow_delete }
    }
}

/// Announces the free space of a folder.
pub(crate) fn announce_space(transport: &mut dyn Transport, root: &Path) {
    if let Some(directories) = transport.directories() {
        directories.set_free_space(rt::free_bytes(root).ok().map(|bytes| bytes / 1024));
    }
}
