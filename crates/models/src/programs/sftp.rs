//! The SSH File Transfer Protocol, version 3, as sftp and scp use it to send one file
//! (draft-ietf-secsh-filexfer-02). A server replies to queries about files as if it stored none.

use std::collections::VecDeque;

use bytes::{BufMut as _, BytesMut};

use super::app::{Io, named};
use super::config::{Tool, Version};
use super::indication::Failure;

mod kind {
    pub(super) const INIT: u8 = 1;
    pub(super) const VERSION: u8 = 2;
    pub(super) const OPEN: u8 = 3;
    pub(super) const CLOSE: u8 = 4;
    pub(super) const WRITE: u8 = 6;
    pub(super) const FSETSTAT: u8 = 10;
    pub(super) const REALPATH: u8 = 16;
    pub(super) const STAT: u8 = 17;
    pub(super) const STATUS: u8 = 101;
    pub(super) const HANDLE: u8 = 102;
    pub(super) const NAME: u8 = 104;
    pub(super) const EXTENDED: u8 = 200;
    pub(super) const EXTENDED_REPLY: u8 = 201;
}

const OK: u32 = 0;
const NO_SUCH_FILE: u32 = 2;
const FAILURE: u32 = 4;
/// Extension by which a server announces its maximum message length.
const LIMITS: &str = "limits@openssh.com";
/// Bytes of the extensions listed by OpenSSH 9.2's server; 4.2's lists none.
const EXTENSIONS_92: usize = 313;

/// Steps of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Init,
    Limits,
    Realpath,
    Stat,
    Open,
    Write,
    Truncate,
    Close,
}

/// Client side.
#[derive(Debug)]
pub(super) struct Client {
    acts: VecDeque<Act>,
    name: String,
    writes: (u32, usize),
    id: u32,
    /// Number of requests without a response.
    outstanding: u32,
    offset: u64,
    input: BytesMut,
}

impl Client {
    pub(super) fn new(tool: Tool, version: Version, name: &str) -> Self {
        let acts: &[Act] = match (tool, version) {
            (Tool::Scp, _) => &[
                Act::Init,
                Act::Limits,
                Act::Stat,
                Act::Open,
                Act::Write,
                Act::Truncate,
                Act::Close,
            ],
            (_, Version::OpenSsh42) => {
                &[Act::Init, Act::Realpath, Act::Stat, Act::Open, Act::Write, Act::Close]
            }
            (_, Version::OpenSsh92 | Version::OpenSsh92Legacy) => &[
                Act::Init,
                Act::Limits,
                Act::Realpath,
                Act::Stat,
                Act::Open,
                Act::Write,
                Act::Close,
            ],
        };
        Self {
            acts: acts.iter().copied().collect(),
            name: name.to_owned(),
            writes: version.writes(),
            id: 0,
            outstanding: 0,
            offset: 0,
            input: BytesMut::new(),
        }
    }

    pub(super) fn pump(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        let mut worked = false;
        while let Some((kind, body)) = take_message(&mut self.input, io)? {
            worked = true;
            self.answered(kind, &body)?;
        }
        while let Some(act) = self.acts.front().copied() {
            if act == Act::Write {
                // There is nothing to write to before the file is open.
                if !io.progress.started && self.outstanding > 0 {
                    return Ok(worked);
                }
                io.progress.started = true;
                worked |= self.write_some(io);
                let (ready, all) = io.files.ready();
                if !all || ready > 0 || self.outstanding > 0 {
                    return Ok(worked);
                }
            } else {
                if self.outstanding > 0 {
                    return Ok(worked);
                }
                self.ask(act, io);
            }
            self.acts.pop_front();
            worked = true;
        }
        if self.outstanding == 0 && io.progress.done.is_none() {
            io.conn.end();
            io.progress.done = Some(self.offset);
            worked = true;
        }
        Ok(worked)
    }

