//! Links packet by packet: errors, erasure codes, outages, order and times.

mod erasure;
mod errors;
mod outages;
mod random;
mod reordering;
mod timing;
