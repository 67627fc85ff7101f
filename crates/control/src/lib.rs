//! Control and observation of running emulated worlds.
//!
//! A world has a [`folder`] with a Unix socket, on which a [`server`](Server) serves HTTP with
//! JSON: links and their settings, outages, captures, commands on hosts, transfers, events,
//! counters for Prometheus, and an OpenAPI document of them. It can also listen on an address, for
//! clients with the token.

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
