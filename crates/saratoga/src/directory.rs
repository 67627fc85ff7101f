//! Directory as a file: concatenated entries (draft-wood-tsvwg-saratoga-22 §5).

use bytes::Bytes;
use engine::DirEntry;

use super::indication::Listed;
use super::times;
use crate::packet::{Entry, EntryKind, Width};

/// Encodes a directory, without files too long for the `widest` descriptor (§6.1.2); `None` if it
/// exceeds `max` bytes. `udp_lite` states whether files may be fetched by UDP-Lite.
pub(crate) fn encode(
    entries: &[DirEntry],
    widest: Width,
    max: u64,
    udp_lite: bool,
) -> Option<Bytes> {
    let mut out = Vec::new();
    for entry in entries {
        let (kind, size) = match entry.kind {
            engine::EntryKind::File(size) => (EntryKind::File, size),
            engine::EntryKind::Directory => (EntryKind::Directory, 0),
        };
        let path = entry.name.as_bytes();
        let width = Width::fitting(size);
        if width > widest {
            continue;
        }
        let modified = times::to_wire(entry.modified);
        let entry = Entry { kind, udp_lite, width, size, modified, created: 0, path };
        // A name without an encoding cannot be requested either.
        let _ = entry.append_to(&mut out);
        if out.len() as u64 > max {
            return None;
        }
    }
    Some(out.into())
}

/// Decodes the entries of a directory; `None` if it is invalid.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Listed>> {
    let entries = Entry::decode_record(bytes).ok()?;
    let listed = |entry: &Entry<'_>| Listed {
        name: String::from_utf8_lossy(entry.path).into_owned(),
        kind: entry.kind,
        size: entry.size,
        modified: times::from_wire(entry.modified),
    };
    Some(entries.iter().map(listed).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_round_trip() {
        let entries = [
            DirEntry {
                name: "a".into(),
                kind: engine::EntryKind::File(70_000),
                modified: Some(1_700_000_000),
            },
            DirEntry { name: "b".into(), kind: engine::EntryKind::Directory, modified: None },
        ];
        let record = encode(&entries, Width::W32, 1000, false).expect("it is short");
        let listed = decode(&record).expect("it is a record");
        assert_eq!(listed.len(), 2);
        assert_eq!(
            (&*listed[0].name, listed[0].kind, listed[0].size),
            ("a", EntryKind::File, 70_000)
        );
        assert_eq!((listed[0].modified, listed[1].modified), (Some(1_700_000_000), None));
        assert_eq!((&*listed[1].name, listed[1].kind), ("b", EntryKind::Directory));
        assert!(encode(&entries, Width::W32, 20, false).is_none());
        assert!(decode(&record[..record.len() - 1]).is_none());
        assert_eq!(decode(b""), Some(Vec::new()));
    }
}
