//! Van Jacobson's TCP/IP header compression (RFC 1144).
//!
//! The first byte of a compressed header flags the changes since the last packet of the
//! connection; the fields follow in this order:
//!
//! | bit | field | bytes |
//! |---|---|---|
//! | 0x40 C | slot of the connection; without it, that of the previous packet | 1 |
//! | | TCP checksum, unchanged | 2 |
//! | 0x01 U | urgent pointer | 1 or 3 |
//! | 0x02 W | change of the window | 1 or 3 |
//! | 0x04 A | change of the acknowledgement number | 1 or 3 |
//! | 0x08 S | change of the sequence number | 1 or 3 |
//! | 0x20 I | change of the IPv4 identification, if it is not 1 | 1 or 3 |
//! | 0x10 P | none: PSH is set | 0 |
//!
//! Changes of 1 to 255 take a byte, others a zero byte and two more. S, W and U together encode an
//! echoed keystroke: S and A grew by the length of the last packet's data. S, A, W and U together
//! encode unidirectional data: S grew by that length.
//!
//! Unlike the other formats this one has state, at both ends of a line: a [`Compressor`] and a
//! [`Decompressor`]. A packet with a change that this form cannot encode keeps its whole header,
//! with the slot in place of the protocol ([`Kind::Uncompressed`]).

use std::fmt;

use thiserror::Error;

use crate::ip::{self, fold, sum};

#[cfg(test)]
mod tests;

/// IPv4 protocol number of TCP.
const PROTOCOL_TCP: u8 = 6;

/// Maximum length of IPv4 header and TCP header together, in bytes.
const HEADERS_MOST: usize = 120;

/// Maximum length of a compressed header: mask, slot, checksum, five changes of three bytes.
const COMPRESSED_MOST: usize = 1 + 1 + 2 + 5 * 3;

const C: u8 = 0x40;
const I: u8 = 0x20;
const P: u8 = 0x10;
const S: u8 = 0x08;
const A: u8 = 0x04;
const W: u8 = 0x02;
const U: u8 = 0x01;

/// Interactive: S and A grew by the length of the last data.
const ECHO: u8 = S | W | U;
/// Unidirectional: S grew by the length of the last data.
const DATA: u8 = S | A | W | U;
const SPECIAL: u8 = S | A | W | U;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;

/// Kind of a frame's content, given by PPP's protocol field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Unchanged IP packet.
    Ip,
    /// TCP packet with its slot in place of the protocol.
    Uncompressed,
    /// TCP packet with a compressed header.
    Compressed,
}

/// Number of connections whose headers both ends keep (RFC 1332 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slots {
    /// Highest slot number, which is the number of slots minus one.
    pub max: u8,
    /// Whether a packet may omit its slot if the previous packet had the same.
    pub may_omit: bool,
}

impl Default for Slots {
    /// Sixteen, as in RFC 1144 §5.2.
    fn default() -> Self {
        Self { max: 15, may_omit: true }
    }
}

/// Error of a packet that cannot be restored. Later packets without a slot are not restored
/// either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecompressError {
    /// A frame was lost or damaged, and this one does not name its slot.
    #[error("no slot since a frame was damaged")]
    Tossed,
    /// The slot exceeds the negotiated maximum.
    #[error("slot {0} is above the highest")]
    SlotRange(u8),
    /// No header of this slot has arrived.
    #[error("slot {0} is empty")]
    SlotEmpty(u8),
    /// The frame ends within the header.
    #[error("the header is cut short")]
    Truncated,
    /// An uncompressed packet is not a TCP packet over IPv4.
    #[error("no TCP/IPv4 header")]
    Header,
    /// The restored packet would exceed IPv4's maximum length.
    #[error("the packet is too long")]
    TooLong,
}

/// Headers of a connection's last packet.
#[derive(Clone, Copy)]
struct Headers {
    bytes: [u8; HEADERS_MOST],
    ip_len: usize,
    len: usize,
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Headers").field("bytes", &&self.bytes[..self.len]).finish()
    }
}

