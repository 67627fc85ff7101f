//! The Bundle Protocol: version 7 (RFC 9171) and version 6 (RFC 5050).
//!
//! A [`node::Node`] is an [agent](agent::Agent) with its convergence [layers](layer::Layer) in one
//! [`engine::Engine`]: it holds no socket, file or clock. The agent knows no paths: it gives
//! commands to layers and gets their events, so that a driver may also run each layer in a thread.
//!
//! # States
//!
//! A bundle is received, or made for an application; its blocks are checked, and the security
//! rules applied. It is stored, and custody of it is signalled. Then it is delivered, or waits
//! for the next hop of its route, is given to a layer, and is removed when the layer reports it
//! sent. It is deleted when its lifetime ends. Each step is recorded before a neighbour or an
//! application learns of it, so that a restart continues.
//!
//! # Driving it
//!
//! `examples/bp_lossy_link.rs` has two nodes over LTP and a driver of 15 lines. Applications
//! [register](agent::Agent::register) an endpoint, [send](agent::Agent::send), and
//! [confirm](agent::Agent::confirm) what [`agent::Indication::Delivered`] brings.
//!
//! # What it bounds
//!
//! [`agent::Limits`] bounds bundles, their memory and disk, blocks, fragments and registrations. A
//! payload is held in memory only while it is short.

#![forbid(unsafe_code)]

pub mod admission;
pub mod agent;
pub mod app;
mod arrivals;
mod blocks;
pub mod codec;
pub mod discovery;
mod effects;
pub mod filecl;
pub mod files;
pub mod hosted;
pub mod layer;
pub mod ltpcl;
mod neighbours;
pub mod node;
pub mod normcl;
pub mod pattern;
pub mod saratogacl;
mod scope;
pub mod security;
mod source;
pub mod tcpcl;
#[cfg(test)]
mod tests;
pub mod udpcl;

/// The contract with a driver.
pub use engine;
/// LTP, whose settings a layer has.
pub use ltp;

pub use routing::{contacts, routes};
