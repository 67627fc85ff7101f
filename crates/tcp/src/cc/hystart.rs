//! End of slow start before the queue overflows: HyStart as in Linux, and HyStart++ (RFC 9406).

use std::time::Duration;

use engine::Time;

use super::Ack;

/// Minimum round trip samples per round (RFC 9406's `N_RTT_SAMPLE`, Linux's
/// `HYSTART_MIN_SAMPLES`).
const SAMPLES_LEAST: u32 = 8;

/// Limits of the round trip growth that indicates a queue.
const THRESHOLD_LEAST: Duration = Duration::from_millis(4);
const THRESHOLD_MOST: Duration = Duration::from_millis(16);

/// Segments of the window below which Linux does not look for a queue.
const LOW_WINDOW: u64 = 16;

/// Gap between ACKs of one train (Linux).
const TRAIN_GAP: Duration = Duration::from_millis(2);

/// Rounds of conservative slow start (RFC 9406's `CSS_ROUNDS`).
const CONSERVATIVE_ROUNDS: u32 = 5;

/// Factor by which growth slows down in conservative slow start (RFC 9406's `CSS_GROWTH_DIVISOR`).
const CONSERVATIVE_DIVISOR: u64 = 4;

/// End of slow start without a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HyStart {
    /// None.
    Off,
    /// When the round trip has grown by an eighth, at least 4 ms and at most 16 ms, or when an ACK
    /// train exceeds half of the minimum round trip (Ha and Rhee 2008, Linux since 2.6.29).
    #[default]
    Train,
    /// By the growth of the round trip alone, confirmed by five rounds of slower growth (RFC 9406).
    PlusPlus,
}

/// Decision for an ACK in slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Growth of the window by this many bytes.
    Grow(u64),
    /// End of slow start: a queue has formed.
    Leave,
}

/// Detector of a queue during slow start.
#[derive(Debug)]
pub(super) struct Detector {
    kind: HyStart,
    /// Minimum round trips of the current and the previous round, and the number of samples.
    current: Option<Duration>,
    last: Option<Duration>,
    samples: u32,
    round_began: Option<Time>,
    /// Arrival of the train's last ACK.
    train: Time,
    /// Remaining rounds of conservative slow start, and the round trip at its start.
    conservative: Option<(u32, Duration)>,
}

impl Detector {
    pub(super) fn new(kind: HyStart) -> Self {
        Self {
            kind,
            current: None,
            last: None,
            samples: 0,
            round_began: None,
            train: Time::ZERO,
            conservative: None,
        }
    }

    /// Restarts slow start.
    pub(super) fn restart(&mut self) {
        *self = Self::new(self.kind);
    }

    /// Processes an ACK in slow start; `counted` of its bytes would grow the window.
    pub(super) fn judge(
        &mut self,
        now: Time,
        ack: &Ack,
        cwnd: u64,
        mss: u64,
        counted: u64,
    ) -> Verdict {
        if self.kind == HyStart::Off {
            return Verdict::Grow(counted);
        }
        let is_over = self.begin_round(now, ack.round);
        if let Some(rtt) = ack.rtt {
            self.current = Some(self.current.map_or(rtt, |current| current.min(rtt)));
            self.samples += 1;
        }
        match self.kind {
            HyStart::Off => Verdict::Grow(counted),
            HyStart::Train => {
                let is_large = cwnd >= LOW_WINDOW * mss;
                if is_large && (self.is_delayed(ack.min_rtt) || self.extend_train(now, ack)) {
                    Verdict::Leave
                } else {
                    Verdict::Grow(counted)
                }
            }
            HyStart::PlusPlus if is_over => Verdict::Leave,
            HyStart::PlusPlus => self.plus_plus(counted),
        }
    }

    /// Starts a round if due. Returns whether conservative slow start has used all of its rounds.
    fn begin_round(&mut self, now: Time, is_new: bool) -> bool {
        if !is_new && self.round_began.is_some() {
            return false;
        }
        self.round_began = Some(now);
        self.train = now;
        self.last = self.current.take();
        self.samples = 0;
        let Some((rounds, _)) = &mut self.conservative else { return false };
        *rounds = rounds.saturating_sub(1);
        *rounds == 0
    }

    /// Whether this round's samples exceed `base` by more than noise.
    fn is_delayed(&self, base: Option<Duration>) -> bool {
        let (Some(base), Some(current)) = (base, self.current) else { return false };
        let threshold = (base / 8).clamp(THRESHOLD_LEAST, THRESHOLD_MOST);
        self.samples >= SAMPLES_LEAST && current >= base.saturating_add(threshold)
    }

    /// Extends the train of ACKs. Returns whether it has no gap for half of the minimum round trip.
    fn extend_train(&mut self, now: Time, ack: &Ack) -> bool {
        let (Some(base), Some(began)) = (ack.min_rtt, self.round_began) else { return false };
        if now.since(self.train) > TRAIN_GAP {
            return false;
        }
        self.train = now;
        now.since(began) > base / 2
    }

    /// RFC 9406 §4.2.
    fn plus_plus(&mut self, counted: u64) -> Verdict {
        match (self.conservative, self.current) {
            (None, Some(current)) if self.is_delayed(self.last) => {
                self.conservative = Some((CONSERVATIVE_ROUNDS, current));
            }
            (Some((_, base)), Some(current)) if self.samples >= SAMPLES_LEAST && current < base => {
                // There was no queue.
                self.conservative = None;
            }
            (None | Some(_), _) => {}
        }
        let divisor = if self.conservative.is_some() { CONSERVATIVE_DIVISOR } else { 1 };
        Verdict::Grow(counted / divisor)
    }
}