impl Headers {
    /// Reads the headers of a TCP packet over IPv4, with any protocol field; `None` if they are
    /// incomplete.
    fn read(packet: &[u8]) -> Option<Self> {
        let first = *packet.first()?;
        let ip_len = usize::from(first & 0x0f) * 4;
        if first >> 4 != 4 || ip_len < ip::HEADER_LEN {
            return None;
        }
        let tcp_len = usize::from(packet.get(ip_len + 12)? >> 4) * 4;
        let len = ip_len + tcp_len;
        let head = packet.get(..len).filter(|_| tcp_len >= 20)?;
        let mut bytes = [0; HEADERS_MOST];
        bytes[..len].copy_from_slice(head);
        Some(Self { bytes, ip_len, len })
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn set_u16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    /// Returns a field of the TCP header.
    fn tcp_u16(&self, at: usize) -> u16 {
        self.u16(self.ip_len + at)
    }

    fn set_tcp_u16(&mut self, at: usize, value: u16) {
        self.set_u16(self.ip_len + at, value);
    }

    fn tcp_u32(&self, at: usize) -> u32 {
        u32::from(self.tcp_u16(at)) << 16 | u32::from(self.tcp_u16(at + 2))
    }

    fn add_tcp_u32(&mut self, at: usize, change: u16) {
        let value = self.tcp_u32(at).wrapping_add(u32::from(change));
        let at = self.ip_len + at;
        self.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    fn flags(&self) -> u8 {
        self.bytes[self.ip_len + 13]
    }

    fn set_flag(&mut self, flag: u8, is_set: bool) {
        let flags = &mut self.bytes[self.ip_len + 13];
        *flags = if is_set { *flags | flag } else { *flags & !flag };
    }

    /// Returns the length of the data, by IPv4's total length.
    fn data_len(&self) -> u16 {
        self.u16(2).wrapping_sub(self.len as u16)
    }

    /// Returns addresses and ports.
    fn connection(&self) -> ([u8; 8], [u8; 4]) {
        let mut addresses = [0; 8];
        addresses.copy_from_slice(&self.bytes[12..20]);
        let mut ports = [0; 4];
        ports.copy_from_slice(&self.bytes[self.ip_len..self.ip_len + 4]);
        (addresses, ports)
    }

    /// Whether all fields that no change can encode equal those in `last`: version, header lengths,
    /// type of service, fragmentation, TTL, protocol, options, and TCP's bits besides its six
    /// flags.
    fn is_like(&self, last: &Self) -> bool {
        let ip = self.ip_len;
        let same = |from: usize, to: usize| self.bytes[from..to] == last.bytes[from..to];
        let kept = |headers: &Self| (headers.bytes[ip + 12], headers.bytes[ip + 13] & 0xc0);
        last.len == self.len
            && last.ip_len == ip
            && same(0, 2)
            && same(6, 10)
            && same(ip::HEADER_LEN, ip)
            && kept(self) == kept(last)
            && same(ip + 20, self.len)
    }
}

/// Encoded changes.
#[derive(Debug, Default)]
struct Changes {
    mask: u8,
    bytes: [u8; COMPRESSED_MOST],
    len: usize,
}

impl Changes {
    fn put(&mut self, bit: u8, value: u16) {
        self.mask |= bit;
        let bytes = value.to_be_bytes();
        match bytes {
            [0, low] if low != 0 => self.push(&[low]),
            [high, low] => self.push(&[0, high, low]),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// Sending end of a line.
#[derive(Debug)]
pub struct Compressor {
    slots: Slots,
    /// Last packet of each slot in use.
    kept: Vec<Headers>,
    /// Slots in order of use, the most recent first.
    order: Vec<u8>,
    /// Slot of the previous packet.
    last: Option<u8>,
}

impl Compressor {
    /// Creates a compressor without connections.
    #[must_use]
    pub fn new(slots: Slots) -> Self {
        Self { slots, kept: Vec::new(), order: Vec::new(), last: None }
    }

    /// Compresses an IP packet in place; returns its kind and the bytes for the line. The front of
    /// `packet` keeps remains of the headers.
    pub fn compress<'a>(&mut self, packet: &'a mut [u8]) -> (Kind, &'a [u8]) {
        let Some(headers) = compressible(packet) else { return (Kind::Ip, packet) };
        let connection = headers.connection();
        let found = self
            .order
            .iter()
            .position(|slot| self.kept[usize::from(*slot)].connection() == connection);
        let Some(place) = found else {
            let slot = self.take_slot(headers);
            return self.uncompressed(slot, packet);
        };
        let slot = self.order.remove(place);
        self.order.insert(0, slot);
        let last = std::mem::replace(&mut self.kept[usize::from(slot)], headers);
        let Some(changes) = changes(&headers, &last) else {
            return self.uncompressed(slot, packet);
        };
        let is_known = self.slots.may_omit && self.last == Some(slot);
        self.last = Some(slot);
        let mut head = [0; 4];
        let sum = headers.tcp_u16(16).to_be_bytes();
        let head: &[u8] = if is_known {
            head[..3].copy_from_slice(&[changes.mask, sum[0], sum[1]]);
            &head[..3]
        } else {
            head.copy_from_slice(&[changes.mask | C, slot, sum[0], sum[1]]);
            &head
        };
        // At most 19 bytes replace at least 40.
        let start = headers.len - changes.len - head.len();
        let out = &mut packet[start..];
        out[..head.len()].copy_from_slice(head);
        out[head.len()..head.len() + changes.len].copy_from_slice(&changes.bytes[..changes.len]);
        (Kind::Compressed, out)
    }

    /// Returns a slot for a new connection: a free one, or the slot of the least recently used
    /// connection.
    fn take_slot(&mut self, headers: Headers) -> u8 {
        let free = u8::try_from(self.kept.len()).ok().filter(|free| *free <= self.slots.max);
        let slot = if let Some(free) = free {
            self.kept.push(headers);
            free
        } else {
            let oldest = self.order.pop().expect("all slots are in use, one at least");
            self.kept[usize::from(oldest)] = headers;
            oldest
        };
        self.order.insert(0, slot);
        slot
    }

    fn uncompressed<'a>(&mut self, slot: u8, packet: &'a mut [u8]) -> (Kind, &'a [u8]) {
        self.last = Some(slot);
        packet[9] = slot;
        (Kind::Uncompressed, packet)
    }
}

/// Returns the headers of a packet that may be compressed (RFC 1144 §3.2.3): TCP over IPv4,
/// complete, of an open connection. Length and checksum must be correct, because the decompressor
/// computes them.
fn compressible(packet: &[u8]) -> Option<Headers> {
    let is_tcp = packet.get(9) == Some(&PROTOCOL_TCP);
    let headers = Headers::read(packet).filter(|_| is_tcp)?;
    let is_fragment = headers.u16(6) & 0x3fff != 0;
    let is_open = headers.flags() & (FIN | SYN | RST | ACK) == ACK;
    let is_sound = usize::from(headers.u16(2)) == packet.len()
        && fold(sum(&packet[..headers.ip_len])) == 0xffff
        // Zero has two forms; the decompressor never writes 0xffff.
        && headers.u16(10) != 0xffff;
    (is_open && is_sound && !is_fragment).then_some(headers)
}

/// Returns the changes, if they can be encoded.
fn changes(headers: &Headers, last: &Headers) -> Option<Changes> {
    if !headers.is_like(last) {
        return None;
    }
    let mut changes = Changes::default();
    if headers.flags() & URG != 0 {
        changes.put(U, headers.tcp_u16(18));
    } else if headers.tcp_u16(18) != last.tcp_u16(18) || last.flags() & URG != 0 {
        // Some decompressors keep URG before a special case.
        return None;
    }
    let window = headers.tcp_u16(14).wrapping_sub(last.tcp_u16(14));
    if window != 0 {
        changes.put(W, window);
    }
    let acked = u16::try_from(headers.tcp_u32(8).wrapping_sub(last.tcp_u32(8))).ok()?;
    if acked != 0 {
        changes.put(A, acked);
    }
    let sent = u16::try_from(headers.tcp_u32(4).wrapping_sub(last.tcp_u32(4))).ok()?;
    if sent != 0 {
        changes.put(S, sent);
    }
    let before = last.data_len();
    match changes.mask {
        // Data after an ACK without data; otherwise it is a retransmission or a probe, and the
        // decompressor may have missed the previous packet.
        0 if headers.u16(2) != last.u16(2) && before == 0 => {}
        0 | ECHO | DATA => return None,
        mask if mask == S | A && sent == acked && sent == before => {
            changes = Changes { mask: ECHO, ..Changes::default() };
        }
        S if sent == before => changes = Changes { mask: DATA, ..Changes::default() },
        _ => {}
    }
    let id = headers.u16(4).wrapping_sub(last.u16(4));
    if id != 1 {
        changes.put(I, id);
    }
    if headers.flags() & PSH != 0 {
        changes.mask |= P;
    }
    Some(changes)
}

/// Receiving end of a line.
#[derive(Debug)]
pub struct Decompressor {
    slots: Slots,
    kept: Vec<Option<Headers>>,
    last: Option<u8>,
}

impl Decompressor {
    /// Creates a decompressor without connections.
    #[must_use]
    pub fn new(slots: Slots) -> Self {
        Self { slots, kept: vec![None; usize::from(slots.max) + 1], last: None }
    }

    /// Reports a damaged or lost frame: packets that do not name their slot are not restored until
    /// one does (RFC 1144 §4.1).
    pub fn toss(&mut self) {
        self.last = None;
    }

    /// Restores the IP packet of a frame and appends it to `out`.
    ///
    /// # Errors
    /// When the packet cannot be restored; `out` is then unchanged.
    pub fn decompress(
        &mut self,
        kind: Kind,
        frame: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), DecompressError> {
        let restored = match kind {
            Kind::Ip => {
                out.extend_from_slice(frame);
                Ok(())
            }
            Kind::Uncompressed => self.whole(frame, out),
            Kind::Compressed => self.restore(frame, out),
        };
        if restored.is_err() {
            self.toss();
        }
        restored
    }

    fn whole(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Result<(), DecompressError> {
        let mut headers = Headers::read(frame).ok_or(DecompressError::Header)?;
        let slot = headers.bytes[9];
        self.check_slot(slot)?;
        headers.bytes[9] = PROTOCOL_TCP;
        self.last = Some(slot);
        self.kept[usize::from(slot)] = Some(headers);
        out.extend_from_slice(&headers.bytes[..headers.len]);
        out.extend_from_slice(&frame[headers.len..]);
        Ok(())
    }

    fn check_slot(&self, slot: u8) -> Result<(), DecompressError> {
        if slot > self.slots.max { Err(DecompressError::SlotRange(slot)) } else { Ok(()) }
    }

    fn restore(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Result<(), DecompressError> {
        let mut rest = frame;
        let mask = byte(&mut rest)?;
        if mask & C != 0 {
            let slot = byte(&mut rest)?;
            self.check_slot(slot)?;
            self.last = Some(slot);
        }
        let slot = self.last.ok_or(DecompressError::Tossed)?;
        let kept = self.kept[usize::from(slot)];
        let mut headers = kept.ok_or(DecompressError::SlotEmpty(slot))?;
        let checksum = u16::from_be_bytes([byte(&mut rest)?, byte(&mut rest)?]);
        headers.set_tcp_u16(16, checksum);
        apply(&mut headers, mask, &mut rest)?;
        let len = u16::try_from(headers.len + rest.len()).map_err(|_| DecompressError::TooLong)?;
        headers.set_u16(2, len);
        headers.set_u16(10, 0);
        headers.set_u16(10, !fold(sum(&headers.bytes[..headers.ip_len])));
        self.kept[usize::from(slot)] = Some(headers);
        out.extend_from_slice(&headers.bytes[..headers.len]);
        out.extend_from_slice(rest);
        Ok(())
    }
}

/// Applies the changes to the headers of the previous packet.
fn apply(headers: &mut Headers, mask: u8, rest: &mut &[u8]) -> Result<(), DecompressError> {
    headers.set_flag(PSH, mask & P != 0);
    let before = headers.data_len();
    match mask & SPECIAL {
        ECHO => {
            headers.set_flag(URG, false);
            headers.add_tcp_u32(8, before);
            headers.add_tcp_u32(4, before);
        }
        DATA => {
            headers.set_flag(URG, false);
            headers.add_tcp_u32(4, before);
        }
        _ => {
            headers.set_flag(URG, mask & U != 0);
            if mask & U != 0 {
                headers.set_tcp_u16(18, change(rest)?);
            }
            if mask & W != 0 {
                let window = headers.tcp_u16(14).wrapping_add(change(rest)?);
                headers.set_tcp_u16(14, window);
            }
            if mask & A != 0 {
                headers.add_tcp_u32(8, change(rest)?);
            }
            if mask & S != 0 {
                headers.add_tcp_u32(4, change(rest)?);
            }
        }
    }
    let id = if mask & I != 0 { change(rest)? } else { 1 };
    headers.set_u16(4, headers.u16(4).wrapping_add(id));
    Ok(())
}

fn byte(rest: &mut &[u8]) -> Result<u8, DecompressError> {
    let (first, after) = rest.split_first().ok_or(DecompressError::Truncated)?;
    *rest = after;
    Ok(*first)
}

fn change(rest: &mut &[u8]) -> Result<u16, DecompressError> {
    match byte(rest)? {
        0 => Ok(u16::from_be_bytes([byte(rest)?, byte(rest)?])),
        short => Ok(u16::from(short)),
    }
}
