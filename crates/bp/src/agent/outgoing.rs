//! Transmission to a neighbour: a whole bundle, or a fragment as long as the neighbour accepts
//! (RFC 9171 §5.8).
//!
//! The bundle stays whole in the store and is fragmented at transmission. Nothing is stored twice,
//! and after a restart or for another neighbour it is fragmented again to fit.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use engine::{Completion, EffectResult, FileId, OpenMode, Time};

use super::super::layer::{Command, Content, Identity, Outgoing, Tag};
use super::head::{Check, Departure, Head};
use super::join::part as part_of;
use super::links::Transmission;
use super::stock::Core;
use super::store::Job;
use super::{Held, Routing, Version};
use crate::codec::bp7::{CrcType, Eid};
use crate::effects::PIECE;

/// Payload up to which a bundle always starts over: it costs less than to continue it.
const ALWAYS_WHOLE: u64 = 64 << 10;

/// Next transmission of a bundle.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) head: Head,
    /// Start and end of the part, unless it is the whole payload.
    pub(super) part: Option<(u64, u64)>,
    /// Copies given with it.
    pub(super) copies: u32,
}

/// Reason why no part of a bundle can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The neighbour takes neither the whole nor a part.
    TooLong,
    /// All of it is in transit, or there is no copy to give.
    NotNow,
}

/// Part of a file whose CRC is computed before transmission.
#[derive(Debug)]
pub(super) struct CrcInProgress {
    sent: Transmission,
    head: Head,
    check: Check,
    part: Content,
    file: Option<FileId>,
    read: u64,
    /// Bytes read, if few.
    bytes: Option<BytesMut>,
}

/// Parts of files that are sent once their CRC is computed.
#[derive(Debug, Default)]
pub(super) struct Loader {
    in_progress: BTreeMap<Tag, CrcInProgress>,
}

impl Loader {
    /// Commands a layer to send, once the CRC is known.
    pub(super) fn send(
        &mut self,
        core: &mut Core,
        sent: Transmission,
        Load { head, part, .. }: Load,
    ) {
        let Some(held) = core.stock.get(sent.number) else { return };
        let Some((start, end)) = part else {
            let (payload, tail) = (held.payload.clone(), held.tail.clone());
            return command_send(core, sent, &head, payload, tail);
        };
        let payload = part_of(&held.payload, start, end - start);
        let is_last = end == held.payload.len();
        let mut check = Check::new(&head);
        match (&payload, &head) {
            (Content::File { name, len, .. }, Head::Seven(of))
                if of.payload().crc != CrcType::None =>
            {
                let bytes = (*len <= PIECE).then(BytesMut::new);
                let name = name.clone();
                let in_progress =
                    CrcInProgress { sent, head, check, part: payload, file: None, read: 0, bytes };
                self.in_progress.insert(sent.tag, in_progress);
                core.stock.store.effects.open(Job::Crc { tag: sent.tag }, name, OpenMode::Read);
            }
            (Content::File { .. } | Content::Bytes(_), Head::Six(_) | Head::Seven(_)) => {
                if let Content::Bytes(bytes) = &payload {
                    check.update(bytes);
                }
                let blocks = if is_last { held.tail.to_vec() } else { Vec::new() };
                command_send(core, sent, &head, payload, check.tail(blocks));
            }
        }
    }

    /// Handles an opened file of an outgoing part, or a piece read from it. Returns the
    /// transmission if that failed.
    pub(super) fn on_crc_read(
        &mut self,
        core: &mut Core,
        tag: Tag,
        result: EffectResult,
    ) -> Option<Transmission> {
        let mut in_progress = self.in_progress.remove(&tag)?;
        let of = core.stock.get(in_progress.sent.number);
        let is_wanted = of.is_some_and(|held| held.sending.contains_key(&in_progress.sent.key()));
        let Content::File { offset, len, .. } = in_progress.part else { return None };
        let mut has_failed = false;
        match result {
            Ok(Completion::Opened { file, .. }) => in_progress.file = Some(file),
            Ok(Completion::Read(bytes)) => {
                has_failed = bytes.is_empty();
                in_progress.check.update(&bytes);
                in_progress.read += bytes.len() as u64;
                if let Some(all) = &mut in_progress.bytes {
                    all.extend_from_slice(&bytes);
                }
            }
            Ok(_) | Err(_) => has_failed = true,
        }
        let left = len.saturating_sub(in_progress.read);
        if let Some(file) = in_progress.file {
            if is_wanted && !has_failed && left > 0 {
                core.stock.store.effects.read(
                    Job::Crc { tag },
                    file,
                    offset + in_progress.read,
                    left,
                );
                self.in_progress.insert(tag, in_progress);
                return None;
            }
            core.stock.store.effects.close(file);
        }
        if !is_wanted {
            return None;
        }
        let CrcInProgress { sent, head, check, part, bytes, .. } = in_progress;
        if has_failed {
            return Some(sent);
        }
        let part = bytes.map_or(part, |bytes| Content::Bytes(bytes.freeze()));
        command_send(core, sent, &head, part, check.tail(Vec::new()));
        None
    }
}

