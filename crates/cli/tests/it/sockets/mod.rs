//! Transfers over real sockets on loopback.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod carried;
mod changes;
mod crowds;
mod door;
pub(crate) mod folders;
mod hops;
mod messages;
mod norm;
mod once;
mod operations;
mod process;
mod refusing;
mod relay;
mod send_recv;
mod sessions;
mod settings;
mod strangers;
mod watched;
