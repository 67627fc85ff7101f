//! Incomplete files, kept so that a later session resumes them.
//!
//! The record of a file has its complete blocks, and which source segments of other blocks are in
//! its working file. Nothing that is written later takes their places. Parity is not recorded, so
//! that a restored block needs as many segments as a new one.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use engine::{FileId, FileName, FilestoreRequest, IndexRequest, Time};
use session::journal::Slot;
use session::path::Handle;
use session::ranges::Ranges;
use session::record::{Reader, Writer};
use session::storage::Storage as _;

use super::block::Block;
use super::identity::{Description, Identity, Origin, VERSION};
use super::stored::Stored;
use super::{Bits, SPOOL_PREFIX};
use crate::coding::is_long;
use crate::core::{Core, Job, Task};
use crate::indication::Limit;

/// Maximum size of a record. Blocks beyond it are received again.
const RECORD_MAX: usize = 1 << 20;

/// Prefix of the keys of records of objects being sent.
const SENT_PREFIX: &str = "norm-sent-";

/// Key of the record of the files that were stored last.
const STORED_KEY: &str = "norm-stored";

/// Maximum number of objects before the first received one that a restarted receiver goes back to.
const BACK_MAX: u16 = 64;

/// Incomplete file.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(super) of: Description,
    /// Complete blocks.
    pub(super) whole: Ranges,
    /// Incomplete blocks.
    pub(super) blocks: BTreeMap<u32, Block>,
    /// Working file, if this process has it open.
    pub(super) file: Option<FileId>,
}

impl Partial {
    fn memory(&self) -> usize {
        let blocks: usize = self.blocks.values().map(Block::disk_memory).sum();
        blocks + self.whole.len() * 32 + self.of.identity.name.len() + size_of::<Self>()
    }

    /// Bytes stored, rounded up to whole segments.
    fn stored(&self) -> u64 {
        let segments: u64 = self.blocks.values().map(|block| u64::from(block.have.len())).sum();
        let Identity { size, segment_size, block_len, .. } = self.of.identity;
        let whole = self.whole.covered() * u64::from(block_len);
        ((whole + segments) * u64::from(segment_size)).min(size)
    }

    /// Decodes a record; `None` if it is invalid or damaged.
    pub(super) fn decode(record: &Bytes) -> Option<Self> {
        let mut fields = Reader::new(VERSION, record)?;
        let of = Description::read(&mut fields)?;
        // Blocks have numbers of 32 bits.
        let whole = fields.ranges().filter(|whole| whole.end() <= u64::from(u32::MAX))?;
        let mut blocks = BTreeMap::new();
        while !fields.is_empty() {
            let number = fields.u32()?;
            let mut block = Block::new(BytesMut::new(), 0);
            read_segments(&mut fields, &mut block.have)?;
            blocks.insert(number, block);
        }
        Some(Self { of, whole, blocks, file: None })
    }
}

/// Encodes a record: description, complete blocks, other blocks.
pub(super) fn encode<'a>(
    of: &Description,
    whole: &Ranges,
    blocks: impl Iterator<Item = (u32, u16, &'a Bits)>,
) -> Bytes {
    let mut out = Writer::new(VERSION);
    of.encode(&mut out);
    out.ranges(whole);
    for (number, block_len, have) in blocks {
        let before = out.position();
        out.u32(number);
        encode_segments(&mut out, block_len, have);
        if out.position() > RECORD_MAX {
            out.back_to(before);
            break;
        }
    }
    out.finish()
}

/// Encodes the source segments of a block as runs, or as a bitmap if that is shorter.
fn encode_segments(out: &mut Writer, block_len: u16, have: &Bits) {
    let source = have.iter().take_while(|symbol| *symbol < block_len);
    let runs = crate::bits::runs(source);
    let bitmap_len = usize::from(block_len).div_ceil(8);
    let is_bitmap = runs.len() * 4 > bitmap_len;
    out.flag(is_bitmap);
    if !is_bitmap {
        out.count(runs.len());
        for (first, last) in runs {
            out.u16(first);
            out.u16(last);
        }
        return;
    }
    let mut bitmap = vec![0; bitmap_len];
    for (first, last) in runs {
        for symbol in first..=last {
            bitmap[usize::from(symbol / 8)] |= 1 << (symbol % 8);
        }
    }
    out.bytes(&bitmap);
}

