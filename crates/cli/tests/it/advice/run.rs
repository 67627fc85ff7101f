//! Worlds in which printed commands run.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::cases::Case;
use super::{SLOWLIGHT, read};
use crate::guard::guarded_for;
use crate::world::text;

/// Maximum duration of a world.
pub(super) const LIMIT: Duration = Duration::from_secs(120);
/// Bytes of files to send are numbers of this generator.
const FACTOR: u32 = 1_664_525;

/// Outcome of a run.
pub(super) enum Ran {
    Delivered { after_s: f64, is_trusted: bool },
    Differs(String),
}

/// Commands of both hosts, and the files that they name.
pub(super) struct Roles<'a> {
    case: &'a Case,
    receiver: String,
    sender: String,
    /// Contents of files by their names.
    files: BTreeMap<String, String>,
    /// Settings of a node's layer, where nodes run.
    layer: Option<String>,
    /// Setting of the nodes with the contacts of the link.
    plan: String,
}

impl<'a> Roles<'a> {
    pub(super) fn new(case: &'a Case, lines: &[String]) -> Self {
        let mut roles = Self {
            case,
            receiver: String::new(),
            sender: String::new(),
            files: BTreeMap::new(),
            layer: None,
            plan: String::new(),
        };
        for line in lines {
            let Some((head, rest)) = line.trim_start().split_once(": ") else { continue };
            let rest = rest.trim_start();
            match head {
                "receiver" | "receivers" => rest.clone_into(&mut roles.receiver),
                "sender" => rest.clone_into(&mut roles.sender),
                "NODE.toml" if rest.starts_with("[[layer]] ") => {
                    let keys = rest.trim_start_matches("[[layer]] ");
                    let keys = keys.split_once("; see").map_or(keys, |(keys, _)| keys);
                    roles.layer = Some(keys.replace(", ", "\n"));
                }
                "NODE.toml" if rest.starts_with("contact_plan = ") => {
                    let key = rest.split_once(" with ").map_or(rest, |(key, _)| key);
                    // The reader writes this file; without it the nodes do not know the outages.
                    if case.files.iter().any(|(name, _)| key.contains(name)) {
                        key.clone_into(&mut roles.plan);
                    }
                }
                name if name.ends_with(".toml") || name.ends_with(".txt") => {
                    let content = roles.files.entry(name.to_owned()).or_default();
                    *content += &format!("{rest}\n");
                }
                _ => {}
            }
        }
        assert!(!roles.receiver.is_empty() && !roles.sender.is_empty(), "{lines:?}");
        roles
    }

    /// Whether the receiver starts the transfer.
    fn is_fetched(&self) -> bool {
        self.receiver.contains(" get ")
    }

    /// Runs both commands.
    pub(super) fn run(&self) -> Ran {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::create_dir(place("bin")).unwrap();
        symlink(SLOWLIGHT, place("bin/slowlight")).unwrap();
        for host in ["near", "far"] {
            fs::create_dir_all(place(host).join("inbox")).unwrap();
            for (name, content) in &self.files {
                fs::write(place(host).join(name), content).unwrap();
            }
            for (name, content) in self.case.files {
                fs::write(place(host).join(name), content).unwrap();
                fs::write(place(name), content).unwrap();
            }
        }
        let bytes = self.content();
        let (source, copies) =
            if self.is_fetched() { ("far/inbox/FILE", "near") } else { ("near/FILE", "far/inbox") };
        fs::write(place(source), &bytes).unwrap();
        let (server, client) = match &self.layer {
            Some(layer) => self.with_nodes(&folder, layer),
            None => self.plain(),
        };
        let output = self.link(&folder, &server, &client);
        let logs = || {
            let log = |host: &str| read(&place(host).join("log"));
            format!("{}\nfar: {}\nnear: {}", text(&output.stderr), log("far"), log("near"))
        };
        let report: serde_json::Value =
            serde_json::from_str(&read(&place("report.json"))).unwrap_or_default();
        let is_trusted = report["trusted"] == true;
        let Some(copy) = copy(&place(copies)) else {
            // Without a return link, one datagram that a busy machine drops is enough.
            return Ran::Delivered { after_s: f64::INFINITY, is_trusted };
        };
        if fs::read(&copy).unwrap() != bytes {
            return Ran::Differs(format!("the copy differs: {}", logs()));
        }
        let found = copy.metadata().unwrap();
        let at_s = found.ctime() as f64 + found.ctime_nsec() as f64 / 1e9;
        let started_s: f64 = read(&place("started")).trim().parse().unwrap();
        Ran::Delivered { after_s: at_s - started_s, is_trusted }
    }

