//! Worlds of toy engines.

#![expect(clippy::unwrap_used, reason = "in tests a panic is a failure")]

mod capture;
mod faults;
mod groups;
mod interfaces;
mod network;
mod random;
mod returns;
mod toy;
