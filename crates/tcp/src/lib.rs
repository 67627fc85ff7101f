//! TCP (RFC 9293) as an engine over IP.
//!
//! A [`Stack`] is one host's TCP. Its paths are IP interfaces; it receives and sends whole packets
//! of IPv4 and IPv6. Its methods open and accept connections, and [`Indication`]s report their
//! events.
//!
//! | feature | specification |
//! |---|---|
//! | path MTU | RFC 1191, RFC 8201, RFC 5927 §4.1; RFC 4821, if enabled |
//! | states, opening, closing, resets | RFC 9293, RFC 5961, RFC 1337, RFC 6528, SYN cookies RFC
//! 4987 |
//! | window scale, timestamps, PAWS | RFC 7323 |
//! | selective acknowledgment | RFC 2018, RFC 2883 |
//! | retransmission timeout | RFC 6298 |
//! | losses | RFC 5681, RFC 6582, RFC 6675, RFC 6937, RFC 8985, RFC 3042 |
//! | spurious losses | RFC 3522, RFC 3708, RFC 4015 |
//! | congestion marks | RFC 3168 |
//! | congestion control | [`cc`] |
//! | SCPS-TP, CCSDS 714.0-B-2 | [`scps`] |
//!
//! Every option of a connection can be set ([`Options`]), and a [`Profile`] has the options of a
//! historic kernel. Segments are chosen at the driver's request: retransmissions first, then new
//! data as far as the congestion window, the peer's window and pacing allow, in batches of equal
//! packets.
//!
//! Not supported: urgent data (treated like other data), PSH control (everything is pushed),
//! source routes and other options of IP, other messages of ICMP, data in a SYN.
//!
//! # States
//!
//! [`State`] has those of RFC 9293 §3.3.2: a connection is requested by [`Stack::connect`] or by a
//! peer at a [`Stack::listen`]er, established after three packets, and closed in each direction by
//! [`Stack::shut_down`]. [`Indication::Closed`] gives the reason.
//!
//! # Driving it
//!
//! `examples/tcp_lossy_link.rs` has two stacks and their users in one loop: pass packets to
//! [`handle_input`](engine::Engine::handle_input), act on indications, poll packets, then wait for
//! the earlier of [`poll_timeout`](engine::Engine::poll_timeout) and the next packet.
//!
//! # What it bounds
//!
//! [`Limits`] bounds connections, remembered ones, replies and gaps, [`Backlog`] half-open
//! connections, and [`Options`] the buffers of each connection.

#![forbid(unsafe_code)]

mod autotune;
pub mod cc;
mod config;
mod connection;
mod indication;
mod isn;
mod packet;
mod profile;
mod reassembly;
mod recovery;
mod ring;
mod rtt;
mod scoreboard;
pub mod scps;
pub mod segment;
mod send_buffer;
mod seq;
mod stack;
#[cfg(test)]
#[path = "../../testing/src/world.rs"]
pub mod test_world;
#[cfg(test)]
mod tests;
mod time_wait;

/// The contract with a driver.
pub use engine;

pub use self::config::{
    AckPolicy, Backlog, Buffer, BufferLimit, Config, Cookies, InitialWindow, KeepAlive, Limits,
    LossRecovery, Options, Route, Timeouts,
};
pub use self::indication::{
    CloseReason, ConnectionId, Counts, Indication, Info, ListenerId, RequestError, State,
    Statistics,
};
pub use self::profile::Profile;
pub use self::stack::Stack;
