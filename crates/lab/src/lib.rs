//! Scenarios, comparisons, bounds and results.

#![forbid(unsafe_code)]

pub mod account;
pub mod adapter;
pub mod advise;
pub mod bound;
pub mod bundles;
pub mod carried;
mod cast;
pub mod compare;
pub mod contact_plan;
pub mod decode;
pub mod describe;
pub mod emulation;
pub mod engines;
pub mod gateway;
pub mod groups;
pub mod link_spec;
pub mod metrics;
pub mod mib;
pub mod node;
mod outcome;
pub mod over_tcp;
pub mod overlay;
pub mod packets;
pub mod pep;
pub mod preset;
pub mod protocol;
pub mod quantity;
pub mod records;
pub mod run;
pub mod scenario;
pub mod scratch;
pub mod settings;
pub mod stats;
pub mod study;
pub mod text;
pub mod theory;
pub mod tool;
pub mod topology;

pub use text::SpecError;
