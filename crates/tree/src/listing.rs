//! Lists of what a receiver has, by which a sender leaves out what is there already.
//!
//! A list is a text of JSON objects, one a line: first its version and the receiver's umask, then
//! each file, folder and link below a name, with digests of the files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, Read as _, Write};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, SeekFrom, fstat, readlinkat, seek, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::entry::{Entry, Kind, Modified, bytes};
use crate::extents;
use crate::names::{is_numbered, is_reserved};
use crate::unpack::content::{is_zero, open};
use crate::unpack::{Attributes, granted};

/// Ending of the name of every list.
const ENDING: &str = ".slowlight.list";
const VERSION: u32 = 1;
/// Longest name or target.
const NAME_MAX: usize = 4096;
/// Largest number of bytes of a line: a name and a target, as numbers.
const LINE_MAX: u64 = 64 * 1024;
/// Largest number of entries, as in a pack.
const ENTRIES_MAX: usize = 1 << 20;
/// Unit of a digest. Units of zeros do not count, so that holes are not read.
const CHUNK: usize = 64 * 1024;

/// Name under which the list of what is below a name is fetched.
#[must_use]
pub fn list_name(name: &str) -> String {
    format!("{name}{ENDING}")
}

/// Name that a list is about, if this is the name of a list.
#[must_use]
pub fn listed(name: &str) -> Option<&str> {
    name.strip_suffix(ENDING).filter(|name| !name.is_empty() && !name.ends_with('/'))
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    version: u32,
    /// Permissions that no file gets.
    umask: u32,
}

/// File, folder or link of a receiver.
#[derive(Debug, Serialize, Deserialize)]
struct Item {
    /// Name below the one of the list; empty for that one itself.
    #[serde(with = "bytes")]
    name: Vec<u8>,
    #[serde(flatten)]
    state: State,
    /// Digest of a file's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

/// Properties that two entries of one name share if they are the same, besides the content.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    kind: Kind,
    mode: u32,
    modified: Modified,
}

impl State {
    fn new(kind: &Kind, mode: u32, modified: Modified) -> Self {
        let kind = match kind {
            // Holes are no part of the content.
            Kind::File { len, .. } => Kind::File { len: *len, extents: None },
            kind => kind.clone(),
        };
        // Links have no permissions of their own.
        let mode = if matches!(kind, Kind::Link { .. }) { 0 } else { mode };
        Self { kind, mode, modified }
    }
}

/// List of what a receiver has below a name.
#[derive(Debug)]
pub struct List {
    umask: u32,
    items: BTreeMap<Vec<u8>, (State, Option<String>)>,
}

impl List {
    /// Reads a list.
    ///
    /// # Errors
    /// `InvalidData` with the line, or errors of the reader.
    pub fn read(mut from: impl BufRead) -> io::Result<Self> {
        let mut number = 0_usize;
        let mut line = Vec::new();
        let mut next = || -> io::Result<Option<(usize, Vec<u8>)>> {
            line.clear();
            number += 1;
            let count = from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)?;
            match line.strip_suffix(b"\n") {
                _ if count == 0 => Ok(None),
                Some(line) => Ok(Some((number, line.to_vec()))),
                None => Err(invalid(number, "it has no end")),
            }
        };
        let (_, first) = next()?.ok_or_else(|| invalid(1, "there is none"))?;
        let header: Header = parse(1, &first)?;
        if header.version != VERSION {
            return Err(invalid(1, &format!("version {} is not known", header.version)));
        }
        let mut items = BTreeMap::new();
        while let Some((number, line)) = next()? {
            if items.len() == ENTRIES_MAX {
                return Err(invalid(number, "there are too many entries"));
            }
            let Item { name, state, digest } = parse(number, &line)?;
            let target = match &state.kind {
                Kind::Link { target } => target.len(),
                Kind::File { .. } | Kind::Directory => 0,
            };
            if name.len().max(target) > NAME_MAX {
                return Err(invalid(number, "a name or target is too long"));
            }
            items.insert(name, (state, digest));
        }
        Ok(Self { umask: header.umask, items })
    }

    /// Whether the receiver has an entry, whose name begins with that of the list, with the same
    /// content, time, and permissions except those that its umask takes. The file is read only if
    /// all else is the same.
    ///
    /// # Errors
    /// The file cannot be read, or it is to stop (`Interrupted`).
    pub fn has(&self, entry: &Entry, listed: &str, stop: &AtomicBool) -> io::Result<bool> {
        let Some(rest) = entry.name.strip_prefix(listed.as_bytes()) else { return Ok(false) };
        let Some((state, digest)) = self.items.get(rest.strip_prefix(b"/").unwrap_or(rest)) else {
            return Ok(false);
        };
        let mode = granted(entry.mode, self.umask);
        if *state != State::new(&entry.kind, mode, entry.modified) {
            return Ok(false);
        }
        match entry.kind {
            Kind::File { .. } => {
                let now = digest_of(&extents::open(&entry.source)?, stop)?;
                Ok(digest.as_ref() == Some(&now))
            }
            Kind::Directory | Kind::Link { .. } => Ok(true),
        }
    }

    /// Forgets what another list of the same name does not have, or has with another kind, content,
    /// time or permissions.
    pub fn retain_same(&mut self, other: &Self) {
        self.items.retain(|name, item| other.items.get(name) == Some(item));
    }

    /// Names of its files and links, without working files of receivers, and files that receivers
    /// moved aside.
    pub fn files<'a>(&'a self, listed: &'a str) -> impl Iterator<Item = Vec<u8>> + 'a {
        self.items.iter().filter_map(move |(rest, (state, _))| {
            let name = match rest.as_slice() {
                b"" => listed.as_bytes().to_vec(),
                rest => [listed.as_bytes(), b"/", rest].concat(),
            };
            let is_working = name.split(|byte| *byte == b'/').any(is_reserved);
            (state.kind != Kind::Directory && !is_working && !is_numbered(&name)).then_some(name)
        })
    }
}

