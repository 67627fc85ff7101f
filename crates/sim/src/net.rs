//! The links of a world and the packets in them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::net::Ipv4Addr;

use engine::{Rng, Time};
use link::{ConfigError, Departure, Fate, Framing, Left, Line, LineStats, Link, WhileDown};
use pcap::LinkType;

use crate::agenda::Agenda;
use crate::capture::{Capture, Ends, Interface};
use crate::packet::{Packet, Pool};
use crate::trace::{PacketFate, Trace, TraceRow};

/// One direction of a link and the host it leads to.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) link: Link<Packet>,
    /// PPP of its packets, if configured.
    line: Option<Line>,
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Time of the next action for the link's packets.
    due: Option<Time>,
    /// Time of its next change between up and down.
    pub(crate) change: Option<Time>,
    pub(crate) up: bool,
    /// State of the link at the far end, one light time later.
    pub(crate) exit: Exit,
    /// State of a host that was notified of a full queue.
    pub(crate) blocked: Option<Blocked>,
    /// Largest packet of the paths that start with this link; 0 if there are none.
    pub(crate) mtu: usize,
    /// Whether the near end's engine is notified of outages.
    pub(crate) cues: bool,
    /// Captures at the two ends, each with its interface.
    near: Vec<(usize, Interface)>,
    far: Vec<(usize, Interface)>,
}

/// State of a link's far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// Whether anything can arrive.
    pub(crate) up: bool,
    /// Time of the next change.
    pub(crate) change: Option<Time>,
    /// Whether an engine at the far end is notified of changes.
    pub(crate) cues: bool,
}

impl Exit {
    /// Returns the state at the far end at `now`: an outage starts and ends there one light time
    /// after it does at the near end.
    fn at_far_end(link: &Link<Packet>, now: Time, cues: bool) -> Self {
        let mut left = Time::ZERO + now.since(Time::ZERO + link.delay_at(now));
        let mut up = link.is_up(left);
        loop {
            let change = link.next_change(left);
            let arrives = change.map(|at| at + link.delay_at(at));
            match change {
                // The state at the far end follows each change whose arrival time has passed; if
                // the delay grows, packets sent before the change may arrive later still.
                Some(at) if arrives.is_some_and(|arrives| arrives <= now) => {
                    up = link.is_up(at);
                    left = at;
                }
                Some(_) | None => return Self { up, change: arrives, cues },
            }
        }
    }
}

/// State of a queue without room for one more MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    /// Time at which there is room again; `None` if never.
    pub(crate) until: Option<Time>,
}

/// State of a host that links and captures need.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    /// Link to each destination.
    pub(crate) routes: BTreeMap<Ipv4Addr, usize>,
}

/// All links, with their captures and traces.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) nodes: Vec<Node>,
    pub(crate) pipes: Vec<Pipe>,
    pub(crate) pool: Pool,
    pub(crate) trace: Option<Trace>,
    /// Time of the next action on each link: two slots per link, its packets and the room in its
    /// queue.
    agenda: Agenda,
    /// Links that are or will be down.
    gated: BTreeSet<usize>,
    /// Links whose far end is or will be down.
    exits_gated: BTreeSet<usize>,
    captures: Vec<Capture>,
    pushed: u64,
}

/// Action due on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    /// A packet is due.
    Packet,
    /// A queue that was full may have room.
    Room,
}

impl Network {
    pub(crate) fn add_link(
        &mut self,
        from: usize,
        to: usize,
        config: link::Config,
        seed: u64,
        now: Time,
    ) -> Result<usize, ConfigError> {
        let same = |pipe: &&Pipe| (pipe.from, pipe.to) == (from, to);
        let count = self.pipes.iter().filter(same).count();
        let (near, far) = (&self.nodes[from].name, &self.nodes[to].name);
        let rng = Rng::new(seed, &link::stream(near, far, count));
        let line = Line::new(&config);
        let link = Link::new(config, rng)?;
        let matches = |from: usize, to: usize| {
            let captures = self.captures.iter().enumerate();
            let of_ends = captures.filter_map(|(index, c)| Some((index, c.interface(from, to)?)));
            of_ends.collect::<Vec<_>>()
        };
        let (near, far) = (matches(from, to), matches(to, from));
        self.pipes.push(Pipe {
            link,
            line,
            from,
            to,
            due: None,
            change: None,
            up: true,
            exit: Exit { up: true, change: None, cues: false },
            blocked: None,
            mtu: 0,
            cues: false,
            near,
            far,
        });
        let pipe = self.pipes.len() - 1;
        self.look(now, pipe);
        self.look_at_exit(now, pipe);
        Ok(pipe)
    }

