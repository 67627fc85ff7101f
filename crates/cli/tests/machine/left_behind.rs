//! After worlds are killed, the next command removes all their remains: processes, network
//! namespaces, devices, folders.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::guard::{Guarded, guarded};
use crate::wait::wait_for;
use crate::world::{possible, text};

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");
/// A variable that all processes of a world inherit.
const MARK: &str = "SLOWLIGHT_TEST_MARK";
/// Transfer of a quarter of an hour, over an intermediate host.
const SCENARIO: &str = r#"
seed = 1
links = [
    { from = "a", to = "relay", rate = "100 kbit/s", delay = "10 ms" },
    { from = "relay", to = "a", rate = "100 kbit/s", delay = "10 ms" },
    { from = "relay", to = "b", rate = "100 kbit/s", delay = "10 ms" },
    { from = "b", to = "relay", rate = "100 kbit/s", delay = "10 ms" },
]
transfers = [{ from = "a", to = "b", size = "10 MB" }]
"#;
/// Tool with a server, and with a long run.
const SLOW: &str = r#"
about = "sleeps"
port = 4000
server = "touch \"$DIR/started\"; exec sleep 1000"
client = "exec sleep 1005"
"#;

/// Number of worlds started beside busy processes, without `SLOWLIGHT_STARTS`.
const STARTS: usize = 10;
/// Number of busy processes, and of worlds started before those are replaced.
const BUSY: usize = 8;
const BATCH: usize = 40;

/// The folders of all processes.
fn processes() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let is_number = |name: &str| name.bytes().all(|digit| digit.is_ascii_digit());
    entries.filter(move |entry| is_number(&entry.file_name().to_string_lossy())).map(|e| e.path())
}

/// The number of a process from its folder.
fn number(process: &Path) -> u32 {
    process.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// A field of `/proc/PID/stat`, counted from the state, which is 0.
fn stat(process: &Path, field: usize) -> Option<u64> {
    let line = fs::read_to_string(process.join("stat")).ok()?;
    let (_, fields) = line.rsplit_once(") ")?;
    fields.split(' ').nth(field)?.parse().ok()
}

/// Start time, in ticks since the machine booted.
fn started(process: &Path) -> Option<u64> {
    stat(process, 19)
}

/// Whether it has ended and waits for its parent.
fn is_zombie(process: &Path) -> bool {
    fs::read_to_string(process.join("stat")).is_ok_and(|line| line.contains(") Z "))
}

/// Network namespaces of its threads, and those it holds open.
fn namespaces(process: &Path) -> BTreeSet<String> {
    let entries = |name: &str| fs::read_dir(process.join(name)).into_iter().flatten().flatten();
    let threads = entries("task").map(|thread| thread.path().join("ns/net"));
    let links = threads.chain(entries("fd").map(|open| open.path()));
    let targets = links.filter_map(|link| fs::read_link(link).ok());
    let names = targets.filter_map(|target| target.to_str().map(str::to_owned));
    names.filter(|name| name.starts_with("net:[")).collect()
}

/// Names below a folder, none if it does not exist.
fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Namespaces with a mount, which persist without a process.
fn mounted_namespaces() -> BTreeSet<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|line| line.contains(" - nsfs ")).map(str::to_owned).collect()
}

/// Objects of the machine that a world could leave.
#[derive(Debug)]
struct Machine {
    devices: BTreeSet<String>,
    named: BTreeSet<String>,
    mounted: BTreeSet<String>,
}

impl Machine {
    fn now() -> Self {
        Self {
            devices: names("/sys/class/net"),
            named: names("/run/netns"),
            mounted: mounted_namespaces(),
        }
    }

    /// Whether nothing was added since `before`.
    fn is_within(&self, before: &Self) -> bool {
        self.devices.is_subset(&before.devices)
            && self.named.is_subset(&before.named)
            && self.mounted.is_subset(&before.mounted)
    }
}

/// World created by a command, to be killed.
struct Doomed {
    what: &'static str,
    mark: String,
    before: Machine,
    /// Where its temporary files are.
    folder: TempDir,
    child: Option<Child>,
}

