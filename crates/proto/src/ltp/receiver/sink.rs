//! Where a session puts the block that it receives.

use engine::FileId;
use wire::ltp::SessionId;

use super::super::config::Format;
use super::super::file::Description;
use super::super::indication::PeerError;
use super::super::marks;
use super::super::transport::flow::Relay;
use crate::spool::Spool;

/// Where a session puts the block that it receives.
#[derive(Debug)]
pub(super) enum Sink {
    /// Into a working file, which gets its name or is handed over.
    File(Box<Filing>),
    /// Into memory, as units that are indicated one by one.
    Units(Vec<u8>),
    /// Into memory, as a block that is handed over. It goes on in a file if it grows too long.
    Block(Vec<u8>),
    /// Into a working file, which is kept until another engine has the block.
    Relay(Box<Transit>),
}

/// A file that arrives.
#[derive(Debug)]
pub(super) struct Filing {
    pub(super) spool: Spool,
    /// The description of the file, and where it stands.
    description: Option<(u64, Vec<u8>)>,
    file: Option<Description>,
}

/// A block for another engine.
#[derive(Debug)]
pub(super) struct Transit {
    pub(super) spool: Spool,
    pub(super) relay: Relay,
}

impl Sink {
    /// The working file.
    pub(super) fn spool(&self) -> Option<&Spool> {
        match self {
            Self::File(filing) => Some(&filing.spool),
            Self::Relay(transit) => Some(&transit.spool),
            Self::Units(_) | Self::Block(_) => None,
        }
    }

    /// The working file, to write to it.
    pub(super) fn spool_mut(&mut self) -> Option<&mut Spool> {
        match self {
            Self::File(filing) => Some(&mut filing.spool),
            Self::Relay(transit) => Some(&mut transit.spool),
            Self::Units(_) | Self::Block(_) => None,
        }
    }

    /// The working file, once it is open.
    pub(super) fn open_file(&self) -> Option<FileId> {
        self.spool().and_then(Spool::file)
    }

    /// The file, once all of it is here.
    pub(super) fn file(&self) -> Option<&Description> {
        match self {
            Self::File(filing) => filing.file.as_ref(),
            Self::Units(_) | Self::Block(_) | Self::Relay(_) => None,
        }
    }

    /// The block for another engine.
    pub(super) fn relay(&self) -> Option<&Relay> {
        match self {
            Self::Relay(transit) => Some(&transit.relay),
            Self::File(_) | Self::Units(_) | Self::Block(_) => None,
        }
    }

    /// The block for another engine, to change it.
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

    /// Bytes of memory held.
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

    /// Takes the description, which stands at `at`.
    pub(super) fn describe(&mut self, at: u64, bytes: &[u8]) {
        self.description = Some((at, bytes.to_vec()));
    }

    /// The file, once all of it is here.
    pub(super) fn file(&self) -> Option<&Description> {
        self.file.as_ref()
    }

    /// Where the description stands.
    pub(super) fn described(&self) -> Option<(u64, u64)> {
        self.description.as_ref().map(|(at, bytes)| (*at, at + bytes.len() as u64))
    }

    /// Bytes of the file in a block that ends at `end`, as far as that is known.
    pub(super) fn content(&self, end: Option<u64>) -> Option<u64> {
        self.description.as_ref().map(|(at, _)| *at).or(end)
    }

    /// Checks a file of `content` bytes by its description, once it is summed up.
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
