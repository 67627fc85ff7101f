//! Bundles that are signed, encrypted, in custody or sprayed, according to the nodes' files.

use std::fs;

use super::row::{Row, bytes, files, text, wait_for};

/// Rules of a node that adds, or verifies and removes, a signature and then encryption of payloads
/// for the third node.
fn rules(row: &Row, n: usize, role: &str, key: &str) -> String {
    let place = row.place(n);
    fs::write(place.join("sign.key"), key.repeat(32)).unwrap();
    fs::write(place.join("hide.key"), "5a".repeat(32)).unwrap();
    let rule = |operation: &str, name: &str| {
        format!(
            "[[security]]\nrole = \"{role}\"\noperation = \"{operation}\"\nto = \"ipn:3.0\"\nkey = \"{name}\"\n"
        )
    };
    format!(
        "[keys.sign]\nfile = \"sign.key\"\n[keys.hide]\nfile = \"hide.key\"\n{}{}",
        rule("integrity", "sign"),
        rule("confidentiality", "hide")
    )
}

#[test]
fn payloads_are_encrypted_in_transit_and_verified_on_arrival() {
    let mut row = Row::new(3);
    let (first, third) = (rules(&row, 1, "source", "01"), rules(&row, 3, "acceptor", "01"));
    row.change(1, "", &first);
    // It stays at the second node.
    row.kill(3);
    let path = row.folder.path().join("payload");
    let content = [bytes(50_000, 1), b"a word that is seen in the clear".repeat(10)].concat();
    fs::write(&path, &content).unwrap();
    let sent = row.bp(1, &["send", "ipn:3.1", path.to_str().unwrap()]);
    assert!(sent.status.success(), "{}", text(&sent));
    wait_for("the second node has it", || {
        row.query(2).is_some_and(|node| node["counts"]["bundles"] == 1)
            && row.query(1).is_some_and(|node| node["counts"]["bundles"] == 0)
    });
    let mut kept = Vec::new();
    for folder in ["records", "spool/bp"] {
        let files = fs::read_dir(row.place(2).join("store/.slowlight").join(folder)).unwrap();
        files.for_each(|file| kept.extend(fs::read(file.unwrap().path()).unwrap()));
    }
    assert!(kept.len() > content.len());
    assert!(!kept.windows(15).any(|bytes| bytes == b"seen in the cle"), "it is hidden");
    row.change(3, "", &third);
    let inbox = row.folder.path().join("inbox");
    fs::create_dir(&inbox).unwrap();
    let received = row.bp(3, &["recv", "1", inbox.to_str().unwrap(), "--count", "1"]);
    assert!(received.status.success(), "{}", text(&received));
    assert!(fs::read(&files(&inbox)[0]).unwrap() == content, "it is the same payload");
}

#[test]
fn a_payload_that_another_key_signed_is_deleted() {
    let mut row = Row::new(3);
    let (first, third) = (rules(&row, 1, "source", "01"), rules(&row, 3, "acceptor", "02"));
    row.change(1, "", &first);
    row.change(3, "", &third);
    let path = row.folder.path().join("payload");
    fs::write(&path, bytes(1000, 1)).unwrap();
    let sent = row.bp(1, &["send", "ipn:3.1", path.to_str().unwrap()]);
    assert!(sent.status.success(), "{}", text(&sent));
    wait_for("it is deleted", || {
        row.query(3).is_some_and(|node| {
            node["counts"]["deleted"].as_u64() > Some(0) && node["counts"]["bundles"] == 0
        })
    });
    // A bundle without a signature is rejected too.
    let sent = row.bp(2, &["send", "ipn:3.1", path.to_str().unwrap()]);
    assert!(sent.status.success(), "{}", text(&sent));
    wait_for("it is deleted, too", || {
        row.query(3).is_some_and(|node| node["counts"]["deleted"].as_u64() > Some(1))
    });
}

/// Requirements: E06a, E07.
#[test]
fn custody_is_kept_until_another_node_accepts_it() {
    let mut row = Row::new(3);
    row.change(1, "custody.retransmit_after = \"300 ms\"", "");
    row.kill(3);
    let path = row.folder.path().join("payload");
    fs::write(&path, bytes(20_000, 1)).unwrap();
    let path = path.to_str().unwrap();
    // The second node declines: the first node keeps it although its neighbour holds it.
    row.change(2, "custody.accept = false", "");
    let arguments = ["send", "ipn:3.1", path, "--bundle-version", "6", "--custody"];
    let sent = row.bp(1, &arguments);
    assert!(sent.status.success(), "{}", text(&sent));
    wait_for("both have it", || {
        [1, 2].iter().all(|n| row.query(*n).is_some_and(|node| node["counts"]["bundles"] == 1))
    });
    row.start(3);
    let inbox = row.folder.path().join("inbox");
    fs::create_dir(&inbox).unwrap();
    let received = row.bp(3, &["recv", "1", inbox.to_str().unwrap(), "--count", "1"]);
    assert!(received.status.success(), "{}", text(&received));
    wait_for("the third has told the first", || {
        row.query(1).is_some_and(|node| node["counts"]["bundles"] == 0)
    });
}

#[test]
fn sprayed_bundles_wait_for_their_destination() {
    let mut row = Row::new(2);
    // An unknown third node: copies stay where they were sprayed.
    row.change(1, "spray = 2", "");
    row.change(2, "spray = 2", "");
    let path = row.folder.path().join("payload");
    fs::write(&path, bytes(5000, 1)).unwrap();
    let path = path.to_str().unwrap();
    let sent = row.bp(1, &["send", "ipn:9.1", path]);
    assert!(sent.status.success(), "{}", text(&sent));
    wait_for("each has a copy", || {
        [1, 2].iter().all(|n| row.query(*n).is_some_and(|node| node["counts"]["bundles"] == 1))
    });
    let sent = row.bp(1, &["send", "ipn:2.1", path]);
    assert!(sent.status.success(), "{}", text(&sent));
    let inbox = row.folder.path().join("inbox");
    fs::create_dir(&inbox).unwrap();
    let received = row.bp(2, &["recv", "1", inbox.to_str().unwrap(), "--count", "1"]);
    assert!(received.status.success(), "{}", text(&received));
}
