//! SSH without cryptography: the messages of OpenSSH in their order and length on the wire
//! (RFC 4252, 4253, 4254). Encrypted parts are plain here; keys, signatures and message
//! authentication codes are zeros.

mod intake;
mod window;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, BytesMut};
use engine::Time;

use self::intake::Intake;
use self::window::Window;
use super::config::{Config, Costs, Version};
use super::writes::Writes;

/// Message numbers (RFC 4250 §4.1.2, RFC 4419, RFC 5656).
mod number {
    /// Number for the version line, which is not a message.
    pub(super) const VERSION: u8 = 0;
    pub(super) const DISCONNECT: u8 = 1;
    pub(super) const DEBUG: u8 = 4;
    pub(super) const SERVICE_REQUEST: u8 = 5;
    pub(super) const SERVICE_ACCEPT: u8 = 6;
    pub(super) const EXT_INFO: u8 = 7;
    pub(super) const KEXINIT: u8 = 20;
    pub(super) const NEWKEYS: u8 = 21;
    pub(super) const ECDH_INIT: u8 = 30;
    pub(super) const ECDH_REPLY: u8 = 31;
    pub(super) const GEX_GROUP: u8 = 31;
    pub(super) const GEX_INIT: u8 = 32;
    pub(super) const GEX_REPLY: u8 = 33;
    pub(super) const GEX_REQUEST: u8 = 34;
    pub(super) const AUTH_REQUEST: u8 = 50;
    pub(super) const AUTH_FAILURE: u8 = 51;
    pub(super) const AUTH_SUCCESS: u8 = 52;
    pub(super) const AUTH_PK_OK: u8 = 60;
    pub(super) const GLOBAL_REQUEST: u8 = 80;
    pub(super) const CHANNEL_OPEN: u8 = 90;
    pub(super) const OPEN_CONFIRMATION: u8 = 91;
    pub(super) const WINDOW_ADJUST: u8 = 93;
    pub(super) const DATA: u8 = 94;
    pub(super) const EOF: u8 = 96;
    pub(super) const CLOSE: u8 = 97;
    pub(super) const CHANNEL_REQUEST: u8 = 98;
    pub(super) const CHANNEL_SUCCESS: u8 = 99;
}
use number as n;

/// Bytes of a message authentication code: chacha20-poly1305 or HMAC-MD5.
const MAC: usize = 16;
/// Bytes of data in one message (`CHAN_SES_PACKET_DEFAULT`).
const PACKET: usize = 32 << 10;
/// Maximum number of messages received before they are expected.
const EARLY_MAX: usize = 64;

/// Message of the handshake: its number, and bytes on the wire.
type Message = (u8, usize);

/// Next step of a side.
#[derive(Clone, Debug)]
enum Step {
    /// One write, after the program's processing time.
    Say(Vec<Message>, Duration),
    /// Waits for this message.
    Await(u8),
    /// Disables Nagle's algorithm of the stream.
    NoDelay,
    /// The login is done.
    LoggedIn,
    /// The channel is open.
    Up,
}

/// Purpose of the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Subsystem of the server.
    Subsystem(String),
    /// A program.
    Exec(String),
}

/// One side of a connection with one channel.
#[derive(Debug)]
pub(super) struct Ssh {
    is_client: bool,
    version: Version,
    script: VecDeque<Step>,
    early: VecDeque<u8>,
    intake: Intake,
    keys_out: bool,
    pub(super) out: Writes,
    /// Bytes waiting for the peer's window.
    pending: BytesMut,
    window_out: u64,
    /// Bytes received over the channel.
    pub(super) data: BytesMut,
    window_in: Window,
    pub(super) command: Option<Command>,
    start: Duration,
    pub(super) logged_in: bool,
    /// Whether the stream must disable Nagle's algorithm.
    pub(super) wants_no_delay: bool,
    up: bool,
    pub(super) eof_in: bool,
    pub(super) closed_in: bool,
    eof: Ending,
    exit: Ending,
}

/// Progress of an orderly end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    No,
    Wanted,
    Sent,
}

impl Ssh {
    pub(super) fn client(config: &Config, command: Command) -> Self {
        Self { command: Some(command), ..Self::new(config, true) }
    }

