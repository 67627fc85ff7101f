//! Two Saratoga peers joined by a link.

use engine::Rng;

pub(super) use crate::test_world::{PATH, content, name};

use crate::packet::{
    Content, Data, Entry, EntryKind, FileChecksum, Hole, Holes, Metadata, Packet, Request,
    RequestKind, Status, StatusCode, Width, v0,
};
use crate::test_world::{self, Losses};
use crate::{
    Config, Finished, GetRequest, Indication, Node, Permissions, Put, PutRequest, Remote,
    SessionId, Version,
};

/// Bytes of a session number in a line, with the space.
const NUMBER: usize = 9;

pub(super) type World = test_world::World<Node>;

/// Settings that permit everything to a known peer.
pub(super) fn config() -> Config {
    let permissions = Permissions { put: true, get: true, delete: true };
    Config { permissions, known: [PATH].into(), ..Config::default() }
}

/// Settings with requests only at the end, so that transcripts do not depend on timing.
pub(super) fn quiet() -> Config {
    let default_remote = Remote { status_interval: None, ..Remote::default() };
    Config { default_remote, ..config() }
}

impl World {
    /// Creates two peers, 25 ms apart, at 10 Mbit/s.
    pub(super) fn new(configs: [Config; 2]) -> Self {
        let mut seed = 0;
        let nodes = configs.map(|config| {
            seed += 1;
            Node::new(config, Rng::new(seed, "saratoga"))
        });
        Self::between(nodes, test_world::path_info())
    }

    /// Creates two peers with the same settings.
    pub(super) fn with(config: &Config) -> Self {
        Self::new([config.clone(), config.clone()])
    }

    /// Lets a file of `len` bytes cross without losses.
    pub(super) fn crossed(config: &Config, len: usize, put: Put) -> Self {
        Self::crossed_with(config, len, put, Box::new(|_, _, _| false))
    }

    /// Lets a file of `len` bytes cross with these losses.
    pub(super) fn crossed_with(config: &Config, len: usize, put: Put, lose: Losses) -> Self {
        let mut world = Self::with(config);
        let file = content(len);
        world.lose(lose);
        world.put(&file, put);
        world.run();
        world.assert_delivered(&file);
        world
    }

    /// Creates one peer; the other receives nothing, and the test simulates it.
    pub(super) fn alone(config: Config) -> Self {
        let mut world = Self::new([config, self::config()]);
        world.lose(|_, _, _| true);
        world
    }

    /// Puts a file from the first peer.
    pub(super) fn put(&mut self, file: &[u8], put: Put) -> SessionId {
        self.put_with(file, |request| request.put = put)
    }

    pub(super) fn put_with(
        &mut self,
        file: &[u8],
        change: impl FnOnce(&mut PutRequest),
    ) -> SessionId {
        self.hosts[0].store.insert(name("source"), file.to_vec());
        let mut request = PutRequest::new(PATH, name("source"), "copy");
        change(&mut request);
        let now = self.now;
        let id = self.hosts[0]
            .engine
            .charge(|node| node.put(now, request))
            .expect("the request is sound");
        self.drain(0);
        id
    }

    /// Gets the first peer's file `source` as `copy` of the second.
    pub(super) fn get(&mut self, delete: bool) -> SessionId {
        let request =
            GetRequest { peer: PATH, name: "source".to_owned(), destination: name("copy"), delete };
        let now = self.now;
        let id = self.hosts[1]
            .engine
            .charge(|node| node.get(now, request))
            .expect("the request is sound");
        self.drain(1);
        id
    }

    /// Restarts a peer with the same settings.
    pub(super) fn restart(&mut self, side: usize) {
        let config = self.hosts[side].engine.config().clone();
        let node = Node::new(config, Rng::new(self.now.as_nanos(), "saratoga"));
        self.replace(side, node);
    }

    /// Delivers a packet that the other side did not send.
    pub(super) fn say(&mut self, to: usize, packet: Packet<'_>) {
        self.hear(to, &packet.to_vec().expect("a packet"));
    }

