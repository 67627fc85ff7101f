//! Control files of SCPS-FP: byte ranges to read from a file (READ), and changes of a file (UPDT).
//!
//! | READ | |
//! |---|---|
//! | path LF | the file |
//! | `Y` or `N` LF | whether missing ranges are omitted |
//! | count, 2 bytes; LF | number of ranges |
//! | first `-` last LF | each range, both inclusive; 4294967295 is the end |
//!
//! | UPDT | |
//! |---|---|
//! | path LF, path LF | the original, and the file to create from it |
//! | CRC LF | of the original, decimal |
//! | command, offset (4), length (2), bytes | each change, see [`Change`] |

use std::collections::BTreeMap;

use wire::DecodeError;

/// Name under which control files are stored.
pub const CONTROL_FILE: &str = "roSCPSFP";

/// Offset that means the end of the file.
pub const TO_END: u32 = u32::MAX;

/// Block length for finding matches between the two files, in bytes.
const BLOCK: usize = 16;

/// CRC of SCPS-FP: the CRC of IEEE 802.3 with an initial value of zero.
#[derive(Clone, Debug)]
pub struct Crc(crc32fast::Hasher);

impl Default for Crc {
    fn default() -> Self {
        // The initial remainder is the complement of this argument.
        Self(crc32fast::Hasher::new_with_initial(u32::MAX))
    }
}

impl Crc {
    /// Returns the CRC of `bytes`.
    #[must_use]
    pub fn compute(bytes: &[u8]) -> u32 {
        let mut crc = Self::default();
        crc.update(bytes);
        crc.value()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the CRC so far.
    #[must_use]
    pub fn value(&self) -> u32 {
        self.0.clone().finalize()
    }
}

/// Range of a file's bytes, both ends inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub first: u32,
    /// Last byte, or [`TO_END`].
    pub last: u32,
}

/// Content of READ's control file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadControl {
    /// Path of the file.
    pub path: String,
    /// Whether ranges missing from the file are omitted.
    pub forced: bool,
    /// Ranges, in the order in which they are sent.
    pub ranges: Vec<Range>,
}

impl ReadControl {
    /// Decodes a control file.
    ///
    /// # Errors
    /// The bytes are not a control file.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut at = 0;
        let path = text(bytes, &mut at)?.to_owned();
        let forced = match text(bytes, &mut at)? {
            "Y" => true,
            "N" => false,
            _ => return Err(DecodeError::invalid(at, "neither Y nor N")),
        };
        // The two bytes of the count may hold an LF, for instance for ten ranges.
        let Some([high, low, b'\n']) = bytes.get(at..at + 3) else {
            return Err(DecodeError::invalid(at, "the count of ranges"));
        };
        at += 3;
        let count = u16::from_be_bytes([*high, *low]);
        let mut ranges = Vec::with_capacity(usize::from(count).min(bytes.len() / 4));
        for _ in 0..count {
            let line_at = at;
            let line = text(bytes, &mut at)?;
            let ends = line.split_once('-');
            let number = |text: &str| text.parse::<u32>().ok().filter(|_| !text.starts_with('+'));
            let ends = ends.and_then(|(first, last)| Some((number(first)?, number(last)?)));
            let Some((first, last)) = ends.filter(|(first, last)| first <= last) else {
                return Err(DecodeError::invalid(line_at, "a range is first-last"));
            };
            ranges.push(Range { first, last });
        }
        if at != bytes.len() {
            return Err(DecodeError::invalid(at, "more ranges than the count"));
        }
        Ok(Self { path, forced, ranges })
    }

    /// Encodes the control file; `None` if there are too many ranges to count, or the path has a
    /// line break.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let count = u16::try_from(self.ranges.len()).ok()?;
        let mut file = named(&self.path)?;
        file.extend_from_slice(if self.forced { b"Y\n" } else { b"N\n" });
        file.extend_from_slice(&count.to_be_bytes());
        file.push(b'\n');
        for Range { first, last } in &self.ranges {
            file.extend_from_slice(format!("{first}-{last}\n").as_bytes());
        }
        Some(file)
    }

    /// Returns the bytes of a file that lie in the ranges, and whether the file covers all ranges.
    #[must_use]
    pub fn read(&self, file: &[u8]) -> (Vec<u8>, bool) {
        let mut read = Vec::new();
        let mut has_all = true;
        for Range { first, last } in &self.ranges {
            let first = *first as usize;
            let end = if *last == TO_END { file.len() } else { *last as usize + 1 };
            has_all &= first < file.len() && end <= file.len();
            read.extend_from_slice(file.get(first..end.min(file.len())).unwrap_or_default());
        }
        (read, has_all)
    }
}

