//! State shared by clients and servers of a node: control connections, tickets, effects, timers.

mod data;
mod jobs;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::{
    Effect, FileName, FilestoreRequest, PathEffect, PathId, StoreEffect, StreamEffect, Ticket,
    Time, Timers, Transmit, TxBuf,
};

pub(super) use self::data::{Data, DataEvent, DataId, DataState, Flow};
pub(super) use self::jobs::{ClientJob, Edit, ServerJob, Use};
use super::config::Limits;
use super::indication::{Indication, RequestId};
use super::relay::Relayed;
use crate::flow::ReadAhead;
use crate::message::{LineError, Lines};

/// Prefix of the number of missing bytes in a server's last reply.
pub(super) const MISSING: &str = "Missing: ";

/// Control connection.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) path: PathId,
    /// Local and remote address, if known to the driver.
    pub(super) ends: Option<(SocketAddr, SocketAddr)>,
    lines: Lines,
    out: BytesMut,
    blocked: bool,
    /// Whether the connection ends after everything was sent.
    closing: bool,
}

impl Control {
    pub(super) fn new(path: PathId) -> Self {
        let (lines, out) = (Lines::default(), BytesMut::new());
        Self { path, ends: None, lines, out, blocked: true, closing: false }
    }

    /// Queues a line.
    pub(super) fn queue_line(&mut self, line: &str) {
        self.out.extend_from_slice(line.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    pub(super) fn set_blocked(&mut self, blocked: bool) {
        self.blocked = blocked;
    }

    /// Complete lines received.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Vec<Result<String, LineError>> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let (taken, line) = self.lines.next(bytes);
            bytes = &bytes[taken..];
            found.extend(line);
        }
        found
    }

    /// Closes the connection after everything was sent.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether something can be sent now.
    pub(super) fn is_ready(&self) -> bool {
        !self.blocked && !self.out.is_empty()
    }

    /// Bytes that can be sent now.
    pub(super) fn take(&mut self, len: usize) -> Option<Bytes> {
        if !self.is_ready() {
            return None;
        }
        Some(self.out.split_to(self.out.len().min(len)).freeze())
    }

    /// Whether it is closing and everything was sent.
    pub(super) fn is_spent(&self) -> bool {
        self.closing && self.out.is_empty()
    }
}

#[derive(Debug)]
pub(super) struct Core {
    pub(super) limits: Limits,
    pub(super) effects: VecDeque<Effect>,
    pub(super) indications: VecDeque<Indication>,
    /// Silence timers by control connection.
    pub(super) timers: Timers<PathId>,
    pub(super) data: BTreeMap<DataId, Data>,
    pub(super) data_paths: BTreeMap<PathId, DataId>,
    pub(super) data_events: VecDeque<(DataId, DataEvent)>,
    /// Events of the halves of transfers between two servers.
    pub(super) relayed: VecDeque<(RequestId, Relayed)>,
    /// Files being stored by clients, with the client that started last.
    storing: BTreeMap<FileName, PathId>,
    /// Clients whose file another one stores now.
    pub(super) superseded: VecDeque<PathId>,
    /// Data connection that sent last; the next one in turn is served first.
    pub(super) last_sender: DataId,
    uses: BTreeMap<Ticket, Use>,
    tickets: u64,
    data_made: u64,
}