    pub(super) fn server(config: &Config) -> Self {
        Self::new(config, false)
    }

    fn new(config: &Config, is_client: bool) -> Self {
        let script = match (config.version, is_client) {
            (Version::OpenSsh92 | Version::OpenSsh92Legacy, true) => client_92(&config.costs),
            (Version::OpenSsh92 | Version::OpenSsh92Legacy, false) => server_92(&config.costs),
            (Version::OpenSsh42, true) => client_42(&config.costs),
            (Version::OpenSsh42, false) => server_42(&config.costs),
        };
        Self {
            is_client,
            version: config.version,
            script: script.into(),
            early: VecDeque::new(),
            intake: Intake::default(),
            keys_out: false,
            out: Writes::default(),
            pending: BytesMut::new(),
            window_out: 0,
            data: BytesMut::new(),
            window_in: Window::new(config.window.into(), is_client),
            command: None,
            start: config.costs.start,
            logged_in: false,
            wants_no_delay: false,
            up: false,
            eof_in: false,
            closed_in: false,
            eof: Ending::No,
            exit: Ending::No,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.up
    }

    /// Bytes queued for sending.
    pub(super) fn waiting(&self) -> usize {
        self.pending.len() + self.out.held()
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Ends the data; the remote program sees the end of its input.
    pub(super) fn end(&mut self) {
        if self.eof == Ending::No {
            self.eof = Ending::Wanted;
        }
    }

    /// Notes that a server's program has exited.
    pub(super) fn exit(&mut self) {
        if self.exit == Ending::No {
            self.exit = Ending::Wanted;
        }
    }

    /// Whether everything was sent.
    pub(super) fn is_over(&self) -> bool {
        self.out.is_empty() && self.closed_in
    }

    /// Notes that `len` received bytes were read.
    pub(super) fn consume(&mut self, now: Time, len: usize) {
        self.data.advance(len);
        let often = self.version != Version::OpenSsh42;
        if let Some(amount) = self.window_in.consume(len as u64, often) {
            let mut body = vec![0; 4];
            body.put_u32(amount);
            self.send_messages(now, &[(n::WINDOW_ADJUST, body)]);
        }
    }

    pub(super) fn receive(&mut self, now: Time, bytes: &[u8]) -> Result<(), &'static str> {
        self.intake.push(bytes);
        while let Some((number, body)) = self.intake.next()? {
            self.received(now, number, &body)?;
        }
        Ok(())
    }

    fn received(&mut self, now: Time, number: u8, body: &[u8]) -> Result<(), &'static str> {
        match number {
            n::DATA => return self.received_data(body),
            n::WINDOW_ADJUST => {
                self.window_out += u64::from(number_at(body, 4)?);
                return Ok(());
            }
            n::EOF => self.eof_in = true,
            n::CLOSE | n::DISCONNECT => self.received_close(now),
            // A client offers its window with the channel; a server reports its program's exit.
            n::CHANNEL_OPEN => self.window_out = number_at(body, 0)?.into(),
            n::CHANNEL_REQUEST if !self.is_client && self.command.is_none() => {
                self.command = Some(command(body)?);
            }
            _ => {}
        }
        if self.script.iter().any(|step| matches!(step, Step::Await(of) if *of == number)) {
            if self.early.len() >= EARLY_MAX {
                return Err("messages that nobody waits for");
            }
            self.early.push_back(number);
        }
        self.go_on(now);
        Ok(())
    }

