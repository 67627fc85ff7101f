//! Codecs of the wire formats. They do no I/O and are stateless, except for header compression
//! ([`vj`]) and the reader of frames from a line ([`ppp::Deframer`]).

#![forbid(unsafe_code)]

pub mod bp6;
pub mod bp7;
pub mod bpsec;
mod cbor;
pub mod cfdp;
pub mod checksum;
mod codes;
mod cursor;
pub mod eid;
mod error;
mod excerpt;
pub mod file_part;
pub mod ftp;
#[cfg(test)]
mod hex;
pub mod icmp;
pub mod ip;
pub mod ipnd;
pub mod ipv6;
pub mod ltp;
pub mod ltpt;
pub mod mtcp;
pub mod norm;
pub mod ppp;
pub mod saratoga;
pub mod scps;
pub mod tcp;
pub mod tcpcl;
pub mod tcpcl3;
pub mod tcpcl4;
pub mod udp;
pub mod udpcl;
pub mod vj;

pub use error::{DecodeError, DecodeErrorKind, EncodeError};
pub use excerpt::{EXCERPT_MAX, excerpt};
