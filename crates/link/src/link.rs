//! One direction of a link.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use engine::{Rng, Time};

use crate::errors::{Errors, FrameBits};
use crate::flight::{Departure, Fate, Flight};
use crate::room::{is_idle, make_room, room};
use crate::serialiser::{Outcome, Plan, Serialiser};
use crate::{
    Config, ConfigError, Damage, Delay, ErrorModel, LossCause, Outages, Rate, Stats, WhileDown,
};

/// One direction of a link that carries packets of type `T`: a buffer or a handle to one.
///
/// Call `push` to add packets, `next` for the time of the next call, `pop` for due packets. The
/// queue is processed when a call looks at it, at the logical times; between calls nothing happens
/// and nothing is lost. Pushes and changes apply in the order of their calls: a `now` before an
/// earlier call's is taken as that call's.
#[derive(Debug)]
pub struct Link<T> {
    config: Config,
    rng: Rng,
    errors: Errors,
    serialiser: Serialiser,
    waiting: VecDeque<Waiting<T>>,
    waiting_bytes: u64,
    flight: Flight<T>,
    now: Time,
    stats: Stats,
}

/// A packet still in the queue.
#[derive(Debug)]
struct Waiting<T> {
    pushed: Time,
    len: usize,
    framed: usize,
    item: T,
}

/// A rejected packet, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected<T> {
    /// [`LossCause::QueueFull`], or [`LossCause::Outage`] where packets are dropped while down.
    pub cause: LossCause,
    /// The packet.
    pub item: T,
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "packet rejected: {}", self.cause.name())
    }
}

impl<T: fmt::Debug> std::error::Error for Rejected<T> {}