    fn received_data(&mut self, body: &[u8]) -> Result<(), &'static str> {
        let len = number_at(body, 4)? as usize;
        let data = body.get(8..8 + len).ok_or("the length of data")?;
        self.window_in.take(len as u64)?;
        self.data.extend_from_slice(data);
        Ok(())
    }

    fn received_close(&mut self, now: Time) {
        self.eof_in = true;
        if !std::mem::replace(&mut self.closed_in, true) && self.is_client && self.up {
            self.send_messages(now, &[(n::CLOSE, vec![0; 4])]);
            // Reason 11, "disconnected by user".
            let reason = vec![0; 4 + 4 + 20 + 4];
            self.send_messages(now, &[(n::DISCONNECT, reason)]);
        }
    }

    /// Continues the handshake.
    pub(super) fn go_on(&mut self, now: Time) {
        while let Some(step) = self.script.pop_front() {
            match step {
                Step::Say(messages, cost) => {
                    let mut bytes = Vec::new();
                    for (number, len) in messages {
                        bytes.extend_from_slice(&self.message(number, len));
                        // Later messages use the new keys.
                        self.keys_out |= number == n::NEWKEYS;
                    }
                    self.out.push(now, cost, bytes.into());
                }
                Step::Await(number) => {
                    let Some(at) = self.early.iter().position(|early| *early == number) else {
                        self.script.push_front(Step::Await(number));
                        return;
                    };
                    self.early.drain(..=at);
                }
                Step::NoDelay => self.wants_no_delay = true,
                Step::LoggedIn => self.logged_in = true,
                Step::Up => {
                    self.up = true;
                    if !self.is_client {
                        self.window_in.open();
                        if matches!(self.command, Some(Command::Exec(_))) {
                            self.out.delay(now, self.start);
                        }
                    }
                }
            }
        }
    }

    /// Handshake message with the length of the real one.
    fn message(&self, number: u8, len: usize) -> Vec<u8> {
        if number == n::VERSION {
            // Blanks before the end of the line belong to the comment.
            return format!("SSH-2.0-{:<1$}\r\n", "model", len - 10).into_bytes();
        }
        let mut body = Vec::new();
        match (number, &self.command) {
            (n::CHANNEL_OPEN, _) => {
                body.put_u32(self.window_in.max());
            }
            (n::WINDOW_ADJUST, _) => {
                body.put_u32(0);
                body.put_u32(self.window_in.max());
            }
            (n::CHANNEL_REQUEST, Some(command)) => {
                let (kind, what) = match command {
                    Command::Subsystem(name) => ("subsystem", name),
                    Command::Exec(command) => ("exec", command),
                };
                body.put_u32(0);
                put_string(&mut body, kind);
                body.put_u8(1);
                put_string(&mut body, what);
            }
            _ => {}
        }
        let has_keys = self.keys_out;
        frame(self.version, has_keys, number, &body, len)
    }

    /// Sends messages in one write.
    fn send_messages(&mut self, now: Time, messages: &[(u8, Vec<u8>)]) {
        let parts: Vec<_> = messages
            .iter()
            .map(|(number, body)| frame(self.version, self.keys_out, *number, body, 0))
            .collect();
        self.out.push(now, Duration::ZERO, parts.concat().into());
    }

    /// Sends as much as the peer's window allows, and the messages after it.
    pub(super) fn flush(&mut self, now: Time, ahead: usize) {
        if !self.up || self.closed_in {
            return;
        }
        while !self.pending.is_empty() && self.window_out > 0 && self.out.held() < ahead {
            let window = usize::try_from(self.window_out).unwrap_or(usize::MAX);
            let len = self.pending.len().min(PACKET).min(window);
            self.window_out -= len as u64;
            let mut body = Vec::with_capacity(len + 8);
            body.put_u32(0);
            body.put_u32(len as u32);
            body.extend_from_slice(&self.pending.split_to(len));
            self.send_messages(now, &[(n::DATA, body)]);
        }
        if !self.pending.is_empty() {
            return;
        }
        if self.exit == Ending::Wanted {
            self.exit = Ending::Sent;
            let mut status = vec![0; 4];
            put_string(&mut status, "exit-status");
            status.extend_from_slice(&[0; 5]);
            let close = (n::CLOSE, vec![0; 4]);
            self.send_messages(now, &[(n::EOF, vec![0; 4]), (n::CHANNEL_REQUEST, status), close]);
        } else if self.eof == Ending::Wanted {
            self.eof = Ending::Sent;
            self.send_messages(now, &[(n::EOF, vec![0; 4])]);
        }
    }
}

