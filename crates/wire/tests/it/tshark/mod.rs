//! Checks by tshark's dissectors.
#![expect(clippy::disallowed_methods, reason = "the tests run another program")]
#![expect(clippy::disallowed_types, reason = "the tests run another program")]
#![expect(clippy::print_stdout, reason = "a skipped test prints the reason")]

mod bundle;
mod cfdp;
mod ltp;
mod norm;
mod ppp;
mod runner;
mod saratoga;
mod tcp;