    /// Returns the first due link, with time and action.
    pub(crate) fn next(&self) -> Option<(Time, usize, Chore)> {
        let (at, slot) = self.agenda.first()?;
        Some((at, slot / 2, if slot % 2 == 0 { Chore::Packet } else { Chore::Room }))
    }

    /// Returns links that are or will be down and whose engine is notified, with their numbers.
    pub(crate) fn cued(&self) -> impl Iterator<Item = (usize, &Pipe)> {
        let gated = self.gated.iter().map(|pipe| (*pipe, &self.pipes[*pipe]));
        gated.filter(|(_, pipe)| pipe.cues)
    }

    /// Returns links at whose far end nothing can arrive, now or later, and whose engine there is
    /// notified.
    pub(crate) fn exits_cued(&self) -> impl Iterator<Item = (usize, &Pipe)> {
        let gated = self.exits_gated.iter().map(|pipe| (*pipe, &self.pipes[*pipe]));
        gated.filter(|(_, pipe)| pipe.exit.cues)
    }

    /// Returns the link over which a host receives packets from `peer`, by the current routes.
    pub(crate) fn return_link(&self, peer: Ipv4Addr, host: usize) -> Option<usize> {
        let destination = self.nodes[host].address;
        let mut at = self.nodes.iter().position(|node| node.address == peer)?;
        for _ in 0..self.nodes.len() {
            let link = *self.nodes[at].routes.get(&destination)?;
            at = self.pipes[link].to;
            if at == host {
                return Some(link);
            }
        }
        None
    }

    /// Returns the return links of these links.
    pub(crate) fn links_back(&self, links: &[usize]) -> Vec<usize> {
        let is_back = |pipe: &Pipe| {
            links
                .iter()
                .any(|link| (self.pipes[*link].to, self.pipes[*link].from) == (pipe.from, pipe.to))
        };
        (0..self.pipes.len()).filter(|index| is_back(&self.pipes[*index])).collect()
    }

    /// Re-reads a link's times and state after a change from outside.
    pub(crate) fn look(&mut self, now: Time, pipe: usize) {
        let at = &mut self.pipes[pipe];
        at.due = at.link.next();
        at.up = at.link.is_up(now);
        at.change = at.link.next_change(now);
        if at.blocked.is_some() {
            at.blocked = Some(Blocked { until: at.link.free_at(now, at.mtu.max(1)) });
        }
        if at.up && at.change.is_none() {
            self.gated.remove(&pipe);
        } else {
            self.gated.insert(pipe);
        }
        self.schedule(pipe);
    }

    /// Updates the state of a link's far end. Separate from [`Network::look`], because both ends
    /// may change at the same moment and each change is an event.
    pub(crate) fn look_at_exit(&mut self, now: Time, pipe: usize) {
        let at = &mut self.pipes[pipe];
        at.exit = Exit::at_far_end(&at.link, now, at.exit.cues);
        if at.exit.up && at.exit.change.is_none() {
            self.exits_gated.remove(&pipe);
        } else {
            self.exits_gated.insert(pipe);
        }
    }

    /// A queue that was full has room again.
    pub(crate) fn unblock(&mut self, pipe: usize) {
        self.pipes[pipe].blocked = None;
        self.schedule(pipe);
    }

    fn schedule(&mut self, pipe: usize) {
        let at = &self.pipes[pipe];
        self.agenda.set(2 * pipe, at.due);
        self.agenda.set(2 * pipe + 1, at.blocked.and_then(|blocked| blocked.until));
    }

