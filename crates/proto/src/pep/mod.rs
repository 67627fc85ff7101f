//! A performance-enhancing proxy (RFC 3135): a connection is split into two, each of which has its own
//! congestion control, windows and retransmissions.
//!
//! [`Pep`] pairs streams: one that a client opened, and one that it asks its driver to open to where
//! the client wanted to go. Bytes, ends and resets cross from one to the other. It knows streams
//! only, so the same engine runs over the system's sockets and, with [`crate::stack::OverTcp`], over
//! this crate's TCP.
//!
//! | on one side | on the other |
//! |---|---|
//! | bytes | the same, in order, when there is room |
//! | no more room | the sender is held back ([`PathEffect::PauseRead`]) |
//! | the sender's end | an end, behind its last byte ([`StreamEffect::ShutdownWrite`]) |
//! | a reset, or a peer that does not answer | a reset, at once ([`StreamEffect::Reset`]) |
//! | nobody listens there | a reset |
//!
//! The client's stream says where it wanted to go: its near end ([`PathInfo::ends`]) is the address
//! that the client used. With [`Config::transparent`] the other stream begins at the client's own
//! address and port, so that neither end sees that there is a proxy.
//!
//! A client was told that its stream is up before anybody asked the server: what is told of the server
//! later is told as a reset. What an end has acknowledged to be delivered is so to the proxy only.
//!
//! [`PathEffect::PauseRead`]: engine::PathEffect::PauseRead
//! [`StreamEffect::ShutdownWrite`]: engine::StreamEffect::ShutdownWrite
//! [`StreamEffect::Reset`]: engine::StreamEffect::Reset
//! [`PathInfo::ends`]: engine::PathInfo::ends

mod config;
mod indication;
mod pairing;
mod queue;
#[cfg(test)]
mod tests;

pub use self::config::Config;
pub use self::indication::{End, Indication, PairId, Refusal, Report, Statistics};
pub use self::pairing::Pep;
