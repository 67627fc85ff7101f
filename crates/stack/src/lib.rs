//! Engines stacked on engines: the lower engine offers its service as paths of the upper one.
//!
//! | stack | paths of the engine above |
//! |---|---|
//! | [`OverTcp`] | connections of slowlight's [TCP](tcp), and the driver's own streams |
//!
//! To its driver the parent is one engine, with the paths of the engine below. To the engine above
//! it acts as the driver: it keeps a driver's part of the contract, and polls both engines within
//! its own handlers.

#![forbid(unsafe_code)]

mod gateway;
mod late;
mod outside;
mod over_tcp;
mod streams;
#[cfg(test)]
#[path = "../../testing/src/world.rs"]
pub mod test_world;
#[cfg(test)]
mod tests;

pub use self::gateway::{Gateway, GatewayConfig};
pub use self::over_tcp::{Acceptance, Config, Host, Limits, OverTcp, Statistics};
