//! The loop that carries packets over all links.

mod batch;
mod changed;
mod handle;
mod packet;
mod pipe;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, TryRecvError};
use engine::Time;
use link::{Departure, Fate, Left};
use rt::Clock;
use rt::frame::{HEADER_MAX, Joint, Shape, complete};
use rt::tun::{PACKET_MAX, Packet, Tun};

use self::batch::{Batch, Run};
use self::handle::{CapturePlan, Order, Ordered, Shared};
use self::packet::{ends, is_of_the_kernel};
use self::pipe::enter;
use crate::capture::{Device, Tap};
use crate::store::{PacketId, Store};
use crate::watch::Watch;

pub use self::handle::{CaptureError, ChangeError, LinkReport, Report};
pub(crate) use self::handle::{Counts, Handle, HostTimings};
pub(crate) use self::pipe::Pipe;

/// Packets read from one device before the links get their turn.
const READS: usize = 32;
/// Maximum time for reading packets of one device, or delivering packets of one link, before
/// others get their turn.
const TURN: Duration = Duration::from_micros(150);
/// Bounds of the spin time. If the next due time is nearer than the spin time, the loop waits for
/// it without sleep, because waking takes as long. The wake-up latency is learned from sleep to
/// sleep within these bounds.
const SPIN_LEAST: Duration = Duration::from_micros(20);
const SPIN_MOST: Duration = Duration::from_micros(100);
/// Run time after which a real-time thread pauses, before the kernel throttles it for 50 ms.
const RUN_MAX: Duration = Duration::from_micros(900);
const PAUSE: Duration = Duration::from_micros(60);
/// Capture comments for packets refused by all links, and those that a host refused.
const NO_MEMORY: &str = "not taken: the emulator's memory for packets is full (--memory)";
const REFUSED: &str = "refused by the host";
/// Maximum delay until a capture receives the fate of packets that wait for the line.
const TELL: Duration = Duration::from_millis(50);

/// One segment of a held packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    packet: PacketId,
    index: u16,
}

/// Overhead of a packet in flight: its record and its entry in a link's queue, which has an eighth
/// to spare.
pub(crate) const OVERHEAD: usize = (Store::OVERHEAD + size_of::<Departure<Segment>>()) * 9 / 8;

/// A device and the destination of its host's packets.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) tun: Tun,
    /// Device in captures.
    pub(crate) device: Device,
    pub(crate) egress: Egress,
    /// Start of the period in which there was always something left to read.
    pub(crate) behind_since: Option<Instant>,
}

/// Links over which packets leave a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Egress {
    /// All over one link.
    One(usize),
    /// Each packet leaves over the link towards its destination, multicast over all links. With
    /// `repeats`, multicast of one neighbour is repeated to the others. Packets for addresses
    /// outside the world leave over `out`.
    Hub { to: BTreeMap<IpAddr, usize>, all: Vec<usize>, repeats: bool, out: Option<usize> },
    /// Packets have no destination: the link leads in the other direction only.
    Nowhere,
}

/// Carries packets between devices.
pub(crate) struct Pump {
    ports: Vec<Port>,
    pipes: Vec<Pipe>,
    store: Store,
    /// Bytes of all links' queues.
    queues: u64,
    clock: Clock,
    shared: Shared,
    started_of_day: SystemTime,
    tap: Option<Tap>,
    orders: Receiver<Order>,
    watch: Watch,
    /// Devices ready at the last poll.
    ready: Vec<usize>,
    no_memory: u64,
    unreadable: u64,
    unattended: Duration,
    scratch: Vec<u8>,
    batch: Batch,
    spin: Duration,
    #[cfg(test)]
    interfere: Box<dyn FnMut() + Send>,
}

impl Pump {
    pub(crate) fn new(
        ports: Vec<Port>,
        pipes: Vec<Pipe>,
        hosts: Arc<[HostTimings]>,
        memory: u64,
    ) -> io::Result<(Self, Handle)> {
        let clock = Clock::start();
        let lateness = pipes.iter().map(|pipe| Arc::clone(&pipe.lateness)).collect();
        let (handle, ordered) = Handle::new(clock, lateness, hosts)?;
        let Ordered { orders, event, clock: shared } = ordered;
        let watch = Watch::new(event, ports.iter().map(|port| port.tun.as_fd()))?;
        let pump = Self {
            ports,
            pipes,
            store: Store::new(memory),
            queues: 0,
            clock,
            shared,
            started_of_day: SystemTime::now(),
            tap: None,
            orders,
            watch,
            ready: Vec::new(),
            no_memory: 0,
            unreadable: 0,
            unattended: Duration::ZERO,
            scratch: Vec::new(),
            batch: Batch::default(),
            spin: SPIN_LEAST,
            #[cfg(test)]
            interfere: Box::new(|| {}),
        };
        Ok((pump, handle))
    }

