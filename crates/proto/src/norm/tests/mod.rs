//! Tests of NORM nodes.

mod conformance;
mod transfers;
mod world;
