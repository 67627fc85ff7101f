//! Contents of a peer's directory.

use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;

/// Prints the entries of a directory, one per line, as text or JSON.
pub(super) fn print(entries: &[saratoga::Listed], json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for entry in entries {
        let is_directory = matches!(
            entry.kind,
            saratoga::packet::EntryKind::Directory | saratoga::packet::EntryKind::SpecialDirectory
        );
        if json {
            let kind = if is_directory { "directory" } else { "file" };
            let name = &entry.name;
            let line = serde_json::json!({
                "name": name, "kind": kind, "bytes": entry.size, "modified": entry.modified,
            });
            writeln!(out, "{line}")?;
        } else {
            let end = if is_directory { "/" } else { "" };
            let (size, name) = (entry.size, entry.name.escape_debug());
            let modified = entry.modified.map_or_else(|| "-".to_owned(), utc);
            writeln!(out, "{size:>12} {modified:20} {name}{end}")?;
        }
    }
    Ok(())
}

/// Time in seconds since 1970 as text in UTC.
fn utc(seconds: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}
