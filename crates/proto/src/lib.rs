//! The protocol engines: state machines without sockets, files or clocks.

#![forbid(unsafe_code)]

pub mod cfdp;
mod path;
mod ranges;
mod source;
mod spool;
mod storage;
