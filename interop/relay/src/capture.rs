//! Capture of the relay: pcapng, raw IPv4, dropped datagrams marked by a comment.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddrV4;
use std::time::{SystemTime, UNIX_EPOCH};

/// LINKTYPE_IPV4: the packet starts with its IPv4 header.
const LINKTYPE_IPV4: u16 = 228;
const COMMENT: u16 = 1;
const LOST: &[u8] = b"lost by the relay";

/// A capture file being written.
pub struct Capture {
    file: BufWriter<File>,
}

impl Capture {
    pub fn create(path: &str) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        // Section header: byte order, version 1.0, unknown length.
        let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        section.extend([0xff; 8]);
        block(&mut file, 0x0a0d_0d0a, &section)?;
        // Interface description: link type, no snap length; time in microseconds by default.
        let mut interface = LINKTYPE_IPV4.to_le_bytes().to_vec();
        interface.extend([0; 6]);
        block(&mut file, 1, &interface)?;
        Ok(Self { file })
    }

    /// Records one datagram, as it would look in IPv4 and UDP.
    pub fn record(
        &mut self,
        source: SocketAddrV4,
        target: SocketAddrV4,
        bytes: &[u8],
        lost: bool,
    ) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        let micros = u64::try_from(now.as_micros()).map_err(io::Error::other)?;
        let len = 28 + bytes.len();
        let mut body = vec![0; 4];
        body.extend(((micros >> 32) as u32).to_le_bytes());
        body.extend((micros as u32).to_le_bytes());
        body.extend((len as u32).to_le_bytes());
        body.extend((len as u32).to_le_bytes());
        body.extend(ipv4(source, target, bytes.len()));
        body.extend(bytes);
        pad(&mut body);
        if lost {
            body.extend(COMMENT.to_le_bytes());
            body.extend((LOST.len() as u16).to_le_bytes());
            body.extend(LOST);
            pad(&mut body);
            body.extend([0; 4]);
        }
        block(&mut self.file, 6, &body)
    }

    pub fn finish(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// IPv4 and UDP headers of a datagram; a UDP checksum of zero means "none" (RFC 768).
fn ipv4(source: SocketAddrV4, target: SocketAddrV4, len: usize) -> Vec<u8> {
    let total = u16::try_from(28 + len).unwrap_or(u16::MAX);
    let mut header = vec![0x45, 0];
    header.extend(total.to_be_bytes());
    header.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    header.extend(source.ip().octets());
    header.extend(target.ip().octets());
    let sum: u32 =
        header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    // Two folds suffice: ten 16-bit words sum to less than 2^20.
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    header[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    header.extend(source.port().to_be_bytes());
    header.extend(target.port().to_be_bytes());
    header.extend((total - 20).to_be_bytes());
    header.extend([0, 0]);
    header
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Writes one block: type, length, body, length again. The body's length is a multiple of four.
fn block(file: &mut BufWriter<File>, kind: u32, body: &[u8]) -> io::Result<()> {
    let len = (12 + body.len() as u32).to_le_bytes();
    file.write_all(&kind.to_le_bytes())?;
    file.write_all(&len)?;
    file.write_all(body)?;
    file.write_all(&len)
}
