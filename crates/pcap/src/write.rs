//! Writing pcapng.

use std::io::{self, Write};

use engine::Time;

use crate::LinkType;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;

/// Direction in which a packet crossed the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// Writes one section of pcapng. The same calls give the same bytes.
#[derive(Debug)]
pub struct Writer<W> {
    sink: W,
    block: Vec<u8>,
    interfaces: u32,
}

impl<W: Write> Writer<W> {
    /// Starts a section.
    ///
    /// # Errors
    /// Errors of the sink.
    pub fn new(sink: W) -> io::Result<Self> {
        let mut writer = Self { sink, block: Vec::with_capacity(2048), interfaces: 0 };
        writer.begin(SECTION_HEADER);
        writer.u32(0x1a2b_3c4d);
        writer.block.extend_from_slice(&[1, 0, 0, 0]); // Version 1.0.
        writer.block.extend_from_slice(&u64::MAX.to_le_bytes()); // The section's length is open.
        writer.option(SECTION_APPLICATION, b"slowlight");
        writer.end_options();
        writer.end()?;
        Ok(writer)
    }

    /// Describes an interface and returns its number.
    ///
    /// # Errors
    /// Errors of the sink.
    pub fn interface(&mut self, name: &str, link_type: LinkType) -> io::Result<u32> {
        self.begin(INTERFACE_DESCRIPTION);
        self.block.extend_from_slice(&link_type.number().to_le_bytes());
        self.block.extend_from_slice(&[0; 6]); // Reserved, and no limit on the length.
        self.option(INTERFACE_NAME, name.as_bytes());
        self.option(INTERFACE_RESOLUTION, &[9]);
        self.end_options();
        self.end()?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes a packet, `header` followed by `bytes`.
    ///
    /// # Errors
    /// Errors of the sink.
    pub fn packet(
        &mut self,
        at: Time,
        interface: u32,
        direction: Direction,
        header: &[u8],
        bytes: &[u8],
        comment: Option<&str>,
    ) -> io::Result<()> {
        let nanos = at.as_nanos();
        let len = u32::try_from(header.len() + bytes.len()).map_err(io::Error::other)?;
        self.begin(ENHANCED_PACKET);
        self.u32(interface);
        self.u32((nanos >> 32) as u32);
        self.u32(nanos as u32);
        self.u32(len);
        self.u32(len);
        self.block.extend_from_slice(header);
        self.block.extend_from_slice(bytes);
        self.pad();
        let flags: u32 = match direction {
            Direction::In => 1,
            Direction::Out => 2,
        };
        if let Some(comment) = comment {
            self.option(OPTION_COMMENT, comment.as_bytes());
        }
        self.option(PACKET_FLAGS, &flags.to_le_bytes());
        self.end_options();
        self.end()
    }

    /// Flushes the sink.
    ///
    /// # Errors
    /// Errors of the sink.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.u32(kind);
        self.u32(0); // The length, known at the end.
    }

    fn end(&mut self) -> io::Result<()> {
        let len = u32::try_from(self.block.len() + 4).map_err(io::Error::other)?;
        self.block[4..8].copy_from_slice(&len.to_le_bytes());
        self.u32(len);
        self.sink.write_all(&self.block)
    }

    fn u32(&mut self, value: u32) {
        self.block.extend_from_slice(&value.to_le_bytes());
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn end_options(&mut self) {
        self.option(OPTION_END, &[]);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }
}
