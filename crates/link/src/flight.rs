//! Packets between the near and the far end.

use std::collections::VecDeque;
use std::time::Duration;

use engine::Time;

use crate::room::{is_idle, make_room, room};
use crate::{Damage, LossCause};

/// A packet at the far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure<T> {
    /// Time at which the packet leaves the far end; for a lost packet, the time at which it would
    /// have left.
    pub at: Time,
    /// Time at which it was pushed.
    pub pushed: Time,
    /// Time at which its transmission began.
    pub start: Time,
    /// Bytes of the IP packet.
    pub len: usize,
    /// Packet that was pushed.
    pub item: T,
    /// Fate of the packet.
    pub fate: Fate,
}

/// Fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Arrives unchanged.
    Delivered,
    /// Does not arrive.
    Lost(LossCause),
    /// Arrives with flipped bits; the driver applies them to its bytes.
    Damaged(Damage),
}

/// Packets in propagation, in two queues: packets that keep the order, and packets that others may
/// overtake (delayed, or recovered by an erasure code). Each queue keeps its own order.
#[derive(Debug)]
pub(crate) struct Flight<T> {
    ordered: Lane<T>,
    held: Lane<T>,
    /// Packets pushed so far, and numbers reserved.
    count: u64,
}

/// Packets that do not overtake each other.
#[derive(Debug)]
struct Lane<T> {
    packets: VecDeque<(u64, Departure<T>)>,
    /// Number of packets at the back that [`Flight::next_unreported`] has not returned yet.
    unreported: usize,
    /// Latest arrival so far.
    latest: Time,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self { packets: VecDeque::new(), unreported: 0, latest: Time::ZERO }
    }
}

impl<T> Lane<T> {
    fn push(&mut self, number: u64, mut departure: Departure<T>) {
        self.latest = self.latest.max(departure.at);
        departure.at = self.latest;
        self.unreported += 1;
        make_room(&mut self.packets);
        self.packets.push_back((number, departure));
    }

    /// Returns the arrival time and number of the next packet.
    fn front(&self) -> Option<(Time, u64)> {
        self.packets.front().map(|(number, departure)| (departure.at, *number))
    }

    /// Returns the number of the first packet not yielded yet.
    fn next_unreported(&self) -> Option<u64> {
        let (number, _) = self.packets.get(self.packets.len() - self.unreported)?;
        Some(*number)
    }
}

impl<T> Default for Flight<T> {
    fn default() -> Self {
        Self { ordered: Lane::default(), held: Lane::default(), count: 0 }
    }
}

impl<T> Flight<T> {
    /// Adds a packet that has left the near end. If `held` is given, the packet arrives that much
    /// later.
    pub(crate) fn push(&mut self, departure: Departure<T>, held: Option<Duration>) {
        match held {
            None => self.ordered.push(self.count, departure),
            Some(by) => {
                let at = self.ordered.latest.max(departure.at) + by;
                self.held.push(self.count, Departure { at, ..departure });
            }
        }
        self.count += 1;
    }

    /// Reserves the number of a packet that has left the near end and whose fate is not decided.
    pub(crate) fn reserve(&mut self) -> u64 {
        self.count += 1;
        self.count - 1
    }

    /// Adds a packet with a reserved number, which others may have overtaken.
    pub(crate) fn decide(&mut self, number: u64, departure: Departure<T>) {
        self.held.push(number, departure);
    }

    /// Returns the arrival time of a frame without packet that has left the near end: not before
    /// that of an earlier packet. Later packets do not overtake it.
    pub(crate) fn pass(&mut self, at: Time) -> Time {
        self.ordered.latest = self.ordered.latest.max(at);
        self.ordered.latest
    }

    /// Returns the time of the next arrival.
    pub(crate) fn next(&self) -> Option<Time> {
        self.ordered.front().into_iter().chain(self.held.front()).min().map(|(at, _)| at)
    }

    /// Removes and returns the next packet if it has arrived by `now`.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Departure<T>> {
        let ordered = self.ordered.front();
        let is_held = match (ordered, self.held.front()) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(ordered), Some(held)) => held < ordered,
        };
        let lane = if is_held { &mut self.held } else { &mut self.ordered };
        lane.front().filter(|(at, _)| *at <= now)?;
        let (_, departure) = lane.packets.pop_front()?;
        lane.unreported = lane.unreported.min(lane.packets.len());
        Some(departure)
    }

    /// Returns the next packet, in the order of transmission, that this function has not returned
    /// yet. None follows the packet with the number `undecided`.
    pub(crate) fn next_unreported(&mut self, undecided: Option<u64>) -> Option<&Departure<T>> {
        let (ordered, held) = (self.ordered.next_unreported(), self.held.next_unreported());
        let is_held = match (ordered, held) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(ordered), Some(held)) => held < ordered,
        };
        let number = if is_held { held } else { ordered };
        if undecided.is_some_and(|undecided| number > Some(undecided)) {
            return None;
        }
        let lane = if is_held { &mut self.held } else { &mut self.ordered };
        let (_, departure) = lane.packets.get(lane.packets.len() - lane.unreported)?;
        lane.unreported -= 1;
        Some(departure)
    }

    /// Number of packets that [`next_unreported`](Self::next_unreported) has not returned.
    pub(crate) fn unreported(&self) -> usize {
        self.ordered.unreported + self.held.unreported
    }

    /// Returns its memory in bytes, including growth for the next packet.
    pub(crate) fn memory(&self) -> usize {
        let lanes = [&self.ordered, &self.held];
        let lens = lanes.map(|lane| room(&lane.packets) * size_of::<(u64, Departure<T>)>());
        lens.into_iter().sum()
    }

    /// Releases memory of a flight that was once much longer.
    pub(crate) fn shrink(&mut self) {
        for lane in [&mut self.ordered, &mut self.held] {
            if is_idle(&lane.packets) {
                lane.packets.shrink_to_fit();
            }
        }
    }
}
