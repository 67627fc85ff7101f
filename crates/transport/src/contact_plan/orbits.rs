//! Contact plans of a lander, an orbiter of its body, and Earth.
//!
//! The body is tidally locked like the Moon, so Earth does not move in its sky. The orbit is a
//! circle in a fixed plane. The orbiter sees the lander above the minimum elevation, and Earth
//! while the body does not hide it.

use std::f64::consts::TAU;
use std::time::Duration;

use bp::contacts::{Contact, ContactPlan, NodeNumber, PlanError, Range};
use engine::Time;

use crate::quantity::{Span, Window};

/// A lander, an orbiter and Earth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Orbits {
    /// The body's radius, in km.
    pub radius_km: f64,
    /// Standard gravitational parameter, in km³/s².
    pub gm: f64,
    /// Rotation period.
    pub day: Duration,
    /// The orbit's height above the ground, in km.
    pub height_km: f64,
    /// The orbit's inclination to the body's equator, in degrees.
    pub inclination: f64,
    /// Latitude and longitude of the lander, in degrees; Earth is above longitude 0.
    pub lander: (f64, f64),
    /// Minimum elevation of the orbiter, in degrees.
    pub elevation: f64,
    /// One-way light time between the body and Earth.
    pub owlt: Duration,
    /// Shorter contacts are omitted.
    pub shortest: Duration,
}

impl Default for Orbits {
    /// A lander on the far side of the Moon, and an orbiter that takes twelve hours.
    fn default() -> Self {
        Self {
            radius_km: 1737.4,
            gm: 4902.8,
            day: Duration::from_secs(2_360_592),
            // 6,142.5 km from the centre: 2 pi sqrt(6142.5^3 / 4902.8) = 43,200 s.
            height_km: 4405.1,
            inclination: 57.0,
            lander: (-45.0, 176.0),
            elevation: 10.0,
            owlt: Duration::from_millis(1280),
            shortest: Duration::from_secs(60),
        }
    }
}

/// Times at which the orbiter sees the lander and Earth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Passes {
    /// Passes over the lander, each with start and end.
    pub lander: Vec<(Time, Time)>,
    /// Earth.
    pub earth: Vec<(Time, Time)>,
}

/// Seconds between two looks. Shorter passes or gaps may be missed.
const STEP: u64 = 30;

type Vector = [f64; 3];

fn dot(a: Vector, b: Vector) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Orbits {
    /// Orbital period, in seconds.
    #[must_use]
    pub fn period_s(&self) -> f64 {
        let radius = self.radius_km + self.height_km;
        TAU * (radius.powi(3) / self.gm).sqrt()
    }

    /// Position of the orbiter in the body's frame, in km. The first axis points to Earth.
    fn orbiter(&self, at_s: f64) -> Vector {
        let radius = self.radius_km + self.height_km;
        let along = TAU * at_s / self.period_s();
        let node = -TAU * at_s / self.day.as_secs_f64();
        let tilt = self.inclination.to_radians();
        let (across, up) = (along.sin() * tilt.cos(), along.sin() * tilt.sin());
        [
            radius * (node.cos() * along.cos() - node.sin() * across),
            radius * (node.sin() * along.cos() + node.cos() * across),
            radius * up,
        ]
    }

    fn sees_lander(&self, at_s: f64) -> bool {
        let (latitude, longitude) = (self.lander.0.to_radians(), self.lander.1.to_radians());
        let up =
            [latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin(), latitude.sin()];
        let orbiter = self.orbiter(at_s);
        let away: Vector = std::array::from_fn(|axis| orbiter[axis] - self.radius_km * up[axis]);
        dot(away, up) >= self.elevation.to_radians().sin() * dot(away, away).sqrt()
    }

    fn sees_earth(&self, at_s: f64) -> bool {
        let [towards, aside, up] = self.orbiter(at_s);
        towards > 0.0 || aside.hypot(up) > self.radius_km
    }

    /// Passes within a time from the beginning.
    #[must_use]
    pub fn passes(&self, lasting: Duration) -> Passes {
        let spans = |sees: &dyn Fn(f64) -> bool| self.spans(lasting.as_secs(), sees);
        Passes {
            lander: spans(&|at| self.sees_lander(at)),
            earth: spans(&|at| self.sees_earth(at)),
        }
    }

    /// Periods in which a condition holds, to the second.
    fn spans(&self, lasting_s: u64, is_so: &dyn Fn(f64) -> bool) -> Vec<(Time, Time)> {
        let change = |before: u64, after: u64| {
            // First second in the later state.
            let goal = is_so(after as f64);
            let (mut before, mut after) = (before, after);
            while after - before > 1 {
                let middle = before.midpoint(after);
                if is_so(middle as f64) == goal {
                    after = middle;
                } else {
                    before = middle;
                }
            }
            after
        };
        let mut spans = Vec::new();
        let mut since = is_so(0.0).then_some(0);
        let mut before = 0;
        while before < lasting_s {
            let at = (before + STEP).min(lasting_s);
            match (since, is_so(at as f64)) {
                (None, true) => since = Some(change(before, at)),
                (Some(from), false) => {
                    spans.push((from, change(before, at)));
                    since = None;
                }
                (None, false) | (Some(_), true) => {}
            }
            before = at;
        }
        spans.extend(since.map(|from| (from, lasting_s)));
        let long = |(from, until): &(u64, u64)| until - from >= self.shortest.as_secs().max(1);
        let moment = |(from, until)| (Time::from_secs(from), Time::from_secs(until));
        spans.into_iter().filter(long).map(moment).collect()
    }
}

