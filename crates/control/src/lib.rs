//! Control and observation of what runs: emulated worlds, and [bundle nodes](node).
//!
//! A world has a [`folder`] with a Unix socket, over which a [`server`](Server) answers HTTP with JSON: links and
//! what they do, outages, captures, commands on hosts, transfers between them, events as they happen,
//! counters for Prometheus, and an OpenAPI document that says all this. With an address it answers there, too,
//! whoever has the token. A [`client`](Client) asks over the socket.

#![forbid(unsafe_code)]

mod client;
mod commands;
pub mod folder;
mod list;
mod metrics;
pub mod model;
pub mod node;
mod routes;
mod server;
mod state;
mod transfers;
mod watch;

pub use hyper::Method;

pub use self::client::{Client, ClientError, segment};
pub use self::server::{Places, ServeError, Server};
