//! Records of engines on disk: the fields of a version, and a checksum.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version |
//! | … | fields |
//! | 4 | CRC-32C of everything before |
//!
//! Numbers are big endian. Byte strings follow their length, and lists their count, in 4 bytes.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use engine::{Area, FileName};
use wire::checksum::crc32c;

use crate::ranges::Ranges;

/// Bytes of a record without long fields, in most cases.
const SHORT: usize = 128;

/// Writes the fields of a record.
#[derive(Debug)]
pub struct Writer(BytesMut);

impl Writer {
    /// Begins a record.
    pub fn new(version: u8) -> Self {
        Self::with_capacity(version, 0)
    }

    /// Begins a record with `long` bytes in long fields.
    pub fn with_capacity(version: u8, long: usize) -> Self {
        let mut out = BytesMut::with_capacity(SHORT + long);
        out.put_u8(version);
        Self(out)
    }

    /// Bytes written so far.
    pub fn position(&self) -> usize {
        self.0.len()
    }

    /// Removes the fields behind an earlier [`Writer::position`].
    pub fn back_to(&mut self, position: usize) {
        self.0.truncate(position);
    }

    /// A number of one byte.
    pub fn u8(&mut self, number: u8) {
        self.0.put_u8(number);
    }

    /// A number of two bytes.
    pub fn u16(&mut self, number: u16) {
        self.0.put_u16(number);
    }

    /// A number of four bytes.
    pub fn u32(&mut self, number: u32) {
        self.0.put_u32(number);
    }

    /// A number of eight bytes.
    pub fn u64(&mut self, number: u64) {
        self.0.put_u64(number);
    }

    /// A number of 16 bytes.
    pub fn u128(&mut self, number: u128) {
        self.0.put_u128(number);
    }

    /// A condition.
    pub fn flag(&mut self, is_set: bool) {
        self.u8(u8::from(is_set));
    }

    /// A number that may be unknown.
    pub fn option(&mut self, number: Option<impl Into<u64>>) {
        self.flag(number.is_some());
        self.u64(number.map_or(0, Into::into));
    }

    /// Number of entries in a list.
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("lists in memory are far shorter"));
    }

    /// A byte string.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.put_slice(bytes);
    }

    /// A file name, if there is one.
    pub fn name(&mut self, name: Option<&FileName>) {
        self.u8(match name.map(FileName::area) {
            None => 0,
            Some(Area::Files) => 1,
            Some(Area::Spool) => 2,
        });
        self.bytes(name.map_or("", FileName::path).as_bytes());
    }

    /// Ranges of bytes.
    pub fn ranges(&mut self, ranges: &Ranges) {
        self.count(ranges.len());
        for (start, end) in ranges.iter() {
            self.u64(start);
            self.u64(end);
        }
    }

    /// Ends the record.
    pub fn finish(mut self) -> Bytes {
        let check = crc32c(&self.0);
        self.u32(check);
        self.0.freeze()
    }
}

/// Reads the fields of a record. Each method returns `None` if the record is invalid.
#[derive(Debug)]
pub struct Reader(Bytes);

impl Reader {
    /// Reads a record; `None` if it is damaged or of another version.
    pub fn new(version: u8, record: &Bytes) -> Option<Self> {
        let (content, check) = record.split_last_chunk()?;
        if crc32c(content) != u32::from_be_bytes(*check) {
            return None;
        }
        let mut reader = Self(record.slice(..content.len()));
        (reader.u8()? == version).then_some(reader)
    }

