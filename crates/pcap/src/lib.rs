//! Captures: writes pcapng with nanosecond time stamps, reads pcapng and classic pcap.
//!
//! pcapng is a sequence of blocks, each `type u32 | total length u32 | body | total length u32`,
//! padded to four bytes (draft-ietf-opsawg-pcapng §3.1). The writer emits four types and the
//! reader skips unknown ones:
//!
//! | type | block | written | read |
//! |---|---|---|---|
//! | `0x0a0d0d0a` | section header | once | byte order of the section |
//! | 1 | interface description | one per interface | link type, name, time resolution |
//! | 3 | simple packet | no | yes; it has no time stamp |
//! | 6 | enhanced packet | one per packet | yes, with its comment |
//!
//! This crate implements the format itself: the block types are few, and available crates either
//! ignore an interface's time resolution or are release candidates.

#![forbid(unsafe_code)]

mod fragments;
mod packet;
mod read;
mod write;

pub use packet::{Checksum, Datagram, Datagrams, Found, Skipped};
pub use read::{ReadError, Reader, Record, read};
pub use write::{Direction, Writer};

/// Header before the IP header in each record (the registry's LINKTYPE values).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// Ethernet II without frame check sequence.
    Ethernet,
    /// No header: the record starts with the IP header.
    Raw,
    /// BSD loopback: four bytes of address family.
    Null,
    /// Linux cooked capture, version 1: 16 bytes.
    LinuxCooked,
    /// Linux cooked capture, version 2: 20 bytes.
    LinuxCooked2,
    /// Any other type, by its number.
    Other(u16),
}

impl LinkType {
    fn from_number(number: u16) -> Self {
        match number {
            1 => Self::Ethernet,
            101 | 228 | 229 => Self::Raw,
            0 | 108 => Self::Null,
            113 => Self::LinuxCooked,
            276 => Self::LinuxCooked2,
            other => Self::Other(other),
        }
    }

    fn number(self) -> u16 {
        match self {
            Self::Ethernet => 1,
            Self::Raw => 101,
            Self::Null => 0,
            Self::LinuxCooked => 113,
            Self::LinuxCooked2 => 276,
            Self::Other(number) => number,
        }
    }
}

#[cfg(test)]
mod tests;
