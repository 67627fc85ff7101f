//! Several entities, and their requests to each other.

mod extended;
mod proxy;
mod random;
mod remote;
mod sfo;
mod world;
