//! Requests of the user to send a file.

use engine::FileName;

/// Part of a block that is sent until it arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Red {
    /// All of it.
    #[default]
    All,
    /// Its first bytes; all of it if there are fewer.
    Prefix(u64),
    /// Nothing: it is sent once, and nobody says whether it arrived.
    None,
}

/// A file to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// The engine that shall have it.
    pub destination: u64,
    /// The file.
    pub source: FileName,
    /// Its name there.
    pub name: String,
    /// Part of it that must arrive.
    pub red: Red,
}