    /// Carries packets until it is stopped. `real_time` is set if the thread has a real-time
    /// priority.
    pub(crate) fn run(mut self, real_time: bool) -> io::Result<Counts> {
        let mut slept = Instant::now();
        let mut looked = slept;
        loop {
            let now = Instant::now();
            self.unattended = self.unattended.max(now - looked);
            looked = now;
            // Clears the event before the orders are read: a later order raises it again and ends
            // the sleep below.
            let are_all = self.watch.look(&mut self.ready)?;
            self.test_hook();
            // Read in every turn: while packets keep coming there is no sleep.
            if !self.orders.is_empty() && !self.process_commands() {
                return self.end();
            }
            self.test_hook();
            let mut busy = false;
            for pipe in 0..self.pipes.len() {
                busy |= self.deliver(pipe)?;
            }
            self.test_hook();
            busy |= self.take_all(are_all)?;
            self.test_hook();
            if real_time && now - slept > RUN_MAX {
                std::thread::sleep(PAUSE);
                slept = Instant::now();
                looked = slept;
                continue;
            }
            if busy {
                continue;
            }
            self.tell_decided();
            let next = self.pipes.iter().filter_map(|pipe| pipe.link.next()).min();
            let left = next.map(|at| at.since(self.clock.now()));
            let sleep = match left {
                Some(left) if left <= self.spin => continue,
                Some(left) => Some(left - self.spin),
                None => None,
            };
            let waits = self.tap.is_some() && self.pipes.iter().any(|pipe| pipe.link.waiting() > 0);
            let sleep =
                if waits { Some(sleep.map_or(TELL, |sleep| sleep.min(TELL))) } else { sleep };
            self.test_hook();
            let before = Instant::now();
            let woken = self.watch.sleep(sleep)?;
            slept = Instant::now();
            looked = slept;
            // Without a real-time priority, time spent spinning is missing later.
            if let (Some(sleep), false, true) = (sleep, woken, real_time) {
                self.learn((slept - before).saturating_sub(sleep));
            }
        }
    }

    /// Point between two steps of a turn at which tests let another thread interfere.
    #[inline]
    fn test_hook(&mut self) {
        #[cfg(test)]
        (self.interfere)();
    }

    /// Completes a running capture and returns the counters.
    fn end(mut self) -> io::Result<Counts> {
        let counts = self.counts();
        if let Some(tap) = self.tap.take() {
            tap.finish().wait()?;
        }
        Ok(counts)
    }

    /// Adapts the spin time to the excess of a sleep: rises at once, and falls slowly.
    fn learn(&mut self, over: Duration) {
        let wanted = over * 5 / 4;
        let spin = if wanted > self.spin {
            self.spin + (wanted - self.spin) / 4
        } else {
            self.spin - (self.spin - wanted) / 32
        };
        self.spin = spin.clamp(SPIN_LEAST, SPIN_MOST);
    }

