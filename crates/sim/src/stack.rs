//! A host's IPv4 and UDP: paths, routes, headers, counters.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use engine::{Ecn, PathEvent, PathId, PathInfo, PathKind, Receive, Time, Transmit};
use wire::ip::{self, Ipv4, PROTOCOL_UDP};
use wire::udp::{self, Checksum, Udp};

use crate::net::Network;
use crate::packet::{self, HEADERS_LEN, Headers, Packet};
use crate::stats::HostStats;

/// What a host is like.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Its name: of its interfaces in captures, of its randomness.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Datagrams an engine may put into one batch.
    pub batch: usize,
    /// Whether datagrams carry a UDP checksum. Without, damage reaches the engines.
    pub udp_checksum: bool,
    /// Whether the engine is told when the first link of a path goes down and up, and when the
    /// contact ends. Outages further on are never told.
    pub cues: bool,
    /// The time to live of the packets it sends.
    pub ttl: u8,
    /// Passes packets for others on without looking at checksum and time to live, as a
    /// transponder does; otherwise it is a router.
    pub bent_pipe: bool,
    /// What an engine is told of a peer that no path was made for; `None` tells what it was told
    /// of the first path on that port.
    pub unknown_peer: Option<PathInfo>,
    /// Paths to such peers, at most.
    pub unknown_peers_max: usize,
    /// Bytes that are kept while the engine has reading paused.
    pub receive_buffer: usize,
}

impl HostConfig {
    /// A host with everything but name and address at its default.
    #[must_use]
    pub fn new(name: impl Into<String>, address: Ipv4Addr) -> Self {
        Self { name: name.into(), address, ..Self::default() }
    }
}

impl Default for HostConfig {
    /// Batches of 1, checksums, cues, TTL 64, a router, 1,024 unknown peers, 4 MiB of buffer.
    fn default() -> Self {
        Self {
            name: String::new(),
            address: Ipv4Addr::UNSPECIFIED,
            batch: 1,
            udp_checksum: true,
            cues: true,
            ttl: 64,
            bent_pipe: false,
            unknown_peer: None,
            unknown_peers_max: 1024,
            receive_buffer: 4 << 20,
        }
    }
}

/// One peer at one pair of ports.
#[derive(Clone, Debug)]
struct Path {
    id: PathId,
    port: u16,
    remote: (Ipv4Addr, u16),
    info: PathInfo,
    /// The first link on the way.
    link: Option<usize>,
    /// Made for a peer nobody announced; a restart forgets it.
    unknown: bool,
    open: bool,
    paused: bool,
}

/// What to do with a packet that arrived.
pub(crate) enum Arrival {
    /// Nothing; it was counted.
    Dropped(Packet),
    /// Nothing; it was passed on, or waits until the engine reads again.
    Taken,
    /// The engine gets it.
    Datagram { path: PathId, ecn: Ecn, data: std::ops::Range<usize>, packet: Packet },
}

#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) index: usize,
    pub(crate) config: HostConfig,
    pub(crate) stats: HostStats,
    /// Path events the engine has not been given.
    pub(crate) events: VecDeque<(PathId, PathEvent)>,
    /// Packets that were kept while reading was paused and may be handed in now.
    pub(crate) resumed: VecDeque<Packet>,
    /// The link for each destination.
    routes: Vec<(Ipv4Addr, usize)>,
    paths: Vec<Path>,
    /// The paths used last, looked at first.
    last_sent: usize,
    last_received: usize,
    kept: VecDeque<(PathId, Packet)>,
    kept_bytes: usize,
    listening: Vec<(u16, PathInfo)>,
    next_path: u32,
    next_id: u16,
}

impl Stack {
    pub(crate) fn new(index: usize, config: HostConfig) -> Self {
        Self {
            index,
            config,
            stats: HostStats::default(),
            events: VecDeque::new(),
            resumed: VecDeque::new(),
            routes: Vec::new(),
            paths: Vec::new(),
            last_sent: 0,
            last_received: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            listening: Vec::new(),
            next_path: 0,
            next_id: 0,
        }
    }

    pub(crate) fn add_path(
        &mut self,
        id: PathId,
        port: u16,
        remote: (Ipv4Addr, u16),
        info: PathInfo,
    ) {
        assert!(self.paths.iter().all(|path| path.id != id), "{id:?} is taken");
        self.listen(port, info.clone());
        self.next_path = self.next_path.max(id.0.saturating_add(1));
        let link = self.route(remote.0);
        let (unknown, open, paused) = (false, true, false);
        self.paths.push(Path { id, port, remote, info, link, unknown, open, paused });
    }

