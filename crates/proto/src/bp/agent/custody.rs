//! Custody of version 6 bundles (RFC 5050 §5.10 to §5.12): a custodian keeps a bundle until
//! another node accepts custody.
//!
//! A node accepts custody once the bundle is safe in its store, and sends a signal to the previous
//! custodian. A bundle without a signal in time is retransmitted; a custodian that already stores
//! it signals redundant reception, which counts as success. Lost signals therefore do no harm.

use std::collections::{BTreeMap, BTreeSet};

use engine::Time;
use wire::bp6::{
    self, AdministrativeRecord, AggregateCustodySignal, CustodyReason, CustodySignal, Fill, Subject,
};
use wire::bp7::{CreationTimestamp, Eid};

use super::head::Key;
use super::held::Custody;
use super::{Agent, Alarm, Held, Indication, Version};
use crate::ranges::Ranges;

/// Most bundles in one aggregate signal.
const AGGREGATE_MAX: usize = 1024;

/// Numbers of bundles to signal together, by custodian, success and reason.
pub(super) type Signals = BTreeMap<(Eid, bool, u8), BTreeSet<u64>>;

impl Agent {
    /// Number under which custodians may acknowledge a bundle.
    pub(super) fn custody_number_for(&self, number: u64, held: &Held) -> Option<u64> {
        let is_requested = held.custody.is_some() && self.config.custody.aggregate_after.is_some();
        is_requested.then_some(number)
    }

    /// Accepts custody of a bundle to forward, if it requests that and can name this node (RFC 5050
    /// §5.10.1). The previous custodian is signalled when the bundle is safe.
    pub(super) fn take_custody(&self, held: &mut Held) {
        if !held.head.requests_custody() || !self.config.custody.accept {
            return;
        }
        let before = held.head.custodian().clone();
        held.arrival.predecessor = Some((before, held.head.custody_number()));
        if self.is_for_us(held.destination()) {
            return;
        }
        match held.head.set_custodian(&self.config.node) {
            Ok(()) => held.custody = Some(Custody::default()),
            // A bundle whose endpoints are numbers cannot name a node without one.
            Err(_) => held.arrival.predecessor = None,
        }
    }

    /// Signals to the previous custodian that this node has the bundle, which is safe.
    pub(super) fn signal_predecessor(&mut self, now: Time, number: u64) {
        let Some(held) = self.bundles.get_mut(&number) else { return };
        let Some((custodian, custody_number)) = held.arrival.predecessor.take() else { return };
        let (key, total) = (held.key(), held.head.lifetime_ms());
        self.report_custody(now, number);
        let addressee = (custodian, custody_number);
        self.signal(now, addressee, &key, total, CustodyReason::NoInformation);
    }

    /// Signals redundant reception of a bundle that is, or was, here (RFC 5050 §5.6 step 4).
    pub(super) fn custody_is_known(&mut self, now: Time, held: &Held) {
        if held.head.requests_custody() && self.config.custody.accept {
            let addressee = (held.head.custodian().clone(), held.head.custody_number());
            let reason = CustodyReason::RedundantReception;
            self.signal(now, addressee, &held.key(), held.head.lifetime_ms(), reason);
        }
    }

    /// Sends a custody signal, or adds it to the aggregate for the same custodian.
    fn signal(
        &mut self,
        now: Time,
        (custodian, custody_number): (Eid, Option<u64>),
        key: &Key,
        lifetime_ms: u64,
        reason: CustodyReason,
    ) {
        if custodian.is_none() || self.is_ours(&custodian) {
            return;
        }
        let succeeded = reason == CustodyReason::NoInformation;
        if let (Some(custody_number), Some(after)) =
            (custody_number, self.config.custody.aggregate_after)
        {
            let signal_kind = (custodian, succeeded, reason.code());
            let numbers = self.signals.entry(signal_kind).or_default();
            numbers.insert(custody_number);
            let is_full = numbers.len() >= AGGREGATE_MAX;
            if is_full {
                self.send_signals(now);
            } else if self.timers.get(Alarm::Signals).is_none() {
                self.timers.set(Alarm::Signals, now + after, "aggregate custody signals");
            }
            return;
        }
        let Key { source, creation, fragment, .. } = key.clone();
        let CreationTimestamp { time_ms, sequence } = creation;
        let creation = bp6::CreationTimestamp { time_s: time_ms / 1000, sequence };
        let subject = Subject { source, creation, fragment };
        let time = self.dtn_time_six(now);
        let signal = CustodySignal { subject, succeeded, reason, time };
        self.send_record_six(
            now,
            &custodian,
            lifetime_ms,
            &AdministrativeRecord::CustodySignal(signal),
        );
    }

    /// Sends the aggregate signals.
    pub(super) fn send_signals(&mut self, now: Time) {
        self.timers.cancel(Alarm::Signals);
        for ((custodian, succeeded, reason), numbers) in std::mem::take(&mut self.signals) {
            let reason = CustodyReason::from_code(reason);
            let fills = fills(&numbers);
            let signal = AggregateCustodySignal { succeeded, reason, fills };
            let record = AdministrativeRecord::AggregateCustodySignal(signal);
            self.send_record_six(
                now,
                &custodian,
                self.config.limits.lifetime_ms.min(DAY_MS),
                &record,
            );
        }
    }

