//! Policies for files that exist.

use std::fs;
use std::os::unix::fs::symlink;

use slowlight_tree::{Existing, Modified, Refusal, Unpacked};

use crate::place::{self, Place, names, set_modified};

const OLD: Modified = Modified { secs: 1_000_000_000, nanos: 5 };
const NEW: Modified = Modified { secs: 1_000_000_000, nanos: 6 };

/// Unpacks a file `x` that was modified at a time over one of another time, with other content.
fn unpack(existing: Existing, there: Modified, sent: Modified) -> (Place, Unpacked) {
    let place = Place::new();
    set_modified(&place.write("x", b"sent"), sent);
    let plan = place.plans(u64::MAX).remove(0);
    fs::write(place.root().join("x"), b"there").unwrap();
    set_modified(&place.root().join("x"), there);
    let archive = place.archive(&place::bytes(plan));
    let unpacked = place.unpacker(existing).unpack(&archive).unwrap();
    (place, unpacked)
}

fn content(place: &Place, name: &str) -> String {
    fs::read_to_string(place.root().join(name)).unwrap()
}

#[test]
fn each_policy_decides_as_it_says() {
    for (existing, there, sent, replaced) in [
        (Existing::Skip, OLD, NEW, false),
        (Existing::Newer, OLD, NEW, true),
        (Existing::Newer, NEW, OLD, false),
        (Existing::Newer, NEW, NEW, false),
        (Existing::Replace, NEW, OLD, true),
        (Existing::Rename, NEW, OLD, true),
        (Existing::Fail, OLD, NEW, false),
    ] {
        let (place, unpacked) = unpack(existing, there, sent);
        let expected = if replaced { "sent" } else { "there" };
        assert_eq!(content(&place, "x"), expected, "{existing} {there:?} {sent:?}");
        assert_eq!(unpacked.files, u64::from(replaced), "{existing}");
        let skips = matches!(existing, Existing::Skip | Existing::Newer) && !replaced;
        assert_eq!(unpacked.skipped, u64::from(skips), "{existing}");
        let refused: Vec<_> = unpacked.refused.iter().map(|refused| &refused.reason).collect();
        let fails = existing == Existing::Fail;
        assert_eq!(refused, if fails { vec![&Refusal::Exists] } else { vec![] });
        let all = names(&place.root());
        if existing == Existing::Rename {
            assert_eq!(all, ["x", "x.~1~"]);
            assert_eq!(content(&place, "x.~1~"), "there");
            assert_eq!(unpacked.renamed[0].to, b"x.~1~");
        } else {
            assert_eq!(all, ["x"]);
            assert!(unpacked.renamed.is_empty());
        }
    }
}

#[test]
fn the_same_file_is_unchanged_under_every_policy() {
    for existing in Existing::ALL {
        let place = Place::new();
        place.write("folder/x", b"sent");
        symlink("x", place.source().join("folder/link")).unwrap();
        let archive = place::bytes(place.plans(u64::MAX).remove(0));
        let unpacker = place.unpacker(existing);
        let first = unpacker.unpack(&place.archive(&archive)).unwrap();
        assert_eq!((first.files, first.links, first.unchanged), (1, 1, 0));
        let before = place::nodes(&place.root());
        let second = unpacker.unpack(&place.archive(&archive)).unwrap();
        assert_eq!((second.files, second.links, second.unchanged), (0, 0, 2), "{existing}");
        assert_eq!((second.refused, second.renamed, second.skipped), (vec![], vec![], 0));
        assert_eq!(place::nodes(&place.root()), before);
    }
}

#[test]
fn rename_takes_the_first_free_number_and_loses_nothing() {
    let place = Place::new();
    let long = "é".repeat(127);
    for (number, text) in ["one", "two", "three", "four"].iter().enumerate() {
        for name in ["folder/x", &long] {
            let path = place.write(name, text.as_bytes());
            set_modified(&path, Modified { secs: 100 + i64::try_from(number).unwrap(), nanos: 0 });
        }
        place.unpack(&place::bytes(place.plans(u64::MAX).remove(0))).unwrap();
    }
    for (name, text) in [("x", "four"), ("x.~1~", "one"), ("x.~2~", "two"), ("x.~3~", "three")] {
        assert_eq!(content(&place, &format!("folder/{name}")), text);
    }
    // A long name is cut between two characters.
    assert_eq!(content(&place, &format!("{}.~2~", "é".repeat(125))), "two");
    assert_eq!(names(&place.root()).len(), 9);
}

#[test]
fn a_copy_with_another_time_is_not_kept_beside_the_file() {
    let place = Place::new();
    for secs in [100, 200] {
        set_modified(&place.write("x", b"same"), Modified { secs, nanos: 0 });
        let unpacked = place.unpack(&place::bytes(place.plans(u64::MAX).remove(0))).unwrap();
        assert_eq!((unpacked.files, unpacked.renamed.len()), (1, 0));
    }
    assert_eq!(names(&place.root()), ["x"]);
    let modified = fs::metadata(place.root().join("x")).unwrap().modified().unwrap();
    assert_eq!(modified, std::time::UNIX_EPOCH + std::time::Duration::from_secs(200));
}

#[test]
fn a_link_is_replaced_itself() {
    for (existing, expected) in [
        (Existing::Replace, &["sent", "target"][..]),
        (Existing::Rename, &["sent", "sent.~1~", "target"]),
    ] {
        let place = Place::new();
        place.write("sent", b"sent");
        let archive = place.archive(&place::bytes(place.plans(u64::MAX).remove(0)));
        fs::write(place.root().join("target"), b"target").unwrap();
        symlink("target", place.root().join("sent")).unwrap();
        place.unpacker(existing).unpack(&archive).unwrap();
        assert_eq!(names(&place.root()), expected);
        assert_eq!(content(&place, "target"), "target");
        assert!(!fs::symlink_metadata(place.root().join("sent")).unwrap().is_symlink());
    }
}

#[test]
fn a_folder_never_replaces_a_file_nor_a_file_a_folder() {
    for existing in Existing::ALL {
        let place = Place::new();
        place.write("a", b"sent");
        place.write("b/c", b"sent");
        place.write("d", b"sent");
        let archive = place.archive(&place::bytes(place.plans(u64::MAX).remove(0)));
        fs::create_dir(place.root().join("a")).unwrap();
        fs::write(place.root().join("b"), b"there").unwrap();
        let unpacked = place.unpacker(existing).unpack(&archive).unwrap();
        let refused: Vec<_> =
            unpacked.refused.iter().map(|refused| (&refused.name[..], &refused.reason)).collect();
        let expected =
            [(&b"a"[..], &Refusal::Folder), (b"b/c", &Refusal::NotFolder), (b"b", &Refusal::File)];
        assert_eq!(refused, expected, "{existing}");
        assert_eq!(content(&place, "b"), "there");
        assert_eq!(content(&place, "d"), "sent", "the rest is installed");
    }
}
