//! Links packet by packet: errors, outages, order and times.

mod errors;
mod outages;
mod random;
mod reordering;
mod timing;
