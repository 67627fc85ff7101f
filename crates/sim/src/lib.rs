//! The discrete-event world: hosts with IPv4 and UDP around protocol engines, links between them,
//! stores that may fail, and recorders.
//!
//! A [`World`] holds hosts and links under a virtual clock. Links carry real IPv4 packets with
//! real checksums, so a capture of a simulated run opens like any other. The same seed gives the
//! same bytes: every component draws from a generator named after it, so adding one does not
//! change the numbers of the others.
//!
//! A group is a path to a multicast address; a host with such a path is a member. Hosts forward
//! packets to a group over all links that [`World::add_group_route`] names, each with its own
//! queue, delay and errors. Model a satellite with many receivers as a host whose downlinks have
//! no rate limit. The uplink is then the only queue, and its packets fan out without a copy.

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

pub use self::stack::HostConfig;
pub use host::{Host, HostId};
pub use packet::{HEADERS_LEN, Packet};
pub use stats::{HostStats, PortStats, Traffic};
pub use store::{Store, StoreFaults};
pub use trace::{Description, PacketFate, TraceRow};
pub use world::{Action, EngineCall, Limit, LinkChange, LinkEnd, LinkId, Outcome, World};
