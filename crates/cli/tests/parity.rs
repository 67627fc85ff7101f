//! The emulator against the simulator: the same scenario and seed take the same time in both.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use serde_json::Value;

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");
/// Worlds that run at once: mostly they wait.
const AT_ONCE: usize = 3;
/// Other programs can make one late; a difference that is one by itself is there every time.
const TRIES: usize = 4;

/// Whether there can be worlds here; says why not.
fn possible() -> bool {
    let tried = Command::new(SLOWLIGHT).args(["link", "--", "true"]).output().unwrap();
    if !tried.status.success() {
        eprintln!("skipped: {}", String::from_utf8_lossy(&tried.stderr));
    }
    tried.status.success()
}

fn run(command: &[&str], scenario: &Path) -> Result<Value, String> {
    let output = Command::new(SLOWLIGHT).args(command).arg(scenario).arg("--json").output();
    let output = output.map_err(|error| error.to_string())?;
    let told = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {told}"))
}

/// What differs, if anything does that should not, and whether the emulator doubts it itself.
fn compare(scenario: &Path) -> Result<(), (String, bool)> {
    let sure = |why| (why, false);
    let sim = run(&["sim"], scenario).map_err(sure)?;
    let emu = run(&["emu", "run"], scenario).map_err(sure)?;
    let of = |world: &Value, key: &str| world["transfers"][0][key].clone();
    for world in [&sim, &emu] {
        if of(world, "completed") != true || world["ended"] != "idle" {
            return Err(sure(format!("{} ({})", of(world, "failure"), world["ended"])));
        }
    }
    let delivered = |world| of(world, "delivered_s").as_f64().unwrap();
    let (there, here) = (delivered(&sim), delivered(&emu));
    let allowed = (there * 0.02).max(0.005);
    if (here - there).abs() <= allowed {
        return Ok(());
    }
    let doubts = &emu["emulator"]["doubts"];
    let why = format!("delivered in {there} s in the simulator, {here} s here; {doubts}");
    Err((why, doubts.as_array().is_some_and(|doubts| !doubts.is_empty())))
}

/// Whether a scenario takes the same time in both, if the machine has the time to find out.
fn agrees(scenario: &Path) -> Result<(), String> {
    let mut told = Vec::new();
    for _ in 0..TRIES {
        match compare(scenario) {
            Ok(()) => return Ok(()),
            Err(why) => told.push(why),
        }
    }
    let name = scenario.display();
    if told.iter().all(|(_, doubted)| *doubted) {
        eprintln!("skipped: {name}: the machine is too busy: {told:?}");
        return Ok(());
    }
    Err(format!("{name}: {told:?}"))
}

fn scenario(protocol: &str, delay: u32, loss: &str) -> String {
    let link = |from: &str, to: &str| {
        format!(
            "[[links]]\nfrom = {from:?}\nto = {to:?}\nrate = \"8 Mbit/s\"\n\
             delay = \"{delay} ms\"\nper = {loss:?}\n"
        )
    };
    format!(
        "seed = 7\ntransfers = [{{ from = \"a\", to = \"b\", protocol = {protocol:?}, \
         size = \"300 kB\" }}]\n{}{}",
        link("a", "b"),
        link("b", "a")
    )
}

/// Three listen to a hub, and lose packets each of its own.
const GROUP: &str = r#"
seed = 3
groups.fleet.count = 3
links = [
    { from = "ground", to = "fleet", rate = "8 Mbit/s", delay = "100 ms", per = "1e-2" },
    { from = "fleet", to = "ground", rate = "8 Mbit/s", delay = "100 ms", per = "1e-2" },
]
transfers = [{ from = "ground", to = "fleet", protocol = "norm", size = "300 kB" }]
"#;

/// A lander that its relay does not see for a while; the receiver crashes and goes on.
const CHAIN: &str = r#"
seed = 5
[nodes.earth]
crashes = [{ at = "600 ms", restart = "700 ms" }]
store = { latency = "2 ms", rate = "80 Mbit/s" }
[[links]]
from = "lander"
to = "relay"
rate = "4 Mbit/s"
delay = "50 ms"
outages = [{ at = "200 ms", for = "300 ms" }]
[[links]]
from = "relay"
to = "lander"
rate = "4 Mbit/s"
delay = "50 ms"
outages = [{ at = "200 ms", for = "300 ms" }]
[[links]]
from = "relay"
to = "earth"
rate = "2 Mbit/s"
delay = "100 ms"
[[links]]
from = "earth"
to = "relay"
rate = "2 Mbit/s"
delay = "100 ms"
[[transfers]]
from = "lander"
to = "earth"
size = "200 kB"
"#;

#[test]
fn transfers_take_as_long_as_in_the_simulator() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut scenarios = Vec::new();
    let mut write = |name: String, text: &str| {
        let path = folder.path().join(name + ".toml");
        fs::write(&path, text).unwrap();
        scenarios.push(path);
    };
    for protocol in ["cfdp", "ltp", "saratoga", "norm"] {
        for delay in [25, 300] {
            for loss in ["0", "1e-2"] {
                let name = format!("{protocol}, {delay} ms, {loss}");
                write(name, &scenario(protocol, delay, loss));
            }
        }
    }
    write("a group".to_owned(), GROUP);
    write("a chain".to_owned(), CHAIN);
    let left = Mutex::new(scenarios);
    let differences = thread::scope(|scope| {
        let work = || {
            let next = || left.lock().unwrap().pop();
            std::iter::from_fn(next).filter_map(|path| agrees(&path).err()).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
