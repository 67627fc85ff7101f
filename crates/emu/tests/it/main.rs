//! Worlds of the emulator, with real packets at real times.

mod calm;
mod schedules;
mod world;
