//! The protocol engines: state machines without sockets, files or clocks.

#![forbid(unsafe_code)]

mod allowance;
mod authentication;
pub mod bp;
mod buffers;
pub mod cfdp;
mod done;
pub mod fec;
mod flow;
pub mod ftp;
mod journal;
mod losses;
pub mod ltp;
pub mod ltpt;
pub mod norm;
mod path;
pub mod pep;
pub mod programs;
mod ranges;
mod recent;
mod refusals;
mod repairs;
mod replies;
pub mod routing;
pub mod saratoga;
mod session;
pub mod settings;
mod source;
mod spool;
pub mod stack;
mod storage;
mod sum;
pub mod tcp;
#[cfg(test)]
mod test_world;
mod thin_return;
mod timer;
pub mod ut;
mod window;

pub use self::buffers::Buffers;
