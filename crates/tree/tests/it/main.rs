//! Trees that are packed, read and unpacked on a real file system.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod gnu_tar;
mod hostile;
mod interrupted;
mod place;
mod policies;
mod reading;
mod round_trip;
mod scanning;
