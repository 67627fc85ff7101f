//! Tests of the engine.

mod bounds;
mod conformance;
mod mixed;
mod procedures;
mod reports;
mod restarts;
mod security;
mod units;
mod world;
