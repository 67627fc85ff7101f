//! One engine on one TUN device.

use std::io;
use std::time::Duration;

use engine::{
    Effect, EffectError, Engine, Input, PathEvent, PathId, PathInfo, Receive, Time, Transmit, TxBuf,
};
use rustix::io::Errno;

use crate::frame::{HEADER_MAX, Shape, Train, Vnet, complete};
use crate::interface::{Condition, Monitor};
use crate::tun::{PACKET_MAX, Packet, Tun};
use crate::wait::wake_exactly;
use crate::{Clock, Control, Ready, Waker};

/// Packets, of up to 64 KB, that are read before something is sent, and batches that are sent before
/// something is read.
const READS: usize = 8;
const WRITES: usize = 8;
/// The most packets of a batch.
const SEGMENTS_MAX: usize = 64;

/// What the observer of a [`TunDriver::run`] is told.
#[derive(Debug)]
pub enum TunEvent<I> {
    /// The engine has something to say.
    Indication(I),
    /// The interface came up, or went down.
    Interface(Condition),
    /// Once in each turn of the loop, which a [`Waker`] and every [`TunDriver::TICK`] brings about at
    /// the latest: time to hand over what other threads have brought.
    Turn,
}

/// What a driver did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunStatistics {
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets handed to the device, each of one or more of those.
    pub writes: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Packets that the device gave, each of one or more of those.
    pub reads: u64,
    /// Packets that the kernel or the device refused, as while the interface is down.
    pub refused: u64,
    /// Packets of the device that made no sense.
    pub unreadable: u64,
}

/// Runs an engine whose one path, [`TunDriver::PATH`], is an IP interface: a TUN device. What the
/// kernel of this machine sends there the engine receives, and the other way round.
///
/// Packets of many segments are cut before the engine sees them, as a batch of equal length, with
/// their checksums complete; neighbours in a batch of the engine's are handed over as one.
#[derive(Debug)]
pub struct TunDriver<E: Engine> {
    engine: E,
    clock: Clock,
    tun: Tun,
    monitor: Monitor,
    waker: Waker,
    condition: Condition,
    paused: bool,
    tx: TxBuf,
    held: Option<Transmit>,
    packet: Vec<u8>,
    batch: Vec<u8>,
    statistics: TunStatistics,
}

impl<E: Engine> TunDriver<E> {
    /// The path of the interface.
    pub const PATH: PathId = PathId(0);
    /// How long the observer is left alone at most.
    pub const TICK: Duration = Duration::from_millis(100);

    /// Takes over a device, which has this name in the calling thread's network namespace. The path
    /// is up as soon as the interface is, and [`TunDriver::run`] runs.
    ///
    /// # Errors
    /// The system lacks descriptors, or does not tell of interfaces.
    pub fn new(tun: Tun, name: &str, engine: E, waker: Waker) -> io::Result<Self> {
        Ok(Self {
            engine,
            clock: Clock::start(),
            tun,
            monitor: Monitor::open(name)?,
            waker,
            condition: Condition { up: false, mtu: 0 },
            paused: false,
            tx: TxBuf::new(SEGMENTS_MAX),
            held: None,
            packet: vec![0; PACKET_MAX],
            batch: Vec::new(),
            statistics: TunStatistics::default(),
        })
    }

    /// The time as the engine knows it.
    #[must_use]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The engine, to make requests of it before or between runs.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// What was sent and received so far.
    #[must_use]
    pub fn statistics(&self) -> TunStatistics {
        self.statistics
    }

