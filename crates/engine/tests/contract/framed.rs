//! Messages in frames of a stream: the common core of TCPCL, STCP and FTP's control connection.

use std::collections::VecDeque;

use bytes::Bytes;
use slowlight_engine::{
    Deadline, Effect, Engine, Input, PathEffect, PathEvent, PathId, Receive, StreamEffect, Time,
    Transmit, TxBuf,
};

use crate::world::Note;

/// Maximum message length in bytes, which bounds the memory a peer can make it hold.
const MESSAGE_MAX: usize = 100_000;
/// Maximum bytes offered to a stream at once.
const OFFER: usize = 16_384;

/// Security at the start of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    Plain,
    /// Each sends a first frame, then TLS starts; with the name the client requires.
    Tls(Option<&'static str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Down,
    /// The first frame must be sent and received.
    Greeting {
        sent: bool,
        received: bool,
    },
    Shaking,
    Open,
    Closed,
}

pub(crate) struct Framed {
    path: PathId,
    security: Security,
    state: State,
    blocked: bool,
    outgoing: VecDeque<Vec<u8>>,
    /// Number of sent bytes of the first outgoing frame.
    offset: usize,
    incoming: Vec<u8>,
    shut: bool,
    peer_done: bool,
    effects: VecDeque<Effect>,
    notes: VecDeque<Note>,
}

fn frame(message: &[u8]) -> Vec<u8> {
    let mut frame = (message.len() as u32).to_be_bytes().to_vec();
    frame.extend(message);
    frame
}

impl Framed {
    pub(crate) fn new(path: PathId, security: Security, messages: &[Vec<u8>]) -> Self {
        Self {
            path,
            security,
            state: State::Down,
            blocked: false,
            outgoing: messages.iter().map(|message| frame(message)).collect(),
            offset: 0,
            incoming: Vec::new(),
            shut: false,
            peer_done: false,
            effects: VecDeque::new(),
            notes: VecDeque::new(),
        }
    }

    fn path_event(&mut self, event: PathEvent) {
        match event {
            PathEvent::Up(_) if self.state == State::Down => {
                self.state = match self.security {
                    Security::Plain => State::Open,
                    Security::Tls(_) => State::Greeting { sent: false, received: false },
                };
                self.shut_when_done();
            }
            PathEvent::Up(_) => {}
            PathEvent::Down => {
                if self.state != State::Closed {
                    self.notes.push_back(Note::Down(self.path));
                }
                self.state = State::Closed;
            }
            PathEvent::Blocked => self.blocked = true,
            PathEvent::Writable => self.blocked = false,
            PathEvent::ReadClosed => {
                self.peer_done = true;
                self.notes.push_back(Note::PeerDone);
                self.close_when_done();
            }
            PathEvent::Missing { .. } => panic!("no stream here leaves anything out"),
            PathEvent::Secured(names) => {
                self.state = State::Open;
                self.notes.push_back(Note::Secured(names));
            }
            PathEvent::Unsent | PathEvent::ReturnDown | PathEvent::ReturnUp => {}
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.incoming.extend(bytes);
        while let Some(message) = self.next_message() {
            match &mut self.state {
                State::Greeting { received, .. } => {
                    *received = true;
                    // Bytes behind the greeting belong to TLS.
                    return self.start_tls_when_greeted();
                }
                State::Open => self.notes.push_back(Note::Message(message)),
                State::Down | State::Shaking | State::Closed => {}
            }
        }
    }

    fn next_message(&mut self) -> Option<Vec<u8>> {
        let len = u32::from_be_bytes(self.incoming.get(..4)?.try_into().expect("four")) as usize;
        if len > MESSAGE_MAX {
            self.state = State::Closed;
            self.notes.push_back(Note::Failed);
            self.effects.push_back(PathEffect::Close { path: self.path }.into());
            return None;
        }
        let message = self.incoming.get(4..4 + len)?.to_vec();
        self.incoming.drain(..4 + len);
        Some(message)
    }

    fn start_tls_when_greeted(&mut self) {
        let Security::Tls(name) = self.security else { return };
        if self.state == (State::Greeting { sent: true, received: true }) {
            self.state = State::Shaking;
            self.effects.push_back(
                StreamEffect::StartTls {
                    path: self.path,
                    server_name: name.map(str::to_owned),
                    early: Bytes::from(std::mem::take(&mut self.incoming)),
                }
                .into(),
            );
        }
    }

    fn shut_when_done(&mut self) {
        if self.outgoing.is_empty() && !self.shut && self.state == State::Open {
            self.shut = true;
            self.effects.push_back(StreamEffect::ShutdownWrite { path: self.path }.into());
            self.close_when_done();
        }
    }

    fn close_when_done(&mut self) {
        if self.shut && self.peer_done && self.state == State::Open {
            self.state = State::Closed;
            self.notes.push_back(Note::Done);
        }
    }
}

impl Engine for Framed {
    type Indication = Note;

    fn handle_input(&mut self, _now: Time, input: Input<'_>) {
        match input {
            Input::Receive(Receive { bytes, .. }) => self.receive(bytes),
            Input::Path(_, event) => self.path_event(event),
            Input::Done(..) => {}
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        if self.blocked {
            return None;
        }
        match &mut self.state {
            State::Greeting { sent, .. } if !*sent => {
                *sent = true;
                tx.push(4)?.fill(0);
                self.start_tls_when_greeted();
            }
            State::Open => {
                let front = self.outgoing.front()?;
                let end = front.len().min(self.offset + OFFER);
                tx.push(end - self.offset)?.copy_from_slice(&front[self.offset..end]);
                self.offset = end;
                if end == front.len() {
                    self.offset = 0;
                    self.outgoing.pop_front();
                }
                self.shut_when_done();
            }
            State::Greeting { .. } | State::Down | State::Shaking | State::Closed => return None,
        }
        tx.transmit(self.path, now)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

/// Returns messages of these lengths, each with different bytes.
pub(crate) fn messages(lengths: &[usize]) -> Vec<Vec<u8>> {
    let fill = |(n, len): (usize, &usize)| (0..*len).map(|i| (i * 31 + n * 7) as u8).collect();
    lengths.iter().enumerate().map(fill).collect()
}

/// Returns the messages among an engine's notes.
pub(crate) fn received(notes: &[Note]) -> Vec<Vec<u8>> {
    let message = |note: &Note| match note {
        Note::Message(message) => Some(message.clone()),
        Note::Secured(_) | Note::PeerDone | Note::Down(_) | Note::Done | Note::Failed => None,
    };
    notes.iter().filter_map(message).collect()
}
