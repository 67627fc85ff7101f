//! Suite of the engine contract: a file sent over a connection.
//!
//! The suite moves files, so an engine wraps the stack. It reads the file from its store and sends
//! it, or stores received data when the peer has closed.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use engine::conformance::{self, Options as Suite, Role, Subject, Verdict};
use engine::{
    Completion, Deadline, Effect, Engine, FileId, FileName, Input, OpenMode, PathInfo, Rng,
    StoreEffect, Ticket, Time, Transmit, TxBuf,
};

use crate::packet::{Flow, Tuple};
use crate::segment::{Flags, Header};
use crate::{
    Backlog, Buffer, CloseReason, Config, ConnectionId, Cookies, Indication, KeepAlive, Limits,
    Options, Stack,
};

fn addresses() -> [SocketAddr; 2] {
    [([10, 0, 0, 1], 0).into(), ([10, 0, 0, 2], 80).into()]
}

/// State of the user of a connection.
enum Doing {
    Nothing,
    Opening,
    Reading(FileId),
    Connecting {
        content: Vec<u8>,
        written: usize,
    },
    /// Receiving, at the other side.
    Taking {
        content: Vec<u8>,
    },
    Creating {
        content: Vec<u8>,
    },
    Writing(FileId),
    Syncing(FileId),
}

struct User {
    stack: Stack,
    role: Role,
    options: Options,
    doing: Doing,
    connection: Option<ConnectionId>,
    effects: VecDeque<Effect>,
    verdicts: VecDeque<Verdict>,
}

impl User {
    fn new(role: Role, options: Options, cookies: Cookies, seed: u64) -> Self {
        let limits = Limits { connections: 16, time_wait: 16, replies: 16, gaps: 64 };
        let config = Config { limits, ..Config::default() };
        let mut stack = Stack::new(config, Rng::new(seed, "tcp"));
        if role == Role::Receiver {
            let backlog = Backlog { half_open: 8, cookies };
            stack.listen(addresses()[1], options.clone(), backlog).expect("nobody listens");
        }
        Self {
            stack,
            role,
            options,
            doing: Doing::Nothing,
            connection: None,
            effects: VecDeque::new(),
            verdicts: VecDeque::new(),
        }
    }

    fn open(&mut self, name: FileName, mode: OpenMode) {
        let ticket = Ticket(0);
        self.effects.push_back(Effect::Store(StoreEffect::Open { ticket, name, mode }));
    }

    fn fail(&mut self) {
        self.doing = Doing::Nothing;
        self.verdicts.push_back(Verdict::Failed);
    }

    fn done(&mut self, now: Time, completion: Completion) {
        let ticket = Ticket(0);
        self.doing = match (std::mem::replace(&mut self.doing, Doing::Nothing), completion) {
            (Doing::Opening, Completion::Opened { file, len, .. }) => {
                let len = len as usize;
                self.effects.push_back(Effect::Store(StoreEffect::Read {
                    ticket,
                    file,
                    offset: 0,
                    len,
                }));
                Doing::Reading(file)
            }
            (Doing::Reading(file), Completion::Read(bytes)) => {
                self.effects.push_back(Effect::Store(StoreEffect::Close { file }));
                let [local, remote] = addresses();
                let requested = self.stack.connect(now, local, remote, self.options.clone());
                let Ok(id) = requested else { return self.fail() };
                self.connection = Some(id);
                Doing::Connecting { content: bytes.to_vec(), written: 0 }
            }
            (Doing::Creating { content }, Completion::Opened { file, .. }) => {
                let bytes = Bytes::from(content);
                self.effects.push_back(Effect::Store(StoreEffect::Write {
                    ticket,
                    file,
                    offset: 0,
                    bytes,
                }));
                Doing::Writing(file)
            }
            (Doing::Writing(file), _) => {
                self.effects.push_back(Effect::Store(StoreEffect::Sync { ticket, file }));
                Doing::Syncing(file)
            }
            (Doing::Syncing(file), _) => {
                self.effects.push_back(Effect::Store(StoreEffect::Close { file }));
                self.verdicts.push_back(Verdict::Delivered);
                // Only now is the sender informed of the end: it is stored.
                if let Some(id) = self.connection {
                    let _ = self.stack.shut_down(now, id);
                }
                Doing::Nothing
            }
            (other, _) => other,
        };
    }

    fn settle(&mut self, now: Time) {
        while let Some(indication) = self.stack.poll_indication() {
            self.indicated(now, indication);
        }
    }

