//! Tests of the engine.

mod conformance;
mod reports;
mod security;
mod units;
mod world;
