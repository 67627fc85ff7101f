//! Times at which packets leave the near end.

use engine::Time;

use crate::rate::{Moment, Tokens};
use crate::{Config, Release, WhileDown};

/// The transmitter between two packets. Small and `Copy`, so lookahead plans the waiting packets
/// on a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serialiser {
    /// End of the service of the current packet, if any.
    busy: Moment,
    tokens: Option<Tokens>,
    /// Time of the last reconfiguration: packets that waited then start no earlier, even if the new
    /// configuration would have allowed it.
    since: Time,
}

/// Plan of the transmitter for one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Time at which the packet leaves the queue: its transmission starts, or an outage empties the
    /// queue.
    pub(crate) leaves: Time,
    /// Time at which it leaves the near end, or ceases to exist.
    pub(crate) released: Time,
    pub(crate) outcome: Outcome,
    /// State of the transmitter after the packet.
    pub(crate) after: Serialiser,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Sent,
    /// An outage started during the transmission.
    Cut,
    /// An outage emptied the queue before the transmission.
    Dropped,
}

impl Serialiser {
    pub(crate) fn new(config: &Config, at: Time) -> Self {
        let tokens = config.shaper.as_ref().map(|shaper| Tokens::full(shaper, at));
        Self { busy: Moment::whole(at), tokens, since: at }
    }

    /// Returns the end of the current service.
    pub(crate) fn end(&self) -> Time {
        self.busy.ceil()
    }

    /// Applies another configuration from `at` on.
    pub(crate) fn reconfigured(&mut self, at: Time) {
        self.since = at;
    }

    /// Starts a new shaper with full buckets.
    pub(crate) fn reshape(&mut self, config: &Config, at: Time) {
        self.tokens = Self::new(config, at).tokens;
    }

    /// Plans a packet pushed at `pushed` that is the next to be sent, if nothing is reconfigured;
    /// `None` if the link never comes up for it.
    pub(crate) fn plan(&self, config: &Config, pushed: Time, framed: usize) -> Option<Plan> {
        let pushed = pushed.max(self.since);
        let start = self.start(config, pushed, framed);
        let start = match config.while_down {
            WhileDown::Hold => self.held(config, start)?,
            WhileDown::Drop => match config.outages.down_from(pushed) {
                Some(down) if down <= start.ceil() => return Some(self.dropped(down)),
                Some(_) | None => start,
            },
        };
        let first_bit = start.ceil();
        let last_bit = config.rate.serve(start, framed);
        let mut after = *self;
        if let (Some(tokens), Some(shaper)) = (&mut after.tokens, &config.shaper) {
            tokens.take(shaper, first_bit, framed);
        }
        let per_packet = u64::try_from(config.per_packet.as_nanos()).unwrap_or(u64::MAX);
        after.busy = last_bit.plus_nanos(per_packet);
        let released = match config.release {
            Release::FirstBit => first_bit,
            Release::LastBit => {
                let down = config.outages.down_from(first_bit);
                if let Some(down) = down.filter(|down| *down < last_bit.ceil()) {
                    after.busy = Moment::whole(down);
                    let outcome = Outcome::Cut;
                    return Some(Plan { leaves: first_bit, released: down, outcome, after });
                }
                after.busy.ceil()
            }
        };
        Some(Plan { leaves: first_bit, released, outcome: Outcome::Sent, after })
    }

    /// Returns the first moment at which line and tokens are ready.
    fn start(&self, config: &Config, pushed: Time, framed: usize) -> Moment {
        let line = if pushed >= self.busy.ceil() { Moment::whole(pushed) } else { self.busy };
        match (&self.tokens, &config.shaper) {
            (Some(tokens), Some(shaper)) => {
                let ready = tokens.ready(shaper, line.ceil(), framed);
                if ready > line.ceil() { Moment::whole(ready) } else { line }
            }
            (None, _) | (_, None) => line,
        }
    }

    /// Returns the first moment from `start` on at which the link is up.
    fn held(&self, config: &Config, start: Moment) -> Option<Moment> {
        let up = config.outages.up_from(start.ceil())?;
        Some(if up > start.ceil() { Moment::whole(up) } else { start })
    }

    fn dropped(&self, down: Time) -> Plan {
        Plan { leaves: down, released: down, outcome: Outcome::Dropped, after: *self }
    }
}
