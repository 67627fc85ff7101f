//! Worlds of toy engines.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "in tests a panic is a failure")]

mod capture;
mod faults;
mod groups;
mod interfaces;
mod network;
mod random;
mod returns;
mod toy;
