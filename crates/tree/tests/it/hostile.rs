//! Archives that try to write where they may not, or to use more than they are.

use std::fs;
use std::os::unix::fs::symlink;

use slowlight_tree::{Existing, Fault, Refusal, UnpackError, Unpacked};
use tar::{EntryType, Header};

use crate::place::{self, Place, names};

/// Archive that is written member by member.
#[derive(Clone, Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn add(self, name: &str, kind: EntryType, content: &[u8]) -> Self {
        self.add_with(name, kind, content, |_| {})
    }

    fn file(self, name: &str) -> Self {
        self.add(name, EntryType::Regular, b"hostile")
    }

    fn link(self, name: &str, target: &str) -> Self {
        self.add_with(name, EntryType::Symlink, b"", |header| {
            header.set_link_name_literal(target).unwrap();
        })
    }

    /// Record for the next member.
    fn record(self, key: &str, value: &str) -> Self {
        let rest = format!(" {key}={value}\n");
        let len = (rest.len()..).find(|len| len.to_string().len() + rest.len() == *len).unwrap();
        self.add("records", EntryType::XHeader, format!("{len}{rest}").as_bytes())
    }

    fn add_with(
        mut self,
        name: &str,
        kind: EntryType,
        content: &[u8],
        change: impl FnOnce(&mut Header),
    ) -> Self {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_mtime(1_000_000_000);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(content.len() as u64);
        change(&mut header);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// Sparse file with these ranges and sizes.
    fn sparse(self, ranges: &[(u64, u64)], size: u64, real_size: u64) -> Self {
        let content = vec![1; usize::try_from(size.min(4096)).unwrap()];
        self.add_with("sparse", EntryType::GNUSparse, &content, |header| {
            header.set_size(size);
            let gnu = header.as_gnu_mut().unwrap();
            gnu.set_real_size(real_size);
            for (slot, (offset, len)) in gnu.sparse.iter_mut().zip(ranges) {
                slot.set_offset(*offset);
                slot.set_length(*len);
            }
        })
    }
}

/// Unpacks an archive and a last file, which must be installed whatever is before it. Nothing but
/// the root may change.
fn unpack_in(place: &Place, archive: &Archive) -> Unpacked {
    fs::write(place.outside().join("outside"), b"untouched").unwrap();
    let bytes = archive.clone().add("last", EntryType::Regular, b"last").0;
    let unpacked = place.unpack(&bytes).unwrap();
    assert_eq!(fs::read(place.root().join("last")).unwrap(), b"last");
    assert_eq!(fs::read(place.outside().join("outside")).unwrap(), b"untouched");
    let all = fs::read_dir(place.outside()).unwrap();
    let mut all: Vec<_> = all.map(|entry| entry.unwrap().file_name()).collect();
    all.sort();
    assert_eq!(all, ["archive.tar", "outside", "root", "source", "staging"]);
    assert!(names(&place.staging()).is_empty());
    unpacked
}

/// Refusals of an archive, which installs nothing else.
fn refusals(archive: &Archive) -> Vec<Refusal> {
    let place = Place::new();
    let unpacked = unpack_in(&place, archive);
    assert_eq!(names(&place.root()), ["last"]);
    unpacked.refused.into_iter().map(|refused| refused.reason).collect()
}

