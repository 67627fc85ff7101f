//! The settings of an engine that speaks LTP-T.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::routing::contacts::ContactPlan;

/// The settings of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The next engine on the way to others.
    pub routing: Routing,
    /// Engines that may pass a block on that is sent here; one that comes without such a number may pass
    /// so many more.
    pub hops: u8,
    /// Time after which a block that is sent here is of no use any more.
    pub lifetime: Duration,
    /// Milliseconds from the beginning of 2000 to [`engine::Time::ZERO`], by which lifetimes are told to others.
    pub clock: u64,
    /// Whether a block goes on while it arrives, and not only when all of it is here.
    pub cut_through: bool,
    /// Time after which a hop that failed is tried again; twice as long after each further failure.
    pub retry: Duration,
    /// The longest of these times.
    pub retry_max: Duration,
    /// Time after which one that is refused for want of room is asked to try again; whole seconds.
    pub retry_after: Duration,
    /// Bounds on what the engine keeps for others.
    pub limits: Limits,
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

/// Bounds on what an engine keeps for others. What happens at each is said with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Transfers under way: from here, through here and to here. More are refused for want of room.
    pub transfers: usize,
    /// Octets of blocks for others that arrive or are kept. More are refused for want of room.
    pub storage: u64,
    /// Transfers that are over and remembered, so that a hop that is tried again brings nothing twice. The
    /// oldest is forgotten.
    pub finished: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            routing: Routing::Static { to: BTreeMap::new(), otherwise: Otherwise::Itself },
            hops: 16,
            lifetime: Duration::from_secs(24 * 3600),
            clock: 0,
            cut_through: true,
            retry: Duration::from_secs(1),
            retry_max: Duration::from_secs(600),
            retry_after: Duration::from_secs(10),
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { transfers: 1000, storage: 16 << 30, finished: 4096 }
    }
}