    /// Runs until `on` says so, which may make requests of the engine. What the engine has to send
    /// then, and is due, still goes out.
    ///
    /// # Errors
    /// The device, or waiting for it, failed.
    pub fn run(
        &mut self,
        mut on: impl FnMut(Time, &mut E, TunEvent<E::Indication>) -> Control,
    ) -> io::Result<()> {
        wake_exactly();
        self.watch(&mut on)?;
        loop {
            let now = self.clock.now();
            if self.engine.poll_timeout().is_some_and(|deadline| deadline.at <= now) {
                self.engine.handle_timeout(now);
            }
            let mut busy = self.receive()?;
            let (told, stop) = self.tell(&mut on);
            busy |= told | self.transmit()?;
            if stop {
                while self.transmit()? {}
                return Ok(());
            }
            self.effects();
            // What was sent may have been the last of something.
            while let Some(indication) = self.engine.poll_indication() {
                busy = true;
                let event = TunEvent::Indication(indication);
                if on(self.clock.now(), &mut self.engine, event) == Control::Stop {
                    while self.transmit()? {}
                    return Ok(());
                }
            }
            if !busy {
                self.wait()?;
                self.watch(&mut on)?;
            }
        }
    }

    /// Tells the observer what there is; whether there was something, and whether that was all.
    fn tell(
        &mut self,
        on: &mut impl FnMut(Time, &mut E, TunEvent<E::Indication>) -> Control,
    ) -> (bool, bool) {
        let (mut told, mut stop) = (false, false);
        while let Some(indication) = self.engine.poll_indication() {
            told = true;
            let event = TunEvent::Indication(indication);
            stop |= on(self.clock.now(), &mut self.engine, event) == Control::Stop;
        }
        stop |= on(self.clock.now(), &mut self.engine, TunEvent::Turn) == Control::Stop;
        (told, stop)
    }

    /// Tells engine and observer what became of the interface.
    fn watch(
        &mut self,
        on: &mut impl FnMut(Time, &mut E, TunEvent<E::Indication>) -> Control,
    ) -> io::Result<()> {
        let Some(condition) = self.monitor.news()?.filter(|news| *news != self.condition) else {
            return Ok(());
        };
        let was_up = std::mem::replace(&mut self.condition, condition).up;
        let event = match (was_up, condition.up) {
            (_, true) => PathEvent::Up(PathInfo::datagram(condition.mtu)),
            (true, false) => PathEvent::Down,
            (false, false) => return Ok(()),
        };
        let now = self.clock.now();
        self.engine.handle_input(now, Input::Path(Self::PATH, event));
        on(now, &mut self.engine, TunEvent::Interface(condition));
        Ok(())
    }

    /// Reads what there is, up to [`READS`] packets; whether there was something.
    fn receive(&mut self) -> io::Result<bool> {
        for count in 0..READS {
            if self.paused {
                return Ok(count > 0);
            }
            let read = match self.tun.read(&mut self.packet) {
                Ok(Some(read)) => read,
                Ok(None) => return Ok(count > 0),
                Err(error) if Errno::from_io_error(&error) == Some(Errno::BADFD) => {
                    return Ok(count > 0);
                }
                Err(error) => return Err(error),
            };
            let shape = match read {
                Packet::Unreadable => None,
                Packet::Whole(vnet, len) => {
                    Shape::of(&vnet, &self.packet[..len]).ok().map(|shape| (shape, len))
                }
            };
            let Some((shape, len)) = shape else {
                self.statistics.unreadable += 1;
                continue;
            };
            self.statistics.reads += 1;
            self.statistics.packets_received += u64::from(shape.segments());
            self.hand_in(&shape, len);
            self.effects();
        }
        Ok(true)
    }

    /// Cuts a packet into its segments, and hands them in.
    fn hand_in(&mut self, shape: &Shape, len: usize) {
        let packet = &mut self.packet[..len];
        let bytes = if shape.segments() == 1 {
            if let Some(checksum) = shape.checksum() {
                complete(packet, checksum);
            }
            &*packet
        } else {
            self.batch.clear();
            let mut header = [0; HEADER_MAX];
            for index in 0..shape.segments() {
                let start = self.batch.len();
                let (vnet, len) = shape.header(packet, index..index + 1, &mut header);
                self.batch.extend_from_slice(&header[..len]);
                self.batch.extend_from_slice(&packet[shape.payload(index..index + 1)]);
                if let Some(checksum) = vnet.checksum {
                    complete(&mut self.batch[start..], checksum);
                }
            }
            &self.batch
        };
        let receive =
            Receive { stride: shape.segment_len(0), ..Receive::datagram(Self::PATH, bytes) };
        self.engine.handle_input(self.clock.now(), Input::Receive(receive));
    }