/// Fault of an archive, which installs nothing.
fn fault(bytes: &[u8]) -> Fault {
    let place = Place::new();
    let result = place.unpack(bytes);
    assert!(names(&place.root()).is_empty() && names(&place.staging()).is_empty());
    match result {
        Err(UnpackError::Archive { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_that_leave_the_root() {
    for (name, reason) in [
        ("/outside", Refusal::Absolute),
        ("../outside", Refusal::Parent),
        ("a/../../outside", Refusal::Parent),
        (".slowlight/index/x", Refusal::Reserved),
        ("./.SLOWLIGHT", Refusal::Reserved),
        ("", Refusal::Empty),
        (".", Refusal::Empty),
        ("a\0b", Refusal::Nul),
        (&"n".repeat(256), Refusal::TooLong),
        (&"name/".repeat(1000), Refusal::TooLong),
    ] {
        // A name in a header ends at a NUL, and has 100 bytes.
        if name.len() <= 100 && !name.contains('\0') {
            let found = refusals(&Archive::default().file(name));
            assert_eq!(found, std::slice::from_ref(&reason), "{name}");
        }
        let archive = Archive::default().record("path", name).file("x");
        assert_eq!(refusals(&archive), [reason], "{name} in a record");
    }
}

#[test]
fn links_that_leave_the_root() {
    for target in ["/etc/passwd", "../outside", "a/../../outside", "", "."] {
        assert_eq!(refusals(&Archive::default().link("x", target)), [Refusal::Target], "{target}");
    }
    for target in [".slowlight/index", "./.Slowlight"] {
        let archive = Archive::default().link("x", target);
        assert_eq!(refusals(&archive), [Refusal::Reserved], "{target}");
    }
    let archive = Archive::default().record("linkpath", "a\0b").link("x", "y");
    assert_eq!(refusals(&archive), [Refusal::Nul]);
}

#[test]
fn nothing_is_written_through_links() {
    // A link of the same archive.
    let place = Place::new();
    let archive = Archive::default()
        .add("folder", EntryType::Directory, b"")
        .link("link", "folder")
        .file("link/x")
        .file("link/y/z");
    let unpacked = unpack_in(&place, &archive);
    let refused: Vec<_> = unpacked.refused.into_iter().map(|refused| refused.reason).collect();
    assert_eq!(refused, [Refusal::NotFolder, Refusal::NotFolder]);
    assert_eq!(names(&place.root()), ["folder", "last", "link"]);
    // Links that the user has, to a folder outside and to the working files.
    let place = Place::new();
    let hidden = place.root().join(".slowlight");
    fs::create_dir(&hidden).unwrap();
    symlink(place.outside(), place.root().join("out")).unwrap();
    symlink(&hidden, place.root().join("hidden")).unwrap();
    let archive = Archive::default()
        .file("out/outside")
        .file("hidden/x")
        .add("out", EntryType::Directory, b"")
        .add("out/staging", EntryType::Directory, b"")
        .link("hidden/link", "x");
    let unpacked = unpack_in(&place, &archive);
    assert_eq!(unpacked.refused.len(), 5, "{:?}", unpacked.refused);
    assert_eq!(names(&place.root()), [".slowlight", "hidden", "last", "out"]);
}

#[test]
fn a_file_is_no_folder() {
    let place = Place::new();
    let archive = Archive::default().file("x").file("x/y").add("x", EntryType::Directory, b"");
    let unpacked = unpack_in(&place, &archive);
    let refused: Vec<_> = unpacked.refused.into_iter().map(|refused| refused.reason).collect();
    assert_eq!(refused, [Refusal::NotFolder, Refusal::File]);
    assert_eq!(names(&place.root()), ["last", "x"]);
}

#[test]
fn kinds_that_are_never_unpacked() {
    for kind in [
        EntryType::Link,
        EntryType::Char,
        EntryType::Block,
        EntryType::Fifo,
        EntryType::new(b'D'),
        EntryType::new(b'V'),
        EntryType::new(b'~'),
    ] {
        let archive = Archive::default().add_with("x", kind, b"", |header| {
            header.set_link_name_literal("/etc/passwd").unwrap();
        });
        let reasons = refusals(&archive);
        assert!(matches!(reasons[..], [Refusal::Kind(_)]), "{kind:?} {reasons:?}");
    }
    let archive = Archive::default().record("GNU.sparse.major", "1").file("x");
    assert!(matches!(refusals(&archive)[..], [Refusal::Kind(_)]));
}

#[test]
fn sizes_that_are_not_there() {
    let archive = Archive::default().file("first").sparse(&[(0, 7)], 7, 1 << 62).0;
    // A hole of any size costs nothing; the file system has the last word.
    let place = Place::new();
    let unpacked = place.unpack(&archive).unwrap();
    assert!(unpacked.refused.iter().all(|refused| refused.reason == Refusal::TooLarge));
    assert!(place.root().join("first").exists());
    assert_eq!(refusals(&Archive::default().sparse(&[(0, 7)], 7, u64::MAX)), [Refusal::TooLarge]);
    for size in [1 << 20, 1 << 62, u64::MAX] {
        let claim = |header: &mut Header| header.set_size(size);
        for kind in [EntryType::Regular, EntryType::XGlobalHeader, EntryType::new(b'~')] {
            let archive = Archive::default().file("first").add_with("x", kind, b"1", claim);
            assert_eq!(fault(&archive.0), Fault::Truncated, "{kind:?}");
        }
        for kind in [EntryType::XHeader, EntryType::GNULongName, EntryType::GNULongLink] {
            let archive = Archive::default().file("first").add_with("x", kind, b"1", claim);
            assert_eq!(fault(&archive.0), Fault::RecordsTooLong, "{kind:?}");
        }
    }
    let archive = Archive::default().record("size", &u64::MAX.to_string()).file("x");
    assert_eq!(fault(&archive.0), Fault::Truncated);
}

#[test]
fn sparse_files_that_are_inconsistent() {
    for (ranges, size, real_size) in [
        // Beyond the end, not in order, overlapping.
        (&[(4096, 10)][..], 10, 4100),
        (&[(4096, 512), (0, 512)], 1024, 8192),
        (&[(0, 1024), (512, 512)], 1536, 8192),
        // More and less than what is stored.
        (&[(0, 512)], 1024, 8192),
        (&[(0, 1024)], 512, 8192),
        (&[(0, u64::MAX)], 512, u64::MAX),
        (&[(u64::MAX, 512)], 512, u64::MAX),
        // The second does not begin in a new block.
        (&[(0, 100), (4096, 412)], 512, 8192),
    ] {
        let archive = Archive::default().file("first").sparse(ranges, size, real_size);
        assert_eq!(fault(&archive.0), Fault::Extents, "{ranges:?}");
    }
    let archive = Archive::default().add_with("x", EntryType::GNUSparse, b"", |header| {
        let gnu = header.as_gnu_mut().unwrap();
        gnu.set_real_size(0);
        gnu.set_is_extended(true);
    });
    assert_eq!(fault(&archive.0), Fault::Truncated);
}

#[test]
fn records_that_are_invalid() {
    for record in
        ["x", "5 a=b\n", "7 a=b\n", "6 ab=\n ", "6 abc\n", "0 a=b\n", "-6 a=b\n", "99 a=b\n"]
    {
        let archive = Archive::default().add("x", EntryType::XHeader, record.as_bytes()).file("x");
        assert_eq!(fault(&archive.0), Fault::Record, "{record:?}");
    }
    for (key, value) in [("mtime", "x"), ("mtime", "1.x"), ("mtime", ""), ("size", "-1")] {
        assert_eq!(fault(&Archive::default().record(key, value).file("x").0), Fault::Record);
    }
    let long = Archive::default().record("comment", &"x".repeat(70_000)).file("x");
    assert_eq!(fault(&long.0), Fault::RecordsTooLong);
}

#[test]
fn files_that_are_no_archive() {
    assert_eq!(fault(&[b'x'; 1024]), Fault::Checksum);
    assert_eq!(fault(b"short"), Fault::Truncated);
    let whole = Archive::default().file("first").file("second").0;
    let mut damaged = whole.clone();
    damaged[1024] ^= 1;
    assert_eq!(fault(&damaged), Fault::Checksum);
    assert_eq!(fault(&whole[..1100]), Fault::Truncated);
    assert_eq!(fault(&whole[..1536]), Fault::Truncated);
    // Padding and the end may be missing.
    let place = Place::new();
    assert_eq!(place.unpack(&whole[..1543]).unwrap().files, 2);
    assert_eq!(Place::new().unpack(b"").unwrap().files, 0);
    assert_eq!(Place::new().unpack(&[0; 10_240]).unwrap().files, 0);
}

#[test]
fn the_last_of_a_name_counts() {
    for existing in Existing::ALL {
        let place = Place::new();
        let archive = Archive::default()
            .add("x", EntryType::Regular, b"1")
            .add("folder", EntryType::Directory, b"")
            .link("x", "folder")
            .add("x", EntryType::Regular, b"2");
        let archive = place.archive(&archive.0);
        for (files, unchanged) in [(1, 0), (0, 1)] {
            let unpacked = place.unpacker(existing).unpack(&archive).unwrap();
            assert_eq!((unpacked.files, unpacked.unchanged), (files, unchanged), "{existing}");
            assert_eq!(names(&place.root()), ["folder", "x"]);
            assert_eq!(fs::read(place.root().join("x")).unwrap(), b"2");
        }
    }
}

#[test]
fn a_time_that_the_file_system_does_not_store() {
    for existing in Existing::ALL {
        let place = Place::on_disk();
        let archive = Archive::default().record("mtime", "99999999999.5").file("x");
        let archive = place.archive(&archive.0);
        let unpacker = place.unpacker(existing);
        assert_eq!(unpacker.unpack(&archive).unwrap().files, 1);
        let second = unpacker.unpack(&archive).unwrap();
        assert_eq!((second.files, second.unchanged + second.skipped), (0, 1), "{existing}");
        assert_eq!((second.renamed, second.refused), (vec![], vec![]), "{existing}");
    }
}

#[test]
fn times_before_1970_and_permissions_beyond_the_umask() {
    let place = Place::new();
    let archive = Archive::default()
        .record("mtime", "-0.25")
        .add_with("x", EntryType::Regular, b"", |header| header.set_mode(0o7777))
        .add_with("y", EntryType::Regular, b"", |header| {
            header.set_mtime((-5_i64).cast_unsigned());
        });
    unpack_in(&place, &archive);
    let nodes = format!("{:?}", place::nodes(&place.root()));
    assert!(nodes.contains("mode: 493, modified: (-1, 750000000)"), "{nodes}");
    assert!(nodes.contains("modified: (-5, 0)"), "{nodes}");
    assert_eq!(place.unpacker(Existing::Fail).umask, 0o022);
}
