//! Requests of the user to send a file.

use engine::FileName;

/// Red part of a block, which is retransmitted until it arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Red {
    /// The whole block.
    #[default]
    All,
    /// The first bytes; the whole block if it is shorter.
    Prefix(u64),
    /// Nothing: the block is sent once, without confirmation.
    None,
}

/// Number by which the receiver recognises a block that a restarted sender sends again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// Number from which that of the session is derived, in as many bits as session numbers have.
    /// It is as good as random, and others cannot guess it (RFC 5326 §9.1).
    pub number: u64,
    /// Whether an earlier run may have sent a part: the receiver is asked what it has.
    pub resumes: bool,
}

/// Request to send a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// Destination engine.
    pub destination: u64,
    /// File to send.
    pub source: FileName,
    /// Name of the file at the destination.
    pub name: String,
    /// Part of the file that must arrive.
    pub red: Red,
}
