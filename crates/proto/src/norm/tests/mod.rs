//! Tests of NORM nodes.

mod answers;
mod conformance;
mod group;
mod groups;
mod random;
mod stores;
mod streams;
mod transcripts;
mod transfers;
mod watermarks;
mod world;
