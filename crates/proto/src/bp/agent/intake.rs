//! A bundle that comes: from a layer in pieces or as a file, or from a user.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use engine::{FileId, FileName};
use wire::bp7::{Bounds, BundleId};

use super::super::layer::{Content, LinkId, TransferId};
use super::super::routes::Priority;
use super::head::{Check, Head};

/// Bytes of a working file that are read at one time.
pub(super) const READ: usize = 256 << 10;

/// Who waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Giver {
    Layer {
        layer: usize,
        link: LinkId,
        transfer: TransferId,
    },
    User {
        priority: Priority,
    },
    /// The agent itself, a report.
    Agent,
    /// Nobody: what came of a bundle before its link broke is kept.
    Remains,
    /// The agent, of the fragments of a bundle.
    Fragments,
}

impl Giver {
    /// Whether the bundle is from this node.
    pub(super) const fn is_here(self) -> bool {
        match self {
            Self::User { .. } | Self::Agent | Self::Fragments => true,
            Self::Layer { .. } | Self::Remains => false,
        }
    }
}

/// Bundles that come, and those who wait for them to be safe.
#[derive(Debug, Default)]
pub(super) struct Intakes {
    by_number: BTreeMap<u64, Box<Intake>>,
    /// Transfers of layers, and the bundles that they bring.
    transfers: BTreeMap<(usize, TransferId), u64>,
    /// Neighbours that are held back, and the bundles because of which they are.
    held_back: BTreeMap<(usize, LinkId), BTreeSet<u64>>,
    /// Givers that wait for a bundle to be safe.
    givers: BTreeMap<u64, Vec<Giver>>,
}

impl Intakes {
    /// Number of bundles that come.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(super) fn insert(&mut self, number: u64, intake: Intake) {
        self.by_number.insert(number, Box::new(intake));
    }

    pub(super) fn get(&self, number: u64) -> Option<&Intake> {
        self.by_number.get(&number).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Intake> {
        self.by_number.get_mut(&number).map(Box::as_mut)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Box<Intake>> {
        self.by_number.remove(&number)
    }

    /// Notes that a transfer brings a bundle.
    pub(super) fn begin_transfer(&mut self, transfer: (usize, TransferId), number: u64) {
        self.transfers.insert(transfer, number);
    }

    /// The bundle that a transfer brings.
    pub(super) fn of_transfer(&self, transfer: (usize, TransferId)) -> Option<u64> {
        self.transfers.get(&transfer).copied()
    }

    /// Forgets a transfer. Returns the bundle that it brought.
    pub(super) fn end_transfer(&mut self, transfer: (usize, TransferId)) -> Option<u64> {
        self.transfers.remove(&transfer)
    }

    /// Holds a neighbour back because of a bundle; whether it was not held back before.
    pub(super) fn hold_back(&mut self, from: (usize, LinkId), number: u64) -> bool {
        let held_back = self.held_back.entry(from).or_default();
        let is_first = held_back.is_empty();
        held_back.insert(number);
        is_first
    }

    /// Holds a neighbour back because of a bundle no longer; whether it is not held back any more.
    pub(super) fn let_flow(&mut self, from: (usize, LinkId), number: u64) -> bool {
        let Some(held_back) = self.held_back.get_mut(&from) else { return false };
        let is_last = held_back.remove(&number) && held_back.is_empty();
        if is_last {
            self.held_back.remove(&from);
        }
        is_last
    }

    /// Notes who waits for a bundle to be safe.
    pub(super) fn set_giver(&mut self, number: u64, giver: Giver) {
        self.givers.insert(number, vec![giver]);
    }

    /// Adds one who waits for a bundle to be safe; `false` if it is.
    pub(super) fn add_giver(&mut self, number: u64, giver: Giver) -> bool {
        let Some(givers) = self.givers.get_mut(&number) else { return false };
        givers.push(giver);
        true
    }

    /// Takes out those who wait for a bundle to be safe.
    pub(super) fn take_givers(&mut self, number: u64) -> Vec<Giver> {
        self.givers.remove(&number).unwrap_or_default()
    }
}

/// Where the payload goes, or is.
#[derive(Debug)]
pub(super) enum Body {
    /// Into memory, as long as it is short.
    Memory(BytesMut),
    /// In memory, all of it, as whoever gave it had it there.
    Whole(Bytes),
    /// Into a file of the agent's.
    File(Filing),
    /// It is in a file, which is read to see whether it is sound.
    There(Reading),
}

/// A payload that is written to a file.
#[derive(Debug)]
pub(super) struct Filing {
    pub(super) name: FileName,
    pub(super) file: Option<FileId>,
    /// Pieces that wait for the file to be open.
    pub(super) waiting: VecDeque<(u64, Bytes)>,
    /// Bytes of pieces that the store has not confirmed.
    pub(super) unwritten: usize,
    pub(super) syncing: bool,
}

/// A file that is read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) name: FileName,
    pub(super) file: Option<FileId>,
    /// Up to here it was read.
    pub(super) at: u64,
    pub(super) end: u64,
    /// Whether it has the payload alone, of which the check is to be made.
    pub(super) payload_only: bool,
    pub(super) owns: bool,
}

/// A bundle that comes.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) giver: Giver,
    pub(super) body: Body,
    /// What came before the head was read.
    beginning: Vec<u8>,
    /// The head is looked for again when so much has come.
    next_look: usize,
    head: Option<(Head, Check)>,
    payload: u64,
    tail: Vec<u8>,
    /// All of it has come.
    pub(super) is_whole: bool,
    /// Its peer is held back.
    pub(super) is_paused: bool,
    /// What it is joined of.
    pub(super) join: Option<Join>,
    /// What follows the payload is made here.
    pub(super) is_made: bool,
    /// Its security was seen to.
    pub(super) is_secured: bool,
    /// The file in which it was before, and which goes when it was read.
    pub(super) read_from: Option<FileName>,
}

