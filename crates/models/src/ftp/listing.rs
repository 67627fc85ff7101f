//! Directory listings in the format of `ls -l`, which clients parse.

use engine::{DirEntry, EntryKind};
use time::OffsetDateTime;

/// Lines of a directory, or of the entry of this name, with details or without.
pub(super) fn lines(entries: &[DirEntry], details: bool, only: Option<&str>) -> String {
    let mut text = String::new();
    for entry in entries.iter().filter(|entry| only.is_none_or(|only| entry.name == only)) {
        if details {
            text.push_str(&line(entry));
        } else {
            text.push_str(&entry.name);
        }
        text.push_str("\r\n");
    }
    text
}

/// One line, without its terminator.
fn line(entry: &DirEntry) -> String {
    let (kind, links, len) = match entry.kind {
        EntryKind::File(len) => ("-rw-r--r--", 1, len),
        EntryKind::Directory => ("drwxr-xr-x", 2, 0),
    };
    let day = date_at(entry.modified.unwrap_or_default()).map_or_else(
        || "Jan  1  1970".to_owned(),
        |when| {
            let month = &when.month().to_string()[..3];
            format!("{month} {:2}  {:4}", when.day(), when.year())
        },
    );
    format!("{kind} {links:4} ftp      ftp      {len:12} {day} {}", entry.name)
}

/// Time in MDTM format: `YYYYMMDDhhmmss` (RFC 3659 §2.3).
pub(super) fn time_value(seconds: u64) -> Option<String> {
    let when = date_at(seconds)?;
    let (month, day) = (u8::from(when.month()), when.day());
    let (hour, minute, second) = when.to_hms();
    Some(format!("{:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}", when.year()))
}

fn date_at(seconds: u64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_entries_have_the_format_clients_expect() {
        // date -u -d @1163894399: Sat Nov 18 23:59:59 UTC 2006.
        assert_eq!(time_value(1_163_894_399).as_deref(), Some("20061118235959"));
        assert_eq!(time_value(u64::MAX), None);
        let kind = EntryKind::File(1_000_000);
        let entry = DirEntry { name: "a b.txt".into(), kind, modified: Some(1_163_894_399) };
        let line = line(&entry);
        assert_eq!(line, "-rw-r--r--    1 ftp      ftp           1000000 Nov 18  2006 a b.txt");
    }
}