    /// Handles the signal of a custodian that accepted or refused custody (RFC 5050 §5.11, §5.12).
    pub(super) fn custody_signal(&mut self, from: &Eid, signal: &CustodySignal) {
        let Subject { source, creation, fragment } = signal.subject.clone();
        let time_ms = creation.time_s.saturating_mul(1000);
        let creation = CreationTimestamp { time_ms, sequence: creation.sequence };
        let key = Key { version: Version::Six, source, creation, fragment };
        let has_it = signal.succeeded || signal.reason == CustodyReason::RedundantReception;
        if let Some(&number) = self.by_key.get(&key) {
            self.custody_reported(number, None, has_it, from);
            return;
        }
        // It may be a part of a complete bundle stored here, or of a longer fragment.
        let Some((offset, len)) = fragment else { return };
        let end = offset.saturating_add(len);
        let parts =
            self.by_key.range(key.whole()..).take_while(|(of, _)| of.whole() == key.whole());
        let holds = |of: &Key| match of.fragment {
            None => Some(0),
            Some((start, len)) => {
                (start <= offset && end <= start.saturating_add(len)).then_some(start)
            }
        };
        let numbers: Vec<_> = parts.filter_map(|(of, n)| Some((*n, holds(of)?))).collect();
        for (number, start) in numbers {
            self.custody_reported(number, Some((offset - start, end - start)), has_it, from);
        }
    }

    /// Handles an aggregate signal, which names bundles by the numbers given here.
    pub(super) fn aggregate_signal(&mut self, from: &Eid, signal: &AggregateCustodySignal) {
        let has_it = signal.succeeded || signal.reason == CustodyReason::RedundantReception;
        let mut at = 0u64;
        for fill in &signal.fills {
            let start = at.saturating_add(fill.start);
            at = start.saturating_add(fill.length);
            let numbers: Vec<u64> =
                self.bundles.range(start..at).map(|(number, _)| *number).collect();
            for number in numbers {
                self.custody_reported(number, None, has_it, from);
            }
        }
    }

    fn custody_reported(
        &mut self,
        number: u64,
        part: Option<(u64, u64)>,
        has_it: bool,
        from: &Eid,
    ) {
        let Some(held) = self.bundles.get_mut(&number) else { return };
        let len = held.payload.len();
        let Some(custody) = &mut held.custody else { return };
        // A custodian without room may have room at the next transmission.
        if !has_it {
            return;
        }
        let (start, end) = part.unwrap_or((0, len));
        custody.taken.insert(start, end.min(len));
        if custody.taken.covered() < len {
            return;
        }
        if let Some(again) = held.custody.take().and_then(|custody| custody.again) {
            self.by_custody.remove(&(again, number));
        }
        let id = held.id();
        self.cancel_sending(number);
        self.user.indicate(Indication::CustodyTaken { id, by: from.node() });
        self.let_go(number);
    }

    /// Starts the custody timer of a bundle that was sent, if this node is its custodian.
    pub(super) fn has_left(&mut self, now: Time, number: u64) {
        let again = now + self.config.custody.retransmit_after;
        let Some(held) = self.bundles.get_mut(&number) else { return };
        let Some(custody) = &mut held.custody else { return };
        if let Some(before) = custody.again.replace(again) {
            self.by_custody.remove(&(before, number));
        }
        self.by_custody.insert((again, number));
        self.custody_alarm();
    }

    fn custody_alarm(&mut self) {
        match self.by_custody.first() {
            Some((at, _)) => self.timers.set(Alarm::Custody, *at, "a custody timeout"),
            None => {
                self.timers.cancel(Alarm::Custody);
            }
        }
    }

    /// Retransmits bundles of which no node accepted custody in time.
    pub(super) fn custody_due(&mut self, now: Time) {
        while let Some(&(at, number)) = self.by_custody.first() {
            if at > now {
                break;
            }
            self.by_custody.pop_first();
            let Some(held) = self.bundles.get_mut(&number) else { continue };
            let Some(custody) = &mut held.custody else { continue };
            custody.again = None;
            if !held.queued.is_empty() || !held.sending.is_empty() || held.waits {
                continue;
            }
            held.parts.clear();
            if custody.taken.covered() > 0 {
                held.parts.insert(Eid::None, custody.taken.clone());
            }
            held.sent.clear();
            self.statistics.resent += 1;
            self.route(now, number);
        }
        self.custody_alarm();
    }
}

/// A day in milliseconds.
const DAY_MS: u64 = 86_400_000;

/// Runs of consecutive numbers, each given by its distance from the end of the previous one.
fn fills(numbers: &BTreeSet<u64>) -> Vec<Fill> {
    let mut runs = Ranges::new();
    numbers.iter().for_each(|number| runs.insert(*number, number.saturating_add(1)));
    let mut before = 0;
    let fill = |(start, end): (u64, u64)| {
        let fill = Fill { start: start - before, length: end - start };
        before = end;
        fill
    };
    runs.iter().map(fill).collect()
}
