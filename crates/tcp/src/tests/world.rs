//! Two stacks, a link whose treatment of every packet can be chosen, and users that write a given
//! content, read received data and close.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use engine::{Deadline, Effect, Engine, Input, PathEvent, PathInfo, Rng, Time, Transmit, TxBuf};

pub(super) use crate::test_world::{PATH, content};

use crate::packet;
use crate::scps::Holes;
use crate::segment::{Flags, Segment, TcpOption};
use crate::test_world::{self, End, Hop, Line, Losses};
use crate::{
    Backlog, CloseReason, Config, ConnectionId, Indication, Info, ListenerId, Options, Stack,
};

/// Listening port of the second host.
pub(super) const PORT: u16 = 80;

/// User of one connection.
#[derive(Clone, Debug)]
pub(super) struct User {
    /// Data it writes.
    pub(super) content: Vec<u8>,
    pub(super) written: usize,
    /// Whether it closes its direction when everything is written, and when the peer has closed.
    pub(super) closes: bool,
    pub(super) waits_for_peer: bool,
    /// Whether it reads received data.
    pub(super) reads: bool,
    pub(super) received: Vec<u8>,
    pub(super) peer_closed: bool,
    pub(super) closed: Option<(Time, CloseReason)>,
}

impl Default for User {
    fn default() -> Self {
        Self {
            content: Vec::new(),
            written: 0,
            closes: true,
            waits_for_peer: false,
            reads: true,
            received: Vec::new(),
            peer_closed: false,
            closed: None,
        }
    }
}

/// Stack with the users of its connections.
pub(super) struct Node {
    pub(super) stack: Stack,
    pub(super) address: SocketAddr,
    pub(super) users: BTreeMap<ConnectionId, User>,
    /// User of an accepted connection.
    pub(super) template: User,
    /// Data skipped, as reported by its connections.
    pub(super) holes: Holes,
    /// Whether users fetch skipped data.
    pub(super) takes_holes: bool,
}

impl Engine for Node {
    type Indication = Indication;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        self.stack.handle_input(now, input);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.stack.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.stack.poll_transmit(now, tx)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.stack.poll_effect()
    }

    fn poll_indication(&mut self) -> Option<Indication> {
        self.stack.poll_indication()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.stack.poll_timeout()
    }
}

impl Node {
    fn new(config: Config, address: SocketAddr, rng: Rng) -> Self {
        Self {
            stack: Stack::new(config, rng),
            address,
            users: BTreeMap::new(),
            template: User::default(),
            holes: Holes::default(),
            takes_holes: true,
        }
    }

    fn on_indication(&mut self, now: Time, indication: &Indication) {
        match *indication {
            Indication::Incoming { connection, .. } => {
                self.users.insert(connection, self.template.clone());
                self.use_connection(now, connection);
            }
            Indication::Connected { connection }
            | Indication::Readable { connection }
            | Indication::Writable { connection } => self.use_connection(now, connection),
            Indication::PeerClosed { connection } => {
                self.users.get_mut(&connection).expect("a user").peer_closed = true;
                self.use_connection(now, connection);
            }
            Indication::Closed { connection, reason } => {
                let user = self.users.get_mut(&connection).expect("a user");
                assert!(user.closed.is_none(), "notified once");
                user.closed = Some((now, reason));
                if user.reads {
                    self.use_connection(now, connection);
                }
            }
            Indication::BacklogFull { .. }
            | Indication::Record { .. }
            | Indication::PlainTcp { .. } => {}
            Indication::Holes { connection } => {
                if self.takes_holes {
                    let holes = self.stack.take_holes(now, connection).unwrap_or_default();
                    self.holes.received.extend(holes.received);
                    self.holes.sent.extend(holes.sent);
                }
            }
        }
    }

    /// Lets a user read and write as much as possible.
    fn use_connection(&mut self, now: Time, id: ConnectionId) {
        let Self { stack, users, .. } = self;
        let Some(user) = users.get_mut(&id) else { return };
        if user.reads {
            // A closed connection without unread data is unknown.
            let _ = stack.receive(now, id, &mut user.received);
        }
        if user.closed.is_some() {
            return;
        }
        if user.written < user.content.len() {
            let taken = stack.send(now, id, &user.content[user.written..]).expect("it is open");
            user.written += taken;
        }
        let waits = user.waits_for_peer && !user.peer_closed;
        if user.closes && user.written == user.content.len() && !waits {
            let _ = stack.shut_down(now, id);
        }
    }
}

pub(super) type World = test_world::World<Node>;

/// Loses packets of either host by their numbers.
pub(super) fn lose(first: &'static [usize], second: &'static [usize]) -> Losses {
    Box::new(move |from, number, _| [first, second][from].contains(&number))
}

/// Corrects the checksum of an IPv4 packet's segment.
pub(super) fn mend_checksum(bytes: &mut [u8]) {
    let (ip, _) = wire::ip::Ipv4::decode(bytes).expect("a packet of ours");
    let pseudo =
        crate::segment::PseudoHeader::new(ip.source.into(), ip.destination.into(), ip.protocol);
    let segment = &mut bytes[wire::ip::HEADER_LEN..];
    segment[16..18].fill(0);
    let checksum = !pseudo.total(segment);
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
}

