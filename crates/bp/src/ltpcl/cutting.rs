//! Cutting of blocks of client service 1 that hold several bundles, as ION's aggregation makes
//! them.
//!
//! Bundles are self-delimiting. A block in memory is cut by the bundles' heads, one in a working
//! file by reading heads and tails; payloads are read only to pass them on. At most
//! [`Limits::window`](super::Limits::window) bundles of a block wait for the agent at one time.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use engine::{
    Completion, EffectResult, FileId, FileName, FilestoreRequest, OpenMode, StoreEffect, Ticket,
    Time,
};
use ltp::segment::{CancelReason, SessionId};
use wire::DecodeError;

use super::super::layer::{Event, LinkId, TransferId};
use super::Ltpcl;
use crate::codec::bp6::{self, Trailer};
use crate::codec::bp7::{Bounds, Head, PayloadCrc};
use crate::effects::PIECE;

/// Bytes read first to decode a head; more are read if they are too few.
const HEAD: usize = 4 << 10;
/// Bytes read first to find the end of the blocks behind a payload.
const TAIL: usize = 64;

/// Bundles of a block that were not reported yet.
#[derive(Debug)]
pub(super) enum Rest {
    /// None.
    Nothing,
    /// In memory.
    Memory(Bytes),
    /// In a working file.
    File(FileCut),
}

/// Working file that is cut.
#[derive(Debug)]
pub(super) struct FileCut {
    name: FileName,
    len: u64,
    file: Option<FileId>,
    /// Offset of the next bundle.
    at: u64,
    step: Step,
    /// Whether an effect of the store is pending.
    is_pending: bool,
}

/// Part of a bundle that is read next.
#[derive(Debug)]
enum Step {
    /// This many bytes from its start, to decode its head.
    Head(usize),
    /// This many bytes from the end of its payload, to find its own end.
    Tail(u64, Behind, usize),
    /// All of it, to pass it on.
    Pass(Passing),
    /// Nothing: the whole file is one bundle. It is renamed, because the engine uses its name again
    /// if the sender repeats the session.
    Rename,
}

/// Purpose of an effect on a working file.
#[derive(Debug)]
pub(super) struct CutEffect {
    id: SessionId,
    /// New name, if the file is renamed.
    to: Option<FileName>,
}

/// Bundle that is read to pass it on.
#[derive(Debug)]
struct Passing {
    transfer: TransferId,
    next: u64,
    end: u64,
    /// Whether the agent refused it while it was read.
    is_refused: bool,
}

/// Bytes behind a payload.
#[derive(Debug)]
enum Behind {
    /// None.
    Nothing,
    /// Blocks of version 6.
    Blocks,
    /// CRC and ends of version 7.
    Ends(Box<PayloadCrc>),
}

impl Behind {
    /// Number of bytes; `None` if more are needed to find out.
    fn len(&self, rest: &[u8]) -> Result<Option<usize>, DecodeError> {
        match self {
            Self::Nothing => Ok(Some(0)),
            Self::Blocks => {
                let trailer = Trailer::decode(rest, &Bounds::default())?;
                Ok(trailer.map(|(_, len)| len))
            }
            Self::Ends(crc) => crc.tail_len(rest),
        }
    }
}

/// End of the payload of the first bundle in `bytes`; `None` if more bytes are needed.
fn payload_end(bytes: &[u8]) -> Result<Option<(u64, Behind)>, DecodeError> {
    let (start, len, behind) = if bytes.first() == Some(&bp6::VERSION) {
        let Some(head) = bp6::Head::decode(bytes, &Bounds::default())? else {
            return Ok(None);
        };
        let payload = head.payload();
        let behind = if payload.is_last() { Behind::Nothing } else { Behind::Blocks };
        (head.encoded_len(), payload.len, behind)
    } else {
        let Some(head) = Head::decode(bytes, &Bounds::default())? else { return Ok(None) };
        let behind = Behind::Ends(Box::new(PayloadCrc::new(&head)));
        (head.payload_offset(), head.payload().len, behind)
    };
    Ok(Some(((start as u64).saturating_add(len), behind)))
}

/// Length of the first bundle in `bytes`, whose payload is not verified; `None` if there is none.
fn first_len(bytes: &[u8]) -> Option<usize> {
    let (end, behind) = payload_end(bytes).ok()??;
    let end = usize::try_from(end).ok()?;
    let tail = behind.len(bytes.get(end..)?).ok()??;
    Some(end + tail)
}

impl Rest {
    pub(super) fn of_file(name: FileName, len: u64) -> Self {
        let (file, step) = (None, Step::Head(HEAD));
        Self::File(FileCut { name, len, file, at: 0, step, is_pending: false })
    }

