//! Requests of a receiver to a sender (RFC 5740 §5.3).

use std::time::Duration;

use engine::Time;
use session::path::{Burst, Class, Path};
use session::thin_return::{self, ArrivalRate};

use super::{BACKOFF_OF_MANY, Receiver};
use crate::config::Nacking;
use crate::core::{Alarm, Core};
use crate::grtt::backoff;
use crate::incoming::price::ItemPrice;
use crate::incoming::requests::EXT_LACKS;
use crate::incoming::{Incoming, RequestRound};
use crate::message::{
    Body, Extension, Extensions, FIELD_BITS_ASSUMED, Nack, RequestWriter, Requests,
};
use crate::report::{EXT_REPORT, REPORT_LEN, Report};

/// Bytes of NORM_NACK before its requests, with EXT_CC and EXT_LACKS.
pub(super) const NACK_HEADER: usize = 40;

/// Typical size of a short NACK with UDP, IP and link headers, in bytes.
const NACK_USUAL: usize = 110;

/// Rate, in bit/s, at or above which a sender counts as unpaced.
const RATE_UNKNOWN: f64 = 1e12;

/// Minimum wait for repairs, for any round trip that the sender advertises: otherwise each message
/// of a sender that advertises almost none would trigger all requests.
pub(super) const HOLDOFF_LEAST: Duration = Duration::from_millis(1);

/// Maximum number of NACKs in a round; the rest is requested in the next one.
const NACKS_MAX: u32 = 16;

/// State of a round of requests in a group (RFC 5740 §5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Round {
    #[default]
    Idle,
    /// Waiting for requests of others.
    Backoff,
    /// Waiting for repairs.
    Holdoff { since: Time },
}

/// Rounds of requests.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    pub(super) round: Round,
    pub(super) due: bool,
    /// Number of NACKs sent in this round.
    sent: u32,
    /// Requests made up to this time are repeated: one round does not request anything twice.
    pub(super) since: Time,
    /// Time of the last round's first NACK, and the time needed to send all NACKs of that round.
    first_at: Time,
    took: Duration,
    /// Rounds since the last data: their requests were lost on the return link.
    pub(super) unanswered: u32,
    /// Longest recent time from a request to its first repair.
    answered_in: Option<Duration>,
    /// Rate at which data arrives, for a sender that does not advertise one.
    pub(super) arrivals: ArrivalRate,
}

impl Rounds {
    /// Stops all rounds.
    pub(super) fn stop(&mut self) {
        (self.round, self.due) = (Round::Idle, false);
    }
}

impl Receiver {
    /// Notes requests of others, received directly or repeated by the sender (§5.3).
    pub(crate) fn on_other_requests(&mut self, requests: &Requests<'_>) {
        if self.nack.round != Round::Backoff {
            return;
        }
        for request in requests.iter() {
            for (first, last) in request.ranges() {
                let (from, to) =
                    (self.numbers.unwrap(first.object), self.numbers.unwrap(last.object));
                for (_, object) in self.objects.range_mut(from..=to.max(from)) {
                    object.suppress(&request, first, last);
                }
            }
        }
    }

    /// Whether anything missing was not requested after `since`.
    pub(super) fn lacks(&self, since: Time) -> bool {
        self.objects.range(..=self.reach.object).any(|(number, object)| {
            let block = (*number == self.reach.object).then_some(self.reach.block);
            object.lacks(block, since)
        })
    }

    /// Minimum time until repairs arrive.
    pub(super) fn holdoff(&self) -> Duration {
        let wait = if self.is_alone() {
            self.timing.grtt + self.timing.grtt / 4 + self.nack.took
        } else {
            let most = self.timing.grtt * (u32::from(self.timing.backoff) + 2);
            // A sender that does not collect requests repairs sooner.
            let known = self.nack.answered_in.filter(|_| self.timing.backoff < BACKOFF_OF_MANY);
            known.map_or(most, |wait| {
                (wait + self.timing.grtt / 4).clamp(self.timing.grtt * 5 / 4, most)
            })
        };
        wait.max(HOLDOFF_LEAST)
    }

