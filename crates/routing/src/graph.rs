//! A contact plan as a graph: contacts by pair of nodes, in the order of time.

use std::collections::BTreeMap;

use super::booking::Bookings;
use super::contacts::{Contact, ContactId, ContactPlan, NodeNumber};
use super::settings::{LightTime, Queueing, Settings};

/// Index of a contact in [`Graph::slots`].
pub(super) type SlotIndex = u32;
/// Index of a node in [`Graph::nodes`].
pub(super) type NodeIndex = u32;

/// Light times of a contact.
#[derive(Clone, Debug)]
enum Light {
    Constant(u64),
    Steps(Box<[Step]>),
}

/// Light time from a moment on.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: u64,
    light: u64,
    /// Latest arrival of what was sent before.
    floor: u64,
}

impl Light {
    /// Arrival of a byte sent at `at`. None overtakes another.
    fn arrival(&self, at: u64) -> u64 {
        match self {
            Self::Constant(light) => at.saturating_add(*light),
            Self::Steps(steps) => {
                let next = steps.partition_point(|step| step.from <= at);
                let step = next.checked_sub(1).and_then(|last| steps.get(last));
                step.map_or(at, |step| at.saturating_add(step.light).max(step.floor))
            }
        }
    }

    /// Last moment of sending for an arrival by `deadline`.
    fn departure(&self, deadline: u64) -> Option<u64> {
        match self {
            Self::Constant(light) => deadline.checked_sub(*light),
            Self::Steps(steps) => {
                let mut until = u64::MAX;
                for step in steps.iter().rev() {
                    if step.floor <= deadline
                        && let Some(at) = deadline.checked_sub(step.light)
                        && at.min(until) >= step.from
                    {
                        return Some(at.min(until));
                    }
                    until = step.from.saturating_sub(1);
                }
                None
            }
        }
    }

    fn least(&self) -> u64 {
        match self {
            Self::Constant(light) => *light,
            Self::Steps(steps) => steps.iter().map(|step| step.light).min().unwrap_or_default(),
        }
    }
}

/// A bundle, as contacts carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// Estimated volume consumption in bytes; 0 for a search by time alone.
    pub(super) volume: u64,
    /// Index of its priority.
    pub(super) level: usize,
    /// Whether it may leave in parts.
    pub(super) partial: bool,
    /// Whether bookings of later contacts delay it.
    pub(super) queues: Queueing,
}

/// Passage of a bundle over a contact, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    /// Departure of the first byte.
    pub(super) first: u64,
    /// Departure of the last byte.
    pub(super) last: u64,
    /// Arrival of the last byte, with the margin.
    pub(super) arrives: u64,
}

/// A contact.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) id: ContactId,
    /// Place in the order of the plan.
    pub(super) rank: u32,
    pub(super) pair: u32,
    pub(super) has_failed: bool,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) rate_bps: u64,
    light: Light,
    pub(super) bookings: Option<Box<Bookings>>,
}

impl Slot {
    /// Transmission time of `bytes`, rounded up.
    pub(super) fn duration(&self, bytes: u64) -> u64 {
        let rate = self.rate_bps.max(1);
        match bytes.checked_mul(8_000_000_000) {
            Some(scaled) => scaled.div_ceil(rate),
            None => {
                let exact = (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(rate));
                u64::try_from(exact).unwrap_or(u64::MAX)
            }
        }
    }

    pub(super) fn volume(&self) -> u64 {
        self.bytes_in(self.end - self.start)
    }

