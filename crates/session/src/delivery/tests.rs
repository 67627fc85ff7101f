//! Deliveries on a store that forgets what was not synced.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::{Effect, IndexRequest, MemoryStore, Rng, StoreEffect, Ticket};
use wire::checksum::{ChecksumType, crc32c};

use super::*;
use crate::record::{Reader, Writer};
use crate::{Buffers, Slots};

const SIZE: u64 = 24;
const PIECE: u64 = 3;
const KEY: &str = "record";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Never {}

impl Alarm for Never {
    fn why(self) -> &'static str {
        match self {}
    }

    fn awaits_peer(self) -> bool {
        match self {}
    }
}

fn content() -> Vec<u8> {
    (1..=SIZE as u8).collect()
}

fn working() -> FileName {
    FileName::spool("working").expect("a name")
}

fn destination() -> FileName {
    FileName::file("file").expect("a name")
}

fn shared() -> Shared<Never, ()> {
    Shared::new(Buffers {
        write_buffer: 1 << 16,
        write_piece: 5,
        read_ahead: 7,
        read_ahead_total: 7,
        read_piece: 7,
        replies: 1,
    })
}

/// Store whose effects overtake each other, except those on one open file. A crash loses an
/// arbitrary part of the writes that were not synced.
#[derive(Default)]
struct Disk {
    live: MemoryStore,
    synced: BTreeMap<FileName, Vec<u8>>,
    unsynced: Vec<(FileName, u64, Bytes)>,
    waiting: Vec<StoreEffect>,
}

impl Disk {
    /// Chooses a waiting effect.
    fn choose(&self, rng: &mut Rng) -> usize {
        let is_ordered = |effect: &StoreEffect| {
            !matches!(effect, StoreEffect::Filestore { .. } | StoreEffect::Index { .. })
        };
        let at = rng.below(self.waiting.len() as u64) as usize;
        let first = self.waiting.iter().position(is_ordered);
        first.filter(|_| is_ordered(&self.waiting[at])).unwrap_or(at)
    }

    /// Carries out a waiting effect.
    fn execute(&mut self, at: usize) -> Option<(Ticket, Result<Completion, EffectError>)> {
        let effect = self.waiting.remove(at);
        match &effect {
            StoreEffect::Open { name, mode: OpenMode::Truncate, .. } => {
                self.unsynced.clear();
                self.synced.insert(name.clone(), Vec::new());
            }
            StoreEffect::Write { file, offset, bytes, .. } => {
                let name = self.live.name_of(*file).cloned().expect("an open file");
                self.unsynced.push((name, *offset, bytes.clone()));
            }
            StoreEffect::Sync { .. } => {
                std::mem::take(&mut self.unsynced).into_iter().for_each(|write| self.keep(write));
            }
            StoreEffect::Filestore { request: FilestoreRequest::Install { from, to }, .. } => {
                if let Some(content) = self.synced.remove(from) {
                    assert!(self.unsynced.is_empty(), "it was renamed before it was synced");
                    self.synced.insert(to.clone(), content);
                }
            }
            StoreEffect::Filestore { request: FilestoreRequest::DenyFile(name), .. } => {
                self.synced.remove(name);
            }
            _ => {}
        }
        self.live.execute(effect)
    }

    fn keep(&mut self, (name, offset, bytes): (FileName, u64, Bytes)) {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        let content = self.synced.entry(name).or_default();
        content.resize(content.len().max(end), 0);
        content[start..end].copy_from_slice(&bytes);
    }

    fn crash(&mut self, rng: &mut Rng) {
        for write in std::mem::take(&mut self.unsynced) {
            if rng.chance(0.5) {
                self.keep(write);
            }
        }
        self.waiting.clear();
        let mut fresh = MemoryStore::new();
        for (key, value) in self.live.records() {
            let (key, value) = (key.to_owned(), value.clone());
            let request = IndexRequest::Put { key, value };
            fresh.execute(StoreEffect::Index { ticket: Ticket(0), request });
        }
        for (name, content) in &self.synced {
            fresh.insert(name.clone(), content.clone());
        }
        self.live = fresh;
    }
}

/// Receiver of pieces that may arrive in any order.
struct Toy {
    shared: Shared<Never, ()>,
    seat: Seat,
    delivery: Delivery,
    ranges: Ranges,
    sum: ChecksumType,
    /// Whether a stored file is recorded before it is renamed.
    records_stored: bool,
    is_over: bool,
}

impl Toy {
    fn new(sum: ChecksumType, records_stored: bool) -> Self {
        let handle = Slots::<()>::new().reserve();
        Self {
            shared: shared(),
            seat: Seat::new(handle, None),
            delivery: Delivery::new(working()),
            ranges: Ranges::new(),
            sum,
            records_stored,
            is_over: false,
        }
    }

