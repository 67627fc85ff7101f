//! A host's IPv4 and UDP: paths, routes, headers, counters.

mod announce;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};

use engine::{Ecn, PathEvent, PathId, PathInfo, PathKind, Receive, Time, Transmit};
use wire::ip::{self, Ipv4, PROTOCOL_UDP};
use wire::udp::{self, Checksum, Udp};

use crate::net::Network;
use crate::packet::{self, HEADERS_LEN, Headers, Packet};
use crate::stats::HostStats;

/// Configuration of a host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Name, for its interfaces in captures and its randomness.
    pub name: String,
    /// Address.
    pub address: Ipv4Addr,
    /// Maximum datagrams of an engine in one batch.
    pub batch: usize,
    /// Whether datagrams carry a UDP checksum. Without it, damage reaches the engines.
    pub udp_checksum: bool,
    /// Whether the engine is notified of outages and contact ends of a path's first link. It is
    /// also notified of outages of the last link from the peer, one light time later
    /// ([`PathEvent::ReturnDown`]). Outages of links between other hosts are not reported.
    pub cues: bool,
    /// TTL of the packets it sends.
    pub ttl: u8,
    /// Whether the host forwards packets for others without checking checksum and TTL, as a
    /// transponder does; otherwise it is a router.
    pub bent_pipe: bool,
    /// Properties reported for an unknown peer; `None` reports the properties of the first path on
    /// that port.
    pub unknown_peer: Option<PathInfo>,
    /// Maximum paths to unknown peers.
    pub unknown_peers_max: usize,
    /// Bytes buffered while the engine has reading paused.
    pub receive_buffer: usize,
    /// IP protocols whose packets for others also go to an engine with interfaces, as for a
    /// transparent proxy; all other packets for others are forwarded.
    pub intercepts: Vec<u8>,
}

impl HostConfig {
    /// Creates a host with defaults for everything but name and address.
    #[must_use]
    pub fn new(name: impl Into<String>, address: Ipv4Addr) -> Self {
        Self { name: name.into(), address, ..Self::default() }
    }
}

impl Default for HostConfig {
    /// Batches of 1, checksums, cues, TTL 64, a router that intercepts nothing, 1,024 unknown
    /// peers, 4 MiB of buffer.
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
            intercepts: Vec::new(),
        }
    }
}

/// One peer at one pair of ports, one group, or one IP interface.
#[derive(Clone, Debug)]
struct Path {
    id: PathId,
    port: u16,
    remote: SocketAddrV4,
    info: PathInfo,
    /// First link towards the peer; towards a group there may be several.
    links: Vec<usize>,
    /// Whether the path is an interface, whose engine reads and writes whole packets; then the
    /// remote is the neighbour.
    interface: bool,
    /// Whether the path was created for an unknown peer; a restart removes it.
    unknown: bool,
    open: bool,
    paused: bool,
    /// Whether the engine was notified that nothing can arrive.
    return_down: bool,
}

impl Path {
    /// Creates an open path.
    fn new(id: PathId, port: u16, remote: SocketAddrV4, info: PathInfo, links: Vec<usize>) -> Self {
        Self {
            id,
            port,
            remote,
            info,
            links,
            interface: false,
            unknown: false,
            open: true,
            paused: false,
            return_down: false,
        }
    }
}

/// Treatment of a packet that arrived.
pub(crate) enum Arrival {
    /// Dropped and counted.
    Dropped(Packet),
    /// Buffered until the engine reads again.
    Kept,
    /// Delivered: the engine gets its bytes `data`.
    Received { arrived: Arrived, ecn: Ecn, data: std::ops::Range<usize>, packet: Packet },
}

/// Paths of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Peer of the datagram, or the group to which it was sent.
    path: PathId,
    /// Sender.
    from: PathId,
}

#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) index: usize,
    pub(crate) config: HostConfig,
    pub(crate) stats: HostStats,
    /// Path events not yet passed to the engine.
    pub(crate) events: VecDeque<(PathId, PathEvent)>,
    /// Packets buffered while reading was paused that may be delivered now, with their paths.
    pub(crate) resumed: VecDeque<(PathId, Packet)>,
    /// Links for packets from a source to a group.
    group_routes: BTreeMap<(Ipv4Addr, Ipv4Addr), Vec<usize>>,
    paths: Vec<Path>,
    /// First path from a port to a peer, as index in `paths`: a member of a large group has many.
    by_peer: BTreeMap<(u16, SocketAddrV4), usize>,
    /// Groups of which it is a member.
    groups: BTreeSet<Ipv4Addr>,
    /// Indices of the paths used last, checked first.
    last_sent: usize,
    last_received: usize,
    last_group: usize,
    kept: VecDeque<(PathId, Packet)>,
    kept_bytes: usize,
    listening: Vec<(u16, PathInfo)>,
    next_path: u32,
    next_id: u16,
    /// Whether some paths are interfaces.
    has_interfaces: bool,
}