fn read_segments(fields: &mut Reader, have: &mut Bits) -> Option<()> {
    let is_bitmap = fields.flag()?;
    if !is_bitmap {
        for _ in 0..fields.u32()? {
            have.insert_all(fields.u16()?, fields.u16()?);
        }
        return Some(());
    }
    for (at, byte) in (0..8192_u16).zip(fields.bytes()?) {
        for bit in (0..8).filter(|bit| byte & (1 << bit) != 0) {
            have.insert(at * 8 + bit);
        }
    }
    Some(())
}

/// Name of a record and of a working file.
fn key(number: u64) -> String {
    format!("{SPOOL_PREFIX}{number:016x}")
}

/// Name of a working file.
pub(super) fn spool_name(number: u64) -> FileName {
    FileName::spool(&key(number)).expect("letters, digits and a dash are a name")
}

/// Number in such a name.
fn number(key: &str, prefix: &str) -> Option<u64> {
    let digits = key.strip_prefix(prefix)?;
    u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16)
}

/// Record of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Record {
    /// Received, with the number of its working file.
    Received(u64),
    /// Sent, with the key of its identity.
    Sent(u64),
    /// Files that were stored last.
    Stored,
}

impl Record {
    fn key(self) -> String {
        match self {
            Self::Received(number) => key(number),
            Self::Sent(key) => format!("{SENT_PREFIX}{key:016x}"),
            Self::Stored => STORED_KEY.to_owned(),
        }
    }
}

/// Incomplete file without a session. A number names the record and the working file.
#[derive(Debug)]
struct Waiting {
    number: u64,
    partial: Partial,
    since: Time,
}

/// Records of objects, and the incomplete files that no session receives.
#[derive(Debug, Default)]
pub(crate) struct Partials {
    /// Files without a session, the oldest first.
    waiting: BTreeMap<u64, Waiting>,
    order: u64,
    /// Files that were stored last.
    stored: Stored,
    /// Objects that an earlier process did not finish sending, with the instances of its senders.
    unfinished: BTreeMap<u64, u16>,
    slots: BTreeMap<Record, Slot>,
    /// Whether the records of an earlier process were read, if there are any.
    pub(crate) is_restored: bool,
}

impl Partials {
    /// Whether any file may be resumed, or was stored before.
    pub(crate) fn may_resume(&self) -> bool {
        !self.waiting.is_empty() || !self.stored.is_empty()
    }

    pub(crate) fn memory(&self) -> usize {
        let waiting = self.waiting.values().map(|waiting| waiting.partial.memory());
        waiting.sum::<usize>() + self.stored.memory()
    }

    /// Takes the file that would resume. Without digests of its blocks, only the same object may,
    /// or one whose sender `resumes`.
    pub(super) fn take(&mut self, of: &Description, resumes: bool) -> Option<(u64, Partial)> {
        let is_coded = is_long(of.scheme);
        self.take_if(|other| {
            let is_same = other.identity == of.identity && is_long(other.scheme) == is_coded;
            is_same && (is_coded || resumes || other.origin == of.origin)
        })
    }

    /// Takes the file of which an earlier process received a part as this object.
    pub(super) fn take_object(&mut self, origin: Origin) -> Option<(u64, Partial)> {
        self.take_if(|of| of.origin == origin)
    }

    fn take_if(&mut self, is_it: impl Fn(&Description) -> bool) -> Option<(u64, Partial)> {
        let mut found = self.waiting.iter().rev().filter(|(_, it)| is_it(&it.partial.of));
        let order = *found.next()?.0;
        self.waiting.remove(&order).map(|waiting| (waiting.number, waiting.partial))
    }

    /// Number of objects before this one that an earlier process may have received in part or as a
    /// whole.
    pub(crate) fn back(&self, origin: Origin) -> u64 {
        let waiting = self.waiting.values().map(|waiting| waiting.partial.of.origin);
        let known = waiting.chain(self.stored.origins());
        let ahead = known.filter_map(|known| known.ahead(origin));
        ahead.filter(|ahead| *ahead < 0x8000).max().unwrap_or(0).min(BACK_MAX).into()
    }

    /// Whether a file was stored as this object, or as one of its sender's `former` instance.
    pub(super) fn is_stored(&self, of: &Description, former: Option<u16>) -> bool {
        self.stored.has(&of.identity, of.origin, former)
    }
}

