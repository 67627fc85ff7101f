//! What programs have in common: what they read and write, and what they tell.

use engine::{FileName, PathId, Rng, Time};

use super::config::Config;
use super::conn::Conn;
use super::core::Core;
use super::files::Files;
use super::indication::{Failure, Latency};

/// What a program has to do with.
pub(super) struct Io<'a> {
    pub(super) now: Time,
    pub(super) path: PathId,
    pub(super) conn: &'a mut Conn,
    pub(super) files: &'a mut Files,
    pub(super) core: &'a mut Core,
    pub(super) config: &'a Config,
    pub(super) rng: &'a mut Rng,
    pub(super) progress: &'a mut Progress,
}

/// Progress of a program.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The file may cross.
    pub(super) started: bool,
    /// The client's work is done: bytes of the file.
    pub(super) done: Option<u64>,
    /// A server has a file, which is safe.
    pub(super) received: Option<(String, u64)>,
    /// A server was told of a file.
    pub(super) receiving: Option<String>,
    pub(super) latency: Option<Latency>,
}

impl Io<'_> {
    pub(super) fn write(&mut self, bytes: Vec<u8>) {
        self.conn.write(self.now, self.config, bytes);
    }

    /// Whether a program that writes would go on.
    pub(super) fn has_room(&self) -> bool {
        self.conn.waiting() < self.core.limits.write_ahead
    }

    /// Takes so many bytes, once there are as many.
    pub(super) fn read(&mut self, len: usize) -> Option<Vec<u8>> {
        let bytes = self.conn.data().get(..len)?.to_vec();
        self.conn.consume(self.now, len);
        Some(bytes)
    }

    /// Takes a line without its end, once it is whole.
    pub(super) fn read_line(&mut self) -> Result<Option<String>, Failure> {
        let data = self.conn.data();
        let Some(end) = data.iter().position(|byte| *byte == b'\n') else {
            let is_long = data.len() > self.core.limits.message;
            return if is_long {
                Err(Failure::Nonsense("a line that is too long"))
            } else {
                Ok(None)
            };
        };
        let line = String::from_utf8_lossy(&data[..end]).into_owned();
        self.conn.consume(self.now, end + 1);
        Ok(Some(line))
    }

    /// Writes up to `len` bytes that came into the file, if its store keeps up; so many it took.
    pub(super) fn keep(&mut self, len: u64) -> usize {
        if self.files.writing() > self.core.limits.write_buffer {
            return 0;
        }
        let len = self.conn.data().len().min(usize::try_from(len).unwrap_or(usize::MAX));
        if len > 0 {
            self.files.write(&self.conn.data()[..len], self.core);
            self.conn.consume(self.now, len);
        }
        len
    }
}

/// A file's name as a peer says it.
pub(super) fn named(text: &str) -> Result<FileName, Failure> {
    FileName::file(text.trim_start_matches('/'))
        .map_err(|_| Failure::Nonsense("a name that is none"))
}