    /// Carries out orders. Returns `false` to stop.
    fn process_commands(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Change(index, change, answer)) => {
                    let now = self.clock.now();
                    let link = &mut self.pipes[index].link;
                    let config = change(link.config());
                    let _ = answer.send(link.set_config(now, config));
                    self.queues += self.pipes[index].growth();
                }
                Ok(Order::Count(answer)) => {
                    let _ = answer.send(self.counts());
                }
                Ok(Order::CountOnTheWay(answer)) => {
                    let queued = self.pipes.iter().map(|pipe| pipe.link.stats().queued.packets);
                    let _ = answer.send(queued.sum());
                }
                Ok(Order::Begin(answer)) => {
                    (self.clock, self.started_of_day) = (Clock::start(), SystemTime::now());
                    self.shared.set(self.clock);
                    if let Some(tap) = &mut self.tap {
                        tap.begin(self.started_of_day);
                    }
                    let _ = answer.send(self.clock);
                }
                Ok(Order::Capture(plan, answer)) => {
                    let _ = answer.send(self.begin_capture(&plan));
                }
                Ok(Order::EndCapture(answer)) => {
                    let _ = answer.send(self.tap.take().map(Tap::finish));
                }
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn begin_capture(&mut self, plan: &CapturePlan) -> Result<(), CaptureError> {
        if self.tap.is_some() {
            return Err(CaptureError::Running);
        }
        let hosts = plan.hosts.iter().flatten();
        let known = |host: &String| self.ports.iter().any(|port| port.device.host == *host);
        if let Some(unknown) = hosts.clone().find(|host| !known(host)) {
            return Err(CaptureError::Host(unknown.clone()));
        }
        let wanted = |port: &Port| {
            let all = plan.hosts.as_ref();
            all.is_none_or(|hosts| hosts.contains(&port.device.host)).then(|| port.device.clone())
        };
        let devices = self.ports.iter().map(wanted).collect();
        self.tap = Some(Tap::start(devices, &plan.folder, plan.limits, self.started_of_day)?);
        let now = self.clock.now();
        for pipe in &mut self.pipes {
            pipe.begin_capture(now);
        }
        Ok(())
    }

    /// Reports to the capture the fate of packets whose transmission has started.
    fn tell_decided(&mut self) {
        let Some(tap) = &mut self.tap else { return };
        let now = self.clock.now();
        for (index, pipe) in self.pipes.iter_mut().enumerate() {
            pipe.tell_decided(index, now, tap);
        }
    }

    fn counts(&self) -> Counts {
        let links = self.pipes.iter().map(Pipe::counts).collect();
        let Self { no_memory, unreadable, unattended, .. } = *self;
        Counts { links, no_memory, unreadable, unattended }
    }

    /// Reads the ready devices; `are_all` states that there are no other devices.
    fn take_all(&mut self, are_all: bool) -> io::Result<bool> {
        let ready = std::mem::take(&mut self.ready);
        let mut busy = !are_all;
        for &port in &ready {
            busy |= self.take(port)?;
        }
        // The other devices have nothing left to read.
        for (number, port) in self.ports.iter_mut().enumerate().filter(|_| are_all) {
            if port.behind_since.is_some() && !ready.contains(&number) {
                port.behind_since = None;
            }
        }
        self.ready = ready;
        Ok(busy)
    }

    /// Reads a host's packets and passes them to its links.
    fn take(&mut self, port: usize) -> io::Result<bool> {
        let started = Instant::now();
        for done in 0..READS {
            if started.elapsed() > TURN {
                break;
            }
            if self.store.room().is_none() {
                self.shrink();
            }
            let Some(room) = self.store.room() else {
                return self.discard(port);
            };
            let packet = match self.ports[port].tun.read(room)? {
                None => {
                    self.ports[port].behind_since = None;
                    return Ok(done > 0);
                }
                Some(packet) => packet,
            };
            let shape = match packet {
                Packet::Unreadable => None,
                Packet::Whole(vnet, len) => {
                    Shape::from_packet(&vnet, &room[..len]).ok().map(|shape| (len, shape))
                }
            };
            let Some((len, shape)) = shape else {
                self.unreadable += 1;
                continue;
            };
            let packet = &room[..len];
            if is_of_the_kernel(packet) {
                continue;
            }
            let ends = ends(packet);
            self.push(port, ends, len, shape);
        }
        // There may be more packets, and some of them may have waited since then.
        let since = *self.ports[port].behind_since.get_or_insert(started);
        self.unattended = self.unattended.max(started - since);
        Ok(true)
    }

    fn push(&mut self, port: usize, ends: Option<(IpAddr, IpAddr)>, len: usize, shape: Shape) {
        let single;
        let pipes: &[usize] = match &self.ports[port].egress {
            Egress::Nowhere => &[],
            Egress::One(pipe) => std::slice::from_ref(pipe),
            Egress::Hub { to, all, out, .. } => match ends {
                Some((_, group)) if group.is_multicast() => all,
                Some((_, address)) => {
                    single = to.get(&address).copied().or(*out);
                    single.as_slice()
                }
                None => &[],
            },
        };
        let count = u32::from(shape.segments());
        let references = count * pipes.len() as u32;
        if references == 0 {
            self.unreadable += u64::from(count);
            return;
        }
        let Some(packet) = self.store.keep(len, shape, references) else { return };
        let now = self.clock.now();
        let mut tap = self.tap.as_mut().filter(|tap| tap.wants(port)).map(|tap| (tap, port));
        let mut rejected = 0;
        for index in 0..shape.segments() {
            let segment = Segment { packet, index };
            rejected +=
                enter(now, &self.store, segment, pipes, self.pipes.as_mut_slice(), &mut tap);
        }
        if rejected > 0 {
            self.store.release(packet, rejected);
        }
        for &pipe in pipes {
            self.queues += self.pipes[pipe].growth();
        }
        self.store.count_elsewhere(self.queues);
    }