fn parse<'a, T: Deserialize<'a>>(number: usize, line: &'a [u8]) -> io::Result<T> {
    serde_json::from_slice(line).map_err(|error| invalid(number, &error.to_string()))
}

fn invalid(number: usize, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("line {number} of the list: {why}"))
}

/// Writes the list of what is below a name of a folder, unless it is to stop. What cannot be read
/// is not in it, and no link is followed out of the folder.
///
/// # Errors
/// Errors of the writer and of the file system; `Interrupted` if it is to stop.
pub fn write_list(
    root: &Dir,
    name: &str,
    umask: u32,
    stop: &AtomicBool,
    to: &mut impl Write,
) -> io::Result<()> {
    write_line(to, &Header { version: VERSION, umask })?;
    if is_reserved(name.as_bytes()) {
        return to.flush();
    }
    let (parent, last) = name.rsplit_once('/').unwrap_or((".", name));
    let parent = match root.open_dir(parent) {
        Err(error) if is_missing(&error) => return to.flush(),
        parent => parent?,
    };
    let Some(first) = item(&parent, OsStr::new(last), Path::new(""), stop)? else {
        return to.flush();
    };
    write_line(to, &first)?;
    if first.state.kind == Kind::Directory {
        write_below(&parent.open_dir(last)?, stop, to)?;
    }
    to.flush()
}

/// Writes what is below a folder. Each folder is opened by its name below this one, which no link
/// can leave.
fn write_below(top: &Dir, stop: &AtomicBool, to: &mut impl Write) -> io::Result<()> {
    let mut waiting = vec![PathBuf::new()];
    while let Some(below) = waiting.pop() {
        let here = if below.as_os_str().is_empty() { Path::new(".") } else { &below };
        let Ok(folder) = top.open_dir(here) else { continue };
        for entry in folder.entries()?.flatten() {
            let last = entry.file_name();
            let name = below.join(&last);
            let Some(item) = item(&folder, &last, &name, stop)? else { continue };
            if item.state.kind == Kind::Directory {
                waiting.push(name);
            }
            write_line(to, &item)?;
        }
    }
    Ok(())
}

fn write_line(to: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}

fn is_missing(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR))
}

/// An entry of a folder; `None` if it cannot be read, or is nothing that is received.
fn item(folder: &Dir, last: &OsStr, name: &Path, stop: &AtomicBool) -> io::Result<Option<Item>> {
    let Ok(found) = statat(folder, last, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(None) };
    let (kind, found, digest) = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => {
            let Ok(file) = open(folder.as_fd(), last.as_bytes()) else { return Ok(None) };
            let found = fstat(&file)?;
            let Ok(digest) = digest_of(&file, stop) else {
                return if stop.load(Ordering::Relaxed) { Err(stopped()) } else { Ok(None) };
            };
            let len = u64::try_from(found.st_size).unwrap_or_default();
            (Kind::File { len, extents: None }, found, Some(digest))
        }
        FileType::Directory => (Kind::Directory, found, None),
        FileType::Symlink => {
            let Ok(target) = readlinkat(folder, last, Vec::new()) else { return Ok(None) };
            (Kind::Link { target: target.into_bytes() }, found, None)
        }
        _ => return Ok(None),
    };
    let Attributes { mode, modified } = Attributes::from(&found);
    let name = name.as_os_str().as_bytes().to_vec();
    Ok(Some(Item { name, state: State::new(&kind, mode, modified), digest }))
}

