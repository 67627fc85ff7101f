//! Folders over real sockets: what arrives is what was sent, also after interruptions.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::process::{Ended, Place, Running, await_that, make, program};

/// Address of receivers, with any free port.
const LISTEN: &str = "127.0.0.1:0";

/// Properties of a file, a folder or a link that a test compares.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    File { content: Vec<u8>, mode: u32, modified: (i64, i64) },
    Folder { mode: u32, modified: (i64, i64) },
    Link(PathBuf),
}

/// Everything below a folder, by relative path.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, Found> {
    let mut all = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let found = path.symlink_metadata().unwrap();
            let (mode, modified) = (found.mode() & 0o7777, (found.mtime(), found.mtime_nsec()));
            let name = path.strip_prefix(root).unwrap().to_owned();
            let found = if found.is_dir() {
                folders.push(path);
                Found::Folder { mode, modified }
            } else if found.is_symlink() {
                Found::Link(fs::read_link(&path).unwrap())
            } else {
                Found::File { content: fs::read(&path).unwrap(), mode, modified }
            };
            if !name.starts_with(".slowlight") {
                all.insert(name, found);
            }
        }
    }
    all
}

/// A folder with everything that is awkward to send.
pub(crate) fn photos(at: &Path) -> PathBuf {
    let photos = at.join("photos");
    fs::create_dir_all(photos.join("raw/empty")).unwrap();
    for (name, len) in [("a", 0), ("b.jpg", 1), ("raw/c", 1000), ("raw/large", 1_300_000)] {
        make(&photos.join(name), len);
    }
    fs::write(photos.join("with\nnewline"), b"newline").unwrap();
    fs::write(photos.join(OsStr::from_bytes(b"not-\xff-utf8")), b"bytes").unwrap();
    fs::write(photos.join("x".repeat(255)), b"long").unwrap();
    symlink("raw/c", photos.join("link")).unwrap();
    symlink("nowhere", photos.join("dangling")).unwrap();
    let sparse = File::create(photos.join("sparse")).unwrap();
    sparse.set_len(3_000_000).unwrap();
    sparse.write_all_at(b"data", 2_000_000).unwrap();
    for (name, mode) in [("a", 0o600), ("b.jpg", 0o755), ("raw/c", 0o444), ("raw", 0o555)] {
        fs::set_permissions(photos.join(name), Permissions::from_mode(mode)).unwrap();
    }
    for (name, nanos) in [("raw/c", 0), ("b.jpg", 123_456_789), ("raw", 7)] {
        let modified = UNIX_EPOCH + Duration::new(1_000_000_000, nanos);
        let file = File::open(photos.join(name)).unwrap();
        file.set_times(FileTimes::new().set_modified(modified)).unwrap();
    }
    photos
}

/// Sender of these paths.
fn send(place: &Place, protocol: &str, paths: &[&Path], address: &str, more: &[&str]) -> Running {
    let mut command = program(&["send", "--protocol", protocol, "--json"]);
    command.args(paths).arg(address).arg("--state").arg(place.here("state")).args(more);
    Running::of(command)
}

/// Result of a sender that must have delivered everything.
fn delivered(sender: Running) -> Value {
    let ended: Ended = sender.end();
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.message);
    let summary = ended.json();
    assert_eq!(summary["completed"], true, "{summary}");
    summary
}

