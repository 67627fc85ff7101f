//! Bundles presented as files to an engine below a layer: head, payload in its place, tail. The
//! engine's effects pass through here.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use engine::{
    Completion, Effect, EffectError, EffectResult, FileBytes, FileId, FileJob, FileName,
    FilestoreRequest, OpenMode, StoreEffect, Ticket, Work,
};

use super::layer::{Content, Outgoing};
use super::scope::Scope;

/// First number of files and tickets of this layer; numbers of the store and of the engine are
/// below.
const OURS: u64 = 1 << 63;

/// A bundle that the engine reads as a file.
#[derive(Debug)]
struct Composed {
    bundle: Outgoing,
    /// The payload's file, once open.
    file: Option<FileId>,
}

/// Purpose of an effect of such a file.
#[derive(Debug)]
enum Use {
    Open {
        number: u64,
        theirs: Ticket,
    },
    Read {
        theirs: Ticket,
        before: Bytes,
        after: Bytes,
        len: usize,
    },
    Work {
        theirs: Ticket,
    },
    /// No continuation.
    Forget,
}

/// Completion of an effect, for the engine.
pub(super) type EffectDone = (Ticket, EffectResult);

/// Bundles that the engine reads, and the effects of the layer.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Mark of the engine's files and records.
    pub(super) scope: Scope,
    effects: VecDeque<Effect>,
    composed: BTreeMap<u64, Composed>,
    uses: BTreeMap<Ticket, Use>,
    next: u64,
    next_ticket: u64,
}

impl Blocks {
    /// Adds a bundle; returns the file name for the engine.
    pub(super) fn add(&mut self, bundle: Outgoing) -> FileName {
        let number = self.next;
        self.next += 1;
        self.composed.insert(number, Composed { bundle, file: None });
        name(number)
    }

    /// Removes a bundle that the engine will not read.
    pub(super) fn forget(&mut self, name: &FileName) {
        if let Some(number) = number(name) {
            self.composed.remove(&number);
        }
    }

    fn ticket(&mut self, of: Use) -> Ticket {
        let ticket = Ticket(OURS | self.next_ticket);
        self.next_ticket += 1;
        self.uses.insert(ticket, of);
        ticket
    }

    /// Next effect for the driver.
    pub(super) fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn push(&mut self, effect: StoreEffect) {
        self.effects.push_back(effect.into());
    }

    /// Requests an effect of the layer itself. Its completion is ignored unless the layer waits for
    /// the ticket.
    pub(super) fn request(&mut self, effect: impl FnOnce(Ticket) -> StoreEffect) -> Ticket {
        let ticket = self.ticket(Use::Forget);
        self.push(effect(ticket));
        ticket
    }

    /// Deletes a file that nobody owns.
    pub(super) fn delete(&mut self, name: FileName) {
        let request = FilestoreRequest::DenyFile(name);
        self.request(|ticket| StoreEffect::Filestore { ticket, request });
    }

    /// Closes a file of the layer.
    pub(super) fn close(&mut self, file: FileId) {
        self.push(StoreEffect::Close { file });
    }

    /// Forgets a ticket whose completion is no longer needed.
    pub(super) fn forget_ticket(&mut self, ticket: Ticket) {
        self.uses.remove(&ticket);
    }

    /// Passes an effect of the engine on to the store, or completes it.
    pub(super) fn pass(&mut self, effect: Effect) -> Option<EffectDone> {
        match &effect {
            Effect::Store(StoreEffect::Open { ticket, name, .. }) => {
                if let Some(number) = number(name) {
                    return self.open(number, *ticket);
                }
            }
            Effect::Store(StoreEffect::Read { ticket, file, offset, len }) if file.0 >= OURS => {
                return self.read(file.0 - OURS, *ticket, *offset, *len);
            }
            Effect::Store(StoreEffect::Work { ticket, file, work }) if file.0 >= OURS => {
                return self.compute(file.0 - OURS, *ticket, work.clone());
            }
            Effect::Store(StoreEffect::Close { file }) if file.0 >= OURS => {
                let composed = self.composed.remove(&(file.0 - OURS));
                if let Some(file) = composed.and_then(|composed| composed.file) {
                    self.close(file);
                }
                return None;
            }
            Effect::Store(_) | Effect::Path(_) | Effect::Stream(_) => {}
        }
        self.effects.push_back(self.scope.effect(effect));
        None
    }

