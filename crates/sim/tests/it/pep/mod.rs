//! Connections through gateways, under modelled links: client - gateway - link - gateway - server.

#![expect(clippy::unwrap_used, reason = "in tests a panic is a failure")]

mod conversations;
mod mangler;
mod random;
mod talker;
mod world;
