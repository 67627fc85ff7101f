//! Services that run for long: bundle nodes and gateways.
//!
//! [`node`] reads what a bundle node is from TOML, [`api`] is its HTTP interface for applications,
//! and [`gateway`] reads what a gateway between real networks is. Programs that embed a node need
//! this crate and [`rt`].

#![forbid(unsafe_code)]

pub mod api;
pub mod gateway;
pub mod http;
pub mod node;