impl Core {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            effects: VecDeque::new(),
            indications: VecDeque::new(),
            timers: Timers::new(),
            data: BTreeMap::new(),
            data_paths: BTreeMap::new(),
            data_events: VecDeque::new(),
            relayed: VecDeque::new(),
            storing: BTreeMap::new(),
            superseded: VecDeque::new(),
            last_sender: DataId(0),
            uses: BTreeMap::new(),
            tickets: 0,
            data_made: 0,
        }
    }

    /// Unused number for a ticket or a name.
    pub(super) fn next_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Submits a store effect whose result is used.
    pub(super) fn submit(&mut self, effect: StoreEffect, what_for: Use) {
        if let Some(ticket) = effect.ticket() {
            self.uses.insert(ticket, what_for);
        }
        self.effects.push_back(effect.into());
    }

    pub(super) fn filestore(&mut self, request: FilestoreRequest, what_for: Use) {
        let ticket = self.next_ticket();
        self.submit(StoreEffect::Filestore { ticket, request }, what_for);
    }

    pub(super) fn use_of(&mut self, ticket: Ticket) -> Option<Use> {
        self.uses.remove(&ticket)
    }

    /// Notes that a client starts to store a file: a previous client, whose connection may be dead,
    /// is superseded.
    pub(super) fn begin_storing(&mut self, file: FileName, control: PathId) {
        let before = self.storing.insert(file, control);
        self.superseded.extend(before.filter(|before| *before != control));
    }

    /// Notes that a client no longer stores a file; `false` if another client stores it.
    pub(super) fn end_storing(&mut self, file: &FileName, control: PathId) -> bool {
        let is_own = self.storing.get(file) == Some(&control);
        if is_own {
            self.storing.remove(file);
        }
        is_own
    }

    /// Data connection for which a path was requested.
    pub(super) fn requested(&mut self, ticket: Ticket) -> Option<DataId> {
        match self.uses.get(&ticket) {
            Some(Use::Data(id)) => {
                let id = *id;
                self.uses.remove(&ticket);
                Some(id)
            }
            Some(Use::Flow(..) | Use::Client(..) | Use::Server(..)) | None => None,
        }
    }

    /// Notes that the driver listens for a data connection.
    pub(super) fn waits_on(&mut self, ticket: Ticket, id: DataId) {
        self.uses.insert(ticket, Use::Data(id));
    }

    /// Connects to an address.
    pub(super) fn connect(&mut self, control: PathId, to: SocketAddr, best_effort: bool) -> DataId {
        let ticket = self.next_ticket();
        self.effects
            .push_back(StreamEffect::Connect { ticket, from: None, to, best_effort }.into());
        self.add_data(control, ticket, DataState::Connecting(ticket))
    }

    /// Listens for a connection; the result for `Use::Data` has the address.
    pub(super) fn listen(&mut self, control: PathId, best_effort: bool) -> DataId {
        let ticket = self.next_ticket();
        self.effects.push_back(StreamEffect::Listen { ticket, near: control, best_effort }.into());
        self.add_data(control, ticket, DataState::Listening(ticket))
    }

    fn add_data(&mut self, control: PathId, ticket: Ticket, state: DataState) -> DataId {
        self.data_made += 1;
        let id = DataId(self.data_made);
        self.uses.insert(ticket, Use::Data(id));
        self.data.insert(id, Data { control, state, flow: Flow::None, missing: 0 });
        id
    }

    /// Gives up a requested data connection. If the connection is established nevertheless, it is
    /// closed.
    pub(super) fn give_up(&mut self, ticket: Ticket, stop: Effect) {
        self.uses.remove(&ticket);
        self.effects.push_back(stop);
    }

    pub(super) fn pause(&mut self, path: PathId, paused: bool) {
        self.effects.push_back(if paused {
            Effect::Path(PathEffect::PauseRead { path })
        } else {
            Effect::Path(PathEffect::ResumeRead { path })
        });
    }

    pub(super) fn reset_path(&mut self, path: PathId) {
        self.effects.push_back(StreamEffect::Reset { path }.into());
    }

    pub(super) fn close_path(&mut self, path: PathId) {
        self.effects.push_back(PathEffect::Close { path }.into());
    }

    pub(super) fn indicate(&mut self, indication: Indication) {
        self.indications.push_back(indication);
    }

    pub(super) fn read_bounds(&self) -> ReadAhead {
        ReadAhead { piece: self.limits.piece, most: self.limits.read_ahead }
    }

    /// Restarts the silence timer of a control connection.
    pub(super) fn expect(&mut self, path: PathId, now: Time, within: Duration, why: &'static str) {
        self.timers.set(path, now + within, why);
    }

    /// Writes bytes of a stream into a batch.
    pub(super) fn transmit(
        path: PathId,
        bytes: &[u8],
        now: Time,
        tx: &mut TxBuf,
    ) -> Option<Transmit> {
        tx.push(bytes.len())?.copy_from_slice(bytes);
        tx.transmit(path, now)
    }
}
