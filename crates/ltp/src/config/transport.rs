//! Settings of an engine that speaks LTP-T.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use routing::contacts::ContactPlan;
use session::settings;
use session::settings::Wrong;

settings! {
    /// Settings of LTP-T.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config [check: Self::order_retries] {
        /// Route to other engines.
        pub routing: Routing =
            Routing::Static { to: BTreeMap::new(), otherwise: Otherwise::Itself },
        /// Maximum number of engines that may forward a block from here. A block that arrives
        /// without a hop limit gets this one.
        pub hops: u8 as Number = 16,
        /// Lifetime of a block from here.
        pub lifetime: Duration as Span [Interval] = Duration::from_secs(24 * 3600),
        /// Milliseconds from the beginning of 2000 to [`engine::Time::ZERO`], for lifetimes in
        /// segments.
        pub clock: u64 = 0,
        /// Whether a block is forwarded while it arrives, instead of only when complete.
        pub cut_through: bool as Flag = true,
        /// Time after which a failed hop is retried; it doubles with each further failure.
        pub retry: Duration as Span [Interval] = Duration::from_secs(1),
        /// Maximum time between retries.
        pub retry_max: Duration as Span [Interval] = Duration::from_secs(600),
        /// Time after which a peer refused for lack of room may retry, in whole seconds.
        pub retry_after: Duration as Span [Seconds] = Duration::from_secs(10),
        /// Limits on blocks stored for others.
        pub limits: Limits as Table = Limits::default(),
    }
}

impl Config {
    fn order_retries(&mut self) -> Result<(), Wrong> {
        self.retry_max = self.retry_max.max(self.retry);
        Ok(())
    }
}

/// Choice of the next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Static routes.
    Static {
        /// Next hop by destination.
        to: BTreeMap<u64, u64>,
        /// Route to all other destinations.
        otherwise: Otherwise,
    },
    /// Contact plan: the route with the earliest arrival.
    Contacts(Plan),
}

/// Route to a destination without a static route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// Direct: the destination is the next hop.
    Itself,
    /// Default route by this engine.
    By(u64),
    /// No route: blocks are refused.
    Nowhere,
}

/// Contact plan. Two are equal if they are the same object.
#[derive(Clone, Debug)]
pub struct Plan(pub Arc<ContactPlan>);

impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Plan {}

settings! {
    /// Limits on blocks stored for others, and the effect of each.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Transfers under way: from, through and to this engine. More are refused for lack of
        /// room.
        pub transfers: usize as Number [Least(1)] = 1000,
        /// Bytes of blocks for others that arrive or are stored. More are refused for lack of room.
        pub storage: u64 as Size = 16 << 30,
        /// Finished transfers remembered, so that a retried hop delivers nothing twice. The oldest
        /// is forgotten.
        pub finished: usize as Number = 4096,
    }
}
