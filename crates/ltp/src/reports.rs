//! Reports of a receiver, kept within a limit until the sender has certainly received them.

use std::collections::BTreeMap;

use engine::Time;
use session::ranges::Ranges;
use wire::sdnv;

use crate::segment::Claim;

/// Number of checkpoints whose reports are remembered for retransmission.
pub(crate) const CHECKPOINTS_KEPT: usize = 1024;

/// Maximum number of reports on one checkpoint. The rest is reported on the next checkpoint.
pub(crate) const REPORTS_MAX: usize = 64;

/// Report that was made.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) checkpoint: u64,
    pub(crate) lower: u64,
    pub(crate) upper: u64,
    pub(crate) claims: Vec<Claim>,
    pub(crate) attempts: u32,
    pub(crate) left: Time,
    /// Whether the sender received this report, or a later one on the same scope.
    pub(crate) acknowledged: bool,
    /// Whether the retransmission of this report waits for the acknowledgement of another.
    pub(crate) is_held: bool,
}

impl Sent {
    pub(crate) const fn new(checkpoint: u64, lower: u64, upper: u64, claims: Vec<Claim>) -> Self {
        let (attempts, left, acknowledged, is_held) = (0, Time::ZERO, false, false);
        Self { checkpoint, lower, upper, claims, attempts, left, acknowledged, is_held }
    }

    /// Claimed parts of the block.
    pub(crate) fn received(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let part = |claim: &Claim| {
            let start = self.lower + claim.offset;
            (start, start + claim.length)
        };
        self.claims.iter().map(part)
    }

    /// Whether this report was sent and is not acknowledged.
    pub(crate) const fn is_awaited(&self) -> bool {
        self.attempts > 0 && !self.acknowledged
    }

    /// Ranges it claims.
    fn claimed(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let lower = self.lower;
        self.claims.iter().map(move |claim| {
            let start = lower + claim.offset;
            (start, start + claim.length)
        })
    }
}

/// Reports by serial number.
#[derive(Debug)]
pub(crate) struct Reports {
    sent: BTreeMap<u64, Sent>,
    by_checkpoint: BTreeMap<u64, Vec<u64>>,
    /// Number of claims in all reports.
    claims: usize,
    /// Range of a report that is owed to the sender, because it was skipped or forgotten before
    /// the sender received it.
    owed: Option<(u64, u64)>,
    /// Ranges claimed by acknowledged reports.
    confirmed: Ranges,
}

impl Reports {
    pub(crate) fn new() -> Self {
        Self {
            sent: BTreeMap::new(),
            by_checkpoint: BTreeMap::new(),
            claims: 0,
            owed: None,
            confirmed: Ranges::new(),
        }
    }

    pub(crate) fn get(&self, serial: u64) -> Option<&Sent> {
        self.sent.get(&serial)
    }

    pub(crate) fn get_mut(&mut self, serial: u64) -> Option<&mut Sent> {
        self.sent.get_mut(&serial)
    }

    /// Serial numbers of the reports on a checkpoint.
    pub(crate) fn on(&self, checkpoint: u64) -> Option<&[u64]> {
        self.by_checkpoint.get(&checkpoint).map(Vec::as_slice)
    }

    pub(crate) fn insert(&mut self, serial: u64, sent: Sent) {
        self.claims += sent.claims.len();
        self.sent.insert(serial, sent);
    }

    pub(crate) fn remove(&mut self, serial: u64) {
        self.claims -= self.sent.remove(&serial).map_or(0, |sent| sent.claims.len());
    }

    /// Notes that all reports on a checkpoint were made.
    pub(crate) fn answered(&mut self, checkpoint: u64, serials: Vec<u64>) {
        self.by_checkpoint.insert(checkpoint, serials);
    }

    pub(crate) fn are_acknowledged(&self) -> bool {
        self.sent.values().all(|sent| sent.acknowledged)
    }

    /// Serial numbers of sent reports without an acknowledgement.
    pub(crate) fn awaited(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.sent.iter().filter(|(_, sent)| sent.is_awaited()).map(|(serial, _)| *serial)
    }

    /// Notes an acknowledgement. Earlier reports on a part of the same scope become useless.
    /// Returns the serial numbers of all that the sender does not need. At most `ranges_max` ranges
    /// are remembered as confirmed.
    pub(crate) fn acknowledged(&mut self, serial: u64, ranges_max: usize) -> Vec<u64> {
        let Some(known) = self.sent.get(&serial) else { return Vec::new() };
        let (lower, upper) = (known.lower, known.upper);
        for (start, end) in known.claimed() {
            if self.confirmed.len() <= ranges_max || !self.confirmed.would_add_range(start, end) {
                self.confirmed.insert(start, end);
            }
        }
        let mut over = Vec::new();
        for (number, sent) in self.sent.range_mut(..=serial) {
            let is_moot = lower <= sent.lower && sent.upper <= upper;
            if (is_moot || *number == serial) && !std::mem::replace(&mut sent.acknowledged, true) {
                over.push(*number);
            }
        }
        over
    }