impl Stack {
    pub(crate) fn new(index: usize, config: HostConfig) -> Self {
        Self {
            index,
            config,
            stats: HostStats::default(),
            events: VecDeque::new(),
            resumed: VecDeque::new(),
            group_routes: BTreeMap::new(),
            paths: Vec::new(),
            by_peer: BTreeMap::new(),
            groups: BTreeSet::new(),
            last_sent: 0,
            last_received: 0,
            last_group: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            listening: Vec::new(),
            next_path: 0,
            next_id: 0,
            has_interfaces: false,
        }
    }

    pub(crate) fn add_path(
        &mut self,
        id: PathId,
        port: u16,
        remote: SocketAddrV4,
        info: PathInfo,
        net: &Network,
    ) {
        assert!(self.paths.iter().all(|path| path.id != id), "{id:?} is taken");
        self.listen(port, info.clone());
        self.next_path = self.next_path.max(id.0.saturating_add(1));
        let links = self.links_to(*remote.ip(), net);
        self.push_path(Path::new(id, port, remote, info, links));
    }

    /// Adds an interface to the neighbour at the end of a link.
    pub(crate) fn add_interface(&mut self, id: PathId, link: usize, info: PathInfo, net: &Network) {
        assert!(self.paths.iter().all(|path| path.id != id), "{id:?} is taken");
        let neighbour = net.nodes[net.pipes[link].to].address;
        let path = Path::new(id, 0, SocketAddrV4::new(neighbour, 0), info, vec![link]);
        self.push_path(Path { interface: true, ..path });
    }

    fn push_path(&mut self, path: Path) {
        if path.interface {
            self.has_interfaces = true;
            self.paths.push(path);
            return;
        }
        if path.remote.ip().is_multicast() {
            self.groups.insert(*path.remote.ip());
        }
        self.by_peer.entry((path.port, path.remote)).or_insert(self.paths.len());
        self.paths.push(path);
    }

    /// Accepts datagrams of unknown peers on a port; the first `info` given for it counts.
    pub(crate) fn listen(&mut self, port: u16, info: PathInfo) {
        if self.listening.iter().all(|(open, _)| *open != port) {
            self.listening.push((port, info));
        }
    }

    /// Sets the route to a destination.
    pub(crate) fn add_route(&mut self, destination: Ipv4Addr, link: usize, net: &mut Network) {
        net.nodes[self.index].routes.insert(destination, link);
        self.resolve(net);
    }

    /// Adds a link for packets from a source to a group.
    pub(crate) fn add_group_route(
        &mut self,
        source: Ipv4Addr,
        group: Ipv4Addr,
        link: usize,
        net: &mut Network,
    ) {
        let links = self.group_routes.entry((source, group)).or_default();
        if !links.contains(&link) {
            links.push(link);
        }
        if source == self.config.address {
            self.resolve(net);
        }
    }

    /// Adds the route to a neighbour unless there is one.
    pub(crate) fn add_neighbour(&mut self, link: usize, net: &mut Network) {
        let address = net.nodes[net.pipes[link].to].address;
        net.nodes[self.index].routes.entry(address).or_insert(link);
        self.resolve(net);
    }

    /// Resolves each path's first links and marks the links whose engine watches them.
    pub(crate) fn resolve(&mut self, net: &mut Network) {
        for index in 0..self.paths.len() {
            if !self.paths[index].interface {
                self.paths[index].links = self.links_to(*self.paths[index].remote.ip(), net);
            }
            self.attach(index, net);
        }
    }

    fn attach(&self, path: usize, net: &mut Network) {
        let path = &self.paths[path];
        let headers = if path.interface { 0 } else { HEADERS_LEN };
        let packet = mtu(&path.info).map_or(0, |mtu| mtu.saturating_add(headers));
        for &link in &path.links {
            let pipe = &mut net.pipes[link];
            pipe.cues = self.config.cues;
            pipe.mtu = pipe.mtu.max(packet);
        }
    }