    fn answered(&mut self, kind: u8, body: &[u8]) -> Result<(), Failure> {
        let unasked = Failure::Nonsense("an answer that nobody asked for");
        self.outstanding = self.outstanding.checked_sub(1).ok_or(unasked)?;
        let status = body.get(4..).and_then(|rest| rest.first_chunk().copied());
        match (kind, status.map(u32::from_be_bytes)) {
            (kind::STATUS, Some(OK | NO_SUCH_FILE)) => Ok(()),
            (kind::STATUS, Some(code)) => Err(Failure::Server(format!("status {code}"))),
            (kind::VERSION | kind::HANDLE | kind::NAME | kind::EXTENDED_REPLY, _) => Ok(()),
            _ => Err(Failure::Nonsense("an answer of no known kind")),
        }
    }

    fn ask(&mut self, act: Act, io: &mut Io<'_>) {
        let id = self.next_id();
        let name = self.name.as_bytes();
        let message = match act {
            Act::Init => message(kind::INIT, &[Part::Number(3)]),
            Act::Limits => {
                message(kind::EXTENDED, &[Part::Number(id), Part::Text(LIMITS.as_bytes())])
            }
            Act::Realpath => message(kind::REALPATH, &[Part::Number(id), Part::Text(b".")]),
            Act::Stat => message(kind::STAT, &[Part::Number(id), Part::Text(name)]),
            // Write and create, with permissions.
            Act::Open => {
                let parts = [id, 0x1a, 4, 0o644].map(Part::Number);
                message(kind::OPEN, &[parts[0], Part::Text(name), parts[1], parts[2], parts[3]])
            }
            Act::Truncate => {
                let parts = [Part::Number(id), HANDLE_PART, Part::Number(1)];
                let size = Part::Long(self.offset);
                message(kind::FSETSTAT, &[parts[0], parts[1], parts[2], size])
            }
            Act::Close => message(kind::CLOSE, &[Part::Number(id), HANDLE_PART]),
            Act::Write => return,
        };
        self.outstanding += 1;
        io.write(message);
    }

    fn next_id(&mut self) -> u32 {
        self.id = self.id.wrapping_add(1);
        self.id
    }

    fn write_some(&mut self, io: &mut Io<'_>) -> bool {
        let (most, chunk) = self.writes;
        let mut worked = false;
        while self.outstanding < most && io.has_room() {
            let (ready, all) = io.files.ready();
            if ready == 0 || ready < chunk && !all {
                break;
            }
            let bytes = io.files.take(chunk, io.core);
            let id = self.next_id();
            let parts =
                [Part::Number(id), HANDLE_PART, Part::Long(self.offset), Part::Text(&bytes)];
            self.offset += bytes.len() as u64;
            self.outstanding += 1;
            io.write(message(kind::WRITE, &parts));
            worked = true;
        }
        worked
    }
}

/// Server side.
#[derive(Debug, Default)]
pub(super) struct Server {
    name: String,
    /// Request that waits for the store.
    waits: Option<(u8, u32)>,
    modern: bool,
    input: BytesMut,
}

impl Server {
    pub(super) fn new(version: Version) -> Self {
        Self { modern: version != Version::OpenSsh42, ..Self::default() }
    }

    pub(super) fn pump(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        let mut worked = false;
        loop {
            if let Some((kind, id)) = self.waits {
                if !self.store_answered(kind, id, io) {
                    return Ok(worked);
                }
                self.waits = None;
            } else if let Some((kind, body)) = take_message(&mut self.input, io)? {
                self.request(kind, &body, io)?;
            } else {
                break;
            }
            worked = true;
        }
        if io.conn.has_ended() && self.input.is_empty() {
            io.conn.exit();
        }
        Ok(worked)
    }

