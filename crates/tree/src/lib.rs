//! Folders as packs.
//!
//! A *pack* is one ordinary file for the protocols: a tar archive with some of the files of a
//! tree, or with one large file. A sender reads it by offset from the files themselves and never
//! stores it. A receiver that knows packs unpacks each below its root; any other has an archive
//! for `tar x`.
//!
//! [`scan`] collects the entries below paths, [`plan`] divides them into packs, [`Pack`] reads the
//! bytes of one, and [`Unpacker`] installs a complete one. Plans can be stored with serde, so that
//! a sender that restarts sends the same bytes.
//!
//! ```
//! use std::fs::{self, File};
//! use std::io::Write as _;
//!
//! use slowlight_tree::{Existing, Pack, ScanOptions, Unpacker, plan, process_umask, scan};
//!
//! let place = tempfile::tempdir()?;
//! let photos = place.path().join("photos");
//! fs::create_dir_all(photos.join("2031"))?;
//! fs::write(photos.join("2031/mars.jpg"), [7; 3000])?;
//!
//! let found = scan(&[photos], &ScanOptions::default())?;
//! assert!(found.skipped.is_empty());
//! let plans = plan(found.entries, 4_000_000);
//! let pack = Pack::new(plans.into_iter().next().ok_or("no pack")?);
//!
//! // A protocol reads it in any order, and the receiver has it as a file.
//! let mut bytes = vec![0; usize::try_from(pack.len())?];
//! pack.read_at(0, &mut bytes)?;
//! let path = place.path().join("photos.slowlight.tar");
//! File::create(&path)?.write_all(&bytes)?;
//!
//! let folder = |name: &str| -> std::io::Result<cap_std::fs::Dir> {
//!     let path = place.path().join(name);
//!     fs::create_dir(&path)?;
//!     cap_std::fs::Dir::open_ambient_dir(path, cap_std::ambient_authority())
//! };
//! let unpacker = Unpacker {
//!     root: folder("inbox")?,
//!     staging: folder("staging")?,
//!     existing: Existing::Rename,
//!     umask: process_umask()?,
//! };
//! let unpacked = unpacker.unpack(&File::open(path)?)?;
//! assert_eq!((unpacked.files, unpacked.directories), (1, 2));
//! assert_eq!(fs::read(place.path().join("inbox/photos/2031/mars.jpg"))?, [7; 3000]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod archive;
mod entry;
mod error;
mod existing;
mod extents;
mod header;
mod listing;
mod names;
mod pack;
mod patterns;
mod plan;
mod scan;
mod unpack;
mod watched;

pub use entry::{Entry, Extent, Kind, Modified, folders_above};
pub use error::{Fault, UnpackError};
pub use existing::{Existing, UnknownPolicy};
pub use listing::{List, list_name, listed, write_list};
pub use names::{is_pack, pack_name};
pub use pack::{Pack, ReadError};
pub use patterns::Patterns;
pub use plan::{Plan, plan};
pub use scan::{Scan, ScanError, ScanOptions, SkipReason, Skipped, is_content, scan};
pub use unpack::{
    Refusal, Refused, Renamed, Unpacked, Unpacker, is_same_content, process_umask, set_aside,
};
pub use watched::{Settling, move_to};