    /// Accepts datagrams of unknown peers on a port; the first `info` given for it counts.
    pub(crate) fn listen(&mut self, port: u16, info: PathInfo) {
        if self.listening.iter().all(|(open, _)| *open != port) {
            self.listening.push((port, info));
        }
    }

    /// Sets the route to a destination.
    pub(crate) fn add_route(&mut self, destination: Ipv4Addr, link: usize, net: &mut Network) {
        match self.routes.iter_mut().find(|(to, _)| *to == destination) {
            Some(route) => route.1 = link,
            None => self.routes.push((destination, link)),
        }
        self.resolve(net);
    }

    /// Adds the route to a neighbour unless there is one.
    pub(crate) fn add_neighbour(&mut self, link: usize, net: &mut Network) {
        let address = net.nodes[net.pipes[link].to].address;
        if self.route(address).is_none() {
            self.routes.push((address, link));
        }
        self.resolve(net);
    }

    /// Finds each path's first link and tells the links whose engine watches them.
    pub(crate) fn resolve(&mut self, net: &mut Network) {
        for index in 0..self.paths.len() {
            self.paths[index].link = self.route(self.paths[index].remote.0);
            self.attach(index, net);
        }
    }

    fn attach(&self, path: usize, net: &mut Network) {
        let path = &self.paths[path];
        let Some(link) = path.link else { return };
        let pipe = &mut net.pipes[link];
        pipe.cues = self.config.cues;
        pipe.mtu = pipe.mtu.max(mtu(&path.info).map_or(0, |mtu| mtu.saturating_add(HEADERS_LEN)));
    }

    fn route(&self, destination: Ipv4Addr) -> Option<usize> {
        self.routes.iter().find(|(to, _)| *to == destination).map(|(_, link)| *link)
    }

    /// The engine starts: peers nobody announced are forgotten, all other paths come up.
    pub(crate) fn start(&mut self, now: Time, net: &mut Network) {
        self.paths.retain(|path| !path.unknown);
        for path in &mut self.paths {
            path.open = true;
            path.paused = false;
        }
        self.stop(net);
        for index in 0..self.paths.len() {
            self.announce(now, index, net);
        }
    }

    /// The engine is gone: nothing that waits for it is of use.
    pub(crate) fn stop(&mut self, net: &mut Network) {
        self.events.clear();
        let kept = std::mem::take(&mut self.kept).into_iter().map(|(_, packet)| packet);
        for packet in kept.chain(std::mem::take(&mut self.resumed)) {
            net.pool.recycle(packet);
        }
        self.kept_bytes = 0;
    }

    /// Tells the engine the state of a path.
    fn announce(&mut self, now: Time, path: usize, net: &Network) {
        let Path { id, link, ref info, .. } = self.paths[path];
        let mut info = info.clone();
        let pipe = link.map(|link| &net.pipes[link]);
        let mut blocked = false;
        if let Some(pipe) = pipe.filter(|_| self.config.cues) {
            if !pipe.link.is_up(now) {
                self.events.push_back((id, PathEvent::Down));
                return;
            }
            info.until = info.until.or(pipe.change);
        }
        if let Some(pipe) = pipe {
            blocked = pipe.blocked.is_some();
        }
        self.events.push_back((id, PathEvent::Up(info)));
        if blocked {
            self.events.push_back((id, PathEvent::Blocked));
        }
    }

    /// Tells the engine of a path that was just added.
    pub(crate) fn announce_last(&mut self, now: Time, net: &mut Network) {
        if let Some(last) = self.paths.len().checked_sub(1) {
            self.attach(last, net);
            self.announce(now, last, net);
        }
    }

    /// The link went up or down.
    pub(crate) fn link_changed(&mut self, now: Time, link: usize, net: &Network) {
        for index in 0..self.paths.len() {
            if self.paths[index].link == Some(link) && self.paths[index].open {
                self.announce(now, index, net);
            }
        }
    }

    /// The link's queue filled up or has room again.
    pub(crate) fn queue_changed(&mut self, link: usize, event: &PathEvent) {
        for path in self.paths.iter().filter(|path| path.link == Some(link) && path.open) {
            self.events.push_back((path.id, event.clone()));
        }
    }

