//! Destination of a received block.

use engine::FileId;
use session::delivery::Delivery;
use session::ranges::Ranges;
use session::sum::Value;

use super::super::config::Format;
use super::super::file::Description;
use super::super::indication::PeerError;
use super::super::records;
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
    pub(super) delivery: Delivery,
    /// Description of the file, and its offset.
    description: Option<(u64, Vec<u8>)>,
    file: Option<Description>,
}

/// Block for another engine.
#[derive(Debug)]
pub(super) struct Transit {
    pub(super) delivery: Delivery,
    pub(super) relay: Relay,
}

impl Sink {
    /// Delivery of a block in a working file.
    pub(super) fn delivery(&self) -> Option<&Delivery> {
        match self {
            Self::File(filing) => Some(&filing.delivery),
            Self::Relay(transit) => Some(&transit.delivery),
            Self::Units(_) | Self::Block(_) => None,
        }
    }

    /// Delivery of a block in a working file, mutable.
    pub(super) fn delivery_mut(&mut self) -> Option<&mut Delivery> {
        match self {
            Self::File(filing) => Some(&mut filing.delivery),
            Self::Relay(transit) => Some(&mut transit.delivery),
            Self::Units(_) | Self::Block(_) => None,
        }
    }

    /// Working file, once open.
    pub(super) fn open_file(&self) -> Option<FileId> {
        self.delivery().and_then(|delivery| delivery.spool.file())
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
}

impl Filing {
    pub(super) fn new(session: SessionId) -> Self {
        let delivery = Delivery::new(records::spool_name(session));
        Self { delivery, description: None, file: None }
    }

    /// Stores a part of the description at offset `at`.
    pub(super) fn describe(&mut self, at: u64, bytes: &[u8]) {
        self.description = Some((at, bytes.to_vec()));
    }

    /// Continues with these parts of the block, which an earlier run stored, and the file if it
    /// verified that.
    pub(super) fn resume(
        &mut self,
        parts: &Ranges,
        description: Option<(u64, Vec<u8>)>,
        file: Option<Description>,
    ) {
        let mut stored = parts.clone();
        if let Some((offset, _)) = description {
            stored.remove(offset, u64::MAX);
        }
        self.delivery.resume(stored);
        if file.is_some() {
            self.delivery.resume_installing();
        }
        (self.description, self.file) = (description, file);
    }

    /// Description of the file and its offset, once it has arrived.
    pub(super) fn description(&self) -> Option<&(u64, Vec<u8>)> {
        self.description.as_ref()
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

    /// Checks a file of `content` bytes with this checksum against its description.
    pub(super) fn check(
        &mut self,
        format: &Format,
        content: u64,
        sum: Value,
    ) -> Result<(), PeerError> {
        let checksum = sum.check().unwrap_or_default();
        let file = match format {
            Format::Raw { name } => {
                Some(Description { name: name.clone(), size: content, checksum })
            }
            Format::Described => {
                self.description.as_ref().and_then(|(_, bytes)| Description::decode(bytes))
            }
        };
        let file = file.ok_or(PeerError::NotDescribed)?;
        if file.size != content || file.checksum != checksum {
            return Err(PeerError::WrongContent);
        }
        self.file = Some(file);
        Ok(())
    }
}
