//! Performance-enhancing proxy (RFC 3135): splits a connection into two, each with its own
//! congestion control, windows and retransmissions.
//!
//! [`Pep`] pairs a client's stream with one that it has the driver open to the client's
//! destination. Bytes, ends and resets are forwarded between them. It uses streams only, so the
//! same engine runs over the system's sockets and, with `slowlight-stack`, over
//! slowlight's TCP.
//!
//! | on one side | on the other |
//! |---|---|
//! | bytes | the same, in order, when there is room |
//! | no more room | the sender is paused ([`PathEffect::PauseRead`]) |
//! | the sender's end | an end, behind its last byte ([`StreamEffect::ShutdownWrite`]) |
//! | a reset, or a peer that does not respond | a reset, at once ([`StreamEffect::Reset`]) |
//! | connection refused | a reset |
//!
//! The near end of the client's stream ([`PathInfo::ends`]) is the address that the client
//! connected to: its destination. With [`Config::transparent`] the other stream uses the client's
//! own address and port, so that neither end sees the proxy.
//!
//! A client's stream is up before the server is connected, so a failure of the server appears as a
//! reset. An acknowledgment of an end only means delivery to the proxy.
//!
//! [`PathEffect::PauseRead`]: engine::PathEffect::PauseRead
//! [`StreamEffect::ShutdownWrite`]: engine::StreamEffect::ShutdownWrite
//! [`StreamEffect::Reset`]: engine::StreamEffect::Reset
//! [`PathInfo::ends`]: engine::PathInfo::ends

#![forbid(unsafe_code)]

mod config;
mod indication;
mod pairing;
mod queue;
#[cfg(test)]
mod tests;

pub use self::config::Config;
pub use self::indication::{End, Indication, PairId, Refusal, Report, Statistics};
pub use self::pairing::Pep;
