//! Receivers known to a sender, and their acknowledgements (RFC 5740 §5.5.3).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use engine::Time;

use crate::message::NodeId;

/// Receivers known to a sender.
#[derive(Debug, Default)]
pub(crate) struct Members {
    received: BTreeMap<NodeId, Member>,
    /// Polls of unknown receivers since the last new one.
    unheard: Polls,
    /// Whether there were more receivers than can be remembered.
    pub(crate) are_more: bool,
}

/// Known receiver.
#[derive(Debug, Default)]
struct Member {
    /// Last object that the receiver acknowledged, which includes all before it.
    through: Option<u64>,
    /// First object known to the receiver, if reported: it acknowledges nothing earlier.
    first: Option<u16>,
    polls: Polls,
    /// Time of its last message.
    received_at: Time,
}

/// Unanswered polls.
#[derive(Clone, Copy, Debug, Default)]
struct Polls {
    count: u32,
    /// Time of the first of the unanswered polls.
    since: Option<Time>,
    /// Number of polls after which the receiver sent something else.
    ignored: u32,
    /// Whether the receiver sent nothing since the last poll.
    is_open: bool,
}

/// Limits of polling a receiver that does not acknowledge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Persistence {
    /// Minimum number of polls.
    pub(crate) polls: u32,
    /// Minimum time since the receiver's last message.
    pub(crate) patience: Duration,
    /// Time after which the sender gives up on a receiver that sends other messages but ignores
    /// polls.
    pub(crate) refusal: Duration,
}

/// Number of receivers that have an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Receivers that should have it.
    pub(crate) expected: u32,
    /// Receivers that acknowledged the object, including those that started after it.
    pub(crate) answered: u32,
    /// Receivers that have it.
    pub(crate) have: u32,
}

impl Standing {
    /// Whether no receiver is left to be polled.
    pub(crate) fn is_complete(&self) -> bool {
        self.expected > 0 && self.answered >= self.expected
    }
}

impl Polls {
    fn requested(&mut self, now: Time) {
        self.count = self.count.saturating_add(1);
        self.since.get_or_insert(now);
        self.is_open = true;
    }

    /// Notes that the receiver sent something.
    fn passed(&mut self) {
        self.ignored += u32::from(std::mem::take(&mut self.is_open));
    }

    /// Whether the limits of polling are reached for a receiver whose last message arrived at
    /// `received_at`.
    fn is_in_vain(&self, received_at: Time, now: Time, most: Persistence) -> bool {
        let Some(since) = self.since.filter(|_| self.count >= most.polls) else { return false };
        let is_silent = now.since(since.max(received_at)) >= most.patience;
        let refuses = self.ignored >= most.polls && now.since(since) >= most.refusal;
        is_silent || refuses
    }

    /// Excludes an outage of the path from the time of polling.
    fn shift(&mut self, away: Duration) {
        self.since = self.since.map(|since| since + away);
    }
}

impl Members {
    /// Copy without any acknowledgement.
    pub(crate) fn without_acknowledgements(&self) -> Self {
        let received = self.received.keys().map(|node| (*node, Member::default())).collect();
        Self { received, unheard: Polls::default(), are_more: self.are_more }
    }

