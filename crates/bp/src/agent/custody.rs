//! Custody of version 6 bundles (RFC 5050 §5.10 to §5.12): a custodian keeps a bundle until
//! another node accepts custody.
//!
//! A node accepts custody once the bundle is safe in its store, and sends a signal to the previous
//! custodian. A bundle without a signal in time is retransmitted; a custodian that already has it
//! signals redundant reception, which counts as success. Lost signals therefore do no harm.
//!
//! Signals are not authenticated, and end a bundle. They are believed only from where the bundle
//! was sent, as far as its link shows that.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use engine::{Rng, Time};
use session::ranges::Ranges;

use super::head::Key;
use super::held::Custody;
use super::{Agent, Alarm, Believe, Held, Indication, Version};
use crate::codec::bp6::{
    AdministrativeRecord, AggregateCustodySignal, CustodyReason, CustodySignal, Fill, Subject,
};
use crate::codec::bp7::{BundleFlags, Eid, Reason};

/// Most bundles in one aggregate signal.
const AGGREGATE_MAX: usize = 1024;

/// Bundles in custody, and signals to send.
#[derive(Debug)]
pub(super) struct Custodies {
    /// Bundles that were sent, by the time of their retransmission.
    by_time: BTreeSet<(Time, u64)>,
    /// Bundles by the numbers under which custodians may acknowledge them. These are not the
    /// numbers of the store, which strangers can guess.
    by_number: BTreeMap<u64, u64>,
    /// First and next of these numbers.
    numbers: Range<u64>,
    /// Numbers of bundles to signal together, by custodian, success and reason.
    signals: BTreeMap<(Eid, bool, u8), BTreeSet<u64>>,
}

impl Custodies {
    pub(super) fn new(rng: &mut Rng) -> Self {
        // Other implementations have numbers of 32 bits.
        let first = rng.next_u64() >> 33;
        Self {
            by_time: BTreeSet::new(),
            by_number: BTreeMap::new(),
            numbers: first..first,
            signals: BTreeMap::new(),
        }
    }

    /// Gives a bundle in custody a number.
    fn assign(&mut self, number: u64) -> u64 {
        let given = self.numbers.end;
        self.numbers.end += 1;
        self.by_number.insert(given, number);
        given
    }

    /// Removes a bundle.
    pub(super) fn forget(&mut self, number: u64, custody: Option<&Custody>) {
        let Some(custody) = custody else { return };
        if let Some(again) = custody.again {
            self.by_time.remove(&(again, number));
        }
        if let Some(given) = custody.number {
            self.by_number.remove(&given);
        }
    }
}

/// Origin of a custody signal.
#[derive(Clone, Debug)]
pub(super) struct Signaller {
    /// Its source.
    pub(super) source: Eid,
    /// Neighbour over whose link it came, if known.
    pub(super) by: Option<Eid>,
}

impl Agent {
    /// Custody of a bundle under a number.
    pub(super) fn new_custody(&mut self, number: u64) -> Custody {
        let is_numbered = self.core.config.custody.aggregate_after.is_some();
        let given = is_numbered.then(|| self.custodies.assign(number));
        Custody { number: given, ..Custody::default() }
    }

    /// Accepts custody of a bundle to forward, if it requests that and can name this node (RFC 5050
    /// §5.10.1). The previous custodian is signalled when the bundle is safe.
    pub(super) fn take_custody(&mut self, number: u64, held: &mut Held) {
        if !held.head.requests_custody() || !self.core.config.custody.accept {
            return;
        }
        let before = held.head.custodian().clone();
        held.arrival.predecessor = Some((before, held.head.custody_number()));
        if self.core.is_for_us(held.destination()) {
            return;
        }
        match held.head.set_custodian(&self.core.config.node) {
            Ok(()) => held.custody = Some(self.new_custody(number)),
            // A bundle whose endpoints are numbers cannot name a node without one.
            Err(_) => held.arrival.predecessor = None,
        }
    }

