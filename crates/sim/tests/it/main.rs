//! Simulated worlds: hosts over a network, and gateways between hosts.

mod pep;
mod world;