    /// Bytes sent in `nanos`.
    pub(super) fn bytes_in(&self, nanos: u64) -> u64 {
        let bytes = u128::from(nanos) * u128::from(self.rate_bps) / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Bytes that bookings leave to a priority: the maximum transmission volume of §3.2.6.8.8.
    pub(super) fn volume_left(&self, level: usize) -> u64 {
        let booked = self.bookings.as_ref().map_or(0, |bookings| bookings.bytes(level));
        self.volume().saturating_sub(booked)
    }

    /// Bookings, if they concern a load.
    fn booked(&self, load: &Load) -> Option<&Bookings> {
        self.bookings.as_deref().filter(|_| load.volume > 0)
    }

    /// Whether what is left is enough, for a contact whose bookings only take volume.
    fn has_volume(&self, load: &Load) -> bool {
        let least = if load.partial { 1 } else { load.volume };
        self.booked(load).is_none() || self.volume_left(load.level) >= least
    }

    /// Passage of a load that is ready at `at`.
    pub(super) fn passage(&self, at: u64, load: &Load, is_first: bool) -> Option<Passage> {
        if self.has_failed {
            return None;
        }
        let length = self.duration(load.volume);
        let mut first = at.max(self.start);
        if let Some(bookings) = self.booked(load) {
            if is_first || load.queues == Queueing::Every {
                // A part leaves in the first free moment.
                let needed = if load.partial { 1 } else { length };
                first = bookings.gap(load.level, first, needed);
            } else if !self.has_volume(load) {
                return None;
            }
        }
        let last = first.saturating_add(length);
        let fits = match (load.partial, load.volume) {
            (true, 1..) => first < self.end,
            (true, 0) | (false, _) => last <= self.end,
        };
        fits.then(|| Passage { first, last, arrives: self.light.arrival(last) })
    }

    /// Last moment at which a load has to be ready to arrive by `deadline`, on a later contact of
    /// a route.
    fn latest(&self, deadline: u64, load: &Load) -> Option<u64> {
        if self.has_failed {
            return None;
        }
        let length = self.duration(load.volume);
        let last = self.light.departure(deadline)?;
        let at = if load.partial && load.volume > 0 {
            let at = last.checked_sub(length)?.min(self.end.checked_sub(1)?);
            match self.booked(load) {
                Some(bookings) if load.queues == Queueing::Every => {
                    bookings.last_gap(load.level, at.saturating_add(1), 1)?
                }
                Some(_) | None => at,
            }
        } else {
            let last = last.min(self.end);
            match self.booked(load) {
                Some(bookings) if load.queues == Queueing::Every => {
                    bookings.last_gap(load.level, last, length)?
                }
                Some(_) | None => last.checked_sub(length)?,
            }
        };
        let counts_volume = load.queues == Queueing::First;
        (at >= self.start && (!counts_volume || self.has_volume(load))).then_some(at)
    }
}

/// Contacts from one node to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) from: NodeIndex,
    pub(super) to: NodeIndex,
    /// First slot that is not over.
    live: SlotIndex,
    end: SlotIndex,
    /// Least light time of all contacts.
    pub(super) light_min: u64,
}

/// The graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    /// Numbers of nodes, in order.
    pub(super) nodes: Vec<NodeNumber>,
    pub(super) slots: Vec<Slot>,
    starts: Vec<u64>,
    ends: Vec<u64>,
    pub(super) pairs: Vec<Pair>,
    /// Range of pairs from each node.
    from: Vec<(u32, u32)>,
    /// Pairs by their second node, and the range of each node among them.
    to: (Vec<u32>, Vec<(u32, u32)>),
    by_id: BTreeMap<ContactId, SlotIndex>,
}

impl Graph {
    /// Graph of a plan, whose contacts have these identifiers.
    pub(super) fn new(plan: &ContactPlan, ids: &[ContactId], settings: &Settings) -> Self {
        let contacts = plan.contacts();
        let least = settings.confidence_min as f64 / 100.0;
        let mut order: Vec<usize> =
            (0..contacts.len()).filter(|&n| contacts[n].confidence >= least).collect();
        order.sort_by_key(|&n| (contacts[n].from, contacts[n].to, contacts[n].start));
        let mut nodes: Vec<NodeNumber> =
            contacts.iter().flat_map(|contact| [contact.from, contact.to]).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let mut graph = Self { nodes, ..Self::default() };
        for n in order {
            let Some((contact, id)) = contacts.get(n).zip(ids.get(n)) else { continue };
            let light = light(plan, contact, settings);
            graph.add(contact, *id, n as u32, light);
        }
        graph.index();
        graph
    }

    fn add(&mut self, contact: &Contact, id: ContactId, rank: u32, light: Light) {
        let (Some(from), Some(to)) = (self.node(contact.from), self.node(contact.to)) else {
            return;
        };
        let slot = self.slots.len() as SlotIndex;
        let is_same = |pair: &&mut Pair| (pair.from, pair.to) == (from, to);
        match self.pairs.last_mut().filter(is_same) {
            Some(pair) => {
                pair.end = slot + 1;
                pair.light_min = pair.light_min.min(light.least());
            }
            None => {
                let light_min = light.least();
                self.pairs.push(Pair { from, to, live: slot, end: slot + 1, light_min });
            }
        }
        let (start, end) = (contact.start.as_nanos(), contact.end.as_nanos());
        self.by_id.insert(id, slot);
        self.starts.push(start);
        self.ends.push(end);
        self.slots.push(Slot {
            id,
            rank,
            pair: self.pairs.len() as u32 - 1,
            has_failed: false,
            start,
            end,
            rate_bps: contact.rate_bps,
            light,
            bookings: None,
        });
    }

    fn index(&mut self) {
        let count = self.nodes.len();
        let ranges = |nodes: &mut dyn Iterator<Item = NodeIndex>| {
            let mut ranges = vec![(0, 0); count];
            for (node, place) in nodes.zip(0..) {
                let range: &mut (u32, u32) = &mut ranges[node as usize];
                if range.1 == 0 {
                    range.0 = place;
                }
                range.1 = place + 1;
            }
            ranges
        };
        self.from = ranges(&mut self.pairs.iter().map(|pair| pair.from));
        let mut to: Vec<u32> = (0..self.pairs.len() as u32).collect();
        to.sort_by_key(|&n| self.pairs[n as usize].to);
        let by_node = ranges(&mut to.iter().map(|&n| self.pairs[n as usize].to));
        self.to = (to, by_node);
    }

