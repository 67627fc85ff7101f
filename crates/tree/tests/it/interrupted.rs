//! Archives that are unpacked again after a crash or an error.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use proptest::prelude::*;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use slowlight_tree::{Existing, Modified, Unpacker};

use crate::place::{self, Place, names, nodes, set_mode, set_modified};

/// Writes a tree with a read-only folder, and returns the archive.
fn archive(place: &Place) -> Vec<u8> {
    let source = place.source();
    for name in ["a/b/1", "a/b/2", "a/3", "c/4", "5"] {
        set_modified(&place.write(name, name.as_bytes()), Modified { secs: 1_000, nanos: 1 });
    }
    symlink("b/1", source.join("a/link")).unwrap();
    set_mode(&source.join("a/b"), 0o555);
    for name in ["a/b", "a", "c"] {
        set_modified(&source.join(name), Modified { secs: 2_000, nanos: 2 });
    }
    place::bytes(place.plans(u64::MAX).remove(0))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Every state that a crash can leave: some files are in place, some folders have neither
    /// their permissions nor their time, and the working folder has the rest.
    #[test]
    fn a_second_call_completes_the_first(
        missing in proptest::collection::btree_set(0..6_usize, 0..6),
        are_folders_open in any::<bool>(),
        existing in prop_oneof![Just(Existing::Rename), Just(Existing::Fail), Just(Existing::Skip)],
    ) {
        let place = Place::new();
        let archive = archive(&place);
        let unpacker = place.unpacker(existing);
        let first = unpacker.unpack(&place.archive(&archive)).unwrap();
        prop_assert_eq!((first.files, first.links, first.directories), (5, 1, 3));
        let before = nodes(&place.root());
        prop_assert_eq!(&before, &nodes(&place.source()));
        let root = place.root();
        set_mode(&root.join("a/b"), 0o755);
        for number in &missing {
            let name = ["a/b/1", "a/b/2", "a/3", "c/4", "5", "a/link"][*number];
            fs::remove_file(root.join(name)).unwrap();
        }
        if !are_folders_open {
            set_mode(&root.join("a/b"), 0o555);
        }
        let work = place.staging().join("unpack");
        fs::create_dir(&work).unwrap();
        fs::write(work.join("3"), b"a part of").unwrap();
        let second = unpacker.unpack(&place.archive(&archive)).unwrap();
        prop_assert_eq!(second.files + second.links, missing.len() as u64);
        prop_assert_eq!(second.unchanged, 6 - missing.len() as u64);
        prop_assert!(second.renamed.is_empty() && second.refused.is_empty());
        prop_assert_eq!(nodes(&root), before);
        prop_assert!(names(&place.staging()).is_empty());
    }
}

/// A crash after a file was moved aside, and before the other was moved into its place.
#[test]
fn a_file_that_was_moved_aside_is_not_moved_again() {
    let place = Place::new();
    let archive = archive(&place);
    fs::write(place.root().join("5"), b"there").unwrap();
    assert_eq!(place.unpack(&archive).unwrap().renamed.len(), 1);
    fs::remove_file(place.root().join("5")).unwrap();
    let second = place.unpack(&archive).unwrap();
    assert_eq!((second.files, second.unchanged), (1, 5));
    assert!(second.renamed.is_empty());
    assert_eq!(fs::read(place.root().join("5.~1~")).unwrap(), b"there");
    assert_eq!(fs::read(place.root().join("5")).unwrap(), b"5");
    assert!(!place.root().join("5.~2~").exists());
}

/// A later pack has more files of a folder that is read-only by now.
#[test]
fn a_read_only_folder_gets_files_of_a_later_pack() {
    let place = Place::new();
    archive(&place);
    let plans = place.plans(3_000);
    assert!(plans.len() > 2, "{}", plans.len());
    for plan in plans {
        assert_eq!(place.unpack(&place::bytes(plan)).unwrap().refused, []);
    }
    assert_eq!(nodes(&place.root()), nodes(&place.source()));
}

/// A file system of 1 MB.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn a_full_disk_installs_nothing() {
    if !rustix::process::geteuid().is_root() {
        return testing::skipped!("a small file system can be mounted by root only");
    }
    let place = Place::new();
    place.write("a/small", &[1; 1000]);
    place.write("b/large", &[2; 2_000_000]);
    let archive = place.archive(&place::bytes(place.plans(u64::MAX).remove(0)));
    let small = Mounted(place.outside().join("small"));
    fs::create_dir(&small.0).unwrap();
    mount("tmpfs", &small.0, "tmpfs", MountFlags::empty(), Some(c"size=1m")).unwrap();
    let folder = |name: &str| {
        fs::create_dir(small.0.join(name)).unwrap();
        Dir::open_ambient_dir(small.0.join(name), ambient_authority()).unwrap()
    };
    let unpacker = Unpacker {
        root: folder("root"),
        staging: folder("staging"),
        existing: Existing::Rename,
        umask: 0,
    };
    let error = unpacker.unpack(&archive).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(error.to_string().starts_with("b/large: No space left on device"), "{error}");
    assert!(names(&small.0.join("root")).is_empty());
    assert!(names(&small.0.join("staging")).is_empty(), "the space is free again");
}