impl Passes {
    /// Contact plan of these passes for three nodes: `lander_bps` is the rate on the lander's
    /// links, `earth_bps` on Earth's.
    ///
    /// # Errors
    /// Two of the numbers are the same, or a rate is 0.
    pub fn plan(
        &self,
        orbits: &Orbits,
        [lander, orbiter, earth]: [NodeNumber; 3],
        lander_bps: u64,
        earth_bps: u64,
    ) -> Result<ContactPlan, PlanError> {
        let (mut contacts, mut ranges) = (Vec::new(), Vec::new());
        for (spans, one, rate_bps, owlt) in [
            (&self.lander, lander, lander_bps, Duration::ZERO),
            (&self.earth, earth, earth_bps, orbits.owlt),
        ] {
            for &(start, end) in spans {
                for (from, to) in [(one, orbiter), (orbiter, one)] {
                    contacts.push(Contact { from, to, start, end, rate_bps, confidence: 1.0 });
                }
                if !owlt.is_zero() {
                    ranges.push(Range { from: one, to: orbiter, start, end, owlt });
                }
            }
        }
        ContactPlan::new(contacts, &ranges)
    }

    /// Passes as contact windows.
    #[must_use]
    pub fn windows(spans: &[(Time, Time)]) -> Vec<Window> {
        let span = |from: Time, until: Time| Span(until.since(from));
        let window = |&(from, until): &(Time, Time)| Window {
            at: span(Time::ZERO, from),
            lasts: span(from, until),
        };
        spans.iter().map(window).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    #[test]
    fn passes_match_the_orbit() {
        let orbits = Orbits::default();
        assert!((orbits.period_s() - 43_200.0).abs() < 30.0, "{}", orbits.period_s());
        let month = orbits.passes(Duration::from_secs(30 * DAY));
        // Two revolutions a day, each with at most one pass, or one cut by the end of the month.
        assert!((30..=61).contains(&month.lander.len()), "{}", month.lander.len());
        for spans in [&month.lander, &month.earth] {
            for (from, until) in spans {
                assert!(from < until);
            }
            assert!(spans.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
        // A body hides Earth for asin(1737.4 / 6142.5) / pi of a revolution at most: 3,944 s of
        // 43,200. Meanwhile Earth moves by 43,200 / 2,360,592 of a revolution, which adds 1.9 %.
        let hidden = month.earth.windows(2).map(|pair| pair[1].0.since(pair[0].1).as_secs());
        let longest = hidden.max().unwrap();
        assert!((600..=4_020).contains(&longest), "{longest}");
        let plan = month.plan(&orbits, [1, 2, 3], 1_000_000, 10_000_000).unwrap();
        assert_eq!(plan.contacts().len(), 2 * (month.lander.len() + month.earth.len()));
        let (start, _) = month.earth[0];
        assert_eq!(plan.owlt(2, 3, start), orbits.owlt);
        assert_eq!(Passes::windows(&month.lander).len(), month.lander.len());
    }

    #[test]
    fn landers_see_the_orbiter_pass() {
        // Equatorial orbit and lander: one pass a revolution, as long as the angle.
        let orbits = Orbits {
            inclination: 0.0,
            lander: (0.0, 180.0),
            elevation: 0.0,
            day: Duration::from_secs(1 << 40),
            ..Orbits::default()
        };
        let day = orbits.passes(Duration::from_secs(DAY));
        // acos(1737.4 / 6142.5) = 73.57 degrees on either side: 17,657 s of 43,200.
        let lasts: Vec<u64> =
            day.lander.iter().map(|(from, until)| until.since(*from).as_secs()).collect();
        assert_eq!(lasts.len(), 2);
        assert!(lasts.iter().all(|lasts| (17_640..17_670).contains(lasts)), "{lasts:?}");
    }
}