    /// Whether a bundle is being read to pass it on.
    fn is_within(&self) -> bool {
        matches!(self, Self::File(FileCut { step: Step::Pass(_), .. }))
    }
}

impl Ltpcl {
    /// Reports further bundles of a block, as far as the agent accepts them.
    pub(super) fn advance(&mut self, now: Time, id: SessionId) {
        loop {
            let Some(incoming) = self.incoming.get_mut(&id) else { return };
            let link = incoming.link;
            let is_full = incoming.waiting >= self.config.limits.window.max(1);
            let rest = &mut incoming.rest;
            let must_wait = self.neighbours.is_held(link) || is_full && !rest.is_within();
            match rest {
                Rest::Nothing => return self.settle(now, id),
                Rest::File(_) | Rest::Memory(_) if must_wait => return,
                Rest::File(cut) => {
                    if !cut.is_pending {
                        self.read_on(id);
                    }
                    return;
                }
                Rest::Memory(bytes) => {
                    let len = match first_len(bytes) {
                        // The agent refuses it.
                        None if incoming.total == 0 => bytes.len(),
                        None => {
                            incoming.rest = Rest::Nothing;
                            self.report_unreadable(link);
                            continue;
                        }
                        Some(len) => len,
                    };
                    let bundle = bytes.split_to(len);
                    if bytes.is_empty() {
                        incoming.rest = Rest::Nothing;
                    }
                    self.bytes(link, id, bundle);
                }
            }
        }
    }

    /// Reads the next part of a working file.
    fn read_on(&mut self, id: SessionId) {
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        let Rest::File(cut) = &mut incoming.rest else { return };
        cut.is_pending = true;
        if let Step::Rename = cut.step {
            let (from, to) = (cut.name.clone(), self.names.next_file());
            if let Some(file) = cut.file.take() {
                self.blocks.close(file);
            }
            let request = FilestoreRequest::Install { from, to: to.clone() };
            let ticket = self.blocks.request(|ticket| StoreEffect::Filestore { ticket, request });
            self.cuts.insert(ticket, CutEffect { id, to: Some(to) });
            return;
        }
        let Some(file) = cut.file else {
            let (name, mode) = (cut.name.clone(), OpenMode::Read);
            let ticket = self.blocks.request(|ticket| StoreEffect::Open { ticket, name, mode });
            self.cuts.insert(ticket, CutEffect { id, to: None });
            return;
        };
        let (offset, len) = match &cut.step {
            Step::Rename => return,
            Step::Head(len) => (cut.at, *len),
            Step::Tail(end, _, len) => (*end, *len),
            Step::Pass(Passing { next, end, .. }) => (*next, (end - next).min(PIECE) as usize),
        };
        let read = |ticket| StoreEffect::Read { ticket, file, offset, len };
        self.cuts.insert(self.blocks.request(read), CutEffect { id, to: None });
    }

    /// Handles a completion of the store for a working file; `false` if it is for another use.
    pub(super) fn cut_done(&mut self, now: Time, ticket: Ticket, result: &EffectResult) -> bool {
        let Some(CutEffect { id, to }) = self.cuts.remove(&ticket) else { return false };
        self.blocks.forget_ticket(ticket);
        let rest = self.incoming.get_mut(&id).map(|incoming| &mut incoming.rest);
        let Some(Rest::File(cut)) = rest else {
            match (result, to) {
                (Ok(Completion::Opened { file, .. }), _) => self.blocks.close(*file),
                (Ok(_), Some(to)) => self.blocks.delete(to),
                (Ok(_) | Err(_), _) => {}
            }
            return true;
        };
        cut.is_pending = false;
        match (result, to) {
            (Ok(Completion::Opened { file, .. }), _) => cut.file = Some(*file),
            (Ok(Completion::Read(bytes)), _) => self.on_read(id, bytes),
            (Ok(_), Some(to)) => self.pass_file(id, to),
            (Ok(_) | Err(_), _) => self.stop_cutting(id, Some(CancelReason::User)),
        }
        self.advance(now, id);
        true
    }

    fn on_read(&mut self, id: SessionId, bytes: &Bytes) {
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        let Rest::File(cut) = &mut incoming.rest else { return };
        let left = |from: u64| cut.len.saturating_sub(from);
        match &mut cut.step {
            Step::Rename => {}
            Step::Head(len) => match payload_end(bytes) {
                Ok(Some((end, behind))) => match cut.at.checked_add(end) {
                    Some(end) if end <= cut.len => cut.step = Step::Tail(end, behind, TAIL),
                    Some(_) | None => self.unreadable(id),
                },
                Ok(None) if (*len as u64) < left(cut.at) => *len *= 2,
                Ok(None) | Err(_) => self.unreadable(id),
            },
            Step::Tail(end, behind, len) => match behind.len(bytes) {
                Ok(Some(tail)) => {
                    let end = *end + tail as u64;
                    self.found(id, end);
                }
                Ok(None) if (*len as u64) < left(*end) => *len *= 2,
                Ok(None) | Err(_) => self.unreadable(id),
            },
            Step::Pass(_) if bytes.is_empty() => {
                self.stop_cutting(id, Some(CancelReason::User));
            }
            Step::Pass(_) => self.pass_piece(id, bytes.clone()),
        }
    }

