//! Reads pcapng and classic pcap from any byte source.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use engine::Time;
use thiserror::Error;

use crate::LinkType;

/// Maximum length of blocks and packets, 16 MiB; longer ones count as damage.
const LEN_MAX: u32 = 1 << 24;

/// One packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Capture time, since the file's epoch.
    pub at: Time,
    /// Number of the interface in its section.
    pub interface: u32,
    /// Name of the interface, if the file has it.
    pub interface_name: Option<Rc<str>>,
    /// Header before the IP header.
    pub link_type: LinkType,
    /// Packet, perhaps truncated by the capture's limit.
    pub bytes: Vec<u8>,
    /// Length on the wire.
    pub original_len: u32,
    /// Comment on the packet.
    pub comment: Option<String>,
}

/// Reason why reading stopped.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Neither pcapng nor classic pcap.
    #[error("not a capture: it starts with {0:02x?}")]
    NotACapture([u8; 4]),
    /// The file ends within a record; all before it was read.
    #[error("the capture ends within a record that starts at byte {offset}")]
    Truncated {
        /// Offset of the record's start.
        offset: u64,
    },
    /// A record breaks the format.
    #[error("byte {offset}: {what}")]
    Malformed {
        /// Offset of the record's start.
        offset: u64,
        /// Description of the error.
        what: &'static str,
    },
}

/// Packets of a capture in the file's order. After an error it yields nothing more.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    /// Bytes read so far.
    offset: u64,
    /// Offset of the current record.
    start: u64,
    big_endian: bool,
    format: Format,
    done: bool,
}

#[derive(Debug)]
enum Format {
    Classic { interface: Interface },
    Pcapng { interfaces: Vec<Interface> },
}

#[derive(Clone, Debug)]
struct Interface {
    name: Option<Rc<str>>,
    link_type: LinkType,
    resolution: Resolution,
}

/// Unit of time stamps: 10^-n or 2^-n seconds.
#[derive(Clone, Copy, Debug)]
enum Resolution {
    Decimal(u32),
    Binary(u32),
}

