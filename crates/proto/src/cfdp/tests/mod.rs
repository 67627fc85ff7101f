//! Whole transfers between two entities.

mod conformance;
mod efficiency;
mod faults;
mod hostile;
mod operations;
mod receptions;
mod restarts;
mod strangers;
mod transcripts;
mod unpaced;
mod variants;
mod world;
