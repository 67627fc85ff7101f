//! Engines stacked on engines: the one below shows its service as paths of the one above.
//!
//! | stack | the engine above sees |
//! |---|---|
//! | [`OverTcp`] | each connection of this crate's [TCP](crate::tcp) as a stream, beside streams that the driver has itself |
//!
//! To its own driver the parent is one engine, whose paths are those of the engine below. To the engine
//! above it is the driver: it keeps the rules of the contract that a driver keeps, and drains both
//! within its own handlers.

mod gateway;
mod late;
mod outside;
mod over_tcp;
mod streams;
#[cfg(test)]
mod tests;

pub use self::gateway::{Gateway, GatewayConfig};
pub use self::over_tcp::{Acceptance, Config, Host, Limits, OverTcp, Statistics};