/// One change. Offsets refer to the original, and ascend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `d`: deletes bytes.
    Delete {
        /// First byte.
        offset: u32,
        /// Number of bytes.
        length: u16,
    },
    /// `a`: inserts bytes after the one at the offset.
    Append {
        /// Offset.
        offset: u32,
        /// Inserted bytes.
        bytes: Vec<u8>,
    },
    /// `i`: inserts bytes before the one at the offset, or at the end.
    Insert {
        /// Offset.
        offset: u32,
        /// Inserted bytes.
        bytes: Vec<u8>,
    },
    /// `w`: overwrites as many bytes.
    Overwrite {
        /// First byte.
        offset: u32,
        /// New bytes.
        bytes: Vec<u8>,
    },
}

impl Change {
    /// Returns the end of the original's bytes before it, the number of original bytes it replaces,
    /// and the new bytes.
    fn parts(&self) -> (u64, u64, &[u8]) {
        match self {
            Self::Delete { offset, length } => ((*offset).into(), (*length).into(), &[]),
            Self::Append { offset, bytes } => (u64::from(*offset) + 1, 0, bytes),
            Self::Insert { offset, bytes } => ((*offset).into(), 0, bytes),
            Self::Overwrite { offset, bytes } => ((*offset).into(), bytes.len() as u64, bytes),
        }
    }
}

/// Content of UPDT's control file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateControl {
    /// Path of the original.
    pub original: String,
    /// Path of the new file; may be the original's.
    pub new: String,
    /// [`Crc`] of the original.
    pub crc: u32,
    /// Changes.
    pub changes: Vec<Change>,
}

/// Reason why the changes do not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// The original has another CRC.
    #[error("its CRC is {0}")]
    Crc(u32),
    /// The change of this index goes back, or beyond the original's end.
    #[error("change {0} does not fit")]
    Change(usize),
}

