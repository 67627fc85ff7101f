//! Whole transfers between two entities.

mod efficiency;
mod transcripts;
mod world;
