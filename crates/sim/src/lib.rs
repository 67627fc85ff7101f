//! The discrete-event world: hosts with IPv4 and UDP around protocol engines, links between them,
//! stores that may fail, and recorders.
//!
//! A [`World`] holds hosts and links under a virtual clock. What crosses a link is real IPv4
//! packets with real checksums, so a capture of a simulated run opens like any other. The same
//! seed gives the same bytes: every component draws from a generator named after it, so adding
//! one does not change what the others draw.
//!
//! A group is a path to a multicast address: who has one is a member, and hosts hand what is sent
//! to it on over all links that [`World::add_group_route`] names, each with its own queue, delay
//! and errors. A satellite that many listen to is a host whose links to them have no rate of their
//! own, so that the link up to it is the only queue and its packets fan out without a copy.

#![forbid(unsafe_code)]

mod agenda;
mod capture;
mod driver;
mod host;
mod net;
mod packet;
mod stack;
mod stats;
mod store;
mod trace;
mod world;

pub use host::{Host, HostId};
pub use packet::{HEADERS_LEN, Packet};
pub use stack::HostConfig;
pub use stats::{HostStats, PortStats, Traffic};
pub use store::{Store, StoreFaults};
pub use trace::{Description, PacketFate, TraceRow};
pub use world::{Action, EngineCall, Limit, LinkChange, LinkEnd, LinkId, Outcome, World};
