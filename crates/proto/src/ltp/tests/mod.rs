//! Tests of the engine.

mod conformance;
mod reports;
mod world;