    /// Returns the neighbours of a host, in the order of its links.
    pub(crate) fn neighbours(&self, host: usize) -> Vec<usize> {
        let mut found = Vec::new();
        for pipe in &self.pipes {
            let peer = match host {
                _ if pipe.from == host => pipe.to,
                _ if pipe.to == host => pipe.from,
                _ => continue,
            };
            if !found.contains(&peer) {
                found.push(peer);
            }
        }
        found
    }

    /// Captures packets that the interfaces of `host` towards `peers` send and receive.
    pub(crate) fn add_capture(
        &mut self,
        host: usize,
        peers: &[usize],
        sink: Box<dyn Write + Send>,
    ) -> io::Result<()> {
        let index = self.captures.len();
        let mut capture = Capture::new(host, sink)?;
        for &peer in peers {
            let ends = |pipe: &&Pipe| {
                (pipe.from, pipe.to) == (host, peer) || (pipe.from, pipe.to) == (peer, host)
            };
            let framing = self.pipes.iter().find(ends).map(|pipe| pipe.link.config().framing);
            let link_type = match framing {
                Some(Framing::Ethernet { .. }) => LinkType::Ethernet,
                Some(
                    Framing::Raw | Framing::Ppp { .. } | Framing::Hdlc { .. } | Framing::Custom(_),
                )
                | None => LinkType::Raw,
            };
            let name = format!("{}-{}", self.nodes[host].name, self.nodes[peer].name);
            let interface = capture.add_interface(peer, &name, link_type)?;
            for pipe in &mut self.pipes {
                if (pipe.from, pipe.to) == (host, peer) {
                    pipe.near.push((index, interface));
                }
                if (pipe.from, pipe.to) == (peer, host) {
                    pipe.far.push((index, interface));
                }
            }
        }
        self.captures.push(capture);
        Ok(())
    }

    /// Completes all captures and returns the first error of any of them.
    pub(crate) fn finish_captures(&mut self) -> io::Result<()> {
        let results: Vec<_> = self.captures.iter_mut().map(Capture::finish).collect();
        results.into_iter().collect()
    }

    /// Pushes a packet onto a link; `false` if the link rejected it.
    pub(crate) fn push(&mut self, now: Time, pipe: usize, mut packet: Packet) -> bool {
        self.pushed += 1;
        packet.serial = self.pushed;
        packet.pushed = now;
        let at = &mut self.pipes[pipe];
        if !at.near.is_empty() {
            let ends = ends(&self.nodes, at);
            for &(index, interface) in &at.near {
                self.captures[index].sent(now, interface, packet.serial, ends, packet.bytes());
            }
        }
        let pushed = at.take(now, packet);
        at.due = at.link.next();
        if at.mtu > 0 && at.blocked.is_none() && at.is_full(now) {
            at.blocked = Some(Blocked { until: at.link.free_at(now, at.mtu) });
        }
        self.schedule(pipe);
        match pushed {
            Ok(()) => true,
            Err(rejected) => {
                self.watch(now, pipe, &rejected.item, &PacketFate::Rejected);
                self.pool.recycle(rejected.item);
                false
            }
        }
    }

    /// Removes and returns the next packet that is due at a link's far end. The link counts lost
    /// ones, which go no further.
    pub(crate) fn pop(&mut self, now: Time, pipe: usize) -> Option<Packet> {
        let at = &mut self.pipes[pipe];
        let departure = at.link.pop(now);
        at.due = at.link.next();
        self.schedule(pipe);
        let Departure { item: mut packet, fate, .. } = departure?;
        let at = &mut self.pipes[pipe];
        let left = at.line.as_mut().map_or(Left::Same, |line| line.leave(&fate, packet.bytes()));
        let watched = self.trace.is_some() || !at.near.is_empty() || !at.far.is_empty();
        if watched {
            let reported = match (&fate, &left) {
                (Fate::Lost(cause), _) => PacketFate::Lost(cause.name().to_owned()),
                (_, Left::Tossed) => PacketFate::Lost("header not restored".to_owned()),
                (Fate::Damaged(_), _) | (_, Left::Changed(_)) => PacketFate::Damaged,
                (Fate::Delivered, Left::Same) => PacketFate::Delivered,
            };
            self.watch(now, pipe, &packet, &reported);
        }
        match (fate, left) {
            (Fate::Lost(_), _) | (_, Left::Tossed) => {
                self.pool.recycle(packet);
                return None;
            }
            (Fate::Delivered, Left::Same) => {}
            (Fate::Damaged(damage), Left::Same) => {
                damage.apply(packet.bytes_mut());
                self.pipes[pipe].link.recycle(damage);
            }
            (Fate::Delivered | Fate::Damaged(_), Left::Changed(bytes)) => {
                packet = self.pool.in_place_of(packet, &bytes);
            }
        }
        if watched {
            let ends = ends(&self.nodes, &self.pipes[pipe]);
            for &(index, interface) in &self.pipes[pipe].far {
                self.captures[index].received(now, interface, packet.serial, ends, packet.bytes());
            }
        }
        Some(packet)
    }

