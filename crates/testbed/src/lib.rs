//! The laboratory on a real machine: scenarios in the emulator, external programs, and studies
//! with their journals and tables.
//!
//! [`lab`] computes; this crate has the parts that need files, processes, network namespaces or
//! threads.

#![forbid(unsafe_code)]

pub mod account;
pub mod emulation;
pub mod scratch;
pub mod study;
pub mod tool;
