//! Whole transfers between two entities.

mod conformance;
mod efficiency;
mod hostile;
mod restarts;
mod transcripts;
mod variants;
mod world;
