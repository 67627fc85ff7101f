//! Number of segments of a coded block to send before its receivers report that they have enough.
//!
//! Parity that turns out not to be needed costs capacity; stopping too early costs a round trip in
//! which nothing is sent. [`Waste::Share`] limits both to a share of the least time of the
//! transfer.

use crate::fec::{needed, quantile};

use crate::config::Waste;

/// Deviate that no transfer exceeds in practice: one in a million.
const DEVIATES_MAX: f64 = 4.75;

/// Limits of the probability with which too little is sent.
const RISK_LEAST: f64 = 1e-6;
const RISK_MOST: f64 = 0.5;

/// Loss assumed at least while parity is sent until receivers report, and none has.
const LOSS_UNHEARD: f64 = 0.4;

/// Maximum number of segments sent between two reports for each that a receiver lacks, and for a
/// block: what a receiver reports may be wrong, or a lie.
const EACH_MAX: u32 = 16;
const FEW_MAX: u32 = 64;

/// Circumstances of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) waste: Waste,
    /// Greatest round trip, in seconds.
    pub(crate) round_trip: f64,
    /// Time between two segments, in seconds.
    pub(crate) interval: f64,
    /// Loss before receivers have reported.
    pub(crate) loss: f64,
    /// Number of receivers.
    pub(crate) receivers: u32,
    /// Probability of delivery to receivers that cannot reply.
    pub(crate) confidence: Option<f64>,
    /// Whether reports are overdue: the return link may be down, and waiting for it would cost more
    /// than parity.
    pub(crate) is_silent: bool,
}

/// Block whose end is near, and the object that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    /// Segments of the object.
    pub(crate) segments: f64,
    /// Number of blocks that end in the same round trip.
    pub(crate) blocks: u32,
    /// Number of receivers whose need is unknown.
    pub(crate) receivers: u32,
}

/// Losses as a receiver reported them, or as they are assumed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    pub(crate) loss: f64,
    /// Factor by which bursts of losses widen the distribution of arrivals.
    pub(crate) spread: f64,
    /// Whether receivers reported.
    pub(crate) is_reported: bool,
}

impl Observed {
    /// Share of segments that are of no use to a receiver that lacks `lacking` segments of a block
    /// after `sent` were sent. Once all source and parity segments were sent, those sent again are
    /// lost, or there already.
    pub(crate) fn once_repeated(
        self,
        block_len: u32,
        parity: u32,
        sent: u64,
        lacking: u32,
    ) -> Self {
        let all = f64::from(block_len) + f64::from(parity);
        let arrive = 1.0 - self.loss.min(0.99);
        let fresh = (all - sent as f64).max(0.0);
        let rest = f64::from(lacking) - fresh * arrive;
        if rest <= 0.0 {
            return self;
        }
        let useful = (f64::from(parity) + f64::from(lacking)) / all;
        let needed = fresh + rest / (arrive * useful);
        Self { loss: 1.0 - f64::from(lacking) / needed, ..self }
    }
}

impl Terms {
    /// Segments to send to a receiver that lacks `lacking` segments of a block, not counting those
    /// in flight.
    pub(crate) fn further(&self, ending: Ending, lacking: u32, observed: Observed) -> u32 {
        let Observed { loss, spread, is_reported } = observed;
        let most = |loss| needed(lacking, loss, DEVIATES_MAX * spread);
        let further = match self.waste {
            Waste::Nothing if is_reported => needed(lacking, loss, 0.0),
            Waste::Nothing => lacking,
            Waste::RoundTrip if is_reported => most(loss),
            Waste::RoundTrip => most(loss.max(LOSS_UNHEARD)),
            Waste::Share(_) if self.is_silent && is_reported => most(loss),
            Waste::Share(share) => {
                let arrive = 1.0 - loss.min(0.99);
                let least = self.round_trip / 2.0 + ending.segments * self.interval / arrive;
                let spared = share * least;
                let rivals = f64::from(ending.blocks.max(1)) * f64::from(ending.receivers.max(1));
                let risk = (spared / self.round_trip.max(1e-9)).clamp(RISK_LEAST, RISK_MOST);
                // All of the rivals must get enough.
                let risk = -libm::expm1(libm::log1p(-risk) / rivals);
                let extra = spared / self.interval.max(1e-9) / f64::from(ending.blocks.max(1));
                // Casts saturate.
                let by_capacity = (f64::from(lacking) / arrive + extra).ceil() as u32;
                let by_time = needed(lacking, loss, quantile(1.0 - risk) * spread);
                by_capacity.max(by_time).min(most(loss))
            }
        };
        further.min(most_of(lacking))
    }

    /// Segments to send to a receiver that lacks `lacking` segments of a block while enough other
    /// data follows for another round of repairs.
    pub(crate) fn meanwhile(lacking: u32, observed: Observed) -> u32 {
        needed(lacking, observed.loss, 0.0).min(most_of(lacking))
    }

    /// Likely number of segments to send to a receiver that lacks `lacking` segments.
    pub(crate) fn likely(lacking: u32, observed: Observed) -> f64 {
        let arrive = (1.0 - observed.loss).max(1e-3);
        (f64::from(lacking) / arrive).min(most_of(lacking).into())
    }

    /// Segments of a block of `block_len` segments to send to receivers that cannot reply, if it is
    /// one of `blocks`.
    pub(crate) fn unheard(&self, confidence: f64, block_len: u32, blocks: u32) -> u32 {
        let each = libm::pow(confidence, 1.0 / f64::from(blocks.max(1)));
        needed(block_len, self.loss, quantile(each)).saturating_add(1)
    }
}

