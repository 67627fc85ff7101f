//! Random sequences of operations on random links: the ledger always balances, the queue never
//! exceeds its bound, nothing is lost or overtaken, and the same seed gives the same run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use engine::{Rng, Time};
use link::{
    Config, Delay, ErrorKind, ErrorModel, Fate, Framing, Link, LossCause, Outages, Queue, Rate,
    Release, StateErrors, TokenBucket, WhileDown,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Wait(u64),
    /// Checks for room, then pushes a packet of this length.
    Push(usize),
    /// Pops at most this many due packets.
    Pop(usize),
    /// Advances to `next`, and pops.
    Next,
    /// Advances until there is room for this length, and pushes.
    PushWhenFree(usize),
    Rate(u64),
    Delay(u64),
    Config(Box<Config>),
}

fn config() -> impl Strategy<Value = Config> {
    let rate = prop_oneof![Just(None), (100_000_u64..1_000_000_000).prop_map(Some)];
    let shaper = prop_oneof![
        2 => Just(None),
        1 => (100_000_u64..10_000_000, 0_u64..1_000_000, 0_u64..20_000, 0_u64..20_000).prop_map(
            |(rate, more, burst, cburst)| Some(TokenBucket { rate, ceil: rate + more, burst, cburst })
        ),
    ];
    let queue = (prop::option::of(0_usize..20), prop::option::of(0_u64..20_000));
    let outages = prop_oneof![
        Just(Outages::Never),
        (1_u64..50, 1_u64..50, 0_u64..100).prop_map(|(up, down, offset)| Outages::Periodic {
            period: Duration::from_millis(up + down),
            down: Duration::from_millis(down),
            offset: Time::from_nanos(offset * 1_000_000),
        }),
    ];
    let per_packet = 0_u64..2;
    (rate, shaper, queue, outages, any::<[bool; 3]>(), per_packet).prop_map(
        |(rate, shaper, (packets, bytes), outages, [drop, first, damage], per_packet)| {
            let model = if damage { ErrorModel::damaging } else { ErrorModel::dropping };
            let bad = StateErrors { loss: 0.5, ber: 1e-4 };
            let good = StateErrors::default();
            Config {
                header_compression: None,
                reorder: None,
                rate: rate.into(),
                shaper,
                framing: Framing::Custom(14),
                per_packet: Duration::from_micros(per_packet * 60),
                release: if first { Release::FirstBit } else { Release::LastBit },
                queue: Queue { packets, bytes },
                backpressure: false,
                delay: Delay::Constant(Duration::from_millis(20)),
                outages,
                while_down: if drop { WhileDown::Drop } else { WhileDown::Hold },
                errors: vec![
                    model(ErrorKind::PerPacket(0.1)),
                    model(ErrorKind::BitErrorRate(1e-4)),
                    model(ErrorKind::GilbertElliott { p_gb: 0.1, p_bg: 0.3, good, bad }),
                ],
                erasure: None,
            }
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0_u64..10_000_000).prop_map(Op::Wait),
        12 => (1_usize..3_000).prop_map(Op::Push),
        3 => (0_usize..5).prop_map(Op::Pop),
        5 => Just(Op::Next),
        3 => (1_usize..3_000).prop_map(Op::PushWhenFree),
        1 => (100_000_u64..1_000_000_000).prop_map(Op::Rate),
        1 => (0_u64..100_000_000).prop_map(Op::Delay),
        1 => config().prop_map(|config| Op::Config(Box::new(config))),
    ]
}

/// A link, its clock, and its observed packets.
struct Run {
    link: Link<u64>,
    now: Time,
    pushed: u64,
    /// Packets accepted and not popped yet, in order.
    inside: std::collections::VecDeque<u64>,
    latest: Time,
    /// First packet that waited at each reconfiguration, and its time.
    changes: Vec<(u64, Time)>,
    log: Vec<(u64, Time, Fate)>,
}

impl Run {
    fn new(config: Config, seed: u64) -> Self {
        Self {
            link: Link::new(config, Rng::new(seed, "link")).unwrap(),
            now: Time::ZERO,
            pushed: 0,
            inside: std::collections::VecDeque::new(),
            latest: Time::ZERO,
            changes: Vec::new(),
            log: Vec::new(),
        }
    }

