//! Whole transfers between two entities.

mod transcripts;
mod world;
