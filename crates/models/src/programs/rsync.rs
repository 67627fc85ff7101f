//! rsync 3.5 (protocol 32) sending one complete new file: its turns, each with its length on the
//! wire. Only the file list and the file itself have content.

use std::collections::VecDeque;

use bytes::BufMut as _;

use super::app::{Io, named};
use super::indication::Failure;

/// Next step of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// One write of this many bytes.
    Write(usize),
    /// Read of this many bytes.
    Read(usize),
    /// File list with its single file.
    WriteList,
    ReadList,
    /// Complete file.
    WriteFile,
    ReadFile,
    /// Rename of the received file.
    Install,
}

/// Bytes of framing: before a list's name, before the file, before each piece, after it.
const LIST: usize = 4 + 8 + 2;
const LIST_END: usize = 11;
const HEAD: usize = 23;
const PIECE_HEAD: usize = 8;
const TAIL: usize = 16;
/// Bytes of the file in one piece.
const PIECE: usize = 32 << 10;

/// Greeting of a daemon and its client, the module and its reply, and the options, in two writes.
const DAEMON_CLIENT: [Act; 6] =
    [Act::Write(41), Act::Read(41), Act::Write(3), Act::Read(12), Act::Write(8), Act::Write(25)];
const DAEMON: [Act; 4] = [Act::Write(41), Act::Read(44), Act::Write(12), Act::Read(33)];
/// Capabilities and checksums of both sides; with a daemon each in its own writes.
const DAEMON_CLIENT_OFFER: [Act; 4] = [Act::Read(2), Act::Write(1), Act::Write(30), Act::Read(40)];
const DAEMON_OFFER: [Act; 4] = [Act::Write(2), Act::Write(36), Act::Read(31), Act::Write(4)];
/// Capabilities and checksums through a shell, preceded by versions.
const CLIENT_OFFER: [Act; 4] = [Act::Write(4), Act::Read(42), Act::Write(31), Act::Read(4)];
const SERVER_OFFER: [Act; 4] = [Act::Read(4), Act::Write(42), Act::Read(31), Act::Write(4)];
/// List, request, file, and the ends of the phases.
const SENDER: [Act; 9] = [
    Act::WriteList,
    Act::Read(23),
    Act::WriteFile,
    Act::Read(5),
    Act::Write(5),
    Act::Read(7),
    Act::Write(6),
    Act::Write(5),
    Act::Read(5),
];
const RECEIVER: [Act; 9] = [
    Act::ReadList,
    Act::Write(23),
    Act::Write(5),
    Act::ReadFile,
    Act::Read(5),
    Act::Install,
    Act::Write(7),
    Act::Read(11),
    Act::Write(5),
];

/// Either side.
#[derive(Debug)]
pub(super) struct Rsync {
    is_sender: bool,
    acts: VecDeque<Act>,
    name: String,
    /// Bytes of the file transferred, and in total.
    crossed: u64,
    len: u64,
    /// Whether the file's header was processed.
    head_done: bool,
    /// Bytes left in the current piece.
    piece: u64,
    installing: bool,
}

impl Rsync {
    pub(super) fn sender(name: &str, to_daemon: bool) -> Self {
        let acts = if to_daemon {
            [DAEMON_CLIENT.as_slice(), &DAEMON_CLIENT_OFFER, &SENDER].concat()
        } else {
            [CLIENT_OFFER.as_slice(), &SENDER].concat()
        };
        Self::new(true, acts, name)
    }

    pub(super) fn receiver(is_daemon: bool) -> Self {
        let acts = if is_daemon {
            [DAEMON.as_slice(), &DAEMON_OFFER, &RECEIVER].concat()
        } else {
            [SERVER_OFFER.as_slice(), &RECEIVER].concat()
        };
        Self::new(false, acts, "")
    }

    fn new(is_sender: bool, acts: Vec<Act>, name: &str) -> Self {
        Self {
            is_sender,
            acts: acts.into(),
            name: name.to_owned(),
            crossed: 0,
            len: 0,
            head_done: false,
            piece: 0,
            installing: false,
        }
    }