fn stopped() -> io::Error {
    io::ErrorKind::Interrupted.into()
}

/// Digest of a file's content, as hexadecimal digits: the first 128 bits of SHA-256 over the
/// offset and the bytes of every unit that is not all zeros. Its length is compared apart.
fn digest_of(file: &File, stop: &AtomicBool) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    let mut at = 0;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(stopped());
        }
        at = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data - data % CHUNK as u64,
            Err(Errno::NXIO) => break,
            // The file system has no list of holes.
            Err(Errno::INVAL) => at,
            Err(error) => return Err(error.into()),
        };
        let mut len = 0;
        while len < CHUNK {
            match file.read_at(&mut chunk[len..], at + len as u64) {
                Ok(0) => break,
                Ok(count) => len += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if !is_zero(&chunk[..len]) {
            digest.update(at.to_le_bytes());
            digest.update(&chunk[..len]);
        }
        if len < CHUNK {
            break;
        }
        at += CHUNK as u64;
    }
    let digits = digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    Ok(digits)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::scan::{ScanOptions, scan};

    /// Entries below a folder, and the names of those that are not in the list of `there`.
    fn missing(here: &Path, there: &Path, umask: u32) -> Vec<String> {
        let list = list_of(there, umask);
        let scan = scan(&[here.join("f")], &ScanOptions::default()).unwrap();
        let is_missing = |entry: &&Entry| !list.has(entry, "f", &AtomicBool::new(false)).unwrap();
        let missing = scan.entries.iter().filter(is_missing);
        missing.map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect()
    }

    fn list_of(place: &Path, umask: u32) -> List {
        let root = Dir::open_ambient_dir(place, cap_std::ambient_authority()).unwrap();
        let mut text = Vec::new();
        write_list(&root, "f", umask, &AtomicBool::new(false), &mut text).unwrap();
        List::read(text.as_slice()).unwrap()
    }

    fn fill(folder: &Path) {
        let folder = folder.join("f");
        fs::create_dir_all(folder.join("sub")).unwrap();
        fs::write(folder.join("a"), "one").unwrap();
        fs::write(folder.join("sub/b"), vec![7; CHUNK + 1]).unwrap();
        fs::write(folder.join("zeros"), vec![0; 3 * CHUNK]).unwrap();
        symlink("a", folder.join("link")).unwrap();
        for name in ["a", "sub/b", "zeros", "sub", "link", ""] {
            stamp(&folder.join(name), 1000);
        }
    }

    fn stamp(path: &Path, secs: i64) {
        let time = rustix::fs::Timespec { tv_sec: secs, tv_nsec: 5 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
    }

    #[test]
    fn only_what_differs_is_missing() {
        let place = tempfile::tempdir().unwrap();
        let (here, there) = (place.path().join("here"), place.path().join("there"));
        fill(&here);
        fs::create_dir(&there).unwrap();
        let all = ["f", "f/a", "f/link", "f/sub", "f/sub/b", "f/zeros"];
        assert_eq!(missing(&here, &there, 0o022), all, "nothing is there");
        fill(&there);
        assert_eq!(missing(&here, &there, 0), [""; 0]);

        // The same length and time, another content.
        fs::write(there.join("f/a"), "two").unwrap();
        stamp(&there.join("f/a"), 1000);
        // The same content, another time.
        stamp(&there.join("f/sub/b"), 1001);
        fs::remove_file(there.join("f/link")).unwrap();
        symlink("sub", there.join("f/link")).unwrap();
        stamp(&there.join("f/link"), 1000);
        stamp(&there.join("f"), 1000);
        assert_eq!(missing(&here, &there, 0), ["f/a", "f/link", "f/sub/b"]);
    }

    #[test]
    fn files_that_are_no_copies_of_a_receivers_own_are_named() {
        let place = tempfile::tempdir().unwrap();
        fill(place.path());
        fs::write(place.path().join("f/a.~1~"), "moved aside").unwrap();
        fs::create_dir(place.path().join("f/sub/.slowlight")).unwrap();
        fs::write(place.path().join("f/sub/.slowlight/x"), "of another receiver").unwrap();
        let mut list = list_of(place.path(), 0);
        let names = |list: &List| list.files("f").collect::<Vec<_>>();
        let file = |name: &str| name.as_bytes().to_vec();
        assert_eq!(names(&list), ["f/a", "f/link", "f/sub/b", "f/zeros"].map(file));
        // What has changed since, or is gone, is forgotten; what is new was never there.
        fs::write(place.path().join("f/sub/b"), "changed").unwrap();
        fs::write(place.path().join("f/new"), "new").unwrap();
        fs::remove_file(place.path().join("f/link")).unwrap();
        list.retain_same(&list_of(place.path(), 0));
        assert_eq!(names(&list), ["f/a", "f/zeros"].map(file));
    }

    #[test]
    fn permissions_are_compared_as_the_receiver_grants_them() {
        let place = tempfile::tempdir().unwrap();
        let (here, there) = (place.path().join("here"), place.path().join("there"));
        for folder in [&here, &there] {
            fill(folder);
        }
        let set = |path: PathBuf, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        set(here.join("f/a"), 0o666);
        set(there.join("f/a"), 0o644);
        set(here.join("f/zeros"), 0o600);
        set(there.join("f/zeros"), 0o644);
        assert_eq!(missing(&here, &there, 0o022), ["f/zeros"]);
    }

    #[test]
    fn holes_and_zeros_are_the_same() {
        let place = tempfile::tempdir().unwrap();
        let (here, there) = (place.path().join("here"), place.path().join("there"));
        for folder in [&here, &there] {
            fill(folder);
        }
        let holes = File::create(there.join("f/zeros")).unwrap();
        holes.set_len(3 * CHUNK as u64).unwrap();
        stamp(&there.join("f/zeros"), 1000);
        assert_eq!(missing(&here, &there, 0), [""; 0]);
        // A hole before data that is in the middle of a unit.
        for (folder, len) in [(&here, 1), (&there, 2)] {
            let file = File::create(folder.join("f/zeros")).unwrap();
            file.set_len(9 * CHUNK as u64).unwrap();
            file.write_all_at(&[1, 1][..len], 5 * CHUNK as u64 + 100).unwrap();
            stamp(&folder.join("f/zeros"), 1000);
        }
        assert_eq!(missing(&here, &there, 0), ["f/zeros"]);
    }

    #[test]
    fn no_list_leaves_its_folder() {
        let place = tempfile::tempdir().unwrap();
        let (outside, root) = (place.path().join("outside"), place.path().join("root"));
        fill(&outside);
        fs::create_dir(&root).unwrap();
        symlink(&outside, root.join("out")).unwrap();
        fs::create_dir(root.join(".slowlight")).unwrap();
        fs::write(root.join(".slowlight/log"), "x").unwrap();
        let root = Dir::open_ambient_dir(&root, cap_std::ambient_authority()).unwrap();
        let list = |name: &str| {
            let mut text = Vec::new();
            write_list(&root, name, 0, &AtomicBool::new(false), &mut text).map(|()| text)
        };
        for name in ["nothing", "nothing/below", ".slowlight", ".slowlight/log"] {
            let text = list(name).unwrap();
            assert_eq!(text, b"{\"version\":1,\"umask\":0}\n", "{name}");
        }
        // The link itself, not what it leads to.
        assert_eq!(list("out").unwrap().split(|byte| *byte == b'\n').count(), 3);
        assert!(list("out/f").is_err());
    }

    #[test]
    fn a_list_stops_on_request() {
        let place = tempfile::tempdir().unwrap();
        fill(place.path());
        let root = Dir::open_ambient_dir(place.path(), cap_std::ambient_authority()).unwrap();
        let stopped = write_list(&root, "f", 0, &AtomicBool::new(true), &mut Vec::new());
        assert_eq!(stopped.map_err(|error| error.kind()), Err(io::ErrorKind::Interrupted));
    }

    #[test]
    fn invalid_lists_are_errors_that_name_the_line() {
        let long = format!("{{\"version\":1,\"umask\":0}}\n{}\n", "x".repeat(1 << 20));
        for (text, why) in [
            ("", "line 1 of the list: there is none"),
            ("{\"version\":2,\"umask\":0}\n", "line 1 of the list: version 2"),
            ("{\"version\":1,\"umask\":0}", "line 1 of the list: it has no end"),
            ("{\"version\":1,\"umask\":0}\n{}\n", "line 2 of the list: missing field"),
            (&long, "line 2 of the list: it has no end"),
        ] {
            let error = List::read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
    }

    #[test]
    fn names_of_lists_are_recognised() {
        assert_eq!(listed(&list_name("a/b")), Some("a/b"));
        for name in ["", ".slowlight.list", "a/.slowlight.list", "a.list"] {
            assert_eq!(listed(name), None, "{name}");
        }
    }
}
