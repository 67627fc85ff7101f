//! Codecs of bundles and of what their convergence layers send.

pub mod bp6;
pub mod bp7;
pub mod bpsec;
mod bundle;
pub mod cbor;
pub mod eid;
pub mod file_part;
pub mod ipnd;
pub mod mtcp;
pub mod tcpcl;
pub mod tcpcl3;
pub mod tcpcl4;
pub mod udpcl;
