//! Two stacks, a link whose treatment of every packet can be chosen, and users that write a given
//! content, read received data and close.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use engine::{Engine, Input, PathEvent, PathId, PathInfo, Receive, Rng, Time, TxBuf};

use crate::packet;
use crate::scps::Holes;
use crate::segment::{Flags, Segment, TcpOption};
use crate::{
    Backlog, CloseReason, Config, ConnectionId, Indication, Info, ListenerId, Options, Stack,
};

pub(super) const PATH: PathId = PathId(3);

/// Listening port of the second host.
pub(super) const PORT: u16 = 80;

/// Packet on its way: sending host, its number there from 0, its bytes.
pub(super) struct Passing<'a> {
    pub(super) from: usize,
    pub(super) number: usize,
    pub(super) bytes: &'a mut Vec<u8>,
}

/// Additional delays of a packet, one for each copy that arrives.
pub(super) type Fate = Box<dyn FnMut(Passing<'_>) -> Vec<Duration>>;

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

pub(super) struct Host {
    pub(super) stack: Stack,
    pub(super) address: SocketAddr,
    pub(super) users: BTreeMap<ConnectionId, User>,
    /// User of an accepted connection.
    pub(super) template: User,
    pub(super) indications: Vec<Indication>,
    /// Data skipped, as reported by its connections.
    pub(super) holes: Holes,
    sent: usize,
    pub(super) blocked: bool,
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) hosts: [Host; 2],
    events: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    serial: u64,
    pub(super) delay: Duration,
    /// Rate in bit/s of either direction, and when it is free.
    pub(super) rate_bps: Option<u64>,
    /// Maximum bytes queued for the link; the excess is lost.
    pub(super) queue: u64,
    free_at: [Time; 2],
    pub(super) fate: Fate,
    pub(super) log: Vec<(Time, usize, Vec<u8>, bool)>,
    pub(super) logging: bool,
    /// Whether users fetch skipped data.
    pub(super) takes_holes: bool,
    pub(super) batch: usize,
    pub(super) steps: u64,
}

pub(super) fn lossless() -> Fate {
    Box::new(|_| vec![Duration::ZERO])
}