    pub(super) fn pump(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        let mut worked = false;
        while let Some(act) = self.acts.front().copied() {
            let is_done = match act {
                Act::Write(len) => {
                    io.write(vec![0; len]);
                    true
                }
                Act::Read(len) => io.read(len).is_some(),
                Act::WriteList => self.write_list(io),
                Act::ReadList => self.read_list(io)?,
                Act::WriteFile => {
                    io.progress.started = true;
                    self.write_file(io)
                }
                Act::ReadFile => self.read_file(io)?,
                Act::Install => self.install(io)?,
            };
            if !is_done {
                return Ok(worked);
            }
            worked = true;
            self.acts.pop_front();
        }
        if self.is_sender && io.progress.done.is_none() {
            io.progress.done = Some(self.crossed);
            worked = true;
        }
        io.conn.exit();
        Ok(worked)
    }

    fn write_list(&mut self, io: &mut Io<'_>) -> bool {
        self.len = io.files.len;
        let name = self.name.as_bytes();
        let mut list = Vec::with_capacity(LIST + name.len() + LIST_END);
        list.put_u32((name.len() + LIST_END) as u32);
        list.put_u64(self.len);
        list.put_u16(name.len() as u16);
        list.extend_from_slice(name);
        list.resize(LIST + name.len() + LIST_END, 0);
        io.write(list);
        true
    }

    fn read_list(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        if self.len == 0 && self.name.is_empty() {
            let Some(head) = io.conn.data().first_chunk::<LIST>().copied() else {
                return Ok(false);
            };
            let (len, name) = (&head[4..12], usize::from(head[12]) << 8 | usize::from(head[13]));
            let Some(list) = io.read(LIST + name + LIST_END) else { return Ok(false) };
            self.len = len.iter().fold(0, |len, byte| len << 8 | u64::from(*byte));
            self.name = String::from_utf8_lossy(&list[LIST..LIST + name]).into_owned();
            io.files.open_to_write(&named(&self.name)?, true, io.core);
            io.progress.receiving = Some(self.name.clone());
        }
        Ok(io.files.is_open())
    }

    fn write_file(&mut self, io: &mut Io<'_>) -> bool {
        if !std::mem::replace(&mut self.head_done, true) {
            io.write(vec![0; HEAD]);
        }
        loop {
            let (ready, all) = io.files.ready();
            if ready == 0 && all {
                // An empty piece ends the file.
                io.write([[0; PIECE_HEAD].as_slice(), &[0; TAIL]].concat());
                return true;
            }
            if ready == 0 || ready < PIECE && !all || !io.has_room() {
                return false;
            }
            let bytes = io.files.take(PIECE, io.core);
            self.crossed += bytes.len() as u64;
            let mut piece = Vec::with_capacity(PIECE_HEAD + bytes.len());
            piece.put_u64(bytes.len() as u64);
            piece.extend_from_slice(&bytes);
            io.write(piece);
        }
    }

    fn read_file(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        if !self.head_done {
            if io.read(HEAD).is_none() {
                return Ok(false);
            }
            self.head_done = true;
        }
        loop {
            while self.piece > 0 {
                match io.keep(self.piece) {
                    0 => return Ok(false),
                    taken => self.piece -= taken as u64,
                }
            }
            let Some(head) = io.conn.data().first_chunk::<PIECE_HEAD>().copied() else {
                return Ok(false);
            };
            let piece = u64::from_be_bytes(head);
            if piece == 0 {
                return Ok(io.read(PIECE_HEAD + TAIL).is_some());
            }
            if piece > PIECE as u64 {
                return Err(Failure::Nonsense("the length of a piece"));
            }
            _ = io.read(PIECE_HEAD);
            self.piece = piece;
        }
    }

    fn install(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        if io.files.is_installed() {
            io.progress.received = Some((self.name.clone(), self.crossed));
            return Ok(true);
        }
        if !std::mem::replace(&mut self.installing, true) {
            self.crossed = io.files.received();
            if self.crossed != self.len {
                return Err(Failure::Nonsense("a file of another length"));
            }
            io.files.end(io.core);
        }
        if io.files.is_synced() {
            let name = named(&self.name)?;
            io.files.install(&name, io.core);
        }
        Ok(io.files.is_installed())
    }
}

/// Maximum length of a name in a list.
pub(super) const NAME_MAX: usize = 4000;
const _: () = assert!(LIST + NAME_MAX + LIST_END < 64 << 10);
