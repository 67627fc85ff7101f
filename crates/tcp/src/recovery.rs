//! Reduction of the window after a loss, and the end of the recovery (RFC 6582, RFC 6675,
//! RFC 6937).

use super::config::LossRecovery;

/// Loss state of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// No loss.
    Open,
    /// Window reduced for a mark until `point` is acknowledged.
    Reduced {
        /// Next sequence number at that time.
        point: u64,
    },
    /// Lost data is being retransmitted.
    Recovery(Recovery),
    /// After a timeout, or a restart by the congestion control: everything is retransmitted until
    /// `point` is acknowledged.
    Restarted {
        /// Next sequence number at that time.
        point: u64,
    },
}

impl Phase {
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether the congestion control must not grow its window.
    pub(crate) fn holds_window(&self) -> bool {
        match self {
            Self::Reduced { .. } | Self::Recovery(_) => true,
            Self::Open | Self::Restarted { .. } => false,
        }
    }
}

/// Current recovery.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    how: LossRecovery,
    /// RecoveryPoint: its acknowledgment ends the recovery.
    pub(crate) point: u64,
    /// Bytes that may be in flight now.
    pub(crate) window: u64,
    /// Bytes in flight at the start, delivered since, sent since (RFC 6937 §3).
    flight: u64,
    delivered: u64,
    sent: u64,
    /// Whether the last segment was retransmitted, which is done once (rule 4 of NextSeg).
    pub(crate) rescued: bool,
}

/// Effect of an acknowledgment on a recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Bytes newly delivered.
    pub(crate) delivered: u64,
    /// Bytes in flight.
    pub(crate) pipe: u64,
    /// Target window.
    pub(crate) target: u64,
    pub(crate) mss: u64,
}

impl Recovery {
    /// Starts a recovery with `flight` bytes in flight and a window of `window`, which becomes
    /// `target`.
    pub(crate) fn new(
        how: LossRecovery,
        point: u64,
        flight: u64,
        window: u64,
        target: u64,
    ) -> Self {
        let window = match how {
            LossRecovery::NewReno | LossRecovery::Sack6675 => target,
            LossRecovery::Prr | LossRecovery::RateHalving => window,
        };
        Self { how, point, window, flight: flight.max(1), delivered: 0, sent: 0, rescued: false }
    }

    /// Whether the rules of RFC 6675 for possibly lost data apply.
    pub(crate) fn guesses(&self) -> bool {
        matches!(self.how, LossRecovery::Sack6675)
    }

    pub(crate) fn acknowledged(&mut self, progress: Progress) {
        let Progress { delivered, pipe, target, mss } = progress;
        self.delivered += delivered;
        match self.how {
            LossRecovery::NewReno | LossRecovery::Sack6675 => self.window = target,
            LossRecovery::Prr => {
                let sent = if pipe > target {
                    // Proportional: 10 segments delivered of 20 at a target of 14: 7 are sent.
                    let due = u128::from(self.delivered) * u128::from(target);
                    let due = due.div_ceil(u128::from(self.flight)) as u64;
                    due.saturating_sub(self.sent)
                } else {
                    // Slow start up to the target: one more than delivered.
                    let most = self.delivered.saturating_sub(self.sent).max(delivered) + mss;
                    most.min(target - pipe)
                };
                self.window = pipe + sent;
            }
            LossRecovery::RateHalving => {
                let halved = self.window.saturating_sub(delivered / 2).max(target);
                self.window = halved.min(pipe + mss).max(mss);
            }
        }
    }

    pub(crate) fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;

    /// Halves a window of 20 segments after the first is lost and 19 acknowledgments arrive.
    /// Returns the number of segments sent at each.
    fn sent_by(how: LossRecovery) -> Vec<u64> {
        let mut recovery = Recovery::new(how, 0, 20 * MSS, 20 * MSS, 10 * MSS);
        // The first is lost and retransmitted at once, after three duplicates.
        let mut pipe = 20 * MSS - 3 * MSS - MSS;
        let mut counts = Vec::new();
        for n in 0..17 {
            let progress = Progress {
                delivered: if n == 0 { 3 * MSS } else { MSS },
                pipe,
                target: 10 * MSS,
                mss: MSS,
            };
            recovery.acknowledged(progress);
            let mut count = 0;
            while pipe + MSS <= recovery.window || (n == 0 && count == 0) {
                pipe += MSS;
                recovery.sent(MSS);
                count += 1;
            }
            counts.push(count);
            pipe -= MSS;
        }
        counts
    }

    #[test]
    fn prr_spreads_the_reduction_and_6675_waits_for_half() {
        let prr = sent_by(LossRecovery::Prr);
        assert_eq!(prr.iter().sum::<u64>(), 10, "{prr:?}");
        assert!(prr.windows(3).all(|w| (1..=3).contains(&w.iter().sum::<u64>())), "{prr:?}");
        let sack = sent_by(LossRecovery::Sack6675);
        assert!(sack[1..6].iter().all(|count| *count == 0), "{sack:?}");
        assert!(sack[8..].iter().all(|count| *count == 1), "{sack:?}");
        let halving = sent_by(LossRecovery::RateHalving);
        assert!((8..=11).contains(&halving.iter().sum::<u64>()), "{halving:?}");
    }

    #[test]
    fn prr_does_not_let_the_pipe_run_dry() {
        // Heavy loss: 3 segments are left of a target of 10.
        let mut recovery = Recovery::new(LossRecovery::Prr, 0, 20 * MSS, 20 * MSS, 10 * MSS);
        recovery.acknowledged(Progress {
            delivered: MSS,
            pipe: 3 * MSS,
            target: 10 * MSS,
            mss: MSS,
        });
        assert_eq!(recovery.window, 5 * MSS, "two for one");
    }
}
