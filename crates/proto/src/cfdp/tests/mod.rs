//! Whole transfers between two entities.

mod conformance;
mod efficiency;
mod transcripts;
mod world;
