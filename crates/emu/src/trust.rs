//! Validity of measurements.

use std::fmt;
use std::time::Duration;

use rt::{Bounds, Excess};

use crate::pump::Report;

/// Reason why a run is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// More than 1 % of a link's packets were later than the bound.
    Often {
        /// Number of the link.
        link: usize,
        /// Lateness of 99 % of the packets.
        late: Duration,
        /// Bound.
        bound: Duration,
    },
    /// A packet of a link was later than the bound.
    Once {
        /// Number of the link.
        link: usize,
        /// Lateness of that packet.
        late: Duration,
        /// Bound.
        bound: Duration,
    },
    /// Packets may have waited this long to be read, and started that much late.
    Unattended {
        /// Time they may have waited.
        time: Duration,
        /// Bound.
        bound: Duration,
    },
    /// Packets that crossed a link intact and were refused by the host's device.
    Refused {
        /// Number of the link.
        link: usize,
        /// Number of packets.
        packets: u64,
    },
    /// A host was later than a bound.
    Host {
        /// Number of the host.
        host: usize,
        /// The bound and the lateness.
        excess: Excess,
    },
    /// Packets lost by the emulator and not by a link.
    NoMemory {
        /// Number of packets.
        packets: u64,
    },
}

impl Doubt {
    /// Returns the number of the affected link, if any.
    #[must_use]
    pub fn link(&self) -> Option<usize> {
        match self {
            Self::Often { link, .. } | Self::Once { link, .. } | Self::Refused { link, .. } => {
                Some(*link)
            }
            Self::Host { .. } | Self::Unattended { .. } | Self::NoMemory { .. } => None,
        }
    }

    /// Returns the number of the affected host, if any.
    #[must_use]
    pub fn host(&self) -> Option<usize> {
        match self {
            Self::Host { host, .. } => Some(*host),
            Self::Often { .. }
            | Self::Once { .. }
            | Self::Refused { .. }
            | Self::Unattended { .. }
            | Self::NoMemory { .. } => None,
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Often { late, bound, .. } => {
                write!(f, "99 % of the packets were up to {late:.1?} late (bound {bound:?})")
            }
            Self::Once { late, bound, .. } => {
                write!(f, "a packet was {late:.1?} late (bound {bound:?})")
            }
            Self::Refused { packets, .. } => {
                write!(f, "the host's device refused {packets} undamaged packets")
            }
            Self::Host { excess, .. } => excess.fmt(f),
            Self::Unattended { time, bound } => {
                write!(f, "packets may have waited {time:.1?} to be read (bound {bound:?})")
            }
            Self::NoMemory { packets } => {
                write!(f, "{packets} packets were lost because there was no memory for them")
            }
        }
    }
}

impl Report {
    /// Returns the reasons why this run is not valid; empty if it is.
    #[must_use]
    pub fn doubts(&self, bounds: &Bounds) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        for (link, report) in self.links.iter().enumerate() {
            let late = report.lateness.quantile(0.99);
            if late > bounds.usual {
                doubts.push(Doubt::Often { link, late, bound: bounds.usual });
            }
            let late = report.lateness.most();
            if late > bounds.most {
                doubts.push(Doubt::Once { link, late, bound: bounds.most });
            }
            if report.refused_intact > 0 {
                doubts.push(Doubt::Refused { link, packets: report.refused_intact });
            }
        }
        for (host, lateness) in self.hosts.iter().enumerate() {
            let excesses = bounds.excesses(lateness);
            doubts.extend(excesses.map(|excess| Doubt::Host { host, excess }));
        }
        if self.unattended > bounds.most {
            doubts.push(Doubt::Unattended { time: self.unattended, bound: bounds.most });
        }
        if self.no_memory > 0 {
            doubts.push(Doubt::NoMemory { packets: self.no_memory });
        }
        doubts
    }
}

#[cfg(test)]
mod tests {
    use rt::Timings;

