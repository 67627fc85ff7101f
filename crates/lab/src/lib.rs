//! Scenarios, comparisons, bounds and results.

#![forbid(unsafe_code)]

pub mod account;
pub mod adapter;
pub mod advise;
pub mod bound;
mod cast;
pub mod compare;
pub mod content;
pub mod decode;
pub mod describe;
pub mod emulation;
pub mod groups;
pub mod link_spec;
pub mod metrics;
mod outcome;
pub mod overlay;
pub mod packets;
pub mod pep;
pub mod preset;
pub mod run;
pub mod scenario;
pub mod scratch;
pub mod stats;
pub mod study;
pub mod theory;
pub mod tool;
pub mod topology;
