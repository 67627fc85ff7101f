//! Leaving slow start before the queue overflows: HyStart as Linux has it, and HyStart++ (RFC 9406).

use std::time::Duration;

use engine::Time;

use super::Ack;

/// Samples of the round trip that a round needs before they mean something (RFC 9406's
/// `N_RTT_SAMPLE`, and Linux's `HYSTART_MIN_SAMPLES`).
const SAMPLES_LEAST: u32 = 8;

/// Bounds of the growth of the round trip that is held for a queue.
const THRESHOLD_LEAST: Duration = Duration::from_millis(4);
const THRESHOLD_MOST: Duration = Duration::from_millis(16);

/// Linux looks for a queue only in windows of so many segments.
const LOW_WINDOW: u64 = 16;

/// ACKs that come closer together belong to one train (Linux).
const TRAIN_GAP: Duration = Duration::from_millis(2);

/// Rounds of conservative slow start (RFC 9406's `CSS_ROUNDS`).
const CONSERVATIVE_ROUNDS: u32 = 5;

/// How much slower a window grows in conservative slow start (RFC 9406's `CSS_GROWTH_DIVISOR`).
const CONSERVATIVE_DIVISOR: u64 = 4;

/// How slow start may end without a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HyStart {
    /// Not at all.
    Off,
    /// When the round trip grew by an eighth, 4 ms at least and 16 ms at most, or when ACKs keep
    /// coming for longer than half the least round trip (Ha and Rhee 2008, Linux since 2.6.29).
    #[default]
    Train,
    /// By the round trip alone, with five rounds of slower growth to make sure of it (RFC 9406).
    PlusPlus,
}

/// What a detector says of an ACK in slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The window grows by this many bytes for the bytes that count.
    Grow(u64),
    /// A queue has formed: slow start is over.
    Leave,
}

/// Looks for the queue while slow start goes on.
#[derive(Debug)]
pub(super) struct Detector {
    kind: HyStart,
    /// The least round trip of this round and of the one before, and this round's samples.
    current: Option<Duration>,
    last: Option<Duration>,
    samples: u32,
    round_began: Option<Time>,
    /// When the last ACK of the train came.
    train: Time,
    /// Rounds left of conservative slow start, and the round trip with which it began.
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

    /// Slow start begins anew.
    pub(super) fn restart(&mut self) {
        *self = Self::new(self.kind);
    }

    /// An ACK in slow start; `counted` bytes of it would make the window grow.
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
                if is_large && (self.is_delayed(ack.min_rtt) || self.is_train_long(now, ack)) {
                    Verdict::Leave
                } else {
                    Verdict::Grow(counted)
                }
            }
            HyStart::PlusPlus if is_over => Verdict::Leave,
            HyStart::PlusPlus => self.plus_plus(counted),
        }
    }

    /// Begins a round if it is time; returns whether conservative slow start has had all of its
    /// rounds.
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

    /// Whether this round's samples are above `base` by more than noise.
    fn is_delayed(&self, base: Option<Duration>) -> bool {
        let (Some(base), Some(current)) = (base, self.current) else { return false };
        let threshold = (base / 8).clamp(THRESHOLD_LEAST, THRESHOLD_MOST);
        self.samples >= SAMPLES_LEAST && current >= base.saturating_add(threshold)
    }

    /// Whether ACKs have been coming without a gap for half the least round trip.
    fn is_train_long(&mut self, now: Time, ack: &Ack) -> bool {
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
                // The queue was none.
                self.conservative = None;
            }
            (None | Some(_), _) => {}
        }
        let divisor = if self.conservative.is_some() { CONSERVATIVE_DIVISOR } else { 1 };
        Verdict::Grow(counted / divisor)
    }
}