    /// The next bundle ends at `end`.
    fn found(&mut self, id: SessionId, end: u64) {
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        let Rest::File(cut) = &mut incoming.rest else { return };
        if cut.at == 0 && end == cut.len {
            cut.step = Step::Rename;
            return;
        }
        let (link, at) = (incoming.link, cut.at);
        let transfer = self.begins(link, id, end - at);
        if let Some(incoming) = self.incoming.get_mut(&id)
            && let Rest::File(cut) = &mut incoming.rest
        {
            cut.step = Step::Pass(Passing { transfer, next: at, end, is_refused: false });
        }
    }

    fn pass_piece(&mut self, id: SessionId, bytes: Bytes) {
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        let Rest::File(cut) = &mut incoming.rest else { return };
        let Step::Pass(passing) = &mut cut.step else { return };
        if passing.is_refused {
            return self.skip_to_next(id);
        }
        let (link, transfer) = (incoming.link, passing.transfer);
        passing.next += bytes.len() as u64;
        let is_whole = passing.next >= passing.end;
        if is_whole {
            (cut.at, cut.step) = (passing.end, Step::Head(HEAD));
        }
        let is_last = is_whole && cut.at >= cut.len;
        self.neighbours.events.push_back(Event::Piece { link, transfer, bytes });
        if is_whole {
            self.whole(link, transfer, None);
        }
        if is_last {
            self.stop_cutting(id, None);
        }
    }

    /// Passes a renamed working file to the agent as one bundle.
    fn pass_file(&mut self, id: SessionId, name: FileName) {
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        let Rest::File(FileCut { len, .. }) = &incoming.rest else { return };
        let (link, len) = (incoming.link, *len);
        self.stop_cutting(id, None);
        let transfer = self.begins(link, id, len);
        if let Some(incoming) = self.incoming.get_mut(&id) {
            incoming.file = Some(name.clone());
            incoming.is_passed_on = true;
        }
        self.whole(link, transfer, Some((name, len)));
    }

    /// The next bytes of a working file are not a bundle.
    fn unreadable(&mut self, id: SessionId) {
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        if incoming.total == 0
            && let Rest::File(cut) = &mut incoming.rest
        {
            // The agent refuses it.
            cut.step = Step::Rename;
            return;
        }
        let link = incoming.link;
        self.stop_cutting(id, None);
        self.report_unreadable(link);
    }

    fn report_unreadable(&mut self, link: LinkId) {
        let what = "a block that ends with bytes that are not a bundle";
        self.neighbours.report_fault(Some(link), what);
    }

    /// Reports no further bundles of a block; a reason refuses the block.
    pub(super) fn stop_cutting(&mut self, id: SessionId, why: Option<CancelReason>) {
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        incoming.refused = why.or(incoming.refused);
        let link = incoming.link;
        let rest = std::mem::replace(&mut incoming.rest, Rest::Nothing);
        let Rest::File(FileCut { file, step, .. }) = rest else { return };
        if let Step::Pass(Passing { transfer, .. }) = step
            && self.transfers.remove(&transfer).is_some()
        {
            incoming.waiting -= 1;
            self.neighbours.events.push_back(Event::Broken { link, transfer, keep: false });
        }
        if let Some(file) = file {
            self.blocks.close(file);
        }
    }

    /// Reads no more of a bundle that the agent refused while it was read.
    pub(super) fn skip(&mut self, id: SessionId, refused: TransferId) {
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        let Rest::File(cut) = &mut incoming.rest else { return };
        match &mut cut.step {
            Step::Pass(passing) if passing.transfer == refused => passing.is_refused = true,
            Step::Pass(_) | Step::Head(_) | Step::Tail(..) | Step::Rename => return,
        }
        if !cut.is_pending {
            self.skip_to_next(id);
        }
    }

    /// Goes to the bundle behind the one that is passed on.
    fn skip_to_next(&mut self, id: SessionId) {
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        let Rest::File(cut) = &mut incoming.rest else { return };
        let Step::Pass(Passing { end, .. }) = cut.step else { return };
        (cut.at, cut.step) = (end, Step::Head(HEAD));
        if cut.at >= cut.len {
            self.stop_cutting(id, None);
        }
    }
}
