//! What a program of the interface has started, wherever it went: also what has left its process
//! group and session, and outlived it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

/// The variable by which a program and all that it starts are known: whose world and which command.
const VARIABLE: &str = "SLOWLIGHT_EMU_COMMAND";
/// How often what is left is looked for: what is killed may just have started something.
const ROUNDS: usize = 20;

/// What the variable is for a command of this process.
fn name(id: u64) -> String {
    format!("{}-{id}", std::process::id())
}

/// Has a program be known as the command of this number.
pub(super) fn mark(command: &mut Command, id: u64) -> &mut Command {
    command.env(VARIABLE, name(id))
}

/// Kills all that belongs to a command.
pub(super) fn end(id: u64) {
    let entry = format!("{VARIABLE}={}", name(id));
    for _ in 0..ROUNDS {
        let found = members(entry.as_bytes());
        if found.is_empty() {
            return;
        }
        for pid in found.into_iter().filter_map(Pid::from_raw) {
            // It may have ended just now.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// The processes whose environment has the entry, and all that they have started.
fn members(entry: &[u8]) -> BTreeSet<i32> {
    let mut members = BTreeSet::new();
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let Ok(processes) = fs::read_dir("/proc") else { return members };
    for process in processes.filter_map(Result::ok) {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        let Some((state, parent)) = state_and_parent(&stat) else { continue };
        // A zombie has nothing left to end.
        if state == "Z" {
            continue;
        }
        children.entry(parent).or_default().push(pid);
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        if environment.split(|octet| *octet == 0).any(|variable| variable == entry) {
            members.insert(pid);
        }
    }
    let mut next: Vec<_> = members.iter().copied().collect();
    while let Some(pid) = next.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            if members.insert(child) {
                next.push(child);
            }
        }
    }
    members
}

/// What `/proc/PID/stat` has behind the name, which may hold anything.
fn state_and_parent(stat: &str) -> Option<(&str, i32)> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_whitespace();
    Some((fields.next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_parent_stands_behind_any_name() {
        assert_eq!(state_and_parent("7 (a) S 3) R 12 7 7"), Some(("R", 12)));
        assert_eq!(state_and_parent("nonsense"), None);
    }

    #[test]
    fn what_left_its_session_belongs_to_its_command() {
        let mut command = Command::new("setsid");
        // One that has left its session, of whose children one has forgotten where it is from.
        command.args(["sh", "-c", "env -i sleep 60 & sleep 60; true"]).stdin(Stdio::null());
        let mut child = mark(&mut command, 7).spawn().unwrap();
        let entry = |id| format!("{VARIABLE}={}", name(id)).into_bytes();
        let begun = Instant::now();
        while members(&entry(7)).len() < 3 {
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", members(&entry(7)));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(members(&entry(8)).is_empty());
        end(7);
        assert!(members(&entry(7)).is_empty());
        child.wait().unwrap();
    }
}
