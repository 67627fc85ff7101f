//! Two NORM nodes joined by a link.

use bytes::Bytes;
use engine::Rng;

pub(super) use crate::test_world::{PATH, content, lose_numbers, lose_one_in, name};

use crate::message::Message;
use crate::test_world::{self, Losses};
use crate::{Config, Content, Finished, Indication, Node, ObjectId, SendRequest};

pub(super) type World = test_world::World<Node>;

impl World {
    /// Creates two nodes, 25 ms apart, at 10 Mbit/s.
    pub(super) fn new(configs: [Config; 2]) -> Self {
        let mut seed = 0;
        let nodes = configs.map(|config| {
            seed += 1;
            Node::new(Config { node: 8470 + seed as u32, ..config }, Rng::new(seed, "norm"))
        });
        Self::between(nodes, test_world::path_info())
    }

    /// Creates two nodes with the same settings.
    pub(super) fn with(config: &Config) -> Self {
        Self::new([config.clone(), config.clone()])
    }

    /// Lets a file of `len` bytes cross without losses.
    pub(super) fn crossed(config: &Config, len: usize) -> Self {
        Self::crossed_with(config, len, Box::new(|_, _, _| false))
    }

    /// Lets a file of `len` bytes cross with these losses.
    pub(super) fn crossed_with(config: &Config, len: usize, lose: Losses) -> Self {
        let mut world = Self::with(config);
        let file = content(len);
        world.lose(lose);
        world.send(&file);
        world.run();
        world.assert_delivered(&file);
        world
    }

    /// Sends a file from the first node.
    pub(super) fn send(&mut self, file: &[u8]) -> ObjectId {
        self.hosts[0].store.insert(name("source"), file.to_vec());
        self.request(Content::File(name("source")), "copy")
    }

    pub(super) fn request(&mut self, content: Content, info: &str) -> ObjectId {
        let info = Bytes::copy_from_slice(info.as_bytes());
        let request = SendRequest { peer: PATH, content, info };
        let now = self.now;
        let id = self.hosts[0]
            .engine
            .charge(|node| node.send(now, request))
            .expect("the request is sound");
        self.drain(0);
        id
    }

    /// Result of a side's last object.
    pub(super) fn finished(&self, side: usize) -> Option<&Finished> {
        self.hosts[side].indications.iter().rev().find_map(|indication| match indication {
            Indication::Finished(finished) => Some(finished),
            _ => None,
        })
    }

    /// Asserts that the second node has the file, and that both nodes report success.
    pub(super) fn assert_delivered(&self, file: &[u8]) {
        let lines = || self.transcript();
        assert!(self.hosts[1].store.get(&name("copy")) == Some(file), "{:#?}", lines());
        for side in 0..2 {
            let finished = self.finished(side).unwrap_or_else(|| panic!("{:#?}", lines()));
            assert_eq!(finished.result, Ok(()), "{:#?}", lines());
            assert!(finished.is_confirmed, "{:#?}", lines());
            assert_eq!(self.hosts[side].engine.objects().count(), 0);
        }
    }

    /// Transcript without times.
    pub(super) fn transcript(&self) -> Vec<String> {
        self.lines(|datagram| match Message::decode(datagram) {
            Ok(message) => message.to_string(),
            Err(error) => error.to_string(),
        })
    }
}
