//! Files that are longer than one bundle.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bp::codec::file_part::{FilePart, crc_append};
use sha2::{Digest as _, Sha256};

use super::row::{Row, SLOWLIGHT, bytes, files, text, wait_for};
use crate::guard::guarded;
use crate::sockets::folders::{photos, tree};

/// Bytes of a part here, and of a file with seven parts and a rest.
const PART: &str = "100 kB";
const LONG: usize = 750_001;

struct Files {
    row: Row,
    file: PathBuf,
    content: Vec<u8>,
    inbox: PathBuf,
}

impl Files {
    fn new(nodes: usize) -> Self {
        let row = Row::new(nodes);
        let content = bytes(LONG, 5);
        let file = row.folder.path().join("image.raw");
        fs::write(&file, &content).unwrap();
        let inbox = row.folder.path().join("inbox");
        fs::create_dir(&inbox).unwrap();
        Self { row, file, content, inbox }
    }

    fn arguments<'a>(&'a self, to: &'a str) -> [&'a str; 5] {
        ["send", to, self.file.to_str().unwrap(), "--part", PART]
    }

    fn receive(&self, n: usize, count: &str) {
        let inbox = self.inbox.to_str().unwrap();
        let received = self.row.bp(n, &["recv", "1", inbox, "--count", count]);
        assert!(received.status.success(), "{}", text(&received));
    }

    /// Number of incomplete files.
    fn pieces(&self) -> usize {
        let states = fs::read_dir(self.inbox.join(".slowlight")).unwrap();
        let spools = states.map(|state| state.unwrap().path().join("spool"));
        spools.map(|spool| fs::read_dir(spool).unwrap().count()).sum()
    }

    /// Records of the sender.
    fn remembered(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.row.place(1).join("slowlight")) else {
            return Vec::new();
        };
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

#[test]
fn long_files_are_split_into_bundles_and_reassembled() {
    let files = Files::new(3);
    let sent = files.row.bp(1, &files.arguments("ipn:3.1"));
    assert!(sent.status.success(), "{}", text(&sent));
    assert!(text(&sent).contains("750001 bytes in 8 bundles"), "{}", text(&sent));
    assert!(files.remembered().is_empty(), "it is over");
    files.receive(3, "1");
    let place = files.inbox.join("image.raw");
    assert!(fs::read(&place).unwrap() == files.content, "it is the same file");
    assert_eq!(files.pieces(), 0);
    // Another file of the same name does not replace it.
    fs::write(&place, b"edited").unwrap();
    let sent = files.row.bp(1, &files.arguments("ipn:3.1"));
    assert!(sent.status.success(), "{}", text(&sent));
    files.receive(3, "1");
    assert_eq!(fs::read(&place).unwrap(), b"edited");
    let named = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let entries = fs::read_dir(&files.inbox).unwrap().map(|entry| entry.unwrap().path());
    let other = entries.into_iter().find(|path| named(path).starts_with("image.raw.")).unwrap();
    assert!(fs::read(other).unwrap() == files.content);
}

/// Kills node, sender and receiver at any moment: the same commands resume, and the file arrives
/// once.
#[test]
fn long_files_resume_after_each_kill() {
    let mut files = Files::new(2);
    let mut receiver = files.row.receiver(2, &files.inbox);
    for round in 0..6_u64 {
        let mut sending = Command::new(SLOWLIGHT);
        sending.arg("bp").args(files.arguments("ipn:2.1")).arg("--node");
        sending.arg(files.row.place(1).join("node.sock"));
        sending.env("XDG_STATE_HOME", files.row.place(1));
        let mut sender = guarded(sending.stdout(Stdio::null()).stderr(Stdio::null()));
        std::thread::sleep(Duration::from_millis(15 + 7 * round));
        match round % 3 {
            0 => sender.child.kill().unwrap(),
            1 => {
                files.row.kill(1);
                files.row.start(1);
            }
            _ => {
                receiver.child.kill().unwrap();
                receiver.child.wait().unwrap();
                receiver = files.row.receiver(2, &files.inbox);
            }
        }
        sender.child.wait().unwrap();
    }
    let sent = files.row.bp(1, &files.arguments("ipn:2.1"));
    assert!(sent.status.success(), "{}", text(&sent));
    assert!(files.remembered().is_empty(), "it is over");
    wait_for("the nodes are empty", || {
        (1..=2).all(|n| files.row.query(n).is_some_and(|node| node["counts"]["bundles"] == 0))
    });
    receiver.child.kill().unwrap();
    receiver.child.wait().unwrap();
    let place = files.inbox.join("image.raw");
    assert!(fs::read(place).unwrap() == files.content, "it is the same file");
    assert_eq!(files.pieces(), 0, "no part is left over");
}

