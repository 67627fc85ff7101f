//! Programs of others in emulated worlds.

mod tools;
