//! The program as its users run it: its commands, transfers over real sockets, worlds of the
//! emulator.

mod advice;
mod baseline;
mod beacons;
mod bounded;
mod captures;
mod commands;
mod control;
mod emulator;
mod gateways;
#[path = "../world/guard.rs"]
mod guard;
mod guide_commands;
mod guides;
mod kernel_tcp;
mod kill;
mod long_input;
mod node;
mod other_ports;
mod outside;
mod passes;
mod path_mtu;
mod pep;
mod ports;
mod refusals;
mod rootless;
mod sockets;
mod staying;
mod study;
mod tools;
mod topologies;
mod units;
#[path = "../world/wait.rs"]
mod wait;
#[path = "../world/mod.rs"]
mod world;
