//! Tests of the engine.

mod conformance;
mod procedures;
mod reports;
mod restarts;
mod security;
mod units;
mod world;
