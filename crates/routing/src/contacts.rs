//! Contact plans: contacts between nodes, with their rates, and the light times between nodes
//! (CCSDS 734.3-B-1 §2.3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engine::Time;
use thiserror::Error;

/// Identifier of a contact, which it keeps when the plan changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContactId(pub(super) u32);

/// A node of the `ipn` scheme, with the allocator in the upper 32 bits (RFC 9758 §4).
pub type NodeNumber = u64;

/// Interval in which one node can send to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contact {
    /// Sending node.
    pub from: NodeNumber,
    /// Receiving node.
    pub to: NodeNumber,
    /// Begin.
    pub start: Time,
    /// End.
    pub end: Time,
    /// Transmission rate in bit/s.
    pub rate_bps: u64,
    /// Probability that the contact takes place, from 0 to 1.
    pub confidence: f64,
}

impl Contact {
    /// Transmission time of `bytes` bytes, rounded up to nanoseconds.
    #[must_use]
    pub fn transmission_time(&self, bytes: u64) -> Duration {
        // 1,000,000 bytes at 115,200 bit/s: 8e6 * 1e9 / 115,200 = 69.4 s.
        let bits = u128::from(bytes) * 8_000_000_000;
        let nanos = bits.div_ceil(u128::from(self.rate_bps.max(1)));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Volume in bytes.
    #[must_use]
    pub fn volume(&self) -> u64 {
        let nanos = u128::from(self.end.as_nanos() - self.start.as_nanos());
        u64::try_from(nanos * u128::from(self.rate_bps) / 8_000_000_000).unwrap_or(u64::MAX)
    }
}

/// One-way light time from one node to another in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Sending node.
    pub from: NodeNumber,
    /// Receiving node.
    pub to: NodeNumber,
    /// Begin.
    pub start: Time,
    /// End.
    pub end: Time,
    /// One-way light time.
    pub owlt: Duration,
}

/// Begin of a contact or range in nanoseconds from [`Time::ZERO`] of the plan, negative before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Begin(pub i128);

impl Begin {
    /// Time of the plan, in which an earlier one is [`Time::ZERO`].
    #[must_use]
    pub fn time(self) -> Time {
        Time::from_nanos(u64::try_from(self.0.max(0)).unwrap_or(u64::MAX))
    }
}

impl From<Time> for Begin {
    fn from(time: Time) -> Self {
        Self(i128::from(time.as_nanos()))
    }
}

/// Begins of what starts at [`Time::ZERO`] in a plan, and began before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Started {
    /// Contacts by pair of nodes.
    pub(super) contacts: BTreeMap<(NodeNumber, NodeNumber), Begin>,
    /// Ranges by pair of nodes.
    pub(super) ranges: BTreeMap<(NodeNumber, NodeNumber), Begin>,
}

/// Error of a contact plan. Contacts and ranges are numbered from 0, in the order given.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    /// A contact that does not end after its begin.
    #[error("contact {0} ends before it begins")]
    ContactEmpty(usize),
    /// A contact of a node with itself.
    #[error("contact {0} joins a node with itself")]
    ContactOfOne(usize),
    /// A contact with rate 0.
    #[error("contact {0} has no rate")]
    ContactWithoutRate(usize),
    /// Two contacts between the same nodes overlap.
    #[error("contacts {0} and {1} join the same nodes and overlap")]
    ContactsOverlap(usize, usize),
    /// A range that does not end after its begin.
    #[error("range {0} ends before it begins")]
    RangeEmpty(usize),
    /// Two ranges between the same nodes overlap.
    #[error("ranges {0} and {1} join the same nodes and overlap")]
    RangesOverlap(usize, usize),
}

/// A valid contact plan, in order. Copies share the contacts until one changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContactPlan {
    /// Ordered by begin.
    contacts: Arc<Vec<Contact>>,
    /// Ranges by pair of nodes, ordered by begin.
    ranges: Arc<BTreeMap<(NodeNumber, NodeNumber), Vec<Range>>>,
    started: Started,
}

impl ContactPlan {
    /// Builds a plan. A range of one direction also applies to the other if that has none; without
    /// any range the light time is 0.
    ///
    /// # Errors
    ///
    /// A contact or range is invalid, or two of them overlap.
    pub fn new(mut contacts: Vec<Contact>, ranges: &[Range]) -> Result<Self, PlanError> {
        check_contacts(&contacts)?;
        let ranges = ordered_ranges(ranges)?;
        contacts.sort_by_key(|c| (c.start, c.end, c.from, c.to));
        let (contacts, ranges) = (Arc::new(contacts), Arc::new(ranges));
        Ok(Self { contacts, ranges, started: Started::default() })
    }

