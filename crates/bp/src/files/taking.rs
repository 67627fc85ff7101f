//! The payload that is being received: its bytes, and how far it is.

use bytes::Bytes;
use engine::{FileId as OpenFile, FileName};
use sha2::Sha256;

use super::Use;
use super::joining::Key;
use crate::app::Delivery;

/// The payload that is being received.
#[derive(Debug)]
pub(super) struct Taking {
    pub(super) delivery: Delivery,
    /// Bytes read and not used yet, and whether the node has no more.
    pub(super) ahead: Bytes,
    pub(super) is_last: bool,
    /// Whether the node no longer has it.
    pub(super) is_void: bool,
    pub(super) step: Step,
}

#[derive(Debug)]
pub(super) enum Step {
    /// Reading as many bytes as a header may have.
    Beginning,
    Part(Part),
    Whole(Box<Whole>),
}

impl Step {
    /// Whether it waits for bytes of the node.
    pub(super) fn is_pulling(&self) -> bool {
        match self {
            Self::Beginning => true,
            Self::Part(part) => matches!(part.state, PartState::Pulling),
            Self::Whole(whole) => matches!(whole.state, WholeState::Pulling),
        }
    }
}

impl Taking {
    pub(super) fn purpose(&self) -> Use {
        Use::Receive(self.delivery.arrival)
    }
}

/// A part of a file.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) key: Key,
    pub(super) header: Bytes,
    /// The header, for people.
    pub(super) text: String,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) expected_crc: u32,
    pub(super) crc: u32,
    /// Offset of the next byte.
    pub(super) at: u64,
    pub(super) file: Option<OpenFile>,
    pub(super) state: PartState,
}

#[derive(Debug)]
pub(super) enum PartState {
    /// Looking whether the working file of a file with a name is still there.
    Looking,
    /// Opening the working file.
    Opening,
    /// Writing this number of bytes.
    Writing(u64),
    /// Waiting for bytes.
    Pulling,
    Syncing,
    /// Recording that the part is there.
    Recording,
    /// Recording the name that the complete file is to have.
    Choosing(PartNames),
    /// Giving it that name.
    Renaming(PartNames),
    /// Recording that it has it.
    Finishing(FileName),
}

/// Names for a complete file: the current one, and those left.
#[derive(Debug)]
pub(super) struct PartNames {
    pub(super) name: FileName,
    pub(super) left: Vec<String>,
}

impl Part {
    /// Bytes of it that are in the working file.
    pub(super) fn bytes(&self) -> u64 {
        self.at - self.start
    }
}

/// A payload that becomes a file of its own.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) hash: Sha256,
    pub(super) working: FileName,
    pub(super) file: Option<OpenFile>,
    pub(super) at: u64,
    pub(super) lying: Option<Lying>,
    pub(super) state: WholeState,
}

/// Bytes of a payload that lie in the working file of what it looked like a part of.
#[derive(Debug)]
pub(super) struct Lying {
    pub(super) key: Key,
    pub(super) file: OpenFile,
    pub(super) at: u64,
    pub(super) end: u64,
}

#[derive(Debug)]
pub(super) enum WholeState {
    Opening,
    /// Waiting for bytes.
    Pulling,
    /// Reading bytes that lie elsewhere.
    Reading,
    /// Writing this number of bytes.
    Writing(u64),
    Syncing,
    /// Giving it a name; another one is left.
    Renaming(WholeNames),
    /// Comparing it with the file of that name.
    Comparing(WholeNames, Comparing),
}

#[derive(Debug)]
pub(super) struct WholeNames {
    pub(super) name: FileName,
    pub(super) other: Option<FileName>,
}

#[derive(Debug)]
pub(super) struct Comparing {
    pub(super) file: Option<OpenFile>,
    pub(super) at: u64,
    pub(super) hash: Sha256,
}