#[test]
fn folders_that_are_refused_stay_in_the_node() {
    let files = Files::new(2);
    let folder = files.row.folder.path().join("f");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file"), "new").unwrap();
    fs::create_dir(files.inbox.join("f")).unwrap();
    fs::write(files.inbox.join("f/file"), "old").unwrap();
    let sent = files.row.bp(1, &["send", "ipn:2.1", folder.to_str().unwrap()]);
    assert!(sent.status.success(), "{}", text(&sent));
    let inbox = files.inbox.to_str().unwrap();
    // A payload that is received after the folder.
    let last = files.row.folder.path().join("last");
    fs::write(&last, "the last").unwrap();
    let sent = files.row.bp(1, &["send", "ipn:2.1", last.to_str().unwrap()]);
    assert!(sent.status.success(), "{}", text(&sent));
    let received = files.row.bp(2, &["recv", "1", inbox, "--existing", "fail", "--count", "1"]);
    assert_eq!(received.status.code(), Some(1), "{}", text(&received));
    assert!(text(&received).contains("cannot be unpacked"), "{}", text(&received));
    assert_eq!(contents(&files.inbox.join("f")), [b"old"]);
    assert_eq!(contents(&files.inbox), [b"the last"]);
    // With another policy it is delivered.
    files.receive(2, "1");
    assert_eq!(fs::read(files.inbox.join("f/file")).unwrap(), b"new");
    assert_eq!(fs::read(files.inbox.join("f/file.~1~")).unwrap(), b"old");
}

#[test]
fn folders_cross_in_bundles() {
    let files = Files::new(2);
    let photos = photos(files.row.folder.path());
    let sent = files.row.bp(1, &["send", "ipn:2.1", photos.to_str().unwrap()]);
    assert!(sent.status.success(), "{}", text(&sent));
    files.receive(2, "1");
    assert!(tree(&files.inbox.join("photos")) == tree(&photos));
    // Sent once more, nothing is moved aside for what is the same.
    let again = files.row.bp(1, &["send", "ipn:2.1", photos.to_str().unwrap()]);
    assert!(again.status.success(), "{}", text(&again));
    files.receive(2, "1");
    assert!(tree(&files.inbox.join("photos")) == tree(&photos));
}

/// Payloads of other applications that only look like a part are delivered unchanged.
#[test]
fn invalid_part_headers_are_delivered_as_payloads() {
    let files = Files::new(1);
    let header = |part: FilePart<'_>, crc| part.encode(crc).unwrap();
    let sound = FilePart { transfer: 9, total: 100, offset: 10, name: "log" };
    let payloads = [
        // Wrong checksum.
        [header(sound, 1), vec![7; 50]].concat(),
        // A range beyond the end of the file.
        [header(sound, 1), vec![7; 91]].concat(),
        // A file length that no file system supports.
        [header(FilePart { total: u64::MAX, offset: u64::MAX - 3, ..sound }, 1), vec![7; 3]]
            .concat(),
        // No name.
        header(sound, 1)[..36].to_vec(),
    ];
    for payload in &payloads {
        let path = files.row.folder.path().join("payload");
        fs::write(&path, payload).unwrap();
        let sent = files.row.bp(1, &["send", "ipn:1.1", path.to_str().unwrap()]);
        assert!(sent.status.success(), "{}", text(&sent));
    }
    files.receive(1, "4");
    let mut came: Vec<Vec<u8>> = fs::read_dir(&files.inbox)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| fs::read(path).unwrap())
        .collect();
    let mut payloads = payloads.to_vec();
    payloads.sort();
    came.sort();
    assert!(came == payloads, "{came:?}");
    assert_eq!(files.pieces(), 0);
}

/// While the node is full, the sender waits for bundles to leave.
#[test]
fn files_longer_than_the_store_cross() {
    let mut files = Files::new(1);
    files.row.change(1, "limits.bytes = \"300 kB\"", "");
    let mut receiver = files.row.receiver(1, &files.inbox);
    let sent = files.row.bp(1, &files.arguments("ipn:1.1"));
    assert!(sent.status.success(), "{}", text(&sent));
    let place = files.inbox.join("image.raw");
    wait_for("the file is there", || place.exists());
    receiver.child.kill().unwrap();
    receiver.child.wait().unwrap();
    assert!(fs::read(place).unwrap() == files.content, "it is the same file");
}

/// A payload that is a whole file in one part.
fn whole_part(name: &str, content: &[u8]) -> Vec<u8> {
    let part = FilePart { transfer: 9, total: content.len() as u64, offset: 0, name };
    let crc = crc_append(part.crc().unwrap(), content);
    [part.encode(crc).unwrap(), content.to_vec()].concat()
}

/// Sends payloads to endpoint 1 of the first node, from these endpoints.
fn send_all(row: &Row, payloads: &[(&str, Vec<u8>)]) {
    for (from, payload) in payloads {
        let path = row.folder.path().join("payload");
        fs::write(&path, payload).unwrap();
        let sent = row.bp(1, &["send", "ipn:1.1", path.to_str().unwrap(), "--from", from]);
        assert!(sent.status.success(), "{}", text(&sent));
    }
}

/// Contents of the files in a folder, sorted.
fn contents(folder: &Path) -> Vec<Vec<u8>> {
    let mut contents: Vec<_> = files(folder).iter().map(|path| fs::read(path).unwrap()).collect();
    contents.sort();
    contents
}