    /// Frees memory of queues that were longer before.
    fn shrink(&mut self) {
        self.queues = 0;
        for pipe in &mut self.pipes {
            self.queues += pipe.shrink();
        }
        self.store.shrink();
        self.store.count_elsewhere(self.queues);
    }

    /// Repeats a neighbour's multicast at a hub to the others, as a repeater does: a kernel does
    /// not forward to the device that received a packet.
    fn repeat(&mut self, index: usize, segment: Segment) {
        let port = self.pipes[index].to;
        let Egress::Hub { to, all, repeats: true, .. } = &self.ports[port].egress else { return };
        let Some((from, group)) = ends(self.store.bytes(segment.packet)) else { return };
        if !group.is_multicast() {
            return;
        }
        let own = to.get(&from);
        let others: Vec<_> = all.iter().copied().filter(|link| Some(link) != own).collect();
        let now = self.clock.now();
        self.store.retain(segment.packet, others.len() as u32);
        let mut tap = self.tap.as_mut().filter(|tap| tap.wants(port)).map(|tap| (tap, port));
        let rejected = enter(now, &self.store, segment, &others, &mut self.pipes, &mut tap);
        if rejected > 0 {
            self.store.release(segment.packet, rejected);
        }
        for link in others {
            self.queues += self.pipes[link].growth();
        }
    }

    /// Reads one packet for which there is no memory, and drops it.
    fn discard(&mut self, port: usize) -> io::Result<bool> {
        let nowhere = &mut self.scratch;
        nowhere.resize(PACKET_MAX, 0);
        let (len, shape) = match self.ports[port].tun.read(nowhere)? {
            None => return Ok(false),
            Some(Packet::Unreadable) => (0, None),
            Some(Packet::Whole(vnet, len)) => {
                (len, Shape::from_packet(&vnet, &nowhere[..len]).ok())
            }
        };
        let Some(shape) = shape else {
            self.unreadable += 1;
            return Ok(true);
        };
        let packet = &nowhere[..len];
        if is_of_the_kernel(packet) {
            return Ok(true);
        }
        self.no_memory += u64::from(shape.segments());
        if let Some(tap) = self.tap.as_mut().filter(|tap| tap.wants(port)) {
            let now = self.clock.now();
            for index in 0..shape.segments() {
                let mut bytes = Vec::new();
                copy_segment(packet, &shape, index, &mut bytes);
                tap.sent(port, now, bytes, Vec::new(), vec![NO_MEMORY.to_owned()]);
            }
        }
        Ok(true)
    }

    /// Delivers due packets; adjacent segments of one packet are joined again.
    fn deliver(&mut self, index: usize) -> io::Result<bool> {
        if self.pipes[index].link.next().is_none_or(|at| at > self.clock.now()) {
            return Ok(false);
        }
        let now = self.clock.now();
        let over = now + TURN;
        if let Some(tap) = &mut self.tap {
            // The capture needs the fate of packets popped now.
            self.pipes[index].tell_decided(index, now, tap);
        }
        let mut batch = std::mem::take(&mut self.batch);
        while let Some(departure) = self.pipes[index].link.pop(now) {
            let Departure { at, item: segment, fate, .. } = departure;
            let left = self.leave_line(index, segment, &fate);
            match (fate, left) {
                (Fate::Lost(_), _) | (_, Left::Tossed) => {
                    self.hand_over(index, &mut batch)?;
                    self.store.release(segment.packet, 1);
                }
                (Fate::Delivered, Left::Same) => {
                    self.repeat(index, segment);
                    if batch.is_empty() {
                        self.begin(index, &mut batch, segment, at);
                    } else if !self.take_along(&mut batch, segment, at) {
                        self.hand_over(index, &mut batch)?;
                        self.begin(index, &mut batch, segment, at);
                        if self.clock.now() > over {
                            break;
                        }
                    }
                }
                (Fate::Damaged(damage), Left::Same) => {
                    self.hand_over(index, &mut batch)?;
                    self.hand_over_damaged(index, segment, &damage, at)?;
                    self.pipes[index].link.recycle(damage);
                }
                (Fate::Delivered | Fate::Damaged(_), Left::Changed(bytes)) => {
                    self.hand_over(index, &mut batch)?;
                    self.hand_over_changed(index, segment, bytes, at)?;
                }
            }
        }
        self.hand_over(index, &mut batch)?;
        self.batch = batch;
        // Packets that waited for the line are now in flight.
        self.queues += self.pipes[index].growth();
        self.store.count_elsewhere(self.queues);
        Ok(true)
    }