    fn open(&mut self, number: u64, theirs: Ticket) -> Option<EffectDone> {
        let Some(composed) = self.composed.get(&number) else {
            return Some((theirs, Err(EffectError::NotFound)));
        };
        let name = match &composed.bundle.payload {
            Content::Bytes(_) => return Some((theirs, Ok(opened(number, composed)))),
            Content::File { name, .. } => name.clone(),
        };
        let ticket = self.ticket(Use::Open { number, theirs });
        self.push(StoreEffect::Open { ticket, name, mode: OpenMode::Read });
        None
    }

    fn read(&mut self, number: u64, theirs: Ticket, offset: u64, len: usize) -> Option<EffectDone> {
        let Some(Composed { bundle, file }) = self.composed.get(&number) else {
            return Some((theirs, Err(EffectError::NotFound)));
        };
        let end = (offset + len as u64).min(bundle.len());
        let head_end = bundle.head.len() as u64;
        let payload_end = head_end + bundle.payload.len();
        let before = part(&bundle.head, 0, offset, end);
        let after = part(&bundle.tail, payload_end, offset, end);
        // The requested range, relative to the payload.
        let from = offset.clamp(head_end, payload_end) - head_end;
        let to = end.clamp(head_end, payload_end) - head_end;
        match (&bundle.payload, file) {
            (Content::Bytes(bytes), _) => {
                let middle = bytes.slice(from as usize..to as usize);
                Some((theirs, Ok(Completion::Read(joined(before, middle, after)))))
            }
            (Content::File { .. }, _) if from == to => {
                Some((theirs, Ok(Completion::Read(joined(before, Bytes::new(), after)))))
            }
            (Content::File { .. }, None) => Some((theirs, Err(EffectError::NotFound))),
            (Content::File { offset, .. }, Some(file)) => {
                let (file, offset, len) = (*file, offset + from, (to - from) as usize);
                let ticket = self.ticket(Use::Read { theirs, before, after, len });
                self.push(StoreEffect::Read { ticket, file, offset, len });
                None
            }
        }
    }

    fn compute(&mut self, number: u64, theirs: Ticket, work: Work) -> Option<EffectDone> {
        let Some(Composed { bundle, file }) = self.composed.get(&number) else {
            return Some((theirs, Err(EffectError::NotFound)));
        };
        let (head, tail) = (bundle.head.clone(), bundle.tail.clone());
        let len = bundle.payload.len();
        let (offset, file) = match (&bundle.payload, file) {
            (Content::Bytes(bytes), _) => {
                let mut whole = Parts { head: &head, payload: Payload::Bytes(bytes), tail: &tail };
                return Some((theirs, work.run(&mut whole).map(Completion::Read)));
            }
            (Content::File { .. }, None) => return Some((theirs, Err(EffectError::NotFound))),
            (Content::File { offset, .. }, Some(file)) => (*offset, *file),
        };
        let work = Work::new(OverParts { head, tail, offset, len, work });
        let ticket = self.ticket(Use::Work { theirs });
        self.push(StoreEffect::Work { ticket, file, work });
        None
    }

