//! Requests for missing data (CCSDS 727.0-B-5 §4.6.4).
//!
//! A sender serves a NAK in the order of its requests. When data from the end of the last request
//! or after it arrives, everything still missing before it was lost again. It is requested at
//! once. Only if the repairs stop before that, a timer must detect it.

use std::time::Duration;

use engine::Time;
use session::path::{Burst, Class, Path, Turn};
use session::thin_return::{self, ArrivalRate, EARLY_ITEMS};
use session::timer::TICK;

use super::{Phase, Receiver};
use crate::config::{NakMode, Timer};
use crate::core::{Alarm, Core};
use crate::pdu::{Body, ConditionCode, Nak, SegmentRequest, SegmentRequests};

/// Consecutive losses after which repairs count as complete. With 10 % of packets lost, eight in a
/// row are one in 10^8.
const LOSSES_IN_A_ROW: u32 = 8;

/// Number of requests to a silent sender at the regular interval; then the interval grows.
const PATIENT_ASKS: u32 = 8;

/// Consecutive rounds without progress after which a round is one NAK PDU: the sender is probably
/// unreachable, and its first repair triggers the other requests.
const SILENT_ROUNDS: u32 = 3;

/// Bytes that cross the forward link in the time of one request, at or above which the return link
/// counts as thin: 8 bytes against 4 KiB are a ratio of 1 to 512.
const THIN: u64 = 4096;

/// Approximate length of a short NAK with the headers below it.
const NAK_LEN: usize = 64;

/// Requests over a thin return link while the file still arrives.
#[derive(Clone, Copy, Debug, Default)]
struct Early {
    /// End of the requested range.
    end: u64,
    /// Maximum bytes between two gaps that are requested as one.
    bridge: u64,
}

/// NAK state of a reception.
#[derive(Debug, Default)]
pub(crate) struct NakState {
    pub(super) round: Round,
    /// Consecutive rounds without progress.
    pub(super) misses: u32,
    /// Time at which the first round without progress ended.
    missed_since: Option<Time>,
    /// Time at which repairs of this round count as complete.
    deadline: Time,
    /// Spacing of arriving data.
    pace: Pace,
    /// Time of the last request before the EOF.
    immediate_at: Option<Time>,
    /// Time at which a contact began with a request, before its return link came up.
    contact_at: Option<Time>,
    /// Time for which consecutive rounds had waited when the path went down.
    waited: Duration,
    /// Consecutive requests at regular intervals without a result.
    fruitless: u32,
    /// Rate at which data arrives.
    pub(super) arrivals: ArrivalRate,
    /// Requests over a thin return link while the file still arrives.
    early: Early,
    /// Whether an empty NAK is due, because the sender prompted.
    pub(super) empty_due: bool,
}

impl NakState {
    /// Notes that useful data arrived.
    pub(super) fn progressed(&mut self) {
        (self.misses, self.missed_since) = (0, None);
    }
}

/// Sequence of NAK PDUs and their repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Round {
    /// Nothing is requested.
    #[default]
    Idle,
    /// NAK PDUs are being sent, `sent` so far. The next one covers the part after `next`; the last
    /// one ends at `end`.
    Asking { next: u64, end: u64, metadata: bool, last: u64, sent: u32 },
    /// All NAK PDUs were sent; the last requested gap ends at `last`.
    Waiting { last: u64, requested_at: Time, is_answered: bool },
}

/// Spacing of arriving data PDUs.
#[derive(Debug, Default)]
struct Pace {
    last: Option<Time>,
    total: Duration,
    count: u32,
    /// Longest recent pause.
    pause: Duration,
}

impl Pace {
    #[inline]
    fn arrived(&mut self, now: Time) {
        let Some(last) = self.last.replace(now) else { return };
        let pause = now.since(last);
        if !pause.is_zero() {
            self.total += pause;
            self.pause = pause.max(self.pause - self.pause / 64);
        }
        self.count = self.count.saturating_add(1);
    }

    fn mean(&self) -> Duration {
        self.total / self.count.max(1)
    }