#[test]
fn names_that_no_file_can_have_stop_no_bundle() {
    let mut files = Files::new(1);
    let long = format!("dtn://{}/9", "n".repeat(300));
    let node = long.trim_end_matches('9');
    let others = ["a", "b", "c", "d", "e"].map(|name| format!("dtn://{name}/"));
    let nodes: Vec<&str> = others.iter().map(String::as_str).chain([node]).collect();
    let aliases = format!("aliases = {nodes:?}");
    files.row.change(1, &aliases, "");
    let name = "l".repeat(250);
    let sent = [
        (long.as_str(), b"by a long name".to_vec()),
        ("dtn://a/9", whole_part("log", b"a")),
        ("dtn://b/9", whole_part("log", b"b")),
        ("dtn://c/9", whole_part("log", b"c")),
        ("dtn://d/9", whole_part(&name, b"d")),
        ("dtn://e/9", whole_part(&name, b"e")),
        ("2", b"the last".to_vec()),
    ];
    send_all(&files.row, &sent);
    files.receive(1, "7");
    let expected = [&b"a"[..], b"b", b"by a long name", b"c", b"d", b"e", b"the last"];
    assert_eq!(contents(&files.inbox), expected);
}

#[test]
fn a_bundle_that_cannot_be_stored_is_set_aside() {
    let files = Files::new(1);
    let sent = [("2", whole_part("log", b"a file")), ("2", b"the last".to_vec())];
    send_all(&files.row, &sent);
    // All names that the file may have are taken.
    let mut hash = Sha256::new();
    for part in [&b"log"[..], b"ipn:1.2", &9_u64.to_be_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let names =
        ["log".to_owned(), "log.0000000000000009".to_owned(), format!("bundle-{}", &hash[..32])];
    let obstacles = names.map(|name| files.inbox.join(name));
    obstacles.iter().for_each(|path| fs::write(path, b"").unwrap());
    let inbox = files.inbox.to_str().unwrap();
    let received = files.row.bp(1, &["recv", "1", inbox, "--count", "1"]);
    assert_eq!(received.status.code(), Some(1), "{}", text(&received));
    assert!(text(&received).contains("the bundle is set aside"), "{}", text(&received));
    assert_eq!(contents(&files.inbox), [&b""[..], b"", b"", b"the last"]);
    fs::remove_file(&obstacles[0]).unwrap();
    files.receive(1, "1");
    assert_eq!(fs::read(&obstacles[0]).unwrap(), b"a file");
}

/// With `--share turns` each bundle is in one folder, with `--share copies` in all.
#[test]
fn receivers_share_an_endpoint() {
    let row = Row::new(1);
    let payload = row.folder.path().join("payload");
    fs::write(&payload, bytes(100, 1)).unwrap();
    for (service, share) in [("1", "turns"), ("2", "copies")] {
        let folders = [0, 1].map(|n| row.folder.path().join(format!("{share}-{n}")));
        let more = ["--share", share];
        let _receivers = folders.each_ref().map(|into| row.receiver_at(1, service, into, &more));
        let counts = || folders.each_ref().map(|folder| files(folder).len());
        let to = format!("ipn:1.{service}");
        let send = || {
            let sent = row.bp(1, &["send", &to, payload.to_str().unwrap()]);
            assert!(sent.status.success(), "{}", text(&sent));
            wait_for("it is confirmed", || row.query(1).unwrap()["counts"]["bundles"] == 0);
        };
        let mut sent = 0;
        wait_for("both are registered", || {
            send();
            sent += 1;
            counts().iter().all(|count| *count > 0)
        });
        let before = counts();
        send();
        send();
        match share {
            "turns" => assert_eq!(counts().iter().sum::<usize>(), sent + 2),
            _ => assert_eq!(counts(), before.map(|count| count + 2)),
        }
        for (into, why) in [(row.folder.path(), "already"), (&folders[0], "in use by process")] {
            let alone = row.bp(1, &["recv", service, into.to_str().unwrap()]);
            assert!(!alone.status.success() && text(&alone).contains(why), "{}", text(&alone));
        }
    }
}

#[test]
fn short_files_keep_their_names_on_request() {
    let row = Row::new(2);
    let (file, inbox) = (row.folder.path().join("log.txt"), row.folder.path().join("inbox"));
    let empty = row.folder.path().join("nothing.txt");
    fs::write(&file, "content").unwrap();
    fs::write(&empty, "").unwrap();
    fs::create_dir(&inbox).unwrap();
    let path = file.to_str().unwrap();
    let sent = row.bp(1, &["send", "ipn:2.1", path, empty.to_str().unwrap(), "--keep-names"]);
    assert!(sent.status.success(), "{}", text(&sent));
    let received = row.bp(2, &["recv", "1", inbox.to_str().unwrap(), "--count", "2"]);
    assert!(received.status.success(), "{}", text(&received));
    assert_eq!(fs::read_to_string(inbox.join("log.txt")).unwrap(), "content");
    assert_eq!(fs::read_to_string(inbox.join("nothing.txt")).unwrap(), "");
}
