//! Scenarios, comparisons, bounds and results.

#![forbid(unsafe_code)]

pub mod bound;
pub mod link_spec;
pub mod preset;
pub mod quantity;
pub mod stats;
pub mod text;
pub mod theory;

pub use text::SpecError;
