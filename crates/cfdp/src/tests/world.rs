//! Two entities joined by a link.

use engine::{PathInfo, Rng, Time};

pub(super) use crate::test_world::{PATH, content, name};

use crate::pdu::{Body, Pdu, TransactionId};
use crate::test_world::{self, Losses, Sent};
use crate::{Config, Entity, Indication, PutRequest, Remote, TransactionFinished};

/// The entity numbers of the two sides.
pub(super) const ENTITIES: [u64; 2] = [1, 2];

pub(super) type World = test_world::World<Entity>;

/// Datagram as text.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) at: Time,
    pub(super) from: usize,
    pub(super) text: String,
    pub(super) lost: bool,
}

impl World {
    /// Creates two entities with the same settings, 25 ms apart, at 10 Mbit/s.
    pub(super) fn new(config: &Config) -> Self {
        Self::with_path(config, test_world::path_info())
    }

    pub(super) fn with_path(config: &Config, info: PathInfo) -> Self {
        let entity = |entity: u64| {
            Entity::new(Config { entity, ..config.clone() }, Rng::new(entity, "cfdp"))
        };
        Self::between(ENTITIES.map(entity), info)
    }

    /// Kills a process and restarts it: only the store survives.
    pub(super) fn restart(&mut self, side: usize) {
        let config = self.hosts[side].engine.config().clone();
        let rng = Rng::new(ENTITIES[side] + self.now.as_nanos(), "cfdp");
        self.replace(side, Entity::new(config, rng));
    }

    pub(super) fn put(&mut self, request: PutRequest) -> TransactionId {
        let now = self.now;
        let id = self.hosts[0]
            .engine
            .charge(|entity| entity.put(now, request))
            .expect("the put is sound");
        self.drain(0);
        id
    }

    /// Result of a transaction at a side; the last one if there are several.
    pub(super) fn finished(&self, side: usize) -> Option<&TransactionFinished> {
        self.hosts[side].indications.iter().rev().find_map(|indication| match indication {
            Indication::TransactionFinished(finished) => Some(finished),
            _ => None,
        })
    }

    /// All datagrams.
    pub(super) fn datagrams(&self) -> Vec<Line> {
        let line = |sent: &Sent| Line {
            at: sent.at,
            from: sent.from,
            text: describe(&sent.bytes),
            lost: sent.lost,
        };
        self.log.iter().map(line).collect()
    }

    pub(super) fn transcript(&self) -> Vec<String> {
        self.lines(describe)
    }
}

fn describe(datagram: &[u8]) -> String {
    match Pdu::decode(datagram).expect("what an entity sends can be read").body {
        Body::FileData(data) => format!("data {}+{}", data.offset, data.data.len()),
        Body::Eof(eof) => format!("EOF {} {}", eof.file_size, eof.condition),
        Body::Finished(finished) => {
            format!(
                "Finished {} {:?} {}",
                finished.condition, finished.delivery, finished.file_status
            )
        }
        Body::Ack(ack) => format!("ACK {} {}", ack.directive, ack.status),
        Body::Metadata(metadata) => format!("Metadata {}", metadata.file_size),
        Body::Nak(nak) => {
            let requests: Vec<_> =
                nak.requests.iter().map(|r| format!("{}-{}", r.start, r.end)).collect();
            format!("NAK {}-{}: {}", nak.scope_start, nak.scope_end, requests.join(" "))
        }
        Body::Prompt(prompt) => format!("Prompt {:?}", prompt.response),
        Body::KeepAlive(keep_alive) => format!("Keep Alive {}", keep_alive.progress),
        Body::Unknown { code, .. } => format!("directive {code}"),
    }
}

/// A put of a file `source` to `copy`.
pub(super) fn put_request() -> PutRequest {
    PutRequest {
        destination: ENTITIES[1],
        source: Some(name("source")),
        destination_name: "copy".to_owned(),
        ..PutRequest::default()
    }
}

/// Settings with one change for all remotes.
pub(super) fn config(change: impl FnOnce(&mut Remote)) -> Config {
    let mut config = Config { first_sequence: Some(1), ..Config::default() };
    change(&mut config.default_remote);
    config
}

/// Loses the datagrams whose text has this prefix, each as often as it is listed.
pub(super) fn lose_these(names: &[(usize, &str)]) -> Losses {
    let mut names: Vec<(usize, String)> =
        names.iter().map(|(side, name)| (*side, (*name).to_owned())).collect();
    Box::new(move |side, _, datagram| {
        let line = describe(datagram);
        let hit = names.iter().position(|(from, name)| *from == side && line.starts_with(name));
        hit.map(|i| names.remove(i)).is_some()
    })
}
