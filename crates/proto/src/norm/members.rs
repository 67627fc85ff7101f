//! The receivers that a sender heard of, and what they acknowledged (RFC 5740 §5.5.3).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use engine::Time;
use wire::norm::NodeId;

/// The receivers of a sender.
#[derive(Debug, Default)]
pub(crate) struct Members {
    received: BTreeMap<NodeId, Member>,
    /// How often receivers that were not heard of were asked, as long as nobody new was.
    unheard: Polls,
    /// Whether there were more than are remembered.
    are_more: bool,
}

/// A receiver that was heard of.
#[derive(Debug, Default)]
struct Member {
    /// The last object that it acknowledged, and with that all before.
    through: Option<u64>,
    /// The first object that it heard of, if it says so: it acknowledges nothing before.
    first: Option<u16>,
    polls: Polls,
    /// When it was last heard.
    received_at: Time,
}

/// Questions to which no answer came.
#[derive(Clone, Copy, Debug, Default)]
struct Polls {
    count: u32,
    /// When the first of them was sent.
    since: Option<Time>,
    /// After how many of them the receiver was received, with something else.
    ignored: u32,
    /// Whether it was not received since the last one.
    is_open: bool,
}

/// How long a receiver that does not answer is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Persistence {
    /// So often at the least,
    pub(crate) polls: u32,
    /// and so long since it was last received.
    pub(crate) patience: Duration,
    /// Time for which a receiver is polled that is received and ignores it.
    pub(crate) refusal: Duration,
}

/// Who has an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Receivers that should have it.
    pub(crate) expected: u32,
    /// Those that answered, whether they have it or say that they began after it.
    pub(crate) answered: u32,
    /// Those that have it.
    pub(crate) have: u32,
}

impl Standing {
    /// Whether nobody is left to be asked.
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

    /// The receiver was received, whatever it sent.
    fn passed(&mut self) {
        self.ignored += u32::from(std::mem::take(&mut self.is_open));
    }

    /// Whether a receiver that was last received at `received_at` was asked for long enough.
    fn is_in_vain(&self, received_at: Time, now: Time, most: Persistence) -> bool {
        let Some(since) = self.since.filter(|_| self.count >= most.polls) else { return false };
        let is_silent = now.since(since.max(received_at)) >= most.patience;
        let refuses = self.ignored >= most.polls && now.since(since) >= most.refusal;
        is_silent || refuses
    }

    /// The path was down for some time.
    fn shift(&mut self, away: Duration) {
        self.since = self.since.map(|since| since + away);
    }
}

impl Members {
    /// The same receivers, of which none acknowledged anything.
    pub(crate) fn afresh(&self) -> Self {
        let received = self.received.keys().map(|node| (*node, Member::default())).collect();
        Self { received, unheard: Polls::default(), are_more: self.are_more }
    }

    /// What all receivers acknowledged, if those are as many as there should be.
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

    pub(crate) fn memory(&self) -> usize {
        self.received.len() * (size_of::<Member>() + size_of::<NodeId>())
    }

