//! The lab on a real machine: scenarios in the emulator, programs of others, and studies with
//! their journals and tables.
//!
//! [`lab`] computes; what needs files, processes, network namespaces or threads is here.

#![forbid(unsafe_code)]

pub mod account;
pub mod emulation;
pub mod scratch;
pub mod study;
pub mod tool;