    /// Handles a completion of the store; returns the resulting completion for the engine, if any.
    pub(super) fn completed(&mut self, ticket: Ticket, result: EffectResult) -> Option<EffectDone> {
        if ticket.0 < OURS {
            let result = result.map(|completion| match completion {
                Completion::Records(records) => Completion::Records(self.scope.records(records)),
                other => other,
            });
            return Some((ticket, result));
        }
        match (self.uses.remove(&ticket)?, result) {
            (Use::Open { number, theirs }, Ok(Completion::Opened { file, .. })) => {
                let Some(composed) = self.composed.get_mut(&number) else {
                    self.close(file);
                    return Some((theirs, Err(EffectError::NotFound)));
                };
                composed.file = Some(file);
                Some((theirs, Ok(opened(number, composed))))
            }
            (Use::Read { theirs, before, after, len }, Ok(Completion::Read(middle))) => {
                if middle.len() < len {
                    let short = "the file of a payload shrank".to_owned();
                    return Some((theirs, Err(EffectError::Failed(short))));
                }
                Some((theirs, Ok(Completion::Read(joined(before, middle, after)))))
            }
            (Use::Open { number, theirs }, result) => {
                // A file that failed to open is not closed.
                self.composed.remove(&number);
                Some((theirs, result.and(Err(EffectError::NotFound))))
            }
            (Use::Read { theirs, .. }, result) => {
                Some((theirs, result.and(Err(EffectError::NotFound))))
            }
            (Use::Work { theirs }, result) => Some((theirs, result)),
            (Use::Forget, _) => None,
        }
    }
}

/// Computation over a bundle whose payload is in a file.
#[derive(Debug)]
struct OverParts {
    head: Bytes,
    tail: Bytes,
    /// Place of the payload in its file.
    offset: u64,
    len: u64,
    work: Work,
}

impl FileJob for OverParts {
    fn run(&self, file: &mut dyn FileBytes) -> Result<Bytes, EffectError> {
        let payload = Payload::File { file, offset: self.offset, len: self.len };
        self.work.run(&mut Parts { head: &self.head, payload, tail: &self.tail })
    }

    fn cost(&self) -> u64 {
        self.work.cost()
    }
}

/// A bundle as a file.
struct Parts<'a> {
    head: &'a [u8],
    payload: Payload<'a>,
    tail: &'a [u8],
}

enum Payload<'a> {
    Bytes(&'a [u8]),
    File { file: &'a mut dyn FileBytes, offset: u64, len: u64 },
}

impl Payload<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    fn read_at(&mut self, from: u64, to: &mut [u8]) -> Result<usize, EffectError> {
        match self {
            Self::Bytes(bytes) => Ok(copy(bytes, from, to)),
            Self::File { file, offset, len } => {
                let rest = len.saturating_sub(from).min(to.len() as u64) as usize;
                file.read_at(*offset + from, &mut to[..rest])
            }
        }
    }
}

impl FileBytes for Parts<'_> {
    fn read_at(&mut self, offset: u64, to: &mut [u8]) -> Result<usize, EffectError> {
        let (head, payload) = (self.head.len() as u64, self.payload.len());
        let mut done = 0;
        while done < to.len() {
            let at = offset + done as u64;
            let rest = &mut to[done..];
            let read = if at < head {
                copy(self.head, at, rest)
            } else if at < head + payload {
                self.payload.read_at(at - head, rest)?
            } else {
                copy(self.tail, at - head - payload, rest)
            };
            if read == 0 {
                break;
            }
            done += read;
        }
        Ok(done)
    }

    fn write_at(&mut self, _: u64, _: &[u8]) -> Result<(), EffectError> {
        Err(EffectError::NotAllowed)
    }
}

/// Copies the part of `bytes` from an offset on that fits; returns its length.
fn copy(bytes: &[u8], from: u64, to: &mut [u8]) -> usize {
    let rest = bytes.get(from.min(bytes.len() as u64) as usize..).unwrap_or_default();
    let len = rest.len().min(to.len());
    to[..len].copy_from_slice(&rest[..len]);
    len
}

fn name(number: u64) -> FileName {
    FileName::spool(&format!("block-{number}")).expect("letters, digits and dashes are a name")
}