    fn request(&mut self, kind: u8, body: &[u8], io: &mut Io<'_>) -> Result<(), Failure> {
        let short = || Failure::Nonsense("a request that is too short");
        let number = |at: usize| {
            let bytes = body.get(at..).and_then(|rest| rest.first_chunk().copied());
            bytes.map(u32::from_be_bytes).ok_or_else(short)
        };
        let id = number(0)?;
        match kind {
            kind::INIT => {
                let extensions = vec![0; if self.modern { EXTENSIONS_92 } else { 0 }];
                let parts = [Part::Number(3), Part::Bytes(&extensions)];
                io.write(message(kind::VERSION, &parts));
            }
            kind::EXTENDED => {
                // Maximum message, read and write lengths, and number of handles.
                let limits = [256 << 10, 255 << 10, 255 << 10, 0].map(Part::Long);
                let parts = [&[Part::Number(id)], limits.as_slice()].concat();
                io.write(message(kind::EXTENDED_REPLY, &parts));
            }
            kind::REALPATH => {
                let attributes = [0; 4];
                let parts = [
                    Part::Number(id),
                    Part::Number(1),
                    Part::Text(b"/root"),
                    Part::Text(b"/root"),
                    Part::Bytes(&attributes),
                ];
                io.write(message(kind::NAME, &parts));
            }
            kind::STAT => io.write(status(id, NO_SUCH_FILE)),
            kind::OPEN if io.files.is_unused() => {
                let len = number(4)? as usize;
                let name = body.get(8..).and_then(|rest| rest.get(..len)).ok_or_else(short)?;
                self.name = String::from_utf8_lossy(name).into_owned();
                io.files.open_to_write(&named(&self.name)?, false, io.core);
                io.progress.receiving = Some(self.name.clone());
                self.waits = Some((kind, id));
            }
            kind::WRITE if io.files.is_open() => {
                let offset = 4 + 4 + number(4)? as usize;
                let data = body.get(offset + 8 + 4..).ok_or_else(short)?;
                io.files.write(data, io.core);
                self.waits = Some((kind, id));
            }
            kind::FSETSTAT => io.write(status(id, OK)),
            kind::CLOSE if io.files.is_open() => {
                io.files.end(io.core);
                self.waits = Some((kind, id));
            }
            _ => io.write(status(id, FAILURE)),
        }
        Ok(())
    }

    /// Replies to a request once the store has carried it out. Returns whether it has.
    fn store_answered(&self, kind: u8, id: u32, io: &mut Io<'_>) -> bool {
        let answer = match kind {
            kind::OPEN if io.files.is_open() => {
                message(kind::HANDLE, &[Part::Number(id), HANDLE_PART])
            }
            // Data given to the operating system counts as written.
            kind::WRITE if io.files.writing() <= io.core.limits.write_buffer => status(id, OK),
            kind::CLOSE if io.files.is_synced() => {
                io.progress.received = Some((self.name.clone(), io.files.received()));
                status(id, OK)
            }
            _ => return false,
        };
        io.write(answer);
        true
    }
}

/// Part of a message.
#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    Number(u32),
    Long(u64),
    /// Length-prefixed text.
    Text(&'a [u8]),
    Bytes(&'a [u8]),
}

/// Only handle that a server issues.
const HANDLE_PART: Part<'_> = Part::Text(&[0; 4]);

fn message(kind: u8, parts: &[Part<'_>]) -> Vec<u8> {
    let mut body = vec![kind];
    for part in parts {
        match part {
            Part::Number(number) => body.put_u32(*number),
            Part::Long(number) => body.put_u64(*number),
            Part::Text(text) => {
                body.put_u32(text.len() as u32);
                body.extend_from_slice(text);
            }
            Part::Bytes(bytes) => body.extend_from_slice(bytes),
        }
    }
    let mut message = Vec::with_capacity(4 + body.len());
    message.put_u32(body.len() as u32);
    message.extend_from_slice(&body);
    message
}

/// Status response with the texts that OpenSSH adds: the meaning, and an empty language.
fn status(id: u32, code: u32) -> Vec<u8> {
    let text: &[u8] = match code {
        OK => b"Success",
        NO_SUCH_FILE => b"No such file",
        _ => b"Failure",
    };
    message(
        kind::STATUS,
        &[Part::Number(id), Part::Number(code), Part::Text(text), Part::Text(b"")],
    )
}

/// Next complete message: its kind and content. Input is consumed at once, as by a program reading
/// a pipe.
fn take_message(input: &mut BytesMut, io: &mut Io<'_>) -> Result<Option<(u8, Vec<u8>)>, Failure> {
    if input.len() <= io.core.limits.message {
        let len = io.conn.data().len();
        input.extend_from_slice(io.conn.data());
        io.conn.consume(io.now, len);
    }
    let Some(length) = input.first_chunk() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length == 0 || length > io.core.limits.message {
        return Err(Failure::Nonsense("the length of a message"));
    }
    if input.len() < 4 + length {
        return Ok(None);
    }
    let mut message = input.split_to(4 + length).to_vec();
    let body = message.split_off(5);
    Ok(Some((message[4], body)))
}