impl Core {
    /// Starts to read the records of an earlier process.
    pub(crate) fn load_records(&mut self) {
        if self.config.journal.enabled {
            let load = IndexRequest::Load { prefix: SPOOL_PREFIX.to_owned() };
            self.shared.index(Handle::NOBODY, Job::Own(Task::Load), load);
        } else {
            self.partials.is_restored = true;
        }
    }

    /// Processes the records of an earlier process.
    pub(crate) fn restore(&mut self, records: Vec<(String, Bytes)>) {
        self.partials.is_restored = true;
        for (key, value) in records {
            if let Some(number) = number(&key, SENT_PREFIX) {
                let instance = Reader::new(VERSION, &value).and_then(|mut it| it.u16());
                self.partials.unfinished.insert(number, instance.unwrap_or_default());
                continue;
            }
            if key == STORED_KEY {
                self.partials.stored = Stored::decode(&value).unwrap_or_default();
                continue;
            }
            let Some(number) = number(&key, SPOOL_PREFIX) else { continue };
            match Partial::decode(&value) {
                Some(partial) => self.keep_partial(number, partial),
                None => self.forget_partial(number, None),
            }
        }
        while self.partials.unfinished.len() > self.config.limits.partials {
            let Some((key, _)) = self.partials.unfinished.pop_first() else { return };
            self.remove_record(Record::Sent(key));
        }
    }

    /// Keeps an incomplete file for a later session.
    pub(super) fn keep_partial(&mut self, number: u64, partial: Partial) {
        let partials = &mut self.partials;
        partials.order += 1;
        partials.waiting.insert(partials.order, Waiting { number, partial, since: self.now });
        let limits = &self.config.limits;
        let (most, memory, bytes) = (limits.partials, limits.assembly, limits.partial_bytes);
        let age = limits.partial_age;
        let mut held = partials.memory();
        let mut stored: u64 = partials.waiting.values().map(|it| it.partial.stored()).sum();
        while let Some((_, oldest)) = self.partials.waiting.first_key_value() {
            let count = self.partials.waiting.len();
            let is_old = self.now.since(oldest.since) > age;
            if count <= most && held <= memory && (stored <= bytes || count == 1) && !is_old {
                return;
            }
            self.user.limit_reached(Limit::Partials);
            let Some((_, oldest)) = self.partials.waiting.pop_first() else { return };
            held -= oldest.partial.memory();
            stored -= oldest.partial.stored();
            self.forget_partial(oldest.number, oldest.partial.file);
        }
    }

    /// Deletes incomplete files that have the name of a delivered one: it replaced them.
    pub(super) fn supersede(&mut self, name: &Bytes) {
        let partials = self.partials.waiting.iter();
        let same = partials.filter(|(_, waiting)| waiting.partial.of.identity.name == *name);
        let orders: Vec<_> = same.map(|(order, _)| *order).collect();
        for order in orders {
            if let Some(Waiting { number, partial, .. }) = self.partials.waiting.remove(&order) {
                self.forget_partial(number, partial.file);
            }
        }
    }

    /// Deletes an incomplete file and its record.
    pub(super) fn forget_partial(&mut self, number: u64, file: Option<FileId>) {
        if let Some(file) = file {
            self.shared.close(file);
        }
        let request = FilestoreRequest::DenyFile(spool_name(number));
        self.shared.filestore(Handle::NOBODY, Job::Forget, request);
        self.remove_record(Record::Received(number));
    }

    /// Writes a record.
    pub(super) fn put_record(&mut self, record: Record, value: Bytes) {
        self.submit(record, IndexRequest::Put { key: record.key(), value });
    }

    /// Removes a record.
    pub(super) fn remove_record(&mut self, record: Record) {
        self.submit(record, IndexRequest::Remove { key: record.key() });
    }

    fn submit(&mut self, record: Record, request: IndexRequest) {
        let slot = self.partials.slots.entry(record).or_default();
        slot.submit(&mut self.shared, Handle::NOBODY, Job::Own(Task::Record(record)), request);
    }

    /// Notes that an operation on a record completed.
    pub(crate) fn record_done(&mut self, record: Record) {
        let Some(slot) = self.partials.slots.get_mut(&record) else { return };
        if slot.done(&mut self.shared, Handle::NOBODY, Job::Own(Task::Record(record))) {
            self.partials.slots.remove(&record);
        }
    }