    /// Result of a side's last session.
    pub(super) fn finished(&self, side: usize) -> Option<&Finished> {
        self.hosts[side].indications.iter().rev().find_map(|indication| match indication {
            Indication::Finished(finished) => Some(finished),
            _ => None,
        })
    }

    /// Status of a side's last failed session.
    pub(super) fn failure(&self, side: usize) -> Option<StatusCode> {
        self.finished(side)?.result.err().map(|failure| failure.code)
    }

    pub(super) fn copy(&self) -> Option<&[u8]> {
        self.hosts[1].store.get(&name("copy"))
    }

    /// Asserts that the second peer has the file, and that both report success.
    pub(super) fn assert_delivered(&self, file: &[u8]) {
        assert!(self.copy() == Some(file), "{:#?}", self.transcript());
        for side in 0..2 {
            let finished = self.finished(side).expect("it ended");
            assert_eq!(finished.result, Ok(()), "{:#?}", self.transcript());
            assert_eq!(self.hosts[side].engine.sessions().count(), 0);
        }
    }

    /// Transcript without the numbers of sessions and the values of checksums.
    pub(super) fn transcript(&self) -> Vec<String> {
        let version = self.hosts[0].engine.config().version;
        self.lines(|datagram| match version {
            Version::V0 => {
                let packet = v0::Packet::decode(datagram).expect("what a peer sends can be read");
                packet.to_string().split_off(NUMBER)
            }
            Version::V1 => {
                let packet = Packet::decode(datagram).expect("what a peer sends can be read");
                let line = packet.to_string();
                let at = if matches!(packet, Packet::Beacon(_)) { 0 } else { NUMBER };
                let words = line[at..].split(", CRC-32C").next();
                words.unwrap_or_default().to_owned()
            }
        })
    }

    /// Version 1 packets of a side.
    pub(super) fn packets(&self, side: usize) -> impl Iterator<Item = Packet<'_>> {
        let ours = self.log.iter().filter(move |sent| sent.from == side);
        ours.map(|sent| Packet::decode(&sent.bytes).expect("it can be read"))
    }

    /// The STATUS packets of a side.
    pub(super) fn statuses(&self, side: usize) -> Vec<Status<'_>> {
        let status = |packet| match packet {
            Packet::Status(status) => Some(status),
            _ => None,
        };
        self.packets(side).filter_map(status).collect()
    }
}

/// Request with number 77.
pub(super) fn request(kind: RequestKind, path: &str) -> Packet<'_> {
    Packet::Request(Request {
        kind,
        descriptor: Width::W32,
        bundles: false,
        streams: false,
        udp_lite: false,
        session: 77,
        path: path.as_bytes(),
        authentication: &[],
    })
}

/// METADATA of a file `copy` in session 77.
pub(super) fn metadata(size: u64, checksum: FileChecksum<'_>) -> Metadata<'_> {
    Metadata {
        descriptor: Width::W32,
        content: Content::File,
        is_over: false,
        udp_lite: false,
        session: 77,
        checksum,
        entry: Entry {
            kind: EntryKind::File,
            udp_lite: false,
            width: Width::W32,
            size,
            modified: 0,
            created: 0,
            path: b"copy",
        },
    }
}

/// DATA of that file.
pub(super) fn data(offset: u64, data: &[u8]) -> Data<'_> {
    Data {
        descriptor: Width::W32,
        content: Content::File,
        timestamp: None,
        wants_status: false,
        is_end: false,
        session: 77,
        offset,
        data,
    }
}

/// STATUS of a receiver for a session.
pub(super) fn status<'a>(
    session: u32,
    (progress, in_response_to): (u64, u64),
    holes: &'a [Hole],
) -> Status<'a> {
    Status {
        descriptor: Width::W32,
        timestamp: None,
        lacks_metadata: false,
        is_partial: false,
        is_voluntary: false,
        code: StatusCode::Ok,
        session,
        progress,
        in_response_to,
        holes: Holes::new(holes),
    }
}
