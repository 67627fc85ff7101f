//! Whole transfers between two entities.

mod amplification;
mod conformance;
mod efficiency;
mod faults;
mod floods;
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