    fn content(&self) -> Vec<u8> {
        let size: usize = self.case.size.split_once(" kB").unwrap().0.parse().unwrap();
        let next = |state: &u32| Some(state.wrapping_mul(FACTOR).wrapping_add(1));
        let states = std::iter::successors(Some(1_u32), next);
        states.map(|state| (state >> 24) as u8).take(1000 * size).collect()
    }

    /// Scripts of a server and a client without nodes.
    fn plain(&self) -> (String, String) {
        let (server, client) = if self.is_fetched() {
            (&self.sender, &self.receiver)
        } else {
            (&self.receiver, &self.sender)
        };
        let client = client.replace("RECEIVER", "far").replace("SENDER", "far");
        let server = server.replace("--root DIR", "--root inbox");
        (format!("exec {server}"), format!("{STARTED}{client}"))
    }

    /// Scripts that start a node each before their commands. The sender's node connects.
    fn with_nodes(&self, folder: &TempDir, layer: &str) -> (String, String) {
        let is_stream = layer.contains("tcp");
        for (host, node, own, peer) in [("far", 2, 1, 2), ("near", 1, 2, 1)] {
            let other = 3 - node;
            let listen = if is_stream {
                format!("[\"10.0.0.{own}:4556\"]")
            } else {
                format!("\"10.0.0.{own}:4556\"")
            };
            let address = if is_stream && host == "far" {
                format!("from = [\"10.0.0.{peer}\"]")
            } else {
                format!("address = \"10.0.0.{peer}:4556\"")
            };
            let plan = &self.plan;
            let toml = format!(
                "id = \"ipn:{node}.0\"\nsocket = \"NODE.sock\"\nstore.directory = \"store\"\n\
                 {plan}\n[[layer]]\n{layer}\nlisten = {listen}\n[[neighbour]]\nnode = \"ipn:{other}.0\"\n\
                 {address}\n"
            );
            fs::write(folder.path().join(host).join("NODE.toml"), toml).unwrap();
        }
        let start = "slowlight node NODE.toml &\nnode=$!\n\
                     until [ -S NODE.sock ]; do sleep 0.01; done\n";
        let ready = "until [ -e ../far/ready ]; do sleep 0.01; done\n";
        let server = format!("{start}touch ready\nexec {}", self.receiver);
        // A node that starts refuses bundles until it has read its store.
        let send = format!("until {}; do sleep 0.01; done", self.sender);
        (server, format!("{ready}{STARTED}{start}{send}"))
    }

    /// Runs scripts at both ends of the emulated link of the case.
    fn link(&self, folder: &TempDir, server: &str, client: &str) -> std::process::Output {
        let root = folder.path().to_str().unwrap();
        let wait = format!(
            "code=$?\nfor n in $(seq 300); do\n\
             [ -e {root}/near/FILE ] && [ -e {root}/far/inbox/FILE ] && break\n\
             ls {root}/far/inbox/bundle-* > {root}/found 2>&1 && break\nsleep 0.1\ndone\n\
             sleep 0.1\n[ -z \"$node\" ] || kill $node\nexit $code\n"
        );
        for (host, script, end) in [("far", server, ""), ("near", client, &wait)] {
            let text = format!(
                "cd {root}/{host}\nexec > log 2>&1\nPATH={root}/bin:$PATH\n\
                 export XDG_STATE_HOME={root}/{host}/state\n{script}\n{end}"
            );
            fs::write(folder.path().join(format!("{host}.sh")), text).unwrap();
        }
        let mut command = Command::new(SLOWLIGHT);
        command.current_dir(root).arg("link").args(self.case.link);
        command.args(["--report", &format!("{root}/report.json")]);
        command.args(["--server", &format!("sh {root}/far.sh"), "--", "sh"]);
        command.arg(format!("{root}/near.sh"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        guarded_for(LIMIT, &mut command).child.wait_with_output().unwrap()
    }
}

/// Notes the time at which a client starts.
const STARTED: &str = "date +%s.%N > ../started\n";

/// Path of the file that arrived, under its own name or that of a bundle.
fn copy(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    paths.find(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name == "FILE" || name.starts_with("bundle-")
    })
}
