//! Packets of a TUN device with offloads: up to 64 KB, each standing for many segments. Segments
//! are located without copying and joined again on output.

mod joint;
mod shape;
mod train;
pub(crate) mod vnet;

pub use self::joint::Joint;
pub use self::shape::{HEADER_MAX, Shape, Unreadable, complete};
pub use self::train::Train;
pub use self::vnet::{Checksum, Cut, Kind, LEN as VNET_LEN, Vnet};
