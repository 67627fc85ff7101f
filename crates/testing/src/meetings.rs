//! Random contacts of two nodes that do not take place as planned: they are missed, late,
//! interrupted and slower.

use std::ops::Range;

use engine::{Rng, Time};
use routing::contacts::Contact;

/// Bounds of random meetings, in any unit of time.
pub struct Meetings {
    /// Start of the first.
    pub first: Range<u64>,
    /// Planned length.
    pub lasts: Range<u64>,
    /// Pause until the next.
    pub pause: Range<u64>,
    /// Intervals in which the link of an interrupted one is up, and down.
    pub interval: Range<u64>,
    /// Time before which they begin.
    pub begin_before: u64,
    /// Latest planned end.
    pub end_max: u64,
    /// Planned rate in bytes per second.
    pub rate: u64,
}

/// A contact as planned, and as it takes place.
pub struct Meeting {
    /// The two nodes, counted from 0. Their numbers are one greater.
    pub ends: [usize; 2],
    /// Planned time.
    pub planned: Range<u64>,
    /// Intervals in which the link is up.
    pub up: Vec<Range<u64>>,
    /// Rate in bytes per second.
    pub rate: u64,
    planned_rate: u64,
}

impl Meetings {
    /// Random meetings of two nodes, in order. The next one takes place nine times out of ten.
    pub fn between(&self, ends: [usize; 2], rng: &mut Rng) -> Vec<Meeting> {
        let mut all = Vec::new();
        let mut start = within(&self.first, rng);
        while start < self.begin_before && rng.below(10) > 0 {
            let end = (start + within(&self.lasts, rng)).min(self.end_max);
            all.push(self.meeting(ends, start..end, rng));
            start = end + within(&self.pause, rng);
        }
        all
    }

    fn meeting(&self, ends: [usize; 2], planned: Range<u64>, rng: &mut Rng) -> Meeting {
        let (start, end) = (planned.start, planned.end);
        let up = match rng.below(100) {
            0..45 => vec![planned.clone()],
            // Missed.
            45..60 => Vec::new(),
            // Late, by more or less than the timeout.
            60..75 => {
                let late = start + 1 + rng.below(end - start - 1);
                vec![Range { start: late, end }]
            }
            // Interrupted.
            _ => {
                let mut up = Vec::new();
                let mut at = start;
                while at < end {
                    let down = at + within(&self.interval, rng);
                    up.push(at..down.min(end));
                    at = down + within(&self.interval, rng);
                }
                up
            }
        };
        let rate = if rng.below(100) < 30 { self.rate * 2 / 5 } else { self.rate };
        Meeting { ends, planned, up, rate, planned_rate: self.rate }
    }

    /// A meeting that takes place as planned.
    pub fn kept(&self, ends: [usize; 2], planned: Range<u64>) -> Meeting {
        let (up, rate) = (vec![planned.clone()], self.rate);
        Meeting { ends, planned, up, rate, planned_rate: rate }
    }
}

impl Meeting {
    /// Contacts of the plan, in both directions; `at` converts a time.
    pub fn contacts(&self, at: impl Fn(u64) -> Time) -> [Contact; 2] {
        let [a, b] = self.ends.map(|end| end as u64 + 1);
        let (start, end) = (at(self.planned.start), at(self.planned.end));
        let rate_bps = 8 * self.planned_rate;
        [(a, b), (b, a)].map(|(from, to)| Contact {
            from,
            to,
            start,
            end,
            rate_bps,
            confidence: 1.0,
        })
    }

    /// Whether the link is up at a time.
    pub fn is_up(&self, at: u64) -> bool {
        self.up.iter().any(|up| up.contains(&at))
    }
}

fn within(range: &Range<u64>, rng: &mut Rng) -> u64 {
    range.start + rng.below(range.end - range.start)
}
