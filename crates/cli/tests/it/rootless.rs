//! The emulator for an ordinary user, which the test creates and removes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use tempfile::TempDir;

use crate::world::text;

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");
/// Tools that carry a file and need no root; the first installed one is used.
const TOOLS: [&str; 3] = ["http-wget", "http-curl", "rsync-daemon"];
/// A transfer each way.
const SCENARIO: &str = r#"
seed = 2
links = [
    { from = "lander", to = "orbiter", rate = "20 Mbit/s", delay = "10 ms", per = "1e-2" },
    { from = "orbiter", to = "lander", rate = "20 Mbit/s", delay = "10 ms" },
]
transfers = [
    { from = "lander", to = "orbiter", protocol = "cfdp", size = "200 kB" },
    { from = "orbiter", to = "lander", protocol = "cfdp", size = "50 kB" },
]
"#;

/// Output and error output, joined.
fn message(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

/// User of this machine, removed on drop.
struct User {
    name: String,
    /// Folder with the user's home and programs.
    folder: TempDir,
}

/// Runs a command that changes the list of users; retries while it is locked.
fn change_users(command: &mut Command) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let output = command.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => return Ok(()),
            false if !message(&output).contains("lock") => return Err(message(&output)),
            false if started.elapsed() > Duration::from_secs(20) => return Err(message(&output)),
            false => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

impl User {
    /// Creates a user; `None`, with a printed reason, if that is impossible.
    fn new() -> Option<Self> {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            testing::skipped!("only root can make a user");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let name = format!("slowlight-{:x}-{:x}", std::process::id(), since.subsec_nanos());
        let mut command = Command::new("useradd");
        command.args(["--system", "--no-create-home", "--shell", "/bin/sh", "--home-dir"]);
        command.arg(folder.path().join("home")).arg(&name);
        match change_users(&mut command) {
            Ok(()) => Some(Self { name, folder }),
            Err(why) => {
                testing::skipped!("useradd: {why}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a script in the user's home, in a mount namespace in which root ran `prepare` before.
    fn prepared(&self, prepare: &str, script: &str) -> Output {
        let (folder, user) = (self.path().display(), &self.name);
        let inside = format!(
            "set -e; mount -t tmpfs none {folder}; mkdir -p {folder}/home/run {folder}/home/tmp
            {prepare}
            cp {SLOWLIGHT} {folder}/slowlight; chmod 755 {folder} {folder}/slowlight
            chown -R {user} {folder}/home; cd {folder}/home
            exec setpriv --reuid {user} --regid {user} --init-groups --reset-env sh -e -c \"$SCRIPT\""
        );
        let script =
            "export XDG_RUNTIME_DIR=$HOME/run TMPDIR=$HOME/tmp PATH=..:$PATH\n".to_owned() + script;
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &inside]).env("SCRIPT", script);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a script as the user would on a machine with the usual permissions of `/dev/net/tun`.
    fn run(&self, script: &str) -> Output {
        let folder = self.path().display();
        let device =
            format!("mknod -m 666 {folder}/tun c 10 200; mount --bind {folder}/tun /dev/net/tun");
        self.prepared(&device, script)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Err(why) = change_users(Command::new("userdel").arg(&self.name)) {
            eprintln!("userdel {}: {why}", self.name);
        }
    }
}

/// Whether root can start worlds here and this user may have namespaces; prints the reason if not.
fn possible(user: &User) -> bool {
    if !crate::world::possible(true) {
        return false;
    }
    let tried = user.run("slowlight link -- true");
    let forbidden = message(&tried).contains("user namespace");
    if forbidden {
        testing::skipped!("{}", message(&tried));
    }
    assert!(forbidden || tried.status.success(), "{}", message(&tried));
    !forbidden
}

/// Tool to compare with, if one is installed.
fn tool() -> Option<&'static str> {
    let output = Command::new(SLOWLIGHT).args(["emu", "tools"]).output().unwrap();
    let listed = text(&output.stdout);
    let is_here = |tool: &&str| {
        let mut lines = listed.lines().map(str::trim);
        lines.any(|line| line.starts_with(&format!("{tool} ")) && line.ends_with("here"))
    };
    TOOLS.into_iter().find(is_here)
}

#[test]
fn ordinary_users_can_do_everything_root_can() {
    let Some(user) = User::new() else { return };
    if !possible(&user) {
        return;
    }
    a_program_over_a_link(&user);
    transfers_of_a_scenario(&user);
    a_world_that_stays(&user);
    programs_that_are_not_root(&user);
    worlds_in_a_world(&user);
    a_way_out(&user);
    match tool() {
        Some(tool) => a_comparison(&user, tool),
        None => testing::skipped!("none of {} is here", TOOLS.join(", ")),
    }
}

fn a_program_over_a_link(user: &User) {
    let script = "id -un; slowlight link --delay 30ms -- \
                  sh -c 'id -u; cat /proc/net/dev; ping -c 3 -i 0.2 far'; ls -A tmp run";
    let output = user.run(script);
    assert!(output.status.success(), "{}", message(&output));
    let reply = text(&output.stdout);
    assert!(reply.starts_with(&format!("{}\n0\n", user.name)), "{reply}");
    assert!(reply.contains("far:") && reply.contains("3 received"), "{reply}");
    // "rtt min/avg/max/mdev = 60.3/60.4/60.5/0.1 ms"
    let (_, times) = reply.split_once("mdev = ").unwrap();
    let least: f64 = times.split('/').next().unwrap().parse().unwrap();
    assert!((60.0..80.0).contains(&least), "{reply}");
    assert!(text(&output.stderr).contains("near -> far"), "{}", message(&output));
}

fn transfers_of_a_scenario(user: &User) {
    let script = format!(
        "cat > world.toml <<'END'\n{SCENARIO}\nEND\nslowlight emu run world.toml --json --pcap captures
        test -s captures/lander.pcapng && test -s captures/orbiter.pcapng"
    );
    let output = user.run(&script);
    assert!(output.status.success(), "{}", message(&output));
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    let transfers = reply["transfers"].as_array().unwrap();
    assert_eq!(transfers.len(), 2);
    assert!(transfers.iter().all(|transfer| transfer["verified"] == true), "{reply}");
}

fn a_world_that_stays(user: &User) {
    let script = "slowlight emu up --delay 10ms
        slowlight emu exec near -- id -u
        slowlight emu exec near -- ping -c 1 far
        slowlight emu set --both near:far delay=50ms
        slowlight emu exec near -- ping -c 5 -i 0.3 far | grep -o 'mdev = .*'
        slowlight emu status --json | grep -c '\"50 ms\"'
        ls -ld run/slowlight/emu; slowlight emu down; ls -A run/slowlight/emu
        slowlight emu up --listen 127.0.0.1:80 || echo refused";
    let output = user.run(script);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.starts_with("0\n") && out.contains("1 received"), "{out}\n{err}");
    let (_, times) = out.rsplit_once("mdev = ").unwrap();
    let least: f64 = times.split('/').next().unwrap().parse().unwrap();
    assert!((100.0..120.0).contains(&least), "{out}");
    assert!(out.contains("ms\n2\ndrwx------"), "both directions have changed: {out}");
    assert!(out.ends_with(".lock\nrefused\n"), "nothing is left but the lock: {out}\n{err}");
    assert!(err.contains("127.0.0.1:80: ") && err.contains("a port above 1023"), "{err}");
}

fn programs_that_are_not_root(user: &User) {
    // Programs of the user may create their own namespaces, as browsers do.
    let script = "slowlight link --delay 5ms --user -- \
            sh -c 'id -un; touch mine; ping -c 1 far; unshare --user --map-root-user id -u'
        stat -c %U mine; slowlight emu up --delay 5ms
        slowlight emu exec --user near -- sh -c 'id -un; ping -c 1 far'; slowlight emu down
        slowlight link --user=root -- true || echo refused";
    let output = user.run(script);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert_eq!(out.lines().filter(|line| *line == user.name).count(), 3, "{out}\n{err}");
    assert_eq!(out.matches("1 received").count(), 2, "{out}\n{err}");
    assert!(out.contains("\n0\n") && out.ends_with("refused\n"), "{out}\n{err}");
    assert!(err.contains("only root may run programs as another user"), "{err}");
}

fn worlds_in_a_world(user: &User) {
    if Command::new("nft").arg("--version").stdout(Stdio::null()).status().is_err() {
        return testing::skipped!("there is no program nft");
    }
    let script = "slowlight link --delay 25ms -- slowlight link --delay 50ms -- \
                  ping -c 3 -i 0.2 far | grep -o 'mdev = .*'";
    let output = user.run(script);
    let out = text(&output.stdout);
    let (_, times) = out.split_once("mdev = ").unwrap_or_else(|| panic!("{}", message(&output)));
    let least: f64 = times.split('/').next().unwrap().parse().unwrap();
    assert!((150.0..200.0).contains(&least), "{}", message(&output));
}

/// To a server of the machine, and without the program that this requires.
fn a_way_out(user: &User) {
    if Command::new("slirp4netns").arg("--version").stdout(Stdio::null()).status().is_err() {
        return testing::skipped!("there is no program slirp4netns");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.write_all(b"hello\n").unwrap();
    });
    let script = format!(
        "slowlight link --delay 50ms --uplink -- python3 -c 'import socket
print(socket.create_connection((\"outside\", {port}), timeout=20).recv(10).decode())'
        PATH=/nonexistent ../slowlight link --uplink -- true || echo refused"
    );
    let output = user.run(&script);
    assert!(output.status.success(), "{}", message(&output));
    assert!(text(&output.stdout).starts_with("hello\n"), "{}", message(&output));
    assert!(text(&output.stdout).ends_with("refused\n"), "{}", message(&output));
    let missing = "without root it takes the program slirp4netns, of the package of that name";
    assert!(text(&output.stderr).contains(missing), "{}", message(&output));
    server.join().unwrap();
}

fn a_comparison(user: &User, tool: &str) {
    let script = format!(
        "slowlight emu compare --tool {tool} --protocol cfdp --size 100kB --rate '20 Mbit/s' \
         --delay '5 ms' --json; ls -A tmp >&2"
    );
    let output = user.run(&script);
    assert!(output.status.success(), "{}", message(&output));
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = reply.as_array().unwrap();
    assert_eq!(results.len(), 2, "{reply}");
    assert!(results.iter().all(|result| result["verdict"] == "identical"), "{reply}");
    assert!(!text(&output.stderr).contains("slowlight-"), "no folder stays: {}", message(&output));
}

#[test]
fn missing_permissions_are_reported_with_a_remedy() {
    let Some(user) = User::new() else { return };
    if !possible(&user) {
        return;
    }
    let folder = user.path().display();
    let device =
        format!("mknod -m 600 {folder}/tun c 10 200; mount --bind {folder}/tun /dev/net/tun");
    let output = user.prepared(&device, "slowlight link -- true");
    assert!(!output.status.success());
    assert!(message(&output).contains("chmod 0666 /dev/net/tun (as root)"), "{}", message(&output));
    let output = user.prepared("mount -t tmpfs none /dev/net", "slowlight link -- true");
    assert!(!output.status.success());
    assert!(message(&output).contains("modprobe tun (as root)"), "{}", message(&output));
    let output = without_user_namespaces(&user);
    assert!(!output.status.success());
    let remedy = "allow it: sysctl -w user.max_user_namespaces=10000 (as root)";
    assert!(message(&output).contains(remedy), "{}", message(&output));
}

/// Runs the program as this user without permission for user namespaces: in one of root's, with
/// another value of that setting.
fn without_user_namespaces(user: &User) -> Output {
    let id = Command::new("id").args(["-u", &user.name]).output().unwrap();
    let id = text(&id.stdout).trim().to_owned();
    let program = user.path().join("program");
    fs::copy(SLOWLIGHT, &program).unwrap();
    // Other users may pass through the folder, which otherwise belongs to the test.
    assert!(Command::new("chmod").arg("711").arg(user.path()).status().unwrap().success());
    let inside = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces; \
         exec setpriv --reuid {id} --regid {id} --clear-groups {} link -- true",
        program.display()
    );
    // The user is root in the namespace only after this is written from outside.
    let mut command = Command::new("unshare");
    command.args(["--user", "sh", "-c", "echo; read go; exec sh -c \"$INSIDE\""]);
    command.env("INSIDE", inside).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut started = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut started).unwrap();
    for map in ["uid_map", "gid_map"] {
        fs::write(format!("/proc/{}/{map}", child.id()), "0 0 65536\n").unwrap();
    }
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    child.wait_with_output().unwrap()
}