impl World {
    /// Creates two stacks, 50 ms apart.
    pub(super) fn new(configs: [Config; 2], seed: u64, v6: bool) -> Self {
        let addresses: [SocketAddr; 2] = if v6 {
            ["[2001:db8::1]:0".parse().unwrap(), "[2001:db8::2]:80".parse().unwrap()]
        } else {
            [([10, 0, 0, 1], 0).into(), ([10, 0, 0, 2], PORT).into()]
        };
        let nodes = (0..).zip(configs).map(|(host, config)| {
            Node::new(config, addresses[host], Rng::new(seed, ["first", "second"][host]))
        });
        let ends = [0, 1].map(|host| End { host, path: PATH });
        let mut hop = Hop::new(ends, PathInfo::datagram(1500));
        hop.line = Some(Line::new(Duration::from_millis(50), None));
        let mut world = Self::network(Time::from_secs(100), nodes, vec![hop]);
        world.react = Some(Node::on_indication);
        world.batch = 64;
        world.start();
        world
    }

    pub(super) fn plain(seed: u64) -> Self {
        Self::new([Config::default(), Config::default()], seed, false)
    }

    pub(super) fn path(&mut self, host: usize, event: PathEvent) {
        self.input(host, Input::Path(PATH, event));
    }

    pub(super) fn listen(&mut self, options: Options, backlog: Backlog) -> ListenerId {
        let node = &mut self.hosts[1].engine;
        let address = node.address;
        node.stack.listen(address, options, backlog).expect("nobody listens there")
    }

    /// Opens a connection from the first host to the second, with a user like this.
    pub(super) fn connect(&mut self, options: Options, user: User) -> ConnectionId {
        let remote = self.hosts[1].engine.address;
        let node = &mut self.hosts[0].engine;
        let address = node.address;
        let id = node.stack.connect(self.now, address, remote, options).expect("it can");
        node.users.insert(id, user);
        self.drain(0);
        id
    }

    /// First connection accepted by the second host.
    pub(super) fn accepted(&self) -> Option<ConnectionId> {
        self.hosts[1].engine.users.keys().next().copied()
    }

    pub(super) fn info(&mut self, host: usize, id: ConnectionId) -> Info {
        self.hosts[host].engine.stack.info(id).expect("it is known")
    }

    /// Lets a user read and write as much as possible.
    pub(super) fn use_connection(&mut self, host: usize, id: ConnectionId) {
        self.hosts[host].engine.use_connection(self.now, id);
        self.drain(host);
    }

    /// Whether no event is left after this many.
    pub(super) fn ends_within(&mut self, events: u64) -> bool {
        (0..events).any(|_| !self.step())
    }

    pub(super) fn deadlines(&self) -> [Option<Deadline>; 2] {
        [0, 1].map(|host| self.hosts[host].engine.poll_timeout())
    }

    /// Transcript: numbers relative to the first of either host.
    pub(super) fn transcript(&self) -> Vec<String> {
        let mut first = [None; 2];
        let mut lines = Vec::new();
        for sent in &self.log {
            let arrived = packet::decode(&sent.bytes).expect("our own packet");
            let header = arrived.segment.header;
            if header.flags.contains(Flags::SYN) {
                first[sent.from] = Some(header.sequence);
            }
            lines.push(sent.line(&describe(&arrived.segment, sent.from, first)));
        }
        lines
    }
}

fn describe(segment: &Segment<'_>, from: usize, first: [Option<u32>; 2]) -> String {
    let header = segment.header;
    let relative = |number: u32, side: usize| number.wrapping_sub(first[side].unwrap_or(0));
    let mut text = String::new();
    for (flag, name) in [(Flags::SYN, "SYN "), (Flags::FIN, "FIN "), (Flags::RST, "RST ")] {
        text += if header.flags.contains(flag) { name } else { "" };
    }
    let at = relative(header.sequence, from);
    text += &format!("{at}+{}", segment.payload.len());
    if header.flags.contains(Flags::ACK) {
        text += &format!(" ack {}", relative(header.acknowledgment, 1 - from));
    }
    for option in segment.options.map_while(Result::ok) {
        if let TcpOption::Snack { offset, size, .. } = option {
            text += &format!(" snack {offset}+{size}");
        }
        if let TcpOption::Sack(blocks) = option {
            for block in blocks.as_slice() {
                let (left, right) =
                    (relative(block.left, 1 - from), relative(block.right, 1 - from));
                text += &format!(" [{left}-{right}]");
            }
        }
    }
    text
}

/// Checks that both users of the first connection have everything and all is closed. `Err`
/// describes the missing part.
pub(super) fn finished(world: &World) -> Result<(), String> {
    let user = |host: usize| world.hosts[host].engine.users.values().next();
    let (Some(a), Some(b)) = (user(0), user(1)) else { return Err("no connection".into()) };
    for (name, from, to) in [("first", a, b), ("second", b, a)] {
        if from.content != to.received {
            return Err(format!(
                "{name}: {} bytes of {} arrived; {:?} and {:?}",
                to.received.len(),
                from.content.len(),
                from.closed,
                to.closed,
            ));
        }
        if !to.peer_closed {
            return Err(format!("{name}: its end did not arrive"));
        }
        if from.closed.map(|(_, reason)| reason) != Some(CloseReason::Graceful) {
            return Err(format!("{name}: closed {:?}, its peer {:?}", from.closed, to.closed));
        }
    }
    for host in &world.hosts {
        if host.engine.stack.connections().count() > 0 {
            return Err("a connection is left".into());
        }
        if let Some(deadline) = host.engine.stack.poll_timeout() {
            return Err(format!("the deadline {} is left", deadline.why));
        }
    }
    Ok(())
}