    /// Sends what is due, up to [`WRITES`] batches; whether there may be more.
    fn transmit(&mut self) -> io::Result<bool> {
        for _ in 0..WRITES {
            let now = self.clock.now();
            let transmit = match self.held.take() {
                Some(held) => held,
                None => {
                    self.tx.clear();
                    let Some(transmit) = self.engine.poll_transmit(now, &mut self.tx) else {
                        return Ok(false);
                    };
                    transmit
                }
            };
            if transmit.not_before > now {
                self.held = Some(transmit);
                return Ok(false);
            }
            self.send()?;
        }
        Ok(true)
    }

    /// Hands over the batch, neighbours as one packet.
    fn send(&mut self) -> io::Result<()> {
        let Self { tx, tun, statistics, .. } = self;
        let mut packets = tx.datagrams().peekable();
        while let Some(first) = packets.next() {
            let mut rest = [&[][..]; SEGMENTS_MAX];
            let mut count = 1;
            let written = match Train::begin(first) {
                None => tun.write(&Vnet::default(), first, []),
                Some(mut train) => {
                    while let Some(next) = packets.next_if(|next| train.take(first, next)) {
                        rest[count] = next;
                        count += 1;
                    }
                    let mut header = [0; HEADER_MAX];
                    let (vnet, len) = train.header(first, &mut header);
                    rest[0] = first;
                    let payloads = rest[..count].iter().map(|packet| &packet[len..]);
                    tun.write(&vnet, &header[..len], payloads)
                }
            };
            statistics.writes += 1;
            match written {
                Ok(()) => statistics.packets_sent += count as u64,
                Err(error) if is_of_the_packet(&error) => statistics.refused += count as u64,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Carries out what the engine wants, as far as an interface can.
    fn effects(&mut self) {
        while let Some(effect) = self.engine.poll_effect() {
            let now = self.clock.now();
            match effect {
                Effect::PauseRead { .. } => self.paused = true,
                Effect::ResumeRead { .. } => self.paused = false,
                Effect::OpenPath { path } => {
                    let is_open = path == Self::PATH && self.condition.up;
                    let up = || PathEvent::Up(PathInfo::datagram(self.condition.mtu));
                    let event = if is_open { up() } else { PathEvent::Down };
                    self.engine.handle_input(now, Input::Path(path, event));
                }
                Effect::Store(_)
                | Effect::Connect { .. }
                | Effect::Listen { .. }
                | Effect::StopConnecting { .. }
                | Effect::StopListening { .. }
                | Effect::ClosePath { .. }
                | Effect::ResetPath { .. }
                | Effect::ShutdownWrite { .. }
                | Effect::StartTls { .. } => {
                    if let Some(ticket) = effect.ticket() {
                        let answer = Err(EffectError::NotAllowed);
                        self.engine.handle_input(now, Input::Done(ticket, answer));
                    }
                }
            }
        }
    }

    /// Waits for a packet, news, another thread, or whatever is due.
    fn wait(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        let mut until = now + Self::TICK;
        if let Some(deadline) = self.engine.poll_timeout() {
            until = until.min(deadline.at);
        }
        if let Some(held) = &self.held {
            until = until.min(held.not_before);
        }
        if until > now {
            let interest = Ready { readable: !self.paused, writable: false };
            let news = Some(std::os::fd::AsFd::as_fd(&self.monitor));
            self.waker.wait_also(&self.tun, news, interest, Some(until.since(now)))?;
        }
        Ok(())
    }
}

/// Whether a packet was refused, and the device is as good as before: it makes no sense to the host,
/// or the interface is down.
fn is_of_the_packet(error: &io::Error) -> bool {
    let known = [Errno::INVAL, Errno::IO, Errno::AGAIN, Errno::NOBUFS, Errno::MSGSIZE];
    Errno::from_io_error(error).is_some_and(|error| known.contains(&error))
}
