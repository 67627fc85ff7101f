//! Bundle nodes as processes: files over a relay, nodes killed at any moment, a full disk.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod entity;
mod files;
mod over_ltp;
mod reload;
mod row;
mod secured;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use self::row::{Row, SLOWLIGHT, bytes, text, wait_for};
use crate::guard::guarded;

#[test]
fn files_cross_a_relay_and_nodes_end_in_order() {
    let mut row = Row::new(3);
    let outbox = row.folder.path().join("outbox");
    let inbox = row.folder.path().join("inbox");
    fs::create_dir(&outbox).unwrap();
    for (name, len) in [("empty", 0), ("short", 100), ("long", 3_000_000)] {
        fs::write(outbox.join(name), bytes(len, 1)).unwrap();
        let path = outbox.join(name);
        let sent = row.bp(1, &["send", "ipn:3.1", path.to_str().unwrap()]);
        assert!(sent.status.success(), "{}", text(&sent));
    }
    fs::create_dir(&inbox).unwrap();
    let received = row.bp(3, &["recv", "ipn:3.1", inbox.to_str().unwrap(), "--count", "3"]);
    assert!(received.status.success(), "{}", text(&received));
    let contents = |folder: &Path| -> BTreeSet<Vec<u8>> {
        row::files(folder).iter().map(|path| fs::read(path).unwrap()).collect()
    };
    assert_eq!(contents(&inbox).len(), 3);
    assert!(contents(&inbox) == contents(&outbox), "they are the same files");
    let pinged = row.bp(1, &["ping", "ipn:3.2047", "--count", "5", "--interval", "0 s", "--json"]);
    let value: Value = serde_json::from_slice(&pinged.stdout).unwrap();
    assert!(pinged.status.success() && value["answered"] == 5, "{}", text(&pinged));
    let traced = row.bp(1, &["trace", "ipn:3.2047"]);
    assert!(
        traced.status.success() && text(&traced).contains("ipn:3.0: delivered"),
        "{}",
        text(&traced)
    );
    let hint = "no other node reported; set `reports.forwarding = true`";
    assert!(text(&traced).contains(hint), "{}", text(&traced));
    for n in 1..=3 {
        let child = row.nodes[n - 1].take().unwrap();
        let killed = Command::new("kill").arg(child.id().to_string()).status().unwrap();
        assert!(killed.success());
        let mut child = child;
        let started = Instant::now();
        let status = child.wait().unwrap();
        assert!(status.success() && started.elapsed() < Duration::from_secs(5), "{status}");
        assert!(!row.place(n).join("node.sock").exists());
    }
}

#[test]
fn restarted_nodes_remove_spool_files_of_their_layers() {
    let mut row = Row::new(1);
    row.kill(1);
    let spool = row.place(1).join("store/.slowlight/spool");
    let left = ["sar-00000007", "norm-0000000000000007", "bp/bundle-0000000000000007-1"];
    for name in left {
        fs::write(spool.join(name), bytes(1000, 1)).unwrap();
    }
    row.start(1);
    wait_for("the files are gone", || left.iter().all(|name| !spool.join(name).exists()));
}

#[test]
fn operators_see_neighbours_and_delete_bundles() {
    let mut row = Row::new(2);
    let log = row.place(1).join("log");
    let logs = |what: &str| fs::read_to_string(&log).unwrap().contains(what);
    wait_for("the log names the neighbour", || logs("ipn:2.0 is up"));
    row.kill(2);
    wait_for("the log names its end", || logs("ipn:2.0 is down: "));
    let path = row.folder.path().join("payload");
    fs::write(&path, bytes(100, 1)).unwrap();
    for flags in
        [&["--reports", "delivered,deleted", "--hop-limit", "5"][..], &["--priority", "bulk"]]
    {
        let arguments = [&["send", "ipn:2.1", path.to_str().unwrap()], flags].concat();
        let sent = row.bp(1, &arguments);
        assert!(sent.status.success(), "{}", text(&sent));
    }
    let listed = row.bp(1, &["query", "--state", "queued"]);
    assert_eq!(text(&listed).matches("queued for ipn:2.0").count(), 2, "{}", text(&listed));
    let listed = row.bp(1, &["query", "--destination", "ipn:2.2"]);
    assert!(!text(&listed).contains("queued"), "{}", text(&listed));
    let purged = row.bp(1, &["purge", "--destination", "ipn:2.0"]);
    assert!(text(&purged).contains("2 bundles deleted"), "{}", text(&purged));
    assert_eq!(row.query(1).unwrap()["counts"]["bundles"], 0);
}

