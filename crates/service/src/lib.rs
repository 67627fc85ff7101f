//! Long-running services: bundle nodes and gateways.
//!
//! [`node`] reads the configuration of a bundle node from TOML, [`api`] is its HTTP interface for
//! applications, and [`gateway`] reads the configuration of a gateway between real networks.
//! [`monitor`] reports the state of senders and receivers of files.
//! Programs that embed a node need this crate and [`rt`].

#![forbid(unsafe_code)]

pub mod api;
pub mod gateway;
pub mod http;
pub mod monitor;
pub mod node;
