//! Checks by tshark's dissectors.
#![expect(clippy::disallowed_methods, reason = "the tests talk to another program")]
#![expect(clippy::disallowed_types, reason = "the tests talk to another program")]
#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod ask;
mod bundle;
mod cfdp;
mod ltp;
mod norm;
mod ppp;
mod saratoga;
mod tcp;
