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
use super::source::SendRequest;
use super::stock::Core;
use super::{Alarm, Believe, Held, Indication, Version};
use crate::codec::bp6::{
    AdministrativeRecord, AggregateCustodySignal, CustodyReason, CustodySignal, Fill, Subject,
};
use crate::codec::bp7::Eid;

/// Most bundles in one aggregate signal.
const AGGREGATE_MAX: usize = 1024;

/// Origin of a custody signal.
#[derive(Clone, Debug)]
pub(super) struct Signaller {
    /// Its source.
    pub(super) source: Eid,
    /// Neighbour over whose link it came, if known.
    pub(super) by: Option<Eid>,
}

/// Bundles in custody, and signals to send.
#[derive(Debug)]
pub(super) struct Custodian {
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

impl Custodian {
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
    pub(super) fn forget(&mut self, held: &Held) {
        let Some(custody) = &held.custody else { return };
        if let Some(at) = custody.retransmit_at {
            self.by_time.remove(&(at, held.number));
        }
        if let Some(given) = custody.number {
            self.by_number.remove(&given);
        }
    }

    /// Custody of a bundle under a number.
    pub(super) fn new_custody(&mut self, core: &Core, number: u64) -> Custody {
        let is_numbered = core.config.custody.aggregate_after.is_some();
        let given = is_numbered.then(|| self.assign(number));
        Custody { number: given, ..Custody::default() }
    }

    /// Accepts custody of a bundle to forward, if it requests that and can name this node (RFC 5050
    /// §5.10.1). The previous custodian is signalled when the bundle is safe.
    pub(super) fn take_custody(&mut self, core: &Core, held: &mut Held) {
        if !held.head.requests_custody() || !core.config.custody.accept {
            return;
        }
        let before = held.head.custodian().clone();
        held.arrival.predecessor = Some((before, held.head.custody_number()));
        if core.is_for_us(held.destination()) {
            return;
        }
        match held.head.set_custodian(&core.config.node) {
            Ok(()) => held.custody = Some(self.new_custody(core, held.number)),
            // A bundle whose endpoints are numbers cannot name a node without one.
            Err(_) => held.arrival.predecessor = None,
        }
    }

    /// Signals redundant reception of a bundle that is, or was, here (RFC 5050 §5.6 step 4).
    pub(super) fn signal_redundant(
        &mut self,
        core: &mut Core,
        now: Time,
        held: &Held,
    ) -> Vec<SendRequest> {
        if !held.head.requests_custody() || !core.config.custody.accept {
            return Vec::new();
        }
        let (custodian, number) = (held.head.custodian().clone(), held.head.custody_number());
        self.signal(core, now, custodian, number, held, CustodyReason::RedundantReception)
    }

    /// Custody signal to send now, unless it is added to the aggregate for the same custodian.
    pub(super) fn signal(
        &mut self,
        core: &mut Core,
        now: Time,
        custodian: Eid,
        custody_number: Option<u64>,
        held: &Held,
        reason: CustodyReason,
    ) -> Vec<SendRequest> {
        if custodian.is_none() || core.is_ours(&custodian) {
            return Vec::new();
        }
        let succeeded = reason == CustodyReason::NoInformation;
        if let (Some(number), Some(after)) = (custody_number, core.config.custody.aggregate_after) {
            let signal_kind = (custodian, succeeded, reason.code());
            let numbers = self.signals.entry(signal_kind).or_default();
            numbers.insert(number);
            if numbers.len() >= AGGREGATE_MAX || self.signals.len() >= AGGREGATE_MAX {
                return self.take_due_signals(core);
            }
            if core.timers.get(Alarm::Signals).is_none() {
                core.timers.set(Alarm::Signals, now + after, "aggregate custody signals");
            }
            return Vec::new();
        }
        let Key { source, creation, fragment, .. } = held.key();
        let subject = Subject { source, creation: creation.into(), fragment };
        let signal =
            CustodySignal { subject, succeeded, reason, time: core.clock().version_six_time(now) };
        let record = AdministrativeRecord::CustodySignal(signal);
        SendRequest::version_six_record(&custodian, held.head.lifetime_ms(), &record)
            .into_iter()
            .collect()
    }

    /// Aggregate signals, which are to be sent.
    pub(super) fn take_due_signals(&mut self, core: &mut Core) -> Vec<SendRequest> {
        core.timers.cancel(Alarm::Signals);
        let lifetime_ms = core.config.limits.lifetime_ms().min(DAY_MS);
        let signals = std::mem::take(&mut self.signals).into_iter();
        let signals = signals.filter_map(|((to, succeeded, reason), numbers)| {
            let (reason, fills) = (CustodyReason::from_code(reason), fills(&numbers));
            let signal = AggregateCustodySignal { succeeded, reason, fills };
            let record = AdministrativeRecord::AggregateCustodySignal(signal);
            SendRequest::version_six_record(&to, lifetime_ms, &record)
        });
        signals.collect()
    }

