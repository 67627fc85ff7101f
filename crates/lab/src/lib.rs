//! Scenarios, comparisons, bounds and results.

#![forbid(unsafe_code)]

pub mod quantity;
pub mod theory;
