//! Reception of a bundle: from a layer in pieces or as a file, or from a user.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use engine::{FileId, FileName};

use super::super::layer::{Content, TransferId};
use super::super::routes::Priority;
use super::LinkRef;
use super::head::{Check, Head};
use crate::codec::bp7::{Bounds, BundleId, Eid};

/// Giver of a bundle, which waits for the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Giver {
    Layer {
        at: LinkRef,
        transfer: TransferId,
    },
    User {
        priority: Priority,
        /// Key of the request.
        key: Option<u128>,
    },
    /// The agent itself, with a status report.
    Agent,
    /// None: the received part of a bundle is kept after its link broke.
    Remains,
    /// The agent, which reassembled fragments.
    Fragments,
}

impl Giver {
    /// Whether the bundle was created at this node.
    pub(super) const fn is_here(self) -> bool {
        match self {
            Self::User { .. } | Self::Agent | Self::Fragments => true,
            Self::Layer { .. } | Self::Remains => false,
        }
    }
}

/// Place of the payload.
#[derive(Debug)]
pub(super) enum Body {
    /// Collected in memory while it is short.
    Memory(BytesMut),
    /// Whole in memory, in the buffer of its giver.
    Whole(Bytes),
    /// Written to a file of the agent.
    File(Filing),
    /// In a file, which is read to check it.
    There(There),
}

/// Payload that is written to a file.
#[derive(Debug)]
pub(super) struct Filing {
    pub(super) name: FileName,
    pub(super) file: Option<FileId>,
    /// Pieces waiting for the file to be open.
    pub(super) waiting: VecDeque<(u64, Bytes)>,
    /// Bytes that the store has not confirmed.
    pub(super) unwritten: usize,
    pub(super) syncing: bool,
}

/// File that holds the bundle already.
#[derive(Debug)]
pub(super) struct There {
    pub(super) name: FileName,
    /// Offset of the payload, if the file does not begin with the bundle's head.
    pub(super) payload_at: Option<u64>,
    pub(super) owns: bool,
}

/// A bundle being received.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) giver: Giver,
    /// Neighbour that began it. Its link may be down before the bundle is whole.
    pub(super) by: Option<Eid>,
    pub(super) body: Body,
    /// Bytes of its payload that are counted as collected in memory.
    pub(super) memory: usize,
    /// Bytes received before the head was decoded.
    beginning: Vec<u8>,
    /// Bytes to be received before the head is decoded again.
    next_look: usize,
    head: Option<(Head, Check)>,
    payload: u64,
    tail: Vec<u8>,
    /// Whether all of it has been received.
    pub(super) is_whole: bool,
    /// Whether its peer is paused.
    pub(super) is_paused: bool,
    /// Contents that are read, if it is made of these.
    pub(super) parts: Option<Parts>,
    /// Whether the blocks behind the payload are created here.
    pub(super) is_made: bool,
    /// Numbers of the security rules whose operations it passed, once these were processed.
    pub(super) secured: Option<Vec<u32>>,
    /// File from which it was read, deleted afterwards.
    pub(super) read_from: Option<FileName>,
}

/// Contents that are read one after the other.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Contents that are not read yet.
    pub(super) left: VecDeque<Content>,
    /// Open file of the first part, and the offset of the next read.
    pub(super) reading: Option<(FileId, u64)>,
    /// Whether an effect of the store is pending.
    pub(super) is_pending: bool,
}

/// Result of feeding bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// Nothing to do.
    Nothing,
    /// The head is complete: length of the payload and its first bytes, if any have come.
    Begins(Option<(u64, Bytes)>),
    /// Bytes of the payload, from this offset on.
    Payload(Option<(u64, Bytes)>),
    /// Not a bundle.
    Malformed,
}

