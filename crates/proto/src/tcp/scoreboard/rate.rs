//! Rate at which data is delivered (draft-cheng-iccrg-delivery-rate-estimation).

use std::time::Duration;

use engine::Time;

use crate::tcp::cc::RateSample;

/// State of the estimate when a segment was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    /// Bytes delivered, and when that was.
    delivered: u64,
    delivered_at: Time,
    /// When the first segment was sent of those that the rate is measured over.
    first_sent_at: Time,
    app_limited: bool,
}

/// Segment that was sent last of those that an acknowledgment covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newest {
    sent_at: Time,
    prior: Snapshot,
}

/// Estimate of the delivery rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeliveryRate {
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    /// Until so much is delivered, samples are of an application that had less to send.
    app_limited_until: u64,
}

impl DeliveryRate {
    pub(super) fn new() -> Self {
        Self {
            delivered: 0,
            delivered_at: Time::ZERO,
            first_sent_at: Time::ZERO,
            app_limited_until: 0,
        }
    }

    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Something is sent with nothing in flight.
    pub(super) fn begin(&mut self, now: Time) {
        (self.first_sent_at, self.delivered_at) = (now, now);
    }

    /// State to be kept with a segment that is sent.
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            app_limited: self.is_app_limited(),
        }
    }

    /// All that is allowed is sent, and nothing more is there to send.
    pub(super) fn app_limited(&mut self, pipe: u64) {
        self.app_limited_until = (self.delivered + pipe).max(1);
    }

    pub(super) fn is_app_limited(&self) -> bool {
        // What is sent behind the last of it is limited, too, until something more was there to send.
        self.app_limited_until > 0 && self.delivered <= self.app_limited_until
    }

    /// A segment of `len` bytes is delivered.
    pub(super) fn deliver(
        &mut self,
        now: Time,
        len: u64,
        (sent_at, prior): (Time, Snapshot),
        newest: &mut Option<Newest>,
    ) {
        self.delivered += len;
        self.delivered_at = now;
        if newest.is_none_or(|newest| prior.delivered >= newest.prior.delivered) {
            *newest = Some(Newest { sent_at, prior });
            self.first_sent_at = sent_at;
        }
    }

    /// Sample of the rate, unless it is faster than the least round trip allows.
    pub(super) fn sample(&self, newest: Newest, least: Option<Duration>) -> Option<RateSample> {
        let Newest { sent_at, prior } = newest;
        let sending = sent_at.since(prior.first_sent_at);
        let arriving = self.delivered_at.since(prior.delivered_at);
        let interval = sending.max(arriving);
        // What arrives faster than the round trip is an artefact of the acknowledgments.
        let sound = !interval.is_zero() && least.is_none_or(|least| interval >= least);
        sound.then_some(RateSample {
            delivered: self.delivered - prior.delivered,
            interval,
            prior_delivered: prior.delivered,
            app_limited: prior.app_limited,
        })
    }
}
