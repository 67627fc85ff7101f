//! LTP-T: blocks that cross several hops of LTP, each of which passes segments on as they come.
//!
//! An engine of [`crate::ltp`] speaks it where [`crate::ltp::Config::transport`] says how. Data segments then
//! say whose block it is and whereto it goes ([`wire::ltpt`]). An engine on the way begins a session with the
//! next one at the first of them, and sends on what comes, red or green. It answers for red data as any
//! receiver does: its report that claims all of the red part is sent once that is synced, together with
//! a record of whereto it goes, and the block is kept until the next engine has told the same.
//!
//! No normative text of LTP-T is at hand. This is a profile of this project, see `docs/ltp-t.md`.

#[cfg(test)]
mod tests;

pub use crate::ltp::transport::{
    Config, FlowId, Indication, Limits, Otherwise, Plan, Routing, SPOOL_PREFIX, Transfer,
    Undeliverable,
};
