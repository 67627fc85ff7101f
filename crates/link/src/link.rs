//! One direction of a link.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use engine::{Rng, Time};

use crate::erasure::{Lengths, Matrix};
use crate::errors::{Errors, FrameBits};
use crate::flight::{Departure, Fate, Flight};
use crate::near::{Near, Step};
use crate::room::{is_idle, make_room, room};
use crate::serialiser::{Outcome, Plan};
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
    near: Near,
    waiting: VecDeque<Waiting<T>>,
    waiting_bytes: u64,
    flight: Flight<T>,
    /// Lost packets that an erasure code may recover.
    matrix: Matrix<T>,
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

impl<T> Waiting<T> {
    fn lengths(&self) -> Lengths {
        Lengths { framed: self.framed, packet: self.len }
    }
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
            near: Near::new(&config, Time::ZERO),
            config,
            rng,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            flight: Flight::default(),
            matrix: Matrix::default(),
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
    /// empty or never comes up again for the waiting packets. An open matrix of an erasure code
    /// without lost packets does not count.
    ///
    /// The result is stale after every call that changes the link.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        let arrives = self.flight.next();
        // Without reordering, waiting packets leave after all packets in propagation.
        if arrives.is_some() && self.config.reorder.is_none() {
            return arrives;
        }
        let is_empty = self.waiting.is_empty() && self.matrix.len() == 0;
        let begins = self.step().filter(|_| !is_empty).map(|step| step.time());
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
    /// omits those popped before. Packets after one that an erasure code may recover follow it. For
    /// captures at the near end.
    pub fn next_decided(&mut self, now: Time) -> Option<&Departure<T>> {
        self.advance(now);
        self.flight.next_unreported(self.matrix.first())
    }

    /// Number of packets in transmission or propagation that [`next_decided`](Self::next_decided)
    /// has not returned.
    #[must_use]
    pub fn undecided(&self) -> usize {
        self.flight.unreported() + self.matrix.len()
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
        let waiting = room(&self.waiting) * size_of::<Waiting<T>>();
        waiting + self.flight.memory() + self.matrix.memory()
    }

    /// Releases memory of queues that were once much longer.
    pub fn shrink(&mut self) {
        if is_idle(&self.waiting) {
            self.waiting.shrink_to_fit();
        }
        self.flight.shrink();
        self.matrix.shrink();
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
        let mut near = self.near;
        let (mut packets, mut bytes) = (self.waiting.len(), self.waiting_bytes);
        for packet in &self.waiting {
            let fits = queue.admits(packets, bytes, len);
            let head = Some((packet.pushed, packet.framed));
            // The first event alone shows that the packet stays: parity can be long.
            if fits && near.step(&self.config, head).is_none_or(|step| step.time() > at) {
                return open(at);
            }
            let plan = near.plan(&self.config, packet.pushed, packet.framed);
            if fits && plan.is_none_or(|plan| plan.leaves > at) {
                return open(at);
            }
            let plan = plan?;
            at = at.max(plan.leaves);
            near.sent_data(&self.config, packet.lengths(), &plan);
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
            let plan = near.plan(&self.config, at, framed)?;
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
    /// whichever is lower, without the share of an erasure code's parity. `None` if unlimited.
    #[must_use]
    pub fn rate_at(&self, now: Time) -> Option<u64> {
        self.config.rate_at(now)
    }

    /// Returns the one-way propagation time of a packet that leaves the near end at `now`.
    #[must_use]
    pub fn delay_at(&self, now: Time) -> Duration {
        self.config.delay.propagation_at(now)
    }

    /// Returns the bytes that framing adds to each IP packet, without stuffing.
    #[must_use]
    pub fn overhead(&self) -> usize {
        self.config.framing.overhead()
    }

    /// Replaces the configuration from `now` on. Packets whose transmission has started keep their
    /// times and fate. Waiting packets keep their framed length and stay, even if the new queue is
    /// shorter. Unchanged error models and an unchanged token bucket keep their state; others start
    /// from scratch. Another erasure code begins with the next matrix.
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
            self.near.serialiser.reshape(&self.config, self.now);
        }
        if before.erasure != self.config.erasure {
            self.near.close(&before, self.now);
        }
        self.near.serialiser.reconfigured(self.now);
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
        self.near.serialiser.reconfigured(self.now);
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
        while let Some(step) = self.step().filter(|step| step.time() <= self.now) {
            match step {
                Step::Close(at) => self.near.close(&self.config, at),
                Step::Parity(plan) => self.send_parity(&plan),
                Step::Data(plan) => {
                    let Some(packet) = self.waiting.pop_front() else { return };
                    self.waiting_bytes -= packet.len as u64;
                    self.send(packet, &plan);
                }
            }
        }
    }