    /// Signals to the previous custodian that this node has the bundle, which is safe.
    pub(super) fn signal_predecessor(&mut self, now: Time, number: u64) {
        let Some(held) = self.core.stock.get_mut(number) else { return };
        let Some((custodian, custody_number)) = held.arrival.predecessor.take() else { return };
        let (key, total) = (held.key(), held.head.lifetime_ms());
        self.report(now, number, BundleFlags::REPORT_CUSTODY, Reason::NoInformation);
        self.signal(now, custodian, custody_number, &key, total, CustodyReason::NoInformation);
    }

    /// Signals redundant reception of a bundle that is, or was, here (RFC 5050 §5.6 step 4).
    pub(super) fn signal_redundant(&mut self, now: Time, held: &Held) {
        if held.head.requests_custody() && self.core.config.custody.accept {
            let (custodian, number) = (held.head.custodian().clone(), held.head.custody_number());
            let reason = CustodyReason::RedundantReception;
            self.signal(now, custodian, number, &held.key(), held.head.lifetime_ms(), reason);
        }
    }

    /// Sends a custody signal, or adds it to the aggregate for the same custodian.
    fn signal(
        &mut self,
        now: Time,
        custodian: Eid,
        custody_number: Option<u64>,
        key: &Key,
        lifetime_ms: u64,
        reason: CustodyReason,
    ) {
        if custodian.is_none() || self.core.is_ours(&custodian) {
            return;
        }
        let succeeded = reason == CustodyReason::NoInformation;
        if let (Some(custody_number), Some(after)) =
            (custody_number, self.core.config.custody.aggregate_after)
        {
            let signal_kind = (custodian, succeeded, reason.code());
            let numbers = self.custodies.signals.entry(signal_kind).or_default();
            numbers.insert(custody_number);
            let is_full = numbers.len() >= AGGREGATE_MAX;
            if is_full || self.custodies.signals.len() >= AGGREGATE_MAX {
                self.send_signals(now);
            } else if self.core.timers.get(Alarm::Signals).is_none() {
                self.core.timers.set(Alarm::Signals, now + after, "aggregate custody signals");
            }
            return;
        }
        let Key { source, creation, fragment, .. } = key.clone();
        let subject = Subject { source, creation: creation.into(), fragment };
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
        self.core.timers.cancel(Alarm::Signals);
        for ((custodian, succeeded, reason), numbers) in std::mem::take(&mut self.custodies.signals)
        {
            let reason = CustodyReason::from_code(reason);
            let fills = fills(&numbers);
            let signal = AggregateCustodySignal { succeeded, reason, fills };
            let record = AdministrativeRecord::AggregateCustodySignal(signal);
            self.send_record_six(
                now,
                &custodian,
                self.core.config.limits.lifetime_ms().min(DAY_MS),
                &record,
            );
        }
    }

