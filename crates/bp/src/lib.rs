//! The Bundle Protocol: version 7 (RFC 9171) and version 6 (RFC 5050).

#![forbid(unsafe_code)]

pub mod admission;
pub mod agent;
mod arrivals;
mod blocks;
pub mod codec;
pub mod discovery;
pub mod filecl;
pub mod files;
pub mod layer;
pub mod ltpcl;
mod neighbours;
pub mod node;
pub mod normcl;
pub mod saratogacl;
pub mod security;
mod source;
pub mod tcpcl;
#[cfg(test)]
mod tests;
pub mod udpcl;

pub use routing::{contacts, routes};