    /// Notes the first object of a session.
    pub(crate) fn note_session(&mut self, first: Origin) {
        self.partials.stored.add_session(first);
        self.put_stored();
    }

    /// Notes that a file was stored.
    pub(super) fn note_stored(&mut self, of: &Description) {
        self.partials.stored.add(&of.identity, of.origin);
        self.put_stored();
    }

    fn put_stored(&mut self) {
        let record = self.partials.stored.encode();
        self.put_record(Record::Stored, record);
    }

    /// Records that an object is being sent. Returns the instance of the sender in an earlier
    /// process that sent it, too.
    pub(crate) fn begin_sending(&mut self, key: u64, instance: u16) -> Option<u16> {
        let mut record = Writer::new(VERSION);
        record.u16(instance);
        self.put_record(Record::Sent(key), record.finish());
        self.partials.unfinished.get(&key).copied()
    }

    /// Forgets an object that is not sent any more.
    pub(crate) fn end_sending(&mut self, key: u64) {
        self.partials.unfinished.remove(&key);
        self.remove_record(Record::Sent(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Flags, Fti, NodeId, Scheme};

    fn description() -> Description {
        let identity = Identity {
            name: Bytes::from_static(b"name"),
            size: 1 << 33,
            segment_size: 1400,
            block_len: 20_000,
            version: 77,
        };
        let origin = Origin { node: NodeId(5), instance: 6, number: 7 };
        let fti = Fti {
            object_size: 1 << 33,
            segment_size: 1400,
            block_len: 20_000,
            instance: 3,
            ..Fti::default()
        };
        Description { identity, origin, flags: Flags::FILE, scheme: Scheme::Compact, fti }
    }

    #[test]
    fn records_round_trip_and_damage_is_detected() {
        let mut whole = Ranges::new();
        whole.insert(0, 3);
        whole.insert(9, 10);
        let (mut runs, mut scattered) = (Bits::new(), Bits::new());
        runs.insert_all(0, 70);
        runs.insert_all(100, 19_999);
        // Parity is not recorded.
        runs.insert(20_005);
        (0..333).for_each(|n| _ = scattered.insert(3 * n));
        let blocks = [(3, 20_000, &runs), (4, 1_000, &scattered)];
        let bytes = encode(&description(), &whole, blocks.into_iter());
        let partial = Partial::decode(&bytes).expect("it is sound");
        let of = description();
        assert_eq!((&partial.of.identity, &partial.whole), (&of.identity, &whole));
        assert_eq!((partial.of.origin, partial.of.fti), (of.origin, of.fti));
        assert_eq!(partial.blocks.len(), 2);
        assert_eq!(partial.blocks[&3].have.len(), runs.len() - 1);
        assert!(runs.iter().take_while(|at| *at < 20_000).eq(partial.blocks[&3].have.iter()));
        assert!(scattered.iter().eq(partial.blocks[&4].have.iter()));
        assert!(bytes.len() < 300, "{}", bytes.len());
        for i in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[i] ^= 4;
            assert!(Partial::decode(&damaged.into()).is_none());
            assert!(Partial::decode(&bytes.slice(..i)).is_none());
        }
    }

    #[test]
    fn long_records_leave_out_blocks() {
        let mut have = Bits::new();
        (0..30_000).for_each(|n| _ = have.insert(2 * n));
        let blocks = (0..1_000).map(|number| (number, 60_000, &have));
        let bytes = encode(&description(), &Ranges::new(), blocks);
        assert!(bytes.len() <= RECORD_MAX + 4);
        let partial = Partial::decode(&bytes).expect("it is sound");
        assert!(partial.blocks.len() > 100);
        assert!(partial.blocks.values().all(|block| block.have == have));
    }

    #[test]
    fn numbers_are_read_from_keys() {
        assert_eq!(number(&key(0xa0b), SPOOL_PREFIX), Some(0xa0b));
        assert_eq!(number(&Record::Sent(7).key(), SENT_PREFIX), Some(7));
        assert_eq!(number(&Record::Sent(7).key(), SPOOL_PREFIX), None);
        let identity = description().identity;
        assert_ne!(identity.sent_key(1), identity.sent_key(2));
    }
}