    /// Silence after which nothing more is under way.
    fn silence(&self) -> Duration {
        (self.mean() * LOSSES_IN_A_ROW).max(self.pause * 2)
    }
}

impl Receiver {
    /// Notes new data in `offset..end`, which began at `before` bytes of progress.
    #[inline]
    pub(super) fn nak_progress(
        &mut self,
        core: &mut Core,
        now: Time,
        before: u64,
        offset: u64,
        end: u64,
    ) {
        self.nak.pace.arrived(now);
        self.nak.waited = Duration::ZERO;
        if std::mem::take(&mut self.nak.fruitless) > PATIENT_ASKS
            && let NakMode::Asynchronous(every) = self.base.remote.naks.mode
        {
            self.base.alarm_no_later(core, Alarm::Periodic, now + every.max(TICK));
        }
        match self.nak.round {
            Round::Idle => {
                if offset > before && self.eof.is_none() {
                    self.gap_opened(core, now, before, offset);
                }
            }
            Round::Asking { ref mut end, .. } => {
                let immediate = self.base.remote.naks.mode == NakMode::Immediate;
                if immediate && self.eof.is_none() && offset > before {
                    *end = offset;
                }
                self.nak.progressed();
            }
            Round::Waiting { .. } => self.answered(core, now, end),
        }
    }

    fn gap_opened(&mut self, core: &mut Core, now: Time, before: u64, offset: u64) {
        if !self.base.acknowledged() {
            return;
        }
        match self.base.remote.naks.mode {
            NakMode::Immediate => {
                self.nak.immediate_at = Some(now);
                self.ask(core, now, before, offset);
            }
            NakMode::Deferred => self.ask_early(core, now, offset),
            NakMode::Prompted | NakMode::Asynchronous(_) => {}
        }
    }

    /// Requests missing data before `end` while a thin return link is idle, because NAKs after the
    /// EOF would take long. Does nothing if this NAK would delay those after the EOF.
    fn ask_early(&mut self, core: &mut Core, now: Time, end: u64) {
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let size = self.metadata.as_ref().and_then(|metadata| metadata.size);
        let (Some(path), Some(size), Some(bps)) = (path, size, self.nak.arrivals.bps()) else {
            return;
        };
        let left = size.saturating_sub(end) as f64 * 8.0 / bps.max(1) as f64;
        let is_late = left < path.time_of(NAK_LEN).as_secs_f64();
        if is_late || !path.is_idle(now) || !self.return_is_thin(core) {
            return;
        }
        let start = self.nak.early.end;
        if self.ranges.gaps(start, end).take(EARLY_ITEMS).count() < EARLY_ITEMS {
            return;
        }
        let bridge = self.early_bridge(start, end).min(self.bridge(core));
        self.nak.early = Early { end, bridge };
        self.ask(core, now, start, end);
    }

