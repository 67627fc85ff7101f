//! `slowlight emu tools` and `emu compare` as a user runs them, with the user's own adapters, so
//! that the tests need no optional programs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::guard::guarded;
use crate::world::text;

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");

/// Whether worlds are possible here; prints the reason if not.
fn possible() -> bool {
    crate::world::possible(false)
}

/// Any file for the client of an adapter, which needs no program.
fn adapter(client: &str) -> String {
    format!("about = \"made up\"\nport = 4000\nclient = '{client}'\n")
}

/// A folder of adapters.
fn adapters(folder: &Path) -> PathBuf {
    let adapters = folder.join("adapters");
    fs::create_dir(&adapters).unwrap();
    let copy = adapter("sleep 0.1; cp \"$FILE\" \"$OUT\"");
    let needy =
        adapter("true") + "[[needs]]\nprogram = \"no-such-tool\"\npackage = \"none-such\"\n";
    let named = [
        ("copy", copy.as_str()),
        ("broken", &adapter("echo no way >&2; exit 3")),
        ("needy", &needy),
        ("slow", &adapter("exec sleep 60")),
        ("cfdp", &adapter("true")),
    ];
    for (name, text) in named {
        fs::write(adapters.join(format!("{name}.toml")), text).unwrap();
    }
    adapters
}

fn compare(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(SLOWLIGHT);
    command.args(["emu", "compare", "--size", "100kB", "--rate", "20 Mbit/s", "--delay", "5 ms"]);
    command.arg("--adapters").arg(folder.join("adapters")).args(more);
    command
}

/// Output and error output, joined.
fn message(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn tools_are_listed_with_missing_programs() {
    let folder = tempfile::tempdir().unwrap();
    let adapters = adapters(folder.path());
    let mut command = Command::new(SLOWLIGHT);
    let output = command.args(["emu", "tools", "--adapters"]).arg(adapters).output().unwrap();
    let listed = text(&output.stdout);
    assert!(output.status.success(), "{}", message(&output));
    let line =
        |name: &str| listed.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
    assert!(line("copy").ends_with("here"), "{listed}");
    assert!(line("needy").contains("apt-get install none-such"), "{listed}");
    assert!(line("rsync-daemon").contains("daemon"), "{listed}");
}

#[test]
fn invalid_comparisons_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    adapters(folder.path());
    for (more, why) in [
        (&["--tool", "copy2"][..], "did you mean \"copy\"?"),
        (&["--tool", "needy"], "apt-get install none-such"),
        (&["--tool", "cfdp", "--protocol", "cfdp"], "the name of a protocol"),
        (&["--tool", "copy", "--delays", "soon"], "soon"),
        (&["--tool", "copy", "--pers", "2"], "--pers"),
        (&["--tool", "copy", "--delays", "1 s"], "--delay"),
    ] {
        let output = compare(folder.path(), more).output().unwrap();
        assert!(!output.status.success(), "{more:?}");
        assert!(message(&output).contains(why), "{more:?}: {}", message(&output));
    }
}