    /// Removes contacts and ranges that ended before a time.
    pub fn forget_before(&mut self, now: Time) {
        Arc::make_mut(&mut self.contacts).retain(|contact| contact.end >= now);
        Arc::make_mut(&mut self.ranges).retain(|_, ranges| {
            ranges.retain(|range| range.end >= now);
            !ranges.is_empty()
        });
        let first = self.contacts.iter().take_while(|contact| contact.start == Time::ZERO);
        let first: BTreeSet<_> = first.map(|contact| (contact.from, contact.to)).collect();
        self.started.contacts.retain(|pair, _| first.contains(pair));
        let ranges = &self.ranges;
        self.started.ranges.retain(|pair, _| {
            let first = ranges.get(pair).and_then(|ranges| ranges.first());
            first.is_some_and(|range| range.start == Time::ZERO)
        });
    }

    /// The plan with the begins of contacts and ranges that began before it.
    pub(super) fn with_started(self, started: Started) -> Self {
        Self { started, ..self }
    }

    pub(super) const fn started(&self) -> &Started {
        &self.started
    }

    /// Contacts, ordered by begin.
    #[must_use]
    pub fn contacts(&self) -> &[Contact] {
        &self.contacts
    }

    /// Ranges by pair of nodes, ordered by begin.
    pub fn ranges(&self) -> impl Iterator<Item = &Range> {
        self.ranges.values().flatten()
    }

    /// One-way light time from `from` to `to` at a time.
    #[must_use]
    pub fn owlt(&self, from: NodeNumber, to: NodeNumber, at: Time) -> Duration {
        let found = |pair| {
            let ranges: &Vec<Range> = self.ranges.get(&pair)?;
            let next = ranges.partition_point(|range| range.end <= at);
            ranges.get(next).filter(|range| range.start <= at).map(|range| range.owlt)
        };
        found((from, to)).or_else(|| found((to, from))).unwrap_or(Duration::ZERO)
    }

    /// Light times during a contact: its begin, then every moment at which the light time changes.
    #[must_use]
    pub fn light_times(&self, contact: &Contact) -> Vec<(Time, Duration)> {
        let pairs = [(contact.from, contact.to), (contact.to, contact.from)];
        let ranges = pairs.iter().filter_map(|pair| self.ranges.get(pair)).flat_map(|ranges| {
            let first = ranges.partition_point(|range| range.end <= contact.start);
            ranges[first..].iter().take_while(|range| range.start < contact.end)
        });
        let mut times: Vec<Time> = ranges.flat_map(|range| [range.start, range.end]).collect();
        times.retain(|time| *time > contact.start && *time < contact.end);
        times.push(contact.start);
        times.sort_unstable();
        let owlt = |at| (at, self.owlt(contact.from, contact.to, at));
        let mut changes: Vec<(Time, Duration)> = times.into_iter().map(owlt).collect();
        changes.dedup_by_key(|(_, owlt)| *owlt);
        changes
    }
}

fn check_contacts(contacts: &[Contact]) -> Result<(), PlanError> {
    let mut order: Vec<usize> = (0..contacts.len()).collect();
    order.sort_by_key(|&n| (contacts[n].from, contacts[n].to, contacts[n].start));
    for (place, &n) in order.iter().enumerate() {
        let contact = &contacts[n];
        if contact.start >= contact.end {
            return Err(PlanError::ContactEmpty(n));
        }
        if contact.from == contact.to {
            return Err(PlanError::ContactOfOne(n));
        }
        if contact.rate_bps == 0 {
            return Err(PlanError::ContactWithoutRate(n));
        }
        if let Some(&before) = place.checked_sub(1).and_then(|before| order.get(before)) {
            let other = &contacts[before];
            if (other.from, other.to) == (contact.from, contact.to) && other.end > contact.start {
                return Err(PlanError::ContactsOverlap(before.min(n), before.max(n)));
            }
        }
    }
    Ok(())
}

fn ordered_ranges(
    ranges: &[Range],
) -> Result<BTreeMap<(NodeNumber, NodeNumber), Vec<Range>>, PlanError> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|&n| (ranges[n].from, ranges[n].to, ranges[n].start));
    let mut by_pair: BTreeMap<_, Vec<Range>> = BTreeMap::new();
    let mut before = None;
    for n in order {
        let range = ranges[n];
        if range.start >= range.end {
            return Err(PlanError::RangeEmpty(n));
        }
        let of_pair = by_pair.entry((range.from, range.to)).or_default();
        if let (Some(last), Some(before)) = (of_pair.last(), before)
            && last.end > range.start
        {
            return Err(PlanError::RangesOverlap(n.min(before), n.max(before)));
        }
        of_pair.push(range);
        before = Some(n);
    }
    Ok(by_pair)
}
