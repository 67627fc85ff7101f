//! Whole transfers between two entities.

mod conformance;
mod efficiency;
mod faults;
mod hostile;
mod operations;
mod receptions;
mod replies;
mod restarts;
mod silence;
mod strangers;
mod thin;
mod transcripts;
mod unpaced;
mod variants;
mod world;
