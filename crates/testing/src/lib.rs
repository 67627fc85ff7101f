//! Shared by the tests of several crates: engines in a network ([`world`]) and the memory that
//! they hold ([`memory`]), contacts that do not take place as planned ([`meetings`]), tshark as an
//! oracle ([`tshark`]), test vectors ([`hex`]), snapshots ([`mod@snapshot`]), network namespaces
//! ([`namespace`]), and the note that a test is skipped ([`skip`]).

#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::missing_panics_doc, reason = "a test fails by panicking")]

// Protocols include `world.rs` by its path; its imports name this crate.
extern crate self as testing;

pub mod hex;
pub mod meetings;
pub mod memory;
pub mod namespace;
pub mod skip;
pub mod snapshot;
pub mod tshark;
pub mod world;
