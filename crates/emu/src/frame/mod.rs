//! Packets as a TUN device with offloads gives and takes them: up to 64 KB that stand for many
//! segments, which are cut only in thought and rejoined on the way out.

mod shape;
pub(crate) mod vnet;

pub(crate) use self::shape::{HEADER_MAX, Shape, complete};