    /// Handles the signal of a custodian that accepted or refused custody (RFC 5050 §5.11, §5.12).
    /// Returns the bundles that others keep now.
    pub(super) fn on_signal(
        &mut self,
        core: &mut Core,
        from: &Signaller,
        signal: &CustodySignal,
    ) -> Vec<u64> {
        let Subject { source, creation, fragment } = signal.subject.clone();
        let key = Key { version: Version::Six, source, creation: creation.into(), fragment };
        let has_it = signal.succeeded || signal.reason == CustodyReason::RedundantReception;
        if let Some(&number) = core.stock.by_key.get(&key) {
            let taken = self.on_custody_reported(core, number, None, has_it, from);
            return taken.into_iter().collect();
        }
        // It may be a part of a bundle that is whole here, or of a longer fragment.
        let Some((offset, len)) = fragment else { return Vec::new() };
        let end = offset.saturating_add(len);
        let parts =
            core.stock.by_key.range(key.whole()..).take_while(|(of, _)| of.whole() == key.whole());
        let holds = |of: &Key| match of.fragment {
            None => Some(0),
            Some((start, len)) => {
                (start <= offset && end <= start.saturating_add(len)).then_some(start)
            }
        };
        let numbers: Vec<_> = parts.filter_map(|(of, n)| Some((*n, holds(of)?))).collect();
        let reported = numbers.into_iter().filter_map(|(number, start)| {
            let part = Some((offset - start, end - start));
            self.on_custody_reported(core, number, part, has_it, from)
        });
        reported.collect()
    }

    /// Handles an aggregate signal, which names bundles by the numbers given here. One with other
    /// numbers is not believed at all. Returns the bundles that others keep now.
    pub(super) fn on_aggregate_signal(
        &mut self,
        core: &mut Core,
        from: &Signaller,
        signal: &AggregateCustodySignal,
    ) -> Vec<u64> {
        if self.numbers.is_empty() {
            self.ignore_signal(core, from, "no bundle was sent with a number");
            return Vec::new();
        }
        let has_it = signal.succeeded || signal.reason == CustodyReason::RedundantReception;
        let given = &self.numbers;
        let mut last = 0u64;
        let mut numbers = Vec::new();
        for fill in &signal.fills {
            let start = last.saturating_add(fill.start);
            let end = start.saturating_add(fill.length);
            last = end.saturating_sub(1);
            if start < given.start || given.end < end {
                self.ignore_signal(core, from, "no bundle was sent with some of its numbers");
                return Vec::new();
            }
            numbers.extend(self.by_number.range(start..end).map(|(_, number)| *number));
        }
        let reported = numbers.into_iter();
        reported
            .filter_map(|number| self.on_custody_reported(core, number, None, has_it, from))
            .collect()
    }

    /// Counts a signal that is not believed.
    fn ignore_signal(&mut self, core: &mut Core, from: &Signaller, why: &'static str) {
        core.statistics.signals_ignored += 1;
        let count = core.statistics.signals_ignored;
        // The more there were, the fewer are indicated.
        if count.is_power_of_two() {
            let (source, by) = (from.source.clone(), from.by.clone());
            core.user.indicate(Indication::SignalIgnored { source, by, why, count });
        }
    }

    /// Whether a signal about a bundle is believed.
    fn believes(core: &Core, held: &Held, custody: &Custody, from: &Signaller) -> bool {
        let source = from.source.node();
        let is_named = custody.given.contains(&source)
            || (!custody.given.is_empty() && held.destination().node() == source);
        match (core.config.custody.believe, &from.by) {
            (_, Some(by)) => is_named || custody.given.contains(by),
            (Believe::Links, None) => false,
            (Believe::Sources, None) => is_named,
        }
    }

    /// Handles that another node has a bundle, or a part of it. Returns the bundle if it need not
    /// be kept any more.
    fn on_custody_reported(
        &mut self,
        core: &mut Core,
        number: u64,
        part: Option<(u64, u64)>,
        has_it: bool,
        from: &Signaller,
    ) -> Option<u64> {
        let held = core.stock.get(number)?;
        if !Self::believes(core, held, held.custody.as_ref()?, from) {
            self.ignore_signal(core, from, "the bundle was not sent there");
            return None;
        }
        let held = core.stock.get_mut(number)?;
        let len = held.payload.len();
        // A custodian without room may have room at the next transmission.
        let custody = held.custody.as_mut().filter(|_| has_it)?;
        let (start, end) = part.unwrap_or((0, len));
        custody.taken.insert(start, end.min(len));
        if custody.taken.covered() < len {
            return None;
        }
        self.forget(held);
        held.custody = None;
        let id = held.id();
        core.cancel_sending(number);
        core.user.indicate(Indication::CustodyTaken { id, by: from.source.node() });
        Some(number)
    }

    /// Starts the custody timer of a bundle that was sent, if this node is its custodian.
    pub(super) fn await_custody(&mut self, core: &mut Core, now: Time, number: u64) {
        let at = now + core.config.custody.retransmit_after;
        let Some(held) = core.stock.get_mut(number) else { return };
        let Some(custody) = &mut held.custody else { return };
        if let Some(before) = custody.retransmit_at.replace(at) {
            self.by_time.remove(&(before, number));
        }
        self.by_time.insert((at, number));
        self.custody_alarm(core);
    }

    fn custody_alarm(&mut self, core: &mut Core) {
        let at = self.by_time.first().map(|(at, _)| *at);
        core.timers.set_or_cancel(Alarm::Custody, at, "a custody timeout");
    }

    /// Bundles to retransmit, because no node accepted custody in time.
    pub(super) fn take_due_bundles(&mut self, core: &mut Core, now: Time) -> Vec<u64> {
        let mut due = Vec::new();
        while let Some(&(at, number)) = self.by_time.first() {
            if at > now {
                break;
            }
            self.by_time.pop_first();
            let Some(held) = core.stock.get_mut(number) else { continue };
            let Some(custody) = &mut held.custody else { continue };
            custody.retransmit_at = None;
            if !held.queued.is_empty() || !held.sending.is_empty() || held.waits {
                continue;
            }
            held.parts.clear();
            if custody.taken.covered() > 0 {
                held.parts.insert(Eid::None, custody.taken.clone());
            }
            held.sent.clear();
            core.statistics.resent += 1;
            due.push(number);
        }
        self.custody_alarm(core);
        due
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
