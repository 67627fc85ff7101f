//! Contact plans, and the routes through them.

#![forbid(unsafe_code)]

mod booking;
pub mod changes;
pub mod contacts;
mod graph;
mod list;
pub mod routes;
mod search;
mod selection;
pub mod settings;
#[cfg(test)]
mod tests;
mod trees;
