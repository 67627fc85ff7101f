//! Incomplete coded files, kept so that a later session resumes them.
//!
//! The record of a file has its complete blocks, and which source segments of other blocks are in
//! its working file. Nothing that is written later takes their places. Parity is not recorded, so
//! that a restored block needs as many segments as a new one.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use engine::{FileId, FileName, FilestoreRequest, IndexRequest, Time};
use session::journal::Slot;
use session::path::Handle;
use session::ranges::Ranges;
use session::record::{Reader, Writer};
use session::storage::Storage as _;

use super::block::Block;
use super::{Bits, SPOOL_PREFIX};
use crate::core::{Core, Job, Task};
use crate::digest::digest_of;
use crate::indication::Limit;

const VERSION: u8 = 1;

/// Maximum size of a record. Blocks beyond it are received again.
const RECORD_MAX: usize = 1 << 20;

/// Prefix of the keys of records of objects being sent.
const SENT_PREFIX: &str = "norm-sent-";

/// Properties by which a coded file resumes an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: Bytes,
    pub(crate) size: u64,
    pub(crate) segment_size: u16,
    pub(crate) block_len: u16,
    /// Version of the content, or 0.
    pub(crate) version: u64,
}

impl Identity {
    fn encode(&self, out: &mut Writer) {
        out.bytes(&self.name);
        out.u64(self.size);
        out.u16(self.segment_size);
        out.u16(self.block_len);
        out.u64(self.version);
    }

    fn read(fields: &mut Reader) -> Option<Self> {
        Some(Self {
            name: Bytes::copy_from_slice(&fields.bytes()?),
            size: fields.u64()?,
            segment_size: fields.u16()?,
            block_len: fields.u16()?,
            version: fields.u64()?,
        })
    }

    /// Key of the record of this file as one sent on a path.
    pub(crate) fn sent_key(&self, path: u32) -> u64 {
        let mut out = Writer::new(VERSION);
        out.u32(path);
        self.encode(&mut out);
        // After a collision a sender waits for reports that do not come.
        let [a, b, c, d, e, f, g, h, ..] = digest_of(&out.finish());
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// Incomplete coded file.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(super) identity: Identity,
    /// FEC instance of the parity, if this process received some.
    pub(super) instance: u16,
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
        blocks + self.whole.len() * 32 + self.identity.name.len() + size_of::<Self>()
    }

    /// Bytes stored, rounded up to whole segments.
    fn stored(&self) -> u64 {
        let segments: u64 = self.blocks.values().map(|block| u64::from(block.have.len())).sum();
        let whole = self.whole.covered() * u64::from(self.identity.block_len);
        ((whole + segments) * u64::from(self.identity.segment_size)).min(self.identity.size)
    }

    /// Decodes a record; `None` if it is invalid or damaged.
    fn decode(record: &Bytes) -> Option<Self> {
        let mut fields = Reader::new(VERSION, record)?;
        let identity = Identity::read(&mut fields)?;
        // Blocks have numbers of 32 bits.
        let whole = fields.ranges().filter(|whole| whole.end() <= u64::from(u32::MAX))?;
        let mut blocks = BTreeMap::new();
        while !fields.is_empty() {
            let number = fields.u32()?;
            let mut block = Block::new(BytesMut::new(), 0);
            read_segments(&mut fields, &mut block.have)?;
            blocks.insert(number, block);
        }
        Some(Self { identity, instance: 0, whole, blocks, file: None })
    }
}

/// Encodes a record: identity, complete blocks, other blocks.
pub(super) fn encode<'a>(
    identity: &Identity,
    whole: &Ranges,
    blocks: impl Iterator<Item = (u32, u16, &'a Bits)>,
) -> Bytes {
    let mut out = Writer::new(VERSION);
    identity.encode(&mut out);
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

/// Record of a coded object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Record {
    /// Received, with the number of its working file.
    Received(u64),
    /// Sent, with the key of its identity.
    Sent(u64),
}

