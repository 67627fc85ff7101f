//! Encodings of this crate, decoded by independent implementations.

mod tshark;