/// Share of the permitted failures that may be due to NORM_INFO, at the start or the end.
const INFO_RISK: f64 = 0.025;

/// Copies of NORM_INFO of which a receiver that cannot reply almost certainly gets one.
pub(crate) fn info_copies(confidence: f64, loss: f64) -> u32 {
    let risk = ((1.0 - confidence) * INFO_RISK).max(1e-12);
    let copies = libm::log(risk) / libm::log(loss.clamp(1e-6, 0.999));
    copies.ceil() as u32
}

/// Maximum number of segments to send until the next report, if a receiver lacks `lacking`.
fn most_of(lacking: u32) -> u32 {
    match lacking {
        0 => 0,
        lacking => lacking.saturating_mul(EACH_MAX).saturating_add(FEW_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        waste: Waste::Share(0.01),
        round_trip: 2.5,
        interval: 1.2e-3,
        loss: 0.01,
        receivers: 1,
        confidence: None,
        is_silent: false,
    };

    fn ending(segments: f64) -> Ending {
        Ending { segments, blocks: 1, receivers: 1 }
    }

    fn observed(loss: f64) -> Observed {
        Observed { loss, spread: 1.0, is_reported: true }
    }

    #[test]
    fn a_share_limits_parity_and_risk() {
        // 10 MB at 10 Mbit/s over 1.25 s: least 10.4 s, so 87 segments, and a risk of 4 %.
        let found = TERMS.further(ending(6_888.0), 6_888, observed(0.1));
        assert!(found.abs_diff(7_740) <= 1, "{found}");
        // A short object: the least time is that of the path, and the share of it 10 segments,
        // which is more than is ever needed.
        let few = TERMS.further(ending(7.0), 7, observed(0.1));
        assert_eq!(few, 16);
        assert_eq!(TERMS.further(ending(7.0), 0, observed(0.1)), 0);
        // Without losses nothing more is needed.
        assert_eq!(TERMS.further(ending(7.0), 7, observed(0.0)), 7);
    }

    #[test]
    fn other_limits_depend_on_reports() {
        let none = Terms { waste: Waste::Nothing, ..TERMS };
        let silent = Observed { is_reported: false, ..observed(0.1) };
        assert_eq!(none.further(ending(100.0), 100, silent), 100);
        assert!(none.further(ending(100.0), 100, observed(0.1)).abs_diff(111) <= 1);
        let eager = Terms { waste: Waste::RoundTrip, ..TERMS };
        assert!(eager.further(ending(100.0), 100, silent) > 180);
        assert!(eager.further(ending(100.0), 100, observed(0.1)).abs_diff(132) <= 2);
    }

    #[test]
    fn overdue_reports_are_not_waited_for() {
        let silent = Terms { is_silent: true, ..TERMS };
        let of = |terms: &Terms| terms.further(ending(6_888.0), 6_000, observed(0.1));
        let eager = Terms { waste: Waste::RoundTrip, ..TERMS };
        assert!(of(&TERMS) < of(&silent));
        assert_eq!(of(&silent), of(&eager));
    }

    #[test]
    fn absurd_losses_are_bounded() {
        let absurd = Observed { loss: 1.0, spread: 12.0, is_reported: true };
        for waste in [Waste::Nothing, Waste::RoundTrip, Waste::Share(1.0)] {
            let terms = Terms { waste, ..TERMS };
            assert!(terms.further(ending(100.0), 10, absurd) <= 224);
        }
        assert!(Terms::meanwhile(10, absurd) <= 224);
        // An old report with such a loss does not hide what another receiver lacks.
        assert!(402.0 + Terms::likely(49, absurd) < 1_250.0 + Terms::likely(3, observed(0.01)));
    }

    #[test]
    fn repeated_segments_are_often_there_already() {
        let half = Observed { loss: 0.5, spread: 1.0, is_reported: true };
        // Parity is left.
        assert_eq!(half.once_repeated(100, 100, 100, 50).loss, 0.5);
        // All 200 were sent: of those a receiver has 90, so 11 of 20 are new to it, of which half
        // are lost.
        let all = half.once_repeated(100, 100, 200, 10).loss;
        assert!((all - (1.0 - 0.5 * 0.55)).abs() < 1e-9, "{all}");
        // 10 are left, of which 5 arrive; the other 5 need 18.2.
        let some = half.once_repeated(100, 100, 190, 10).loss;
        assert!((some - (1.0 - 10.0 / 28.2)).abs() < 1e-3, "{some}");
    }

    #[test]
    fn many_receivers_and_blocks_need_more() {
        let of = |blocks, receivers| {
            let ending = Ending { segments: 100.0, blocks, receivers };
            TERMS.further(ending, 100, observed(0.1))
        };
        assert!(of(1, 1) < of(1, 100) && of(1, 1) < of(100, 1));
    }

    #[test]
    fn one_way_counts_reach_the_confidence() {
        let terms = Terms { confidence: Some(0.999), ..TERMS };
        assert!(terms.unheard(0.999, 6_888, 1).abs_diff(6_985) <= 2);
        assert!(terms.unheard(0.999, 689, 1).abs_diff(706) <= 2);
        assert!(terms.unheard(0.999, 689, 10) > terms.unheard(0.999, 689, 1));
        // 0.5^16 is 1.5e-5.
        let losses = [1e-4, 0.001, 0.01, 0.1, 0.5, 0.9];
        assert_eq!(losses.map(|loss| info_copies(0.999, loss)), [2, 2, 3, 5, 16, 101]);
    }
}