impl Doomed {
    fn new(what: &'static str) -> Self {
        let mark = format!("{what}-{}", std::process::id());
        Self {
            what,
            mark,
            before: Machine::now(),
            folder: tempfile::tempdir().unwrap(),
            child: None,
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let temporary = self.folder.path().join("tmp");
        fs::create_dir_all(&temporary).unwrap();
        let mut command = Command::new(SLOWLIGHT);
        command.args(arguments).env(MARK, &self.mark).env("TMPDIR", temporary);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn start(mut self, arguments: &[&str]) -> Self {
        self.child = Some(self.command(arguments).spawn().unwrap());
        self
    }

    /// Its processes.
    fn alive(&self) -> Vec<PathBuf> {
        let mark = format!("{MARK}={}", self.mark);
        let is_marked = |process: &PathBuf| {
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes())
        };
        processes().filter(is_marked).collect()
    }

    /// Its network namespaces, except the test's.
    fn namespaces(&self) -> BTreeSet<String> {
        let own = namespaces(Path::new("/proc/self"));
        let of_all = self.alive().iter().flat_map(|process| namespaces(process)).collect();
        BTreeSet::difference(&of_all, &own).cloned().collect()
    }

    /// Whether one of its processes is this program.
    fn runs(&self, command_line: &str) -> bool {
        let line = |process: &PathBuf| fs::read(process.join("cmdline")).unwrap_or_default();
        let wanted = command_line.replace(' ', "\0") + "\0";
        self.alive().iter().any(|process| line(process) == wanted.as_bytes())
    }

    /// The child of one of its processes.
    fn child_of(&self, parent: u32) -> u32 {
        let mut alive = self.alive().into_iter();
        number(&alive.find(|process| stat(process, 1) == Some(parent.into())).unwrap())
    }

    /// Kills one of its processes, runs the next command, and checks for remaining processes and
    /// files.
    fn kill(mut self, victim: u32) {
        let what = self.what;
        let namespaces_before = self.namespaces();
        assert!(namespaces_before.len() >= 2, "{what}: {namespaces_before:?}");
        // Namespace numbers are reused: a process started later has another start time.
        let alive: Vec<_> = self.alive().into_iter().map(|one| (started(&one), one)).collect();
        let youngest = alive.iter().filter_map(|(started, _)| *started).max().unwrap();
        let kill = Command::new("kill").args(["-KILL", &victim.to_string()]).status();
        assert!(kill.unwrap().success());
        if let Some(mut child) = self.child.take() {
            wait_for("the command to be over", || child.try_wait().unwrap().is_some());
        }
        wait_for(&format!("{what}: all processes to end"), || {
            // An ending process has no environment any more, but may still have files.
            let ended =
                |(at, process): &(_, PathBuf)| started(process) != *at || is_zombie(process);
            alive.iter().all(ended) && self.alive().is_empty()
        });
        let next = self.command(&["emu", "list"]).env_remove(MARK).status().unwrap();
        assert!(next.success(), "{what}");
        let holds = |process: &PathBuf| {
            started(process).is_some_and(|at| at <= youngest)
                && !namespaces(process).is_disjoint(&namespaces_before)
        };
        // One that began while they were listed ends a moment later.
        wait_for(&format!("{what}: nobody to hold {namespaces_before:?}"), || {
            !processes().any(|process| holds(&process))
        });
        // Other programs also create and remove some.
        wait_for(&format!("{what}: {:?}, and now there is more", self.before), || {
            Machine::now().is_within(&self.before)
        });
        let left = names(self.folder.path().join("tmp").to_str().unwrap());
        assert!(left.is_empty(), "{what}: {left:?}");
        assert!(!names("/run/slowlight/emu").contains(&self.mark), "{what}");
    }

    /// Process started by a user.
    fn outer(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        for process in self.alive() {
            let _ = Command::new("kill").args(["-KILL", &number(&process).to_string()]).status();
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }
}

#[test]
fn link_leaves_nothing_whichever_process_is_killed() {
    if !possible(true) {
        return;
    }
    for (generation, what) in ["link-outer", "link-first", "link-inner"].into_iter().enumerate() {
        let doomed = Doomed::new(what);
        let doomed =
            doomed.start(&["link", "--server", "setsid sleep 1001", "--", "sleep", "1002"]);
        let runs = || doomed.runs("sleep 1001") && doomed.runs("sleep 1002");
        wait_for("both programs to run", runs);
        let victim = (0..generation).fold(doomed.outer(), |parent, _| doomed.child_of(parent));
        doomed.kill(victim);
    }
}

#[test]
fn scenario_transfers_leave_nothing() {
    if !possible(true) {
        return;
    }
    let doomed = Doomed::new("run");
    let scenario = doomed.folder.path().join("world.toml");
    fs::write(&scenario, SCENARIO).unwrap();
    let captures = doomed.folder.path().join("captures");
    let (path, to) = (scenario.to_str().unwrap(), captures.to_str().unwrap().to_owned());
    let doomed = doomed.start(&["emu", "run", path, "--pcap", &to]);
    let captured = || fs::metadata(captures.join("b.pcapng")).is_ok_and(|file| file.len() > 20_000);
    wait_for("packets to arrive", captured);
    let victim = doomed.outer();
    doomed.kill(victim);
}

#[test]
fn shells_leave_nothing() {
    if !possible(true) {
        return;
    }
    let mut doomed = Doomed::new("shell");
    let mut command = doomed.command(&["emu", "shell", "--link", "geo"]);
    let mut child = command.env("SHELL", "/bin/sh").stdin(Stdio::piped()).spawn().unwrap();
    let mut keyboard = child.stdin.take().unwrap();
    doomed.child = Some(child);
    keyboard.write_all(b"sleep 1003\n").unwrap();
    wait_for("what was typed to run", || doomed.runs("sleep 1003"));
    let victim = doomed.outer();
    doomed.kill(victim);
}

#[test]
fn persistent_worlds_leave_nothing() {
    if !possible(true) {
        return;
    }
    let mut doomed = Doomed::new("up");
    let name = doomed.mark.clone();
    assert!(doomed.command(&["emu", "up", "--name", &name]).status().unwrap().success());
    let exec = ["emu", "exec", "--name", &name, "near", "--", "sleep", "1004"];
    doomed.child = Some(doomed.command(&exec).spawn().unwrap());
    wait_for("a program to run in it", || doomed.runs("sleep 1004"));
    let lock = Path::new("/run/slowlight/emu").join(&name).join("lock");
    let server = fs::read_to_string(lock).unwrap().trim().parse().unwrap();
    doomed.kill(server);
}

#[test]
fn comparisons_leave_nothing() {
    if !possible(true) {
        return;
    }
    let doomed = Doomed::new("compare");
    let adapters = doomed.folder.path().join("adapters");
    fs::create_dir(&adapters).unwrap();
    fs::write(adapters.join("slow.toml"), SLOW).unwrap();
    let adapters = adapters.to_str().unwrap().to_owned();
    let compare = ["emu", "compare", "--adapters", &adapters, "--tool", "slow", "--size", "10kB"];
    let doomed = doomed.start(&compare);
    let temporary = doomed.folder.path().join("tmp").to_str().unwrap().to_owned();
    wait_for("the client to run", || doomed.runs("sleep 1005"));
    assert!(!names(&temporary).is_empty(), "it works in folders of its own");
    let victim = doomed.outer();
    doomed.kill(victim);
}

#[test]
fn worlds_started_beside_busy_processes_end() {
    if !possible(true) {
        return;
    }
    let starts = env::var("SLOWLIGHT_STARTS").map_or(STARTS, |starts| starts.parse().unwrap());
    let worlds = Doomed::new("starts");
    let captures = worlds.folder.path().join("captures");
    let mut ended = 0;
    while ended < starts {
        let batch = BATCH.min(starts - ended);
        let busy = || guarded(Command::new("sh").args(["-c", "while :; do :; done"]));
        let _busy: Vec<Guarded> = (0..BUSY).map(|_| busy()).collect();
        for number in ended..ended + batch {
            let pcap = captures.to_str().unwrap();
            let mut command = worlds.command(&["link", "--pcap", pcap, "--", "true"]);
            // A hanging one is killed, and fails here.
            let output = guarded(command.stderr(Stdio::piped())).child.wait_with_output().unwrap();
            assert!(output.status.success(), "start {number}: {}", text(&output.stderr));
            assert!(fs::metadata(captures.join("near.pcapng")).unwrap().len() > 0);
            fs::remove_dir_all(&captures).unwrap();
        }
        wait_for("all processes to end", || worlds.alive().is_empty());
        wait_for("namespaces and devices to go", || Machine::now().is_within(&worlds.before));
        let left = names(worlds.folder.path().join("tmp").to_str().unwrap());
        assert!(left.is_empty(), "{left:?}");
        ended += batch;
    }
    println!("{starts} starts, {ended} ends");
}
