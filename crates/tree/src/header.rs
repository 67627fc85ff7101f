//! Headers of an entry, as they are in an archive.

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use crate::archive::{BLOCK, BLOCK_LEN};
use crate::entry::{Entry, Extent, Kind, Modified};

/// Largest name and largest link in a header; others are in a record of their own.
const FIELD_MAX: usize = 100;
/// Largest time in a header: eleven octal digits.
const SECS_MAX: i64 = 0o777_7777_7777;
/// Ranges in the header of a sparse file.
const FIRST_EXTENTS: usize = 4;
/// Ranges in each block that continues it.
const MORE_EXTENTS: usize = 21;
/// Name of the member with an entry's records, for programs that do not know them.
const RECORDS_NAME: &[u8] = b"././@PaxHeader";

/// Bytes of an entry's content that are in the archive.
pub(crate) fn stored(entry: &Entry) -> u64 {
    match &entry.kind {
        // Plans are read from disk, so that no sum is trusted.
        Kind::File { extents: Some(extents), .. } => {
            extents.iter().fold(0, |sum, extent| sum.saturating_add(extent.len))
        }
        Kind::File { len, extents: None } => *len,
        Kind::Directory | Kind::Link { .. } => 0,
    }
}

/// Length of [`encode`]'s result.
pub(crate) fn len(entry: &Entry) -> u64 {
    let records = match records(entry).len() as u64 {
        0 => 0,
        len => BLOCK + len.next_multiple_of(BLOCK),
    };
    let map = match &entry.kind {
        Kind::File { len, extents: Some(extents) } => {
            let more = map_len(*len, extents).saturating_sub(FIRST_EXTENTS);
            more.div_ceil(MORE_EXTENTS) as u64 * BLOCK
        }
        Kind::File { .. } | Kind::Directory | Kind::Link { .. } => 0,
    };
    records + BLOCK + map
}

/// Writes all that is before an entry's content: records, header, ranges.
pub(crate) fn encode(entry: &Entry) -> Vec<u8> {
    let mut to = Vec::new();
    let records = records(entry);
    if !records.is_empty() {
        let mut header = Header::new_ustar();
        put(&mut header.as_old_mut().name, RECORDS_NAME);
        header.set_entry_type(EntryType::XHeader);
        header.set_mode(0o644);
        header.set_size(records.len() as u64);
        finish(&mut header, &mut to);
        to.extend_from_slice(&records);
        to.resize(to.len().next_multiple_of(BLOCK_LEN), 0);
    }
    let sparse = matches!(entry.kind, Kind::File { extents: Some(_), .. });
    let mut header = if sparse { Header::new_gnu() } else { Header::new_ustar() };
    put(&mut header.as_old_mut().name, &name(entry));
    header.set_mode(entry.mode & 0o7777);
    header.set_mtime(entry.modified.secs.clamp(0, SECS_MAX).unsigned_abs());
    header.set_size(stored(entry));
    match &entry.kind {
        Kind::File { len, extents: Some(extents) } => {
            header.set_entry_type(EntryType::GNUSparse);
            sparse_map(header, *len, extents, &mut to);
            return to;
        }
        Kind::File { extents: None, .. } => header.set_entry_type(EntryType::Regular),
        Kind::Directory => header.set_entry_type(EntryType::Directory),
        Kind::Link { target } => {
            header.set_entry_type(EntryType::Symlink);
            put(&mut header.as_old_mut().linkname, target);
        }
    }
    finish(&mut header, &mut to);
    to
}

fn finish(header: &mut Header, to: &mut Vec<u8>) {
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    to.extend_from_slice(header.as_bytes());
}

/// Name in an archive: that of a folder ends in `/`.
fn name(entry: &Entry) -> Vec<u8> {
    let mut name = entry.name.clone();
    if entry.kind == Kind::Directory {
        name.push(b'/');
    }
    name
}

/// Copies as much as there is room for.
fn put(field: &mut [u8], value: &[u8]) {
    for (to, from) in field.iter_mut().zip(value) {
        *to = *from;
    }
}

/// Records of what a header has no room for (POSIX pax, "pax Extended Header").
fn records(entry: &Entry) -> Vec<u8> {
    let mut to = Vec::new();
    let name = name(entry);
    let target = match &entry.kind {
        Kind::Link { target } => target.as_slice(),
        Kind::File { .. } | Kind::Directory => b"",
    };
    let name_fits = fits(&name);
    let target_fits = fits(target);
    if !name_fits && !is_text(&name) || !target_fits && !is_text(target) {
        record(&mut to, "hdrcharset", b"BINARY");
    }
    if !name_fits {
        record(&mut to, "path", &name);
    }
    if !target_fits {
        record(&mut to, "linkpath", target);
    }
    let Modified { secs, nanos } = entry.modified;
    if nanos != 0 || !(0..=SECS_MAX).contains(&secs) {
        record(&mut to, "mtime", decimal(entry.modified).as_bytes());
    }
    to
}

/// Whether a header has room for a name. Records are UTF-8, so that a name which is in no known
/// character set is in the header if it can.
fn fits(name: &[u8]) -> bool {
    name.len() <= FIELD_MAX && (name.is_ascii() || !is_text(name))
}

fn is_text(name: &[u8]) -> bool {
    str::from_utf8(name).is_ok()
}

/// Appends `LENGTH KEY=VALUE\n`, whose length includes its own digits.
fn record(to: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + " =\n".len();
    let mut len = rest;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    to.extend_from_slice(format!("{len} {key}=").as_bytes());
    to.extend_from_slice(value);
    to.push(b'\n');
}

/// Seconds with as many decimals as are needed. The sign is that of the whole: -1.5 s is
/// `secs` -2 and `nanos` 500,000,000.
fn decimal(Modified { secs, nanos }: Modified) -> String {
    if nanos == 0 {
        return secs.to_string();
    }
    let (sign, secs, nanos) = if secs < 0 {
        ("-", (secs + 1).unsigned_abs(), 1_000_000_000_u32.saturating_sub(nanos))
    } else {
        ("", secs.unsigned_abs(), nanos)
    };
    format!("{sign}{secs}.{nanos:09}").trim_end_matches('0').to_owned()
}

/// Number of ranges that the archive lists. A last hole ends with an empty range, as GNU tar
/// writes it.
fn map_len(len: u64, extents: &[Extent]) -> usize {
    let ends = extents.last().is_some_and(|last| last.end() >= len);
    extents.len() + usize::from(!ends)
}

/// Appends the header of a sparse file and the blocks that continue it.
fn sparse_map(mut header: Header, len: u64, extents: &[Extent], to: &mut Vec<u8>) {
    let last = (map_len(len, extents) > extents.len()).then_some(Extent { offset: len, len: 0 });
    let mut map = extents.iter().copied().chain(last).peekable();
    if let Some(gnu) = header.as_gnu_mut() {
        gnu.set_real_size(len);
        fill(&mut gnu.sparse, &mut map);
        gnu.set_is_extended(map.peek().is_some());
    }
    finish(&mut header, to);
    while map.peek().is_some() {
        let mut more = GnuExtSparseHeader::new();
        fill(more.sparse_mut(), &mut map);
        more.set_is_extended(map.peek().is_some());
        to.extend_from_slice(more.as_bytes());
    }
}

fn fill(slots: &mut [GnuSparseHeader], map: &mut impl Iterator<Item = Extent>) {
    for (slot, extent) in slots.iter_mut().zip(map) {
        slot.set_offset(extent.offset);
        slot.set_length(extent.len);
    }
}
