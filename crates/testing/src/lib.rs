//! Shared by the tests of several crates: two engines over a link ([`world`]), tshark as an oracle
//! ([`tshark`]), and test vectors ([`hex`]).

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a skipped test prints the reason")]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::missing_panics_doc, reason = "a test fails by panicking")]

pub mod hex;
pub mod tshark;
pub mod world;