    /// Bytes between two gaps up to which the gaps are requested as one, to keep the number of
    /// requests in a NAK low.
    ///
    /// While new data still arrives, duplicates delay it, and requests cost no time.
    fn early_bridge(&self, start: u64, end: u64) -> u64 {
        let gaps: Vec<_> = self.ranges.gaps(start, end).collect();
        let mut between: Vec<_> =
            gaps.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].1)).collect();
        between.sort_unstable();
        let joined = gaps.len().saturating_sub(EARLY_ITEMS);
        joined.checked_sub(1).map_or(0, |last| between[last])
    }

    /// Maximum bytes between two gaps requested as one, because another request takes longer on the
    /// return link. An entity that keeps few gaps reports them unchanged.
    fn bridge(&self, core: &Core) -> u64 {
        if self.base.remote.naks.gaps_max.is_some() {
            return 0;
        }
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let request = 2 * self.base.header.file_size_len();
        let rate = path.and_then(Path::rate_bps);
        thin_return::bridge(request, self.nak.arrivals.bps(), rate)
    }

    /// Whether a PDU on the return link costs as much time as many on the forward link.
    pub(super) fn return_is_thin(&self, core: &Core) -> bool {
        self.bridge(core) >= THIN
    }

    /// Notes duplicate data. Between joined gaps, it shows that repairs arrive, and which part
    /// they have reached.
    pub(super) fn repeated(&mut self, core: &mut Core, now: Time, end: u64) {
        let least = self.base.seat.round_trip(&core.shared.paths).least();
        let Round::Waiting { requested_at, ref mut is_answered, .. } = self.nak.round else {
            return;
        };
        if now.since(requested_at) < least {
            return;
        }
        *is_answered = true;
        self.nak.pace.arrived(now);
        self.answered(core, now, end);
    }

    /// Notes that requested data arrived.
    pub(super) fn answered(&mut self, core: &mut Core, now: Time, end: u64) {
        let Round::Waiting { last, requested_at, .. } = self.nak.round else { return };
        // Data that arrives within the light time was requested before this round.
        let possible =
            now.since(requested_at) >= self.base.seat.round_trip(&core.shared.paths).least();
        let thin = self.return_is_thin(core);
        if thin && !possible {
            return;
        }
        let Round::Waiting { ref mut is_answered, .. } = self.nak.round else { return };
        let first = !std::mem::replace(is_answered, true);
        if first
            && self.nak.misses == 0
            && let Some(path) = self.base.seat.path.and_then(|id| core.shared.paths.get_mut(&id))
            && now > requested_at
        {
            path.rtt.sample(now.since(requested_at));
        }
        self.nak.progressed();
        // Over a thin return link the sender retransmits until the next request arrives.
        if possible && (end >= last || thin) {
            self.nak.round = Round::Idle;
            self.base.disarm(core, Alarm::Nak);
            self.ask_for_all(core, now);
            return;
        }
        let silence = match self.base.remote.naks.timer {
            Timer::Auto => {
                self.nak.pace.silence() + self.base.seat.round_trip(&core.shared.paths).margin()
            }
            Timer::Fixed(fixed) => fixed,
        };
        self.nak.deadline = now + silence;
        self.base.alarm_no_later(core, Alarm::Nak, self.nak.deadline);
    }

    /// Requests everything missing once the EOF is known.
    pub(super) fn ask_after_eof(&mut self, core: &mut Core, now: Time) {
        if self.nak.round != Round::Idle {
            return;
        }
        // Repairs of earlier requests are under way; data after them was not requested yet.
        let size = self.eof.map_or(0, |eof| eof.size);
        let early = std::mem::take(&mut self.nak.early.end);
        if early > 0 && self.ranges.gaps(early, size).next().is_some() {
            self.ask(core, now, early, size);
            return;
        }
        let pending = self.nak.immediate_at.map(|at| at + self.base.answer_time(core));
        match pending.filter(|until| *until > now) {
            // Repairs of recently requested gaps are still under way.
            Some(until) => {
                let last = u64::MAX;
                self.nak.round = Round::Waiting { last, requested_at: now, is_answered: true };
                self.nak.deadline = until;
                self.base.alarm(core, Alarm::Nak, until);
            }
            None => self.ask_for_all(core, now),
        }
    }

    /// Requests the Metadata at once if data arrives before it, because that takes a round trip and
    /// nothing can be written without it. Repeats until it arrives.
    pub(super) fn ask_for_metadata(&mut self, core: &mut Core, now: Time) {
        let waiting = self.eof.is_some() || now < self.nak.deadline;
        if waiting || !self.base.acknowledged() || self.nak.round != Round::Idle {
            return;
        }
        self.nak.deadline = now + self.base.answer_time(core);
        self.nak.round = Round::Asking { next: 0, end: 0, metadata: true, last: 0, sent: 0 };
        self.base.want(core, Class::Control);
    }

    /// Starts a round for everything up to the end, or up to the progress so far.
    pub(super) fn ask_for_all(&mut self, core: &mut Core, now: Time) {
        let end = self.eof.map_or(self.ranges.end(), |eof| eof.size);
        self.ask(core, now, 0, end);
    }

    fn ask(&mut self, core: &mut Core, now: Time, start: u64, end: u64) {
        let metadata = self.metadata.is_none();
        let missing = metadata || self.ranges.gaps(start, end).next().is_some();
        if !missing || self.phase != Phase::Receiving || !self.base.acknowledged() {
            return;
        }
        self.nak.round = Round::Asking { next: start, end, metadata, last: start, sent: 0 };
        // Requested data arrives a round trip later; that pause does not measure the spacing.
        self.nak.pace.last = None;
        let at = self.nak_from.max(now);
        self.base.want_at(core, Class::Control, now, at);
    }

    /// Sends the PDUs of a round: contiguous scopes that do not overlap. Gaps beyond the round's
    /// limit are requested with those lost again, after the repairs.
    pub(super) fn emit_naks(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let fss = self.base.header.file_size_len();
        let fixed = self.base.header.encoded_len() + self.base.header.crc_len() + 1 + 2 * fss;
        let pdu_max = self.base.pdu_max(burst.mtu());
        let bridge = match self.eof {
            Some(_) => self.bridge(core),
            None => self.nak.early.bridge,
        };
        let pdus_max = match self.nak.misses {
            SILENT_ROUNDS.. => 1,
            _ => self.base.remote.naks.pdus_per_round_max.unwrap_or(u32::MAX).max(1),
        };
        while let Round::Asking { next, end, metadata, last, sent } = self.nak.round {
            let room = pdu_max.min(self.base.credit.left()).saturating_sub(fixed) / (2 * fss);
            let max = self.base.remote.naks.gaps_max.map_or(room, |max| max.min(room)).max(1);
            let mut requests = Vec::new();
            if metadata {
                requests.push(SegmentRequest::METADATA);
            }
            let space = max - requests.len().min(max);
            let mut gaps = thin_return::join(self.ranges.gaps(next, end), bridge)
                .map(|(start, end)| SegmentRequest { start, end });
            requests.extend(gaps.by_ref().take(space));
            let more = gaps.next().is_some();
            drop(gaps);
            let last_gap = requests.last().map_or(0, |request| request.end);
            let scope_end = if more { last_gap.max(next) } else { end };
            if requests.is_empty() {
                // Everything arrived before the request was sent.
                self.nak.round = Round::Idle;
                return Turn::Over;
            }
            let requests = SegmentRequests::new(&requests);
            let nak = Nak { scope_start: next, scope_end, requests };
            if !self.base.push(core, burst, Body::Nak(nak)) {
                return Turn::More;
            }
            let last = last.max(last_gap);
            let sent = sent + 1;
            let may_continue = self.base.credit.left() >= fixed + 2 * fss;
            self.nak.round = if more && sent < pdus_max && may_continue {
                Round::Asking { next: scope_end, end, metadata: false, last, sent }
            } else {
                self.requested(core, burst.departure(), last)
            };
        }
        Turn::Over
    }

    /// Notes that the last PDU of a round was sent.
    fn requested(&mut self, core: &mut Core, at: Time, last: u64) -> Round {
        if self.eof.is_none() {
            // The file still arrives; data missing at its end is requested then.
            self.nak.immediate_at =
                self.nak.immediate_at.max((self.nak.early.end > 0).then_some(at));
            return Round::Idle;
        }
        self.nak.deadline = at + self.nak_wait(core);
        self.base.alarm(core, Alarm::Nak, self.nak.deadline);
        Round::Waiting { last: last.max(1), requested_at: at, is_answered: false }
    }

    /// Timeout for requested data: a reply time, or, for a silent sender, the wait for the reply to
    /// a probe.
    fn nak_wait(&self, core: &Core) -> Duration {
        let auto = self.base.answer_time(core) + self.nak.pace.mean() * LOSSES_IN_A_ROW;
        let misses = self.nak.misses.saturating_sub(SILENT_ROUNDS - 1);
        self.wait_for_reply(self.base.remote.naks.timer, auto, misses)
    }

    /// Handles repairs that stopped, or never arrived.
    pub(super) fn nak_overdue(&mut self, core: &mut Core, now: Time) {
        let Round::Waiting { is_answered, .. } = self.nak.round else { return };
        if self.base.is_suspended() {
            return;
        }
        if now < self.nak.deadline {
            self.base.alarm(core, Alarm::Nak, self.nak.deadline);
            return;
        }
        self.nak.round = Round::Idle;
        if !is_answered {
            self.missed(core, now);
        }
        if !self.base.is_suspended() {
            self.ask_for_all(core, now);
        }
    }

    /// Counts a round without progress.
    fn missed(&mut self, core: &mut Core, now: Time) {
        self.nak.misses += 1;
        let first = *self.nak.missed_since.get_or_insert(now);
        let is_over = match self.base.remote.naks.limit {
            Some(limit) => self.nak.misses > limit,
            // The sender is not silent, but sends nothing useful: it lacks the requested data
            // because the two have different sizes, or its data is lost.
            None => now.since(first) >= self.base.inactivity(core),
        };
        if is_over {
            self.nak.progressed();
            self.fault(core, now, ConditionCode::NakLimitReached);
        }
    }

    /// Stops requests when the path goes down. They restart when it is up, but the time already
    /// waited counts, however short the contacts are.
    pub(super) fn stop_asking(&mut self, now: Time) {
        self.nak.missed_since = None;
        if let Round::Waiting { requested_at, is_answered: false, .. } = self.nak.round {
            self.nak.waited += now.since(requested_at);
        }
    }

    /// Requests data lost before the outage as soon as the path is up, before its return link is. A
    /// contact may be too short for the rest of the file, a request and the repairs.
    pub(super) fn ask_at_contact(&mut self, core: &mut Core, now: Time) {
        let is_receiving = self.phase == Phase::Receiving && !self.base.is_suspended();
        if is_receiving && (self.eof.is_some() || self.may_ask_early()) {
            self.nak.round = Round::Idle;
            self.nak.contact_at = Some(now);
            self.ask_for_all(core, now);
        }
    }

    /// Whether requests before the EOF follow an outage. Entities with a limit count their rounds.
    fn may_ask_early(&self) -> bool {
        self.base.acknowledged() && self.base.remote.naks.limit.is_none()
    }

    /// Requests everything missing when both directions of the path are up again, unless the
    /// repairs of this contact's request are under way.
    pub(super) fn ask_again(&mut self, core: &mut Core, now: Time) {
        let wait = self.nak_wait(core);
        let contact = self.nak.contact_at.take().filter(|at| now < *at + wait);
        match (contact, self.nak.round) {
            (Some(began), Round::Waiting { .. }) => {
                self.nak.deadline = began + wait;
                self.base.alarm(core, Alarm::Nak, self.nak.deadline);
                return;
            }
            (Some(_), _) if self.eof.is_none() => return,
            _ => {}
        }
        if self.eof.is_none() && !self.may_ask_early() {
            return;
        }
        self.nak.round = Round::Idle;
        if self.nak.waited >= wait && self.eof.is_some() {
            self.nak.waited = Duration::ZERO;
            self.missed(core, now);
        }
        if !self.base.is_suspended() {
            self.ask_for_all(core, now);
        }
    }

    /// Requests at regular intervals while the file still arrives.
    pub(super) fn ask_periodically(&mut self, core: &mut Core, now: Time) {
        let NakMode::Asynchronous(every) = self.base.remote.naks.mode else { return };
        if self.phase != Phase::Receiving || self.eof.is_some() {
            return;
        }
        if self.nak.round == Round::Idle {
            self.ask_for_all(core, now);
        }
        // A silent sender needs fewer requests.
        let doublings = self.nak.fruitless.saturating_sub(PATIENT_ASKS).min(20);
        self.nak.fruitless = self.nak.fruitless.saturating_add(1);
        let longest = every.max(Duration::from_secs(60));
        let every = every.max(TICK).saturating_mul(1 << doublings).min(longest).max(TICK);
        self.base.alarm(core, Alarm::Periodic, now + every);
    }
}
