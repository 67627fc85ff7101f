//! Our encodings, read by the decoders of others.

mod corpus;
mod spacepackets;
mod tshark;