impl UpdateControl {
    /// Decodes a control file.
    ///
    /// # Errors
    /// The bytes are not a control file.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut at = 0;
        let original = text(bytes, &mut at)?.to_owned();
        let new = text(bytes, &mut at)?.to_owned();
        let crc_at = at;
        let crc = text(bytes, &mut at)?;
        // The CRC may be written as a signed number.
        let crc = crc.parse::<u32>().or_else(|_| crc.parse::<i32>().map(i32::cast_unsigned));
        let crc = crc.map_err(|_| DecodeError::invalid(crc_at, "a CRC is a number"))?;
        let mut changes = Vec::new();
        while at < bytes.len() {
            let Some(&[command, a, b, c, d, high, low]) = bytes[at..].first_chunk() else {
                return Err(DecodeError::invalid(at, "a change that is cut off"));
            };
            let (offset, length) =
                (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([high, low]));
            let has_bytes = command != b'd';
            let end = at + 7 + if has_bytes { usize::from(length) } else { 0 };
            let bytes = bytes.get(at + 7..end).map(<[u8]>::to_vec);
            let bytes = bytes.ok_or_else(|| DecodeError::invalid(at, "bytes that are cut off"))?;
            changes.push(match command {
                b'd' => Change::Delete { offset, length },
                b'a' => Change::Append { offset, bytes },
                b'i' => Change::Insert { offset, bytes },
                b'w' => Change::Overwrite { offset, bytes },
                _ => return Err(DecodeError::invalid(at, "a change is d, a, i or w")),
            });
            at = end;
        }
        Ok(Self { original, new, crc, changes })
    }

    /// Encodes the control file; `None` if a change is too long for its length field, or a path has
    /// a line break.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut file = named(&self.original)?;
        file.extend_from_slice(&named(&self.new)?);
        file.extend_from_slice(format!("{}\n", self.crc).as_bytes());
        for change in &self.changes {
            let (command, offset, length, bytes): (_, _, _, &[u8]) = match change {
                Change::Delete { offset, length } => (b'd', offset, usize::from(*length), &[]),
                Change::Append { offset, bytes } => (b'a', offset, bytes.len(), bytes),
                Change::Insert { offset, bytes } => (b'i', offset, bytes.len(), bytes),
                Change::Overwrite { offset, bytes } => (b'w', offset, bytes.len(), bytes),
            };
            file.push(command);
            file.extend_from_slice(&offset.to_be_bytes());
            file.extend_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
            file.extend_from_slice(bytes);
        }
        Some(file)
    }

    /// Returns the original with the changes applied.
    ///
    /// # Errors
    /// When the file is another original, or a change does not fit.
    pub fn apply(&self, original: &[u8]) -> Result<Vec<u8>, UpdateError> {
        let crc = Crc::compute(original);
        if crc != self.crc {
            return Err(UpdateError::Crc(crc));
        }
        let mut new = Vec::with_capacity(original.len());
        let mut copied = 0;
        for (index, change) in self.changes.iter().enumerate() {
            let wrong = UpdateError::Change(index);
            let (from, taken, bytes) = change.parts();
            let from = usize::try_from(from).map_err(|_| wrong)?;
            new.extend_from_slice(original.get(copied..from).ok_or(wrong)?);
            new.extend_from_slice(bytes);
            copied = from + taken as usize;
            if copied > original.len() {
                return Err(wrong);
            }
        }
        new.extend_from_slice(&original[copied..]);
        Ok(new)
    }

    /// Returns the changes from the file `original` to the file `new`; `None` if a file is too
    /// long for their offsets.
    #[must_use]
    pub fn between(original: &str, before: &[u8], new: &str, after: &[u8]) -> Option<Self> {
        u32::try_from(before.len()).ok()?;
        Some(Self {
            original: original.to_owned(),
            new: new.to_owned(),
            crc: Crc::compute(before),
            changes: changes(before, after),
        })
    }
}

/// Returns the changes from `old` to `new`. Keeps the bytes that both share in the same order, as
/// far as whole blocks match.
fn changes(old: &[u8], new: &[u8]) -> Vec<Change> {
    let mut places = BTreeMap::<&[u8], Vec<usize>>::new();
    for (index, block) in old.chunks_exact(BLOCK).enumerate() {
        places.entry(block).or_default().push(index * BLOCK);
    }
    let (mut changes, mut old_at, mut new_at) = (Vec::new(), 0, 0);
    let mut at = 0;
    while at < new.len() {
        // A run of unmoved bytes stays, even if it is not a whole block.
        let stays = at == new_at && old.get(old_at) == Some(&new[at]);
        let block = new.get(at..at + BLOCK).and_then(|block| places.get(block));
        let ahead = |places: &Vec<usize>| {
            let next = places.partition_point(|place| *place < old_at);
            places.get(next).copied()
        };
        let found = if stays { Some(old_at) } else { block.and_then(ahead) };
        let Some(place) = found else {
            at += 1;
            continue;
        };
        // Extends the match to equal bytes before the block.
        let before = |n: &usize| old[place - n] == new[at - n];
        let most = (place - old_at).min(at - new_at);
        let back = (1..=most).take_while(before).count();
        change(&mut changes, old_at..place - back, &new[new_at..at - back]);
        let same = old[place..].iter().zip(&new[at..]).take_while(|(old, new)| old == new).count();
        (old_at, new_at) = (place + same, at + same);
        at = new_at;
    }
    change(&mut changes, old_at..old.len(), &new[new_at..]);
    changes
}

