//! Names of entries, and what is left out.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use slowlight_tree::{Kind, ScanError, ScanOptions, SkipReason, scan};

use crate::place::Place;

fn names(paths: &[PathBuf], exclude: &[&str]) -> Vec<String> {
    let exclude = exclude.iter().map(|pattern| (*pattern).to_owned()).collect();
    let found = scan(paths, &ScanOptions { exclude }).unwrap();
    assert!(found.skipped.is_empty(), "{:?}", found.skipped);
    found.entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
}

#[test]
fn names_begin_with_the_last_part_of_a_path() {
    let place = Place::new();
    place.write("photos/2031/mars.jpg", b"");
    place.write("photos-old/x", b"");
    place.write("notes", b"");
    let all = ["photos", "photos/2031", "photos/2031/mars.jpg"];
    let source = place.source();
    assert_eq!(names(&[source.join("photos")], &[]), all);
    assert_eq!(names(&[source.join("photos/")], &[]), all);
    assert_eq!(names(&[source.join("photos/.")], &[]), ["2031", "2031/mars.jpg"]);
    assert_eq!(names(&[source.join("photos/2031/..")], &[]), ["2031", "2031/mars.jpg"]);
    assert_eq!(names(&[source.join("photos/2031/mars.jpg")], &[]), ["mars.jpg"]);
    // A folder is directly before its content, although `-` is less than `/`.
    assert_eq!(
        names(&[source.join("photos-old"), source.join("notes"), source.join("photos")], &[]),
        ["notes", "photos", "photos/2031", "photos/2031/mars.jpg", "photos-old", "photos-old/x"]
    );
}

#[test]
fn patterns_exclude_files_and_folders() {
    let place = Place::new();
    for name in ["p/a.o", "p/src/b.o", "p/src/c.rs", "p/target/d", "p/src/target/e"] {
        place.write(name, b"");
    }
    let p = [place.source().join("p")];
    assert_eq!(names(&p, &["*.o", "target"]), ["p", "p/src", "p/src/c.rs"]);
    assert_eq!(
        names(&p, &["p/target/", "p/*.o"]),
        ["p", "p/src", "p/src/b.o", "p/src/c.rs", "p/src/target", "p/src/target/e"]
    );
    assert_eq!(names(&p, &["p/**/*.o", "p/src/*"]), ["p", "p/src", "p/target", "p/target/d"]);
    let error = scan(&p, &ScanOptions { exclude: vec!["[".into()] }).unwrap_err();
    assert!(error.to_string().starts_with("exclude pattern: "), "{error}");
}

#[test]
fn a_path_that_is_a_link_is_followed_if_it_leads_somewhere() {
    let place = Place::new();
    place.write("photos/x", b"");
    symlink("photos", place.source().join("latest")).unwrap();
    symlink("x", place.source().join("photos/y")).unwrap();
    symlink("missing", place.source().join("dangling")).unwrap();
    assert_eq!(names(&[place.source().join("latest")], &[]), ["latest", "latest/x", "latest/y"]);
    let found = scan(&[place.source().join("dangling")], &ScanOptions::default()).unwrap();
    assert_eq!(found.entries[0].kind, Kind::Link { target: b"missing".to_vec() });
}

#[test]
fn what_cannot_be_sent_is_reported() {
    let place = Place::new();
    let source = place.source();
    mknodat(CWD, source.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = UnixListener::bind(source.join("socket")).unwrap();
    place.write(".slowlight/lock", b"");
    let found = scan(&[source.join("."), "/dev/null".into()], &ScanOptions::default()).unwrap();
    assert!(found.entries.is_empty(), "{:?}", found.entries);
    symlink("/etc/passwd", source.join("link")).unwrap();
    symlink("../../x", source.join("up")).unwrap();
    let links = scan(&[source.join("link"), source.join("up")], &ScanOptions::default()).unwrap();
    assert!(links.entries.iter().all(|entry| entry.name != b"up"), "{:?}", links.entries);
    let links = scan(&[source.join(".")], &ScanOptions::default()).unwrap().skipped;
    let is_link = |it: &&slowlight_tree::Skipped| matches!(it.reason, SkipReason::Link(_));
    assert_eq!(links.iter().filter(is_link).count(), 2, "{links:?}");
    let reasons: Vec<_> = found.skipped.iter().map(|skipped| &skipped.reason).collect();
    assert!(
        matches!(
            reasons[..],
            [SkipReason::Reserved, SkipReason::Pipe, SkipReason::Socket, SkipReason::Device]
        ),
        "{reasons:?}"
    );
    assert_eq!(found.skipped[3].path, PathBuf::from("/dev/null"));
}

#[test]
fn errors_name_paths() {
    let place = Place::new();
    let missing = place.source().join("missing");
    let error = scan(std::slice::from_ref(&missing), &ScanOptions::default()).unwrap_err();
    assert!(matches!(&error, ScanError::Path { path, .. } if *path == missing), "{error}");
    let (first, second) = (place.write("a/x", b""), place.write("b/x", b""));
    let error = scan(&[second.clone(), first.clone()], &ScanOptions::default()).unwrap_err();
    let text = error.to_string();
    for path in [first, second] {
        assert!(text.contains(path.to_str().unwrap()), "{text}");
    }
    let error =
        scan(&[place.source().join("a/."), place.source().join("b/.")], &ScanOptions::default());
    assert!(matches!(error, Err(ScanError::Duplicate { name, .. }) if name == b"x"));
    fs::remove_dir_all(place.source()).unwrap();
}
