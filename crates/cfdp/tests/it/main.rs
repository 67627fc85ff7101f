//! Encodings of this crate, decoded by independent implementations.

mod corpus;
mod spacepackets;
mod tshark;
