//! State common to all programs: their input and output, and their progress.

use engine::{FileName, PathId, Rng, Time};

use super::config::Config;
use super::conn::Conn;
use super::core::Core;
use super::files::Files;
use super::indication::{Failure, Latency};

/// Environment of a program.
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
    /// Whether the file transfer may start.
    pub(super) started: bool,
    /// Bytes of the file once the client has finished.
    pub(super) done: Option<u64>,
    /// File stored by a server: name and bytes.
    pub(super) received: Option<(String, u64)>,
    /// File that a server is receiving.
    pub(super) receiving: Option<String>,
    pub(super) latency: Option<Latency>,
}

impl Io<'_> {
    pub(super) fn write(&mut self, bytes: Vec<u8>) {
        self.conn.write(self.now, self.config, bytes);
    }

    /// Whether the stream has room for another write.
    pub(super) fn has_room(&self) -> bool {
        self.conn.waiting() < self.core.limits.write_ahead
    }

    /// Takes exactly `len` bytes, once available.
    pub(super) fn read(&mut self, len: usize) -> Option<Vec<u8>> {
        let bytes = self.conn.data().get(..len)?.to_vec();
        self.conn.consume(self.now, len);
        Some(bytes)
    }

    /// Takes a line without its terminator, once complete.
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

    /// Writes up to `len` received bytes into the file, as far as its store keeps up. Returns their
    /// number.
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

/// File name received from a peer.
pub(super) fn named(text: &str) -> Result<FileName, Failure> {
    FileName::file(text.trim_start_matches('/'))
        .map_err(|_| Failure::Nonsense("a name that is none"))
}
