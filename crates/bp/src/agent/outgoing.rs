//! Transmission to a neighbour: a whole bundle, or a fragment as long as the neighbour accepts
//! (RFC 9171 §5.8).
//!
//! The bundle stays whole in the store and is fragmented at transmission. Nothing is stored twice,
//! and after a restart or for another neighbour it is fragmented again to fit.

use bytes::{Bytes, BytesMut};
use engine::{Completion, EffectResult, FileId, OpenMode, Time};

use super::super::layer::{Command, Content, Identity, Outgoing, Tag};
use super::head::{Check, Departure, Head};
use super::join::part as part_of;
use super::store::Job;
use super::{Agent, Held, LinkRef, Routing, Version};
use crate::codec::bp7::{CrcType, Eid};
use crate::effects::PIECE;

/// Next attempt to send a bundle whose transmission failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// At once, by the best route.
    Now,
    /// At once by another neighbour; by this one in its next session.
    NextSession,
    /// When bundles without a route are routed again.
    Later,
}

/// Fragments of [`Config::fragment`](super::Config::fragment) in transit over a link at one time.
/// The next one waits for the end of one of them, and bundles of higher priority go first.
const FRAGMENTS: usize = 2;

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
pub(super) struct Summing {
    at: LinkRef,
    number: u64,
    head: Head,
    check: Check,
    part: Content,
    file: Option<FileId>,
    read: u64,
    /// Bytes read, if few.
    bytes: Option<BytesMut>,
}