#[test]
fn tools_and_protocols_are_compared_in_one_table_and_kept() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    adapters(folder.path());
    let out = folder.path().join("out");
    let who = ["--tool", "copy,broken", "--protocol", "cfdp/gsfc-2007"];
    let more = [&who[..], &["--pers", "0,1e-2", "--runs", "2", "--out", out.to_str().unwrap()]];
    let output = compare(folder.path(), &more.concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "one fails: {}", message(&output));
    let shown = text(&output.stdout);
    let row = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(row("program or protocol").contains("0.01"), "{shown}");
    assert_eq!(row("broken").matches("failed").count(), 2, "{shown}");
    assert!(!row("copy").contains("failed") && !row("cfdp").contains("failed"), "{shown}");
    assert!(shown.contains("exit status: 3: no way"), "{shown}");
    let results = || fs::read_to_string(out.join("results.jsonl")).unwrap();
    let first = results();
    assert_eq!(first.lines().count(), 3 * 2 * 2);
    for line in first.lines().filter(|line| line.contains("cfdp")) {
        let result: Value = serde_json::from_str(line).unwrap();
        assert_eq!(result["verdict"], "identical");
        let goodput = result["goodput_bps"].as_f64().unwrap();
        assert!(goodput > 1e5 && goodput < 20e6, "{result}");
    }
    // Completed rows are shown without a new run; a truncated line runs again.
    fs::write(out.join("results.jsonl"), &first[..first.len() - 10]).unwrap();
    let more = [&more.concat()[..], &["--json"]].concat();
    let again = compare(folder.path(), &more).output().unwrap();
    let all: Value = serde_json::from_str(&text(&again.stdout)).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 12, "{}", message(&again));
    // Twelve, a repetition of the failed ones, and the truncated one if it had not failed.
    let cut = first.lines().last().unwrap();
    assert_eq!(results().lines().count(), 12 + 4 + usize::from(!cut.contains("broken")));
    let other = [&more[..], &["--rate", "10 Mbit/s"]].concat();
    let mut command = Command::new(SLOWLIGHT);
    command.args(["emu", "compare", "--size", "100kB", "--adapters"]);
    let other = command.arg(folder.path().join("adapters")).args(other).output().unwrap();
    assert!(message(&other).contains("choose another folder"), "{}", message(&other));
}

/// A scenario of two hosts with these transfers, in the folder of the adapters.
fn scenario(folder: &Path, transfers: &str) -> PathBuf {
    let link = "rate = \"20 Mbit/s\", delay = \"20 ms\"";
    let text = format!(
        "seed = 1\nlimits = {{ time = \"30 s\" }}\nlinks = [{{ from = \"a\", to = \"b\", {link} }}, \
         {{ from = \"b\", to = \"a\", {link} }}]\ntransfers = [\n{transfers}\n]\n"
    );
    let path = folder.join("adapters/world.toml");
    fs::write(&path, text).unwrap();
    path
}

fn slowlight(args: &[&str], scenario: &Path) -> Output {
    Command::new(SLOWLIGHT).args(args).arg(scenario).output().unwrap()
}

#[test]
fn tools_and_protocols_share_a_scenario() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let adapters = adapters(folder.path());
    // The transfer has a server and crosses the link: written data arrives at the receiver's half.
    let over = "about = \"over the link\"\nport = 4000\nready = \"tcp\"\n\
        server = 'exec python3 -m http.server --directory \"$IN\" $PORT'\n\
        client = 'python3 -c \"import socket,sys; socket.create_connection((sys.argv[1], \
        int(sys.argv[2])))\" \"$PEER\" \"$PORT\" && cp \"$FILE\" \"$OUT\"'\n";
    fs::write(adapters.join("over.toml"), over).unwrap();
    let measures = "port = 4000\ngoodput = \"/rate\"\nclient = 'echo \"{\\\"rate\\\": 5e6}\"'\n";
    fs::write(adapters.join("measures.toml"), measures).unwrap();
    let one = |more: &str| format!("{{ from = \"a\", to = \"b\", size = \"100 kB\", {more} }},\n");
    let transfers = [
        one("tool = \"over.toml\""),
        one("tool = \"over.toml\", start = \"200 ms\""),
        one("protocol = \"cfdp\", start = \"100 ms\""),
        one("tool = \"measures.toml\""),
        one("tool = \"broken.toml\""),
    ];
    let path = scenario(folder.path(), &transfers.concat());
    let out = folder.path().join("out");
    let run = ["emu", "run", "--json", "--out", out.to_str().unwrap()];
    let output = slowlight(&run, &path);
    assert_eq!(output.status.code(), Some(1), "one fails: {}", message(&output));
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reply["ended"], "idle");
    let verdicts = reply["transfers"].as_array().unwrap().iter().map(|one| &one["verdict"]);
    let wanted = ["identical", "identical", "null", "measured", "failed"];
    assert_eq!(verdicts.map(|one| one.as_str().unwrap_or("null")).collect::<Vec<_>>(), wanted);
    let field = |number: usize, key: &str| reply["transfers"][number][key].clone();
    for number in 0..3 {
        assert_eq!(
            (field(number, "verified"), field(number, "completed")),
            (true.into(), true.into())
        );
        // A connection takes a round trip, and a file over the link a light time.
        let seconds = field(number, "delivered_s").as_f64().unwrap();
        assert!((0.04..10.0).contains(&seconds), "{number}: {seconds}");
    }
    assert_eq!((field(0, "protocol"), field(2, "protocol")), ("over".into(), "cfdp".into()));
    assert_eq!((field(3, "goodput_bps"), field(3, "delivered_s")), (5e6.into(), Value::Null));
    let failure = field(4, "failure");
    assert!(failure.as_str().unwrap().contains("exit status: 3: no way"), "{failure}");
    let kept: Value =
        serde_json::from_str(&fs::read_to_string(out.join("metrics.json")).unwrap()).unwrap();
    assert_eq!(kept["transfers"], reply["transfers"]);
    let shown = slowlight(&["emu", "run"], &path);
    let shown = message(&shown);
    for word in ["verified", "measured", "failed", "over ", "no way"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
}

