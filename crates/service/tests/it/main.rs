//! Nodes on real sockets.

mod node_layers;
