//! Files and standard streams on threads, so that disks and pipes do not delay packets.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use bytes::{Buf as _, Bytes};
use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError};
use rt::Waker;

/// Bytes of a chunk.
const PIECE: usize = 256 << 10;
/// Chunks in the queue.
const QUEUE: usize = 8;

/// Bytes to send, read by a thread.
pub(super) struct Source {
    pieces: Receiver<io::Result<Bytes>>,
    current: Bytes,
    over: bool,
}

/// Received bytes, written by a thread.
pub(super) struct Sink {
    /// `None` after the last chunk.
    pieces: Option<Sender<Bytes>>,
    ended: Receiver<io::Result<()>>,
}

/// Whether a name stands for a standard stream.
fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

impl Source {
    /// Reads a file, or the standard input (`-`).
    pub(super) fn open(path: &Path, waker: Waker) -> Result<Self> {
        let mut from: Box<dyn Read + Send> = if is_standard(path) {
            Box::new(io::stdin())
        } else {
            let file = File::open(path).with_context(|| path.display().to_string())?;
            Box::new(file)
        };
        let (sender, pieces) = crossbeam_channel::bounded(QUEUE);
        // Never joined: reading a terminal may block for ever.
        std::thread::Builder::new().name("source".to_owned()).spawn(move || {
            loop {
                let mut piece = vec![0; PIECE];
                let read = match from.read(&mut piece) {
                    Ok(0) => break,
                    Ok(len) => {
                        piece.truncate(len);
                        Ok(Bytes::from(piece))
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let failed = read.is_err();
                if sender.send(read).is_err() || failed {
                    break;
                }
                waker.wake();
            }
            drop(sender);
            waker.wake();
        })?;
        Ok(Self { pieces, current: Bytes::new(), over: false })
    }

    /// Bytes available now; empty while the reader has none, and after the end.
    pub(super) fn peek(&mut self) -> io::Result<&[u8]> {
        if self.current.is_empty() && !self.over {
            match self.pieces.try_recv() {
                Ok(piece) => self.current = piece?,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.over = true,
            }
        }
        Ok(&self.current)
    }

    /// Removes bytes that were sent.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.current.advance(bytes);
    }

    /// Whether the end was reached.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}

impl Sink {
    /// Writes a file, or the standard output (`-`). What the file holds stays until
    /// [`Sink::begin`].
    pub(super) fn open(path: &Path, waker: Waker) -> Result<Self> {
        let file = (!is_standard(path)).then(|| kept(path)).transpose()?;
        let mut to = Output { file, started: false };
        let (sender, pieces) = crossbeam_channel::bounded::<Bytes>(QUEUE);
        let (end, ended) = crossbeam_channel::bounded(1);
        std::thread::Builder::new().name("sink".to_owned()).spawn(move || {
            let written = pieces.iter().try_for_each(|piece| {
                let written = to.write(&piece);
                waker.wake();
                written
            });
            // The receiver of this message lives until it arrives.
            let _ = end.send(written);
            drop(pieces);
            waker.wake();
        })?;
        Ok(Self { pieces: Some(sender), ended })
    }

    /// Truncates the file, once there is a connection.
    pub(super) fn begin(&self) {
        if let Some(pieces) = &self.pieces {
            // The queue is empty before the first chunk, and a writer that ended reports its error.
            let _ = pieces.try_send(Bytes::new());
        }
    }

    /// Accepts up to [`PIECE`] bytes, if the queue has room; returns how many.
    pub(super) fn take(&mut self, first: &[u8], second: &[u8]) -> usize {
        let Some(pieces) = self.pieces.as_ref().filter(|pieces| !pieces.is_full()) else {
            return 0;
        };
        let first = &first[..first.len().min(PIECE)];
        let second = &second[..second.len().min(PIECE - first.len())];
        match pieces.try_send([first, second].concat().into()) {
            Ok(()) => first.len() + second.len(),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => 0,
        }
    }

    /// Ends the input.
    pub(super) fn end(&mut self) {
        self.pieces = None;
    }

    /// Result of writing, once it has ended.
    pub(super) fn ended(&self) -> Option<io::Result<()>> {
        self.ended.try_recv().ok()
    }
}

/// Opens a file for writing without truncating it.
pub(super) fn kept(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false);
    options.open(path).with_context(|| path.display().to_string())
}

/// Truncates a file; leaves devices and pipes alone.
pub(super) fn emptied(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) }
}

/// Destination of chunks.
struct Output {
    /// `None`: standard output.
    file: Option<File>,
    started: bool,
}

impl Output {
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        let first = !std::mem::replace(&mut self.started, true);
        match &mut self.file {
            None => {
                let mut to = io::stdout();
                to.write_all(piece)?;
                to.flush()
            }
            Some(file) => {
                if first {
                    emptied(file)?;
                }
                file.write_all(piece)
            }
        }
    }
}

/// Path that stands for a standard stream.
pub(super) fn standard() -> PathBuf {
    PathBuf::from("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(mut sink: Sink) {
        sink.end();
        sink.ended.recv().unwrap().unwrap();
    }

    #[test]
    fn a_file_stays_as_it_is_until_there_is_a_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let sink = || Sink::open(&path, Waker::new().unwrap()).unwrap();
        std::fs::write(&path, "what was there").unwrap();
        ended(sink());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "what was there");
        let mut second = sink();
        second.begin();
        assert_eq!(second.take(b"ne", b"w"), 3);
        ended(second);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        let empty = sink();
        empty.begin();
        ended(empty);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    }
}
