//! Scenarios, comparisons, bounds and results.

#![forbid(unsafe_code)]

pub mod adapter;
pub mod advise;
pub mod bound;
pub mod compare;
pub mod content;
pub mod decode;
pub mod groups;
pub mod link_spec;
pub mod metrics;
pub mod outcome;
pub mod overlay;
pub mod packets;
mod parallel;
pub mod passes;
pub mod pep;
pub mod plan;
pub mod preset;
mod resolve;
pub mod run;
pub mod scenario;
pub mod stats;
pub mod theory;
pub mod topology;
pub mod ways;