    /// Whether the sender has reports that everything up to `end` has arrived.
    pub(crate) fn is_confirmed(&self, end: u64) -> bool {
        self.confirmed.gaps(0, end).next().is_none()
    }

    /// Whether the maximum number of claims is kept.
    pub(crate) const fn is_full(&self, claims_max: usize) -> bool {
        self.claims > claims_max
    }

    /// Makes room by forgetting the oldest: serial numbers of checkpoints count up, so the first is
    /// oldest. A sender that did not receive its reports repeats the request. Returns whether any
    /// were forgotten.
    pub(crate) fn make_room(&mut self, claims_max: usize) -> bool {
        let before = self.sent.len();
        while self.by_checkpoint.len() >= CHECKPOINTS_KEPT || self.is_full(claims_max) {
            let Some((_, serials)) = self.by_checkpoint.pop_first() else { break };
            for serial in serials {
                if let Some(sent) = self.sent.get(&serial).filter(|sent| !sent.acknowledged) {
                    let (lower, upper) = (sent.lower, sent.upper);
                    self.owe(lower, upper);
                }
                self.remove(serial);
            }
        }
        self.sent.len() < before
    }

    /// Includes this range in the next report.
    pub(crate) fn owe(&mut self, lower: u64, upper: u64) {
        let (least, most) = self.owed.unwrap_or((lower, upper));
        self.owed = Some((least.min(lower), most.max(upper)));
    }

    /// Scopes to report on, for a request of `lower..upper`.
    pub(crate) fn scopes(&mut self, lower: u64, upper: u64) -> Vec<(u64, u64)> {
        match self.owed.take() {
            Some((from, to)) if from < lower || to > upper => vec![(lower, upper), (from, to)],
            Some(_) | None => vec![(lower, upper)],
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }
}

/// Splits the received ranges of `lower..upper` into at most `max` reports whose claims fit into
/// `room` bytes. Returns also the offset from which the rest was left out.
pub(crate) fn split(
    checkpoint: u64,
    lower: u64,
    upper: u64,
    here: Vec<(u64, u64)>,
    room: usize,
    max: usize,
) -> (Vec<Sent>, Option<u64>) {
    let mut reports = Vec::new();
    let mut from = lower;
    let mut rest = here.into_iter().peekable();
    while rest.peek().is_some() {
        if reports.len() >= max {
            return (reports, Some(from));
        }
        let mut claims = Vec::new();
        let mut room = room;
        while let Some((start, end)) = rest.peek().copied() {
            let claim = Claim { offset: start - from, length: end - start };
            let len = sdnv::len(claim.offset) + sdnv::len(claim.length);
            if len > room && !claims.is_empty() {
                break;
            }
            room = room.saturating_sub(len);
            claims.push(claim);
            rest.next();
        }
        let to = rest.peek().map_or(upper, |(start, _)| *start);
        reports.push(Sent::new(checkpoint, from, to, claims));
        from = to;
    }
    (reports, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lower: u64, upper: u64, claims: &[(u64, u64)]) -> Sent {
        let claim =
            |(start, end): &(u64, u64)| Claim { offset: start - lower, length: end - start };
        let claims = claims.iter().map(claim).collect();
        Sent { attempts: 1, ..Sent::new(0, lower, upper, claims) }
    }

    #[test]
    fn later_reports_with_more_claims_replace_earlier_ones() {
        let mut reports = Reports::new();
        reports.insert(1, report(0, 100, &[(0, 50)]));
        reports.insert(2, report(100, 200, &[(100, 200)]));
        reports.insert(3, report(0, 100, &[(0, 100)]));
        reports.insert(4, report(0, 100, &[(0, 100)]));
        assert_eq!(reports.awaited().collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(reports.acknowledged(3, 10), [1, 3]);
        assert_eq!(reports.acknowledged(3, 10), Vec::<u64>::new(), "it is known");
        assert_eq!(reports.awaited().collect::<Vec<_>>(), [2, 4]);
        assert!(reports.is_confirmed(100) && !reports.is_confirmed(101));
        assert_eq!(reports.acknowledged(2, 10), [2]);
        assert!(reports.is_confirmed(200), "report 4 need not be acknowledged");
        assert!(!reports.are_acknowledged());
    }
}