    /// Last object acknowledged by all receivers, if there are at least `receivers`.
    pub(crate) fn least(&self, receivers: u32) -> Option<u64> {
        if self.expects_others(receivers) {
            return None;
        }
        self.received.values().map(|member| member.through).min()?
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.received.len()).unwrap_or(u32::MAX)
    }

    /// Known receivers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.received.keys().copied()
    }

    /// Notes a message of a receiver. Returns whether the receiver was known before.
    pub(crate) fn received(&mut self, node: NodeId, now: Time) -> bool {
        let Some(member) = self.received.get_mut(&node) else { return false };
        member.received_at = now;
        member.polls.passed();
        true
    }

    /// Excludes an outage of the path from all waits.
    pub(crate) fn shift(&mut self, away: Duration) {
        self.unheard.shift(away);
        for member in self.received.values_mut() {
            member.received_at += away;
            member.polls.shift(away);
        }
    }

    /// Adds a new receiver.
    pub(crate) fn insert(&mut self, node: NodeId, now: Time) {
        self.received.insert(node, Member { received_at: now, ..Member::default() });
        self.unheard = Polls::default();
    }

    /// Makes room for a receiver: forgets the one silent for the longest time, at least since
    /// `since`, among receivers that never acknowledged. Returns `None` if there is none.
    pub(crate) fn make_room(&mut self, since: Time) -> Option<NodeId> {
        self.are_more = true;
        let silent = self.received.iter().filter(|(_, member)| member.through.is_none());
        let least = silent.min_by_key(|(_, member)| member.received_at);
        let node = least.filter(|(_, member)| member.received_at < since).map(|(node, _)| *node)?;
        self.remove(node);
        Some(node)
    }

    /// Forgets receivers that were silent since `since`, except `node`, and returns them: on a path
    /// to a single receiver they were earlier processes.
    pub(crate) fn replace(&mut self, node: NodeId, since: Time) -> Vec<NodeId> {
        if self.received.len() < 2 {
            return Vec::new();
        }
        let silent = self.received.iter().filter(|(_, member)| member.received_at < since);
        let former: Vec<_> =
            silent.map(|(other, _)| *other).filter(|other| *other != node).collect();
        former.iter().for_each(|other| self.remove(*other));
        former
    }

    /// Forgets a receiver.
    pub(crate) fn remove(&mut self, node: NodeId) {
        self.received.remove(&node);
    }

    /// Notes that a receiver has everything up to an object, starting at `first` if given. Returns
    /// whether that is new.
    pub(crate) fn acknowledge(&mut self, node: NodeId, through: u64, first: Option<u16>) -> bool {
        let Some(member) = self.received.get_mut(&node) else { return false };
        let is_news = member.through < Some(through);
        if is_news {
            member.through = Some(through);
            member.polls = Polls::default();
        }
        member.first = first;
        is_news
    }

    /// Notes that a receiver cannot store an object, and vouches for nothing up to it. Returns
    /// whether that is new.
    pub(crate) fn refuse(&mut self, node: NodeId, object: u64) -> bool {
        self.acknowledge(node, object, Some(object.wrapping_add(1) as u16))
    }

    /// Notes that a receiver requested part of an object: the receiver lacks this object and all
    /// after it.
    pub(crate) fn lacks(&mut self, node: NodeId, object: u64) {
        let Some(member) = self.received.get_mut(&node) else { return };
        if member.through >= Some(object) {
            member.through = object.checked_sub(1);
        }
        member.polls = Polls::default();
    }

    /// Next receivers to poll for everything up to an object: at most `max`, after `after`. With
    /// `whoever`, the first is [`NodeId::NONE`], which addresses any receiver.
    pub(crate) fn to_ask(
        &self,
        through: u64,
        whoever: bool,
        now: Time,
        most: Persistence,
        after: Option<NodeId>,
        max: usize,
    ) -> Vec<NodeId> {
        let whoever = (whoever && after.is_none()).then_some(NodeId::NONE);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let members = self.received.range((from, Bound::Unbounded));
        let missing = members.filter(|(_, member)| {
            member.through < Some(through)
                && !member.polls.is_in_vain(member.received_at, now, most)
        });
        whoever.into_iter().chain(missing.map(|(node, _)| *node)).take(max).collect()
    }

    /// Records that receivers were polled.
    pub(crate) fn requested(&mut self, nodes: &[NodeId], now: Time) {
        for node in nodes {
            match self.received.get_mut(node) {
                Some(member) => member.polls.requested(now),
                None => self.unheard.requested(now),
            }
        }
    }

    /// Whether more receivers are expected than are known.
    pub(crate) fn expects_others(&self, receivers: u32) -> bool {
        self.received.is_empty() || self.len() < receivers
    }

    /// Counts the receivers that have an object, among at least `receivers` receivers.
    pub(crate) fn standing(&self, object: u64, receivers: u32) -> Standing {
        let mut standing = Standing { expected: self.len().max(receivers), answered: 0, have: 0 };
        for member in self.received.values().filter(|member| member.through >= Some(object)) {
            standing.answered += 1;
            // A restarted receiver has no record of earlier objects.
            let began_after = |first: u16| (object as u16).wrapping_sub(first) >= 0x8000;
            standing.have += u32::from(!member.first.is_some_and(began_after));
        }
        standing
    }

    /// Whether all receivers that have not acknowledged an object reached the limits of polling.
    pub(crate) fn is_in_vain(
        &self,
        object: u64,
        receivers: u32,
        now: Time,
        most: Persistence,
    ) -> bool {
        let mut missing = self.received.values().filter(|member| member.through < Some(object));
        missing.all(|member| member.polls.is_in_vain(member.received_at, now, most))
            && (!self.expects_others(receivers) || self.unheard.is_in_vain(Time::ZERO, now, most))
    }

    /// Ends a series of objects: forgets receivers without the last one, so that a receiver that
    /// left does not delay the next series.
    pub(crate) fn keep(&mut self, last: u64) {
        self.received.retain(|_, member| member.through >= Some(last));
        self.unheard = Polls::default();
        self.are_more = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Persistence = Persistence {
        polls: 3,
        patience: Duration::from_secs(10),
        refusal: Duration::from_secs(5),
    };
    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    fn of_two() -> Members {
        let mut members = Members::default();
        [A, B].into_iter().for_each(|node| members.insert(node, Time::ZERO));
        members
    }

    #[test]
    fn acknowledgments_cover_earlier_objects() {
        let mut members = of_two();
        assert!(members.acknowledge(A, 7, None));
        assert!(!members.acknowledge(A, 5, None), "late, and no news");
        assert!(members.acknowledge(B, 5, Some(5)));
        let at = |object| {
            let standing = members.standing(object, 0);
            (standing.answered, standing.have)
        };
        assert_eq!([4, 5, 6, 7, 8].map(at), [(2, 1), (2, 2), (1, 1), (1, 1), (0, 0)]);
        members.lacks(A, 6);
        assert_eq!(members.standing(5, 0), Standing { expected: 2, answered: 2, have: 2 });
        assert_eq!(members.standing(6, 3), Standing { expected: 3, answered: 0, have: 0 });
    }

    #[test]
    fn silent_receivers_are_polled_a_bounded_number_of_times() {
        let mut members = of_two();
        members.acknowledge(A, 1, None);
        let begin = Time::from_secs(1);
        for second in 1..=4 {
            let now = Time::from_secs(second);
            assert!(!members.is_in_vain(1, 0, now, MOST));
            assert_eq!(members.to_ask(1, false, now, MOST, None, 9), [B]);
            members.requested(&[B], now);
        }
        let late = begin + MOST.patience;
        assert!(members.is_in_vain(1, 0, late, MOST) && !members.is_in_vain(2, 0, late, MOST));
        assert_eq!(members.to_ask(2, false, late, MOST, None, 9), [A]);
        assert!(members.to_ask(2, false, late, MOST, Some(A), 9).is_empty());
        members.lacks(B, 1);
        assert!(!members.is_in_vain(1, 0, late, MOST), "it lives");
        members.keep(1);
        assert_eq!(members.iter().collect::<Vec<_>>(), [A]);
    }

    #[test]
    fn silence_counts_from_the_last_message() {
        let mut members = of_two();
        members.acknowledge(A, 1, None);
        let begin = Time::from_secs(1);
        (0..3).for_each(|_| members.requested(&[B], begin));
        // The receiver replied to a probe but not to a poll: one reply may be lost.
        assert!(members.received(B, Time::from_secs(9)));
        let is_in_vain =
            |members: &Members, second| members.is_in_vain(1, 0, Time::from_secs(second), MOST);
        assert!(!is_in_vain(&members, 18) && is_in_vain(&members, 19));
        // Time in which the path was down does not count.
        members.shift(Duration::from_secs(100));
        assert!(!is_in_vain(&members, 118) && is_in_vain(&members, 119));
        // A receiver that is active after each of several polls chooses not to reply.
        let mut members = of_two();
        members.acknowledge(A, 1, None);
        for second in 1..=3 {
            members.requested(&[B], Time::from_secs(second));
            members.received(B, Time::from_secs(second));
        }
        assert!(!is_in_vain(&members, 5) && is_in_vain(&members, 6));
    }

    #[test]
    fn unknown_receivers_are_polled_too() {
        let mut members = of_two();
        let now = Time::from_secs(1);
        assert!(members.expects_others(3) && !members.expects_others(2));
        assert_eq!(members.to_ask(1, true, now, MOST, None, 9), [NodeId::NONE, A, B]);
        assert_eq!(members.to_ask(1, true, now, MOST, None, 2), [NodeId::NONE, A]);
        assert_eq!(members.to_ask(1, true, now, MOST, Some(A), 2), [B]);
        (0..3).for_each(|_| members.requested(&[NodeId::NONE], now));
        [A, B].into_iter().for_each(|node| assert!(members.acknowledge(node, 1, None)));
        let late = now + MOST.patience;
        assert!(members.is_in_vain(1, 3, late, MOST));
        members.insert(NodeId(3), late);
        assert!(!members.is_in_vain(1, 4, late, MOST), "another may come as well");
    }

    #[test]
    fn silent_senders_make_room() {
        let mut members = of_two();
        let [early, late] = [1, 5].map(Time::from_secs);
        assert!(members.received(B, late) && !members.received(NodeId(3), late));
        assert!(!members.are_more);
        assert_eq!(members.make_room(early), Some(A), "its last message is older");
        assert_eq!(members.make_room(late), None, "the other one is active");
        assert!(members.are_more);
        members.acknowledge(B, 1, None);
        assert_eq!(members.make_room(Time::MAX), None, "who acknowledged is kept");
    }
}
