//! Incomplete files, kept so that a later session resumes them.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::{Area, FileName, Time};
use session::ranges::Ranges;
use session::record::{Reader, Writer};

use super::config::Limits;

const VERSION: u8 = 2;

/// Prefix of the keys of records and of the names of working files.
pub const SPOOL_PREFIX: &str = "sar-";

/// Common prefix of the keys of all records: of files in part, and of received ones.
pub const RECORD_PREFIX: &str = "sar";

/// Incomplete file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partial {
    /// METADATA packet without the session number: a file resumes only if this is identical.
    pub(crate) identity: Bytes,
    /// Local name of the file.
    pub(crate) destination: FileName,
    /// Number of its last session, whose sender may not know of a restart.
    pub(crate) session: u32,
    /// Ranges safely stored.
    pub(crate) ranges: Ranges,
}

/// All incomplete files. A number names the record and the working file.
#[derive(Debug, Default)]
pub(crate) struct Partials {
    /// Files without a session, the oldest first.
    waiting: BTreeMap<u64, Waiting>,
    order: u64,
    /// Bytes stored of these files.
    bytes: u64,
}

/// Incomplete file without a session.
#[derive(Debug)]
struct Waiting {
    number: u32,
    partial: Partial,
    since: Time,
}

impl Partials {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Keeps a file.
    pub(crate) fn keep(&mut self, now: Time, number: u32, partial: Partial) {
        self.order += 1;
        self.bytes += partial.ranges.covered();
        self.waiting.insert(self.order, Waiting { number, partial, since: now });
    }

    /// Drops the oldest file if the files exceed a limit. Returns its number.
    pub(crate) fn drop_surplus(&mut self, now: Time, limits: &Limits) -> Option<u32> {
        let (&order, oldest) = self.waiting.first_key_value()?;
        let is_old = now.since(oldest.since) > limits.partial_age;
        let are_large = self.bytes > limits.partial_bytes && self.waiting.len() > 1;
        let are_many = self.waiting.len() > limits.partials;
        (is_old || are_large || are_many).then(|| self.remove(order)).flatten().map(|it| it.0)
    }

    fn remove(&mut self, order: u64) -> Option<(u32, Partial)> {
        let Waiting { number, partial, .. } = self.waiting.remove(&order)?;
        self.bytes -= partial.ranges.covered();
        Some((number, partial))
    }

    /// Takes the file that would resume.
    pub(crate) fn take(
        &mut self,
        identity: &[u8],
        destination: &FileName,
    ) -> Option<(u32, Partial)> {
        let same =
            |partial: &Partial| partial.identity == identity && partial.destination == *destination;
        let (&order, _) = self.waiting.iter().find(|(_, waiting)| same(&waiting.partial))?;
        self.remove(order)
    }

    /// METADATA, without the session number, of the file whose last session has this number.
    pub(crate) fn identity_of(&self, session: u32) -> Option<&Bytes> {
        let mut partials = self.waiting.values().map(|waiting| &waiting.partial);
        partials.find(|partial| partial.session == session).map(|partial| &partial.identity)
    }

    /// Whether a number is in use.
    pub(crate) fn has(&self, number: u32) -> bool {
        self.waiting.values().any(|waiting| waiting.number == number)
    }
}

/// Name of a record and of a working file.
pub(crate) fn key(number: u32) -> String {
    format!("{SPOOL_PREFIX}{number:08x}")
}

/// Number in such a name.
pub(crate) fn number(key: &str) -> Option<u32> {
    let digits = key.strip_prefix(SPOOL_PREFIX)?;
    u32::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 8)
}

impl Partial {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::new(VERSION);
        out.name(Some(&self.destination));
        out.bytes(&self.identity);
        out.u32(self.session);
        out.ranges(&self.ranges);
        out.finish()
    }

    /// Decodes a record; `None` if it is invalid or damaged.
    pub(crate) fn decode(record: &Bytes) -> Option<Self> {
        let mut fields = Reader::new(VERSION, record)?;
        let destination = fields.name()?.filter(|name| name.area() == Area::Files)?;
        // The record's memory is released.
        let identity = Bytes::copy_from_slice(&fields.bytes()?);
        let session = fields.u32()?;
        let partial = Self { identity, destination, session, ranges: fields.ranges()? };
        fields.is_empty().then_some(partial)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn partial(name: &str) -> Partial {
        let mut ranges = Ranges::new();
        ranges.insert(0, 100);
        ranges.insert(200, 300);
        let destination = FileName::file(name).expect("a plain name");
        Partial { identity: Bytes::from_static(b"metadata"), destination, session: 7, ranges }
    }

    #[test]
    fn records_round_trip_and_damage_is_detected() {
        let bytes = partial("a/b").encode();
        assert_eq!(Partial::decode(&bytes), Some(partial("a/b")));
        for i in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[i] ^= 4;
            assert_eq!(Partial::decode(&damaged.into()), None);
            assert_eq!(Partial::decode(&bytes.slice(..i)), None);
        }
        assert_eq!(number(&key(0xa0b)), Some(0xa0b));
        assert_eq!((number("sar-1"), number("cfdp-00000001")), (None, None));
    }

    #[test]
    fn the_oldest_entry_is_evicted() {
        let mut partials = Partials::default();
        let limits = Limits { partials: 2, ..Limits::default() };
        for (number, name) in [(1, "a"), (2, "b")] {
            partials.keep(Time::ZERO, number, partial(name));
            assert_eq!(partials.drop_surplus(Time::ZERO, &limits), None);
        }
        partials.keep(Time::ZERO, 3, partial("c"));
        assert_eq!(partials.drop_surplus(Time::ZERO, &limits), Some(1));
        assert_eq!(partials.drop_surplus(Time::ZERO, &limits), None);
        assert!(partials.take(b"metadata", &partial("a").destination).is_none());
        assert!(partials.take(b"other", &partial("b").destination).is_none());
        let taken = partials.take(b"metadata", &partial("b").destination);
        assert_eq!(taken.map(|(number, _)| number), Some(2));
        assert!(partials.has(3) && !partials.has(2));
        assert_eq!(partials.len(), 1);
    }

    /// Each of these files has 200 bytes.
    #[test]
    fn incomplete_files_are_bounded_in_bytes_and_age() {
        let day = Duration::from_hours(24);
        let limits = Limits { partial_bytes: 450, partial_age: day, ..Limits::default() };
        let mut partials = Partials::default();
        let mut now = Time::ZERO;
        for (number, name) in [(1, "a"), (2, "b")] {
            partials.keep(now, number, partial(name));
            assert_eq!(partials.drop_surplus(now, &limits), None);
            now += day / 2;
        }
        partials.keep(now, 3, partial("c"));
        assert_eq!(partials.drop_surplus(now, &limits), Some(1));
        assert_eq!(partials.drop_surplus(now, &limits), None);
        now += day * 3 / 4;
        assert_eq!(partials.drop_surplus(now, &limits), Some(2), "it is too old");
        assert_eq!(partials.drop_surplus(now, &limits), None);
        assert!(partials.take(b"metadata", &partial("c").destination).is_some());
        assert_eq!(partials.bytes, 0);
        let limits = Limits { partial_bytes: 100, ..limits };
        partials.keep(now, 4, partial("d"));
        assert_eq!(partials.drop_surplus(now, &limits), None, "the last one may be large");
    }
}
