//! Terminal session in which each keystroke is echoed (RFC 854 in binary mode, RFC 856: 255 is
//! doubled).
//!
//! The keystrokes are the bytes of a file. A line with its name precedes them, so that the remote
//! side can store the typed text.

use std::collections::VecDeque;
use std::time::Duration;

use engine::Time;

use super::app::{Io, named};
use super::core::Wait;
use super::indication::{Failure, Latency};

/// Interpret As Command, and the command that ends a file (RFC 1184 §2.1).
const IAC: u8 = 255;
const EOF: u8 = 236;

/// Typing side.
#[derive(Debug)]
pub(super) struct Typist {
    name: String,
    /// Bytes of the first line not echoed yet.
    line: Option<usize>,
    /// Times of keystrokes not echoed yet.
    typed: VecDeque<Time>,
    times: Vec<Duration>,
    next_key: Option<Time>,
    escaped: bool,
    ended: bool,
    /// Whether the remote side confirmed everything.
    confirmed: bool,
}

impl Typist {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            line: None,
            typed: VecDeque::new(),
            times: Vec::new(),
            next_key: None,
            escaped: false,
            ended: false,
            confirmed: false,
        }
    }

    pub(super) fn pump(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        if self.line.is_none() {
            if io.files.len > io.core.limits.keys {
                return Err(Failure::TooMany);
            }
            // UTF-8 has no byte 255.
            let line = format!("cat > {}\n", self.name).into_bytes();
            self.line = Some(line.len());
            io.write(line);
        }
        let mut worked = self.take_echo(io)?;
        if self.line == Some(0) && !self.ended {
            io.progress.started = true;
            worked |= self.type_keys(io);
            let (ready, all) = io.files.ready();
            if ready == 0 && all && self.typed.is_empty() {
                self.ended = true;
                io.write(vec![IAC, EOF]);
                io.conn.end();
                worked = true;
            }
        }
        if self.ended && io.progress.done.is_none() && io.conn.has_exited() {
            if !self.confirmed {
                return Err(Failure::Connection);
            }
            io.progress.done = Some(self.times.len() as u64);
            io.progress.latency = Latency::from_times(std::mem::take(&mut self.times));
            io.conn.exit();
            worked = true;
        }
        Ok(worked)
    }

    /// Processes echoed bytes.
    fn take_echo(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        let len = io.conn.data().len();
        let Some(received) = io.read(len).filter(|received| !received.is_empty()) else {
            return Ok(false);
        };
        for byte in received {
            if let Some(left) = self.line.as_mut().filter(|left| **left > 0) {
                *left -= 1;
                continue;
            }
            match (std::mem::take(&mut self.escaped), byte) {
                (false, IAC) => {
                    self.escaped = true;
                    continue;
                }
                (true, EOF) => {
                    self.confirmed = true;
                    continue;
                }
                (true | false, _) => {}
            }
            let unasked = Failure::Nonsense("a key that nobody typed");
            let typed = self.typed.pop_front().ok_or(unasked)?;
            self.times.push(io.now.since(typed));
        }
        Ok(true)
    }

    /// Types due keystrokes, and schedules the next one.
    fn type_keys(&mut self, io: &mut Io<'_>) -> bool {
        let mut worked = false;
        let mean = io.config.key_interval.as_secs_f64();
        loop {
            let due = *self.next_key.get_or_insert_with(|| {
                io.now + Duration::from_secs_f64(io.rng.exponential(mean).min(mean * 50.0))
            });
            if io.files.ready().0 == 0 {
                return worked;
            }
            if due > io.now {
                io.core.timers.set((io.path, Wait::Key), due, "the next key");
                return worked;
            }
            let key = io.files.take(1, io.core);
            io.write(doubled(&key));
            self.typed.push_back(io.now);
            self.next_key = None;
            worked = true;
        }
    }
}

/// Echoing side.
#[derive(Debug, Default)]
pub(super) struct Screen {
    name: Option<String>,
    escaped: bool,
    /// Whether the end was announced.
    complete: bool,
    ended: bool,
}

impl Screen {
    pub(super) fn pump(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        if self.name.is_none() {
            let Some(line) = io.read_line()? else { return Ok(false) };
            io.write(format!("{line}\n").into_bytes());
            let unknown = Failure::Nonsense("an unknown command");
            let name = line.strip_prefix("cat > ").ok_or(unknown)?;
            io.files.open_to_write(&named(name)?, false, io.core);
            io.progress.receiving = Some(name.to_owned());
            self.name = Some(name.to_owned());
        }
        if !io.files.is_open() {
            return Ok(false);
        }
        let has_room = io.files.writing() <= io.core.limits.write_buffer && io.has_room();
        let len = if has_room { io.conn.data().len() } else { 0 };
        if let Some(typed) = io.read(len).filter(|typed| !typed.is_empty()) {
            let mut keys = Vec::with_capacity(typed.len());
            for byte in typed {
                match (std::mem::take(&mut self.escaped), byte) {
                    (false, IAC) => self.escaped = true,
                    (true, EOF) => self.complete = true,
                    (true | false, byte) => keys.push(byte),
                }
            }
            io.files.write(&keys, io.core);
            if !keys.is_empty() {
                io.write(doubled(&keys));
            }
            return Ok(true);
        }
        if io.conn.has_ended() && !self.complete {
            return Err(Failure::Connection);
        }
        if self.complete && !self.ended {
            self.ended = true;
            io.files.end(io.core);
            return Ok(true);
        }
        if io.files.is_synced() && io.progress.received.is_none() {
            let name = self.name.clone().unwrap_or_default();
            io.progress.received = Some((name, io.files.received()));
            // Stands for the shell prompt.
            io.write(vec![IAC, EOF]);
            io.conn.exit();
            return Ok(true);
        }
        Ok(false)
    }
}

fn doubled(keys: &[u8]) -> Vec<u8> {
    let times = |key: &u8| if *key == IAC { 2 } else { 1 };
    keys.iter().flat_map(|key| std::iter::repeat_n(*key, times(key))).collect()
}
