//! Engine of toy.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Completion, Deadline, Effect, EffectError, Engine, FileId, FileName, Input, OpenMode,
    PathEvent, PathId, StoreEffect, Ticket, Time, Timers, Transmit, TxBuf,
};
use transport::{Ended, Event, TransferId};

use crate::packet::Packet;

const PIECE: usize = 1024;

/// Settings of a node.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Wait for an acknowledgement before a piece is retransmitted.
    pub(crate) timeout: Duration,
    /// Silence after which a transfer is given up.
    pub(crate) inactivity: Duration,
    /// Paths to others, by their numbers.
    pub(crate) paths: BTreeMap<u64, PathId>,
}

impl Default for Config {
    fn default() -> Self {
        let (timeout, inactivity) = (Duration::from_secs(10), Duration::from_secs(600));
        Self { timeout, inactivity, paths: BTreeMap::new() }
    }
}

#[derive(Debug)]
struct Outgoing {
    path: PathId,
    name: String,
    file: Option<FileId>,
    size: u64,
    offset: u64,
    piece: Option<Bytes>,
    is_due: bool,
    /// When something was acknowledged last.
    last: Time,
}

#[derive(Debug)]
struct Incoming {
    name: String,
    file: Option<FileId>,
    next: u64,
    piece: Option<(Bytes, bool)>,
}

#[derive(Clone, Copy, Debug)]
enum Job {
    Send(u32),
    Receive(PathId, u32),
}

/// A node that sends and receives files.
#[derive(Debug)]
pub(crate) struct Node {
    config: Config,
    up: BTreeSet<PathId>,
    outgoing: BTreeMap<u32, Outgoing>,
    incoming: BTreeMap<(PathId, u32), Incoming>,
    jobs: BTreeMap<Ticket, Job>,
    timers: Timers<u32>,
    acks: VecDeque<(PathId, Vec<u8>)>,
    effects: VecDeque<Effect>,
    ends: VecDeque<Ended>,
    tickets: u64,
    transfers: u32,
}