    pub(super) fn node(&self, number: NodeNumber) -> Option<NodeIndex> {
        self.nodes.binary_search(&number).ok().map(|index| index as NodeIndex)
    }

    pub(super) fn slot(&self, index: SlotIndex) -> &Slot {
        &self.slots[index as usize]
    }

    pub(super) fn pair_of(&self, slot: SlotIndex) -> &Pair {
        &self.pairs[self.slot(slot).pair as usize]
    }

    pub(super) fn by_id(&self, id: ContactId) -> Option<SlotIndex> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn by_id_mut(&mut self, id: ContactId) -> Option<&mut Slot> {
        let slot = self.by_id(id)?;
        self.slots.get_mut(slot as usize)
    }

    /// Pairs from a node.
    pub(super) fn out(&self, node: NodeIndex) -> &[Pair] {
        let (first, end) = self.from.get(node as usize).copied().unwrap_or_default();
        &self.pairs[first as usize..end as usize]
    }

    /// Pairs to a node.
    pub(super) fn into(&self, node: NodeIndex) -> impl Iterator<Item = &Pair> {
        let (first, end) = self.to.1.get(node as usize).copied().unwrap_or_default();
        self.to.0[first as usize..end as usize].iter().map(|&pair| &self.pairs[pair as usize])
    }

    /// Slots of a pair that do not end before `at`.
    pub(super) fn slots_after(&self, pair: &Pair, at: u64) -> std::ops::Range<SlotIndex> {
        let ends = &self.ends[pair.live as usize..pair.end as usize];
        let next = if ends.first().is_none_or(|end| *end >= at) {
            0
        } else {
            ends.partition_point(|end| *end < at)
        };
        pair.live + next as u32..pair.end
    }

    /// Earliest passage over a pair, on contacts that end at `end_min` or later and are not in
    /// `banned`.
    pub(super) fn passage(
        &self,
        pair: &Pair,
        at: u64,
        end_min: u64,
        banned: &[SlotIndex],
        is_first: bool,
        load: &Load,
    ) -> Option<(SlotIndex, Passage)> {
        let mut best: Option<(SlotIndex, Passage)> = None;
        for slot in self.slots_after(pair, at.max(end_min)) {
            let earliest = self.starts[slot as usize].saturating_add(pair.light_min);
            if best.is_some_and(|(_, known)| known.arrives <= earliest) {
                break;
            }
            if banned.contains(&slot) {
                continue;
            }
            if let Some(passage) = self.slot(slot).passage(at, load, is_first)
                && best.is_none_or(|(_, known)| passage.arrives < known.arrives)
            {
                best = Some((slot, passage));
            }
        }
        best
    }

    /// Last moment, not before `floor`, at which a load has to be ready to arrive over a pair by
    /// `deadline`, on contacts that end at `end_min` or later.
    pub(super) fn latest(
        &self,
        pair: &Pair,
        deadline: u64,
        floor: u64,
        end_min: u64,
        load: &Load,
    ) -> Option<u64> {
        let starts = &self.starts[pair.live as usize..pair.end as usize];
        let last = deadline.checked_sub(pair.light_min)?;
        let until = pair.live + starts.partition_point(|start| *start <= last) as u32;
        for slot in (pair.live..until).rev() {
            if self.ends[slot as usize] < floor.max(end_min) {
                return None;
            }
            // An earlier contact has to be reached earlier.
            if let Some(at) = self.slot(slot).latest(deadline, load) {
                return (at >= floor).then_some(at);
            }
        }
        None
    }

    /// Current or next contact of a pair.
    pub(super) fn next(&self, pair: &Pair, now: u64) -> Option<SlotIndex> {
        self.slots_after(pair, now.saturating_add(1)).next()
    }

    pub(super) fn pair(&self, from: NodeIndex, to: NodeIndex) -> Option<&Pair> {
        self.out(from).iter().find(|pair| pair.to == to)
    }

    /// Skips contacts that are over.
    pub(super) fn forget_before(&mut self, now: u64) {
        for pair in &mut self.pairs {
            while pair.live < pair.end && self.ends[pair.live as usize] <= now {
                self.slots[pair.live as usize].bookings = None;
                pair.live += 1;
            }
        }
    }
}

/// Light times of a contact, with the margin.
fn light(plan: &ContactPlan, contact: &Contact, settings: &Settings) -> Light {
    let mut changes = plan.light_times(contact);
    if settings.light_time == LightTime::Start {
        changes.truncate(1);
    }
    let mut steps: Vec<Step> = Vec::new();
    for (time, owlt) in changes {
        let light = settings.with_margin(u64::try_from(owlt.as_nanos()).unwrap_or(u64::MAX));
        let from = time.as_nanos();
        let floor = steps.last().map_or(0, |before| {
            before.floor.max(from.saturating_sub(1).saturating_add(before.light))
        });
        steps.push(Step { from, light, floor });
    }
    match steps.as_slice() {
        [] => Light::Constant(0),
        [only] => Light::Constant(only.light),
        [..] => Light::Steps(steps.into()),
    }
}