    fn indicated(&mut self, now: Time, indication: Indication) {
        match indication {
            Indication::Incoming { connection, .. } => {
                if self.connection.is_some() {
                    let _ = self.stack.abort(now, connection);
                    return;
                }
                self.connection = Some(connection);
                self.doing = Doing::Taking { content: Vec::new() };
            }
            Indication::Connected { connection } | Indication::Writable { connection } => {
                if let Doing::Connecting { content, written } = &mut self.doing {
                    let rest = &content[*written..];
                    *written += self.stack.send(now, connection, rest).unwrap_or(0);
                    if *written == content.len() {
                        let _ = self.stack.shut_down(now, connection);
                    }
                }
            }
            Indication::Readable { connection } => self.read(now, connection),
            Indication::PeerClosed { connection } => {
                self.read(now, connection);
                if let Doing::Taking { content } = &mut self.doing
                    && self.connection == Some(connection)
                {
                    let content = std::mem::take(content);
                    self.doing = Doing::Creating { content };
                    self.open(conformance::copy(), OpenMode::Truncate);
                }
            }
            Indication::Closed { connection, reason } => self.closed(connection, reason),
            Indication::BacklogFull { .. }
            | Indication::Record { .. }
            | Indication::Holes { .. }
            | Indication::PlainTcp { .. } => {}
        }
    }

    fn read(&mut self, now: Time, connection: ConnectionId) {
        if let Doing::Taking { content } = &mut self.doing
            && self.connection == Some(connection)
        {
            let _ = self.stack.receive(now, connection, content);
        }
    }

    fn closed(&mut self, connection: ConnectionId, reason: CloseReason) {
        if self.connection != Some(connection) {
            return;
        }
        self.connection = None;
        match (self.role, &self.doing) {
            (Role::Sender, Doing::Connecting { .. }) => {
                self.doing = Doing::Nothing;
                let well = reason == CloseReason::Graceful;
                self.verdicts.push_back(if well { Verdict::Delivered } else { Verdict::Failed });
            }
            (Role::Receiver, Doing::Taking { .. }) => self.doing = Doing::Nothing,
            // The store still works on it.
            (Role::Sender | Role::Receiver, _) => {}
        }
    }
}

impl Engine for User {
    type Indication = Verdict;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Done(_, Ok(completion)) => self.done(now, completion),
            Input::Done(_, Err(_)) => {
                // A failing store is the user's affair: the connection is given up.
                if let Some(id) = self.connection.take() {
                    let _ = self.stack.abort(now, id);
                }
                self.fail();
            }
            other => self.stack.handle_input(now, other),
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.stack.handle_timeout(now);
        self.settle(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let transmit = self.stack.poll_transmit(now, tx);
        self.settle(now);
        transmit
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Verdict> {
        self.verdicts.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.stack.poll_timeout()
    }
}

struct Tcp {
    options: Options,
    cookies: Cookies,
}

impl Subject for Tcp {
    type Engine = User;

    fn engine(&self, role: Role, seed: u64) -> User {
        User::new(role, self.options.clone(), self.cookies, seed)
    }

    fn size(&self) -> usize {
        8_000
    }

    fn start(&self, engine: &mut User, _now: Time) -> bool {
        engine.doing = Doing::Opening;
        engine.open(conformance::source(), OpenMode::Read);
        true
    }

    fn verdict(&self, _role: Role, verdict: &Verdict) -> Option<Verdict> {
        Some(*verdict)
    }

    fn is_busy(&self, engine: &User) -> bool {
        engine.stack.connections().count() > 0 || !matches!(engine.doing, Doing::Nothing)
    }

    fn memory(&self, engine: &User) -> usize {
        engine.stack.memory()
    }

    fn memory_max(&self) -> usize {
        200 << 10
    }

    fn path(&self) -> PathInfo {
        PathInfo::datagram(700)
    }

    fn detects_damage(&self) -> bool {
        // Two flipped bits that cancel each other pass a 16-bit checksum.
        false
    }

    fn opening(&self, n: u64) -> Vec<Bytes> {
        let remote = SocketAddr::from(([10, 1, (n >> 8) as u8, n as u8], 1000));
        let tuple = Tuple { local: remote, remote: addresses()[1] };
        let header = Header { sequence: n as u32, flags: Flags::SYN, ..Header::default() };
        let mut packet = vec![0; 40];
        Flow::new(tuple, 64, 0, 0).write(&mut packet, header, &[], engine::Ecn::NotEct);
        vec![packet.into()]
    }
}

fn options() -> Options {
    Options {
        send_buffer: Buffer::Fixed(4096),
        receive_buffer: Buffer::Fixed(4096),
        // A receiver that waits for a vanished sender would wait for ever.
        keep_alive: Some(KeepAlive {
            idle: Duration::from_secs(600),
            interval: Duration::from_secs(60),
            probes: 5,
        }),
        ..Options::default()
    }
}

fn suite() -> Suite {
    Suite { runs: 16, fuzz: 1000, flood: 2000, positions: 24, ..Suite::default() }
}

#[test]
fn keeps_the_contract() {
    conformance::check_all(&Tcp { options: options(), cookies: Cookies::WhenFull }, &suite());
}

#[test]
fn keeps_the_contract_without_options() {
    let options = Options {
        timestamps: false,
        sack: false,
        window_scale: false,
        pacing: true,
        tail_loss_probe: true,
        ..options()
    };
    conformance::check_all(&Tcp { options, cookies: Cookies::Never }, &suite());
}
