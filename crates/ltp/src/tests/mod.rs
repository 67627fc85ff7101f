//! Tests of the engine.

mod amplification;
mod bounds;
mod conformance;
mod floods;
mod mixed;
mod outages;
mod peers;
mod procedures;
mod reports;
mod restarts;
mod security;
mod thin;
mod units;
pub(crate) mod world;