    /// Starts a packet to deliver with this segment.
    fn begin(&self, index: usize, batch: &mut Batch, segment: Segment, due: Time) {
        let Segment { packet, index: number } = segment;
        let joins = self.ports[self.pipes[index].to].tun.joins_datagrams();
        let joint = || Joint::begin(self.store.shape(packet), self.store.bytes(packet));
        batch.joint = if joins { joint() } else { None };
        batch.runs.push(Run { packet, segments: number..number + 1, due });
    }

    /// Whether the segment is delivered in the same packet as those before it.
    fn take_along(&self, batch: &mut Batch, segment: Segment, due: Time) -> bool {
        let Segment { packet, index: number } = segment;
        let (Some(first), Some(last)) =
            (batch.runs.first().map(|run| run.packet), batch.runs.last_mut())
        else {
            return false;
        };
        if last.packet == packet && last.segments.end == number {
            last.segments.end += 1;
            return true;
        }
        let (first, shape, bytes) =
            (self.store.bytes(first), self.store.shape(packet), self.store.bytes(packet));
        let taken = batch.joint.as_mut().is_some_and(|joint| joint.take(first, shape, bytes));
        if taken {
            batch.runs.push(Run { packet, segments: number..number + 1, due });
        }
        taken
    }

    /// Delivers the collected segments as one packet.
    fn hand_over(&mut self, index: usize, batch: &mut Batch) -> io::Result<()> {
        let Some(first) = batch.runs.first() else { return Ok(()) };
        let bytes = self.store.bytes(first.packet);
        let mut header = [0; HEADER_MAX];
        let pipe = &mut self.pipes[index];
        let port = pipe.to;
        let tun = &self.ports[port].tun;
        let written = match &batch.joint {
            Some(joint) if joint.count() > 1 => {
                let (vnet, len) = joint.header(bytes, &mut header);
                let payloads = batch.runs.iter().map(|run| &self.store.bytes(run.packet)[len..]);
                tun.write(&vnet, &header[..len], payloads)
            }
            Some(_) | None => {
                let shape = self.store.shape(first.packet);
                let (vnet, len) = shape.header(bytes, first.segments.clone(), &mut header);
                tun.write(&vnet, &header[..len], [&bytes[shape.payload(first.segments.clone())]])
            }
        };
        let count = batch.runs.iter().map(|run| run.segments.len() as u32).sum();
        let at = pipe.wrote(written, self.clock, count, true)?;
        let says = at.is_none().then_some(REFUSED);
        let received = at.unwrap_or_else(|| self.clock.now());
        for run in batch.runs.drain(..) {
            let count = run.segments.len() as u32;
            if at.is_some() {
                pipe.lateness.record(received.since(run.due), count);
            }
            if let Some(tap) = self.tap.as_mut().filter(|tap| tap.wants(port)) {
                for segment in run.segments {
                    let mut copy = Vec::new();
                    let (bytes, shape) = self.store.packet(run.packet);
                    copy_segment(bytes, shape, segment, &mut copy);
                    tap.received(port, received, copy, says);
                }
            }
            self.store.release(run.packet, count);
        }
        Ok(())
    }
}

/// Appends a segment as a separate packet, with its checksum.
fn copy_segment(bytes: &[u8], shape: &Shape, index: u16, to: &mut Vec<u8>) {
    let mut header = [0; HEADER_MAX];
    let (vnet, len) = shape.header(bytes, index..index + 1, &mut header);
    to.extend_from_slice(&header[..len]);
    to.extend_from_slice(&bytes[shape.payload(index..index + 1)]);
    if let Some(checksum) = vnet.checksum {
        complete(to, checksum);
    }
}

#[cfg(test)]
mod tests;
