//! LTP-T transfers: states, and records.
//!
//! Independent of the node: the sessions of a transfer and their interaction are in
//! [`super::hops`], the admission of a session that is a hop in [`super::intake`].

pub(crate) mod flow;
pub(crate) mod passage;
pub(crate) mod record;

pub use self::record::SPOOL_PREFIX;
