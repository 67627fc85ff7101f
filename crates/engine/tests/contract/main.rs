//! The contract carried through what protocols ask of it: streams with TLS, layers on layers,
//! groups, TCP over an IP interface, and a proxy that joins two connections. Each is a toy engine
//! with no more than shows that the types and rules suffice.

mod framed;
mod multicast;
mod proxy;
mod stacking;
mod stream;
mod tcp;
mod world;