    /// Begins, or continues with the record of an earlier run.
    fn start(&mut self, record: Option<&Bytes>) {
        if let Some(record) = record {
            let mut fields = Reader::new(1, record).expect("a record");
            let is_stored = fields.flag() == Some(true);
            self.ranges = fields.ranges().expect("ranges");
            self.delivery.record.mark_used();
            self.delivery.resume(self.ranges.clone());
            if is_stored {
                self.delivery.resume_installing();
                self.delivery.install(&mut self.shared, self.seat.handle, destination());
                return;
            }
        }
        let sum = Sum::checksum(self.sum);
        self.delivery.open(&mut self.shared, self.seat.handle, sum);
    }

    /// Takes the next piece that is missing.
    fn on_piece(&mut self, rng: &mut Rng) {
        let missing: Vec<_> =
            (0..SIZE / PIECE).filter(|piece| !self.ranges.contains(piece * PIECE)).collect();
        if missing.is_empty() || self.delivery.step() != Step::Receiving {
            return;
        }
        let start = missing[rng.below(missing.len() as u64) as usize] * PIECE;
        // An earlier run may have lost a part of a piece.
        let (_, end) = self.ranges.gaps(start, start + PIECE).next().expect("it is missing");
        let data = &content()[start as usize..end as usize];
        let (shared, ranges) = (&mut self.shared, &mut self.ranges);
        assert!(self.delivery.append(shared, &self.seat, ranges, start, data));
        let policy = JournalPolicy { bytes: 2 * PIECE, ..JournalPolicy::default() };
        if self.delivery.is_save_due(&self.ranges, policy) {
            self.delivery.save(&mut self.shared, self.seat.handle, Time::ZERO, &self.ranges);
        }
        self.check();
    }

    fn check(&mut self) {
        let is_whole = self.ranges.gaps(0, SIZE).next().is_none();
        let is_open = self.delivery.spool.file().is_some();
        if is_whole && is_open && self.delivery.step() == Step::Receiving {
            self.delivery.complete(&mut self.shared, self.seat.handle);
        }
        let (shared, handle) = (&mut self.shared, self.seat.handle);
        let sum = self.delivery.verify(shared, handle, self.ranges.prefix(), Some(SIZE));
        if let Some(sum) = sum {
            let correct = if self.sum == ChecksumType::Null { 0 } else { crc32c(&content()) };
            assert_eq!(sum, Value::Check(correct));
            self.delivery.sync(&mut self.shared, self.seat.handle);
        }
    }

    fn put_record(&mut self) {
        let mut out = Writer::new(1);
        out.flag(self.delivery.step() == Step::Stored);
        out.ranges(&self.delivery.recordable(&self.ranges));
        let request = IndexRequest::Put { key: KEY.to_owned(), value: out.finish() };
        let record = &mut self.delivery.record;
        record.submit(&mut self.shared, self.seat.handle, Job::Own(()), request);
    }

    fn on_done(&mut self, job: Job<()>, result: Result<Completion, EffectError>) {
        let (shared, handle) = (&mut self.shared, self.seat.handle);
        if job == Job::Own(()) {
            let is_last = self.delivery.record.done(shared, handle, job);
            if is_last && self.delivery.step() == Step::Stored {
                self.delivery.install(shared, handle, destination());
            }
            return;
        }
        let ranges = &mut self.ranges;
        match self.delivery.on_done(shared, handle, Time::ZERO, ranges, &job, result) {
            Some(Event::Opened | Event::Summed) => self.check(),
            Some(Event::Saved) => self.put_record(),
            Some(Event::Stored) if self.records_stored => self.put_record(),
            Some(Event::Stored) => self.delivery.install(shared, handle, destination()),
            Some(Event::Installed) => {
                let request = IndexRequest::Remove { key: KEY.to_owned() };
                self.delivery.record.submit(shared, handle, Job::Own(()), request);
                self.delivery.leave(&mut self.shared);
                self.is_over = true;
            }
            Some(Event::NotInstalled(reason)) => panic!("{reason}"),
            Some(Event::Failed(_)) => panic!("the store does not fail"),
            None => {}
        }
    }

    /// Passes the effects to the disk.
    fn drain(&mut self, disk: &mut Disk) {
        while let Some(effect) = self.shared.next_effect() {
            match effect {
                Effect::Store(effect) => disk.waiting.push(effect),
                Effect::Path(_) | Effect::Stream(_) => panic!("{effect:?}"),
            }
        }
    }

    /// Carries out a waiting effect.
    fn step(&mut self, disk: &mut Disk, at: usize) {
        let done = disk.execute(at);
        let done = done.and_then(|(ticket, result)| Some((self.shared.completed(ticket)?, result)));
        if let Some(((_, job), result)) = done {
            self.on_done(job, result);
        }
        self.drain(disk);
    }
}

/// Everything that a record or a name promises is on the disk.
fn check_disk(disk: &Disk, what: &str) {
    if let Some(file) = disk.live.get(&destination()) {
        assert_eq!(file, content(), "{what}: a file has its name before it is stored");
    }
    let record = disk.live.records().next().map(|(_, value)| value);
    let Some(mut fields) = record.and_then(|record| Reader::new(1, record)) else { return };
    let _is_stored = fields.flag();
    let Some(file) = disk.live.get(&working()) else { return };
    for (start, end) in fields.ranges().expect("ranges").iter() {
        let range = start as usize..end as usize;
        assert_eq!(file.get(range.clone()), Some(&content()[range]), "{what}: recorded too early");
    }
}

