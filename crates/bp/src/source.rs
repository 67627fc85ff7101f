//! Source of the bytes of an outgoing bundle: memory, and a part of a file that is read during
//! transmission.

use std::collections::VecDeque;

use bytes::Bytes;
use engine::{Completion, EffectResult, FileId, FileName, OpenMode};

use super::effects::Effects;
use super::layer::{Content, Outgoing};

/// A part of a bundle in one place.
#[derive(Debug)]
enum Part {
    Bytes(Bytes),
    /// The unread rest of the payload.
    File,
}

/// File that contains a payload.
#[derive(Debug)]
struct Payload {
    name: FileName,
    file: Option<FileId>,
    /// Offset of the next read.
    at: u64,
    end: u64,
    /// Bytes read and not sent, in order.
    ready: VecDeque<Bytes>,
    held: usize,
    reading: bool,
    /// Bytes still to be sent.
    left: u64,
}

/// Unsent bytes of a bundle.
#[derive(Debug)]
pub(super) struct Source {
    parts: VecDeque<Part>,
    payload: Option<Payload>,
}

impl Source {
    pub(super) fn new(bundle: Outgoing) -> Self {
        let mut payload = None;
        let middle = match bundle.payload {
            Content::Bytes(bytes) => Part::Bytes(bytes),
            Content::File { name, offset, len } => {
                let end = offset.saturating_add(len);
                let (ready, held) = (VecDeque::new(), 0);
                let (file, at, left, reading) = (None, offset, len, false);
                payload = Some(Payload { name, file, at, end, ready, held, reading, left });
                Part::File
            }
        };
        let parts = [Part::Bytes(bundle.head), middle, Part::Bytes(bundle.tail)].into();
        Self { parts, payload }
    }

    /// Bytes that can be sent now.
    pub(super) fn available(&self) -> u64 {
        let mut sum = 0;
        for part in &self.parts {
            match part {
                Part::Bytes(bytes) => sum += bytes.len() as u64,
                Part::File => {
                    let Some(payload) = &self.payload else { break };
                    sum += payload.held as u64;
                    if (payload.held as u64) < payload.left {
                        break;
                    }
                }
            }
        }
        sum
    }

    /// Whether bytes of a file are needed and none has been read.
    pub(super) fn is_unread(&self) -> bool {
        self.payload.as_ref().is_some_and(|payload| payload.held == 0 && payload.left > 0)
    }

    /// Takes the next bytes, at most those available.
    pub(super) fn take(&mut self, mut count: u64, mut out: impl FnMut(Bytes)) {
        while count > 0 {
            let Some(part) = self.parts.front_mut() else { return };
            match part {
                Part::Bytes(bytes) => {
                    let here = bytes.len().min(usize::try_from(count).unwrap_or(usize::MAX));
                    out(bytes.split_to(here));
                    count -= here as u64;
                    if bytes.is_empty() {
                        self.parts.pop_front();
                    }
                }
                Part::File => {
                    let Some(payload) = &mut self.payload else { return };
                    let taken = payload.take(count, &mut out);
                    count -= taken;
                    if payload.left == 0 {
                        self.parts.pop_front();
                    } else if taken == 0 {
                        return;
                    }
                }
            }
        }
    }

    /// Fills `place` with the next bytes, which must be available.
    pub(super) fn fill(&mut self, place: &mut [u8]) {
        let mut at = 0;
        self.take(place.len() as u64, |bytes| {
            place[at..at + bytes.len()].copy_from_slice(&bytes);
            at += bytes.len();
        });
    }

    /// Opens the file, if there is one.
    pub(super) fn open<P>(&self, purpose: P, effects: &mut Effects<P>) {
        if let Some(payload) = &self.payload {
            effects.open(purpose, payload.name.clone(), OpenMode::Read);
        }
    }

    /// Reads the next bytes of the file, unless `ahead` bytes are waiting.
    pub(super) fn read<P>(&mut self, purpose: P, ahead: usize, effects: &mut Effects<P>) {
        let Some(payload) = &mut self.payload else { return };
        let Some(file) = payload.file else { return };
        if !payload.reading && payload.at < payload.end && payload.held < ahead {
            payload.reading = true;
            effects.read(purpose, file, payload.at, payload.end - payload.at);
        }
    }

    /// Closes the file.
    pub(super) fn close<P>(&self, effects: &mut Effects<P>) {
        effects.close(self.payload.as_ref().and_then(|payload| payload.file));
    }

    /// Handles a completion of the store; returns whether the bundle can still be sent.
    pub(super) fn completed(&mut self, result: EffectResult) -> bool {
        let Some(payload) = &mut self.payload else { return true };
        match result {
            Ok(Completion::Opened { file, .. }) => {
                payload.file = Some(file);
                true
            }
            Ok(Completion::Read(bytes)) => payload.read(bytes),
            Ok(_) | Err(_) => false,
        }
    }
}

impl Payload {
    /// Adds bytes read; returns whether their number is as expected.
    fn read(&mut self, bytes: Bytes) -> bool {
        self.reading = false;
        if bytes.is_empty() {
            return false;
        }
        self.at += bytes.len() as u64;
        self.held += bytes.len();
        self.ready.push_back(bytes);
        true
    }

    fn take(&mut self, count: u64, out: &mut impl FnMut(Bytes)) -> u64 {
        let mut taken = 0;
        while taken < count {
            let Some(bytes) = self.ready.front_mut() else { break };
            let left = usize::try_from(count - taken).unwrap_or(usize::MAX);
            let here = bytes.len().min(left);
            out(bytes.split_to(here));
            if bytes.is_empty() {
                self.ready.pop_front();
            }
            self.held -= here;
            self.left -= here as u64;
            taken += here as u64;
        }
        taken
    }
}
