//! Drives protocol engines over real sockets and files.
//!
//! A [`Driver`] runs one engine on one UDP socket in the calling thread: it hands in datagrams,
//! time and storage results, sends what the engine offers when it is due, and has a
//! [`FileStore`]'s threads carry out storage effects, so that no disk ever holds up a packet.
//!
//! Datagrams of one size cross the kernel in batches (`UDP_SEGMENT`, `UDP_GRO`), which is what
//! makes more than a gigabit a second of small datagrams possible at all; where the kernel or the
//! device refuses, they are sent one by one. A driver may join multicast groups ([`Group`]), and
//! use UDP-Lite beside UDP ([`UdpLite`]), which has no batches.
//!
//! A [`TunDriver`] runs one engine on an IP interface, and a [`streams::StreamDriver`] one on streams of
//! the kernel's TCP. A [`node::Node`] is several of them around an agent of the Bundle Protocol.

mod clock;
mod driver;
mod entropy;
pub mod frame;
mod group;
mod interface;
mod lateness;
mod lite;
pub mod node;
mod outbox;
mod peers;
mod port;
mod priority;
pub mod raw;
mod secret;
pub mod signals;
mod socket;
mod store;
pub mod streams;
pub mod tun;
mod tun_driver;
mod wait;

pub use clock::Clock;
pub use driver::{Config, Control, Driver, Event, RunError, Statistics};
pub use entropy::entropy;
pub use group::{Group, interface};
pub use interface::{Condition, route_mtu};
pub use lateness::{Bounds, Excess, Lateness, Timings};
pub use lite::UdpLite;
pub use peers::Peers;
pub use priority::{hurry, hurry_links};
pub use secret::warn_of_readers;
pub use socket::{Buffers, ReceiveBuffers, Sent, Socket};
pub use store::{Access, FileStore, RecordsIn, StoreConfig, StoreError, free_bytes};
pub use tun_driver::{TunDriver, TunEvent, TunStatistics};
pub use wait::{Ready, Waker, wake_exactly};