impl Record {
    fn key(self) -> String {
        match self {
            Self::Received(number) => key(number),
            Self::Sent(key) => format!("{SENT_PREFIX}{key:016x}"),
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

/// Records of coded objects, and the incomplete files that no session receives.
#[derive(Debug, Default)]
pub(crate) struct Partials {
    /// Files without a session, the oldest first.
    waiting: BTreeMap<u64, Waiting>,
    order: u64,
    /// Objects that an earlier process did not finish sending.
    unfinished: BTreeSet<u64>,
    slots: BTreeMap<Record, Slot>,
    /// Whether the records of an earlier process were read, if there are any.
    pub(crate) is_restored: bool,
}

impl Partials {
    /// Whether any file may be resumed.
    pub(crate) fn may_resume(&self) -> bool {
        !self.is_restored || !self.waiting.is_empty()
    }

    pub(crate) fn memory(&self) -> usize {
        self.waiting.values().map(|waiting| waiting.partial.memory()).sum()
    }

    /// Takes the file that would resume.
    pub(super) fn take(&mut self, identity: &Identity) -> Option<(u64, Partial)> {
        let newest = self.waiting.iter().rev();
        let mut same = newest.filter(|(_, waiting)| waiting.partial.identity == *identity);
        let order = *same.next()?.0;
        self.waiting.remove(&order).map(|waiting| (waiting.number, waiting.partial))
    }
}

impl Core {
    /// Starts to read the records of an earlier process.
    pub(crate) fn load_records(&mut self) {
        let may_resume = self.config.receiver.enabled || self.config.sender.has_long_blocks();
        if self.config.journal.enabled && may_resume {
            self.shared.index(Handle::NOBODY, Job::Own(Task::Load), IndexRequest::Load);
        } else {
            self.partials.is_restored = true;
        }
    }

    /// Processes the records of an earlier process.
    pub(crate) fn restore(&mut self, records: Vec<(String, Bytes)>) {
        self.partials.is_restored = true;
        for (key, value) in records {
            if let Some(number) = number(&key, SENT_PREFIX) {
                self.partials.unfinished.insert(number);
                continue;
            }
            let Some(number) = number(&key, SPOOL_PREFIX) else { continue };
            match Partial::decode(&value) {
                Some(partial) => self.keep_partial(number, partial),
                None => self.forget_partial(number, None),
            }
        }
        while self.partials.unfinished.len() > self.config.limits.partials {
            let Some(key) = self.partials.unfinished.pop_first() else { return };
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
        let same = partials.filter(|(_, waiting)| waiting.partial.identity.name == *name);
        let orders: Vec<_> = same.map(|(order, _)| *order).collect();
        for order in orders {
            if let Some(Waiting { number, partial, .. }) = self.partials.waiting.remove(&order) {
                self.forget_partial(number, partial.file);
            }
        }
    }

    /// Deletes an incomplete file and its record.
    fn forget_partial(&mut self, number: u64, file: Option<FileId>) {
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

    /// Records that an object is being sent. Returns whether an earlier process sent it, too.
    pub(crate) fn begin_sending(&mut self, key: u64) -> bool {
        let was_unfinished = self.partials.unfinished.contains(&key);
        self.put_record(Record::Sent(key), Bytes::new());
        was_unfinished
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

    fn identity() -> Identity {
        Identity {
            name: Bytes::from_static(b"name"),
            size: 1 << 33,
            segment_size: 1400,
            block_len: 20_000,
            version: 77,
        }
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
        let bytes = encode(&identity(), &whole, blocks.into_iter());
        let partial = Partial::decode(&bytes).expect("it is sound");
        assert_eq!((&partial.identity, &partial.whole), (&identity(), &whole));
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
        let bytes = encode(&identity(), &Ranges::new(), blocks);
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
        assert_ne!(identity().sent_key(1), identity().sent_key(2));
    }
}
