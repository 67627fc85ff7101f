//! Conversations: two stacks with chosen losses, a stack with handwritten segments, and random
//! ones.

mod conformance;
mod conversations;
mod flow;
mod path_mtu;
mod queues;
mod random;
mod raw;
mod rfc9293;
mod scps;
mod scps_service;
mod states;
mod tshark;
mod world;
