//! Bundle nodes over loopback: contacts that do not take place as planned, and nodes that are
//! killed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "long tests print their numbers")]

mod bed;
mod chain;
mod groups;
mod kills;
mod link;
mod node;
mod soak;

/// Number in an environment variable, for tests that run longer at night.
fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a number")),
        Err(_) => default,
    }
}
