//! Settings of a router: the open points of CCSDS 734.3-B-1, and what it leaves to the node.

use session::settings;
use session::words;

settings! {
    /// Settings of a [`Router`](super::routes::Router).
    #[derive(Clone, Debug, PartialEq)]
    pub struct Settings {
        /// Overhead of lower layers, in millionths of the bundle's length. CCSDS 734.3-B-1 §2.4.3
        /// has 3 %, ION 1/16 (62500).
        pub overhead_ppm: u64 as Number = 30_000,
        /// Least overhead of lower layers. CCSDS 734.3-B-1 has 100 bytes, ION 36.
        pub overhead_min: u64 as Size = 100,
        /// Addition to light times for the motion of nodes, which §2.4.2 leaves open: `off`, `ion`
        /// (125/186,282 of the light time in whole seconds) or `exact` (the same, unrounded).
        pub margin: Margin as Word = Margin::Off,
        /// Light time of a contact to which several ranges apply: `sending` (that of the last byte,
        /// which never overtakes earlier ones) or `start` (that of the contact's start).
        pub light_time: LightTime as Word = LightTime::Sending,
        /// Candidates compared: `complete` (all, §3.2.5.1 b) or `first` (the one with the earliest
        /// best-case delivery, §3.2.6.9.1).
        pub list: List as Word = List::Complete,
        /// Whether a route may visit a node twice, which §1.4 allows and §3.2.6.10 does not. Matters
        /// for lists of routes only: the best route never does.
        pub revisits: bool as Flag = false,
        /// Route taken if all four keys are equal, which the text leaves open: the `first` or the
        /// `last` in the order of the plan.
        pub ties: Ties as Word = Ties::First,
        /// Nodes that excluded nodes do not become: the `entry` of a route (§3.2.6.9 b), or any node
        /// of it (`everywhere`).
        pub exclusion: Exclusion as Word = Exclusion::Entry,
        /// Bookings that delay a bundle: those of `every` contact, or of the `first` (§3.2.6.2);
        /// the other contacts of the route then only lose volume.
        pub queueing: Queueing as Word = Queueing::Every,
        /// Whether a route may have less volume than the bundle needs, which then leaves in parts.
        pub partial: bool as Flag = false,
        /// Least confidence of a contact, in percent.
        pub confidence_min: u64 as Number = 0,
        /// Maximum contacts of a route.
        pub hops: usize as Number [Least(1)] = 64,
    }
}

/// Addition to light times (CCSDS 734.3-B-1 §2.4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Margin {
    /// None.
    #[default]
    Off,
    /// ION's: 450,000 mph for the light time, in whole seconds.
    Ion,
    /// 450,000 mph for the light time, unrounded.
    Exact,
}

/// Light time of a contact to which several ranges apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LightTime {
    /// Light time of the moment of sending; bytes arrive in order.
    #[default]
    Sending,
    /// Light time of the contact's start.
    Start,
}

/// Candidates that are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum List {
    /// All.
    #[default]
    Complete,
    /// The first in the order of best-case delivery times.
    First,
}

/// Route taken if all four keys are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// First in the order of the plan.
    #[default]
    First,
    /// Last in the order of the plan.
    Last,
}

/// Place of excluded nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exclusion {
    /// Not the entry node.
    #[default]
    Entry,
    /// No node of the route.
    Everywhere,
}

/// Contacts whose bookings delay a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queueing {
    /// All.
    #[default]
    Every,
    /// The first of a route.
    First,
}

words!(Margin { "off" = Self::Off, "ion" = Self::Ion, "exact" = Self::Exact });
words!(LightTime { "sending" = Self::Sending, "start" = Self::Start });
words!(List { "complete" = Self::Complete, "first" = Self::First });
words!(Ties { "first" = Self::First, "last" = Self::Last });
words!(Exclusion { "entry" = Self::Entry, "everywhere" = Self::Everywhere });
words!(Queueing { "every" = Self::Every, "first" = Self::First });

impl Settings {
    /// Estimated volume consumption of a bundle (CCSDS 734.3-B-1 §2.4.3); 0 for a search by time
    /// alone.
    #[must_use]
    pub fn volume(&self, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let share = u128::from(bytes) * u128::from(self.overhead_ppm) / 1_000_000;
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        bytes.saturating_add(share.max(self.overhead_min))
    }

    /// Light time with the margin, in nanoseconds.
    pub(super) fn with_margin(&self, light: u64) -> u64 {
        // 450,000 miles an hour are 125 a second, and light travels 186,282.
        let moved = u128::from(light) * 125 / 186_282;
        let moved = u64::try_from(moved).unwrap_or(u64::MAX);
        light.saturating_add(match self.margin {
            Margin::Off => 0,
            // 1,491 s * 125 / 186,282 = 1.0005 s.
            Margin::Ion => moved / 1_000_000_000 * 1_000_000_000,
            Margin::Exact => moved,
        })
    }
}
