//! Destination of a received block.

use engine::FileId;
use session::spool::Spool;

use super::super::config::Format;
use super::super::file::Description;
use super::super::indication::PeerError;
use super::super::marks;
use super::super::transport::flow::Relay;
use crate::segment::SessionId;

/// Destination of a received block.
#[derive(Debug)]
pub(super) enum Sink {
    /// Working file that gets a name or is handed over.
    File(Box<Filing>),
    /// Memory, as units that are indicated one by one.
    Units(Vec<u8>),
    /// Memory, as a block that is handed over. It moves to a file if it grows too long.
    Block(Vec<u8>),
    /// Working file that is kept until another engine has the block.
    Relay(Box<Transit>),
}

/// File being received.
#[derive(Debug)]
pub(super) struct Filing {
    pub(super) spool: Spool,
    /// Description of the file, and its offset.
    description: Option<(u64, Vec<u8>)>,
    file: Option<Description>,
}

/// Block for another engine.
#[derive(Debug)]
pub(super) struct Transit {
    pub(super) spool: Spool,
    pub(super) relay: Relay,
}

impl Sink {
    /// Working file.
    pub(super) fn spool(&self) -> Option<&Spool> {
        match self {
            Self::File(filing) => Some(&filing.spool),
            Self::Relay(transit) => Some(&transit.spool),
            Self::Units(_) | Self::Block(_) => None,
        }
    }

    /// Working file, for writing.
    pub(super) fn spool_mut(&mut self) -> Option<&mut Spool> {
        match self {
            Self::File(filing) => Some(&mut filing.spool),
            Self::Relay(transit) => Some(&mut transit.spool),
            Self::Units(_) | Self::Block(_) => None,
        }
    }

    /// Working file, once open.
    pub(super) fn open_file(&self) -> Option<FileId> {
        self.spool().and_then(Spool::file)
    }

    /// Description of the file, once complete.
    pub(super) fn file(&self) -> Option<&Description> {
        match self {
            Self::File(filing) => filing.file.as_ref(),
            Self::Units(_) | Self::Block(_) | Self::Relay(_) => None,
        }
    }

    /// Block for another engine.
    pub(super) fn relay(&self) -> Option<&Relay> {
        match self {
            Self::Relay(transit) => Some(&transit.relay),
            Self::File(_) | Self::Units(_) | Self::Block(_) => None,
        }
    }

    /// Block for another engine, mutable.
    pub(super) fn relay_mut(&mut self) -> Option<&mut Relay> {
        match self {
            Self::Relay(transit) => Some(&mut transit.relay),
            Self::File(_) | Self::Units(_) | Self::Block(_) => None,
        }
    }

    /// Bytes of a block in memory.
    pub(super) fn in_memory(&self) -> usize {
        match self {
            Self::Units(block) | Self::Block(block) => block.len(),
            Self::File(_) | Self::Relay(_) => 0,
        }
    }

    /// Bytes of memory used.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::File(filing) => size_of::<Filing>() + filing.memory(),
            Self::Units(block) | Self::Block(block) => block.len(),
            Self::Relay(transit) => size_of::<Transit>() + transit.relay.memory(),
        }
    }
}

impl Filing {
    pub(super) fn new(session: SessionId) -> Self {
        Self { spool: Spool::new(marks::spool_name(session)), description: None, file: None }
    }

    fn memory(&self) -> usize {
        self.description.as_ref().map_or(0, |(_, bytes)| bytes.len())
    }

    /// Stores a part of the description at offset `at`.
    pub(super) fn describe(&mut self, at: u64, bytes: &[u8]) {
        self.description = Some((at, bytes.to_vec()));
    }

    /// Description of the file, once complete.
    pub(super) fn file(&self) -> Option<&Description> {
        self.file.as_ref()
    }

    /// Range of the description in the block.
    pub(super) fn described(&self) -> Option<(u64, u64)> {
        self.description.as_ref().map(|(at, bytes)| (*at, at + bytes.len() as u64))
    }

    /// Bytes of the file in a block that ends at `end`, if known.
    pub(super) fn content(&self, end: Option<u64>) -> Option<u64> {
        self.description.as_ref().map(|(at, _)| *at).or(end)
    }

    /// Checks a file of `content` bytes against its description, once its checksum is computed.
    pub(super) fn check(&mut self, format: &Format, content: u64) -> Option<Result<(), PeerError>> {
        let checksum = self.spool.checksum(content)?;
        let file = match format {
            Format::Raw { name } => {
                Some(Description { name: name.clone(), size: content, checksum })
            }
            Format::Described => {
                self.description.as_ref().and_then(|(_, bytes)| Description::decode(bytes))
            }
        };
        let Some(file) = file else { return Some(Err(PeerError::NotDescribed)) };
        if file.size != content || file.checksum != checksum {
            return Some(Err(PeerError::WrongContent));
        }
        self.file = Some(file);
        Some(Ok(()))
    }
}