    /// Those that were heard of.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.received.keys().copied()
    }

    /// A receiver was heard; whether it is one that was heard before.
    pub(crate) fn received(&mut self, node: NodeId, now: Time) -> bool {
        let Some(member) = self.received.get_mut(&node) else { return false };
        member.received_at = now;
        member.polls.passed();
        true
    }

    /// Nobody could be received for some time.
    pub(crate) fn shift(&mut self, away: Duration) {
        self.unheard.shift(away);
        for member in self.received.values_mut() {
            member.received_at += away;
            member.polls.shift(away);
        }
    }

    /// A receiver was heard for the first time.
    pub(crate) fn insert(&mut self, node: NodeId, now: Time) {
        self.received.insert(node, Member { received_at: now, ..Member::default() });
        self.unheard = Polls::default();
    }

    /// There are more receivers than are remembered: forgets the one that was not heard for the longest
    /// time, and not since a moment, of those that never acknowledged anything. `None` if none is such.
    pub(crate) fn make_room(&mut self, since: Time) -> Option<NodeId> {
        self.are_more = true;
        let silent = self.received.iter().filter(|(_, member)| member.through.is_none());
        let least = silent.min_by_key(|(_, member)| member.received_at);
        let node = least.filter(|(_, member)| member.received_at < since).map(|(node, _)| *node)?;
        self.remove(node);
        Some(node)
    }

    /// Forgets a receiver.
    pub(crate) fn remove(&mut self, node: NodeId) {
        self.received.remove(&node);
    }

    /// Whether there were more receivers than are remembered.
    pub(crate) fn are_more(&self) -> bool {
        self.are_more
    }

    /// A receiver has everything up to an object, from `first` on if it says so; whether that is news.
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

    /// A receiver asks for something of an object: it has neither that nor what follows.
    pub(crate) fn lacks(&mut self, node: NodeId, object: u64) {
        let Some(member) = self.received.get_mut(&node) else { return };
        if member.through >= Some(object) {
            member.through = object.checked_sub(1);
        }
        member.polls = Polls::default();
    }

    /// The next receivers to be asked for what comes up to an object, behind `after`, at most `max`;
    /// with `whoever`, the first is [`NodeId::NONE`], which stands for all.
    pub(crate) fn to_ask(
        &self,
        through: u64,
        whoever: bool,
        (now, most): (Time, Persistence),
        (after, max): (Option<NodeId>, usize),
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

    /// Receivers were asked.
    pub(crate) fn requested(&mut self, nodes: &[NodeId], now: Time) {
        for node in nodes {
            match self.received.get_mut(node) {
                Some(member) => member.polls.requested(now),
                None => self.unheard.requested(now),
            }
        }
    }

    /// Whether there are more receivers than were heard of.
    pub(crate) fn expects_others(&self, receivers: u32) -> bool {
        self.received.is_empty() || self.len() < receivers
    }

    /// Who has an object, of at least so many receivers.
    pub(crate) fn standing(&self, object: u64, receivers: u32) -> Standing {
        let mut standing = Standing { expected: self.len().max(receivers), answered: 0, have: 0 };
        for member in self.received.values().filter(|member| member.through >= Some(object)) {
            standing.answered += 1;
            // A receiver that was started again does not know what came before.
            let began_after = |first: u16| (object as u16).wrapping_sub(first) >= 0x8000;
            standing.have += u32::from(!member.first.is_some_and(began_after));
        }
        standing
    }

    /// Whether those that have not acknowledged an object were asked for long enough.
    pub(crate) fn is_in_vain(
        &self,
        object: u64,
        receivers: u32,
        (now, most): (Time, Persistence),
    ) -> bool {
        let mut missing = self.received.values().filter(|member| member.through < Some(object));
        missing.all(|member| member.polls.is_in_vain(member.received_at, now, most))
            && (!self.expects_others(receivers) || self.unheard.is_in_vain(Time::ZERO, now, most))
    }

    /// All that was to be sent was sent: forgets those that do not have the last object, because one
    /// that left is not waited for when more is sent.
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
    fn what_is_acknowledged_covers_what_came_before() {
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
    fn who_does_not_answer_is_asked_no_more() {
        let mut members = of_two();
        members.acknowledge(A, 1, None);
        let begin = Time::from_secs(1);
        for second in 1..=4 {
            let now = Time::from_secs(second);
            assert!(!members.is_in_vain(1, 0, (now, MOST)));
            assert_eq!(members.to_ask(1, false, (now, MOST), (None, 9)), [B]);
            members.requested(&[B], now);
        }
        let late = begin + MOST.patience;
        assert!(members.is_in_vain(1, 0, (late, MOST)) && !members.is_in_vain(2, 0, (late, MOST)));
        assert_eq!(members.to_ask(2, false, (late, MOST), (None, 9)), [A]);
        assert!(members.to_ask(2, false, (late, MOST), (Some(A), 9)).is_empty());
        members.lacks(B, 1);
        assert!(!members.is_in_vain(1, 0, (late, MOST)), "it lives");
        members.keep(1);
        assert_eq!(members.iter().collect::<Vec<_>>(), [A]);
    }

    #[test]
    fn silence_counts_from_the_last_message() {
        let mut members = of_two();
        members.acknowledge(A, 1, None);
        let begin = Time::from_secs(1);
        (0..3).for_each(|_| members.requested(&[B], begin));
        // It answered a probe, but no question: one answer may be lost.
        assert!(members.received(B, Time::from_secs(9)));
        let at = |second| (Time::from_secs(second), MOST);
        assert!(!members.is_in_vain(1, 0, at(18)) && members.is_in_vain(1, 0, at(19)));
        // Time in which the path was down does not count.
        members.shift(Duration::from_secs(100));
        assert!(!members.is_in_vain(1, 0, at(118)) && members.is_in_vain(1, 0, at(119)));
        // Who is received after each of several questions does not want to answer them.
        let mut members = of_two();
        members.acknowledge(A, 1, None);
        for second in 1..=3 {
            members.requested(&[B], Time::from_secs(second));
            members.received(B, Time::from_secs(second));
        }
        assert!(!members.is_in_vain(1, 0, at(5)) && members.is_in_vain(1, 0, at(6)));
    }

    #[test]
    fn whoever_was_not_heard_of_is_asked_too() {
        let mut members = of_two();
        let now = Time::from_secs(1);
        assert!(members.expects_others(3) && !members.expects_others(2));
        assert_eq!(members.to_ask(1, true, (now, MOST), (None, 9)), [NodeId::NONE, A, B]);
        assert_eq!(members.to_ask(1, true, (now, MOST), (None, 2)), [NodeId::NONE, A]);
        assert_eq!(members.to_ask(1, true, (now, MOST), (Some(A), 2)), [B]);
        (0..3).for_each(|_| members.requested(&[NodeId::NONE], now));
        [A, B].into_iter().for_each(|node| assert!(members.acknowledge(node, 1, None)));
        let late = now + MOST.patience;
        assert!(members.is_in_vain(1, 3, (late, MOST)));
        members.insert(NodeId(3), late);
        assert!(!members.is_in_vain(1, 4, (late, MOST)), "another may come as well");
    }

    #[test]
    fn who_is_silent_makes_room() {
        let mut members = of_two();
        let [early, late] = [1, 5].map(Time::from_secs);
        assert!(members.received(B, late) && !members.received(NodeId(3), late));
        assert!(!members.are_more());
        assert_eq!(members.make_room(early), Some(A), "it was heard before that");
        assert_eq!(members.make_room(late), None, "the other one was heard since");
        assert!(members.are_more());
        members.acknowledge(B, 1, None);
        assert_eq!(members.make_room(Time::MAX), None, "who acknowledged is kept");
    }
}