/// Fragments that are put together.
#[derive(Debug, Default)]
pub(super) struct Join {
    /// The parts that are to come, in order.
    pub(super) parts: VecDeque<Content>,
    /// The file of the first of them, once it is open, and up to where it was read.
    pub(super) reading: Option<(FileId, u64)>,
    /// The store is being asked.
    pub(super) asks: bool,
}

/// What the last bytes made clear.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// Nothing that has to be done.
    Nothing,
    /// How long the payload is, and its first bytes, if they have come.
    Begins(Option<(u64, Bytes)>),
    /// These bytes are of the payload, from the offset on.
    Payload(Option<(u64, Bytes)>),
    /// It is no bundle.
    Malformed,
}

impl Intake {
    pub(super) fn new(giver: Giver, body: Body) -> Self {
        Self {
            giver,
            body,
            beginning: Vec::new(),
            next_look: 1,
            head: None,
            payload: 0,
            tail: Vec::new(),
            is_whole: false,
            is_paused: false,
            join: None,
            is_made: false,
            is_secured: false,
            read_from: None,
        }
    }

    /// One whose head is known, and of which the payload alone comes.
    pub(super) fn with_head(giver: Giver, body: Body, head: Head) -> Self {
        let check = Check::new(&head);
        Self { head: Some((head, check)), ..Self::new(giver, body) }
    }

    /// One that is joined of fragments, and ends with these blocks.
    pub(super) fn of_fragments(head: Head, join: Join, tail: Vec<u8>) -> Self {
        let intake = Self::with_head(Giver::Fragments, Body::Memory(BytesMut::new()), head);
        Self { join: Some(join), tail, ..intake }
    }

    /// Makes a fragment of what has come, if it may be one and something of the payload has (RFC 5050 §5.8).
    /// Version 7 makes fragments only of what goes out.
    pub(super) fn cut(&mut self) -> bool {
        let cut = match &self.head {
            Some((head @ Head::Six(_), _)) if head.may_be_cut() && self.payload > 0 => {
                // Of one that lacks nothing but what follows the payload, that is asked for again with the last byte.
                let end = self.payload.min(head.payload_len() - 1);
                (end > 0).then(|| head.of_part(0, end).ok()).flatten().zip(Some(end))
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

    /// Whether its peer is to be held back, or may go on, if that is not so already; with so many bytes that wait.
    pub(super) fn flow(&mut self, write_ahead: usize) -> Option<bool> {
        let Body::File(filing) = &self.body else { return None };
        let holds_back = match self.is_paused {
            true => filing.unwritten > write_ahead / 2,
            false => filing.unwritten > write_ahead,
        };
        (holds_back != self.is_paused).then(|| {
            self.is_paused = holds_back;
            holds_back
        })
    }

    /// What tells the bundle from others, once its head has come.
    pub(super) fn id(&self) -> Option<BundleId> {
        self.head().map(|head| head.key().id())
    }

    /// The head, once it has come.
    pub(super) fn head(&self) -> Option<&Head> {
        self.head.as_ref().map(|(head, _)| head)
    }

    /// Takes the next bytes of the bundle.
    pub(super) fn feed(&mut self, bytes: &Bytes, bounds: &Bounds) -> Fed {
        if self.head.is_some() {
            return self.feed_payload(bytes.clone(), bounds).map_or(Fed::Malformed, Fed::Payload);
        }
        // What begins a head is gathered; one that comes whole is read where it is.
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
                // Reading begins anew each time, so what comes byte by byte costs no square of it.
                self.next_look = self.beginning.len().saturating_mul(2).min(bounds.head_max + 1);
                Fed::Nothing
            }
            Err(_) => Fed::Malformed,
        }
    }

    /// All of it has come: whatever came is looked at, however short it is.
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

    /// The head and what follows the payload, if it is a bundle and all of it came.
    pub(super) fn finish(&mut self, bounds: &Bounds) -> Option<(Head, Bytes)> {
        let (head, check) = self.head.take()?;
        if self.payload != head.payload_len() {
            return None;
        }
        let makes_tail = match &self.body {
            Body::There(reading) => reading.payload_only,
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

    /// The payload, where it is now.
    pub(super) fn content(&mut self, head: &Head) -> (Content, bool) {
        let len = head.payload_len();
        match &mut self.body {
            Body::Memory(bytes) => (Content::Bytes(std::mem::take(bytes).freeze()), false),
            Body::Whole(bytes) => (Content::Bytes(std::mem::take(bytes)), false),
            Body::File(filing) => {
                (Content::File { name: filing.name.clone(), offset: 0, len }, true)
            }
            Body::There(reading) => {
                let offset = if reading.payload_only {
                    reading.end - len
                } else {
                    head.payload_offset() as u64
                };
                (Content::File { name: reading.name.clone(), offset, len }, reading.owns)
            }
        }
    }

    /// The file that goes when the bundle is not kept.
    pub(super) fn leaves(&self) -> Option<(Option<FileId>, FileName)> {
        match &self.body {
            Body::Memory(_) | Body::Whole(_) => None,
            Body::File(filing) => Some((filing.file, filing.name.clone())),
            Body::There(reading) => reading.owns.then(|| (reading.file, reading.name.clone())),
        }
    }
}