    /// Handles the signal of a custodian that accepted or refused custody (RFC 5050 §5.11, §5.12).
    pub(super) fn custody_signal(&mut self, from: &Signaller, signal: &CustodySignal) {
        let Subject { source, creation, fragment } = signal.subject.clone();
        let key = Key { version: Version::Six, source, creation: creation.into(), fragment };
        let has_it = signal.succeeded || signal.reason == CustodyReason::RedundantReception;
        if let Some(&number) = self.core.stock.by_key.get(&key) {
            self.custody_reported(number, None, has_it, from);
            return;
        }
        // It may be a part of a bundle that is whole here, or of a longer fragment.
        let Some((offset, len)) = fragment else { return };
        let end = offset.saturating_add(len);
        let parts = self
            .core
            .stock
            .by_key
            .range(key.whole()..)
            .take_while(|(of, _)| of.whole() == key.whole());
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

    /// Handles an aggregate signal, which names bundles by the numbers given here. One with other
    /// numbers is not believed at all.
    pub(super) fn aggregate_signal(&mut self, from: &Signaller, signal: &AggregateCustodySignal) {
        if self.custodies.numbers.is_empty() {
            return self.ignore_signal(from, "no bundle was sent with a number");
        }
        let has_it = signal.succeeded || signal.reason == CustodyReason::RedundantReception;
        let given = &self.custodies.numbers;
        let mut last = 0u64;
        let mut numbers = Vec::new();
        for fill in &signal.fills {
            let start = last.saturating_add(fill.start);
            let end = start.saturating_add(fill.length);
            last = end.saturating_sub(1);
            if start < given.start || given.end < end {
                return self.ignore_signal(from, "no bundle was sent with some of its numbers");
            }
            numbers.extend(self.custodies.by_number.range(start..end).map(|(_, number)| *number));
        }
        for number in numbers {
            self.custody_reported(number, None, has_it, from);
        }
    }

    /// Counts a signal that is not believed.
    fn ignore_signal(&mut self, from: &Signaller, why: &'static str) {
        self.core.statistics.signals_ignored += 1;
        let count = self.core.statistics.signals_ignored;
        // The more there were, the fewer are indicated.
        if count.is_power_of_two() {
            let (source, by) = (from.source.clone(), from.by.clone());
            self.core.user.indicate(Indication::SignalIgnored { source, by, why, count });
        }
    }

    /// Whether a signal about a bundle is believed.
    fn believes(&self, held: &Held, custody: &Custody, from: &Signaller) -> bool {
        let source = from.source.node();
        let is_named = custody.given.contains(&source)
            || (!custody.given.is_empty() && held.destination().node() == source);
        match (self.core.config.custody.believe, &from.by) {
            (_, Some(by)) => is_named || custody.given.contains(by),
            (Believe::Links, None) => false,
            (Believe::Sources, None) => is_named,
        }
    }

    fn custody_reported(
        &mut self,
        number: u64,
        part: Option<(u64, u64)>,
        has_it: bool,
        from: &Signaller,
    ) {
        let Some(held) = self.core.stock.get(number) else { return };
        let Some(custody) = &held.custody else { return };
        if !self.believes(held, custody, from) {
            return self.ignore_signal(from, "the bundle was not sent there");
        }
        let Some(held) = self.core.stock.get_mut(number) else { return };
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
        let custody = held.custody.take();
        self.custodies.forget(number, custody.as_ref());
        let id = held.id();
        self.core.cancel_sending(number);
        self.core.user.indicate(Indication::CustodyTaken { id, by: from.source.node() });
        self.let_go(number);
    }

    /// Starts the custody timer of a bundle that was sent, if this node is its custodian.
    pub(super) fn await_custody(&mut self, now: Time, number: u64) {
        let again = now + self.core.config.custody.retransmit_after;
        let Some(held) = self.core.stock.get_mut(number) else { return };
        let Some(custody) = &mut held.custody else { return };
        if let Some(before) = custody.again.replace(again) {
            self.custodies.by_time.remove(&(before, number));
        }
        self.custodies.by_time.insert((again, number));
        self.custody_alarm();
    }

    fn custody_alarm(&mut self) {
        let at = self.custodies.by_time.first().map(|(at, _)| *at);
        self.core.timers.set_or_cancel(Alarm::Custody, at, "a custody timeout");
    }

    /// Retransmits bundles of which no node accepted custody in time.
    pub(super) fn custody_due(&mut self, now: Time) {
        while let Some(&(at, number)) = self.custodies.by_time.first() {
            if at > now {
                break;
            }
            self.custodies.by_time.pop_first();
            let Some(held) = self.core.stock.get_mut(number) else { continue };
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
            self.core.statistics.resent += 1;
            self.forwarder.route(&mut self.core, now, number);
        }
        self.custody_alarm();
    }
}

/// A day in milliseconds.
const DAY_MS: u64 = 86_400_000;

/// Runs of consecutive numbers, each given by its distance from the last number of the previous
/// one, as ION, HDTN and DTNME write them.
fn fills(numbers: &BTreeSet<u64>) -> Vec<Fill> {
    let mut runs = Ranges::new();
    numbers.iter().for_each(|number| runs.insert(*number, number.saturating_add(1)));
    let mut last = 0;
    let fill = |(start, end): (u64, u64)| {
        let fill = Fill { start: start - last, length: end - start };
        last = end - 1;
        fill
    };
    runs.iter().map(fill).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirements: G02.
    #[test]
    fn runs_of_numbers_are_those_of_other_implementations() {
        let fill = |start, length| Fill { start, length };
        assert_eq!(fills(&[4, 5, 6, 9].into()), [fill(4, 3), fill(3, 1)]);
        assert_eq!(fills(&[0, 2].into()), [fill(0, 1), fill(2, 1)]);
    }
}
