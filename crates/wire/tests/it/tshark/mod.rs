//! Checks by tshark's dissectors.
#![expect(clippy::disallowed_methods, reason = "the tests run another program")]
#![expect(clippy::disallowed_types, reason = "the tests run another program")]
#![expect(clippy::print_stdout, reason = "a skipped test prints the reason")]

mod ask;
mod bundle;
mod cfdp;
mod ltp;
mod norm;
mod ppp;
mod saratoga;
mod tcp;
