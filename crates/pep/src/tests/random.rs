//! Random conversations: received data is a prefix of the sent data, and nothing is left behind.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{PathId, Receive};
use proptest::prelude::*;

use super::super::Config;
use super::desk::Desk;

#[derive(Clone, Debug)]
enum Op {
    Open,
    /// Accepts the n-th requested stream.
    Accept(usize),
    Refuse(usize),
    /// The n-th stream sends some bytes, and may end.
    Send(usize, usize, bool),
    /// It accepts some bytes, then no more.
    Window(usize, usize),
    Down(usize),
    Wait(u64),
    ResetAll,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Open),
        4 => any::<usize>().prop_map(Op::Accept),
        1 => any::<usize>().prop_map(Op::Refuse),
        12 => (any::<usize>(), 0..200_000_usize, prop::bool::weighted(0.2))
            .prop_map(|(which, count, ends)| Op::Send(which, count, ends)),
        8 => (any::<usize>(), prop_oneof![Just(0), 0..100_000_usize])
            .prop_map(|(which, count)| Op::Window(which, count)),
        2 => any::<usize>().prop_map(Op::Down),
        2 => (0..60_u64).prop_map(Op::Wait),
        1 => Just(Op::ResetAll),
    ]
}

/// Bytes `from..from + count` sent on a stream.
fn bytes(path: PathId, from: usize, count: usize) -> Vec<u8> {
    let at = |n: usize| (n as u32).wrapping_add(path.0 << 20).wrapping_mul(0x9e37_79b1) >> 24;
    (from..from + count).map(|n| at(n) as u8).collect()
}

struct Play {
    desk: Desk,
    /// Bytes sent by each stream.
    sent: BTreeMap<PathId, usize>,
    /// Peer of each stream.
    others: BTreeMap<PathId, PathId>,
    opened: BTreeMap<engine::Ticket, PathId>,
    /// Bytes received by each stream and checked.
    right: BTreeMap<PathId, usize>,
}

impl Play {
    fn living(&self) -> Vec<PathId> {
        let living = self.desk.streams.iter().filter(|(_, far)| !far.closed);
        living.map(|(path, _)| *path).collect()
    }

    fn pick(&self, which: usize) -> Option<PathId> {
        let living = self.living();
        (!living.is_empty()).then(|| living[which % living.len()])
    }

    fn ticket(&self, which: usize) -> Option<engine::Ticket> {
        let count = self.desk.requested.len().max(1);
        self.desk.requested.keys().nth(which % count).copied()
    }

    fn step(&mut self, op: &Op, number: u16) {
        match *op {
            Op::Open => {
                let before: Vec<_> = self.desk.requested.keys().copied().collect();
                let path = self.desk.open(number);
                let new = self.desk.requested.keys().find(|ticket| !before.contains(ticket));
                self.opened.extend(new.map(|ticket| (*ticket, path)));
            }
            Op::Accept(which) => {
                let Some(ticket) = self.ticket(which) else { return };
                let far = self.desk.accept(ticket);
                let near = self.opened[&ticket];
                self.others.extend([(near, far), (far, near)]);
                self.desk.work();
            }
            Op::Refuse(which) => {
                self.ticket(which).into_iter().for_each(|ticket| self.desk.refuse(ticket));
            }
            Op::Send(which, count, ends) => {
                let Some(path) = self.pick(which) else { return };
                let count = if self.desk.streams[&path].ends { 0 } else { count };
                let sent = self.sent.entry(path).or_default();
                let bytes = bytes(path, *sent, count);
                *sent += count;
                self.desk.send(path, &bytes, ends);
            }
            Op::Window(which, count) => {
                let Some(path) = self.pick(which) else { return };
                self.desk.streams.get_mut(&path).unwrap().window = count;
                self.desk.work();
            }
            Op::Down(which) => {
                let Some(path) = self.pick(which) else { return };
                self.desk.down(path);
            }
            Op::Wait(seconds) => self.desk.wait(Duration::from_secs(seconds)),
            Op::ResetAll => {
                self.desk.pep.reset_all(self.desk.now);
                self.desk.wait(Duration::ZERO);
                self.desk.work();
                // The driver polls.
                self.desk.event(PathId(u32::MAX), engine::PathEvent::Writable);
            }
        }
        self.check();
    }

    /// Checks that received bytes are a prefix of the sent ones, and that an end follows all of
    /// them.
    fn check(&mut self) {
        for (path, far) in &self.desk.streams {
            let Some(other) = self.others.get(path) else {
                assert!(far.received.is_empty());
                continue;
            };
            let sent = self.sent.get(other).copied().unwrap_or(0);
            assert!(far.received.len() <= sent);
            let right = self.right.entry(*path).or_default();
            let new = &far.received[*right..];
            assert!(new == bytes(*other, *right, new.len()), "{path:?} received wrong bytes");
            *right = far.received.len();
            if far.received_end && !far.reset {
                assert_eq!(far.received.len(), sent, "{path:?} got the end too early");
            }
        }
    }

    /// All streams read to the end and end: then nothing is left.
    fn finish(&mut self) {
        while let Some(ticket) = self.ticket(0) {
            let far = self.desk.accept(ticket);
            let near = self.opened[&ticket];
            self.others.extend([(near, far), (far, near)]);
        }
        self.desk.streams.values_mut().for_each(|far| far.window = usize::MAX);
        self.desk.work();
        for path in self.living() {
            if let Some(far) = self.desk.streams.get_mut(&path).filter(|far| !far.closed) {
                far.ends = true;
                self.desk.work();
            }
        }
        self.check();
        for (path, far) in &self.desk.streams {
            assert!(far.closed, "{path:?} is left: {far:?}");
            if !far.reset {
                assert!(far.received_end, "{path:?}");
            }
        }
        assert!(self.desk.is_clean(), "{:?}", self.desk.pep.statistics());
    }
}

proptest! {
    #[test]
    fn random_conversations(
        ops in prop::collection::vec(op(), 1..60),
        connections in 1..6_usize,
        buffer in 0..4_usize,
        total in 0..20_usize,
        idle in prop::option::of(5..100_u64),
        piece in prop_oneof![Just(Receive::PIECE_MAX), 1000..Receive::PIECE_MAX],
    ) {
        let config = Config {
            connections,
            buffer: buffer * Receive::PIECE_MAX * 3 / 2,
            buffer_total: total * Receive::PIECE_MAX,
            idle: idle.map(Duration::from_secs),
            ..Config::default()
        };
        let mut desk = Desk::new(config);
        desk.piece = piece;
        let (sent, others) = (BTreeMap::new(), BTreeMap::new());
        let (opened, right) = (BTreeMap::new(), BTreeMap::new());
        let mut play = Play { desk, sent, others, opened, right };
        for (number, op) in ops.iter().enumerate() {
            play.step(op, number as u16);
        }
        play.finish();
    }
}
