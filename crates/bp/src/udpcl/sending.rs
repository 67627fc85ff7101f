//! Transmission of bundles.

use std::ops::Bound;

use engine::{EffectResult, PathId, Ticket, Time, Transmit, TxBuf};
use session::path::Burst;

use super::super::layer::{Event, LinkId, Outcome, Outgoing, Tag};
use super::super::source::Source;
use super::{Alarm, Batch, Udpcl};
use crate::codec::udpcl::{FRAGMENT_HEADER_LEN, Fragment, KEEPALIVE};

/// A bundle in transit.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) tag: Tag,
    pub(super) source: Source,
    pub(super) len: u64,
    sent: u64,
    /// Its number in fragments.
    bundle: u32,
}

impl Udpcl {
    pub(super) fn send(&mut self, link: LinkId, tag: Tag, bundle: Outgoing) {
        let most = self.bundle_max(link);
        let neighbour = self.links.get_mut(&link).filter(|neighbour| neighbour.is_up);
        let Some(neighbour) = neighbour.filter(|_| bundle.len() <= most) else {
            self.report_sent(link, tag, Outcome::Failed { acknowledged: 0 });
            return;
        };
        let (len, number) = (bundle.len(), self.next_bundle);
        self.next_bundle = self.next_bundle.wrapping_add(1);
        let sending = Sending { tag, source: Source::new(bundle), len, sent: 0, bundle: number };
        sending.source.open((link, tag), &mut self.effects);
        neighbour.sending.push_back(sending);
        self.ready.insert(neighbour.path);
    }

    pub(super) fn cancel(&mut self, link: LinkId, tag: Tag) {
        let Some(neighbour) = self.links.get_mut(&link) else { return };
        let at = neighbour.sending.iter().position(|sending| sending.tag == tag);
        if let Some(sending) = at.and_then(|at| neighbour.sending.remove(at)) {
            sending.source.close(&mut self.effects);
            self.ready.insert(neighbour.path);
            self.read_on(link);
            self.report_sent(link, tag, Outcome::Failed { acknowledged: 0 });
        }
    }

    /// Reports the bundles of the last batch, which leaves now.
    pub(super) fn batch_leaves(&mut self) {
        self.timers.cancel(Alarm::Leaves);
        if let Some(batch) = self.batch.as_mut().filter(|batch| !batch.is_reported) {
            batch.is_reported = true;
            self.statistics.sent += batch.bundles.len() as u64;
            let left =
                |&(link, tag): &(LinkId, Tag)| Event::Sent { link, tag, outcome: Outcome::Left };
            self.events.extend(batch.bundles.iter().map(left));
        }
    }

    /// Reports the bundles with a datagram in the last batch of a path, which the system refused.
    /// The agent has not seen yet that they leave.
    pub(super) fn unsent(&mut self, path: PathId) {
        let Some(link) = self.by_path.get(&path).copied() else { return };
        self.batch_leaves();
        let bundles = self.batch.take().map(|batch| batch.bundles).unwrap_or_default();
        for event in &mut self.events {
            if let Event::Sent { link, tag, outcome } = event
                && bundles.contains(&(*link, *tag))
            {
                *outcome = Outcome::Failed { acknowledged: 0 };
                self.statistics.sent -= 1;
            }
        }
        let first = self.links.get(&link).and_then(|neighbour| neighbour.sending.front());
        if let Some(tag) = first.filter(|first| first.sent > 0).map(|first| first.tag) {
            self.cancel(link, tag);
        }
    }

    pub(super) fn done(&mut self, ticket: Ticket, result: EffectResult) {
        let Some((link, tag)) = self.effects.take(ticket) else { return };
        let neighbour = self.links.get_mut(&link);
        let path = neighbour.as_ref().map(|neighbour| neighbour.path);
        let sending = neighbour
            .and_then(|neighbour| neighbour.sending.iter_mut().find(|sending| sending.tag == tag));
        let Some(sending) = sending else {
            self.effects.close_orphan(&result);
            return;
        };
        if sending.source.completed(result) {
            self.ready.extend(path);
            self.read_on(link);
        } else {
            self.cancel(link, tag);
        }
    }

