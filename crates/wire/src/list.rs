//! Lists in messages: entries to be written, or received bytes that the decoder has validated.

use std::fmt;

use crate::cursor::{Reader, Writer};
use crate::error::{DecodeError, EncodeError};

/// Entry of a [`List`] that can be read. `L` is what the bytes of a list do not show, such as the
/// width of its numbers.
pub trait Entry<'a, L = ()>: Copy + PartialEq + fmt::Debug {
    /// Reads the next entry.
    ///
    /// # Errors
    /// The bytes do not start with an entry.
    fn read(reader: &mut Reader<'a>, layout: L) -> Result<Self, DecodeError>;
}

/// Entry of a [`List`] that can be written without a layout.
pub trait Field {
    /// Length on the wire, in bytes.
    fn encoded_len(&self) -> usize;

    /// Writes the entry.
    ///
    /// # Errors
    /// There is no room for it, or a value does not fit its field.
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError>;
}

/// Entries of a message. Lists are equal if their entries are.
#[derive(Clone, Copy)]
pub struct List<'a, T, L = ()>(Source<'a, T, L>);

#[derive(Clone, Copy)]
enum Source<'a, T, L> {
    Fields(&'a [T]),
    Bytes { bytes: &'a [u8], count: usize, layout: L },
}

impl<'a, T, L> List<'a, T, L> {
    /// An empty list.
    pub const NONE: Self = Self(Source::Fields(&[]));

    /// Creates a list of entries to send, in this order.
    #[must_use]
    pub const fn new(fields: &'a [T]) -> Self {
        Self(Source::Fields(fields))
    }

    /// Creates a list of `count` entries from bytes in which the decoder has read them.
    #[must_use]
    pub const fn validated(bytes: &'a [u8], count: usize, layout: L) -> Self {
        Self(Source::Bytes { bytes, count, layout })
    }

    /// Number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        match &self.0 {
            Source::Fields(fields) => fields.len(),
            Source::Bytes { count, .. } => *count,
        }
    }

    /// Whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Received bytes; `None` for entries to be sent.
    #[must_use]
    pub const fn bytes(&self) -> Option<&'a [u8]> {
        match &self.0 {
            Source::Fields(_) => None,
            Source::Bytes { bytes, .. } => Some(bytes),
        }
    }
}

impl<'a, L: Copy, T: Entry<'a, L>> List<'a, T, L> {
    /// Returns the entries in order.
    pub const fn iter(&self) -> Iter<'a, T, L> {
        Iter(self.0)
    }

    /// Reads `count` entries.
    ///
    /// # Errors
    /// The bytes do not start with that many entries.
    pub fn read(reader: &mut Reader<'a>, count: usize, layout: L) -> Result<Self, DecodeError> {
        let mut walk = *reader;
        for _ in 0..count {
            T::read(&mut walk, layout)?;
        }
        let bytes = reader.take(walk.offset() - reader.offset())?;
        Ok(Self::validated(bytes, count, layout))
    }

    /// Reads entries up to the end.
    ///
    /// # Errors
    /// The bytes are not a sequence of entries.
    pub fn read_all(reader: &mut Reader<'a>, layout: L) -> Result<Self, DecodeError> {
        let mut walk = *reader;
        let mut count = 0;
        while !walk.is_empty() {
            T::read(&mut walk, layout)?;
            count += 1;
        }
        Ok(Self::validated(reader.rest(), count, layout))
    }
}

impl<'a, L: Copy, T: Entry<'a, L> + Field> List<'a, T, L> {
    /// Length on the wire, in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.iter().map(|entry| entry.encoded_len()).sum()
    }

    /// Writes the entries.
    ///
    /// # Errors
    /// There is no room for them, or a value does not fit its field.
    pub fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        self.iter().try_for_each(|entry| entry.write(writer))
    }
}

impl<'a, L: Copy, T: Entry<'a, L>> PartialEq for List<'a, T, L> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, L: Copy, T: Entry<'a, L>> Eq for List<'a, T, L> {}

impl<'a, L: Copy, T: Entry<'a, L>> fmt::Debug for List<'a, T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, L: Copy, T: Entry<'a, L>> IntoIterator for List<'a, T, L> {
    type Item = T;
    type IntoIter = Iter<'a, T, L>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, L: Copy, T: Entry<'a, L>> IntoIterator for &List<'a, T, L> {
    type Item = T;
    type IntoIter = Iter<'a, T, L>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Iterator over the entries of a [`List`].
#[derive(Clone)]
pub struct Iter<'a, T, L = ()>(Source<'a, T, L>);

impl<'a, L: Copy, T: Entry<'a, L>> Iterator for Iter<'a, T, L> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        match &mut self.0 {
            Source::Fields(fields) => {
                let (first, rest) = fields.split_first()?;
                *fields = rest;
                Some(*first)
            }
            Source::Bytes { bytes, count, layout } => {
                *count = count.checked_sub(1)?;
                let mut reader = Reader::new(bytes);
                let entry = T::read(&mut reader, *layout).ok()?;
                *bytes = reader.left();
                Some(entry)
            }
        }
    }
}

impl<'a, L: Copy, T: Entry<'a, L>> fmt::Debug for Iter<'a, T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl Entry<'_> for u16 {
    fn read(reader: &mut Reader<'_>, (): ()) -> Result<Self, DecodeError> {
        reader.u16()
    }
}

impl Field for u16 {
    fn encoded_len(&self) -> usize {
        2
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.put(&self.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_lists_equal_written_ones() {
        let list = List::<u16>::new(&[1, 0x203]);
        let mut out = [0xa5; 4];
        list.write(&mut Writer::new(&mut out)).expect("there is room");
        assert_eq!((out, list.encoded_len()), ([0, 1, 2, 3], 4));
        let read = List::read_all(&mut Reader::new(&out), ()).expect("two entries");
        assert_eq!((read, read.len(), read.bytes()), (list, 2, Some(&out[..])));
        let mut reader = Reader::new(&out);
        assert_eq!(List::read(&mut reader, 1, ()), Ok(List::new(&[1])));
        assert_eq!(reader.left(), [2, 3]);
        assert!(List::<u16>::read_all(&mut Reader::new(&out[..3]), ()).is_err());
        assert!(List::<u16>::read(&mut Reader::new(&out), 3, ()).is_err());
    }
}
