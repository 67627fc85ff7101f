//! Tests that inspect the processes, mounts and namespaces of the whole machine, or keep it busy:
//! in their own binary, so that no other test changes their results.

#[path = "../world/guard.rs"]
mod guard;
mod left_behind;
mod processes;
#[path = "../world/wait.rs"]
mod wait;
#[path = "../world/mod.rs"]
mod world;