/// Loses packets of either host by their numbers.
pub(super) fn lose(first: &'static [usize], second: &'static [usize]) -> Fate {
    Box::new(move |passing| {
        let list = [first, second][passing.from];
        if list.contains(&passing.number) { Vec::new() } else { vec![Duration::ZERO] }
    })
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

pub(super) fn content(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

impl World {
    /// Creates two stacks, 50 ms apart.
    pub(super) fn new(configs: [Config; 2], seed: u64, v6: bool) -> Self {
        let addresses: [SocketAddr; 2] = if v6 {
            ["[2001:db8::1]:0".parse().unwrap(), "[2001:db8::2]:80".parse().unwrap()]
        } else {
            [([10, 0, 0, 1], 0).into(), ([10, 0, 0, 2], PORT).into()]
        };
        let mut number = 0;
        let hosts = configs.map(|config| {
            let address = addresses[number];
            number += 1;
            let rng = Rng::new(seed, if number == 1 { "first" } else { "second" });
            Host {
                stack: Stack::new(config, rng),
                address,
                users: BTreeMap::new(),
                template: User::default(),
                indications: Vec::new(),
                holes: Holes::default(),
                sent: 0,
                blocked: false,
            }
        });
        let mut world = Self {
            now: Time::from_secs(100),
            hosts,
            events: BTreeMap::new(),
            serial: 0,
            delay: Duration::from_millis(50),
            rate_bps: None,
            queue: u64::MAX,
            free_at: [Time::ZERO; 2],
            fate: lossless(),
            log: Vec::new(),
            logging: true,
            takes_holes: true,
            batch: 64,
            steps: 0,
        };
        (0..2).for_each(|host| world.up(host, 1500));
        world
    }

    pub(super) fn plain(seed: u64) -> Self {
        Self::new([Config::default(), Config::default()], seed, false)
    }

    pub(super) fn up(&mut self, host: usize, mtu: usize) {
        self.path(host, PathEvent::Up(PathInfo::datagram(mtu)));
    }

    pub(super) fn path(&mut self, host: usize, event: PathEvent) {
        match event {
            PathEvent::Blocked | PathEvent::Down => self.hosts[host].blocked = true,
            PathEvent::Up(_) | PathEvent::Writable => self.hosts[host].blocked = false,
            PathEvent::Unsent
            | PathEvent::ReadClosed
            | PathEvent::Missing { .. }
            | PathEvent::Secured(_)
            | PathEvent::ReturnDown
            | PathEvent::ReturnUp => {}
        }
        self.hosts[host].stack.handle_input(self.now, Input::Path(PATH, event));
        self.drain(host);
    }

    pub(super) fn listen(&mut self, options: Options, backlog: Backlog) -> ListenerId {
        let host = &mut self.hosts[1];
        host.stack.listen(host.address, options, backlog).expect("nobody listens there")
    }

    /// Opens a connection from the first host to the second, with a user like this.
    pub(super) fn connect(&mut self, options: Options, user: User) -> ConnectionId {
        let remote = self.hosts[1].address;
        let host = &mut self.hosts[0];
        let id = host.stack.connect(self.now, host.address, remote, options).expect("it can");
        host.users.insert(id, user);
        self.drain(0);
        id
    }

    /// First connection accepted by the second host.
    pub(super) fn accepted(&self) -> Option<ConnectionId> {
        self.hosts[1].users.keys().next().copied()
    }

    pub(super) fn info(&mut self, host: usize, id: ConnectionId) -> Info {
        self.hosts[host].stack.info(id).expect("it is known")
    }

    pub(super) fn inject(&mut self, host: usize, packet: &[u8]) {
        let receive = Receive::datagram(PATH, packet);
        self.hosts[host].stack.handle_input(self.now, Input::Receive(receive));
        self.drain(host);
    }

    pub(super) fn drain(&mut self, host: usize) {
        let mut tx = TxBuf::new(self.batch);
        for _ in 0..100_000 {
            let mut busy = false;
            while let Some(indication) = self.hosts[host].stack.poll_indication() {
                busy = true;
                self.indicated(host, indication);
            }
            tx.clear();
            let now = self.now;
            if let Some(transmit) = self.hosts[host].stack.poll_transmit(now, &mut tx) {
                busy = true;
                assert!(!self.hosts[host].blocked, "nothing is sent on a blocked path");
                assert_eq!((transmit.path, transmit.len), (PATH, tx.bytes().len()));
                let packets: Vec<_> = tx.datagrams().map(<[u8]>::to_vec).collect();
                packets.into_iter().for_each(|packet| self.launch(host, packet));
            }
            if !busy {
                return;
            }
        }
        panic!("a drain does not end");
    }

    fn launch(&mut self, from: usize, mut bytes: Vec<u8>) {
        let number = self.hosts[from].sent;
        self.hosts[from].sent += 1;
        let before = self.logging.then(|| bytes.clone());
        let wait = self.free_at[from].since(self.now);
        let waiting = self
            .rate_bps
            .map_or(0, |rate| (wait.as_nanos() * u128::from(rate) / 8_000_000_000) as u64);
        let full = waiting + bytes.len() as u64 > self.queue;
        let arrivals = (self.fate)(Passing { from, number, bytes: &mut bytes });
        let lost = full || arrivals.is_empty();
        self.log.extend(before.map(|before| (self.now, from, before, lost)));
        if full {
            return;
        }
        let mut at = self.now;
        if let Some(rate) = self.rate_bps {
            let took = Duration::from_nanos(bytes.len() as u64 * 8_000_000_000 / rate);
            at = self.free_at[from].max(self.now) + took;
            self.free_at[from] = at;
        }
        for later in arrivals {
            self.serial += 1;
            let key = (at + self.delay + later, self.serial);
            self.events.insert(key, (1 - from, bytes.clone()));
        }
    }

    fn indicated(&mut self, host: usize, indication: Indication) {
        self.hosts[host].indications.push(indication);
        let now = self.now;
        let here = &mut self.hosts[host];
        match indication {
            Indication::Incoming { connection, .. } => {
                let user = here.template.clone();
                here.users.insert(connection, user);
                self.use_connection(host, connection);
            }
            Indication::Connected { connection }
            | Indication::Readable { connection }
            | Indication::Writable { connection } => self.use_connection(host, connection),
            Indication::PeerClosed { connection } => {
                here.users.get_mut(&connection).expect("a user").peer_closed = true;
                self.use_connection(host, connection);
            }
            Indication::Closed { connection, reason } => {
                let user = here.users.get_mut(&connection).expect("a user");
                assert!(user.closed.is_none(), "notified once");
                user.closed = Some((now, reason));
                if user.reads {
                    self.use_connection(host, connection);
                }
            }
            Indication::BacklogFull { .. }
            | Indication::Record { .. }
            | Indication::PlainTcp { .. } => {}
            Indication::Holes { connection } => {
                if self.takes_holes {
                    let holes = here.stack.take_holes(now, connection).unwrap_or_default();
                    here.holes.received.extend(holes.received);
                    here.holes.sent.extend(holes.sent);
                }
            }
        }
    }

    /// Lets a user read and write as much as possible.
    pub(super) fn use_connection(&mut self, host: usize, id: ConnectionId) {
        let now = self.now;
        let Host { stack, users, .. } = &mut self.hosts[host];
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

    pub(super) fn next_time(&self) -> Option<Time> {
        let event = self.events.keys().next().map(|(at, _)| *at);
        let timers = self.hosts.iter().filter_map(|host| host.stack.poll_timeout());
        timers.map(|deadline| deadline.at).chain(event).min()
    }

    pub(super) fn step(&mut self) -> bool {
        let Some(next) = self.next_time() else { return false };
        self.steps += 1;
        self.now = self.now.max(next);
        if self.events.keys().next().is_some_and(|(at, _)| *at <= self.now) {
            let (_, (to, bytes)) = self.events.pop_first().expect("there is one");
            self.inject(to, &bytes);
            return true;
        }
        for host in 0..2 {
            let stack = &mut self.hosts[host].stack;
            if stack.poll_timeout().is_some_and(|deadline| deadline.at <= self.now) {
                stack.handle_timeout(self.now);
                self.drain(host);
                let after = self.hosts[host].stack.poll_timeout();
                assert!(after.is_none_or(|deadline| deadline.at > self.now), "{after:?}");
            }
        }
        true
    }

    /// Runs until no event is left.
    pub(super) fn run(&mut self) {
        assert!(self.ends_within(1_000_000), "it does not end: {:?}", self.deadlines());
    }

    /// Whether no event is left after this many steps.
    pub(super) fn ends_within(&mut self, steps: u64) -> bool {
        let most = self.steps + steps;
        while self.steps < most {
            if !self.step() {
                return true;
            }
        }
        false
    }

    pub(super) fn deadlines(&self) -> [Option<engine::Deadline>; 2] {
        [0, 1].map(|host| self.hosts[host].stack.poll_timeout())
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.next_time().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = until;
    }

    /// Transcript: numbers relative to the first of either host.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut first = [None; 2];
        let mut lines = Vec::new();
        for (_, from, bytes, lost) in &self.log {
            let arrived = packet::decode(bytes).expect("our own packet");
            let header = arrived.segment.header;
            if header.flags.contains(Flags::SYN) {
                first[*from] = Some(header.sequence);
            }
            lines.push(line(&arrived.segment, *from, *lost, first));
        }
        lines
    }
}

fn line(segment: &Segment<'_>, from: usize, lost: bool, first: [Option<u32>; 2]) -> String {
    let header = segment.header;
    let relative = |number: u32, side: usize| number.wrapping_sub(first[side].unwrap_or(0));
    let mut text = if from == 0 { ">" } else { "<" }.to_owned();
    text += if lost { "x " } else { " " };
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
    let user = |host: usize| world.hosts[host].users.values().next();
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
        if host.stack.connections().count() > 0 {
            return Err("a connection is left".into());
        }
        if let Some(deadline) = host.stack.poll_timeout() {
            return Err(format!("the deadline {} is left", deadline.why));
        }
    }
    Ok(())
}
