//! A group: data sent on its path reaches all members; each replies to the sender alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use slowlight_engine::{
    Deadline, Effect, Engine, Input, PathEffect, PathEvent, PathId, PathInfo, PathKind, Receive,
    Time, Timers, Transmit, TxBuf,
};

use crate::framed::messages;
use crate::world::{Note, TICK, World};

/// Group, which every member numbers differently.
const GROUP: [PathId; 4] = [PathId(9), PathId(11), PathId(12), PathId(13)];
/// Sender, as the receivers number it.
const SENDER: PathId = PathId(1);

/// Sends segments to a group, then a flush, and retransmits requested segments.
struct Sender {
    segments: Vec<Vec<u8>>,
    pending: BTreeSet<usize>,
    flushes: u32,
    up: bool,
    mtu: usize,
    repairs: BTreeMap<PathId, u32>,
    timers: Timers<()>,
}

impl Sender {
    fn new(segments: Vec<Vec<u8>>) -> Self {
        let pending = (0..segments.len()).collect();
        let repairs = BTreeMap::new();
        Self { segments, pending, flushes: 3, up: false, mtu: 0, repairs, timers: Timers::new() }
    }
}

impl Engine for Sender {
    type Indication = Note;

    fn handle_input(&mut self, _now: Time, input: Input<'_>) {
        match input {
            Input::Receive(Receive { path, from, bytes, .. }) => {
                // A reply sent to this host alone arrives on its sender's path.
                assert_eq!(path, from);
                assert!(!GROUP.contains(&path));
                *self.repairs.entry(from).or_default() += 1;
                let wanted = bytes.iter().map(|index| usize::from(*index));
                self.pending.extend(wanted.filter(|index| *index < self.segments.len()));
                self.flushes = 3;
            }
            Input::Path(path, PathEvent::Up(info)) if path == GROUP[0] => {
                self.up = true;
                if let PathKind::Datagram { mtu } = info.kind {
                    self.mtu = mtu;
                }
            }
            Input::Path(..) | Input::Done(..) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while self.timers.pop_due(now).is_some() {}
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        if !self.up {
            return None;
        }
        while let Some(&index) = self.pending.first() {
            let segment = &self.segments[index];
            assert!(segment.len() < self.mtu);
            let Some(place) = tx.push(1 + segment.len()) else { break };
            place[0] = index as u8;
            place[1..].copy_from_slice(segment);
            self.pending.pop_first();
        }
        if tx.is_empty() && self.flushes > 0 && self.timers.is_empty() {
            self.flushes -= 1;
            tx.push(1)?[0] = 0xff;
            if self.flushes > 0 {
                self.timers.set((), now + Duration::from_secs(1), "flush");
            }
        }
        tx.transmit(GROUP[0], now)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        None
    }

    fn poll_indication(&mut self) -> Option<Note> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next()
    }
}

/// Joins the group, collects segments and requests missing ones from the sender of a flush.
struct Member {
    group: PathId,
    segments: BTreeMap<u8, Vec<u8>>,
    count: u8,
    requester: Option<PathId>,
    effects: VecDeque<Effect>,
    notes: VecDeque<Note>,
}

impl Member {
    fn new(group: PathId, count: u8) -> Self {
        Self {
            group,
            segments: BTreeMap::new(),
            count,
            requester: None,
            effects: VecDeque::from([Effect::Path(PathEffect::Open { path: group })]),
            notes: VecDeque::new(),
        }
    }
}

impl Engine for Member {
    type Indication = Note;

    fn handle_input(&mut self, _now: Time, input: Input<'_>) {
        let Input::Receive(receive) = input else { return };
        assert_eq!(receive.path, self.group);
        for bytes in receive.datagrams() {
            let Some((index, segment)) = bytes.split_first() else { continue };
            if *index == 0xff {
                // The request goes to the sender of the flush, not to the group.
                self.requester = Some(receive.from);
            } else if self.segments.insert(*index, segment.to_vec()).is_none()
                && self.segments.len() == usize::from(self.count)
            {
                let whole = self.segments.values().flatten().copied().collect();
                self.notes.push_back(Note::Message(whole));
                self.effects.push_back(PathEffect::Close { path: self.group }.into());
            }
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let path = self.requester.take()?;
        let missing = (0..self.count).filter(|index| !self.segments.contains_key(index));
        let missing: Vec<u8> = missing.collect();
        if missing.is_empty() {
            return None;
        }
        tx.push(missing.len())?.copy_from_slice(&missing);
        tx.transmit(path, now)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

#[test]
fn each_member_receives_all_and_requests_from_the_sender_alone() {
    let segments = messages(&[100; 20]);
    let whole: Vec<u8> = segments.concat();
    let mut world = World::default();
    let sender = world.add(Sender::new(segments));
    for (n, group) in GROUP.into_iter().enumerate().skip(1) {
        let member = world.add(Member::new(group, 20));
        world.route(sender, GROUP[0], (member, group), SENDER);
        // The sender numbers each member it receives from.
        let known_as = PathId(100 + n as u32);
        world.route(member, SENDER, (sender, known_as), known_as);
        world.up(member, group, PathInfo::datagram(500));
        world.up(member, SENDER, PathInfo::datagram(500));
        world.up(sender, known_as, PathInfo::datagram(500));
    }
    // Copies go to members 1, 2, 3 in turn: member 1 loses segments 0 and 5, member 3 segment 5.
    world.lose = [0, 15, 17].into();
    world.up(sender, GROUP[0], PathInfo::datagram(500));
    world.run();
    for member in 1..4 {
        assert_eq!(world.nodes[member].notes, [Note::Message(whole.clone())], "member {member}");
    }
    let requests: BTreeSet<_> = world.pulled.iter().filter(|(node, ..)| *node != sender).collect();
    let to_sender = |node: usize, len: usize| (node, SENDER, vec![len]);
    assert_eq!(requests, [&to_sender(1, 2), &to_sender(3, 1)].into());
    let repair = world.pulled.iter().filter(|(node, _, lens)| *node == sender && lens[0] > 1);
    let repaired: usize = repair.map(|(_, _, lens)| lens.len()).sum();
    assert_eq!(repaired, 20 + 2 + 1, "first pass, then requested repairs");
    assert!(world.now > Time::ZERO + TICK);
}
