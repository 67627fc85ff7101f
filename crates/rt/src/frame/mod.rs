//! Packets as a TUN device with offloads gives and takes them: up to 64 KB that stand for many
//! segments, which are cut only in thought and rejoined on the way out.

mod joint;
mod shape;
mod train;
pub(crate) mod vnet;

pub use self::joint::Joint;
pub use self::shape::{HEADER_MAX, Shape, Unreadable, complete};
pub use self::train::Train;
pub use self::vnet::{Checksum, Cut, Kind, LEN as VNET_LEN, Vnet};
