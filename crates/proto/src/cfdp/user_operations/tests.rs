//! Several entities, and what they ask of each other.

mod extended;
mod proxy;
mod random;
mod remote;
mod sfo;
mod world;
