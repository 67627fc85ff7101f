//! One engine on one TUN device.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, Input, PathEffect, PathEvent, PathId, Time};

use crate::interface::Condition;
use crate::lateness::{Observed, Timings};
use crate::outbox::Outbox;
use crate::port::{self, Port, Read};
use crate::pump::{Pump, Step};
use crate::tun::Tun;
use crate::wait::wake_exactly;
use crate::{Control, Ready, Waker};

/// Packets of up to 64 KB read before the next send, and batches sent before the next read.
const READS: usize = 8;
const WRITES: usize = 8;

/// Event for the observer of a [`TunDriver::run`].
#[derive(Debug)]
pub enum TunEvent<I> {
    /// An indication of the engine.
    Indication(I),
    /// The interface came up, or went down.
    Interface(Condition),
    /// One turn of the loop, so that the observer can take input from other threads. A [`Waker`]
    /// starts a turn at once; without events a turn starts after [`TunDriver::TICK`].
    Turn,
}

/// Statistics of a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunStatistics {
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets written to the device; each holds one or more of the sent packets.
    pub writes: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Packets read from the device; each holds one or more of the received packets.
    pub reads: u64,
    /// Packets that the kernel or the device refused, for example while the interface is down.
    pub refused: u64,
    /// Packets of the device that were unreadable.
    pub unreadable: u64,
}

/// Runs an engine whose one path, [`TunDriver::PATH`], is an IP interface: a TUN device. The
/// engine receives what this machine's kernel sends there, and the reverse.
///
/// Packets of many segments reach the engine as a batch of equal length with complete checksums.
/// Adjacent packets of the engine's batch are joined into one.
#[derive(Debug)]
pub struct TunDriver<E: Engine> {
    pump: Pump<E>,
    port: Port,
    waker: Waker,
    outbox: Outbox,
    observed: Observed,
}

impl<E: Engine> TunDriver<E> {
    /// Path of the interface.
    pub const PATH: PathId = PathId(0);
    /// Longest time between calls of the observer.
    pub const TICK: Duration = Duration::from_millis(100);

    /// Takes over a device, which has this name in the calling thread's network namespace. The path
    /// is up when the interface is up and [`TunDriver::run`] runs.
    ///
    /// # Errors
    ///
    /// The system lacks descriptors, or does not report interfaces.
    pub fn new(tun: Tun, name: &str, engine: E, waker: Waker) -> io::Result<Self> {
        Ok(Self {
            pump: Pump::new(engine, None),
            port: Port::open(tun, name, Self::PATH)?,
            waker,
            outbox: Outbox::new(port::batch()),
            observed: Observed::default(),
        })
    }

