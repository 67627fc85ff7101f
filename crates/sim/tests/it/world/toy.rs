//! Toy engines and worlds to test the simulator with.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Completion, Deadline, Effect, EffectError, Engine, FileId, FileName, Input, OpenMode,
    PathEvent, PathId, PathInfo, StoreEffect, Ticket, Time, Transmit, TxBuf,
};
use link::{Delay, Framing, Rate};
use slowlight_sim::{HostConfig, HostId, LinkId, World};

/// Indication of a toy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// A datagram arrived: its path, number and length.
    Received(PathId, u32, usize),
    /// A datagram with unexpected content.
    Corrupt,
    Up(PathId, PathInfo),
    Down,
    Blocked,
    Writable,
    /// A copy ended.
    Copied(Result<u64, EffectError>),
    Woke(&'static str),
}

/// Sends numbered datagrams at its path's rate, replies, copies files, keeps timers.
#[derive(Default)]
pub(crate) struct Toy {
    /// Datagrams still to send, the next one's number, and their length.
    pub(crate) left: u32,
    pub(crate) number: u32,
    pub(crate) len: usize,
    pub(crate) info: Option<PathInfo>,
    pub(crate) path: PathId,
    pub(crate) next_at: Time,
    pub(crate) blocked: bool,
    /// Whether it stops at `Blocked`; otherwise it continues and loses packets that the queue
    /// rejects.
    pub(crate) polite: bool,
    pub(crate) echo: bool,
    echoes: VecDeque<(PathId, u32, usize)>,
    pub(crate) copier: Option<Copier>,
    pub(crate) timer: Option<Deadline>,
    /// Whether it breaks rule 3: its timer stays.
    pub(crate) stubborn: bool,
    effects: VecDeque<Effect>,
    notes: VecDeque<Note>,
    pub(crate) restarts: u32,
    /// Changes of the return link; `true` if it came up.
    pub(crate) returns: Vec<(Time, bool)>,
}

/// Copies `in` to `out`, piece by piece, and syncs.
pub(crate) struct Copier {
    piece: usize,
    sync: bool,
    from: Option<FileId>,
    to: Option<FileId>,
    offset: u64,
    synced: bool,
}

pub(crate) fn file(name: &str) -> FileName {
    FileName::file(name).unwrap()
}

impl Toy {
    pub(crate) fn echoing(echo: bool) -> Self {
        Self { echo, ..Self::default() }
    }

    pub(crate) fn send(&mut self, count: u32, len: usize) {
        self.left += count;
        self.len = len;
    }

    pub(crate) fn copy(&mut self, piece: usize, sync: bool) {
        let (from, to) = (None, None);
        self.copier = Some(Copier { piece, sync, from, to, offset: 0, synced: false });
        let open = |ticket, name, mode| StoreEffect::Open { ticket: Ticket(ticket), name, mode };
        self.effects.push_back(open(1, file("in"), OpenMode::Read).into());
        self.effects.push_back(open(2, file("out"), OpenMode::Truncate).into());
    }

    pub(crate) fn effect(&mut self, effect: impl Into<Effect>) {
        self.effects.push_back(effect.into());
    }

    fn done(&mut self, ticket: Ticket, answer: Result<Completion, EffectError>) {
        let Some(copier) = &mut self.copier else { return };
        let completion = match answer {
            Ok(completion) => completion,
            Err(error) => {
                self.copier = None;
                self.notes.push_back(Note::Copied(Err(error)));
                return;
            }
        };
        let mut read = false;
        match (ticket.0, completion) {
            (1, Completion::Opened { file, .. }) => copier.from = Some(file),
            (2, Completion::Opened { file, .. }) => {
                copier.to = Some(file);
                read = true;
            }
            (3, Completion::Read(bytes)) if bytes.is_empty() && copier.sync => {
                let effect = StoreEffect::Sync { ticket: Ticket(5), file: copier.to.unwrap() };
                self.effects.push_back(effect.into());
            }
            (3, Completion::Read(bytes)) if bytes.is_empty() => copier.synced = true,
            (3, Completion::Read(bytes)) => {
                let offset = copier.offset;
                copier.offset += bytes.len() as u64;
                let (ticket, file) = (Ticket(4), copier.to.unwrap());
                self.effects.push_back(StoreEffect::Write { ticket, file, offset, bytes }.into());
            }
            (4, Completion::Done) => read = true,
            (5, Completion::Done) => copier.synced = true,
            other => panic!("{other:?}"),
        }
        if read {
            let (ticket, file) = (Ticket(3), copier.from.unwrap());
            let (offset, len) = (copier.offset, copier.piece);
            self.effects.push_back(StoreEffect::Read { ticket, file, offset, len }.into());
        }
        if copier.synced {
            self.notes.push_back(Note::Copied(Ok(copier.offset)));
            self.copier = None;
        }
    }
}