impl<T> Link<T> {
    /// Creates an idle link whose errors are drawn from `rng`.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is invalid.
    pub fn new(config: Config, mut rng: Rng) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            errors: Errors::new(&config.errors, &mut rng, 0),
            serialiser: Serialiser::new(&config, Time::ZERO),
            config,
            rng,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            flight: Flight::default(),
            now: Time::ZERO,
            stats: Stats::default(),
        })
    }

    /// Pushes an IP packet of `len` bytes into the near end.
    ///
    /// # Errors
    /// [`Rejected`] returns the packet if the queue is full, or if the link is down and drops
    /// packets then. It counts as pushed and lost.
    pub fn push(&mut self, now: Time, len: usize, item: T) -> Result<(), Rejected<T>> {
        let framed = self.config.framing.framed_len(len);
        self.push_framed(now, len, framed, item)
    }

    /// Like [`push`](Self::push) for a packet that takes `framed` bytes on the line, for framings
    /// whose length depends on the data.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub fn push_framed(
        &mut self,
        now: Time,
        len: usize,
        framed: usize,
        item: T,
    ) -> Result<(), Rejected<T>> {
        self.advance(now);
        let now = self.now;
        self.stats.pushed.add(len);
        let cause = match self.config.while_down {
            WhileDown::Drop if !self.config.outages.is_up(now) => Some(LossCause::Outage),
            WhileDown::Drop | WhileDown::Hold => {
                let idle = || self.waiting.is_empty() && self.starts_by(now, framed);
                let fits = self.config.queue.admits(self.waiting.len(), self.waiting_bytes, len);
                (!fits && !idle()).then_some(LossCause::QueueFull)
            }
        };
        if let Some(cause) = cause {
            self.stats.lose(cause, len);
            return Err(Rejected { cause, item });
        }
        self.stats.queued.add(len);
        self.waiting_bytes += len as u64;
        make_room(&mut self.waiting);
        self.waiting.push_back(Waiting { pushed: now, len, framed, item });
        self.advance(now);
        Ok(())
    }

    /// Returns when to call [`pop`](Self::pop) next: when the next packet leaves the far end or,
    /// while nothing is in propagation, when the next transmission starts. `None` if the link is
    /// empty or never comes up again for the waiting packets.
    ///
    /// The result is stale after every call that changes the link.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        let arrives = self.flight.next();
        // Without reordering, waiting packets leave after all packets in propagation.
        if arrives.is_some() && self.config.reorder.is_none() {
            return arrives;
        }
        let begins = self.plan_head().map(|plan| plan.leaves);
        arrives.into_iter().chain(begins).min()
    }

    /// Removes and returns the next packet that is due at `now`, lost ones included, in the order
    /// of transmission except for delayed ones.
    pub fn pop(&mut self, now: Time) -> Option<Departure<T>> {
        self.advance(now);
        let departure = self.flight.pop(now)?;
        let len = departure.len;
        self.stats.queued.remove(len);
        match &departure.fate {
            Fate::Delivered => self.stats.delivered.add(len),
            Fate::Damaged(_) => {
                self.stats.delivered.add(len);
                self.stats.damaged.add(len);
            }
            Fate::Lost(cause) => self.stats.lose(*cause, len),
        }
        Some(departure)
    }

    /// Returns the next packet whose transmission has started by `now`. Its fate is decided, though
    /// it may take hours to arrive. Yields packets in the order of transmission, each once, and
    /// omits those popped before. For captures at the near end.
    pub fn next_decided(&mut self, now: Time) -> Option<&Departure<T>> {
        self.advance(now);
        self.flight.next_unreported()
    }

    /// Takes back the memory of applied damage. Without this, packets with more than a few flipped
    /// bits cost an allocation each.
    pub fn recycle(&mut self, damage: Damage) {
        self.errors.recycle(damage);
    }

    /// Returns the counters of all pushed packets.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the configuration in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Number of packets waiting for the line as of the last call that changed the link.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the memory of its queues in bytes, including growth for the next packet; the memory
    /// behind the items is the driver's. Queues keep their largest size: see
    /// [`shrink`](Self::shrink).
    #[must_use]
    pub fn memory(&self) -> usize {
        room(&self.waiting) * size_of::<Waiting<T>>() + self.flight.memory()
    }

    /// Releases memory of queues that were once much longer.
    pub fn shrink(&mut self) {
        if is_idle(&self.waiting) {
            self.waiting.shrink_to_fit();
        }
        self.flight.shrink();
    }

    /// Whether a packet of `len` bytes pushed at `now` would be accepted.
    #[must_use]
    pub fn free_for(&self, now: Time, len: usize) -> bool {
        self.free_at(now, len).is_some_and(|at| at <= now.max(self.now))
    }

    /// Returns the first moment from `now` on at which a packet of `len` bytes would be accepted if
    /// nothing else were pushed before. This is the time to report `Writable` to a host after
    /// `Blocked`. `None` if never.
    #[must_use]
    pub fn free_at(&self, now: Time, len: usize) -> Option<Time> {
        let open = |at| match self.config.while_down {
            WhileDown::Drop => self.config.outages.up_from(at),
            WhileDown::Hold => Some(at),
        };
        let queue = &self.config.queue;
        let mut at = now.max(self.now);
        let mut serialiser = self.serialiser;
        let (mut packets, mut bytes) = (self.waiting.len(), self.waiting_bytes);
        for packet in &self.waiting {
            let plan = serialiser.plan(&self.config, packet.pushed, packet.framed);
            let stays = plan.is_none_or(|plan| plan.leaves > at);
            if stays && queue.admits(packets, bytes, len) {
                return open(at);
            }
            let plan = plan?;
            at = at.max(plan.leaves);
            serialiser = plan.after;
            packets -= 1;
            bytes -= packet.len as u64;
        }
        at = open(at)?;
        if queue.admits(0, 0, len) {
            return Some(at);
        }
        // The packet may not wait in the queue, but an idle line takes it at once.
        let framed = self.config.framing.framed_len(len);
        loop {
            let plan = serialiser.plan(&self.config, at, framed)?;
            match plan.outcome {
                Outcome::Dropped => at = open(plan.leaves)?,
                Outcome::Sent | Outcome::Cut => return Some(plan.leaves),
            }
        }
    }

    /// Whether the near end can transmit at `now`.
    #[must_use]
    pub fn is_up(&self, now: Time) -> bool {
        self.config.outages.is_up(now)
    }

    /// Returns when [`is_up`](Self::is_up) changes next, after `now`; `None` if never.
    #[must_use]
    pub fn next_change(&self, now: Time) -> Option<Time> {
        self.config.outages.next_change(now)
    }

    /// Returns the sustainable rate at `now`, in bit/s of frames: the line's or the token bucket's,
    /// whichever is lower. `None` if unlimited.
    #[must_use]
    pub fn rate_at(&self, now: Time) -> Option<u64> {
        let shaped = self.config.shaper.as_ref().map(|shaper| shaper.rate);
        self.config.rate.at(now).into_iter().chain(shaped).min()
    }

    /// Returns the one-way propagation time of a packet that leaves the near end at `now`.
    #[must_use]
    pub fn delay_at(&self, now: Time) -> Duration {
        self.config.delay.at(now)
    }

    /// Returns the bytes that framing adds to each IP packet, without stuffing.
    #[must_use]
    pub fn overhead(&self) -> usize {
        self.config.framing.overhead()
    }

    /// Replaces the configuration from `now` on. Packets whose transmission has started keep their
    /// times and fate. Waiting packets keep their framed length and stay, even if the new queue is
    /// shorter. Unchanged error models and an unchanged token bucket keep their state; others start
    /// from scratch.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is invalid, or changes the [`Line`](crate::Line) on
    /// which both ends agreed; then nothing changes.
    pub fn set_config(&mut self, now: Time, config: Config) -> Result<(), ConfigError> {
        config.validate()?;
        let looks = self.config.framing.is_exact() || config.framing.is_exact();
        if config.header_compression != self.config.header_compression
            || looks && config.framing != self.config.framing
        {
            return Err(ConfigError::Agreed);
        }
        self.advance(now);
        let before = std::mem::replace(&mut self.config, config);
        if before.errors != self.config.errors {
            self.errors = Errors::new(&self.config.errors, &mut self.rng, self.errors.index());
        }
        if before.shaper != self.config.shaper {
            self.serialiser.reshape(&self.config, self.now);
        }
        self.serialiser.reconfigured(self.now);
        // Waiting packets may start at once.
        self.advance(now);
        Ok(())
    }

    /// Replaces the line rate alone, as [`set_config`](Self::set_config).
    ///
    /// # Errors
    /// [`ConfigError`] if the rate is invalid.
    pub fn set_rate(&mut self, now: Time, rate: Rate) -> Result<(), ConfigError> {
        rate.validate()?;
        self.advance(now);
        self.config.rate = rate;
        Ok(())
    }

    /// Replaces the delay alone, as [`set_config`](Self::set_config).
    ///
    /// # Errors
    /// [`ConfigError`] if the delay is invalid.
    pub fn set_delay(&mut self, now: Time, delay: Delay) -> Result<(), ConfigError> {
        delay.validate()?;
        self.advance(now);
        self.config.delay = delay;
        Ok(())
    }

    /// Replaces the outages alone, as [`set_config`](Self::set_config).
    ///
    /// # Errors
    /// [`ConfigError`] if the outages are invalid.
    pub fn set_outages(&mut self, now: Time, outages: Outages) -> Result<(), ConfigError> {
        outages.validate()?;
        self.advance(now);
        self.config.outages = outages;
        self.serialiser.reconfigured(self.now);
        // Waiting packets may start at once.
        self.advance(now);
        Ok(())
    }

    /// Replaces the error models alone, as [`set_config`](Self::set_config).
    ///
    /// # Errors
    /// [`ConfigError`] if a model is invalid.
    pub fn set_errors(&mut self, now: Time, errors: Vec<ErrorModel>) -> Result<(), ConfigError> {
        self.set_config(now, Config { errors, ..self.config.clone() })
    }

    /// Starts every transmission that is due by `now`, at its logical time.
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(plan) = self.plan_head().filter(|plan| plan.leaves <= self.now)
            && let Some(packet) = self.waiting.pop_front()
        {
            self.waiting_bytes -= packet.len as u64;
            self.send(packet, plan);
        }
    }

    fn plan_head(&self) -> Option<Plan> {
        let head = self.waiting.front()?;
        self.serialiser.plan(&self.config, head.pushed, head.framed)
    }

    fn starts_by(&self, now: Time, framed: usize) -> bool {
        self.serialiser.plan(&self.config, now, framed).is_some_and(|plan| plan.leaves <= now)
    }

    fn send(&mut self, packet: Waiting<T>, plan: Plan) {
        self.serialiser = plan.after;
        let fate = match plan.outcome {
            Outcome::Dropped => Fate::Lost(LossCause::Outage),
            Outcome::Cut => {
                // The frame still consumed its place in the error models' sequences.
                self.judge(&packet, plan.released);
                Fate::Lost(LossCause::Outage)
            }
            Outcome::Sent => self.judge(&packet, plan.released),
        };
        let (at, held) = match plan.outcome {
            // The packet never left the queue.
            Outcome::Dropped => (plan.released, None),
            Outcome::Sent | Outcome::Cut => {
                let reorder =
                    self.config.reorder.filter(|reorder| self.rng.chance(reorder.probability));
                let at = plan.released + self.config.delay.at(plan.released);
                (at, reorder.map(|reorder| reorder.by))
            }
        };
        if held.is_some() {
            self.stats.held.add(packet.len);
        }
        let departure = Departure {
            at,
            pushed: packet.pushed,
            start: plan.leaves,
            len: packet.len,
            item: packet.item,
            fate,
        };
        self.flight.push(departure, held);
    }

    fn judge(&mut self, packet: &Waiting<T>, released: Time) -> Fate {
        let framing = &self.config.framing;
        let bits = |bytes: usize| bytes as u64 * 8;
        let frame = FrameBits {
            total: bits(packet.framed.saturating_sub(framing.idle())),
            header: bits(framing.header()),
            packet: bits(packet.len),
        };
        self.errors.judge(released, frame)
    }
}
