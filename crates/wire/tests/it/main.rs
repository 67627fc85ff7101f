//! This codec's encodings, decoded by independent implementations.

mod corpus;
mod spacepackets;
mod tshark;
