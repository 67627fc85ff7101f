//! Bodies of requests whose payloads end with excerpts of files.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bp::app::{CHANGED, Excerpt, OutgoingId};
use bp::codec::file_part::crc_append;
use bytes::Bytes;
use engine::EffectError;
use futures_util::stream::{self, Stream};
use rt::Waker;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// Bytes of a file read at a time.
const PIECE: u64 = 256 << 10;

/// Fate of a bundle that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the node's store.
    Stored(OutgoingId),
    /// The node refuses it for this reason.
    Refused(OutgoingId, String),
    /// The node has no room for it.
    Waiting(OutgoingId, String),
    /// This number of bytes of its excerpt was sent.
    Passed(OutgoingId, u64),
}

/// A part of a body.
pub(super) enum Load {
    Bytes(Bytes),
    Excerpt(Box<Upload>),
}

/// An excerpt to send.
pub(super) struct Upload {
    pub(super) id: OutgoingId,
    /// Reader of its file.
    pub(super) files: Option<rt::Reader>,
    pub(super) excerpt: Excerpt,
    /// Receives the progress.
    pub(super) answers: UnboundedSender<Outcome>,
    pub(super) waker: Waker,
    pub(super) faults: Faults,
}

/// Bundles whose excerpts cannot be sent, with the reasons.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults(Arc<Mutex<Vec<(OutgoingId, String)>>>);

impl Faults {
    fn add(&self, id: OutgoingId, why: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((id, why));
    }

    pub(super) fn take(&self) -> Vec<(OutgoingId, String)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An excerpt that is being read.
struct Reading {
    upload: Box<Upload>,
    file: rt::Source,
    sent: u64,
    crc: u32,
}

impl Reading {
    fn open(upload: Box<Upload>) -> io::Result<Self> {
        let opened = match &upload.files {
            Some(files) => files.open(&upload.excerpt.file),
            None => Err(EffectError::NotFound),
        };
        match opened {
            Ok(file) => {
                let crc = upload.excerpt.crc_before;
                Ok(Self { upload, file, sent: 0, crc })
            }
            Err(error) => {
                upload.faults.add(upload.id, error.to_string());
                Err(io::Error::other(error.to_string()))
            }
        }
    }

    /// The next bytes; `None` at the end. After an error here the node rejects the bundle.
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let Excerpt { offset, len, crc_after, .. } = self.upload.excerpt;
        if self.sent == len {
            return Ok(None);
        }
        // A blocking read is fine: the thread of the courier has no other work meanwhile.
        let mut piece = vec![0; usize::try_from((len - self.sent).min(PIECE)).unwrap_or(0)];
        let read = self.file.read_exact_at(offset + self.sent, &mut piece);
        self.crc = crc_append(self.crc, &piece);
        self.sent += piece.len() as u64;
        let read = match read {
            Ok(()) if self.sent == len && self.crc != crc_after => Err(io::Error::other(CHANGED)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(io::Error::other(CHANGED))
            }
            read => read,
        };
        if let Err(error) = read {
            self.upload.faults.add(self.upload.id, error.to_string());
            return Err(error);
        }
        // The application may have ended.
        let _ = self.upload.answers.send(Outcome::Passed(self.upload.id, self.sent));
        self.upload.waker.wake();
        Ok(Some(piece.into()))
    }
}

/// The body of these parts, read as the connection takes them.
pub(super) fn stream_of(
    loads: UnboundedReceiver<Load>,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold((loads, None), async |(mut loads, mut reading): (_, Option<Reading>)| {
        loop {
            if let Some(excerpt) = &mut reading {
                match excerpt.next() {
                    Ok(Some(bytes)) => return Some((Ok(bytes), (loads, reading))),
                    Ok(None) => reading = None,
                    Err(error) => return Some((Err(error), (loads, None))),
                }
            }
            let loads_here: &mut UnboundedReceiver<Load> = &mut loads;
            match loads_here.recv().await? {
                Load::Bytes(bytes) => return Some((Ok(bytes), (loads, reading))),
                Load::Excerpt(upload) => match Reading::open(upload) {
                    Ok(opened) => reading = Some(opened),
                    Err(error) => return Some((Err(error), (loads, None))),
                },
            }
        }
    })
}