    /// Sends a batch.
    pub(crate) fn send(&mut self, now: Time, transmit: &Transmit, bytes: &[u8], net: &mut Network) {
        let segment = transmit.segment.max(1);
        let Some(path) = self.sending_path(transmit) else {
            self.stats.unsendable += bytes.len().div_ceil(segment).max(1) as u64;
            return;
        };
        let Path { port, remote, link, .. } = self.paths[path];
        let checksum = if self.config.udp_checksum { Checksum::Full } else { Checksum::None };
        let source = (self.config.address, port);
        let (id, ttl, ecn) = (0, self.config.ttl, transmit.ecn);
        let mut headers = Headers { source, destination: remote, id, ttl, ecn, checksum };
        let empty = bytes.is_empty().then_some(bytes);
        for data in empty.into_iter().chain(bytes.chunks(segment)) {
            let Some(link) = link else {
                self.stats.no_route += 1;
                continue;
            };
            headers.id = self.next_id;
            self.next_id = self.next_id.wrapping_add(1);
            let packet = net.pool.datagram(&headers, data);
            if self.push(now, link, packet, net) {
                let len = HEADERS_LEN + data.len();
                self.stats.sent.count(now, len, data.len());
                self.stats.port(port).sent.count(now, len, data.len());
            }
        }
    }

    /// The path of a batch, if it is open and takes datagrams of this length.
    fn sending_path(&mut self, transmit: &Transmit) -> Option<usize> {
        let hit = self.paths.get(self.last_sent).is_some_and(|path| path.id == transmit.path);
        if !hit {
            self.last_sent = self.paths.iter().position(|path| path.id == transmit.path)?;
        }
        let path = &self.paths[self.last_sent];
        let fits = mtu(&path.info).is_none_or(|mtu| transmit.segment <= mtu);
        (path.open && fits).then_some(self.last_sent)
    }

    /// Pushes a packet and notes when that fills the queue.
    fn push(&mut self, now: Time, link: usize, packet: Packet, net: &mut Network) -> bool {
        let before = net.pipes[link].blocked.is_some();
        let taken = net.push(now, link, packet);
        if !taken {
            self.stats.rejected += 1;
        }
        if !before && net.pipes[link].blocked.is_some() {
            self.queue_changed(link, &PathEvent::Blocked);
        }
        taken
    }

    /// Takes a packet off a link: verifies, forwards, or finds out which path it belongs to.
    pub(crate) fn receive(
        &mut self,
        now: Time,
        mut packet: Packet,
        running: bool,
        net: &mut Network,
    ) -> Arrival {
        if self.config.bent_pipe {
            // Bytes 16 to 19 are the destination; no router looks at the rest.
            let destination = packet.bytes().get(16..20).and_then(|at| at.first_chunk::<4>());
            let destination = destination.map(|octets| Ipv4Addr::from(*octets));
            if let Some(to) = destination.filter(|to| *to != self.config.address) {
                return self.forward(now, to, packet, net);
            }
        }
        let Ok((ip, payload)) = Ipv4::decode(packet.bytes()) else {
            self.stats.bad_ip += 1;
            return Arrival::Dropped(packet);
        };
        if ip.destination != self.config.address {
            let header = packet.bytes_mut().first_chunk_mut::<{ ip::HEADER_LEN }>();
            if !header.is_some_and(ip::decrement_ttl) {
                self.stats.ttl_expired += 1;
                return Arrival::Dropped(packet);
            }
            return self.forward(now, ip.destination, packet, net);
        }
        if ip.protocol != PROTOCOL_UDP || ip.is_fragment() {
            self.stats.bad_ip += 1;
            return Arrival::Dropped(packet);
        }
        let Ok((ports, data)) = Udp::decode(payload, ip.source, ip.destination) else {
            self.stats.bad_udp += 1;
            return Arrival::Dropped(packet);
        };
        let start = usize::from(ip.total_len) - payload.len() + udp::HEADER_LEN;
        let data = start..start + data.len();
        if !running {
            self.stats.while_down += 1;
            return Arrival::Dropped(packet);
        }
        let Some(path) = self.receiving_path(now, ports, ip.source, net) else {
            self.stats.no_port += 1;
            return Arrival::Dropped(packet);
        };
        if path.1 {
            return self.keep(path.0, packet);
        }
        let len = packet.bytes().len();
        self.stats.received.count(now, len, data.len());
        self.stats.port(ports.destination).received.count(now, len, data.len());
        Arrival::Datagram { path: path.0, ecn: packet::ecn(ip.traffic_class), data, packet }
    }

