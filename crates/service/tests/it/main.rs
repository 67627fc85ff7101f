//! Nodes on real sockets.

mod discovery;
mod node_layers;
