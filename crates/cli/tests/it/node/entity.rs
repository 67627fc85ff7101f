//! CFDP entities at nodes: files in bundles, and entities and nodes that are killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::row::{Row, SLOWLIGHT, bytes, text, wait_for};
use crate::bounded::output;
use crate::guard::{Guarded, guarded};

/// A row of nodes, and folders for an entity beside the first and one beside the last.
struct Entities {
    row: Row,
    last: usize,
}

impl Entities {
    fn new(nodes: usize) -> Self {
        let row = Row::new(nodes);
        for folder in ["here", "inbox"] {
            fs::create_dir(row.folder.path().join(folder)).unwrap();
        }
        Self { row, last: nodes }
    }

    fn make(&self, name: &str, len: usize) -> PathBuf {
        let path = self.row.folder.path().join("here").join(name);
        fs::write(&path, bytes(len, len as u64)).unwrap();
        path
    }

    fn inbox(&self, name: &str) -> PathBuf {
        self.row.folder.path().join("inbox").join(name)
    }

    fn command(&self, n: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new(SLOWLIGHT);
        command
            .args(arguments)
            .arg("--json")
            .arg("--node")
            .arg(self.row.place(n).join("node.sock"));
        command.env("XDG_STATE_HOME", self.row.place(n)).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn sending(&self, path: &Path, more: &[&str]) -> Command {
        let last = self.last.to_string();
        let arguments = ["send", path.to_str().unwrap(), "--remote-entity", &last];
        self.command(1, &[&arguments, more].concat())
    }

    fn send(&self, path: &Path, more: &[&str]) -> Output {
        output(&mut self.sending(path, more))
    }

    fn receiver(&self, more: &[&str]) -> Guarded {
        self.receiver_beside(self.last, more)
    }

    fn receiver_beside(&self, n: usize, more: &[&str]) -> Guarded {
        let inbox = self.inbox("");
        let arguments = ["recv", "--root", inbox.to_str().unwrap()];
        guarded(&mut self.command(n, &[&arguments, more].concat()))
    }

    fn has(&self, name: &str, len: usize) -> bool {
        fs::read(self.inbox(name)).is_ok_and(|found| found == bytes(len, len as u64))
    }

    /// Waits until no node holds anything.
    fn await_nothing_held(&self) {
        wait_for("nothing is held", || {
            let held = |n| self.row.query(n).map(|node| node["counts"]["bundles"].clone());
            (1..=self.last).all(|n| held(n) == Some(0.into()))
        });
    }
}

fn outcome(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stop(mut guarded: Guarded) {
    guarded.child.kill().unwrap();
    guarded.child.wait().unwrap();
}

#[test]
fn files_cross_a_relay_in_both_classes() {
    let entities = Entities::new(3);
    for (class, len) in [("1", 0), ("2", 1), ("1", 1_000_003), ("2", 1_000_003)] {
        let name = format!("file-{class}-{len}");
        let path = entities.make(&name, len);
        let receiver = entities.receiver(&["--once"]);
        let sent = outcome(&entities.send(&path, &["--class", class]));
        let received = outcome(&receiver.child.wait_with_output().unwrap());
        assert!(entities.has(&name, len), "{name}");
        assert_eq!(sent["transaction"], received["transaction"]);
        assert_eq!((&sent["file_bytes"], &sent["completed"]), (&len.into(), &true.into()));
        // Custody of the node does not confirm the reception.
        assert_eq!(sent["delivery"], if class == "1" { "unreported" } else { "complete" });
        assert_eq!(received["delivery"], "complete");
    }
    // Class 1 with transaction closure.
    let path = entities.make("closed", 70_000);
    let receiver = entities.receiver(&["--once"]);
    let sent = outcome(&entities.send(&path, &["--class", "1", "--closure"]));
    assert_eq!(sent["delivery"], "complete");
    outcome(&receiver.child.wait_with_output().unwrap());
    // Restarted receivers re-send the last outcomes, which an entity at the sender consumes.
    let taker = entities.receiver_beside(1, &[]);
    entities.await_nothing_held();
    stop(taker);
}

#[test]
fn receivers_may_start_long_after_sender_and_node() {
    let mut entities = Entities::new(2);
    let path = entities.make("image", 3_000_000);
    entities.row.kill(2);
    let sent = outcome(&entities.send(&path, &[]));
    assert_eq!(sent["delivery"], "unreported", "class 1 is the default");
    // The file is no longer needed here.
    fs::remove_file(&path).unwrap();
    entities.row.start(2);
    let receiver = entities.receiver(&["--once"]);
    outcome(&receiver.child.wait_with_output().unwrap());
    assert!(entities.has("image", 3_000_000));
    entities.await_nothing_held();
}

#[test]
fn several_entities_send_to_one() {
    let entities = Entities::new(3);
    let receiver = entities.receiver(&[]);
    let paths = [("a", 400_000), ("b", 500_000)].map(|(name, len)| entities.make(name, len));
    let near = guarded(&mut entities.sending(&paths[0], &["--class", "2"]));
    let arguments = ["send", paths[1].to_str().unwrap(), "--remote-entity", "3", "--class", "2"];
    let other = guarded(&mut entities.command(2, &arguments));
    for sender in [near, other] {
        assert_eq!(outcome(&sender.child.wait_with_output().unwrap())["delivery"], "complete");
    }
    assert!(entities.has("a", 400_000) && entities.has("b", 500_000));
    stop(receiver);
}

#[test]
fn receivers_and_nodes_may_be_killed_at_any_time() {
    let mut entities = Entities::new(3);
    let mut receiver = entities.receiver(&[]);
    wait_for("the receiver has its endpoint", || {
        entities.row.query(3).is_some_and(|node| node["endpoints"] != Value::Array(Vec::new()))
    });
    for round in 0..6 {
        let len = 2_000_000 + round;
        let name = format!("file-{round}");
        let path = entities.make(&name, len);
        let class = if round % 2 == 0 { "1" } else { "2" };
        let sender = guarded(&mut entities.sending(&path, &["--class", class]));
        std::thread::sleep(Duration::from_millis(30 + 40 * round as u64));
        let victim = [3, 0, 2, 1, 0, 3][round];
        if victim == 0 {
            stop(receiver);
            receiver = entities.receiver(&[]);
        } else {
            entities.row.kill(victim);
            entities.row.start(victim);
        }
        let sent = outcome(&sender.child.wait_with_output().unwrap());
        assert_eq!(sent["completed"], true);
        wait_for(&format!("{name} is here"), || entities.has(&name, len));
    }
    stop(receiver);
}

#[test]
fn killed_senders_resume() {
    let entities = Entities::new(2);
    let path = entities.make("image", 20_000_000);
    let receiver = entities.receiver(&[]);
    let mut sender = guarded(&mut entities.sending(&path, &["--class", "2"]));
    wait_for("something is here", || {
        let counts = entities.row.query(2).map(|node| node["counts"]["delivered"].clone());
        counts.and_then(|delivered| delivered.as_u64()).is_some_and(|delivered| delivered > 10)
    });
    // It may have ended by now; then the same command sends it again.
    let _ = sender.child.kill();
    sender.child.wait().unwrap();
    let sent = outcome(&entities.send(&path, &["--class", "2"]));
    assert_eq!(sent["delivery"], "complete");
    assert!(entities.has("image", 20_000_000));
    stop(receiver);
}

#[test]
fn entities_that_cannot_start_report_the_reason() {
    let entities = Entities::new(2);
    let path = entities.make("file", 100_000);
    let failed = |output: &Output, why: &str| {
        assert_eq!(output.status.code(), Some(2), "{why}: {}", text(output));
        assert!(text(output).contains(why), "{why}: {}", text(output));
    };
    failed(&entities.send(&path, &["--entity", "7"]), "an entity has the number of its node");
    let to_itself = ["send", path.to_str().unwrap(), "--remote-entity", "1"];
    failed(&output(&mut entities.command(1, &to_itself)), "numbers of their own");
    failed(&entities.send(&path, &["--lifetime", "0 s"]), "--lifetime is 0");
    let mib = entities.row.folder.path().join("mib.toml");
    let mib_path = mib.to_str().unwrap();
    for (reply, why) in
        [("ut.pdu = \"1 B\"", "ut.pdu is 1 B"), ("rate = 3", "unknown field `rate`")]
    {
        fs::write(&mib, reply).unwrap();
        failed(&entities.send(&path, &["--mib", mib_path]), why);
    }
    // An entity that expects replies needs exclusive use of the endpoint; one without replies can
    // share it.
    let both = Entities::new(1);
    let receiver = both.receiver(&[]);
    wait_for("it has its endpoint", || {
        both.row.query(1).is_some_and(|node| node["endpoints"].to_string().contains("ipn:1.65"))
    });
    let path = both.make("file", 1000);
    let arguments = ["send", path.to_str().unwrap(), "--remote-entity", "2", "--class"];
    let second = output(&mut both.command(1, &[&arguments[..], &["2"]].concat()));
    assert_eq!(second.status.code(), Some(1), "{}", text(&second));
    assert!(text(&second).contains("another entity runs beside it"), "{}", text(&second));
    outcome(&output(&mut both.command(1, &[&arguments[..], &["1"]].concat())));
    stop(receiver);
}

#[test]
fn waiting_bundles_are_left_to_their_entity() {
    let entities = Entities::new(2);
    // A file for the first node, without a receiver yet, in both classes.
    for class in ["1", "2"] {
        let path = entities.make(&format!("waiting-{class}"), 300_000);
        let arguments = ["send", path.to_str().unwrap(), "--remote-entity", "1", "--class", class];
        let mut waiting = guarded(&mut entities.command(2, &arguments));
        if class == "1" {
            assert!(waiting.child.wait().unwrap().success());
        } else {
            wait_for("its end is there", || {
                entities
                    .row
                    .query(1)
                    .is_some_and(|node| node["counts"]["bundles"].as_u64() > Some(10))
            });
            let _ = waiting.child.kill();
            waiting.child.wait().unwrap();
        }
    }
    let receiver = entities.receiver(&[]);
    let path = entities.make("own", 500_000);
    assert_eq!(outcome(&entities.send(&path, &["--class", "2"]))["delivery"], "complete");
    stop(receiver);
    let receiver = entities.receiver_beside(1, &[]);
    wait_for("what waited is here", || entities.has("waiting-1", 300_000));
    stop(receiver);
}

#[test]
fn interrupted_senders_end_promptly_and_report_it() {
    let mut entities = Entities::new(2);
    let path = entities.make("file", 1_000_000);
    entities.row.kill(2);
    let sender = guarded(&mut entities.sending(&path, &["--class", "2"]));
    wait_for("it is at the node", || {
        entities.row.query(1).is_some_and(|node| node["counts"]["sourced"].as_u64() > Some(15))
    });
    let killed =
        Command::new("kill").args(["-INT", &sender.child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let ended = sender.child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", text(&ended));
    assert!(text(&ended).contains("the same command resumes"), "{}", text(&ended));
}
