//! Verification of a sent file at the server (CCSDS 717.0-B-1, SITE crc).

use engine::{FileId, OpenMode, StoreEffect};

use super::request::{Source, What};
use super::{Awaited, Current, Job, Session, number_behind};
use crate::ftp::core::{Core, Use};
use crate::ftp::indication::Failure;
use crate::message::{Command, Crc, Reply};

/// CRC of the read part of a sent file.
#[derive(Debug)]
pub(super) struct Sum {
    file: FileId,
    offset: u64,
    crc: Crc,
}

impl Sum {
    pub(super) fn new(file: FileId) -> Self {
        Self { file, offset: 0, crc: Crc::default() }
    }

    pub(super) fn file(&self) -> FileId {
        self.file
    }
}

impl Session {
    /// Finishes a sent file that the server has confirmed, after its verification.
    pub(super) fn sent(&mut self, core: &mut Core) {
        let source = self.current.as_ref().and_then(|current| match &current.request.what {
            What::Put { source: Source::File(source), .. } => Some(source.clone()),
            What::Put { source: Source::Text(_), .. }
            | What::Get { .. }
            | What::Command(_)
            | What::Relay { .. } => None,
        });
        let Some(name) = source.filter(|_| self.verify) else { return self.finished(core) };
        if self.awaited == Awaited::Checksum {
            return;
        }
        self.awaited = Awaited::Checksum;
        let ticket = core.next_ticket();
        let open = StoreEffect::Open { ticket, name, mode: OpenMode::Read };
        core.submit(open, Use::Client(self.control.path, Job::OpenToSum));
    }

    pub(super) fn read_to_sum(&mut self, core: &mut Core) {
        let Some(Current { sum: Some(sum), .. }) = &self.current else { return };
        let (ticket, len) = (core.next_ticket(), core.limits.piece);
        let (file, offset) = (sum.file, sum.offset);
        let read = StoreEffect::Read { ticket, file, offset, len };
        core.submit(read, Use::Client(self.control.path, Job::Sum));
    }

    /// Adds a piece of the sent file to the CRC.
    pub(super) fn summed(&mut self, bytes: &[u8], core: &mut Core) {
        let Some(current) = &mut self.current else { return };
        let Some(sum) = &mut current.sum else { return };
        sum.crc.update(bytes);
        sum.offset += bytes.len() as u64;
        if bytes.len() == core.limits.piece {
            return self.read_to_sum(core);
        }
        let site = format!("crc {}", current.request.what.name());
        self.ask(&Command::Site(&site), Awaited::Checksum);
    }

    /// Compares the CRC with the one in the server's reply.
    pub(super) fn compare(&mut self, reply: Reply, core: &mut Core) {
        let sum = self.current.as_ref().and_then(|current| current.sum.as_ref());
        let here = sum.map(|sum| sum.crc.value());
        let there = number_behind(&reply.text, "CRC:").and_then(|crc| u32::try_from(crc).ok());
        match (here, there) {
            (Some(here), Some(there)) if here == there => return self.finished(core),
            (Some(here), Some(there)) => self.fail(Failure::Checksum { here, there }, core),
            (None, _) | (_, None) => self.fail(Failure::Nonsense(reply.text), core),
        }
        self.next(core);
    }
}