    /// Keeps a packet while reading is paused.
    fn keep(&mut self, path: PathId, packet: Packet) -> Arrival {
        let len = packet.bytes().len();
        if self.kept_bytes + len > self.config.receive_buffer {
            self.stats.buffer_full += 1;
            return Arrival::Dropped(packet);
        }
        self.kept_bytes += len;
        self.kept.push_back((path, packet));
        Arrival::Taken
    }

    /// The path a datagram belongs to and whether its reading is paused; made anew for an unknown
    /// peer of an open port.
    fn receiving_path(
        &mut self,
        now: Time,
        ports: Udp,
        source: Ipv4Addr,
        net: &mut Network,
    ) -> Option<(PathId, bool)> {
        let remote = (source, ports.source);
        let is_it = |path: &Path| path.port == ports.destination && path.remote == remote;
        if !self.paths.get(self.last_received).is_some_and(is_it) {
            match self.paths.iter().position(is_it) {
                Some(index) => self.last_received = index,
                None => {
                    self.meet(ports.destination, remote)?;
                    self.last_received = self.paths.len() - 1;
                    self.announce_last(now, net);
                }
            }
        }
        let path = &self.paths[self.last_received];
        path.open.then_some((path.id, path.paused))
    }

    /// Makes a path for a peer nobody announced, if the port is open and there is room.
    fn meet(&mut self, port: u16, remote: (Ipv4Addr, u16)) -> Option<()> {
        let known = self.listening.iter().find(|(open, _)| *open == port)?;
        let info = self.config.unknown_peer.clone().unwrap_or_else(|| known.1.clone());
        let unknown = self.paths.iter().filter(|path| path.unknown).count();
        if unknown >= self.config.unknown_peers_max {
            return None;
        }
        let id = PathId(self.next_path);
        self.next_path = self.next_path.checked_add(1)?;
        let link = self.route(remote.0);
        let (unknown, open, paused) = (true, true, false);
        self.paths.push(Path { id, port, remote, info, link, unknown, open, paused });
        Some(())
    }

    fn forward(&mut self, now: Time, to: Ipv4Addr, packet: Packet, net: &mut Network) -> Arrival {
        let Some(link) = self.route(to) else {
            self.stats.no_route += 1;
            return Arrival::Dropped(packet);
        };
        if self.push(now, link, packet, net) {
            self.stats.forwarded += 1;
        }
        Arrival::Taken
    }

    /// The engine asks for a path; the answer is an event.
    pub(crate) fn open(&mut self, now: Time, id: PathId, net: &Network) {
        match self.paths.iter().position(|path| path.id == id) {
            Some(index) => {
                self.paths[index].open = true;
                self.announce(now, index, net);
            }
            None => self.events.push_back((id, PathEvent::Down)),
        }
    }

    /// The engine gives a path up.
    pub(crate) fn close(&mut self, id: PathId) {
        if let Some(path) = self.paths.iter_mut().find(|path| path.id == id) {
            path.open = false;
        }
    }

    /// The engine reads from a path no more, or again.
    pub(crate) fn pause(&mut self, id: PathId, paused: bool) {
        if let Some(path) = self.paths.iter_mut().find(|path| path.id == id) {
            path.paused = paused;
        }
        if paused {
            return;
        }
        for (path, packet) in std::mem::take(&mut self.kept) {
            if path == id {
                self.kept_bytes -= packet.bytes().len();
                self.resumed.push_back(packet);
            } else {
                self.kept.push_back((path, packet));
            }
        }
    }
}

/// A datagram as the engine gets it, straight from the packet.
pub(crate) fn datagram(path: PathId, ecn: Ecn, data: &[u8]) -> Receive<'_> {
    Receive { ecn, ..Receive::datagram(path, data) }
}

fn mtu(info: &PathInfo) -> Option<usize> {
    match info.kind {
        PathKind::Datagram { mtu } => Some(mtu),
        PathKind::Message { max } => Some(max),
        PathKind::Stream => None,
    }
}
