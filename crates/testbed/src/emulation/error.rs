//! Errors of transfers in an emulated world.

use std::io;

use transport::text::SpecError;

/// Reason why transfers could not be run.
#[derive(Debug, thiserror::Error)]
pub enum TransfersError {
    /// The scenario cannot be used.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A host could not be set up.
    #[error("{host}: {error}")]
    Host {
        /// Name of the host.
        host: String,
        /// Error of the system.
        error: io::Error,
    },
    /// A tool could not be run; failures of the tool itself are results.
    #[error("{tool}: {error}")]
    Tool {
        /// Name of the tool.
        tool: String,
        /// Error of the system.
        error: io::Error,
    },
    /// The links have stopped.
    #[error("the links: {0}")]
    Links(io::Error),
}