/// Replaces bytes of the original, in pieces that fit the length field.
fn change(changes: &mut Vec<Change>, old: std::ops::Range<usize>, new: &[u8]) {
    const MOST: usize = u16::MAX as usize;
    let both = old.len().min(new.len());
    let (over, rest) = new.split_at(both);
    for (index, bytes) in over.chunks(MOST).enumerate() {
        let offset = (old.start + index * MOST) as u32;
        changes.push(Change::Overwrite { offset, bytes: bytes.to_vec() });
    }
    for bytes in rest.chunks(MOST) {
        changes.push(Change::Insert { offset: old.end as u32, bytes: bytes.to_vec() });
    }
    let mut start = old.start + both;
    while start < old.end {
        let length = (old.end - start).min(MOST);
        changes.push(Change::Delete { offset: start as u32, length: length as u16 });
        start += length;
    }
}

/// Returns the next line without its end.
fn text<'a>(bytes: &'a [u8], at: &mut usize) -> Result<&'a str, DecodeError> {
    let start = *at;
    let rest = &bytes[start..];
    let end = rest.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or_else(|| DecodeError::invalid(start, "a line without an end"))?;
    *at = start + end + 1;
    std::str::from_utf8(&rest[..end]).map_err(|_| DecodeError::invalid(start, "not UTF-8"))
}