#[test]
fn two_nuttcp_measurements_run_at_once() {
    let here = Command::new("nuttcp").arg("-V").output();
    if !possible() || !here.is_ok_and(|output| output.status.success()) {
        testing::skipped!("there is no nuttcp, or there are no worlds");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    adapters(folder.path());
    let one = "{ from = \"a\", to = \"b\", tool = \"nuttcp\", size = \"500 kB\" },\n";
    let path = scenario(folder.path(), &one.repeat(2));
    let output = slowlight(&["emu", "run", "--json"], &path);
    assert_eq!(output.status.code(), Some(0), "{}", message(&output));
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    for number in 0..2 {
        let rate = reply["transfers"][number]["goodput_bps"].as_f64().unwrap();
        assert!((1e5..20e6).contains(&rate), "{reply}");
    }
}

#[test]
fn interrupts_end_runs_in_preparation() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let adapters = adapters(folder.path());
    let deaf = adapter("true") + "server = 'echo > started; exec sleep 100'\nready = \"tcp\"\n";
    fs::write(adapters.join("deaf.toml"), deaf).unwrap();
    let slow = adapter("true") + "prepare = 'exec sleep 100'\n";
    fs::write(adapters.join("idle.toml"), slow).unwrap();
    for tool in ["deaf", "idle"] {
        let transfer = format!("{{ from = \"a\", to = \"b\", tool = \"{tool}.toml\" }}");
        let path = scenario(folder.path(), &transfer);
        let capture = folder.path().join(format!("capture-{tool}"));
        let temporary = folder.path().join(format!("temporary-{tool}"));
        fs::create_dir(&temporary).unwrap();
        let mut command = Command::new(SLOWLIGHT);
        command.args(["emu", "run", "--json"]).arg(&path).arg("--pcap").arg(&capture);
        command.env("TMPDIR", &temporary).stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = guarded(&mut command);
        let started = Instant::now();
        // Folders of the file and of the tool.
        while fs::read_dir(&temporary).unwrap().count() < 2 {
            assert!(started.elapsed() < Duration::from_secs(20), "it does not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(200));
        let started = Instant::now();
        let id = running.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let output = running.child.wait_with_output().unwrap();
        assert!(started.elapsed() < Duration::from_secs(4), "{tool}: {:?}", started.elapsed());
        assert_eq!(output.status.code(), Some(1), "{tool}: {}", message(&output));
        let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(reply["ended"], "cancelled", "{tool}: {reply}");
        assert_eq!(fs::read_dir(&capture).unwrap().count(), 2, "{tool}: a file a host, complete");
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "{tool}: something is left");
    }
}

#[test]
fn a_scenario_ends_its_tools_at_its_time() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    adapters(folder.path());
    let transfers = "{ from = \"a\", to = \"b\", tool = \"slow.toml\" }, \
        { from = \"a\", to = \"b\", tool = \"copy.toml\", start = \"20 s\" }";
    let path = scenario(folder.path(), transfers);
    let text = fs::read_to_string(&path).unwrap().replace("30 s", "700 ms");
    fs::write(&path, text).unwrap();
    let started = Instant::now();
    let output = slowlight(&["emu", "run", "--json"], &path);
    assert!(started.elapsed() < Duration::from_secs(15), "{}", message(&output));
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reply["ended"], "time limit");
    let why = |number: usize| reply["transfers"][number]["failure"].as_str().unwrap().to_owned();
    assert!(why(0).contains("stopped") || why(0).contains("not over"), "{}", why(0));
    assert!(why(1).contains("never requested"), "{}", why(1));
}