    /// Returns the time of the engine's clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.pump.now()
    }

    /// Returns the engine, for requests before or between runs.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.pump.engine
    }

    /// Returns statistics of everything sent and received so far.
    #[must_use]
    pub fn statistics(&self) -> TunStatistics {
        self.port.statistics
    }

    /// Sets the histogram for the lateness of timers and wake-ups.
    pub fn set_timings(&mut self, timings: Arc<Timings>) {
        self.observed.set(timings);
    }

    /// Runs until `on` returns [`Control::Stop`]; `on` may make requests of the engine. Output of
    /// the engine that is due then is still sent.
    ///
    /// # Errors
    /// The device, or waiting for it, failed.
    pub fn run(
        &mut self,
        mut on: impl FnMut(Time, &mut E, TunEvent<E::Indication>) -> Control,
    ) -> io::Result<()> {
        wake_exactly();
        self.observed.begin();
        self.watch(&mut on)?;
        loop {
            let now = self.pump.now();
            if let Some(due) = self.pump.expire(now) {
                self.observed.done(now, due);
            }
            let mut busy = self.receive()?;
            let (any, stop) = self.observe(&mut on);
            busy |= any | self.transmit()?;
            if stop {
                while self.transmit()? {}
                return Ok(());
            }
            self.effects();
            // Sending may have completed something.
            while let Some(indication) = self.pump.engine.poll_indication() {
                busy = true;
                let event = TunEvent::Indication(indication);
                if on(self.pump.now(), &mut self.pump.engine, event) == Control::Stop {
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

    /// Calls the observer with each indication and the turn. Returns whether there was an
    /// indication, and whether the observer ends the run.
    fn observe(
        &mut self,
        on: &mut impl FnMut(Time, &mut E, TunEvent<E::Indication>) -> Control,
    ) -> (bool, bool) {
        let (mut any, mut stop) = (false, false);
        while let Some(indication) = self.pump.engine.poll_indication() {
            any = true;
            let event = TunEvent::Indication(indication);
            stop |= on(self.pump.now(), &mut self.pump.engine, event) == Control::Stop;
        }
        stop |= on(self.pump.now(), &mut self.pump.engine, TunEvent::Turn) == Control::Stop;
        (any, stop)
    }

    /// Reports a change of the interface to engine and observer.
    fn watch(
        &mut self,
        on: &mut impl FnMut(Time, &mut E, TunEvent<E::Indication>) -> Control,
    ) -> io::Result<()> {
        if let Some((condition, event)) = self.port.news()? {
            let now = self.pump.now();
            self.pump.engine.handle_input(now, Input::Path(Self::PATH, event));
            on(now, &mut self.pump.engine, TunEvent::Interface(condition));
        }
        Ok(())
    }

    /// Reads up to [`READS`] packets. Returns whether there were any.
    fn receive(&mut self) -> io::Result<bool> {
        for count in 0..READS {
            if self.port.paused {
                return Ok(count > 0);
            }
            match self.port.read(&mut self.pump)? {
                Read::Nothing => return Ok(count > 0),
                Read::Packet | Read::Nonsense => {}
            }
            self.effects();
        }
        Ok(true)
    }

    /// Sends due packets, up to [`WRITES`] batches. Returns whether there may be more.
    fn transmit(&mut self) -> io::Result<bool> {
        for _ in 0..WRITES {
            let now = self.pump.now();
            if self.outbox.due(&mut self.pump.engine, now, &mut self.observed).is_none() {
                return Ok(false);
            }
            self.port.send(self.outbox.tx())?;
        }
        Ok(true)
    }

    /// Carries out the engine's effects, as far as an interface supports them.
    fn effects(&mut self) {
        while let Some(step) = self.pump.next_step() {
            match step {
                Step::Path(PathEffect::PauseRead { .. }) => self.port.paused = true,
                Step::Path(PathEffect::ResumeRead { .. }) => self.port.paused = false,
                Step::Path(PathEffect::Open { path }) => {
                    let is_it = path == Self::PATH;
                    let event = if is_it { self.port.event() } else { PathEvent::Down };
                    self.pump.pass(Input::Path(path, event));
                }
                // The only path cannot be closed or forgotten.
                Step::Path(
                    PathEffect::Close { .. }
                    | PathEffect::Retain { .. }
                    | PathEffect::Release { .. },
                ) => {}
                Step::Stored => {}
                Step::Stream(effect) => self.pump.refuse(&effect),
            }
        }
    }

    /// Waits for a packet, an interface change, another thread, or a timer.
    fn wait(&mut self) -> io::Result<()> {
        let now = self.pump.now();
        let mut until = now + Self::TICK;
        if let Some(due) = self.pump.next_timeout() {
            until = until.min(due);
        }
        if let Some(held) = self.outbox.held() {
            until = until.min(held.until);
        }
        if until > now {
            let interest = Ready { readable: !self.port.paused, writable: false };
            let news = Some(self.port.monitor());
            self.waker.wait_also(&self.port, news, interest, Some(until.since(now)))?;
            self.observed.woken();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_packet_of_ip_begins_a_batch() {
        let mut tx = port::batch();
        assert_eq!(tx.push(65_535).map(|packet| packet.len()), Some(65_535));
    }
}