fn number(name: &FileName) -> Option<u64> {
    let number = name.path().strip_prefix("block-")?.parse().ok()?;
    (self::name(number) == *name).then_some(number)
}

fn opened(number: u64, composed: &Composed) -> Completion {
    Completion::Opened { file: FileId(OURS | number), len: composed.bundle.len(), modified: None }
}

/// Part of `bytes`, which begin at `at`, between two offsets.
fn part(bytes: &Bytes, at: u64, from: u64, to: u64) -> Bytes {
    let end = at + bytes.len() as u64;
    let (from, to) = (from.clamp(at, end) - at, to.clamp(at, end) - at);
    bytes.slice(from as usize..(to.max(from)) as usize)
}

/// Joins bytes into one buffer; the middle alone is not copied.
fn joined(before: Bytes, middle: Bytes, after: Bytes) -> Bytes {
    if before.is_empty() && after.is_empty() {
        return middle;
    }
    let mut all = BytesMut::with_capacity(before.len() + middle.len() + after.len());
    for bytes in [before, middle, after] {
        all.extend_from_slice(&bytes);
    }
    all.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Copy;

    impl FileJob for Copy {
        fn run(&self, file: &mut dyn FileBytes) -> Result<Bytes, EffectError> {
            let mut bytes = [0; 20];
            let read = file.read_at(1, &mut bytes)?;
            Ok(Bytes::copy_from_slice(&bytes[..read]))
        }

        fn cost(&self) -> u64 {
            20
        }
    }

    #[test]
    fn computations_see_all_parts() {
        let mut blocks = Blocks::default();
        let mut store = engine::MemoryStore::new();
        let file = FileName::file("payload").unwrap();
        store.insert(file.clone(), &b"..payload.."[..]);
        let in_file = Content::File { name: file, offset: 2, len: 7 };
        for payload in [Content::Bytes(Bytes::from_static(b"payload")), in_file] {
            let (head, tail) = (Bytes::from_static(b"head"), Bytes::from_static(b"tail"));
            let name = blocks.add(Outgoing { head, payload, tail, reliable: true, identity: None });
            let open = StoreEffect::Open { ticket: Ticket(1), name, mode: OpenMode::Read };
            let mut done = |blocks: &mut Blocks, effect: StoreEffect| {
                blocks.pass(effect.into()).or_else(|| {
                    let Some(Effect::Store(effect)) = blocks.poll_effect() else { return None };
                    let (ticket, answer) = store.execute(effect)?;
                    blocks.completed(ticket, answer)
                })
            };
            let Some((_, Ok(Completion::Opened { file, .. }))) = done(&mut blocks, open) else {
                panic!("it does not open");
            };
            let work = StoreEffect::Work { ticket: Ticket(2), file, work: Work::new(Copy) };
            let read = Completion::Read(Bytes::from_static(b"eadpayloadtail"));
            assert_eq!(done(&mut blocks, work), Some((Ticket(2), Ok(read))));
        }
    }

    #[test]
    fn an_unreadable_payload_leaves_nothing() {
        let mut blocks = Blocks::default();
        let payload = FileName::spool("bp/none").unwrap();
        let payload = Content::File { name: payload, offset: 0, len: 9 };
        let (head, tail) = (Bytes::new(), Bytes::new());
        let name = blocks.add(Outgoing { head, payload, tail, reliable: true, identity: None });
        let open = StoreEffect::Open { ticket: Ticket(1), name, mode: OpenMode::Read };
        assert_eq!(blocks.pass(open.into()), None);
        let ticket = blocks.poll_effect().unwrap().ticket().unwrap();
        let result = blocks.completed(ticket, Err(EffectError::NotFound));
        assert_eq!(result, Some((Ticket(1), Err(EffectError::NotFound))));
        assert!(blocks.composed.is_empty() && blocks.uses.is_empty());
    }
}
