//! Tests of NORM nodes.

mod transfers;
mod world;