impl Node {
    /// A node without transfers.
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            up: BTreeSet::new(),
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            jobs: BTreeMap::new(),
            timers: Timers::new(),
            acks: VecDeque::new(),
            effects: VecDeque::new(),
            ends: VecDeque::new(),
            tickets: 0,
            transfers: 0,
        }
    }

    /// Path to another node.
    pub(crate) fn path(&self, number: u64) -> Option<PathId> {
        self.config.paths.get(&number).copied()
    }

    /// Sends a file.
    pub(crate) fn send(&mut self, now: Time, path: PathId, source: FileName, name: &str) -> u32 {
        self.transfers += 1;
        let transfer = self.transfers;
        let name = name.to_owned();
        let (file, piece, is_due) = (None, None, false);
        let new = Outgoing { path, name, file, size: 0, offset: 0, piece, is_due, last: now };
        self.outgoing.insert(transfer, new);
        self.store(Job::Send(transfer), |ticket| StoreEffect::Open {
            ticket,
            name: source,
            mode: OpenMode::Read,
        });
        transfer
    }

    /// Number of files that are being sent.
    pub(crate) fn under_way(&self) -> usize {
        self.outgoing.len()
    }

    fn store(&mut self, job: Job, effect: impl FnOnce(Ticket) -> StoreEffect) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.jobs.insert(ticket, job);
        self.effects.push_back(Effect::Store(effect(ticket)));
    }

    fn receive(&mut self, path: PathId, packet: Packet<'_>, now: Time) {
        match packet {
            Packet::Ack { transfer, next } => self.acknowledged(transfer, next, now),
            Packet::Data { transfer, offset, is_last, name, data } => {
                let key = (path, transfer);
                if let Some(known) = self.incoming.get_mut(&key) {
                    if offset + data.len() as u64 <= known.next && known.piece.is_none() {
                        self.acknowledge(path, transfer);
                    } else if let (Some(file), true) = (known.file, offset == known.next)
                        && known.piece.is_none()
                    {
                        known.piece = Some((Bytes::copy_from_slice(data), is_last));
                        self.write(key, file);
                    }
                } else if let (Ok(file), 0) = (FileName::file(name), offset) {
                    let piece = Some((Bytes::copy_from_slice(data), is_last));
                    let new = Incoming { name: name.to_owned(), file: None, next: 0, piece };
                    self.incoming.insert(key, new);
                    self.store(Job::Receive(path, transfer), |ticket| StoreEffect::Open {
                        ticket,
                        name: file,
                        mode: OpenMode::Truncate,
                    });
                }
            }
        }
    }

    fn write(&mut self, key: (PathId, u32), file: FileId) {
        let Some(Incoming { next, piece: Some((bytes, _)), .. }) = self.incoming.get(&key) else {
            return;
        };
        let (offset, bytes) = (*next, bytes.clone());
        self.store(Job::Receive(key.0, key.1), |ticket| StoreEffect::Write {
            ticket,
            file,
            offset,
            bytes,
        });
    }

    fn acknowledge(&mut self, path: PathId, transfer: u32) {
        let Some(known) = self.incoming.get(&(path, transfer)) else { return };
        self.acks.push_back((path, Packet::Ack { transfer, next: known.next }.encode()));
    }

    fn acknowledged(&mut self, transfer: u32, next: u64, now: Time) {
        let Some(out) = self.outgoing.get_mut(&transfer) else { return };
        let Some(piece) = out.piece.take_if(|piece| out.offset + piece.len() as u64 == next) else {
            return;
        };
        (out.offset, out.is_due, out.last) = (next, false, now);
        self.timers.cancel(transfer);
        if piece.len() < PIECE {
            self.end(transfer, &Ok(()));
        } else {
            self.read(transfer);
        }
    }

    fn read(&mut self, transfer: u32) {
        let Some(Outgoing { file: Some(file), offset, .. }) = self.outgoing.get(&transfer) else {
            return;
        };
        let (file, offset) = (*file, *offset);
        self.store(Job::Send(transfer), |ticket| StoreEffect::Read {
            ticket,
            file,
            offset,
            len: PIECE,
        });
    }

    fn end(&mut self, transfer: u32, result: &Result<(), String>) {
        let Some(out) = self.outgoing.remove(&transfer) else { return };
        self.timers.cancel(transfer);
        let close = out.file.map(|file| Effect::Store(StoreEffect::Close { file }));
        self.effects.extend(close);
        let ended = Ended::new(TransferId::new(transfer), true, out.name, result);
        self.ends.push_back(Ended { size: out.size, ..ended });
    }

    fn sending(&mut self, transfer: u32, result: Result<Completion, EffectError>) {
        let Some(out) = self.outgoing.get_mut(&transfer) else { return };
        match result {
            Ok(Completion::Opened { file, len, .. }) => {
                (out.file, out.size) = (Some(file), len);
                self.read(transfer);
            }
            Ok(Completion::Read(bytes)) => (out.piece, out.is_due) = (Some(bytes), true),
            Ok(_) => {}
            Err(error) => self.end(transfer, &Err(error.to_string())),
        }
    }

    fn receiving(&mut self, key: (PathId, u32), result: &Result<Completion, EffectError>) {
        let Some(known) = self.incoming.get_mut(&key) else { return };
        match result {
            Ok(Completion::Opened { file, .. }) => {
                known.file = Some(*file);
                self.write(key, *file);
            }
            Ok(_) => {
                let Some((bytes, is_last)) = known.piece.take() else { return };
                known.next += bytes.len() as u64;
                if let Some(file) = known.file.filter(|_| is_last) {
                    self.effects.push_back(Effect::Store(StoreEffect::Close { file }));
                    let (id, result) = (TransferId::new(key.1), Ok::<(), String>(()));
                    let ended = Ended::new(id, false, known.name.clone(), &result);
                    self.ends.push_back(Ended { size: known.next, ..ended });
                }
                self.acknowledge(key.0, key.1);
            }
            Err(_) => _ = self.incoming.remove(&key),
        }
    }

    fn due(&mut self) -> Option<(PathId, Vec<u8>, Option<u32>)> {
        if let Some(at) = self.acks.iter().position(|(path, _)| self.up.contains(path)) {
            return self.acks.remove(at).map(|(path, bytes)| (path, bytes, None));
        }
        let is_due = |out: &Outgoing| out.is_due && self.up.contains(&out.path);
        let (transfer, out) = self.outgoing.iter_mut().find(|(_, out)| is_due(out))?;
        let data = out.piece.as_ref()?;
        let (transfer, offset, is_last) = (*transfer, out.offset, data.len() < PIECE);
        let packet = Packet::Data { transfer, offset, is_last, name: &out.name, data };
        out.is_due = false;
        Some((out.path, packet.encode(), Some(transfer)))
    }
}

impl Engine for Node {
    type Indication = Event;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Receive(received) => {
                for datagram in received.datagrams() {
                    if let Ok(packet) = Packet::decode(datagram) {
                        self.receive(received.path, packet, now);
                    }
                }
            }
            Input::Path(path, PathEvent::Up(_)) => _ = self.up.insert(path),
            Input::Path(path, PathEvent::Down) => _ = self.up.remove(&path),
            Input::Path(..) => {}
            Input::Done(ticket, result) => match self.jobs.remove(&ticket) {
                Some(Job::Send(transfer)) => self.sending(transfer, result),
                Some(Job::Receive(path, transfer)) => self.receiving((path, transfer), &result),
                None => {}
            },
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(transfer) = self.timers.pop_due(now) {
            let Some(out) = self.outgoing.get_mut(&transfer) else { continue };
            out.is_due = true;
            if out.last + self.config.inactivity <= now {
                self.end(transfer, &Err("nothing was acknowledged".to_owned()));
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let (path, bytes, transfer) = self.due()?;
        tx.push(bytes.len())?.copy_from_slice(&bytes);
        if let Some(transfer) = transfer {
            self.timers.set(transfer, now + self.config.timeout, "an acknowledgement");
        }
        tx.transmit(path, now)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Event> {
        self.ends.pop_front().map(Event::from)
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }
}
