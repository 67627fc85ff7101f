//! Drives protocol engines over real sockets and files.
//!
//! A [`Driver`] runs one engine on one UDP socket in the calling thread. It passes datagrams, time
//! and storage results to the engine and sends its output when due. A [`FileStore`]'s threads
//! carry out storage effects, so that no disk delays a packet.
//!
//! Datagrams of one size cross the kernel in batches (`UDP_SEGMENT`, `UDP_GRO`), which makes more
//! than a gigabit per second of small datagrams possible. Where the kernel or the device refuses
//! batches, datagrams are sent one by one. A driver may join multicast groups ([`Group`]) and use
//! UDP-Lite in addition to UDP ([`UdpLite`]); UDP-Lite has no batches.
//!
//! A [`TunDriver`] runs one engine on an IP interface, and a [`streams::StreamDriver`] one on
//! streams of the kernel's TCP. A [`node::Node`] runs several of them around a Bundle Protocol
//! agent.

mod clock;
mod discovery;
mod driver;
mod entropy;
pub mod frame;
mod group;
mod interface;
mod lateness;
mod lite;
mod lookup;
pub mod node;
mod outbox;
mod peers;
mod port;
mod priority;
mod pump;
pub mod raw;
mod refusals;
mod schedule;
mod secret;
pub mod signals;
mod socket;
mod store;
pub mod streams;
pub mod tun;
mod tun_driver;
mod wait;
mod wall;

pub use clock::Clock;
pub use discovery::{Discoverer, DiscoveryConfig};
pub use driver::{Config, Control, Driver, Event, RunError, Statistics};
pub use entropy::entropy;
pub use group::{Group, interface};
pub use interface::{Condition, route_mtu};
pub use lateness::{Bounds, Excess, Lateness, Timings};
pub use lite::UdpLite;
pub use lookup::{Destination, HostPort, ParseDestinationError};
pub use peers::Peers;
pub use priority::{hurry, hurry_links};
pub use pump::{Pump, Step};
pub use schedule::{Contact, Schedule, Zero};
pub use secret::warn_of_readers;
pub use socket::{Buffers, ReceiveBuffers, Refusal, Sent, Socket};
pub use store::{
    Access, FileStore, Packs, Reader, RecordsIn, Source, StoreConfig, StoreError, Unpack,
    free_bytes,
};
pub use tun_driver::{TunDriver, TunEvent, TunStatistics};
pub use wait::{Ready, Waker, wake_exactly};