    /// Measures the time from the request at `requested_at` to its repair.
    pub(super) fn learn_answer(&mut self, now: Time, requested_at: Time) {
        let took = now.since(requested_at);
        let before = self.nack.answered_in.unwrap_or_default();
        self.nack.answered_in = Some(took.max(before - before.saturating_sub(took) / 8));
    }

    /// Starts to request missing data (§5.3).
    pub(crate) fn check_repairs(&mut self, core: &mut Core) {
        self.check_repairs_after(core, self.holdoff());
    }

    /// Starts to request the segments that were not requested in the last `wait`. In small groups,
    /// new losses do not wait for repairs of other blocks.
    pub(super) fn check_repairs_after(&mut self, core: &mut Core, wait: Duration) {
        let now = core.now;
        if self.rests && self.lacks(Time::MAX) {
            self.rests = false;
            let wait = self.silence(core);
            self.base.alarm(&mut core.shared, Alarm::Inactivity, now, wait);
        }
        let is_waiting = match self.nack.round {
            Round::Idle => false,
            Round::Backoff => true,
            Round::Holdoff { since } => {
                self.timing.backoff >= BACKOFF_OF_MANY && now - wait < since
            }
        };
        let config = &core.config.receiver;
        let is_mute = config.silent || config.nacking == Nacking::None || self.can_wait(core);
        if is_mute || is_waiting || self.nack.due || !self.lacks(now - wait) {
            return;
        }
        self.nack.since = now - wait;
        if self.is_alone() {
            self.want_requests(core);
            return;
        }
        self.nack.round = Round::Backoff;
        for object in self.objects.values_mut() {
            object.forget_others();
        }
        let most = self.timing.grtt * u32::from(self.timing.backoff);
        let wait = backoff(&mut core.rng, most, f64::from(self.timing.group));
        self.base.alarm(&mut core.shared, Alarm::Nack, now, wait);
    }

