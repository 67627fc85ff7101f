//! External programs in emulated worlds.

mod tools;