    use super::*;
    use crate::pump::LinkReport;

    fn link(late: &[(u64, u32)]) -> LinkReport {
        let lateness = Timings::new();
        for &(micros, packets) in late {
            lateness.record(Duration::from_micros(micros), packets);
        }
        let lateness = lateness.so_far();
        let stats = link::Stats::default();
        LinkReport { stats, lateness, refused: 0, refused_intact: 0, waiting: 0, line: None }
    }

    fn report(links: Vec<LinkReport>) -> Report {
        let hosts = Vec::new();
        Report { links, hosts, no_memory: 0, unreadable: 0, unattended: Duration::ZERO }
    }

    #[test]
    fn punctual_runs_are_trusted_and_late_runs_name_the_reason() {
        let bounds = Bounds::default();
        let idle = report(vec![link(&[])]);
        assert_eq!(idle.doubts(&bounds), []);
        let good = report(vec![link(&[(40, 990), (9_000, 10)])]);
        assert_eq!(good.doubts(&bounds), []);
        let often = report(vec![link(&[(40, 100)]), link(&[(40, 980), (3_000, 20)])]);
        let [doubt] = often.doubts(&bounds)[..] else { panic!("one doubt") };
        assert_eq!(doubt.link(), Some(1));
        assert!(doubt.to_string().contains("3.0ms late (bound 1ms)"), "{doubt}");
        let once = report(vec![link(&[(40, 9_999), (12_000, 1)])]);
        let [Doubt::Once { link: 0, late, .. }] = once.doubts(&bounds)[..] else {
            panic!("one doubt")
        };
        assert!(late.as_micros().abs_diff(12_000) < 20, "{late:?}");
        let wider = Bounds { usual: Duration::from_millis(5), most: Duration::from_millis(50) };
        assert_eq!(once.doubts(&wider), []);
        assert_eq!(often.doubts(&wider), []);
    }

    #[test]
    fn packets_lost_or_missed_by_the_emulator_cause_doubts() {
        let mut report = report(vec![link(&[(40, 100)])]);
        report.no_memory = 3;
        report.unattended = Duration::from_millis(20);
        let texts: Vec<_> =
            report.doubts(&Bounds::default()).iter().map(Doubt::to_string).collect();
        assert_eq!(texts.len(), 2);
        assert!(
            texts[0].starts_with("packets may have waited 20.0ms")
                && texts[1].starts_with("3 packets")
        );
    }

    #[test]
    fn refusals_and_late_hosts_cause_doubts() {
        let timings = |late: &[(u64, u32)]| {
            let timings = Timings::new();
            for &(micros, times) in late {
                timings.record(Duration::from_micros(micros), times);
            }
            timings.so_far()
        };
        let mut report = report(vec![link(&[(40, 100)]), link(&[(40, 100)])]);
        (report.links[1].refused, report.links[0].refused) = (4, 2);
        report.hosts = vec![timings(&[(40, 100)]), timings(&[(40, 40), (3_000, 2)])];
        assert_eq!(report.doubts(&Bounds::default()), [], "damaged ones, and twice of 42 times");
        report.links[1].refused_intact = 3;
        report.hosts = vec![timings(&[(40, 95), (3_000, 5)]), timings(&[(40, 40), (12_000, 1)])];
        let doubts = report.doubts(&Bounds::default());
        let [refused, often, once] = doubts[..] else { panic!("{doubts:?}") };
        assert_eq!((refused.link(), refused.host()), (Some(1), None));
        assert!(refused.to_string().contains("refused 3 undamaged packets"), "{refused}");
        assert_eq!((often.link(), often.host(), once.host()), (None, Some(0), Some(1)));
        assert!(often.to_string().contains("up to 3.0ms late (bound 1ms)"), "{often}");
        assert!(once.to_string().contains("was 12.0ms late (bound 10ms)"), "{once}");
    }
}