/// Returns a path as a line.
fn named(path: &str) -> Option<Vec<u8>> {
    if path.contains('\n') {
        return None;
    }
    Some([path.as_bytes(), b"\n"].concat())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_crc_begins_with_zero() {
        // The register stays 0 for zeros, and the result is its complement, as in the reference
        // implementation of SCPS-FP.
        assert_eq!(Crc::compute(b""), u32::MAX);
        assert_eq!(Crc::compute(&[0; 9]), u32::MAX);
        // The remainder of the polynomial alone is its table's entry 128, 0xEDB88320 for 0x80.
        assert_eq!(Crc::compute(&[0x80]), !0xedb8_8320);
        let mut crc = Crc::default();
        crc.update(b"1234");
        crc.update(b"56789");
        assert_eq!(crc.value(), Crc::compute(b"123456789"));
        assert_ne!(crc.value(), 0xcbf4_3926, "which is that of IEEE 802.3");
    }

    #[test]
    fn a_read_control_file_matches_the_reference() {
        let control = ReadControl {
            path: "a/b".to_owned(),
            forced: true,
            ranges: vec![Range { first: 0, last: 9 }, Range { first: 100, last: TO_END }],
        };
        let file = control.encode().unwrap();
        assert_eq!(file, b"a/b\nY\n\0\x02\n0-9\n100-4294967295\n");
        assert_eq!(ReadControl::decode(&file).unwrap(), control);
    }

    #[test]
    fn counts_equal_to_a_line_feed_are_parsed() {
        let ranges: Vec<_> = (0..10).map(|at| Range { first: at * 7, last: at * 7 + 3 }).collect();
        let control = ReadControl { path: "f".to_owned(), forced: false, ranges };
        let file = control.encode().unwrap();
        assert_eq!(&file[..7], b"f\nN\n\0\n\n");
        assert_eq!(ReadControl::decode(&file).unwrap(), control);
        // 2,570 is 0x0a0a.
        let ranges = vec![Range { first: 1, last: 2 }; 2570];
        let control = ReadControl { ranges, ..control };
        assert_eq!(ReadControl::decode(&control.encode().unwrap()).unwrap(), control);
        let many = vec![Range { first: 1, last: 2 }; 70_000];
        assert_eq!(ReadControl { ranges: many, ..control }.encode(), None);
    }

    #[test]
    fn ranges_are_read_up_to_the_end_of_the_file() {
        let read = |ranges: &[(u32, u32)]| {
            let ranges = ranges.iter().map(|(first, last)| Range { first: *first, last: *last });
            let ranges = ranges.collect();
            ReadControl { path: String::new(), forced: true, ranges }.read(b"0123456789")
        };
        assert_eq!(read(&[(2, 4), (0, 0), (8, TO_END)]), (b"234089".to_vec(), true));
        assert_eq!(read(&[(8, 10)]), (b"89".to_vec(), false));
        assert_eq!(read(&[(10, 10), (9, 9)]), (b"9".to_vec(), false));
        assert_eq!(read(&[(10, TO_END)]), (Vec::new(), false));
    }

    #[test]
    fn an_updt_control_file_matches_the_reference() {
        let control = UpdateControl {
            original: "old".to_owned(),
            new: "new".to_owned(),
            crc: Crc::compute(b"0123456789"),
            changes: vec![
                Change::Delete { offset: 0, length: 2 },
                Change::Append { offset: 3, bytes: b"X".to_vec() },
                Change::Insert { offset: 5, bytes: b"\n".to_vec() },
                Change::Overwrite { offset: 6, bytes: b"abc".to_vec() },
            ],
        };
        assert_eq!(control.apply(b"0123456789").unwrap(), b"23X4\n5abc9");
        let file = control.encode().unwrap();
        let crc = control.crc.to_string();
        let mut expected = format!("old\nnew\n{crc}\n").into_bytes();
        expected.extend_from_slice(b"d\0\0\0\0\0\x02a\0\0\0\x03\0\x01Xi\0\0\0\x05\0\x01\n");
        expected.extend_from_slice(b"w\0\0\0\x06\0\x03abc");
        assert_eq!(file, expected);
        assert_eq!(UpdateControl::decode(&file).unwrap(), control);
        // A CRC with its highest bit, as a signed number.
        let signed = format!("a\nb\n{}\n", u32::MAX.cast_signed());
        assert_eq!(UpdateControl::decode(signed.as_bytes()).unwrap().crc, u32::MAX);
    }

    #[test]
    fn wrong_originals_and_backward_changes_are_refused() {
        let of = |changes: Vec<Change>| UpdateControl {
            original: "o".to_owned(),
            new: "n".to_owned(),
            crc: Crc::compute(b"0123"),
            changes,
        };
        assert!(matches!(of(vec![]).apply(b"0124"), Err(UpdateError::Crc(_))));
        let delete = |offset, length| Change::Delete { offset, length };
        let back = of(vec![delete(2, 1), delete(1, 1)]);
        assert_eq!(back.apply(b"0123"), Err(UpdateError::Change(1)));
        assert_eq!(of(vec![delete(3, 2)]).apply(b"0123"), Err(UpdateError::Change(0)));
        let far = Change::Append { offset: 4, bytes: b"x".to_vec() };
        assert_eq!(of(vec![far]).apply(b"0123"), Err(UpdateError::Change(0)));
        let end = Change::Insert { offset: 4, bytes: b"x".to_vec() };
        assert_eq!(of(vec![end]).apply(b"0123").unwrap(), b"0123x");
    }

    #[test]
    fn a_small_change_of_a_large_file_is_small() {
        let old: Vec<u8> =
            (0..100_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8 ^ (at >> 3) as u8).collect();
        let mut new = old.clone();
        new.splice(50_000..50_010, *b"a few bytes that were not there");
        new.remove(70_000);
        let control = UpdateControl::between("o", &old, "n", &new).unwrap();
        assert!(control.apply(&old).unwrap() == new);
        assert!(control.encode().unwrap().len() < 500, "{:?}", control.changes.len());
    }

    fn edits() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let old = proptest::collection::vec(0..4u8, 0..300);
        let edit =
            (any::<prop::sample::Index>(), 0..40usize, proptest::collection::vec(0..4u8, 0..40));
        (old, proptest::collection::vec(edit, 0..5)).prop_map(|(old, edits)| {
            let mut new = old.clone();
            for (place, taken, bytes) in edits {
                let start = place.index(new.len() + 1);
                let end = (start + taken).min(new.len());
                new.splice(start..end, bytes);
            }
            (old, new)
        })
    }

    proptest! {
        #[test]
        fn changes_between_two_files_turn_one_into_the_other((old, new) in edits()) {
            let control = UpdateControl::between("o", &old, "n", &new).unwrap();
            prop_assert_eq!(control.apply(&old).unwrap(), new);
            let file = control.encode().unwrap();
            prop_assert_eq!(UpdateControl::decode(&file).unwrap(), control);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(control) = ReadControl::decode(&bytes) {
                prop_assert_eq!(ReadControl::decode(&control.encode().unwrap()).unwrap(), control);
            }
            if let Ok(control) = UpdateControl::decode(&bytes) {
                prop_assert_eq!(UpdateControl::decode(&control.encode().unwrap()).unwrap(), control);
            }
        }
    }
}