    /// Reports a packet's fate to trace and near-end captures, before the packet is damaged.
    fn watch(&mut self, now: Time, pipe: usize, packet: &Packet, fate: &PacketFate) {
        let pipe = &self.pipes[pipe];
        if !pipe.near.is_empty() {
            let comment = match fate {
                PacketFate::Delivered => None,
                PacketFate::Damaged => Some("damaged on the way".to_owned()),
                PacketFate::Lost(cause) => Some(format!("lost on the way: {cause}")),
                PacketFate::Rejected => Some("not taken by the link".to_owned()),
            };
            for &(index, _) in &pipe.near {
                self.captures[index].resolve(packet.serial, comment.as_deref());
            }
        }
        if let Some(trace) = &mut self.trace {
            let row = TraceRow {
                sent: packet.pushed,
                at: now,
                from: &self.nodes[pipe.from].name,
                to: &self.nodes[pipe.to].name,
                ip_len: packet.bytes().len(),
                description: (trace.describe)(packet.payload()),
                fate: fate.clone(),
            };
            (trace.sink)(&row);
        }
    }

    /// Checks that every link accounts for every packet.
    ///
    /// # Errors
    /// Description of the first link that does not.
    pub(crate) fn check_conservation(&self) -> Result<(), String> {
        for pipe in &self.pipes {
            let stats = pipe.link.stats();
            let lost = stats.lost_total();
            let packets = stats.delivered.packets + lost.packets + stats.queued.packets;
            let bytes = stats.delivered.bytes + lost.bytes + stats.queued.bytes;
            if (packets, bytes) != (stats.pushed.packets, stats.pushed.bytes) {
                let (from, to) = (&self.nodes[pipe.from].name, &self.nodes[pipe.to].name);
                return Err(format!("the link from {from} to {to} lost count: {stats:?}"));
            }
        }
        Ok(())
    }
}

impl Pipe {
    /// Pushes a packet onto the link, with its length on the line.
    fn take(&mut self, now: Time, packet: Packet) -> Result<(), link::Rejected<Packet>> {
        let len = packet.bytes().len();
        // A rejected packet must not change the line's compression state.
        match self.line.as_mut().filter(|_| self.link.free_for(now, len)) {
            None => self.link.push(now, len, packet),
            Some(line) => {
                let framed = line.enter(packet.bytes());
                let pushed = self.link.push_framed(now, len, framed, packet);
                if pushed.is_err() {
                    line.withdraw();
                }
                pushed
            }
        }
    }

    /// Returns the counters of PPP, if configured.
    pub(crate) fn line_stats(&self) -> Option<&LineStats> {
        self.line.as_ref().map(Line::stats)
    }

    /// Whether the queue has no room for one more MTU. A link that rejects packets because it is
    /// down is not full: hosts without cues must not detect outages this way.
    fn is_full(&self, now: Time) -> bool {
        let config = self.link.config();
        let refuses = matches!(config.while_down, WhileDown::Drop) && !self.link.is_up(now);
        let bounded = config.queue.packets.is_some() || config.queue.bytes.is_some();
        bounded && !refuses && !self.link.free_for(now, self.mtu)
    }
}

fn ends(nodes: &[Node], pipe: &Pipe) -> Ends {
    Ends { from: nodes[pipe.from].address, to: nodes[pipe.to].address }
}