impl Engine for Toy {
    type Indication = Note;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Receive(receive) => {
                for bytes in receive.datagrams() {
                    let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
                    let sound = bytes[4..].iter().all(|byte| *byte == number as u8);
                    self.notes.push_back(if sound {
                        Note::Received(receive.path, number, bytes.len())
                    } else {
                        Note::Corrupt
                    });
                    if self.echo {
                        self.echoes.push_back((receive.from, number, bytes.len()));
                    }
                }
            }
            Input::Path(path, PathEvent::Up(info)) => {
                self.blocked = false;
                self.path = path;
                self.info = Some(info.clone());
                self.notes.push_back(Note::Up(path, info));
            }
            Input::Path(_, PathEvent::Down) => {
                self.info = None;
                self.notes.push_back(Note::Down);
            }
            Input::Path(_, PathEvent::Blocked) => {
                self.blocked = true;
                self.notes.push_back(Note::Blocked);
            }
            Input::Path(_, PathEvent::Writable) => {
                self.blocked = false;
                self.notes.push_back(Note::Writable);
            }
            Input::Path(_, PathEvent::ReturnDown) => self.returns.push((now, false)),
            Input::Path(_, PathEvent::ReturnUp) => self.returns.push((now, true)),
            Input::Path(
                _,
                PathEvent::Unsent
                | PathEvent::ReadClosed
                | PathEvent::Missing { .. }
                | PathEvent::Secured(_),
            ) => {}
            Input::Done(ticket, answer) => self.done(ticket, answer),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(timer) = self.timer.filter(|timer| timer.at <= now && !self.stubborn) {
            self.timer = None;
            self.notes.push_back(Note::Woke(timer.why));
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        if let Some((path, number, len)) = self.echoes.pop_front() {
            fill(tx.push(len)?, number);
            return tx.transmit(path, Time::ZERO);
        }
        if self.polite && self.blocked {
            return None;
        }
        let info = self.info.as_ref()?;
        let at = self.next_at.max(now);
        let mut spent = Duration::ZERO;
        while self.left > 0 && tx.fits(self.len) {
            fill(tx.push(self.len)?, self.number);
            self.left -= 1;
            self.number += 1;
            spent += info.transmission_time(self.len);
        }
        self.next_at = at + spent;
        tx.transmit(self.path, at)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timer
    }
}

fn fill(place: &mut [u8], number: u32) {
    place[..4].copy_from_slice(&number.to_be_bytes());
    place[4..].fill(number as u8);
}

pub(crate) const EARTH: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const MOON: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const RELAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
pub(crate) const PORT: u16 = 4556;
pub(crate) const PATH: PathId = PathId(1);

/// Returns a line of 10 Mbit/s Ethernet frames with this delay.
pub(crate) fn line(delay: Duration) -> link::Config {
    link::Config {
        rate: Rate::Constant(10_000_000),
        framing: Framing::Ethernet { fcs: false, preamble: false, ifg: false },
        delay: Delay::Constant(delay),
        ..link::Config::default()
    }
}

/// Returns the path information of such a line: 42 bytes of Ethernet, IPv4 and UDP.
pub(crate) fn info() -> PathInfo {
    PathInfo { rate_bps: Some(10_000_000), overhead: 42, ..PathInfo::datagram(1024) }
}

/// Two hosts and a link each way.
pub(crate) struct Pair {
    pub(crate) world: World<Toy>,
    pub(crate) earth: HostId,
    pub(crate) moon: HostId,
    pub(crate) forward: LinkId,
    pub(crate) back: LinkId,
}

pub(crate) fn pair(config: impl Fn(HostConfig) -> HostConfig, line: &link::Config) -> Pair {
    pair_of(config, line, line)
}

/// A pair whose two directions differ.
pub(crate) fn pair_of(
    config: impl Fn(HostConfig) -> HostConfig,
    there: &link::Config,
    back: &link::Config,
) -> Pair {
    let mut world = World::new(7);
    let earth = world.add_host(config(HostConfig::new("earth", EARTH)));
    let moon = world.add_host(config(HostConfig::new("moon", MOON)));
    let forward = world.add_link(earth, moon, there.clone()).unwrap();
    let back = world.add_link(moon, earth, back.clone()).unwrap();
    for (host, peer) in [(earth, MOON), (moon, EARTH)] {
        world.add_path(host, PATH, PORT, SocketAddrV4::new(peer, PORT), info());
        world.install(host, |restarts, _| Toy { restarts, ..Toy::default() });
    }
    Pair { world, earth, moon, forward, back }
}

/// Returns numbers and times of the datagrams a host received.
pub(crate) fn received(notes: &[(Time, HostId, Note)], host: HostId) -> Vec<(Time, u32)> {
    notes
        .iter()
        .filter(|(_, at, _)| *at == host)
        .filter_map(|(time, _, note)| match note {
            Note::Received(_, number, _) => Some((*time, *number)),
            _ => None,
        })
        .collect()
}

/// A sink whose bytes remain readable while a capture owns it.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

/// Returns `len` bytes without short-distance repetition.
pub(crate) fn content(len: usize) -> Bytes {
    (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Returns the set of writes to fail.
pub(crate) fn writes(numbers: &[u64]) -> BTreeSet<u64> {
    numbers.iter().copied().collect()
}