/// Message with its length, padding and room for its code; at least `least` bytes.
fn frame(version: Version, keys: bool, number: u8, body: &[u8], least: usize) -> Vec<u8> {
    let mac = if keys { MAC } else { 0 };
    let content = 1 + 1 + body.len() + 4;
    let natural = match version {
        // An independently encrypted length is not counted.
        Version::OpenSsh92 | Version::OpenSsh92Legacy if keys => 4 + content.next_multiple_of(8),
        Version::OpenSsh92 | Version::OpenSsh92Legacy => (4 + content).next_multiple_of(8),
        Version::OpenSsh42 if keys => (4 + content).next_multiple_of(16),
        Version::OpenSsh42 => (4 + content).next_multiple_of(8),
    } + mac;
    let len = natural.max(least);
    let mut frame = Vec::with_capacity(len);
    frame.put_u32((len - 4 - mac) as u32);
    let padding = (len - mac - 4 - 2 - body.len()).min(usize::from(u8::MAX));
    frame.put_u8(padding as u8);
    frame.put_u8(number);
    frame.extend_from_slice(body);
    frame.resize(len, 0);
    frame
}

fn put_string(to: &mut Vec<u8>, text: &str) {
    to.put_u32(text.len() as u32);
    to.extend_from_slice(text.as_bytes());
}

fn number_at(body: &[u8], offset: usize) -> Result<u32, &'static str> {
    let bytes = body.get(offset..).and_then(|rest| rest.first_chunk());
    bytes.map(|bytes| u32::from_be_bytes(*bytes)).ok_or("a message that is too short")
}

/// Command requested from a server (RFC 4254 §6.5).
fn command(body: &[u8]) -> Result<Command, &'static str> {
    let text = |offset: usize| -> Result<String, &'static str> {
        let len = number_at(body, offset)? as usize;
        let text = body.get(offset + 4..).and_then(|rest| rest.get(..len));
        let text = text.ok_or("a message that is too short")?;
        Ok(String::from_utf8_lossy(text).into_owned())
    };
    let kind = text(4)?;
    let what = text(4 + 4 + kind.len() + 1)?;
    match kind.as_str() {
        "subsystem" => Ok(Command::Subsystem(what)),
        "exec" => Ok(Command::Exec(what)),
        _ => Err("a request for something else"),
    }
}

fn send_step(number: u8, len: usize, cost: Duration) -> Step {
    Step::Say(vec![(number, len)], cost)
}

/// End of the login and opening of a channel, the same in all releases.
fn client_channel(write: Duration, open: Vec<Message>) -> [Step; 7] {
    [
        Step::Await(n::AUTH_SUCCESS),
        Step::LoggedIn,
        Step::Say(open, write),
        Step::Await(n::OPEN_CONFIRMATION),
        Step::NoDelay,
        send_step(n::CHANNEL_REQUEST, 0, write),
        Step::Up,
    ]
}

/// OpenSSH 9.2p1 with sntrup761x25519, Ed25519 keys and chacha20-poly1305; lengths as captured.
fn client_92(costs: &Costs) -> Vec<Step> {
    let write = costs.write;
    let mut script = vec![
        send_step(n::VERSION, 41, costs.client),
        Step::Await(n::VERSION),
        send_step(n::KEXINIT, 1560, write),
        Step::Await(n::KEXINIT),
        send_step(n::ECDH_INIT, 1208, costs.keys),
        Step::Await(n::ECDH_REPLY),
        Step::Await(n::NEWKEYS),
        send_step(n::NEWKEYS, 16, costs.verify),
        send_step(n::SERVICE_REQUEST, 44, write),
        Step::Await(n::SERVICE_ACCEPT),
        // "none", whose failure lists the methods; then a key, and then its signature.
        send_step(n::AUTH_REQUEST, 60, write),
        Step::Await(n::AUTH_FAILURE),
        send_step(n::AUTH_REQUEST, 140, write),
        Step::Await(n::AUTH_PK_OK),
        send_step(n::AUTH_REQUEST, 308, write),
    ];
    // With no-more-sessions@openssh.com.
    script.extend(client_channel(write, vec![(n::CHANNEL_OPEN, 52), (n::GLOBAL_REQUEST, 60)]));
    script
}

