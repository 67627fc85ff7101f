//! Transcripts with a driver that keeps the contract, and random conversations.

mod desk;
mod random;
mod transcripts;
