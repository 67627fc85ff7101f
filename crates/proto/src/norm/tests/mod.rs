//! Tests of NORM nodes.

mod conformance;
mod group;
mod groups;
mod stores;
mod transfers;
mod world;
