//! LTP-T transfers: settings, states, and records.
//!
//! Independent of the node: the sessions of a transfer and their interaction are in
//! [`super::hops`], the admission of a session that is a hop in [`super::intake`].

mod config;
pub(crate) mod flow;
mod indication;
pub(crate) mod passage;
pub(crate) mod record;

pub use self::config::{Config, Limits, Otherwise, Plan, Routing};
pub use self::indication::{FlowId, Indication, Transfer, Undeliverable};
pub use self::record::SPOOL_PREFIX;
