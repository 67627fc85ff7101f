//! The Bundle Protocol: version 7 (RFC 9171) and version 6 (RFC 5050).

pub mod agent;
pub mod contacts;
pub mod files;
pub mod layer;
pub mod ltpcl;
pub mod node;
pub mod routes;
pub mod security;
mod source;
pub mod tcpcl;
#[cfg(test)]
mod tests;
pub mod udpcl;
