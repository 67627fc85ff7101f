//! What studies of others measured, from simulated runs: each claim, the number it gave, the number found
//! here, and whether it holds. The pages in `docs/reproduction` state the verdicts, and these tests hold
//! them to it.
//!
//! `SLOWLIGHT_PRINT_TABLES=1 cargo test -p slowlight-lab --test reproduction -- --nocapture` prints the
//! tables of the pages; `SLOWLIGHT_RUNS` sets the runs of each cell, `SLOWLIGHT_SIZE_MB` the file of most cells
//! of the second.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::print_stdout,
    reason = "the tables of the pages are printed where that is asked for"
)]

mod cislunar;
mod cislunar_claims;
mod global_hawk;
mod hawk_claims;
mod hawk_gateways;
mod one_hop;
mod one_hop_claims;
mod page;
mod sgls;
mod sgls_claims;
mod trace;
mod two_hops;
mod two_hops_claims;
