//! Entities with the numbers 1, 2, 3 and so on in a network.

use std::time::Duration;

use engine::{Area, PathId, PathInfo, Rng, Time};

pub(super) use crate::test_world::{content, name};

use crate::pdu::TransactionId;
use crate::test_world::{self, End, Hop, Sent, once_unless};
use crate::{
    Config, Entity, Indication, OperationIndication, PutRequest, Remote, TransactionFinished,
};

/// One-way delay of every link.
const DELAY: Duration = Duration::from_millis(20);

/// Sending and receiving entity.
type Ends = (u64, u64);

pub(super) struct World {
    network: test_world::World<Entity>,
    links: Vec<Ends>,
    configs: Vec<Config>,
}

/// A path is numbered by the entity at its other end.
fn path(to: u64) -> PathId {
    PathId(u32::try_from(to).expect("small numbers"))
}

fn index(number: u64) -> usize {
    number as usize - 1
}

/// Sending and receiving entity on a link, given the sending end.
fn ends((first, second): Ends, from: usize) -> Ends {
    if from == 0 { (first, second) } else { (second, first) }
}

fn config(number: u64, links: &[Ends]) -> Config {
    let mut config = Config { entity: number, first_sequence: Some(1), ..Config::default() };
    let ends = links.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
    for (_, other) in ends.filter(|(one, _)| *one == number) {
        config.remotes.insert(other, Remote { path: Some(path(other)), ..Remote::default() });
    }
    config
}

fn hop(&(first, second): &Ends) -> Hop {
    let end = |number, other| End { host: index(number), path: path(other) };
    let info = PathInfo { owlt: Some(DELAY), ..PathInfo::datagram(1400) };
    Hop::new([end(first, second), end(second, first)], info)
}

impl World {
    /// Entities with these links. `change` adjusts the settings of each.
    pub(super) fn new(links: &[Ends], change: impl Fn(u64, &mut Config)) -> Self {
        let last = links.iter().map(|&(a, b)| a.max(b)).max().expect("there are links");
        let configs = (1..=last).map(|number| {
            let mut config = config(number, links);
            change(number, &mut config);
            config
        });
        let configs: Vec<_> = configs.collect();
        let entities = configs.iter().map(|config| entity(config, config.entity));
        let mut network =
            test_world::World::network(Time::ZERO, entities, links.iter().map(hop).collect());
        network.start();
        Self { network, links: links.to_vec(), configs }
    }

    pub(super) fn host(&self, number: u64) -> &test_world::Host<Entity> {
        &self.network.hosts[index(number)]
    }

    pub(super) fn host_mut(&mut self, number: u64) -> &mut test_world::Host<Entity> {
        &mut self.network.hosts[index(number)]
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        1..=self.configs.len() as u64
    }

    pub(super) fn insert(&mut self, number: u64, file: &str, content: &[u8]) {
        self.host_mut(number).store.insert(name(file), content.to_vec());
    }

    pub(super) fn file(&self, number: u64, file: &str) -> Option<&[u8]> {
        self.host(number).store.get(&name(file))
    }

    /// Makes a request to an entity.
    pub(super) fn ask<T>(&mut self, number: u64, ask: impl FnOnce(&mut Entity, Time) -> T) -> T {
        let now = self.network.now;
        let answer = ask(&mut self.host_mut(number).engine, now);
        self.network.drain(index(number));
        answer
    }

    pub(super) fn put(&mut self, number: u64, request: PutRequest) -> TransactionId {
        self.ask(number, |entity, now| entity.put(now, request)).expect("the put is sound")
    }

    /// Loses datagrams from now on, given the sending and the receiving entity.
    pub(super) fn lose(&mut self, mut lose: impl FnMut(Ends, &[u8]) -> bool + 'static) {
        let links = self.links.clone();
        self.network.fate =
            Box::new(move |it| once_unless(lose(ends(links[it.hop], it.from), it.bytes)));
    }

    /// Loses this share of the datagrams from now on.
    pub(super) fn lose_share(&mut self, share: f64) {
        let mut rng = Rng::new(1, "loss");
        self.lose(move |_, _| rng.chance(share));
    }

    /// Datagrams sent, with their ends.
    pub(super) fn sent(&self) -> impl Iterator<Item = (Ends, &Sent)> {
        self.network.log.iter().map(|sent| (ends(self.links[sent.hop], sent.from), sent))
    }

    /// Kills a process and restarts it: only the store survives.
    pub(super) fn restart(&mut self, number: u64) {
        let seed = number + 100 * (self.host(number).restarts + 1);
        let entity = entity(&self.configs[index(number)], seed);
        self.network.replace(index(number), entity);
    }

    /// Runs until no event is left.
    pub(super) fn run(&mut self) {
        self.network.run();
    }

    /// Runs for this time.
    pub(super) fn run_for(&mut self, time: Duration) {
        self.network.run_for(time);
    }

    /// Indications of an entity about user operations.
    pub(super) fn reported(&self, number: u64) -> Vec<&OperationIndication> {
        let indications = self.host(number).indications.iter();
        indications
            .filter_map(|indication| match indication {
                Indication::UserOperation(operation) => Some(operation),
                _ => None,
            })
            .collect()
    }

    /// Result of a transaction at an entity.
    pub(super) fn finished(&self, number: u64, id: TransactionId) -> Option<&TransactionFinished> {
        self.host(number).indications.iter().find_map(|indication| match indication {
            Indication::TransactionFinished(finished) if finished.id == id => Some(finished),
            _ => None,
        })
    }

    /// Asserts that nothing is under way, no working file is left, and no request is kept.
    pub(super) fn assert_clean(&self) {
        for number in self.numbers() {
            let host = self.host(number);
            assert_eq!(host.engine.transactions().count(), 0, "entity {number}");
            let spool: Vec<_> = host.store.names(Area::Spool).collect();
            assert!(spool.is_empty(), "entity {number} keeps {spool:?}");
            for (key, value) in host.store.records() {
                let plain = key.starts_with("cfdp-rx-") && value[1] == 3;
                assert!(plain || key == "cfdp-sequence", "entity {number} keeps {key}");
            }
        }
    }
}

fn entity(config: &Config, seed: u64) -> Entity {
    Entity::new(config.clone(), Rng::new(seed, "cfdp"))
}

/// Grants every neighbour the permissions in `change`.
pub(super) fn permit(config: &mut Config, change: impl Fn(&mut crate::Permissions)) {
    for remote in config.remotes.values_mut() {
        change(&mut remote.permissions);
    }
}
