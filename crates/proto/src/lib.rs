//! The protocol engines: state machines without sockets, files or clocks.

#![forbid(unsafe_code)]

pub mod cfdp;
pub mod ltp;
mod path;
mod ranges;
mod source;
mod spool;
mod storage;
mod timer;