impl Resolution {
    fn time(self, units: u64) -> Time {
        let units = u128::from(units);
        let nanos = match self {
            Self::Decimal(n) if n <= 9 => units * 10_u128.pow(9 - n),
            Self::Decimal(n) => units / 10_u128.pow((n - 9).min(38)),
            Self::Binary(n) => (units * 1_000_000_000) >> n.min(127),
        };
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Opens a capture file.
///
/// # Errors
/// When the file cannot be read or is not a capture.
pub fn read(path: impl AsRef<Path>) -> Result<Reader<BufReader<File>>, ReadError> {
    Reader::new(BufReader::new(File::open(path)?))
}

impl<R: Read> Reader<R> {
    /// Starts reading a capture.
    ///
    /// # Errors
    /// When the source fails or does not start with a capture header.
    pub fn new(source: R) -> Result<Self, ReadError> {
        let format = Format::Pcapng { interfaces: Vec::new() };
        let (offset, start) = (0, 0);
        let mut reader = Self { source, offset, start, big_endian: false, format, done: false };
        let magic = reader.array::<4>()?;
        let (big_endian, resolution) = match magic {
            [0x0a, 0x0d, 0x0d, 0x0a] => {
                reader.section_header()?;
                return Ok(reader);
            }
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, 6),
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, 6),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, 9),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, 9),
            other => return Err(ReadError::NotACapture(other)),
        };
        reader.big_endian = big_endian;
        // Skips version, time zone, accuracy and snap length, which are not needed.
        reader.array::<16>()?;
        let link_type = LinkType::from_number(reader.u32()? as u16);
        let resolution = Resolution::Decimal(resolution);
        let interface = Interface { name: None, link_type, resolution };
        reader.format = Format::Classic { interface };
        Ok(reader)
    }

    fn next_record(&mut self) -> Result<Option<Record>, ReadError> {
        loop {
            self.start = self.offset;
            let mut first = [0; 4];
            if !self.fill_or_end(&mut first)? {
                return Ok(None);
            }
            match &self.format {
                Format::Classic { interface } => {
                    let interface = interface.clone();
                    return self.classic_record(interface, first).map(Some);
                }
                Format::Pcapng { .. } => {
                    if let Some(record) = self.block(first)? {
                        return Ok(Some(record));
                    }
                }
            }
        }
    }

    fn classic_record(
        &mut self,
        interface: Interface,
        seconds: [u8; 4],
    ) -> Result<Record, ReadError> {
        let seconds = self.number(seconds);
        let fraction = u64::from(self.u32()?);
        let len = self.u32()?;
        let original_len = self.u32()?;
        let bytes = self.bytes(len)?;
        let at = interface.resolution.time(fraction);
        Ok(Record {
            at: Time::from_secs(u64::from(seconds)) + at.since(Time::ZERO),
            interface: 0,
            interface_name: interface.name,
            link_type: interface.link_type,
            bytes,
            original_len,
            comment: None,
        })
    }

    /// Reads the rest of a section header, after its type.
    fn section_header(&mut self) -> Result<(), ReadError> {
        let len = self.array::<4>()?;
        self.big_endian = match self.array::<4>()? {
            [0x4d, 0x3c, 0x2b, 0x1a] => false,
            [0x1a, 0x2b, 0x3c, 0x4d] => true,
            _ => return Err(self.malformed("the byte-order magic is neither way round")),
        };
        let len = self.number(len);
        let rest = len.checked_sub(12).ok_or(self.malformed("the block is too short"))?;
        self.bytes(rest)?;
        self.format = Format::Pcapng { interfaces: Vec::new() };
        Ok(())
    }

    /// Reads a block whose first four bytes are given; `None` if it is not a packet.
    fn block(&mut self, kind: [u8; 4]) -> Result<Option<Record>, ReadError> {
        if kind == [0x0a, 0x0d, 0x0d, 0x0a] {
            self.section_header()?;
            return Ok(None);
        }
        let kind = self.number(kind);
        let len = self.u32()?;
        let len = len.checked_sub(12).ok_or(self.malformed("the block is too short"))?;
        let body = self.bytes(len)?;
        self.u32()?; // The length again.
        let fields = Fields { bytes: &body, big_endian: self.big_endian };
        let malformed = self.malformed("the block's fields do not fit its length");
        let Format::Pcapng { interfaces } = &mut self.format else { return Ok(None) };
        match kind {
            1 => {
                interfaces.push(fields.interface().ok_or(malformed)?);
                Ok(None)
            }
            3 => fields.simple_packet(interfaces).ok_or(malformed).map(Some),
            6 => fields.enhanced_packet(interfaces).ok_or(malformed).map(Some),
            _ => Ok(None),
        }
    }

    fn malformed(&self, what: &'static str) -> ReadError {
        ReadError::Malformed { offset: self.start, what }
    }

    fn number(&self, bytes: [u8; 4]) -> u32 {
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn u32(&mut self) -> Result<u32, ReadError> {
        let bytes = self.array()?;
        Ok(self.number(bytes))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let mut array = [0; N];
        self.fill(&mut array)?;
        Ok(array)
    }

    fn bytes(&mut self, len: u32) -> Result<Vec<u8>, ReadError> {
        if len > LEN_MAX {
            return Err(self.malformed("the record's length is beyond reason"));
        }
        let mut bytes = vec![0; len as usize];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ReadError> {
        match self.source.read_exact(bytes) {
            Ok(()) => {
                self.offset += bytes.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(ReadError::Truncated { offset: self.start })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Fills `bytes`; returns `false` if the source ends before the first byte.
    fn fill_or_end(&mut self, bytes: &mut [u8; 4]) -> Result<bool, ReadError> {
        loop {
            return match self.source.read(&mut bytes[..1]) {
                Ok(0) => Ok(false),
                Ok(_) => {
                    self.offset += 1;
                    self.fill(&mut bytes[1..]).map(|()| true)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error.into()),
            };
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.next_record().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Body of a block, read from the front.
struct Fields<'a> {
    bytes: &'a [u8],
    big_endian: bool,
}

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(head)
    }

    fn u16(&mut self) -> Option<u16> {
        let bytes = self.take(2)?.try_into().ok()?;
        Some(if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.try_into().ok()?;
        Some(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// Returns the next option's code and value; `None` at the end of the options.
    fn option(&mut self) -> Option<(u16, &'a [u8])> {
        let code = self.u16()?;
        let len = usize::from(self.u16()?);
        let value = self.take(len)?;
        // The last option's padding may be missing.
        let padding = (len.next_multiple_of(4) - len).min(self.bytes.len());
        self.take(padding)?;
        (code != 0).then_some((code, value))
    }

    fn interface(mut self) -> Option<Interface> {
        let link_type = LinkType::from_number(self.u16()?);
        self.take(6)?;
        let mut name = None;
        let mut resolution = Resolution::Decimal(6);
        while let Some((code, value)) = self.option() {
            match (code, value) {
                (2, value) => name = Some(String::from_utf8_lossy(value).into()),
                (9, [units]) if units & 0x80 == 0 => {
                    resolution = Resolution::Decimal(u32::from(*units));
                }
                (9, [units]) => resolution = Resolution::Binary(u32::from(units & 0x7f)),
                _ => {}
            }
        }
        Some(Interface { name, link_type, resolution })
    }

    fn simple_packet(mut self, interfaces: &[Interface]) -> Option<Record> {
        let interface = interfaces.first()?;
        let original_len = self.u32()?;
        let len = (original_len as usize).min(self.bytes.len());
        Some(Record {
            at: Time::ZERO,
            interface: 0,
            interface_name: interface.name.clone(),
            link_type: interface.link_type,
            bytes: self.take(len)?.to_vec(),
            original_len,
            comment: None,
        })
    }

    fn enhanced_packet(mut self, interfaces: &[Interface]) -> Option<Record> {
        let number = self.u32()?;
        let interface = interfaces.get(number as usize)?;
        let (high, low) = (self.u32()?, self.u32()?);
        let (len, original_len) = (self.u32()? as usize, self.u32()?);
        let bytes = self.take(len)?.to_vec();
        let padding = (len.next_multiple_of(4) - len).min(self.bytes.len());
        self.take(padding)?;
        let mut comment = None;
        while let Some((code, value)) = self.option() {
            if code == 1 {
                comment = Some(String::from_utf8_lossy(value).into_owned());
            }
        }
        Some(Record {
            at: interface.resolution.time(u64::from(high) << 32 | u64::from(low)),
            interface: number,
            interface_name: interface.name.clone(),
            link_type: interface.link_type,
            bytes,
            original_len,
            comment,
        })
    }
}