impl Intake {
    pub(super) fn new(giver: Giver, body: Body) -> Self {
        Self {
            giver,
            by: None,
            body,
            memory: 0,
            beginning: Vec::new(),
            next_look: 1,
            head: None,
            payload: 0,
            tail: Vec::new(),
            is_whole: false,
            is_paused: false,
            parts: None,
            is_made: false,
            secured: None,
            read_from: None,
        }
    }

    /// Reception of a payload whose head is known.
    pub(super) fn with_head(giver: Giver, body: Body, head: Head) -> Self {
        let check = Check::new(&head);
        Self { head: Some((head, check)), ..Self::new(giver, body) }
    }

    /// Reassembly of fragments, ending with these blocks.
    pub(super) fn of_fragments(head: Head, parts: Parts, tail: Vec<u8>) -> Self {
        let intake = Self::with_head(Giver::Fragments, Body::Memory(BytesMut::new()), head);
        Self { parts: Some(parts), tail, ..intake }
    }

    /// Turns the received part into a fragment, if fragmentation is allowed and part of the payload
    /// has come (RFC 5050 §5.8). Version 7 fragments only outgoing bundles.
    pub(super) fn cut(&mut self) -> bool {
        let cut = match &self.head {
            Some((head @ Head::Six(_), _)) if head.may_be_cut() && self.payload > 0 => {
                // If only the blocks behind the payload are missing, the last byte is requested
                // with them.
                let end = self.payload.min(head.payload_len() - 1);
                (end > 0).then(|| head.cut_fragment(0, end).ok()).flatten().zip(Some(end))
            }
            Some(_) | None => None,
        };
        let Some((head, end)) = cut else { return false };
        let most = usize::try_from(end).unwrap_or(usize::MAX);
        match &mut self.body {
            Body::Memory(bytes) => bytes.truncate(most),
            Body::Whole(bytes) => bytes.truncate(most),
            Body::File(_) | Body::There(_) => {}
        }
        let check = Check::new(&head);
        (self.head, self.payload) = (Some((head, check)), end);
        self.tail.clear();
        self.giver = Giver::Remains;
        self.is_whole = true;
        true
    }

    /// Bytes that the store has not written.
    pub(super) fn unwritten(&self) -> usize {
        match &self.body {
            Body::File(filing) => filing.unwritten,
            Body::Memory(_) | Body::Whole(_) | Body::There(_) => 0,
        }
    }

    /// Change of the peer's pause, given the bytes that may wait: `true` pauses, `false` resumes.
    pub(super) fn flow(&mut self, write_ahead: usize) -> Option<bool> {
        let Body::File(filing) = &self.body else { return None };
        let holds_back = if self.is_paused {
            filing.unwritten > write_ahead / 2
        } else {
            filing.unwritten > write_ahead
        };
        (holds_back != self.is_paused).then(|| {
            self.is_paused = holds_back;
            holds_back
        })
    }

    /// Identity of the bundle, once its head is complete.
    pub(super) fn id(&self) -> Option<BundleId> {
        self.head().map(|head| head.key().id())
    }

    /// The head, once complete.
    pub(super) fn head(&self) -> Option<&Head> {
        self.head.as_ref().map(|(head, _)| head)
    }

    /// Feeds the next bytes of the bundle.
    pub(super) fn feed(&mut self, bytes: &Bytes, bounds: &Bounds) -> Fed {
        if self.head.is_some() {
            return self.feed_payload(bytes.clone(), bounds).map_or(Fed::Malformed, Fed::Payload);
        }
        // The start of a head is collected; a head that arrives complete is decoded in place.
        let mut beginning = bytes.clone();
        if !self.beginning.is_empty() {
            self.beginning.extend_from_slice(bytes);
            if self.beginning.len() < self.next_look {
                return Fed::Nothing;
            }
            beginning = std::mem::take(&mut self.beginning).into();
        }
        match Head::decode(&beginning, bounds) {
            Ok(Some(head)) => {
                let rest = beginning.split_off(head.payload_offset().min(beginning.len()));
                let check = Check::new(&head);
                self.head = Some((head, check));
                self.feed_payload(rest, bounds).map_or(Fed::Malformed, Fed::Begins)
            }
            Ok(None) => {
                self.beginning = beginning.to_vec();
                // Decoding restarts each time; doubling avoids quadratic cost for byte-wise
                // arrival.
                self.next_look = self.beginning.len().saturating_mul(2).min(bounds.head_max + 1);
                Fed::Nothing
            }
            Err(_) => Fed::Malformed,
        }
    }