#[test]
fn remains_of_a_killed_comparison_are_removed_next_time() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    adapters(folder.path());
    let temporary = folder.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut command = compare(folder.path(), &["--tool", "slow"]);
    let command = command.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = guarded(command);
    let left = || fs::read_dir(&temporary).unwrap().count();
    let started = Instant::now();
    // Folders of the file and of the tool.
    while left() < 2 {
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", running.child.try_wait());
        std::thread::sleep(Duration::from_millis(20));
    }
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    assert_eq!(left(), 2);
    let started = Instant::now();
    // The kernel ends the processes inside a moment later.
    while left() > 0 {
        assert!(started.elapsed() < Duration::from_secs(10));
        let mut list = Command::new(SLOWLIGHT);
        assert!(list.args(["emu", "list"]).env("TMPDIR", &temporary).status().unwrap().success());
    }
}

#[test]
fn interrupted_comparisons_keep_completed_results() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    adapters(folder.path());
    let out = folder.path().join("out");
    let more = ["--tool", "copy,slow", "--jobs", "1", "--out", out.to_str().unwrap()];
    let mut command = compare(folder.path(), &more);
    let mut running = guarded(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    let started = Instant::now();
    let results = || fs::read_to_string(out.join("results.jsonl")).unwrap_or_default();
    while results().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", running.child.try_wait());
        std::thread::sleep(Duration::from_millis(20));
    }
    let id = running.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let output = running.child.wait_with_output().unwrap();
    assert!(started.elapsed() < Duration::from_secs(40), "it was not waited for what is slow");
    assert_eq!(output.status.code(), Some(130), "{}", message(&output));
    assert!(message(&output).contains("the same command resumes"), "{}", message(&output));
    assert_eq!(results().lines().count(), 1);
}

/// sshd waits 120 s for a login, which takes some seven round trips: too long at 10 s one way. The
/// test takes as long, so it runs only with `SLOWLIGHT_SFTP`.
#[test]
fn sftp_works_at_one_second_and_fails_at_ten_where_cfdp_does_not() {
    if std::env::var_os("SLOWLIGHT_SFTP").is_none() {
        testing::left_out!("this takes minutes; SLOWLIGHT_SFTP=1 asks for it");
        return;
    }
    if !possible() {
        return;
    }
    let mut command = Command::new(SLOWLIGHT);
    command.args(["emu", "compare", "--tool", "sftp", "--protocol", "cfdp", "--size", "100kB"]);
    command.args(["--rate", "8 Mbit/s", "--delays", "1 s,10 s", "--jobs", "4", "--json"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "one fails: {}", message(&output));
    let all: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let of = |what: &str, delay: &str| {
        let mut all = all.as_array().unwrap().iter();
        all.find(|one| one["what"] == what && one["delay"] == delay).unwrap().clone()
    };
    let took = |what, delay| of(what, delay)["seconds"].as_f64();
    assert_eq!(of("sftp", "1 s")["verdict"], "identical", "{all}");
    assert!((20.0..100.0).contains(&took("sftp", "1 s").unwrap()), "{all}");
    let late = of("sftp", "10 s");
    assert_eq!(late["verdict"], "failed", "{all}");
    assert!(late["why"].as_str().unwrap().contains("Connection closed"), "{late}");
    for (delay, seconds) in [("1 s", 1.0), ("10 s", 10.0)] {
        let took = took("cfdp", delay).unwrap();
        assert!((seconds..seconds + 0.5).contains(&took), "{all}");
    }
}