    fn route(&self, destination: Ipv4Addr, net: &Network) -> Option<usize> {
        net.nodes[self.index].routes.get(&destination).copied()
    }

    /// Returns the links for this host's packets to a peer or group.
    fn links_to(&self, destination: Ipv4Addr, net: &Network) -> Vec<usize> {
        if destination.is_multicast() {
            let links = self.group_routes.get(&(self.config.address, destination));
            return links.cloned().unwrap_or_default();
        }
        self.route(destination, net).into_iter().collect()
    }

    /// Returns the links over which packets from a path's peer arrive: the last on its route, or
    /// for a group those from the neighbours. An interface forwards packets of anybody, so none is
    /// watched.
    fn links_from(&self, path: &Path, net: &Network) -> Vec<usize> {
        match path {
            Path { interface: true, .. } => Vec::new(),
            Path { remote, links, .. } if remote.ip().is_multicast() => net.links_back(links),
            Path { remote, .. } => net.return_link(*remote.ip(), self.index).into_iter().collect(),
        }
    }

    fn is_member(&self, group: Ipv4Addr) -> bool {
        self.groups.contains(&group)
    }

    /// Sends a batch.
    pub(crate) fn send(&mut self, now: Time, transmit: &Transmit, bytes: &[u8], net: &mut Network) {
        let segment = transmit.segment.max(1);
        let Some(path) = self.sending_path(transmit) else {
            self.stats.unsendable += bytes.len().div_ceil(segment).max(1) as u64;
            return;
        };
        let Path { port, remote, ref links, interface, .. } = self.paths[path];
        let links = links.len();
        if interface {
            self.send_packets(now, path, bytes.chunks(segment), net);
            return;
        }
        let checksum = if self.config.udp_checksum { Checksum::Full } else { Checksum::None };
        let source = SocketAddrV4::new(self.config.address, port);
        let (id, ttl, ecn) = (0, self.config.ttl, transmit.ecn);
        let mut headers = Headers { source, destination: remote, id, ttl, ecn, checksum };
        let empty = bytes.is_empty().then_some(bytes);
        for data in empty.into_iter().chain(bytes.chunks(segment)) {
            if links == 0 {
                self.stats.no_route += 1;
                continue;
            }
            headers.id = self.next_id;
            self.next_id = self.next_id.wrapping_add(1);
            let packet = net.pool.datagram(&headers, data);
            let mut taken = false;
            for link in 0..links - 1 {
                taken |= self.push(now, self.paths[path].links[link], packet.share(), net);
            }
            taken |= self.push(now, self.paths[path].links[links - 1], packet, net);
            if taken {
                let len = HEADERS_LEN + data.len();
                self.stats.sent.count(now, len, data.len());
                self.stats.port(port).sent.count(now, len, data.len());
            }
        }
    }

