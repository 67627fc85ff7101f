//! The settings of an engine that speaks LTP-T.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::routing::contacts::ContactPlan;
use crate::settings;
use crate::settings::Wrong;

settings! {
    /// Settings of one engine.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config [check: Self::order_retries] {
        /// The next engine on the way to others.
        pub routing: Routing =
            Routing::Static { to: BTreeMap::new(), otherwise: Otherwise::Itself },
        /// Engines that may forward a block from here; one that comes without such a number may pass
        /// so many more.
        pub hops: u8 as Number = 16,
        /// Time for which a block from here is of use.
        pub lifetime: Duration as Span [Interval] = Duration::from_secs(24 * 3600),
        /// Milliseconds from the beginning of 2000 to [`engine::Time::ZERO`], for lifetimes in
        /// segments.
        pub clock: u64 = 0,
        /// Whether a block is forwarded while it arrives, and not only when all of it is here.
        pub cut_through: bool as Flag = true,
        /// Time after which a failed hop is tried again; twice as long after each further failure.
        pub retry: Duration as Span [Interval] = Duration::from_secs(1),
        /// The longest of these times.
        pub retry_max: Duration as Span [Interval] = Duration::from_secs(600),
        /// Time after which a peer that is refused for want of room may try again; whole seconds.
        pub retry_after: Duration as Span [Seconds] = Duration::from_secs(10),
        /// Bounds on what the engine keeps for others.
        pub limits: Limits as Table = Limits::default(),
    }
}

impl Config {
    fn order_retries(&mut self) -> Result<(), Wrong> {
        self.retry_max = self.retry_max.max(self.retry);
        Ok(())
    }
}

/// How the next engine on the way is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routing {
    /// As it is written here.
    Static {
        /// The next engine, by the last one.
        to: BTreeMap<u64, u64>,
        /// The way to all others.
        otherwise: Otherwise,
    },
    /// By the times of contacts: the way by which the block is there first.
    Contacts(Plan),
}

/// The way to an engine that no way is written down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// It is next itself.
    Itself,
    /// By this engine.
    By(u64),
    /// There is none: blocks for it are refused.
    Nowhere,
}

/// A contact plan. Two are equal if they are the same one.
#[derive(Clone, Debug)]
pub struct Plan(pub Arc<ContactPlan>);

impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Plan {}

settings! {
    /// Bounds on what an engine keeps for others, with what happens at each.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Transfers under way: from here, through here and to here. More are refused for want of
        /// room.
        pub transfers: usize as Number [Least(1)] = 1000,
        /// Bytes of blocks for others that arrive or are kept. More are refused for want of room.
        pub storage: u64 as Size = 16 << 30,
        /// Transfers that are over and remembered, so that a hop that is tried again brings nothing
        /// twice. The oldest is forgotten.
        pub finished: usize as Number = 4096,
    }
}
