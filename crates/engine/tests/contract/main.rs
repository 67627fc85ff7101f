//! The contract applied to the needs of protocols: streams with TLS, stacked layers, groups, TCP
//! over an IP interface, and a proxy that joins two connections. Each is a minimal toy engine that
//! shows that the types and rules suffice.

mod framed;
mod multicast;
mod proxy;
mod stacking;
mod stream;
mod tcp;
mod world;
