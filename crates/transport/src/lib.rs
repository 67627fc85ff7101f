//! Transports of files behind one type: their names, profiles and settings, and the engines for
//! simulator, emulator and sockets.

#![forbid(unsafe_code)]

pub mod adapter;
pub mod contact_plan;
pub mod contract;
pub mod dissect;
pub mod door;
pub mod event;
pub mod files;
pub mod mib;
pub mod overlay;
pub mod pep;
pub mod protocol;
pub mod quantity;
pub mod records;
pub mod settings;
pub mod text;

pub use adapter::cfdp::CfdpOverService;
pub use adapter::configure;
pub use contract::{
    CfdpUser, Configuration, Process, Progress, RequestError, Role, SendRequest, Streams, Transport,
};
pub use event::{Ended, Event, Reception, StreamEvent, TransferId};
pub use text::SpecError;
