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

/// One direction of a link that carries packets of type `T`: whatever the driver queues, a buffer
/// or a handle to one.
///
/// `push` packets in, ask `next` when to come back, `pop` what is due. The queue is worked off when
/// something looks at it, at the logical times; between calls nothing happens and nothing is lost.
/// Pushes and changes happen in the order of their calls: a `now` before an earlier call's is taken
/// as that call's.
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

/// A packet that has not left the queue.
#[derive(Debug)]
struct Waiting<T> {
    pushed: Time,
    len: usize,
    framed: usize,
    item: T,
}

/// A packet that was not taken, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected<T> {
    /// [`LossCause::QueueFull`], or [`LossCause::Outage`] where packets are dropped while down.
    pub cause: LossCause,
    /// What was pushed.
    pub item: T,
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "packet rejected: {}", self.cause.name())
    }
}

impl<T: fmt::Debug> std::error::Error for Rejected<T> {}

impl<T> Link<T> {
    /// An idle link, whose errors are drawn from `rng`.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration describes no link.
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

    /// Hands an IP packet of `len` bytes to the near end.
    ///
    /// # Errors
    /// [`Rejected`] gives the packet back if there is no room to wait, or if the link is down and
    /// drops packets then. It counts as pushed and lost.
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

    /// When to call [`pop`](Self::pop) next: when the next packet leaves the far end or, while
    /// nothing is on its way, when the transmission of the next one begins. `None` if the link is
    /// empty or never comes up for what waits.
    ///
    /// Ask again after every call that changes the link.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        let arrives = self.flight.next();
        // Where no packet overtakes, what waits leaves after all that is on its way.
        if arrives.is_some() && self.config.reorder.is_none() {
            return arrives;
        }
        let begins = self.plan_head().map(|plan| plan.leaves);
        arrives.into_iter().chain(begins).min()
    }

    /// The next packet that is due at `now`, lost ones included, in the order of transmission but for
    /// those that are held up.
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

    /// The next packet whose transmission has begun by `now`: what becomes of it is decided, though
    /// it may take hours to get there. Packets come in the order of transmission, each once; one that
    /// was popped before this told of it is left out. For captures at the near end.
    pub fn next_decided(&mut self, now: Time) -> Option<&Departure<T>> {
        self.advance(now);
        self.flight.next_untold()
    }

    /// Takes back the memory of a damage that has been applied. Without this, packets with more
    /// than a few flipped bits cost an allocation each.
    pub fn recycle(&mut self, damage: Damage) {
        self.errors.recycle(damage);
    }

    /// What became of everything that was pushed.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Packets waiting for the line as of the last call that changed the link.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of memory that its queues take, what they take with the next packet included; what is
    /// behind the items is the driver's. Queues stay as long as they were once: see
    /// [`shrink`](Self::shrink).
    #[must_use]
    pub fn memory(&self) -> usize {
        room(&self.waiting) * size_of::<Waiting<T>>() + self.flight.memory()
    }

    /// Gives back the memory of queues that were much longer once than they are.
    pub fn shrink(&mut self) {
        if is_idle(&self.waiting) {
            self.waiting.shrink_to_fit();
        }
        self.flight.shrink();
    }

    /// Whether a packet of `len` bytes pushed at `now` would be taken.
    #[must_use]
    pub fn free_for(&self, now: Time, len: usize) -> bool {
        self.free_at(now, len).is_some_and(|at| at <= now.max(self.now))
    }

    /// The first moment from `now` on at which a packet of `len` bytes would be taken if nothing
    /// else were pushed before: when a host that was told `Blocked` may be told `Writable`. `None`
    /// if that never happens.
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
        // It may not wait at all, but an idle line takes it at once.
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

    /// When [`is_up`](Self::is_up) changes next, after `now`; `None` if never.
    #[must_use]
    pub fn next_change(&self, now: Time) -> Option<Time> {
        self.config.outages.next_change(now)
    }

    /// The rate that can be sustained at `now`, in bit/s of frames: the line's or the token
    /// bucket's, whichever is lower. `None` if there is no limit.
    #[must_use]
    pub fn rate_at(&self, now: Time) -> Option<u64> {
        let shaped = self.config.shaper.as_ref().map(|shaper| shaper.rate);
        self.config.rate.at(now).into_iter().chain(shaped).min()
    }

    /// The one-way propagation time of what leaves the near end at `now`.
    #[must_use]
    pub fn delay_at(&self, now: Time) -> Duration {
        self.config.delay.at(now)
    }

    /// Bytes that framing adds to each IP packet, without stuffing.
    #[must_use]
    pub fn overhead(&self) -> usize {
        self.config.framing.overhead()
    }

    /// Replaces the configuration from `now` on. Packets whose transmission has begun keep the
    /// times and the fate they have; packets that wait keep their framed length and stay, even if
    /// the new queue is shorter. Error models and a token bucket that are as before go on, others
    /// start afresh.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration describes no link, or another [`Line`](crate::Line), whose
    /// two ends agreed on what it does; nothing is changed then.
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
        // What waits may begin at once.
        self.advance(now);
        Ok(())
    }

    /// [`set_config`](Self::set_config) for the line rate alone.
    ///
    /// # Errors
    /// [`ConfigError`] if it is no rate.
    pub fn set_rate(&mut self, now: Time, rate: Rate) -> Result<(), ConfigError> {
        rate.validate()?;
        self.advance(now);
        self.config.rate = rate;
        Ok(())
    }

    /// [`set_config`](Self::set_config) for the delay alone.
    ///
    /// # Errors
    /// [`ConfigError`] if it is no delay.
    pub fn set_delay(&mut self, now: Time, delay: Delay) -> Result<(), ConfigError> {
        delay.validate()?;
        self.advance(now);
        self.config.delay = delay;
        Ok(())
    }

    /// [`set_config`](Self::set_config) for the outages alone.
    ///
    /// # Errors
    /// [`ConfigError`] if they are no plan.
    pub fn set_outages(&mut self, now: Time, outages: Outages) -> Result<(), ConfigError> {
        outages.validate()?;
        self.advance(now);
        self.config.outages = outages;
        self.serialiser.reconfigured(self.now);
        // What waits may begin at once.
        self.advance(now);
        Ok(())
    }

    /// [`set_config`](Self::set_config) for the error models alone.
    ///
    /// # Errors
    /// [`ConfigError`] if one of them is none.
    pub fn set_errors(&mut self, now: Time, errors: Vec<ErrorModel>) -> Result<(), ConfigError> {
        self.set_config(now, Config { errors, ..self.config.clone() })
    }

    /// Begins every transmission that is due by `now`, at its logical time.
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
                // The frame used up its place in the error models' sequences all the same.
                self.judge(&packet, plan.released);
                Fate::Lost(LossCause::Outage)
            }
            Outcome::Sent => self.judge(&packet, plan.released),
        };
        let (at, held) = match plan.outcome {
            // It was never on its way.
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
