//! Folders whose files are sent as they come.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use crate::entry::{Entry, Kind, is_below, parent};
use crate::names::{as_path, numbered};

/// Since when the files of a folder have not changed.
#[derive(Debug, Default)]
pub struct Settling {
    seen: BTreeMap<Vec<u8>, (Entry, Instant)>,
}

impl Settling {
    /// Notes the entries of a scan that ended at `now`; returns the files and links that have been
    /// the same for at least `least`, with their folders, in the order of the scan.
    pub fn settled(&mut self, entries: Vec<Entry>, now: Instant, least: Duration) -> Vec<Entry> {
        let mut earlier = std::mem::take(&mut self.seen);
        let mut settled: Vec<Entry> = Vec::new();
        // The content of a folder comes first.
        for entry in entries.into_iter().rev() {
            if entry.kind == Kind::Directory {
                if settled.last().is_some_and(|last| is_below(&last.name, &entry.name)) {
                    settled.push(entry);
                }
                continue;
            }
            let since = match earlier.remove(&entry.name) {
                Some((same, since)) if same == entry => since,
                _ => now,
            };
            if now.saturating_duration_since(since) >= least {
                settled.push(entry.clone());
            }
            self.seen.insert(entry.name.clone(), (entry, since));
        }
        settled.reverse();
        settled
    }
}

/// Moves what has a name below `root` to the same name below its folder `to`, which is made. If
/// that name is taken, it gets the first free number: `NAME.~1~`. No symbolic link leads out of
/// `root`.
///
/// # Errors
/// Errors of the file system.
pub fn move_to(root: &Path, name: &[u8], to: &str) -> io::Result<()> {
    let root = Dir::open_ambient_dir(root, ambient_authority())?;
    let target = [to.as_bytes(), b"/", name].concat();
    let folder = parent(&target).unwrap_or(to.as_bytes());
    root.create_dir_all(as_path(folder))?;
    let mut free = target.clone();
    let mut number = 0;
    while root.symlink_metadata(as_path(&free)).is_ok() {
        number += 1;
        let last = target.get(folder.len() + 1..).unwrap_or_default();
        free = [folder, b"/", &numbered(last, number)].concat();
    }
    root.rename(as_path(name), &root, as_path(&free))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{ScanOptions, scan};

    #[test]
    fn files_settle_when_they_stay_the_same() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("outbox");
        fs::create_dir_all(folder.join("sub/empty")).unwrap();
        fs::write(folder.join("sub/a"), "1").unwrap();
        fs::write(folder.join("b"), "1").unwrap();
        let begin = Instant::now();
        let mut settling = Settling::default();
        let mut at = |millis: u64| {
            let found = scan(&[folder.join(".")], &ScanOptions::default()).unwrap();
            let now = begin + Duration::from_millis(millis);
            let settled = settling.settled(found.entries, now, Duration::from_secs(2));
            settled.iter().map(|e| String::from_utf8(e.name.clone()).unwrap()).collect::<Vec<_>>()
        };
        assert!(at(0).is_empty());
        assert!(at(1999).is_empty());
        fs::write(folder.join("b"), "12").unwrap();
        assert_eq!(at(2000), ["sub", "sub/a"]);
        assert_eq!(at(3999), ["sub", "sub/a"]);
        fs::remove_file(folder.join("sub/a")).unwrap();
        assert_eq!(at(4000), ["b"]);
        // A file that comes back has to settle again.
        fs::write(folder.join("sub/a"), "1").unwrap();
        assert_eq!(at(5000), ["b"]);
        assert_eq!(at(7000), ["b", "sub", "sub/a"]);
    }

    #[test]
    fn nothing_that_was_moved_is_replaced_and_no_link_leads_away() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("outbox");
        fs::create_dir_all(folder.join("sub")).unwrap();
        for content in ["1", "2", "3"] {
            fs::write(folder.join("sub/a"), content).unwrap();
            move_to(&folder, b"sub/a", "sent").unwrap();
        }
        for (name, content) in [("a", "1"), ("a.~1~", "2"), ("a.~2~", "3")] {
            assert_eq!(fs::read_to_string(folder.join("sent/sub").join(name)).unwrap(), content);
        }
        assert!(move_to(&folder, b"sub/a", "sent").is_err(), "it is gone");
        fs::create_dir(place.path().join("other")).unwrap();
        fs::write(place.path().join("other/secret"), "").unwrap();
        std::os::unix::fs::symlink("../other", folder.join("link")).unwrap();
        assert!(move_to(&folder, b"link/secret", "sent").is_err());
        assert!(place.path().join("other/secret").exists());
    }
}
