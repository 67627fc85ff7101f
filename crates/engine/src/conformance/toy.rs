//! A file transfer small enough to be obviously correct, and its mutants.
//!
//! The sender sends all chunks and an end. The receiver replies to the end with the missing chunks
//! or, when the file is stored, with done. Every datagram is `kind, transfer (4), index (4),
//! payload, checksum (8)`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::{PATH, Role, Subject, Verdict, copy, source};
use crate::{
    Completion, Deadline, Effect, EffectError, Engine, FileId, FileName, FilestoreRequest, Input,
    OpenMode, PathEvent, Rng, StoreEffect, Ticket, Time, Timers, Transmit, TxBuf,
};

const DATA: u8 = 1;
const END: u8 = 2;
const MISSING: u8 = 3;
const DONE: u8 = 4;
const REFUSED: u8 = 5;

const HEADER: usize = 9;
const CHECKSUM: usize = 8;
const CHUNK: usize = 100;
const FILE_MAX: usize = 4096;
const TRANSFERS_MAX: usize = 4;
const TRIES_MAX: u32 = 8;
const PATIENCE: Duration = Duration::from_secs(20);
const RESEND: Duration = Duration::from_secs(1);

/// Defect of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    None,
    PanicsWhenShort,
    ResendsAtEachTimeout,
    KeepsPastDeadline,
    TakesEveryTransfer,
    ReadsFirstOfBatch,
    TrustsAnyBytes,
    DeliversBeforeStored,
    NeverAsksAgain,
    NeverRepairs,
    DrawsFromElsewhere,
    NeverSleeps,
    LiesAboutBatch,
    IgnoresBlocked,
    IndicatesForEver,
    ForgetsFailedEffect,
    EmptiesAtFirstByte,
    QueuesEveryAnswer,
}

pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

struct Datagram<'a> {
    kind: u8,
    transfer: u32,
    index: u32,
    payload: &'a [u8],
}

fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl<'a> Datagram<'a> {
    fn decode(bytes: &'a [u8], bug: Bug) -> Option<Self> {
        if bytes.len() < HEADER + CHECKSUM && bug != Bug::PanicsWhenShort {
            return None;
        }
        let (body, sum) = bytes.split_at(bytes.len() - CHECKSUM);
        if hash(body).to_be_bytes() != sum && bug != Bug::TrustsAnyBytes {
            return None;
        }
        let (transfer, index) = (four(body, 1), four(body, 5));
        Some(Self { kind: body[0], transfer, index, payload: &body[HEADER..] })
    }

    fn len(&self) -> usize {
        HEADER + self.payload.len() + CHECKSUM
    }

    fn push(&self, tx: &mut TxBuf) -> bool {
        let Some(place) = tx.push(self.len()) else { return false };
        let (body, sum) = place.split_at_mut(HEADER + self.payload.len());
        body[0] = self.kind;
        body[1..5].copy_from_slice(&self.transfer.to_be_bytes());
        body[5..9].copy_from_slice(&self.index.to_be_bytes());
        body[9..].copy_from_slice(self.payload);
        sum.copy_from_slice(&hash(body).to_be_bytes());
        true
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Resend,
    Patience(u32),
    Awake,
}

enum Sending {
    Idle,
    Opening,
    Reading(FileId),
    Active { content: Bytes, pending: BTreeSet<u32>, end_due: bool, tries: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Collecting,
    Opening,
    Writing(FileId),
    Syncing(FileId),
    Installing,
    Done,
}

struct Receiving {
    phase: Phase,
    content: Vec<u8>,
    got: BTreeSet<u32>,
}

pub(super) struct Toy {
    bug: Bug,
    transfer: u32,
    writable: bool,
    sending: Sending,
    receiving: BTreeMap<u32, Receiving>,
    answers: VecDeque<(u8, u32, Vec<u8>)>,
    timers: Timers<Timer>,
    effects: VecDeque<Effect>,
    indications: VecDeque<Verdict>,
}

static ELSEWHERE: AtomicU32 = AtomicU32::new(0);

impl Toy {
    fn new(bug: Bug, seed: u64) -> Self {
        let mut transfer = Rng::new(seed, "toy").next_u32();
        if bug == Bug::DrawsFromElsewhere {
            transfer = ELSEWHERE.fetch_add(1, Ordering::Relaxed);
        }
        Self {
            bug,
            transfer,
            writable: false,
            sending: Sending::Idle,
            receiving: BTreeMap::new(),
            answers: VecDeque::new(),
            timers: Timers::new(),
            effects: VecDeque::new(),
            indications: VecDeque::new(),
        }
    }

    fn put(&mut self) {
        self.sending = Sending::Opening;
        let (name, mode) = (source(), OpenMode::Read);
        self.effects.push_back(StoreEffect::Open { ticket: Ticket(0), name, mode }.into());
    }

    fn end(&mut self, verdict: Verdict) {
        self.sending = Sending::Idle;
        self.timers.cancel(Timer::Resend);
        self.indications.push_back(verdict);
    }

    fn sender_done(&mut self, answer: Result<Completion, EffectError>) {
        match (&self.sending, answer) {
            (Sending::Opening, Ok(Completion::Opened { file, len, .. })) => {
                self.sending = Sending::Reading(file);
                let (ticket, offset, len) = (Ticket(0), 0, len as usize);
                self.effects.push_back(StoreEffect::Read { ticket, file, offset, len }.into());
            }
            (Sending::Reading(file), Ok(Completion::Read(content))) => {
                self.effects.push_back(StoreEffect::Close { file: *file }.into());
                let pending = (0..content.len().div_ceil(CHUNK) as u32).collect();
                self.sending = Sending::Active { content, pending, end_due: true, tries: 0 };
            }
            _ => self.end(Verdict::Failed),
        }
    }

    fn receiver_done(&mut self, transfer: u32, answer: Result<Completion, EffectError>) {
        let ticket = Ticket(u64::from(transfer) + 1);
        let Some(receiving) = self.receiving.get_mut(&transfer) else { return };
        let spool = FileName::spool(&transfer.to_string()).expect("a number is a name");
        match (receiving.phase, answer) {
            (Phase::Opening, Ok(Completion::Opened { file, .. })) => {
                receiving.phase = Phase::Writing(file);
                let bytes = Bytes::from(receiving.content.clone());
                self.effects
                    .push_back(StoreEffect::Write { ticket, file, offset: 0, bytes }.into());
            }
            (Phase::Writing(file), Ok(_)) => {
                receiving.phase = Phase::Syncing(file);
                self.effects.push_back(StoreEffect::Sync { ticket, file }.into());
            }
            (Phase::Syncing(file), Ok(_)) => {
                receiving.phase = Phase::Installing;
                self.effects.push_back(StoreEffect::Close { file }.into());
                let request = FilestoreRequest::Install { from: spool, to: copy() };
                self.effects.push_back(StoreEffect::Filestore { ticket, request }.into());
            }
            (Phase::Installing, Ok(_)) => {
                receiving.phase = Phase::Done;
                self.answers.push_back((DONE, transfer, Vec::new()));
                if self.bug != Bug::DeliversBeforeStored {
                    self.indications.push_back(Verdict::Delivered);
                }
            }
            (_, Err(_)) if self.bug == Bug::ForgetsFailedEffect => {
                receiving.phase = Phase::Done;
                self.indications.push_back(Verdict::Delivered);
            }
            _ => {
                self.drop_transfer(transfer);
                self.answers.push_back((REFUSED, transfer, Vec::new()));
                self.indications.push_back(Verdict::Failed);
            }
        }
    }

    fn drop_transfer(&mut self, transfer: u32) {
        self.timers.cancel(Timer::Patience(transfer));
        self.receiving.remove(&transfer);
    }

    fn receive(&mut self, now: Time, datagram: &Datagram<'_>) {
        match datagram.kind {
            DATA | END => self.receive_file(now, datagram),
            MISSING | DONE | REFUSED if datagram.transfer == self.transfer => {
                self.receive_answer(datagram);
            }
            _ => {}
        }
    }

    fn receive_answer(&mut self, datagram: &Datagram<'_>) {
        let Sending::Active { content, pending, end_due, tries } = &mut self.sending else {
            return;
        };
        match datagram.kind {
            MISSING => {
                let count = content.len().div_ceil(CHUNK) as u32;
                let indices = datagram.payload.chunks_exact(4).map(|index| four(index, 0));
                pending.extend(indices.filter(|index| *index < count));
                (*end_due, *tries) = (true, 0);
            }
            DONE => self.end(Verdict::Delivered),
            _ => self.end(Verdict::Failed),
        }
    }

    fn receive_file(&mut self, now: Time, datagram: &Datagram<'_>) {
        let known = self.receiving.contains_key(&datagram.transfer);
        let bounded = self.bug != Bug::TakesEveryTransfer;
        if !known && bounded && self.receiving.len() >= TRANSFERS_MAX {
            return;
        }
        if !known && self.bug == Bug::EmptiesAtFirstByte {
            let (ticket, mode) = (Ticket(u64::MAX), OpenMode::Truncate);
            self.effects.push_back(StoreEffect::Open { ticket, name: copy(), mode }.into());
        }
        let receiving = self.receiving.entry(datagram.transfer).or_insert_with(|| Receiving {
            phase: Phase::Collecting,
            content: Vec::new(),
            got: BTreeSet::new(),
        });
        self.timers.set(Timer::Patience(datagram.transfer), now + PATIENCE, "patience");
        if datagram.kind == END {
            return self.receive_end(datagram);
        }
        let start = datagram.index as usize * CHUNK;
        let end = start + datagram.payload.len();
        if receiving.phase == Phase::Collecting && end <= FILE_MAX {
            receiving.content.resize(receiving.content.len().max(end), 0);
            receiving.content[start..end].copy_from_slice(datagram.payload);
            receiving.got.insert(datagram.index);
        }
    }

    fn receive_end(&mut self, datagram: &Datagram<'_>) {
        let transfer = datagram.transfer;
        let Some(receiving) = self.receiving.get_mut(&transfer) else { return };
        match receiving.phase {
            Phase::Done => return self.answers.push_back((DONE, transfer, Vec::new())),
            Phase::Collecting => {}
            Phase::Opening | Phase::Writing(_) | Phase::Syncing(_) | Phase::Installing => return,
        }
        let count = datagram.index.min((FILE_MAX / CHUNK) as u32);
        let missing: Vec<_> = (0..count).filter(|index| !receiving.got.contains(index)).collect();
        let right = datagram.payload == hash(&receiving.content).to_be_bytes();
        if missing.is_empty() && (right || self.bug == Bug::TrustsAnyBytes) {
            receiving.phase = Phase::Opening;
            let name = FileName::spool(&transfer.to_string()).expect("a number is a name");
            let ticket = Ticket(u64::from(transfer) + 1);
            self.effects
                .push_back(StoreEffect::Open { ticket, name, mode: OpenMode::Truncate }.into());
            if self.bug == Bug::DeliversBeforeStored {
                self.indications.push_back(Verdict::Delivered);
            }
        } else if missing.is_empty() || self.bug == Bug::NeverRepairs {
            self.drop_transfer(transfer);
            self.answers.push_back((REFUSED, transfer, Vec::new()));
            self.indications.push_back(Verdict::Failed);
        } else {
            let list = missing.iter().flat_map(|index| index.to_be_bytes()).collect();
            self.answers.push_back((MISSING, transfer, list));
        }
        // One reply per transfer is enough; it replaces older ones.
        while self.answers.len() > TRANSFERS_MAX && self.bug != Bug::QueuesEveryAnswer {
            self.answers.pop_front();
        }
    }

    fn memory(&self) -> usize {
        let receiving = self.receiving.values();
        let held: usize = receiving.map(|r| 64 + r.content.len() + r.got.len() * 4).sum();
        held + self.answers.iter().map(|(_, _, list)| 32 + list.len()).sum::<usize>()
    }
}

impl Engine for Toy {
    type Indication = Verdict;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Receive(receive) => {
                let most = if self.bug == Bug::ReadsFirstOfBatch { 1 } else { usize::MAX };
                for bytes in receive.datagrams().take(most) {
                    if let Some(datagram) = Datagram::decode(bytes, self.bug) {
                        self.receive(now, &datagram);
                    }
                }
            }
            Input::Path(_, event) => match event {
                PathEvent::Up(_) | PathEvent::Writable => self.writable = true,
                PathEvent::Blocked if self.bug == Bug::IgnoresBlocked => {}
                PathEvent::Down | PathEvent::Blocked => self.writable = false,
                PathEvent::Unsent
                | PathEvent::ReadClosed
                | PathEvent::Missing { .. }
                | PathEvent::Secured(_)
                | PathEvent::ReturnDown
                | PathEvent::ReturnUp => {}
            },
            Input::Done(Ticket(0), answer) => self.sender_done(answer),
            Input::Done(Ticket(u64::MAX), _) => {}
            Input::Done(Ticket(ticket), answer) => self.receiver_done((ticket - 1) as u32, answer),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.bug == Bug::KeepsPastDeadline && self.timers.get(Timer::Resend).is_some() {
            return;
        }
        if let Sending::Active { end_due, .. } = &mut self.sending
            && self.bug == Bug::ResendsAtEachTimeout
        {
            *end_due = true;
        }
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Resend => {
                    let Sending::Active { end_due, tries, .. } = &mut self.sending else {
                        continue;
                    };
                    *tries += 1;
                    *end_due = true;
                    if *tries > TRIES_MAX {
                        self.end(Verdict::Failed);
                    }
                }
                Timer::Patience(transfer) => {
                    let receiving = self.receiving.remove(&transfer);
                    if receiving.is_some_and(|receiving| receiving.phase != Phase::Done) {
                        self.indications.push_back(Verdict::Failed);
                    }
                }
                Timer::Awake => {}
            }
            if self.bug == Bug::NeverSleeps {
                self.timers.set(Timer::Awake, now + PATIENCE, "awake");
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        if !self.writable {
            return None;
        }
        if let Some((kind, transfer, payload)) = self.answers.pop_front() {
            Datagram { kind, transfer, index: 0, payload: &payload }.push(tx);
            return tx.transmit(PATH, now);
        }
        let Sending::Active { content, pending, end_due, .. } = &mut self.sending else {
            return None;
        };
        while let Some(&index) = pending.first() {
            let start = index as usize * CHUNK;
            let payload = &content[start..content.len().min(start + CHUNK)];
            let datagram = Datagram { kind: DATA, transfer: self.transfer, index, payload };
            if !datagram.push(tx) {
                break;
            }
            pending.pop_first();
        }
        if tx.is_empty() && *end_due {
            *end_due = false;
            let index = content.len().div_ceil(CHUNK) as u32;
            let payload = &hash(content).to_be_bytes()[..];
            Datagram { kind: END, transfer: self.transfer, index, payload }.push(tx);
            if self.bug != Bug::NeverAsksAgain {
                self.timers.set(Timer::Resend, now + RESEND, "resend");
            }
        }
        let transmit = tx.transmit(PATH, now)?;
        let lies = usize::from(self.bug == Bug::LiesAboutBatch && tx.segments() > 1);
        Some(Transmit { segment: transmit.segment + lies, ..transmit })
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Verdict> {
        if self.bug == Bug::IndicatesForEver {
            return Some(Verdict::Failed);
        }
        self.indications.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }
}

/// 15 chunks, the last of 47 bytes.
const SIZE: usize = 1_447;

pub(super) struct ToySubject(pub(super) Bug);

impl Subject for ToySubject {
    type Engine = Toy;

    fn engine(&self, _role: Role, seed: u64) -> Toy {
        Toy::new(self.0, seed)
    }

    fn size(&self) -> usize {
        SIZE
    }

    fn start(&self, engine: &mut Toy, _now: Time) -> bool {
        engine.put();
        true
    }

    fn verdict(&self, _role: Role, indication: &Verdict) -> Option<Verdict> {
        Some(*indication)
    }

    fn is_busy(&self, engine: &Toy) -> bool {
        !matches!(engine.sending, Sending::Idle) || !engine.receiving.is_empty()
    }

    fn memory(&self, engine: &Toy) -> usize {
        engine.memory()
    }

    fn memory_max(&self) -> usize {
        // Memory per transfer: its file, its chunk numbers, and a reply that lists them all.
        (TRANSFERS_MAX + 1) * (64 + FILE_MAX + 2 * 4 * (FILE_MAX / CHUNK + 1) + 32)
    }

    fn opening(&self, n: u64) -> Vec<Bytes> {
        let datagram = |kind, transfer, payload: &[u8]| {
            let mut tx = TxBuf::new(1);
            Datagram { kind, transfer, index: 14, payload }.push(&mut tx);
            Bytes::copy_from_slice(tx.bytes())
        };
        // The second requests a reply, for a transfer that is certainly open.
        let known = n as u32 % TRANSFERS_MAX as u32;
        vec![datagram(DATA, n as u32, &[7; CHUNK]), datagram(END, known, &[0; 8])]
    }

    fn survives_restart(&self, _role: Role) -> bool {
        true
    }

    fn restart(&self, role: Role, engine: &mut Toy, now: Time) -> bool {
        if role == Role::Sender {
            self.start(engine, now);
        }
        true
    }
}
