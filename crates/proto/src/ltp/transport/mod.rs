//! Transfers of LTP-T: their settings, their states, and what is kept of them.
//!
//! This knows no node: which sessions a transfer has, and how they take each other along, is in
//! [`super::hops`]; how a session begins that is a hop of one, in [`super::intake`].

mod config;
pub(crate) mod flow;
mod indication;
pub(crate) mod passage;
pub(crate) mod record;

pub use self::config::{Config, Limits, Otherwise, Plan, Routing};
pub use self::indication::{FlowId, Indication, Transfer, Undeliverable};
pub use self::record::SPOOL_PREFIX;