    fn step(&self) -> Option<Step> {
        let head = self.waiting.front().map(|head| (head.pushed, head.framed));
        self.near.step(&self.config, head)
    }

    fn starts_by(&self, now: Time, framed: usize) -> bool {
        match self.near.step(&self.config, Some((now, framed))) {
            Some(Step::Data(plan)) => plan.leaves <= now,
            Some(Step::Close(_) | Step::Parity(_)) | None => false,
        }
    }

    fn send(&mut self, packet: Waiting<T>, plan: &Plan) {
        let lengths = packet.lengths();
        self.near.sent_data(&self.config, lengths, plan);
        let (fate, is_coded) = match plan.outcome {
            Outcome::Dropped => (Fate::Lost(LossCause::Outage), false),
            Outcome::Cut => {
                // The frame still consumed its place in the error models' sequences.
                self.judge(lengths, plan.released);
                (Fate::Lost(LossCause::Outage), true)
            }
            Outcome::Sent => (self.judge(lengths, plan.released), true),
        };
        let (at, held) = match plan.outcome {
            // The packet never left the queue.
            Outcome::Dropped => (plan.released, None),
            Outcome::Sent | Outcome::Cut => {
                let reorder =
                    self.config.reorder.filter(|reorder| self.rng.chance(reorder.probability));
                let at = plan.released + self.config.delay.propagation_at(plan.released);
                (at, reorder.map(|reorder| reorder.by))
            }
        };
        if is_coded {
            self.stats.line.add(lengths.framed);
        }
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
        if is_coded && self.config.erasure.is_some() && matches!(departure.fate, Fate::Lost(_)) {
            self.flight.pass(at);
            self.matrix.lose(self.flight.reserve(), departure);
        } else {
            self.flight.push(departure, held);
        }
    }

    /// Sends a parity frame, which may decide the fate of its matrix.
    fn send_parity(&mut self, plan: &Plan) {
        let Some((_, lengths)) = self.near.encoder.due() else { return };
        let last = self.near.sent_parity(plan);
        let arrived = match plan.outcome {
            Outcome::Dropped => false,
            Outcome::Sent | Outcome::Cut => {
                self.stats.parity.add(lengths.packet);
                self.stats.line.add(lengths.framed);
                let fate = self.judge(lengths, plan.released);
                plan.outcome == Outcome::Sent && fate == Fate::Delivered
            }
        };
        let at = self.flight.pass(plan.released + self.config.delay.propagation_at(plan.released));
        let Some(recovered) = self.matrix.parity(arrived, last) else { return };
        for (number, departure) in self.matrix.take() {
            let fate = if recovered { Fate::Delivered } else { departure.fate };
            if recovered {
                self.stats.recovered.add(departure.len);
            }
            self.flight.decide(number, Departure { at, fate, ..departure });
        }
    }

    fn judge(&mut self, lengths: Lengths, released: Time) -> Fate {
        let framing = &self.config.framing;
        let bits = |bytes: usize| bytes as u64 * 8;
        let frame = FrameBits {
            total: bits(lengths.framed.saturating_sub(framing.idle())),
            header: bits(framing.header()),
            packet: bits(lengths.packet),
        };
        self.errors.judge(released, frame)
    }
}