    /// Next datagrams, of the paths in turn.
    pub(super) fn next_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.batch_leaves();
        loop {
            let behind = (Bound::Excluded(self.turn), Bound::Unbounded);
            let next = self.ready.range(behind).next().or_else(|| self.ready.first());
            let path = *next?;
            self.turn = path;
            let transmit = self.burst(now, path, tx);
            if transmit.is_some() {
                return transmit;
            }
            self.ready.remove(&path);
        }
    }

    /// Batch of datagrams on a path.
    fn burst(&mut self, now: Time, id: PathId, tx: &mut TxBuf) -> Option<Transmit> {
        let link = *self.by_path.get(&id)?;
        let most = self.datagram_max(id);
        let path = self.paths.get(&id).filter(|path| path.can_send())?;
        let mut burst = path.burst(now, tx);
        let neighbour = self.links.get_mut(&link)?;
        let mut left = Vec::new();
        while let Some(sending) = neighbour.sending.front_mut() {
            if !sending.push(most, &mut burst) {
                break;
            }
            if sending.sent == sending.len {
                left.extend(neighbour.sending.pop_front());
            }
        }
        if self.signs.contains(&link) && burst.is_empty() {
            // Keepalives are sent only if there is nothing else.
            if let Some(place) = burst.push(KEEPALIVE.len()) {
                place.copy_from_slice(&KEEPALIVE);
            }
        }
        if burst.is_empty() {
            return None;
        }
        self.signs.remove(&link);
        neighbour.last_sent = now;
        let mut bundles = Vec::new();
        for sending in left {
            sending.source.close(&mut self.effects);
            bundles.push((link, sending.tag));
        }
        let transmit = self.paths.get_mut(&id)?.finish(id, &burst);
        self.batch = Some(Batch { bundles, is_reported: false });
        match &transmit {
            // The driver holds it back until then.
            Some(Transmit { not_before, .. }) if *not_before > now => {
                self.timers.set(Alarm::Leaves, *not_before, "a batch leaves");
            }
            Some(_) | None => self.batch_leaves(),
        }
        self.read_on(link);
        transmit
    }

    /// Reads the next bytes of the current bundle's file, and of the next bundles while they are
    /// single datagrams.
    fn read_on(&mut self, link: LinkId) {
        let Some(path) = self.links.get(&link).map(|neighbour| neighbour.path) else { return };
        let most = self.datagram_max(path);
        let ahead = self.config.limits.read_ahead.max(most);
        let Some(neighbour) = self.links.get_mut(&link) else { return };
        for (place, sending) in neighbour.sending.iter_mut().enumerate() {
            if place > 0 && sending.len > most as u64 {
                return;
            }
            let of = (link, sending.tag);
            sending.source.read(of, ahead, &mut self.effects);
        }
    }
}

impl Sending {
    /// Adds the next datagram of the bundle to the batch; returns whether there was room.
    fn push(&mut self, most: usize, burst: &mut Burst<'_>) -> bool {
        if self.sent == 0 && self.len <= most as u64 {
            let len = self.len as usize;
            if self.source.available() < self.len {
                return false;
            }
            let Some(place) = burst.push(len) else { return false };
            self.source.fill(place);
            self.sent = self.len;
            return true;
        }
        let rest = self.len - self.sent;
        let data = rest.min(most.saturating_sub(FRAGMENT_HEADER_LEN) as u64);
        if data == 0 || self.source.available() < data {
            return false;
        }
        let data = data as usize;
        let Some(place) = burst.push(FRAGMENT_HEADER_LEN + data) else { return false };
        // Only bundles whose length fits in four bytes are accepted.
        let (length, offset) = (self.len as u32, self.sent as u32);
        let header = Fragment { bundle: self.bundle, length, offset, data: &[] }.header();
        let (head, body) = place.split_at_mut(FRAGMENT_HEADER_LEN);
        head.copy_from_slice(&header);
        self.source.fill(body);
        self.sent += data as u64;
        true
    }
}