/// Runs until the file has its name; each run but the last dies after some effects. Returns the
/// number of runs that died.
fn run(deaths: &[usize], sum: ChecksumType, records_stored: bool, seed: u64) -> usize {
    let what = format!("deaths {deaths:?}, {sum:?}, {records_stored}, seed {seed}");
    let (mut rng, mut disk) = (Rng::new(seed, "delivery"), Disk::default());
    for (number, effects) in deaths.iter().copied().chain([usize::MAX]).enumerate() {
        let record = disk.live.records().next().map(|(_, value)| value.clone());
        let is_installed = disk.live.get(&destination()).is_some();
        if is_installed && !(records_stored && record.is_some()) {
            // Protocols that record no stored file know its session by another record.
            return number;
        }
        let mut toy = Toy::new(sum, records_stored);
        toy.start(record.as_ref());
        let mut left = effects;
        while left > 0 && !(toy.is_over && disk.waiting.is_empty()) {
            if rng.chance(0.5) {
                toy.on_piece(&mut rng);
            }
            if toy.delivery.step() == Step::Receiving && rng.chance(0.2) {
                // Protocols record other news of a reception, too, whatever is being synced.
                toy.put_record();
            }
            toy.drain(&mut disk);
            if !disk.waiting.is_empty() {
                let at = disk.choose(&mut rng);
                toy.step(&mut disk, at);
                left -= 1;
            }
        }
        if toy.is_over && disk.waiting.is_empty() {
            assert_eq!(disk.live.get(&destination()), Some(&content()[..]), "{what}");
            assert_eq!(disk.live.get(&working()), None, "{what}");
            return number;
        }
        disk.crash(&mut rng);
        check_disk(&disk, &what);
    }
    panic!("{what}: the last run does not die")
}

/// Records cover only synced data, only a complete and synced file gets its name, and a restart
/// continues from there.
#[test]
fn a_process_may_die_after_any_effect() {
    for seed in 0..20 {
        for sum in [ChecksumType::Crc32c, ChecksumType::Null] {
            for records_stored in [false, true] {
                let mut effects = 1;
                while run(&[effects], sum, records_stored, seed) > 0 {
                    effects += 1;
                }
                assert!(effects > 10, "there are only {effects} effects");
                for first in 1..effects {
                    run(&[first, effects - first, first], sum, records_stored, seed);
                }
            }
        }
    }
}

/// The record was made, but the disk lost a part of the file.
#[test]
fn parts_that_are_not_in_the_file_are_received_again() {
    let mut disk = Disk::default();
    disk.live.insert(working(), content()[..7].to_vec());
    let mut toy = Toy::new(ChecksumType::Crc32c, false);
    toy.ranges.insert(3, 12);
    toy.delivery.resume(toy.ranges.clone());
    toy.delivery.open(&mut toy.shared, toy.seat.handle, Sum::checksum(toy.sum));
    toy.drain(&mut disk);
    toy.step(&mut disk, 0);
    assert!(toy.ranges.iter().eq([(3, 7)]));
    assert_eq!(toy.delivery.safe(), &toy.ranges, "the next record claims no more");
}

/// Effects overtake each other: the file may be created after it was deleted.
#[test]
fn a_file_discarded_while_it_is_opened_is_deleted_afterwards() {
    let ends: [fn(&mut Toy); 2] = [
        |toy| toy.delivery.discard(&mut toy.shared, toy.seat.handle),
        |toy| toy.delivery.leave(&mut toy.shared),
    ];
    for (end, is_deleted) in ends.into_iter().zip([true, false]) {
        let mut disk = Disk::default();
        let mut toy = Toy::new(ChecksumType::Crc32c, false);
        toy.start(None);
        end(&mut toy);
        toy.drain(&mut disk);
        disk.waiting.reverse();
        while !disk.waiting.is_empty() {
            toy.step(&mut disk, 0);
        }
        assert_eq!(disk.live.get(&working()).is_none(), is_deleted);
    }
}

/// Protocols may keep an incomplete file.
#[test]
fn collected_data_of_an_incomplete_file_is_stored() {
    let (mut disk, mut rng) = (Disk::default(), Rng::new(1, "delivery"));
    let mut toy = Toy::new(ChecksumType::Crc32c, false);
    toy.start(None);
    toy.on_piece(&mut rng);
    let received = toy.ranges.end();
    toy.drain(&mut disk);
    toy.step(&mut disk, 0);
    toy.delivery.sync(&mut toy.shared, toy.seat.handle);
    toy.drain(&mut disk);
    while !disk.waiting.is_empty() {
        toy.step(&mut disk, 0);
    }
    assert_eq!(disk.live.get(&destination()).map(|file| file.len() as u64), Some(received));
}
