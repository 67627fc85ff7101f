//! Shared by the tests of several crates: two engines over a link ([`world`]), the effects of one
//! ([`effects`]), contacts that do not take place as planned ([`meetings`]), tshark as an oracle
//! ([`tshark`]), test vectors ([`hex`]), network namespaces ([`namespace`]), and the note that a
//! test is skipped ([`skip`]).

#![forbid(unsafe_code)]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::missing_panics_doc, reason = "a test fails by panicking")]

pub mod effects;
pub mod hex;
pub mod meetings;
pub mod namespace;
pub mod skip;
pub mod tshark;
pub mod world;
