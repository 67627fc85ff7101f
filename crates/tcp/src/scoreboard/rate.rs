//! Delivery rate (draft-cheng-iccrg-delivery-rate-estimation).

use std::time::Duration;

use engine::Time;

use crate::cc::RateSample;

/// State of the estimate when a segment was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    /// Bytes delivered, and the time of that.
    delivered: u64,
    delivered_at: Time,
    /// Sending time of the first segment over which the rate is measured.
    first_sent_at: Time,
    app_limited: bool,
}

/// Most recently sent of the acknowledged segments.
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
    /// Delivered bytes up to which samples are application-limited.
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

    /// Starts sending with nothing in flight.
    pub(super) fn begin(&mut self, now: Time) {
        (self.first_sent_at, self.delivered_at) = (now, now);
    }

    /// State to keep with a sent segment.
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            app_limited: self.is_app_limited(),
        }
    }

    /// Notes that everything allowed was sent and no more data is available.
    pub(super) fn app_limited(&mut self, pipe: u64) {
        self.app_limited_until = (self.delivered + pipe).max(1);
    }

    pub(super) fn is_app_limited(&self) -> bool {
        // Data sent after its last byte is limited, too, until more was available.
        self.app_limited_until > 0 && self.delivered <= self.app_limited_until
    }

    /// Counts a delivered segment of `len` bytes.
    pub(super) fn deliver(
        &mut self,
        now: Time,
        len: u64,
        sent_at: Time,
        prior: Snapshot,
        newest: &mut Option<Newest>,
    ) {
        self.delivered += len;
        self.delivered_at = now;
        if newest.is_none_or(|newest| prior.delivered >= newest.prior.delivered) {
            *newest = Some(Newest { sent_at, prior });
            self.first_sent_at = sent_at;
        }
    }

    /// Rate sample, unless it is faster than the minimum round trip allows.
    pub(super) fn sample(&self, newest: Newest, least: Option<Duration>) -> Option<RateSample> {
        let Newest { sent_at, prior } = newest;
        let sending = sent_at.since(prior.first_sent_at);
        let arriving = self.delivered_at.since(prior.delivered_at);
        let interval = sending.max(arriving);
        // A delivery faster than the round trip is an artefact of the acknowledgments.
        let sound = !interval.is_zero() && least.is_none_or(|least| interval >= least);
        sound.then_some(RateSample {
            delivered: self.delivered - prior.delivered,
            interval,
            prior_delivered: prior.delivered,
            app_limited: prior.app_limited,
        })
    }
}