    fn apply(&mut self, op: &Op) {
        let now = self.now;
        match op {
            Op::Wait(nanos) => self.now += Duration::from_nanos(*nanos),
            Op::Push(len) => self.push(*len),
            Op::Pop(count) => (0..*count).for_each(|_| self.pop()),
            Op::Next => {
                if let Some(at) = self.link.next() {
                    self.now = now.max(at);
                    self.pop();
                }
            }
            Op::PushWhenFree(len) => {
                if let Some(at) = self.link.free_at(now, *len) {
                    assert!(at >= now);
                    if at > now {
                        let before = at - Duration::from_nanos(1);
                        assert!(!self.link.free_for(before, *len), "free_at is the first moment");
                    }
                    self.now = at;
                    assert!(self.link.free_for(at, *len));
                    self.push(*len);
                }
            }
            Op::Rate(bps) => self.link.set_rate(now, Rate::Constant(*bps)).unwrap(),
            Op::Delay(nanos) => {
                let delay = Delay::Constant(Duration::from_nanos(*nanos));
                self.link.set_delay(now, delay).unwrap();
            }
            Op::Config(config) => {
                // A change without effect brings the queue up to date.
                self.link.set_config(now, self.link.config().clone()).unwrap();
                let began = self.inside.len() - self.link.waiting();
                self.changes.extend(self.inside.get(began).map(|item| (*item, now)));
                self.link.set_config(now, (**config).clone()).unwrap();
            }
        }
        self.check();
    }

    fn push(&mut self, len: usize) {
        let free = self.link.free_for(self.now, len);
        let before = self.link.waiting();
        let item = self.pushed;
        self.pushed += 1;
        match self.link.push(self.now, len, item) {
            Ok(()) => self.inside.push_back(item),
            Err(rejected) => assert_eq!(rejected.item, item),
        }
        assert_eq!(free, self.inside.back() == Some(&item), "free_for predicts push");
        let limit = self.link.config().queue.packets.unwrap_or(usize::MAX);
        assert!(self.link.waiting() <= limit.max(before), "the queue is bounded");
    }

    fn pop(&mut self) {
        let Some(departure) = self.link.pop(self.now) else { return };
        assert_eq!(self.inside.pop_front(), Some(departure.item), "in order, none missing");
        assert!(departure.at <= self.now && departure.at >= self.latest, "no packet overtakes");
        assert!(departure.pushed <= departure.start && departure.start <= departure.at);
        for (item, at) in &self.changes {
            assert!(departure.item < *item || departure.start >= *at, "no change reaches back");
        }
        self.latest = departure.at;
        self.log.push((departure.item, departure.at, departure.fate));
    }

    /// Checks pushed = delivered + lost + queued, in packets and bytes.
    fn check(&self) {
        let stats = self.link.stats();
        let lost = stats.lost_total();
        assert_eq!(
            stats.pushed.packets,
            stats.delivered.packets + lost.packets + stats.queued.packets
        );
        assert_eq!(stats.pushed.bytes, stats.delivered.bytes + lost.bytes + stats.queued.bytes);
        assert_eq!(stats.queued.packets, self.inside.len() as u64);
        assert_eq!(stats.pushed.packets, self.pushed);
        assert!(stats.damaged.packets <= stats.delivered.packets);
        let causes = LossCause::ALL.map(|cause| stats.lost(cause).packets);
        assert_eq!(causes.iter().sum::<u64>(), lost.packets);
        assert_eq!(
            self.link.next().is_none(),
            self.inside.is_empty(),
            "next is none only when empty"
        );
    }

    /// Runs until the link is empty.
    fn finish(&mut self) {
        let mut steps = 0;
        while self.link.next().is_some() {
            self.apply(&Op::Next);
            steps += 1;
            assert!(steps < 100_000, "the link empties");
        }
        assert!(self.inside.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_operations_keep_the_ledger_balanced(
        config in config(),
        ops in prop::collection::vec(op(), 1..300),
        seed: u64,
    ) {
        let run = || {
            let mut run = Run::new(config.clone(), seed);
            ops.iter().for_each(|op| run.apply(op));
            run.finish();
            run
        };
        let (one, other) = (run(), run());
        prop_assert_eq!(one.log, other.log, "the same seed does the same");
    }

    /// Departures do not depend on the times of calls.
    #[test]
    fn a_late_driver_sees_the_same_departures(
        config in config(),
        arrivals in prop::collection::vec((0_u64..2_000_000, 1_usize..3_000), 1..200),
        seed: u64,
    ) {
        let run = |punctual: bool| {
            let mut link = Link::new(config.clone(), Rng::new(seed, "link")).unwrap();
            let mut log = Vec::new();
            let mut now = Time::ZERO;
            for (index, (gap, len)) in arrivals.iter().enumerate() {
                now += Duration::from_nanos(*gap);
                while let Some(at) = link.next().filter(|at| punctual && *at <= now) {
                    log.extend(link.pop(at));
                }
                let _ = link.push(now, *len, index);
            }
            log.extend(std::iter::from_fn(|| link.pop(Time::MAX)));
            log
        };
        prop_assert_eq!(run(true), run(false));
    }
}