    /// Whether no field is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A number of one byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.0.try_get_u8().ok()
    }

    /// A number of two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.0.try_get_u16().ok()
    }

    /// A number of four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.0.try_get_u32().ok()
    }

    /// A number of eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.0.try_get_u64().ok()
    }

    /// A number of 16 bytes.
    pub fn u128(&mut self) -> Option<u128> {
        self.0.try_get_u128().ok()
    }

    /// A condition.
    pub fn flag(&mut self) -> Option<bool> {
        self.u8().map(|byte| byte != 0)
    }

    /// A number that may be unknown.
    pub fn option<T: TryFrom<u64>>(&mut self) -> Option<Option<T>> {
        let (is_known, number) = (self.flag()?, self.u64()?);
        if is_known { T::try_from(number).ok().map(Some) } else { Some(None) }
    }

    /// A byte string, which shares the memory of the record.
    pub fn bytes(&mut self) -> Option<Bytes> {
        let len = self.u32()? as usize;
        (len <= self.0.len()).then(|| self.0.split_to(len))
    }

    /// A text.
    pub fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.into()).ok()
    }

    /// A file name, if there is one.
    pub fn name(&mut self) -> Option<Option<FileName>> {
        let (area, path) = (self.u8()?, self.text()?);
        match area {
            0 => Some(None),
            1 => FileName::file(&path).ok().map(Some),
            2 => FileName::spool(&path).ok().map(Some),
            _ => None,
        }
    }

    /// Ranges of bytes: in order, with gaps between them.
    pub fn ranges(&mut self) -> Option<Ranges> {
        let mut ranges = Ranges::new();
        for _ in 0..self.u32()? {
            let (start, end) = (self.u64()?, self.u64()?);
            if start >= end || !ranges.is_empty() && start <= ranges.end() {
                return None;
            }
            ranges.insert(start, end);
        }
        Some(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges() -> Ranges {
        let mut ranges = Ranges::new();
        ranges.insert(0, 10);
        ranges.insert(20, 1 << 40);
        ranges
    }

    #[test]
    fn fields_round_trip_and_damage_is_detected() {
        let names = ["file", "spool"].map(|path| FileName::file(path).ok());
        let spooled = FileName::spool("a/b").ok();
        let mut out = Writer::new(3);
        out.u8(1);
        out.u16(2);
        out.u32(3);
        out.u64(4);
        let kept = out.position();
        out.bytes(b"removed");
        out.back_to(kept);
        out.u128(5);
        out.flag(true);
        out.option(Some(6_u32));
        out.option(None::<u64>);
        out.bytes(b"seven");
        out.name(names[0].as_ref());
        out.name(spooled.as_ref());
        out.name(None);
        out.ranges(&ranges());
        let record = out.finish();
        let mut reader = Reader::new(3, &record).expect("a record");
        let numbers = (reader.u8(), reader.u16(), reader.u32(), reader.u64(), reader.u128());
        assert_eq!(numbers, (Some(1), Some(2), Some(3), Some(4), Some(5)));
        assert_eq!(reader.flag(), Some(true));
        assert_eq!((reader.option(), reader.option::<u32>()), (Some(Some(6_u32)), Some(None)));
        assert_eq!(reader.text().as_deref(), Some("seven"));
        assert_eq!(reader.name().flatten(), names[0]);
        assert_eq!(reader.name().flatten(), spooled);
        assert_eq!(reader.name(), Some(None));
        assert_eq!(reader.ranges(), Some(ranges()));
        assert!(reader.is_empty());
        assert_eq!((reader.u8(), reader.bytes()), (None, None));
        assert!(Reader::new(2, &record).is_none(), "another version");
        for i in 0..record.len() {
            let mut damaged = record.to_vec();
            damaged[i] ^= 4;
            assert!(Reader::new(3, &damaged.into()).is_none(), "byte {i}");
            assert!(Reader::new(3, &record.slice(..i)).is_none(), "{i} bytes");
        }
    }

    #[test]
    fn invalid_fields_are_refused() {
        let record = |write: fn(&mut Writer)| {
            let mut out = Writer::new(1);
            write(&mut out);
            Reader::new(1, &out.finish()).expect("a record")
        };
        let of_ranges = |[(a, b), (c, d)]: [(u64, u64); 2]| {
            let mut out = Writer::new(1);
            out.count(2);
            [a, b, c, d].into_iter().for_each(|bound| out.u64(bound));
            Reader::new(1, &out.finish()).and_then(|mut reader| reader.ranges())
        };
        assert!(of_ranges([(0, 1), (2, 3)]).is_some());
        for pairs in [[(0, 1), (1, 2)], [(4, 5), (0, 1)], [(0, 0), (2, 3)], [(0, 9), (2, 3)]] {
            assert_eq!(of_ranges(pairs), None, "{pairs:?}");
        }
        assert_eq!(record(|out| out.option(Some(256_u64))).option::<u8>(), None);
        assert_eq!(record(|out| out.bytes(&[0xff])).text(), None);
        assert_eq!(record(|out| out.count(5)).bytes(), None, "a length beyond the record");
        let outside = record(|out| {
            out.u8(1);
            out.bytes(b"../a");
        });
        let of_no_area = record(|out| {
            out.u8(9);
            out.bytes(b"a");
        });
        assert!([outside, of_no_area].into_iter().all(|mut reader| reader.name().is_none()));
    }
}
