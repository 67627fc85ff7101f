//! Tests that look at the processes, mounts and namespaces of the whole machine, or keep it busy:
//! by themselves, so that no other test changes what they see.

#[path = "../world/guard.rs"]
mod guard;
mod left_behind;
mod processes;
#[path = "../world/wait.rs"]
mod wait;
#[path = "../world/mod.rs"]
mod world;