/// Removes what was received, whatever its permissions.
fn clear(root: &Path) {
    for (name, found) in tree(root) {
        if matches!(found, Found::Folder { .. }) {
            fs::set_permissions(root.join(name), Permissions::from_mode(0o755)).unwrap();
        }
    }
    for entry in fs::read_dir(root).unwrap().map(Result::unwrap) {
        if entry.file_name() == ".slowlight" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            fs::remove_dir_all(entry.path()).unwrap();
        } else {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

#[test]
fn a_folder_arrives_as_it_is_by_every_protocol() {
    for protocol in ["cfdp", "cfdp-ltp", "saratoga", "ltp", "norm", "norm/coded"] {
        let place = Place::new();
        let photos = photos(&place.here(""));
        make(&place.here("notes.txt"), 5_000);
        let (receiver, address) = place.recv(protocol, LISTEN, &[]);
        let notes = place.here("notes.txt");
        let rate = ["--rate", "400 Mbit/s"];
        let summary = delivered(send(&place, protocol, &[&photos, &notes], &address, &rate));
        assert_eq!((&summary["files"], &summary["links"]), (&9.into(), &2.into()), "{summary}");
        let (sent, arrived) = (tree(&place.here("")), tree(&place.root("")));
        let sent: BTreeMap<_, _> =
            sent.into_iter().filter(|(name, _)| !name.starts_with("state")).collect();
        assert_eq!(sent.keys().collect::<Vec<_>>(), arrived.keys().collect::<Vec<_>>());
        for (name, found) in &sent {
            assert!(arrived[name] == *found, "{protocol}: {}", name.display());
        }
        let blocks = place.root("photos/sparse").metadata().unwrap().blocks();
        assert!(blocks * 512 < 1_000_000, "holes are kept, {blocks} blocks");
        receiver.interrupt();
        assert_eq!(receiver.end().code, Some(0));
        clear(&place.root(""));
        clear(&place.here(""));
    }
}

#[test]
fn a_receiver_of_one_folder_ends_after_its_last_pack() {
    for protocol in ["cfdp", "saratoga", "norm"] {
        let place = Place::new();
        let folder = place.here("f");
        fs::create_dir(&folder).unwrap();
        for number in 0..10 {
            make(&folder.join(number.to_string()), 1_000_000);
        }
        let (receiver, address) = place.recv(protocol, LISTEN, &["--once"]);
        let rate = ["--rate", "200 Mbit/s"];
        delivered(send(&place, protocol, &[&folder], &address, &rate));
        let ended = receiver.end();
        assert_eq!(ended.code, Some(0), "{protocol}: {}", ended.message);
        assert_eq!(tree(&folder), tree(&place.root("f")), "{protocol}");
    }
}

/// Whether a sender with this state folder has noted a delivered pack.
fn has_delivered(state: &Path) -> bool {
    let batches = fs::read_dir(state).into_iter().flatten().map(Result::unwrap);
    let journals = batches.map(|batch| batch.path().join("delivered"));
    journals.into_iter().any(|journal| journal.metadata().is_ok_and(|found| found.len() > 0))
}

#[test]
fn the_same_command_sends_what_is_missing_or_changed() {
    for protocol in ["cfdp", "saratoga", "ltp"] {
        let place = Place::new();
        let folder = place.here("f");
        fs::create_dir(&folder).unwrap();
        for number in 0..60 {
            make(&folder.join(format!("{number:02}")), 100_000);
        }
        let (_receiver, address) = place.recv(protocol, LISTEN, &[]);
        let rate = ["--rate", "40 Mbit/s", "--delay", "1 ms"];
        let first = send(&place, protocol, &[&folder], &address, &rate);
        await_that("a delivered pack", || has_delivered(&place.here("state")));
        first.kill();
        let arrived = tree(&place.root("f"));
        let changed = arrived.keys().next().unwrap();
        fs::write(folder.join(changed), b"changed").unwrap();
        fs::write(folder.join("new"), b"new").unwrap();
        let summary = delivered(send(&place, protocol, &[&folder], &address, &rate));
        let before = summary["delivered_before_files"].as_u64().unwrap();
        assert!((1..60).contains(&before), "{protocol}: {summary}");
        for number in 0..60 {
            let name = format!("{number:02}");
            let (here, there) = (folder.join(&name), place.root("f").join(&name));
            assert!(fs::read(here).unwrap() == fs::read(there).unwrap(), "{protocol} {name}");
        }
        assert_eq!(fs::read(place.root("f/new")).unwrap(), b"new");
        // Nothing that was there is lost.
        let aside = place.root("f").join(format!("{}.~1~", changed.display()));
        assert_eq!(fs::read(aside).unwrap().len(), 100_000, "{protocol}");
    }
}

#[test]
fn files_that_exist_are_treated_by_the_receivers_policy() {
    for (policy, code, kept) in [
        ("rename", Some(0), &["old.~1~", "old"][..]),
        ("replace", Some(0), &["old"]),
        ("skip", Some(0), &["old"]),
        ("fail", Some(1), &["old"]),
    ] {
        let place = Place::new();
        fs::create_dir_all(place.here("f")).unwrap();
        fs::create_dir_all(place.root("f")).unwrap();
        fs::write(place.here("f/old"), b"sent").unwrap();
        fs::write(place.root("f/old"), b"there").unwrap();
        let (_receiver, address) = place.recv("saratoga", LISTEN, &["--existing", policy]);
        let ended = send(&place, "saratoga", &[&place.here("f")], &address, &[]).end();
        assert_eq!(ended.code, code, "{policy}: {}", ended.message);
        let found = tree(&place.root("f"));
        assert_eq!(found.len(), kept.len(), "{policy}: {found:?}");
        let expected: &[u8] =
            if matches!(policy, "rename" | "replace") { b"sent" } else { b"there" };
        assert_eq!(fs::read(place.root("f/old")).unwrap(), expected, "{policy}");
    }
}

#[test]
fn what_cannot_be_sent_is_named() {
    let place = Place::new();
    let folder = place.here("f");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file"), b"content").unwrap();
    rustix_mkfifo(&folder.join("pipe"));
    let _socket = std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap();
    let (_receiver, address) = place.recv("cfdp", LISTEN, &[]);
    let ended = send(&place, "cfdp", &[&folder], &address, &["--exclude", "*.tmp"]).end();
    assert_eq!(ended.code, Some(0), "{}", ended.message);
    for line in ["pipe: it is a named pipe", "socket: it is a socket"] {
        assert!(ended.message.contains(line), "{}", ended.message);
    }
    assert_eq!(ended.json()["skipped"], 2);
    let arrived: Vec<_> = tree(&place.root("")).into_keys().collect();
    assert_eq!(arrived, [PathBuf::from("f"), PathBuf::from("f/file")]);
}

fn rustix_mkfifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[test]
fn a_dry_run_lists_and_sends_nothing() {
    let place = Place::new();
    let photos = photos(&place.here(""));
    let mut command = program(&["send", "--dry-run", "--exclude", "raw"]);
    let ended = Running::of({
        command.arg(&photos).arg("127.0.0.1:9");
        command
    })
    .end();
    assert_eq!(ended.code, Some(0), "{}", ended.message);
    assert!(ended.out.contains("photos/link -> raw/c\n"), "{}", ended.out);
    assert!(!ended.out.contains("raw/large"), "{}", ended.out);
    assert!(ended.out.ends_with("6 files, 1 folder, 2 links, 3.00 MB\n"), "{}", ended.out);
    clear(&place.here(""));
}

#[test]
fn standard_input_is_sent_under_a_name() {
    let place = Place::new();
    let (_receiver, address) = place.recv("cfdp", LISTEN, &[]);
    let content = place.here("content");
    make(&content, 70_000);
    let mut command = program(&["send", "--protocol", "cfdp", "--json", "-", &address]);
    command.args(["--remote", "piped"]).stdin(File::open(&content).unwrap());
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(fs::read(content).unwrap() == fs::read(place.root("piped")).unwrap());
}

#[test]
fn received_files_go_to_standard_output() {
    let place = Place::new();
    let folder = place.here("f");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("notes"), "some notes\n".repeat(1000)).unwrap();
    let receive = || {
        let arguments = ["recv", "--protocol", "cfdp", "--listen", LISTEN, "--once", "--stdout"];
        let mut receiver = Running::start(&arguments);
        let address = receiver.address();
        (receiver, address)
    };
    let (receiver, address) = receive();
    delivered(send(&place, "cfdp", &[&folder], &address, &[]));
    let ended = receiver.end();
    assert_eq!(ended.code, Some(0), "{}", ended.message);
    fs::write(place.here("f.tar"), ended.out).unwrap();
    let mut tar = std::process::Command::new("tar");
    tar.args(["xf", "f.tar", "--ignore-zeros", "--directory"]).arg(place.root(""));
    assert!(tar.current_dir(place.here("")).status().unwrap().success());
    assert_eq!(tree(&folder), tree(&place.root("f")));
    let (receiver, address) = receive();
    place.send("cfdp", "f/notes", &address, &[]).end().complete();
    let ended = receiver.end();
    assert_eq!(ended.code, Some(0), "{}", ended.message);
    assert!(ended.out == "some notes\n".repeat(1000));
}

#[test]
fn only_what_differs_is_sent_to_a_receiver_that_lists() {
    let place = Place::new();
    let photos = photos(&place.here(""));
    let extra = place.here("extra");
    make(&extra, 500);
    let (_receiver, address) = place.recv_any(LISTEN, &["--serve", "--existing", "replace"]);
    for (round, protocol) in ["cfdp", "ltp", "norm/coded", "saratoga"].into_iter().enumerate() {
        let checked = |more: &[&str]| {
            let more = [&["--checksum"], more].concat();
            send(&place, protocol, &[&photos, &extra], &address, &more)
        };
        // The same length and time, but another content.
        let changed = photos.join("raw/large");
        let before = changed.metadata().unwrap().modified().unwrap();
        let file = File::options().write(true).open(&changed).unwrap();
        file.write_all_at(format!("{protocol} differs").as_bytes(), 700_000).unwrap();
        file.set_times(FileTimes::new().set_modified(before)).unwrap();

        let first = delivered(checked(&[]));
        let whole = (first["files"].as_u64().unwrap(), first["there_files"].as_u64().unwrap());
        assert_eq!(whole, if round == 0 { (9, 0) } else { (1, 8) }, "{protocol}: {first}");
        let second = delivered(checked(&[]));
        let rest = (second["files"].as_u64().unwrap(), second["there_files"].as_u64().unwrap());
        assert_eq!(rest, (0, 9), "{protocol}: {second}");
        assert_eq!(tree(&place.root("photos")), tree(&photos), "{protocol}");
    }
    fs::remove_file(place.root("photos/b.jpg")).unwrap();
    let mut dry = program(&["send", "--checksum", "--dry-run"]);
    dry.args([&photos, &extra]).arg(&address);
    let dry = Running::of(dry).end();
    assert_eq!(dry.code, Some(0), "{}", dry.message);
    assert!(dry.out.contains("photos/b.jpg") && !dry.out.contains("raw/c"), "{}", dry.out);
}

#[test]
fn what_only_the_receiver_has_is_deleted_on_request() {
    let place = Place::new();
    let photos = photos(&place.here(""));
    let (_receiver, address) = place.recv_any(LISTEN, &["--serve", "--allow-delete"]);
    let remote = ["--checksum", "--remote", "backup/of"];
    delivered(send(&place, "cfdp", &[&photos], &address, &remote));
    let there = place.root("backup/of");
    for name in ["b.jpg", "raw/c"] {
        fs::remove_file(photos.join(name)).unwrap();
    }
    // These stay: moved aside, excluded by either kind of pattern, or of another folder.
    let kept = ["a.~1~", "kept.tmp", "raw/kept"];
    for name in kept.into_iter().chain(["../other"]) {
        fs::write(there.join(name), name).unwrap();
    }
    let exclude = ["--delete", "--exclude", "*.tmp", "--exclude", "photos/raw/kept"];
    let deletes = [&remote[..], &exclude].concat();
    let dry = send(&place, "cfdp", &[&photos], &address, &[&deletes[..], &["--dry-run"]].concat());
    let dry = dry.end();
    assert!(dry.out.contains("delete backup/of/b.jpg\n"), "{}", dry.out);
    assert!(!dry.out.contains("kept"), "{}", dry.out);
    assert!(there.join("b.jpg").exists());
    // What is left out may be there, and no confirmation may mean that nothing has arrived.
    rustix_mkfifo(&photos.join("pipe"));
    let ended = send(&place, "ltp", &[&photos], &address, &deletes).end();
    assert_eq!(ended.code, Some(1), "{}", ended.message);
    assert!(ended.message.contains("--exclude them"), "{}", ended.message);
    fs::remove_file(photos.join("pipe")).unwrap();
    let ended = send(&place, "ltp-green", &[&photos], &address, &deletes).end();
    assert_eq!(ended.code, Some(2), "{}", ended.message);
    assert!(there.join("b.jpg").exists());

    fs::write(photos.join("z"), "new").unwrap();
    let sent = delivered(send(&place, "ltp", &[&photos], &address, &deletes));
    assert_eq!((&sent["files"], &sent["deleted_files"]), (&1.into(), &2.into()), "{sent}");
    let mut theirs = tree(&there);
    for name in kept {
        assert!(theirs.remove(Path::new(name)).is_some(), "{name}");
    }
    assert_eq!(theirs.keys().collect::<Vec<_>>(), tree(&photos).keys().collect::<Vec<_>>());
    assert!(place.root("backup/other").exists());

    // An empty folder may be that of a missing disk, and a name that of another folder.
    let empty = place.here("empty");
    fs::create_dir(&empty).unwrap();
    let other = ["--checksum", "--delete", "--remote", "backup"];
    for (paths, options, why) in [
        (vec![&photos, &empty], &["--checksum", "--delete"][..], "has no file here"),
        (vec![&photos], &other, "none of the files in backup at the receiver is here"),
    ] {
        let paths: Vec<&Path> = paths.into_iter().map(PathBuf::as_path).collect();
        let ended = send(&place, "cfdp", &paths, &address, options).end();
        assert_eq!(ended.code, Some(1), "{}", ended.message);
        assert!(ended.message.contains(why), "{}", ended.message);
    }
    assert!(place.root("backup/other").exists() && !place.root("backup/z").exists());
}

#[test]
fn nothing_is_deleted_if_the_receiver_keeps_another_file() {
    let place = Place::new();
    let photos = photos(&place.here(""));
    let options = ["--serve", "--allow-delete", "--existing", "skip"];
    let (_receiver, address) = place.recv_any(LISTEN, &options);
    delivered(send(&place, "cfdp", &[&photos], &address, &[]));
    // Renamed here, to a name that the receiver has.
    fs::rename(photos.join("b.jpg"), photos.join("raw/c")).unwrap();
    let ended = send(&place, "cfdp", &[&photos], &address, &["--checksum", "--delete"]).end();
    assert_eq!(ended.code, Some(1), "{}", ended.message);
    let why = "nothing was deleted at the receiver: photos/raw/c is not there as it is here";
    assert!(ended.message.contains(why), "{}", ended.message);
    assert!(place.root("photos/b.jpg").exists());
}

#[test]
fn deletions_stay_below_the_names_that_are_sent() {
    let place = Place::new();
    let photos = photos(&place.here(""));
    let (_receiver, address) = place.recv_any(LISTEN, &["--serve", "--allow-delete"]);
    let (content, options) =
        (photos.join("."), ["--checksum", "--delete", "--remote", "backup/of"]);
    delivered(send(&place, "cfdp", &[&content], &address, &options));
    for name in ["of-another", "raw/gone"] {
        fs::write(place.root("backup/of").join(name), "x").unwrap();
    }
    let sent = delivered(send(&place, "saratoga", &[&content], &address, &options));
    assert_eq!(sent["deleted_files"], 1, "{sent}");
    assert!(place.root("backup/of/of-another").exists());
    assert!(!place.root("backup/of/raw/gone").exists());
}

#[test]
fn deletions_that_are_not_permitted_are_named() {
    let place = Place::new();
    let photos = photos(&place.here(""));
    let (_receiver, address) = place.recv_any(LISTEN, &["--serve"]);
    delivered(send(&place, "cfdp", &[&photos], &address, &[]));
    fs::write(place.root("photos/only-there"), "x").unwrap();
    fs::write(place.root("photos/two\nlines"), "x").unwrap();
    fs::write(photos.join("z"), "new").unwrap();
    let ended = send(&place, "cfdp", &[&photos], &address, &["--checksum", "--delete"]).end();
    assert_eq!(ended.code, Some(1), "{}", ended.message);
    for text in [
        "no request can name it: photos/two\\nlines",
        "not deleted at the receiver: photos/only-there",
        "0 of 1 files were deleted at the receiver: it refuses; it has to run with --allow-delete",
    ] {
        assert!(ended.message.contains(text), "{}", ended.message);
    }
    assert!(place.root("photos/only-there").exists() && place.root("photos/z").exists());
}

#[test]
fn the_content_of_a_folder_goes_below_the_given_name() {
    let place = Place::new();
    let photos = photos(&place.here(""));
    let (_receiver, address) = place.recv_any(LISTEN, &["--serve"]);
    let content = photos.join(".");
    let remote = ["--remote", "backup/of", "--checksum"];
    delivered(send(&place, "cfdp", &[&content], &address, &remote));
    assert_eq!(tree(&place.root("backup/of")), tree(&photos));
    let again = delivered(send(&place, "cfdp", &[&content], &address, &remote));
    assert_eq!((&again["files"], &again["there_files"]), (&0.into(), &8.into()), "{again}");
}

#[test]
fn hundreds_of_paths_have_lists_of_their_own() {
    let place = Place::new();
    let paths: Vec<PathBuf> = (0..300).map(|number| place.here(&format!("{number}.dat"))).collect();
    paths.iter().for_each(|path| make(path, 10));
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let (_receiver, address) = place.recv_any(LISTEN, &["--serve"]);
    for files in [300, 0] {
        let sent = delivered(send(&place, "ltp", &paths, &address, &["--checksum"]));
        assert_eq!((&sent["files"], &sent["there_files"]), (&files.into(), &(300 - files).into()));
    }
}

#[test]
fn the_list_decides_and_not_what_an_earlier_run_delivered() {
    let place = Place::new();
    let folder = place.here("f");
    fs::create_dir(&folder).unwrap();
    for number in 0..8 {
        make(&folder.join(number.to_string()), 400_000);
    }
    let (_receiver, address) = place.recv_any(LISTEN, &["--serve"]);
    let slow = ["--rate", "4 Mbit/s"];
    let sender = send(&place, "ltp", &[&folder], &address, &slow);
    await_that("a pack is delivered", || has_delivered(&place.here("state")));
    sender.kill();
    // The sender does not know of the delivery: it may be killed before it has noted one.
    for batch in fs::read_dir(place.here("state")).unwrap().map(Result::unwrap) {
        fs::write(batch.path().join("delivered"), b"").unwrap();
    }
    // What is in transit may complete another pack.
    let mut here = BTreeMap::new();
    await_that("nothing more arrives", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = tree(&place.root("f"));
        std::mem::replace(&mut here, now) == here
    });
    assert!(!here.is_empty());
    clear(&place.root(""));
    delivered(send(&place, "ltp", &[&folder], &address, &["--checksum", "--rate", "40 Mbit/s"]));
    assert_eq!(tree(&place.root("f")), tree(&folder));
}

#[test]
fn a_receiver_that_does_not_serve_gives_no_list() {
    let place = Place::new();
    let (_receiver, address) = place.recv_any(LISTEN, &[]);
    let photos = photos(&place.here(""));
    let sender = send(&place, "ltp", &[&photos], &address, &["--checksum"]).end();
    assert_eq!(sender.code, Some(1), "{}", sender.message);
    assert!(sender.message.contains("It has to run with --serve"), "{}", sender.message);
    assert_eq!(tree(&place.root("")).len(), 0);
}