/// Every acknowledged bundle arrives complete, whichever nodes are killed at any time.
///
/// Requirements: B43.
#[test]
fn acknowledged_bundles_survive_any_kill() {
    let kills: u64 = match std::env::var("SLOWLIGHT_NODE_KILLS") {
        Ok(text) => text.parse().expect("SLOWLIGHT_NODE_KILLS is a number"),
        Err(_) => 6,
    };
    let content = |round: u64| bytes(100 + (round as usize * 7919) % 300_000, round + 1);
    let mut row = Row::new(3);
    let inbox = row.folder.path().join("inbox");
    let mut receiver = row.receiver(3, &inbox);
    let mut acknowledged = BTreeMap::new();
    for round in 0..kills {
        let path = row.folder.path().join("payload");
        fs::write(&path, content(round)).unwrap();
        // Several bundles, and a node that is killed while they are in transit.
        let victim = 1 + (round % 3) as usize;
        let delay = Duration::from_millis(round.wrapping_mul(37) % 60);
        let socket = row.place(1).join("node.sock");
        let mut sending = Command::new(SLOWLIGHT);
        sending.args(["bp", "send", "ipn:3.1"]).args([&path, &path, &path]);
        sending.arg("--node").arg(&socket).stdout(Stdio::piped()).stderr(Stdio::null());
        let sender = guarded(&mut sending);
        std::thread::sleep(delay);
        row.kill(victim);
        let sent = sender.child.wait_with_output().unwrap();
        let reply = String::from_utf8(sent.stdout).unwrap();
        acknowledged.extend(reply.lines().map(|id| (id.to_owned(), round)));
        row.start(victim);
        if victim == 3 {
            receiver.child.wait().unwrap();
            receiver = row.receiver(3, &inbox);
        }
    }
    // All bundles have the same source: time and sequence number identify them.
    let name = |id: &str| -> String {
        let stamp = id.rsplit(' ').next().unwrap();
        format!("bundle-{}", stamp.replace('.', "-"))
    };
    let arrived = || -> BTreeMap<String, PathBuf> {
        let paths = row::files(&inbox).into_iter();
        let named = |path: &Path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.rsplit_once('-').unwrap().0.to_owned()
        };
        paths.map(|path| (named(&path), path)).collect()
    };
    let expected: BTreeSet<String> = acknowledged.keys().map(|id| name(id)).collect();
    assert!(!expected.is_empty(), "some bundles are acknowledged");
    wait_for("all that was acknowledged arrives", || {
        let arrived = arrived();
        expected.iter().all(|name| arrived.contains_key(name))
    });
    wait_for("nothing is left on the way", || {
        (1..=3).all(|n| row.query(n).is_some_and(|node| node["counts"]["bundles"] == 0))
    });
    receiver.child.kill().unwrap();
    receiver.child.wait().unwrap();
    for (id, round) in &acknowledged {
        assert!(fs::read(&arrived()[&name(id)]).unwrap() == content(*round), "{id} is damaged");
    }
    // A payload is passed on again after its confirmation was lost; for the store it is one bundle.
    // Files are removed after the records that name them.
    for n in 1..=3 {
        let spool = row.place(n).join("store/.slowlight/spool/bp");
        wait_for("no payload is left", || fs::read_dir(&spool).unwrap().count() == 0);
    }
}

#[test]
fn a_full_disk_stops_acceptance_and_loses_nothing() {
    crosses_to_a_full_disk(true);
}

/// Records of received bundles may have used the space reserved for records of deleted ones.
#[test]
fn a_full_disk_without_room_for_a_record_loses_nothing() {
    crosses_to_a_full_disk(false);
}

/// Starts the second node of a row, in its own namespace, with a store of 2 MB.
fn start_with_small_store(row: &mut Row) {
    row.kill(2);
    let store = row.place(2).join("store");
    fs::remove_dir_all(&store).unwrap();
    fs::create_dir(&store).unwrap();
    let toml = row.place(2).join("node.toml");
    let script = format!(
        "mount -t tmpfs -o size=2m none {} && exec {SLOWLIGHT} node {}",
        store.display(),
        toml.display()
    );
    let log = fs::File::create(row.place(2).join("log")).unwrap();
    let spawned = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .stdin(Stdio::null())
        .stderr(log)
        .spawn();
    row.nodes[1] = Some(spawned.unwrap());
    row.wait_until_ready(2);
}

/// Six bundles for a node whose disk takes three. With `has_reserve`, the space that the node
/// reserves for records is free when the last blocks are taken.
fn crosses_to_a_full_disk(has_reserve: bool) {
    let mut row = Row::new(2);
    start_with_small_store(&mut row);
    let path = row.folder.path().join("payload");
    fs::write(&path, bytes(500_000, 3)).unwrap();
    let sent = row.bp(1, &["send", "ipn:2.1", &path.to_string_lossy(), &path.to_string_lossy()]);
    assert!(sent.status.success(), "{}", text(&sent));
    for _ in 0..4 {
        let sent = row.bp(1, &["send", "ipn:2.1", &path.to_string_lossy()]);
        assert!(sent.status.success(), "{}", text(&sent));
    }
    wait_for("the neighbour is full", || {
        let node = row.query(2).unwrap();
        node["counts"]["refused"].as_u64() > Some(0) && node["trouble"].is_string()
    });
    // An application gets the same error. If two bundles arrived at once and neither fit, there is
    // space for one until the neighbour retries.
    wait_for("an application is refused", || {
        let refused = row.bp(2, &["send", "ipn:1.1", &path.to_string_lossy()]);
        let message = text(&refused);
        let is_so = !refused.status.success();
        assert!(!is_so || message.contains("o space left"), "{message}");
        is_so
    });
    // Another program takes the last blocks, too.
    let pid = row.nodes[1].as_ref().unwrap().id();
    let inside = format!("/proc/{pid}/root{}", row.place(2).join("store").display());
    if !has_reserve {
        // A record that had no room may have had it removed already.
        let _ = fs::remove_file(format!("{inside}/.slowlight/reserve"));
    }
    let mut filler = fs::File::create(format!("{inside}/filler")).unwrap();
    while filler.write_all(&[0; 512]).is_ok() {}
    // Confirmed bundles leave as usual, and then the rest arrives.
    let inbox = row.folder.path().join("inbox");
    fs::create_dir(&inbox).unwrap();
    let received = row.bp(2, &["recv", "1", inbox.to_str().unwrap(), "--count", "6"]);
    assert!(received.status.success(), "{}", text(&received));
    assert_eq!(row::files(&inbox).len(), 6);
    wait_for("nothing is left", || row.query(2).unwrap()["counts"]["bundles"] == 0);
    let left = || fs::read_dir(format!("{inside}/.slowlight/spool/bp")).unwrap().count();
    wait_for("no payload is left", || left() == 0);
}