    pub(super) fn want_requests(&mut self, core: &mut Core) {
        self.nack.due = true;
        self.nack.sent = 0;
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Minimum time from a request to the flush after its repairs.
    ///
    /// Once two requests in a row had no effect, the return link is assumed to be down, and they
    /// are repeated twice as often. The first that gets through is then never a round trip away.
    pub(super) fn answer_time(&self) -> Duration {
        let is_lost = self.is_alone() && self.nack.unanswered >= 2;
        let round_trip = if is_lost { self.timing.grtt / 2 } else { self.timing.grtt };
        round_trip + self.nack.took
    }

    /// Requests missing data (§4.3.1). Returns `false` if the message must wait for the next batch.
    pub(super) fn emit_nack(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let now = burst.departure();
        let since = self.nack.since;
        let report = self.coded_report();
        let header = NACK_HEADER + report.map_or(0, |_| REPORT_LEN);
        let most = burst.mtu().min(self.allowance.bytes());
        let mut room = vec![0; most.saturating_sub(header)];
        let len = room.len();
        // Requests are recorded when written, so there must be room for the message.
        if !burst.has_room(header + len) {
            return burst.is_empty() && {
                self.nack.due = false;
                true
            };
        }
        let mut writer = RequestWriter::new(&mut room, FIELD_BITS_ASSUMED);
        let round = RequestRound { now, since, price: self.item_price(core) };
        let lacks = self.request_joined(&mut writer, round);
        let is_all = lacks.is_none() && self.request_listed(&mut writer, round);
        self.nack.sent += 1;
        self.nack.due = !is_all && self.nack.sent < NACKS_MAX && !writer.is_empty();
        let requests = writer.finish();
        if !requests.is_empty() {
            let [high, low] = lacks.unwrap_or_default().to_be_bytes();
            let joined = [0, high, low];
            let joined = lacks.map(|_| Extension { kind: EXT_LACKS, value: &joined });
            self.push_nack(core, burst, report, joined, requests);
            self.nack.unanswered =
                self.nack.unanswered.saturating_add(u32::from(self.nack.sent == 1));
        } else if self.nack.sent == 1 {
            core.stats.suppressed += 1;
        }
        if self.nack.sent == 1 {
            self.nack.first_at = now;
        }
        self.nack.took = burst.departure().since(self.nack.first_at);
        if !self.nack.due {
            self.nack.round = Round::Holdoff { since: now };
            let wait = self.holdoff();
            self.base.alarm(&mut core.shared, Alarm::Nack, now, wait);
        }
        true
    }

    /// Sends a NACK, with a report and another extension, if given.
    pub(super) fn push_nack(
        &mut self,
        core: &mut Core,
        burst: &mut Burst<'_>,
        report: Option<Report>,
        other: Option<Extension<'_>>,
        requests: Requests<'_>,
    ) {
        let now = burst.departure();
        let report = report.map(|report| report.encode());
        let report = report.as_ref().map(|value| Extension { kind: EXT_REPORT, value });
        let others: Vec<_> = report.into_iter().chain(other).collect();
        let body = Body::Nack(Nack {
            server: self.sender.node,
            instance: self.life.instance,
            grtt_response: self.feedback.response(now),
            cc: self.feedback.report(self.timing.grtt),
            others: Extensions::new(&others),
            requests,
        });
        self.push(core, burst, body);
        self.feedback_left(core, now);
    }

    /// Requests blocks of the first object whose blocks can be joined. Returns the largest number
    /// of segments that one block lacks.
    fn request_joined(
        &mut self,
        writer: &mut RequestWriter<'_>,
        round: RequestRound,
    ) -> Option<u16> {
        let reach = self.reach;
        let mut objects = self.objects.range_mut(..=reach.object);
        objects.find_map(|(number, object)| {
            let block = (*number == reach.object).then_some(reach.block);
            object.request_joined(writer, block, round)
        })
    }

    /// Lists missing data. Returns `false` if there was no room for all.
    fn request_listed(&mut self, writer: &mut RequestWriter<'_>, round: RequestRound) -> bool {
        let (reach, scheme) = (self.reach, self.scheme);
        let mut objects = self.objects.range_mut(..=reach.object);
        objects.all(|(number, object)| {
            let block = (*number == reach.object).then_some(reach.block);
            object.request(writer, scheme, block, round)
        })
    }

    /// Bytes that cross the forward link while `request` bytes cross the return link. Returns 0 if
    /// a rate is unknown, and in a group, whose other members must understand the request.
    fn bridge(&self, core: &Core, request: usize) -> u64 {
        if !self.is_alone() {
            return 0;
        }
        let named = self.feedback.sender_rate().map(|rate| rate * 8.0);
        let named = named.filter(|rate| *rate < RATE_UNKNOWN).map(|rate| rate as u64);
        let forward = named.or(self.nack.arrivals.bps());
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        thin_return::bridge(request, forward, path.and_then(Path::rate_bps))
    }

    fn item_price(&self, core: &Core) -> ItemPrice {
        let segment = self.objects.get(&self.reach.object).and_then(Incoming::segment_len);
        ItemPrice::new(self.bridge(core, ItemPrice::ITEM), segment.unwrap_or(u16::MAX))
    }

    /// Whether a request can wait because the end of the object arrives before it would be sent.
    /// Over a thin return link, the request for the end would queue behind it.
    fn can_wait(&self, core: &Core) -> bool {
        let left = self.objects.get(&self.reach.object).map(|object| object.left(self.reach.block));
        left.is_some_and(|left| left > 0 && left < self.bridge(core, NACK_USUAL))
            && self.item_price(core).counts()
    }
}