fn server_92(costs: &Costs) -> Vec<Step> {
    let write = costs.write;
    vec![
        send_step(n::VERSION, 41, costs.accept),
        Step::Await(n::VERSION),
        send_step(n::KEXINIT, 1088, write),
        Step::Await(n::KEXINIT),
        Step::Await(n::ECDH_INIT),
        Step::Say(vec![(n::ECDH_REPLY, 1304), (n::NEWKEYS, 16), (n::EXT_INFO, 244)], costs.sign),
        Step::Await(n::NEWKEYS),
        Step::Await(n::SERVICE_REQUEST),
        send_step(n::SERVICE_ACCEPT, 44, write),
        Step::Await(n::AUTH_REQUEST),
        send_step(n::AUTH_FAILURE, 76, costs.refuse),
        Step::Await(n::AUTH_REQUEST),
        send_step(n::AUTH_PK_OK, 100, write),
        Step::Await(n::AUTH_REQUEST),
        send_step(n::AUTH_SUCCESS, 28, costs.login),
        Step::LoggedIn,
        // hostkeys-00@openssh.com.
        send_step(n::GLOBAL_REQUEST, 256, write),
        Step::Await(n::CHANNEL_OPEN),
        Step::Say(vec![(n::DEBUG, 140), (n::OPEN_CONFIRMATION, 44)], write),
        Step::Await(n::CHANNEL_REQUEST),
        Step::NoDelay,
        Step::Say(vec![(n::WINDOW_ADJUST, 36), (n::CHANNEL_SUCCESS, 36)], write),
        Step::Up,
    ]
}

/// OpenSSH 4.2p1 with diffie-hellman-group-exchange-sha1, RSA keys of 1,024 bits, aes128-cbc and
/// HMAC-MD5; lengths by the formats. The client receives the server's version before it sends its
/// own.
fn client_42(costs: &Costs) -> Vec<Step> {
    let write = costs.write;
    let mut script = vec![
        Step::Await(n::VERSION),
        send_step(n::VERSION, 22, costs.client),
        send_step(n::KEXINIT, 712, write),
        Step::Await(n::KEXINIT),
        send_step(n::GEX_REQUEST, 24, write),
        Step::Await(n::GEX_GROUP),
        send_step(n::GEX_INIT, 144, costs.keys),
        Step::Await(n::GEX_REPLY),
        Step::Await(n::NEWKEYS),
        send_step(n::NEWKEYS, 16, costs.verify),
        send_step(n::SERVICE_REQUEST, 48, write),
        Step::Await(n::SERVICE_ACCEPT),
        send_step(n::AUTH_REQUEST, 64, write),
        Step::Await(n::AUTH_FAILURE),
        send_step(n::AUTH_REQUEST, 240, write),
        Step::Await(n::AUTH_PK_OK),
        send_step(n::AUTH_REQUEST, 384, write),
    ];
    script.extend(client_channel(write, vec![(n::CHANNEL_OPEN, 64)]));
    script
}

fn server_42(costs: &Costs) -> Vec<Step> {
    let write = costs.write;
    vec![
        send_step(n::VERSION, 22, costs.accept),
        Step::Await(n::VERSION),
        send_step(n::KEXINIT, 640, write),
        Step::Await(n::KEXINIT),
        Step::Await(n::GEX_REQUEST),
        send_step(n::GEX_GROUP, 152, write),
        Step::Await(n::GEX_INIT),
        Step::Say(vec![(n::GEX_REPLY, 464), (n::NEWKEYS, 16)], costs.sign),
        Step::Await(n::NEWKEYS),
        Step::Await(n::SERVICE_REQUEST),
        send_step(n::SERVICE_ACCEPT, 48, write),
        Step::Await(n::AUTH_REQUEST),
        send_step(n::AUTH_FAILURE, 80, costs.refuse),
        Step::Await(n::AUTH_REQUEST),
        send_step(n::AUTH_PK_OK, 208, write),
        Step::Await(n::AUTH_REQUEST),
        send_step(n::AUTH_SUCCESS, 32, costs.login),
        Step::LoggedIn,
        Step::Await(n::CHANNEL_OPEN),
        send_step(n::OPEN_CONFIRMATION, 48, write),
        Step::Await(n::CHANNEL_REQUEST),
        Step::NoDelay,
        Step::Say(vec![(n::WINDOW_ADJUST, 48), (n::CHANNEL_SUCCESS, 32)], write),
        Step::Up,
    ]
}
