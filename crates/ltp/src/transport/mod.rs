//! LTP-T transfers: states, and records.
//!
//! Independent of the node: the sessions of a transfer, their admission and their interaction are
//! in [`super::hops`].

pub(crate) mod flow;
pub(crate) mod passage;
pub(crate) mod record;

pub use self::record::SPOOL_PREFIX;
