//! Conversations of two stacks.

mod conversations;
mod random;
mod world;