    /// Sends whole packets over an interface.
    fn send_packets<'a>(
        &mut self,
        now: Time,
        path: usize,
        packets: impl Iterator<Item = &'a [u8]>,
        net: &mut Network,
    ) {
        let link = self.paths[path].links[0];
        for bytes in packets {
            let packet = net.pool.packet(bytes);
            if self.push(now, link, packet, net) {
                self.stats.sent.count(now, bytes.len(), bytes.len());
            }
        }
    }

    /// Returns the path of a batch, if it is open and takes datagrams of this length.
    fn sending_path(&mut self, transmit: &Transmit) -> Option<usize> {
        let hit = self.paths.get(self.last_sent).is_some_and(|path| path.id == transmit.path);
        if !hit {
            self.last_sent = self.paths.iter().position(|path| path.id == transmit.path)?;
        }
        let path = &self.paths[self.last_sent];
        let fits = mtu(&path.info).is_none_or(|mtu| transmit.segment <= mtu);
        (path.open && fits).then_some(self.last_sent)
    }

    /// Pushes a packet; if the packet fills the queue, records that.
    fn push(&mut self, now: Time, link: usize, packet: Packet, net: &mut Network) -> bool {
        let before = net.pipes[link].blocked.is_some();
        let taken = net.push(now, link, packet);
        if !taken {
            self.stats.rejected += 1;
        }
        if !before && net.pipes[link].blocked.is_some() {
            self.queue_changed(link, &PathEvent::Blocked, net);
        }
        taken
    }

    /// Takes a packet off a link and forwards it if it is for others; returns it if it is also for
    /// this host.
    pub(crate) fn pass_on(
        &mut self,
        now: Time,
        mut packet: Packet,
        net: &mut Network,
    ) -> Option<Packet> {
        // Bytes 12 to 19 are source and destination; a bent pipe reads nothing else.
        let address = |at| packet.bytes().get(at..)?.first_chunk::<4>();
        let (Some(source), Some(destination)) = (address(12), address(16)) else {
            return Some(packet);
        };
        let (source, destination) = (Ipv4Addr::from(*source), Ipv4Addr::from(*destination));
        if destination == self.config.address || self.intercepts(packet.bytes()) {
            return Some(packet);
        }
        if !self.config.bent_pipe && Ipv4::decode(packet.bytes()).is_err() {
            self.stats.bad_ip += 1;
            net.pool.recycle(packet);
            return None;
        }
        let here = destination.is_multicast() && self.is_member(destination);
        let link = self.route(destination, net);
        let group = self.group_routes.get(&(source, destination)).cloned();
        let links = group.as_deref().unwrap_or(link.as_slice());
        if here && links.is_empty() {
            return Some(packet);
        }
        let for_here = here.then(|| packet.share());
        if !self.config.bent_pipe {
            let header = packet.bytes_mut().first_chunk_mut::<{ ip::HEADER_LEN }>();
            if !header.is_some_and(ip::decrement_ttl) {
                self.stats.ttl_expired += 1;
                net.pool.recycle(packet);
                return for_here;
            }
        }
        self.forward(now, links, packet, net);
        for_here
    }

    /// Whether the engine also gets a packet for others.
    fn intercepts(&self, packet: &[u8]) -> bool {
        // Byte 9 is the protocol.
        let protocol = packet.get(9);
        protocol.is_some_and(|protocol| self.config.intercepts.contains(protocol))
    }

    /// Pushes a packet for others onto each of the links; counts it once.
    fn forward(&mut self, now: Time, links: &[usize], packet: Packet, net: &mut Network) {
        let Some((last, others)) = links.split_last() else {
            self.stats.no_route += 1;
            net.pool.recycle(packet);
            return;
        };
        let mut taken = false;
        for link in others {
            taken |= self.push(now, *link, packet.share(), net);
        }
        taken |= self.push(now, *last, packet, net);
        if taken {
            self.stats.forwarded += 1;
        }
    }

    /// Returns the interface to a neighbour, if there is one.
    pub(crate) fn interface_to(&self, neighbour: usize, net: &Network) -> Option<PathId> {
        if !self.has_interfaces {
            return None;
        }
        let leads_there =
            |path: &&Path| path.links.iter().any(|link| net.pipes[*link].to == neighbour);
        let mut interfaces = self.paths.iter().filter(|path| path.interface && path.open);
        interfaces.find(leads_there).map(|path| path.id)
    }

    /// Takes a packet for the engine behind an interface, which verifies it itself.
    pub(crate) fn receive_packet(
        &mut self,
        now: Time,
        path: PathId,
        packet: Packet,
        running: bool,
    ) -> Arrival {
        if !running {
            self.stats.while_down += 1;
            return Arrival::Dropped(packet);
        }
        if self.paths.iter().any(|other| other.id == path && other.paused) {
            return self.keep(path, packet);
        }
        let len = packet.bytes().len();
        self.stats.received.count(now, len, len);
        // Byte 1 is the traffic class.
        let ecn = packet::ecn(packet.bytes().get(1).copied().unwrap_or_default());
        Arrival::Received { arrived: Arrived { path, from: path }, ecn, data: 0..len, packet }
    }

    /// Takes a buffered packet, now that its path is read again.
    pub(crate) fn receive_again(
        &mut self,
        now: Time,
        path: PathId,
        packet: Packet,
        net: &mut Network,
    ) -> Arrival {
        if self.paths.iter().any(|other| other.id == path && other.interface) {
            return self.receive_packet(now, path, packet, true);
        }
        self.receive(now, packet, true, net)
    }

    /// Verifies a packet for this host and finds its path.
    pub(crate) fn receive(
        &mut self,
        now: Time,
        packet: Packet,
        running: bool,
        net: &mut Network,
    ) -> Arrival {
        let Ok((ip, payload)) = Ipv4::decode(packet.bytes()) else {
            self.stats.bad_ip += 1;
            return Arrival::Dropped(packet);
        };
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
        let Some((arrived, paused)) = self.receiving_path(now, ports, &ip, net) else {
            self.stats.no_port += 1;
            return Arrival::Dropped(packet);
        };
        if paused {
            return self.keep(arrived.path, packet);
        }
        let len = packet.bytes().len();
        self.stats.received.count(now, len, data.len());
        self.stats.port(ports.destination).received.count(now, len, data.len());
        Arrival::Received { arrived, ecn: packet::ecn(ip.traffic_class), data, packet }
    }

    /// Buffers a packet while reading is paused.
    fn keep(&mut self, path: PathId, packet: Packet) -> Arrival {
        let len = packet.bytes().len();
        if self.kept_bytes + len > self.config.receive_buffer {
            self.stats.buffer_full += 1;
            return Arrival::Dropped(packet);
        }
        self.kept_bytes += len;
        self.kept.push_back((path, packet));
        Arrival::Kept
    }

    /// Returns a datagram's path, and whether its reading is paused.
    fn receiving_path(
        &mut self,
        now: Time,
        ports: Udp,
        ip: &Ipv4,
        net: &mut Network,
    ) -> Option<(Arrived, bool)> {
        let sender = SocketAddrV4::new(ip.source, ports.source);
        if !ip.destination.is_multicast() {
            let peer = self.peer(now, ports.destination, sender, net)?;
            return Some((Arrived { path: peer.id, from: peer.id }, peer.paused));
        }
        let group = SocketAddrV4::new(ip.destination, ports.destination);
        if self.paths.get(self.last_group).is_none_or(|path| path.remote != group) {
            self.last_group = self.paths.iter().position(|path| path.remote == group)?;
        }
        let Path { id: path, port, open, paused, .. } = self.paths[self.last_group];
        // Replies to the sender leave from the port that receives the group.
        let from = self.peer(now, port, sender, net).filter(|_| open)?.id;
        Some((Arrived { path, from }, paused))
    }

    /// Returns the open path to a peer from a port; creates one for an unknown peer of an open
    /// port.
    fn peer(
        &mut self,
        now: Time,
        port: u16,
        remote: SocketAddrV4,
        net: &mut Network,
    ) -> Option<&Path> {
        let is_it = |path: &Path| path.port == port && path.remote == remote;
        if !self.paths.get(self.last_received).is_some_and(is_it) {
            match self.by_peer.get(&(port, remote)) {
                Some(index) => self.last_received = *index,
                None => {
                    self.meet(port, remote, net)?;
                    self.last_received = self.paths.len() - 1;
                    self.announce_last(now, net);
                }
            }
        }
        Some(&self.paths[self.last_received]).filter(|path| path.open)
    }

    /// Creates a path for an unknown peer, if the port is open and there is room.
    fn meet(&mut self, port: u16, remote: SocketAddrV4, net: &Network) -> Option<()> {
        let known = self.listening.iter().find(|(open, _)| *open == port)?;
        let info = self.config.unknown_peer.clone().unwrap_or_else(|| known.1.clone());
        let unknown = self.paths.iter().filter(|path| path.unknown).count();
        if unknown >= self.config.unknown_peers_max {
            return None;
        }
        let id = PathId(self.next_path);
        self.next_path = self.next_path.checked_add(1)?;
        let links = self.links_to(*remote.ip(), net);
        self.push_path(Path { unknown: true, ..Path::new(id, port, remote, info, links) });
        Some(())
    }

    /// Opens a path for the engine; completes with an event.
    pub(crate) fn open(&mut self, now: Time, id: PathId, net: &mut Network) {
        match self.paths.iter().position(|path| path.id == id) {
            Some(index) => {
                self.paths[index].open = true;
                self.announce(now, index, net);
            }
            None => self.events.push_back((id, PathEvent::Down)),
        }
    }

    /// Closes a path for the engine.
    pub(crate) fn close(&mut self, id: PathId) {
        if let Some(path) = self.paths.iter_mut().find(|path| path.id == id) {
            path.open = false;
        }
    }

    /// Pauses or resumes reading from a path.
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
                self.resumed.push_back((path, packet));
            } else {
                self.kept.push_back((path, packet));
            }
        }
    }
}

/// Returns a datagram in the engine's form, borrowed from the packet.
pub(crate) fn datagram(arrived: Arrived, ecn: Ecn, data: &[u8]) -> Receive<'_> {
    Receive { ecn, from: arrived.from, ..Receive::datagram(arrived.path, data) }
}

fn mtu(info: &PathInfo) -> Option<usize> {
    match info.kind {
        PathKind::Datagram { mtu } => Some(mtu),
        PathKind::Message { max } => Some(max),
        PathKind::Stream => None,
    }
}
