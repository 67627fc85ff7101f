//! Records of files: bytes that SCPS-FP reads or changes individually, and the versions of such a
//! file at either end before and after.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use models::message::{Range, ReadControl, TO_END, UpdateControl};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::text::SpecError;

/// Content of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// Whole file.
    File,
    /// Records of a file.
    Records,
    /// Changes that convert the original to another file.
    Changes,
    /// Request to copy the file at its place.
    Copy,
}

/// Range of bytes of a file: `100-199`, or `5000-` for all bytes from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The first, from 0.
    pub first: u32,
    /// The last; `None`: end of the file.
    pub last: Option<u32>,
}

impl FromStr for Record {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = || {
            let message = "is not a record; a record is like \"100-199\", or \"5000-\" to the end";
            SpecError::invalid(format!("{:?} {message}", wire::excerpt(text)))
        };
        let (first, last) = text.split_once('-').ok_or_else(wrong)?;
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number < TO_END);
        let first = number(first).ok_or_else(wrong)?;
        let last = match last.trim() {
            "" => None,
            last => Some(number(last).filter(|last| *last >= first).ok_or_else(wrong)?),
        };
        Ok(Self { first, last })
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last {
            Some(last) => write!(f, "{}-{last}", self.first),
            None => write!(f, "{}-", self.first),
        }
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl From<Record> for Range {
    fn from(record: Record) -> Self {
        Self { first: record.first, last: record.last.unwrap_or(TO_END) }
    }
}

/// Records as ranges of a control file.
pub(crate) fn ranges(records: &[Record]) -> Vec<Range> {
    records.iter().copied().map(Range::from).collect()
}

/// The name of the file that is copied.
pub(crate) fn original_of(name: &str) -> String {
    format!("{name}.original")
}

/// Stored files before and after a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// In the sender's store, under the file's name.
    pub at_sender: Option<Bytes>,
    /// In the receiver's store, under this name.
    pub at_receiver: Option<(String, Bytes)>,
    /// Expected content at the receiver afterwards.
    pub expected: Bytes,
}

impl Files {
    /// Files of a transfer of this kind, with this name and content.
    pub fn for_content(kind: ContentKind, name: &str, content: &Bytes, records: &[Record]) -> Self {
        let plain =
            Self { at_sender: Some(content.clone()), at_receiver: None, expected: content.clone() };
        match kind {
            ContentKind::File => plain,
            ContentKind::Records => {
                let path = name.to_owned();
                let control = ReadControl { path, forced: false, ranges: ranges(records) };
                Self { expected: control.read(content).0.into(), ..plain }
            }
            ContentKind::Changes => {
                let before = changed(content, records);
                let control = UpdateControl::between(name, &before, name, content);
                let control = control.and_then(|control| control.encode());
                Self {
                    at_sender: Some(control.unwrap_or_default().into()),
                    at_receiver: Some((name.to_owned(), before.into())),
                    ..plain
                }
            }
            ContentKind::Copy => Self {
                at_sender: None,
                at_receiver: Some((original_of(name), content.clone())),
                ..plain
            },
        }
    }
}

/// A file that differs from another in all bytes of some records.
fn changed(content: &[u8], records: &[Record]) -> Vec<u8> {
    let mut before = content.to_vec();
    for record in records {
        let (first, end) =
            (record.first as usize, record.last.map_or(usize::MAX, |l| l as usize + 1));
        let end = end.min(before.len());
        for byte in before.get_mut(first..end).unwrap_or_default() {
            *byte = !*byte;
        }
    }
    before
}

/// Checks the records of a transfer.
///
/// # Errors
///
/// When required records are missing, or given records have no effect.
pub fn check(kind: ContentKind, name: &str, records: Option<&[Record]>) -> Result<(), SpecError> {
    let wrong = |message: &str| Err(SpecError::invalid(message));
    match (kind, records) {
        (ContentKind::Records | ContentKind::Changes, None | Some([])) => {
            wrong("set `records` to the bytes that are read, or that differ, as in [\"0-999\"]")
        }
        (ContentKind::Records, Some(records)) if records.len() > usize::from(u16::MAX) => {
            wrong("a control file has at most 65,535 records")
        }
        (ContentKind::File | ContentKind::Copy, Some(_)) => {
            wrong("`records` is for scps-fp-read and scps-fp-update")
        }
        (ContentKind::Copy, None) if name.contains(' ') => wrong("COPY takes no name with a space"),
        (ContentKind::Records | ContentKind::Changes, Some(_))
        | (ContentKind::File | ContentKind::Copy, None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_written() {
        for text in ["0-0", "100-199", "5000-"] {
            assert_eq!(text.parse::<Record>().unwrap().to_string(), text);
        }
        for text in ["", "5", "-5", "9-8", "1-4294967295", "a-b"] {
            assert!(text.parse::<Record>().is_err(), "{text}");
        }
    }

    #[test]
    fn changed_files_differ_only_in_their_records() {
        let content = Bytes::from(vec![7; 100]);
        let records = ["10-19".parse().unwrap(), "95-".parse().unwrap()];
        let files = Files::for_content(ContentKind::Changes, "f", &content, &records);
        let (name, before) = files.at_receiver.unwrap();
        let differ: Vec<_> = (0..100).filter(|at| before[*at] != content[*at]).collect();
        assert_eq!(differ, (10..20).chain(95..100).collect::<Vec<_>>());
        let control = UpdateControl::decode(&files.at_sender.unwrap()).unwrap();
        assert_eq!((name.as_str(), control.apply(&before).unwrap()), ("f", content.to_vec()));
        let read = Files::for_content(
            ContentKind::Records,
            "f",
            &Bytes::from_static(b"abcdef"),
            &records[..0],
        );
        assert_eq!(read.expected, "");
    }
}