impl Agent {
    /// Next transmission of a bundle to a neighbour that accepts this many bytes.
    pub(super) fn load(
        &self,
        now: Time,
        number: u64,
        node: &Eid,
        most: u64,
    ) -> Result<Load, Unfit> {
        let held = self.core.stock.get(number).ok_or(Unfit::NotNow)?;
        let may_be_cut = held.head.may_be_cut() && !held.payload.is_empty();
        // A head nearly as long as a fragment would leave no room for payload.
        let has_room = |fragment: &u64| held.head.encoded_len() as u64 <= *fragment / 2;
        let ahead = self.core.config.fragment.filter(|_| may_be_cut).filter(has_room);
        let most = ahead.map_or(most, |fragment| most.min(fragment));
        // A bundle never gets shorter in transit.
        if held.payload.len() > most && !may_be_cut {
            return Err(Unfit::TooLong);
        }
        let copies = self.share(held, node).ok_or(Unfit::NotNow)?;
        let departure = Departure {
            copies: matches!(self.core.config.routing, Routing::Spray { .. }).then_some(copies),
            node: &self.core.config.node,
            age_ms: held.age_ms(now),
            custody: held.custody.as_ref().and_then(|custody| custody.number),
            hops: held.arrival.hops,
            bounds: &self.core.config.limits.head,
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
        let (start, end) = held.gap(self.copy_for(node)).ok_or(Unfit::NotNow)?;
        // A number stands for the whole bundle: parts are signalled by their names.
        let head = held.head.departing(&Departure { custody: None, ..departure });
        let part = |end| head.of_part(start, end).map_err(|_| Unfit::TooLong);
        // The shorter the part, the shorter the numbers in the head.
        let whole = part(end)?;
        let room = most.checked_sub(whole.encoded_len() as u64 + tail).ok_or(Unfit::TooLong)?;
        if room >= end - start {
            return Ok(Load { head: whole, part: Some((start, end)), copies });
        }
        if room < self.core.config.limits.fragment_min.max(1) {
            return Err(Unfit::TooLong);
        }
        let end = start + room;
        Ok(Load { head: part(end)?, part: Some((start, end)), copies })
    }

    /// Next transmission of a bundle over a link that accepts this many bytes.
    pub(super) fn load_over(
        &self,
        now: Time,
        number: u64,
        node: &Eid,
        at: LinkRef,
        most: u64,
    ) -> Result<Load, Unfit> {
        let len = self.core.stock.get(number).map_or(0, |held| held.payload.len());
        // Half of a fragment: the last one may be shorter.
        let is_busy = self.core.config.fragment.is_some_and(|fragment| {
            len > fragment && self.forwarder.long_ones(at, fragment / 2) >= FRAGMENTS
        });
        if is_busy { Err(Unfit::NotNow) } else { self.load(now, number, node, most) }
    }

    /// Copies of a bundle given to a neighbour: half of them, or the last one if the neighbour is
    /// the destination. One where copies are not counted.
    fn share(&self, held: &Held, node: &Eid) -> Option<u32> {
        match self.core.config.routing {
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

    /// Counts the copies being given to a neighbour.
    pub(super) fn give(&mut self, number: u64, node: &Eid, copies: u32) {
        let Routing::Spray { .. } = self.core.config.routing else { return };
        let Some(held) = self.core.stock.get_mut(number) else { return };
        if !held.shares.contains_key(node) {
            held.shares.insert(node.clone(), copies);
            held.copies = held.copies.saturating_sub(copies);
        }
        if held.copies < 2 {
            let destination = held.destination().node();
            let is_cut = held.is_cut();
            self.withdraw(number, |of| *of == destination || (is_cut && of == node));
        }
    }

    /// Takes back copies that a neighbour did not receive.
    pub(super) fn take_again(&mut self, number: u64, node: &Eid) {
        let Some(held) = self.core.stock.get_mut(number) else { return };
        let has_some = held.parts.contains_key(node)
            || held.sending.values().any(|sending| sending.to == *node);
        if !has_some && let Some(copies) = held.shares.remove(node) {
            held.copies = held.copies.saturating_add(copies);
        }
    }

    /// Removes a bundle from the queues of all neighbours but these.
    pub(super) fn withdraw(&mut self, number: u64, stays: impl Fn(&Eid) -> bool) {
        let Some(held) = self.core.stock.get_mut(number) else { return };
        let priority = held.priority;
        held.queued.retain(|node, _| {
            let stays = stays(node);
            if !stays {
                self.forwarder.dequeue(node, priority, number);
            }
            stays
        });
    }

    /// Copies a bundle starts with at this node.
    pub(super) fn copies_of(&self, held: &Held, is_here: bool) -> u32 {
        match self.core.config.routing {
            Routing::Spray { copies } if is_here => copies.max(1),
            Routing::Static(_)
            | Routing::ContactGraph(..)
            | Routing::Epidemic
            | Routing::Spray { .. } => held.head.copies().unwrap_or(1).max(1),
        }
    }

    /// Commands a layer to send, once the CRC is known.
    pub(super) fn load_up(
        &mut self,
        at: LinkRef,
        tag: Tag,
        number: u64,
        Load { head, part, .. }: Load,
    ) {
        let Some(held) = self.core.stock.get(number) else { return };
        let Some((start, end)) = part else {
            let (payload, tail) = (held.payload.clone(), held.tail.clone());
            return self.hand_over(at, tag, number, &head, payload, tail);
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
                let summing =
                    Summing { at, number, head, check, part: payload, file: None, read: 0, bytes };
                self.summing.insert(tag, summing);
                self.core.stock.store.effects.open(Job::Sum { tag }, name, OpenMode::Read);
            }
            (Content::File { .. } | Content::Bytes(_), Head::Six(_) | Head::Seven(_)) => {
                if let Content::Bytes(bytes) = &payload {
                    check.update(bytes);
                }
                let blocks = if is_last { held.tail.to_vec() } else { Vec::new() };
                self.hand_over(at, tag, number, &head, payload, check.tail(blocks));
            }
        }
    }

    fn hand_over(
        &mut self,
        at: LinkRef,
        tag: Tag,
        number: u64,
        head: &Head,
        payload: Content,
        tail: Bytes,
    ) {
        let head = head.encode().into();
        let mut bundle = Outgoing { head, payload, tail, reliable: true, identity: None };
        if self.core.config.persistent && bundle.payload.len() > ALWAYS_WHOLE {
            bundle.identity = self.identity(&bundle, at, tag, number);
        }
        self.core.command(at.layer, Command::Send { link: at.link, tag, bundle });
    }

    /// Identity of a transmission over restarts.
    fn identity(
        &mut self,
        bundle: &Outgoing,
        at: LinkRef,
        tag: Tag,
        number: u64,
    ) -> Option<Identity> {
        let secret = self.core.stock.store.secret();
        let held = self.core.stock.get(number)?;
        let to = &held.sending.get(&(at, tag))?.to;
        let number = secret.number_of(bundle, number, to);
        Some(Identity { number, resumes: held.is_restored })
    }

    /// Handles an opened file of an outgoing part, or a piece read from it.
    pub(super) fn summed(&mut self, now: Time, tag: Tag, result: EffectResult) {
        let Some(mut summing) = self.summing.remove(&tag) else { return };
        let of = self.core.stock.bundles.get(&summing.number);
        let is_wanted = of.is_some_and(|held| held.sending.contains_key(&(summing.at, tag)));
        let Content::File { offset, len, .. } = summing.part else { return };
        let mut has_failed = false;
        match result {
            Ok(Completion::Opened { file, .. }) => summing.file = Some(file),
            Ok(Completion::Read(bytes)) => {
                has_failed = bytes.is_empty();
                summing.check.update(&bytes);
                summing.read += bytes.len() as u64;
                if let Some(all) = &mut summing.bytes {
                    all.extend_from_slice(&bytes);
                }
            }
            Ok(_) | Err(_) => has_failed = true,
        }
        let left = len.saturating_sub(summing.read);
        if let Some(file) = summing.file {
            if is_wanted && !has_failed && left > 0 {
                self.core.stock.store.effects.read(
                    Job::Sum { tag },
                    file,
                    offset + summing.read,
                    left,
                );
                self.summing.insert(tag, summing);
                return;
            }
            self.core.stock.store.effects.close(file);
        }
        if !is_wanted {
            return;
        }
        let Summing { at, number, head, check, part, bytes, .. } = summing;
        if has_failed {
            self.forwarder.abort(at, tag);
            self.reroute(now, at, tag, number, Retry::Later);
            return self.pump_freed(now);
        }
        let part = bytes.map_or(part, |bytes| Content::Bytes(bytes.freeze()));
        self.hand_over(at, tag, number, &head, part, check.tail(Vec::new()));
    }

    /// Records the part a neighbour acknowledged and keeps after its link broke (RFC 5050 §5.8, RFC
    /// 7242 §3.2): it is not retransmitted.
    pub(super) fn keep_acknowledged(
        &mut self,
        at: LinkRef,
        tag: Tag,
        number: u64,
        acknowledged: u64,
    ) {
        let Some(held) = self.core.stock.get_mut(number) else { return };
        let len = held.payload.len();
        let may_be_cut = matches!(held.head, Head::Six(_)) && held.head.may_be_cut();
        let Some(sending) = held.sending.get(&(at, tag)).filter(|_| may_be_cut) else { return };
        let (start, end) = sending.part.unwrap_or((0, len));
        // If only the blocks behind the payload are missing, the last byte is sent with them.
        let kept = acknowledged.saturating_sub(sending.head_len as u64);
        let kept = kept.min((end - start).saturating_sub(1));
        if kept > 0 {
            let node = sending.to.clone();
            held.parts.entry(node).or_default().insert(start, start + kept);
        }
    }
}
