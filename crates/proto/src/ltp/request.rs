//! What a user asks to be sent.

use engine::FileName;

/// How much of a block is sent until it arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Red {
    /// All of it.
    #[default]
    All,
    /// Its first octets; all of it if there are fewer.
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
    /// How much of it must arrive.
    pub red: Red,
}
