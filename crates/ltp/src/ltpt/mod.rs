//! LTP-T: blocks that cross several hops of LTP, each of which forwards segments as they arrive.
//!
//! An engine of [`crate`] uses it if [`crate::Config::transport`] is set. Data segments then
//! carry source and destination of the block ([`crate::segment::ltpt`]). At the first of them an
//! intermediate engine starts a session with the next engine, and forwards red and green data as
//! they arrive. It acknowledges red data as any receiver does. Its report that claims the whole
//! red part is sent once the data and a record of the route are synced. The block is kept until
//! the next engine has claimed it as well.
//!
//! No normative text of LTP-T is available. This is a profile of this project, see
//! `docs/ltp-t.md`.

#[cfg(test)]
mod tests;

pub use crate::config::transport::{Config, Limits, Otherwise, Plan, Routing};
pub use crate::indication::transport::{FlowId, Indication, Transfer, Undeliverable};
pub use crate::transport::SPOOL_PREFIX;
