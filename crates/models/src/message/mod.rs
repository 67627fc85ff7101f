//! The control connection of FTP (RFC 959, with RFC 1123 §4.1, 2389, 2428 and 3659) and of SCPS-FP
//! (CCSDS 717.0-B-1): lines of text, each ended by CR LF.
//!
//! | sender | line | type |
//! |---|---|---|
//! | client | verb [space argument] | [`Command`] |
//! | server | code space text; or code `-` text, any lines, code space text | [`ReplyLine`] |
//!
//! Verbs are read in any case and written in capitals. A line has at most [`LINE_MAX`] bytes;
//! [`Lines`] drops Telnet commands within it (RFC 959 §3.1.1.5.2: those around ABOR).

mod address;
mod command;
mod lines;
mod records;
mod reply;

pub use address::{AddressError, ExtendedPort, HostPort, passive_port, passive_reply};
pub use command::{Command, Representation};
pub use lines::{LINE_MAX, LineError, Lines};
pub use records::{
    CONTROL_FILE, Change, Crc, Range, ReadControl, TO_END, UpdateControl, UpdateError,
};
pub use reply::{Reply, ReplyLine};

#[cfg(test)]
mod tests;
