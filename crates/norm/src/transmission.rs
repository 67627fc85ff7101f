//! State that all messages of a sender share.

use std::time::Duration;

use engine::Time;
use session::path::Burst;

use super::congestion::Congestion;
use super::core::Core;
use super::grtt::Grtt;
use super::losses::Losses;
use crate::endgame::Terms;
use crate::message::{self, Body};

/// State of a sender's messages on its path.
#[derive(Debug)]
pub(crate) struct Transmission {
    /// Instance of the sender: a restart changes it.
    pub(crate) instance: u16,
    /// Number of the next message; messages carry its lower half.
    pub(crate) sequence: u64,
    pub(crate) grtt: Grtt,
    pub(crate) backoff: u8,
    /// Quantised size of the group.
    group_size: u8,
    /// Losses reported by receivers.
    pub(crate) losses: Losses,
    /// Rate control, if enabled.
    pub(crate) congestion: Option<Box<Congestion>>,
    /// Time to retry after the rate held back a message.
    pub(crate) held: Option<Time>,
    /// Round trip by the path's light time, if known and too long for messages to express.
    pub(crate) light: Duration,
    /// Circumstances that decide how much parity is sent unasked.
    pub(crate) terms: Terms,
    /// Whether receivers were queried for what they have. They reply to the next probe.
    pub(crate) has_queried: bool,
}

impl Transmission {
    pub(crate) fn new(instance: u16, grtt: Grtt, backoff: u8, group_size: u32) -> Self {
        Self {
            instance,
            sequence: 0,
            grtt,
            backoff,
            group_size: message::quantise_group_size(group_size),
            losses: Losses::default(),
            congestion: None,
            held: None,
            light: Duration::ZERO,
            terms: Terms::default(),
            has_queried: false,
        }
    }

    /// Sender's part of the message header.
    pub(crate) fn header(&self) -> message::Sender {
        message::Sender {
            instance: self.instance,
            grtt: self.grtt.quantised(),
            backoff: self.backoff,
            group_size: self.group_size,
        }
    }

    /// Announced size of the group.
    pub(crate) fn group_size(&self) -> u32 {
        message::group_size(self.group_size)
    }

    /// Changes the announced size of the group.
    pub(crate) fn set_group_size(&mut self, size: u32) {
        self.group_size = message::quantise_group_size(size);
    }

    /// Writes a message into the batch. Returns `false` if it must wait for the next one; the rate
    /// control may delay data.
    pub(crate) fn push(&mut self, core: &mut Core, burst: &mut Burst<'_>, body: Body<'_>) -> bool {
        let is_data = matches!(body, Body::Data(_));
        let (at, round_trip) = (burst.departure(), self.round_trip());
        if let Some(congestion) = self.congestion.as_mut().filter(|_| is_data) {
            congestion.resume(at, round_trip);
            if let Err(again) = congestion.check_pace(at) {
                self.held = Some(again);
                return false;
            }
        }
        let before = burst.len();
        let went = core.push(burst, self.sequence as u16, body);
        if went {
            self.sequence += 1;
            if let Some(congestion) = self.congestion.as_mut() {
                congestion.sent(at, burst.len() - before, is_data);
            }
        }
        went
    }

    /// Greatest round trip for this sender's timers.
    pub(crate) fn round_trip(&self) -> Duration {
        self.grtt.advertised().max(self.light)
    }

    /// Twice the greatest round trip: the time between two flushes.
    pub(crate) fn twice(&self) -> Duration {
        self.round_trip() * 2
    }

    /// Time after a first request until all receivers that lack the same have requested it
    /// (RFC 5740 §5.4.1). A single receiver has no other to wait for.
    pub(crate) fn aggregation(&self) -> Duration {
        match self.backoff {
            0 => Duration::ZERO,
            k => self.round_trip() * (u32::from(k) + 1),
        }
    }

    /// Maximum duration of a round of repairs, from the end of a block.
    pub(crate) fn round(&self) -> Duration {
        self.round_trip() * (u32::from(self.backoff) + 1)
    }
}

/// Batch of a sender, and what its messages are made of.
pub(crate) struct Output<'a, 'b> {
    pub(crate) core: &'a mut Core,
    pub(crate) transmission: &'a mut Transmission,
    pub(crate) burst: &'a mut Burst<'b>,
}

impl Output<'_, '_> {
    /// Departure of the next message.
    pub(crate) fn departure(&self) -> Time {
        self.burst.departure()
    }

    /// Writes a message into the batch. Returns `false` if it must wait for the next one.
    pub(crate) fn push(&mut self, body: Body<'_>) -> bool {
        self.transmission.push(self.core, self.burst, body)
    }
}
