//! Codecs of formats that several protocols need. They do no I/O and are stateless, except for
//! header compression ([`vj`]) and the reader of frames from a line ([`ppp::Deframer`]).

#![forbid(unsafe_code)]

pub mod checksum;
mod codes;
pub mod cursor;
mod error;
mod excerpt;
pub mod icmp;
pub mod ip;
pub mod ipv6;
pub mod list;
pub mod ppp;
pub mod sdnv;
pub mod udp;
pub mod vj;

pub use error::{DecodeError, DecodeErrorKind, EncodeError};
pub use excerpt::{EXCERPT_MAX, excerpt};