    /// Feeds the end of the bundle: the received bytes are decoded however few they are.
    pub(super) fn feed_last(&mut self, bounds: &Bounds) -> Fed {
        self.is_whole = true;
        if self.head.is_some() || self.beginning.is_empty() {
            return Fed::Nothing;
        }
        self.next_look = 0;
        self.feed(&Bytes::new(), bounds)
    }

    fn feed_payload(&mut self, mut bytes: Bytes, bounds: &Bounds) -> Option<Option<(u64, Bytes)>> {
        let (head, check) = self.head.as_mut()?;
        let left = head.payload_len() - self.payload;
        let here = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let rest = bytes.split_off(here);
        let mut piece = None;
        if !bytes.is_empty() {
            check.update(&bytes);
            piece = Some((self.payload, bytes));
            self.payload += here as u64;
        }
        if !rest.is_empty() && self.tail.len() + rest.len() > check.tail_max(bounds) {
            return None;
        }
        self.tail.extend_from_slice(&rest);
        Some(piece)
    }

    /// Head and tail, if the bundle is complete and valid.
    pub(super) fn finish(&mut self, bounds: &Bounds) -> Option<(Head, Bytes)> {
        let (head, check) = self.head.take()?;
        if self.payload != head.payload_len() {
            return None;
        }
        let makes_tail = match &self.body {
            Body::There(there) => there.payload_at.is_some(),
            Body::Memory(_) | Body::Whole(_) | Body::File(_) => {
                self.giver.is_here() || self.giver == Giver::Remains
            }
        };
        let tail = std::mem::take(&mut self.tail);
        if makes_tail || self.is_made {
            return Some((head, check.tail(tail)));
        }
        check.is_sound(&tail, bounds).then(|| (head, tail.into()))
    }

    /// The payload in its present place.
    pub(super) fn content(&mut self, head: &Head) -> (Content, bool) {
        let len = head.payload_len();
        match &mut self.body {
            Body::Memory(bytes) => (Content::Bytes(std::mem::take(bytes).freeze()), false),
            Body::Whole(bytes) => (Content::Bytes(std::mem::take(bytes)), false),
            Body::File(filing) => {
                (Content::File { name: filing.name.clone(), offset: 0, len }, true)
            }
            Body::There(there) => {
                let offset = there.payload_at.unwrap_or(head.payload_offset() as u64);
                (Content::File { name: there.name.clone(), offset, len }, there.owns)
            }
        }
    }

    /// Files that are open.
    pub(super) fn open_files(&self) -> impl Iterator<Item = FileId> {
        let written = match &self.body {
            Body::File(filing) => filing.file,
            Body::Memory(_) | Body::Whole(_) | Body::There(_) => None,
        };
        let read = self.parts.as_ref().and_then(|parts| parts.reading).map(|(file, _)| file);
        written.into_iter().chain(read)
    }

    /// File to delete if the bundle is not kept. One that is being opened to be written is deleted
    /// once open.
    pub(super) fn file_to_delete(&self) -> Option<&FileName> {
        match &self.body {
            Body::Memory(_) | Body::Whole(_) => None,
            Body::File(filing) => filing.file.map(|_| &filing.name),
            Body::There(there) => {
                let is_opening = self.parts.as_ref().is_some_and(|it| it.reading.is_none());
                (there.owns && !is_opening).then_some(&there.name)
            }
        }
    }
}

impl From<Content> for Parts {
    fn from(content: Content) -> Self {
        Self { left: [content].into(), ..Self::default() }
    }
}
