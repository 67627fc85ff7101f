//! Control and observation of emulated worlds while they run.
//!
//! A world has a [`folder`] with a Unix socket, over which a [`server`](Server) answers HTTP with JSON: links and
//! what they do, outages, captures, commands on hosts, transfers between them, events as they happen,
//! counters for Prometheus, and an OpenAPI document that says all this. With an address it answers there, too,
//! whoever has the token.

#![forbid(unsafe_code)]

mod commands;
pub mod folder;
mod list;
mod metrics;
pub mod model;
mod routes;
mod server;
mod state;
mod transfers;
mod watch;

pub use self::server::{Places, Server};
