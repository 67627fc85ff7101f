//! Random sequences of what happens within turns of a node: applications join, confirm and leave
//! before the agent's indications are dispatched.

use std::collections::BTreeSet;
use std::time::Duration;

use bp::agent::{Config, Indication, SendRequest};
use engine::{Engine as _, MemoryStore, Rng};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;

const OPS: usize = 60;

#[derive(Clone, Copy, Debug)]
enum Op {
    Send {
        lives: Duration,
    },
    Join(Share),
    Leave(usize),
    /// An application confirms one of the bundles that it received.
    Confirm(usize, usize),
    /// End of a turn: indications are dispatched.
    Dispatch,
    Pass(Duration),
}

fn random(rng: &mut Rng) -> Op {
    let mut pick = |bound: u64| rng.below(bound) as usize;
    match pick(10) {
        0 | 1 => Op::Send { lives: Duration::from_secs([3, 1_000_000][pick(2)]) },
        2 | 3 => Op::Join([Share::No, Share::Turns, Share::Copies][pick(3)]),
        4 => Op::Leave(pick(3)),
        5..=7 => Op::Confirm(pick(3), pick(5)),
        8 => Op::Dispatch,
        _ => Op::Pass(Duration::from_secs(1)),
    }
}

struct Application {
    receiver: Receiver,
    bundles: UnboundedReceiver<Delivered>,
    unconfirmed: Vec<Delivered>,
    /// Every number that it received.
    seen: BTreeSet<u64>,
}

struct World {
    now: Time,
    agent: Agent,
    store: MemoryStore,
    receivers: Receivers,
    applications: Vec<Application>,
}

fn endpoint() -> Eid {
    Eid::ipn(1, 5)
}

impl World {
    fn new() -> Self {
        let config = Config { node: Eid::ipn(1, 0), ..Config::default() };
        let agent = Agent::new(config, Rng::new(1, "agent"));
        let (store, receivers) = (MemoryStore::new(), Receivers::default());
        let mut world = Self { now: Time::ZERO, agent, store, receivers, applications: Vec::new() };
        world.settle();
        assert!(world.agent.is_ready());
        world
    }

    /// The store does what the agent asks for.
    fn settle(&mut self) {
        engine::execute_effects(self.now, &mut self.agent, &mut self.store);
    }

    fn leave(&mut self, at: usize) {
        let Application { receiver, .. } = self.applications.remove(at);
        self.receivers.leave(self.now, &mut self.agent, &endpoint(), receiver);
    }

    fn confirm(&mut self, by: usize, at: usize) -> Result<(), RequestError> {
        let delivered = self.applications[by].unconfirmed.remove(at);
        let (number, id) = (delivered.number, delivered.id.to_string());
        self.receivers.confirm(self.now, &mut self.agent, number, Some(&id))
    }

    fn dispatch(&mut self) {
        while let Some(indication) = self.agent.poll_indication() {
            let Indication::Delivered { delivery, endpoint, id, version, verified, payload } =
                indication
            else {
                continue;
            };
            let facts = self.agent.received(self.now, delivery);
            let (number, at) = (delivery.0, Instant::now());
            let delivered =
                Delivered { delivery, number, id, version, verified, facts, payload, at };
            self.receivers.deliver(&self.agent, endpoint, delivered);
        }
    }

    fn perform(&mut self, op: Op) {
        match op {
            Op::Send { lives } => {
                let request = SendRequest::new(endpoint(), vec![1, 2, 3]);
                self.agent.send(self.now, SendRequest { lifetime: lives, ..request }).unwrap();
            }
            Op::Join(share) => {
                let (user, bundles) = unbounded_channel();
                let joined = self.receivers.join(&mut self.agent, &endpoint(), share, user);
                if let Ok(receiver) = joined {
                    let (unconfirmed, seen) = (Vec::new(), BTreeSet::new());
                    self.applications.push(Application { receiver, bundles, unconfirmed, seen });
                }
            }
            Op::Leave(at) if at < self.applications.len() => self.leave(at),
            Op::Confirm(by, at) => {
                let by = by.min(self.applications.len().saturating_sub(1));
                let its = self.applications.get(by).map_or(0, |its| its.unconfirmed.len());
                if at < its {
                    // It may have expired.
                    let _ = self.confirm(by, at);
                }
            }
            Op::Dispatch => self.dispatch(),
            Op::Pass(time) => {
                self.now += time;
                if self.agent.poll_timeout().is_some_and(|deadline| deadline.at <= self.now) {
                    self.agent.handle_timeout(self.now);
                }
            }
            Op::Leave(_) => {}
        }
        self.settle();
        for application in &mut self.applications {
            while let Ok(delivered) = application.bundles.try_recv() {
                assert!(application.seen.insert(delivered.number), "{delivered:?} comes twice");
                assert!(self.agent.delivery(delivered.delivery).is_some(), "{delivered:?} is over");
                application.unconfirmed.push(delivered);
            }
        }
    }

    /// Checks the counts, after bundles that have expired are removed.
    fn check(&mut self) {
        self.receivers.sweep(&self.agent);
        let Receivers { groups, held, copies, .. } = &self.receivers;
        for (receiver, member) in groups.values().flat_map(|group| &group.members) {
            let its = held.values().filter(|held| held.with.contains_key(receiver)).count();
            assert_eq!(member.unconfirmed, its, "{receiver:?}");
        }
        let numbers = held.values().flat_map(|held| held.with.values());
        let of_copies: BTreeSet<u64> = numbers.copied().filter(|number| *number > COPIES).collect();
        assert_eq!(copies.keys().copied().collect::<BTreeSet<u64>>(), of_copies);
    }

    /// All applications confirm all that they have.
    fn finish(&mut self) {
        self.perform(Op::Dispatch);
        for by in 0..self.applications.len() {
            while !self.applications[by].unconfirmed.is_empty() {
                let _ = self.confirm(by, 0);
            }
        }
        self.settle();
        self.check();
        if !self.applications.is_empty() {
            assert_eq!(self.agent.statistics().bundles, 0, "a bundle is with nobody");
        }
    }
}

#[test]
fn applications_that_join_confirm_and_leave_within_a_turn() {
    for seed in 0..3000 {
        let mut rng = Rng::new(seed, "ops");
        let ops: Vec<Op> = (0..OPS).map(|_| random(&mut rng)).collect();
        let run = std::panic::AssertUnwindSafe(|| {
            let mut world = World::new();
            for op in &ops {
                world.perform(*op);
                world.check();
            }
            world.finish();
        });
        assert!(std::panic::catch_unwind(run).is_ok(), "seed {seed}: {ops:?}");
    }
}