/// Next transmission of a bundle to a neighbour that accepts this many bytes.
pub(super) fn load(
    core: &Core,
    now: Time,
    number: u64,
    node: &Eid,
    most: u64,
) -> Result<Load, Unfit> {
    let held = core.stock.get(number).ok_or(Unfit::NotNow)?;
    let may_be_cut = held.head.may_be_cut() && !held.payload.is_empty();
    // A head nearly as long as a fragment would leave no room for payload.
    let has_room = |fragment: &u64| held.head.encoded_len() as u64 <= *fragment / 2;
    let ahead = core.config.fragment.filter(|_| may_be_cut).filter(has_room);
    let most = ahead.map_or(most, |fragment| most.min(fragment));
    // A bundle never gets shorter in transit.
    if held.payload.len() > most && !may_be_cut {
        return Err(Unfit::TooLong);
    }
    let copies = share(&core.config.routing, held, node).ok_or(Unfit::NotNow)?;
    let departure = Departure {
        copies: matches!(core.config.routing, Routing::Spray { .. }).then_some(copies),
        node: &core.config.node,
        age_ms: held.age_ms(now),
        custody: held.custody.as_ref().and_then(|custody| custody.number),
        hops: held.arrival.hops,
        bounds: &core.config.limits.head,
    };
    let head = held.head.departing(&departure);
    let tail = held.tail.len() as u64;
    let len = (head.encoded_len() as u64).saturating_add(held.payload.len()) + tail;
    if !held.is_cut() && len <= most {
        return Ok(Load { head, part: None, copies });
    }
    if !may_be_cut {
        return Err(Unfit::TooLong);
    }
    let (start, end) = held.gap(core.config.routing.copy_for(node)).ok_or(Unfit::NotNow)?;
    // A number stands for the whole bundle: parts are signalled by their names.
    let head = held.head.departing(&Departure { custody: None, ..departure });
    let part = |end| head.cut_fragment(start, end).map_err(|_| Unfit::TooLong);
    // The shorter the part, the shorter the numbers in the head.
    let whole = part(end)?;
    let room = most.checked_sub(whole.encoded_len() as u64 + tail).ok_or(Unfit::TooLong)?;
    if room >= end - start {
        return Ok(Load { head: whole, part: Some((start, end)), copies });
    }
    if room < core.config.limits.fragment_min.max(1) {
        return Err(Unfit::TooLong);
    }
    let end = start + room;
    Ok(Load { head: part(end)?, part: Some((start, end)), copies })
}

/// Copies of a bundle given to a neighbour: half of them, or the last one if the neighbour is
/// the destination. One where copies are not counted.
fn share(routing: &Routing, held: &Held, node: &Eid) -> Option<u32> {
    match routing {
        Routing::Static(_) | Routing::ContactGraph(..) | Routing::Epidemic => Some(1),
        Routing::Spray { .. } => {
            // All parts of a copy go to the same neighbour, and count once.
            let earlier = held.shares.get(node).copied();
            let half = match held.head.version() {
                Version::Six => held.copies.min(2) / 2,
                Version::Seven => held.copies / 2,
            };
            let is_its_own = held.destination().node() == *node && held.copies > 0;
            earlier.or((half > 0).then_some(half)).or(is_its_own.then_some(1))
        }
    }
}

fn command_send(core: &mut Core, sent: Transmission, head: &Head, payload: Content, tail: Bytes) {
    let head = head.encode().into();
    let mut bundle = Outgoing { head, payload, tail, reliable: true, identity: None };
    if core.config.persistent && bundle.payload.len() > ALWAYS_WHOLE {
        // The transmission is the same one after a restart.
        let secret = core.stock.store.secret();
        let held = core.stock.get(sent.number);
        bundle.identity = held.and_then(|held| {
            let to = &held.sending.get(&sent.key())?.to;
            let number = secret.number_of(&bundle, sent.number, to);
            Some(Identity { number, resumes: held.is_restored })
        });
    }
    let Transmission { at, tag, .. } = sent;
    core.command(at.layer, Command::Send { link: at.link, tag, bundle });
}
