//! The near end: order of data and parity frames on the line.

use engine::Time;

use crate::Config;
use crate::erasure::{Encoder, Lengths};
use crate::serialiser::{Outcome, Plan, Serialiser};

/// Transmitter and code between two frames. `Copy`, so that lookahead works on a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Near {
    pub(crate) serialiser: Serialiser,
    pub(crate) encoder: Encoder,
}

/// Next event at the near end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// The open matrix closes.
    Close(Time),
    /// A parity frame.
    Parity(Plan),
    /// The packet at the head of the queue.
    Data(Plan),
}

impl Step {
    pub(crate) fn time(&self) -> Time {
        match self {
            Self::Close(at) => *at,
            Self::Parity(plan) | Self::Data(plan) => plan.leaves,
        }
    }
}

impl Near {
    pub(crate) fn new(config: &Config, at: Time) -> Self {
        Self { serialiser: Serialiser::new(config, at), encoder: Encoder::default() }
    }

    /// Returns the next event with this packet at the head of the queue, by the time at which it
    /// was pushed and its length on the line. `None` if there is none, or the link never comes up
    /// for it.
    pub(crate) fn step(&self, config: &Config, head: Option<(Time, usize)>) -> Option<Step> {
        if let Some((since, lengths)) = self.encoder.due() {
            return self.serialiser.plan(config, since, lengths.framed).map(Step::Parity);
        }
        let data = head.and_then(|(pushed, framed)| self.serialiser.plan(config, pushed, framed));
        match self.encoder.deadline(config.erasure.as_ref()) {
            Some(at) if data.is_none_or(|plan| at <= plan.leaves) => Some(Step::Close(at)),
            Some(_) | None => data.map(Step::Data),
        }
    }

    /// Closes the open matrix.
    pub(crate) fn close(&mut self, config: &Config, at: Time) {
        if let Some(code) = &config.erasure {
            self.encoder.close(code, at);
        }
    }

    /// Sends a parity frame. Returns whether it is the last one of its matrix.
    pub(crate) fn sent_parity(&mut self, plan: &Plan) -> bool {
        self.serialiser = plan.after;
        self.encoder.sent()
    }

    /// Sends a data frame.
    pub(crate) fn sent_data(&mut self, config: &Config, frame: Lengths, plan: &Plan) {
        self.serialiser = plan.after;
        match (plan.outcome, &config.erasure) {
            (Outcome::Sent | Outcome::Cut, Some(code)) => {
                self.encoder.add(code, frame, plan.after.end());
            }
            (Outcome::Dropped, _) | (_, None) => {}
        }
    }

    /// Plans the next packet, after the parity frames that go before it, and advances to it.
    pub(crate) fn plan(&mut self, config: &Config, pushed: Time, framed: usize) -> Option<Plan> {
        loop {
            match self.step(config, Some((pushed, framed)))? {
                Step::Close(at) => self.close(config, at),
                Step::Parity(plan) => {
                    self.sent_parity(&plan);
                }
                Step::Data(plan) => return Some(plan),
            }
        }
    }
}
