//! Tests of NORM nodes.

mod amplification;
mod answers;
mod coded_receive;
mod coded_send;
mod commands;
mod conformance;
mod congestion;
mod forged;
mod group;
mod groups;
mod hostile;
mod outages;
mod pipe;
mod policies;
mod random;
#[cfg(feature = "raptorq")]
mod raptorq;
mod resume;
mod resume_blocks;
mod stores;
mod streams;
mod transcripts;
mod transfers;
mod watermarks;
mod world;
