//! The emulator against the simulator: the same scenario and seed take the same time in both.
//!
//! A separate binary, because it measures times, which other tests would change.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::fmt::Write as _;
use std::fs;
use std::mem;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use emu::measure::is_calm;
use serde_json::Value;

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");
/// Number of concurrent worlds, which mostly wait.
const AT_ONCE: usize = 3;
/// Attempts beside other worlds while the emulator reports that it was late.
const DOUBTED: usize = 6;
/// Attempts alone, while the emulator reports lateness on a calm machine.
const DOUBTED_IN_CALM: usize = 3;
/// Time limit for repeating doubted or differing runs alone.
const PATIENCE: Duration = Duration::from_secs(180);
/// Differing runs that decide. Other programs can delay a host, so two agreeing runs outvote one
/// difference, but not two.
const DIFFERING: usize = 2;
/// Maximum number of rounds alone for what differed, and how many of them must agree.
const ROUNDS: usize = 5;
const AGREEING: usize = 2;
/// Difference in seconds of two differing runs up to which both are of one cause. A fault of the
/// emulator or of a protocol takes the same time in each run; a machine that delays does not.
const SCATTER: f64 = 0.002;
/// Scenarios that need not agree for every seed, because they are on an edge or doubted.
const SPARED: usize = 3;

fn run(command: &[&str], scenario: &Path) -> Result<Value, String> {
    let output = Command::new(SLOWLIGHT).args(command).arg(scenario).arg("--json").output();
    let output = output.map_err(|error| error.to_string())?;
    let reply = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {reply}"))
}

/// Verdict on a scenario with one seed.
enum Verdict {
    /// Delivered at these times in both worlds, in seconds, in a run that the emulator trusts.
    Agrees { sim: f64, emu: f64 },
    /// Times differ, but agree with a simulator whose links are microseconds longer: such
    /// differences decide which of two packets comes first, and therefore which one an error hits.
    Edge,
    /// Times differ in a run that the emulator trusts; `emu` is the one of the emulator, if the
    /// file was delivered.
    Differs { why: String, emu: Option<f64> },
    /// The emulator does not trust the run.
    Doubted(String),
    /// The emulator trusts no run, and this machine delays sleeping programs; or runs differ from
    /// each other as much as from the simulator.
    Busy(String),
}

/// Delivery time of the first transfer; an error if it was not delivered.
fn delivered(world: &Value) -> Result<f64, String> {
    let transfer = &world["transfers"][0];
    if transfer["verified"] != true || transfer["completed"] != true || world["ended"] != "idle" {
        return Err(format!("{transfer} ({})", world["ended"]));
    }
    transfer["delivered_s"].as_f64().ok_or_else(|| transfer.to_string())
}

/// Delivery time in the simulator.
fn simulated(scenario: &Path) -> Result<f64, String> {
    run(&["sim"], scenario).and_then(|world| delivered(&world))
}

fn is_near(sim: f64, emu: f64) -> bool {
    (emu - sim).abs() <= (sim * 0.02).max(0.005)
}

fn failed(why: String) -> Verdict {
    Verdict::Differs { why, emu: None }
}

fn compare(scenario: &Path, sim: f64) -> Verdict {
    let world = match run(&["emu", "run"], scenario) {
        Ok(world) => world,
        Err(why) => return failed(why),
    };
    let doubts = &world["emulator"]["doubts"];
    if world["emulator"]["trusted"] != true {
        return Verdict::Doubted(doubts.to_string());
    }
    match delivered(&world) {
        Ok(emu) if is_near(sim, emu) => Verdict::Agrees { sim, emu },
        Ok(emu) if longer(scenario).any(|sim| is_near(sim, emu)) => Verdict::Edge,
        Ok(emu) => {
            let why = format!("{sim} s in the simulator, {emu} s here");
            Verdict::Differs { why, emu: Some(emu) }
        }
        Err(why) => failed(why),
    }
}

/// Delivery time in the simulator with all delays, which scenarios here give in whole
/// milliseconds, increased by this many microseconds.
fn longer(scenario: &Path) -> impl Iterator<Item = f64> {
    let text = fs::read_to_string(scenario).unwrap();
    [10, 20, 50, 100, 200].into_iter().map(move |micros| {
        let mut parts = text.split("delay = \"");
        let mut longer = parts.next().unwrap().to_owned();
        for part in parts {
            let (millis, rest) = part.split_once(" ms\"").unwrap();
            let delay = millis.parse::<u32>().unwrap() * 1000 + micros;
            write!(longer, "delay = \"{delay} us\"{rest}").unwrap();
        }
        let path = scenario.with_extension("longer.toml");
        fs::write(&path, longer).unwrap();
        simulated(&path).unwrap()
    })
}

/// Verdict of the majority of trusted runs, and the faults of the others.
fn judge(scenario: &Path) -> (Verdict, Vec<String>) {
    match simulated(scenario) {
        Ok(sim) => decide(|| compare(scenario, sim), DOUBTED),
        Err(why) => (failed(why), Vec::new()),
    }
}

/// Verdict on a scenario that runs alone, repeated while the machine causes the delays: if a
/// program that only sleeps wakes late, so does the emulator.
fn judge_alone(scenario: &Path, until: Instant) -> (Verdict, Vec<String>) {
    let sim = match simulated(scenario) {
        Ok(sim) => sim,
        Err(why) => return (failed(why), Vec::new()),
    };
    let mut was_calm = is_calm();
    let compare = || loop {
        let verdict = compare(scenario, sim);
        let calm = is_calm();
        let blameless = !(mem::replace(&mut was_calm, calm) && calm);
        match verdict {
            Verdict::Doubted(_) | Verdict::Differs { .. }
                if blameless && Instant::now() < until => {}
            Verdict::Doubted(why) if blameless => return Verdict::Busy(why),
            verdict => return verdict,
        }
    };
    decide(compare, DOUBTED_IN_CALM)
}

/// Repeats the disagreeing scenarios alone. What differed must agree in [`AGREEING`] of the
/// rounds: a busy machine delays some runs, a difference of the worlds delays all.
fn judge_again(scenario: &Path, before: &mut (Verdict, Vec<String>), until: Instant) {
    let (most, wanted) = match before.0 {
        Verdict::Agrees { .. } | Verdict::Edge | Verdict::Busy(_) => return,
        Verdict::Doubted(_) => (1, 1),
        Verdict::Differs { .. } => (ROUNDS, AGREEING),
    };
    let mut agreeing = 0;
    for _ in 0..most {
        let (verdict, wrong) = judge_alone(scenario, until);
        before.1.extend(wrong);
        agreeing += usize::from(matches!(verdict, Verdict::Agrees { .. }));
        if agreeing == wanted || !matches!(verdict, Verdict::Agrees { .. }) {
            before.0 = verdict;
        }
        if agreeing == wanted {
            return;
        }
    }
}

/// `most`: as many runs may be doubted.
fn decide(mut compare: impl FnMut() -> Verdict, most: usize) -> (Verdict, Vec<String>) {
    let (mut wrong, mut doubted, mut agreeing) = (Vec::new(), 0, 0);
    let mut differing: Vec<Verdict> = Vec::new();
    loop {
        let verdict = compare();
        match &verdict {
            Verdict::Agrees { .. } => agreeing += 1,
            Verdict::Edge => wrong.push("on an edge".to_owned()),
            Verdict::Differs { why, .. } | Verdict::Doubted(why) | Verdict::Busy(why) => {
                wrong.push(why.clone());
            }
        }
        match verdict {
            Verdict::Agrees { .. } if agreeing > differing.len() => return (verdict, wrong),
            Verdict::Agrees { .. } => {}
            Verdict::Busy(_) => return (verdict, wrong),
            Verdict::Edge | Verdict::Differs { .. } => differing.push(verdict),
            Verdict::Doubted(_) => {
                doubted += 1;
                if doubted == most {
                    return (verdict, wrong);
                }
            }
        }
        if differing.len() == DIFFERING {
            if let [
                Verdict::Differs { emu: Some(one), .. },
                Verdict::Differs { emu: Some(other), .. },
            ] = differing[..]
                && (one - other).abs() > SCATTER
            {
                return (Verdict::Busy(format!("{one} s and {other} s")), wrong);
            }
            // An edge does not excuse a real difference.
            let worse = differing.iter().position(|it| matches!(it, Verdict::Differs { .. }));
            return (differing.swap_remove(worse.unwrap_or_default()), wrong);
        }
    }
}

#[test]
fn one_difference_is_outvoted_but_two_fail() {
    let reply = |runs: &str| {
        let mut runs = runs.chars();
        let (verdict, wrong) = decide(
            || match runs.next().unwrap() {
                'a' => Verdict::Agrees { sim: 1.0, emu: 1.0 },
                'e' => Verdict::Edge,
                'x' => Verdict::Differs { why: "differs".to_owned(), emu: Some(1.1) },
                'y' => Verdict::Differs { why: "differs".to_owned(), emu: Some(1.2) },
                'f' => failed("lost".to_owned()),
                'b' => Verdict::Busy("busy".to_owned()),
                _ => Verdict::Doubted("doubted".to_owned()),
            },
            DOUBTED,
        );
        assert_eq!(runs.next(), None, "more runs than it takes");
        let what = match verdict {
            Verdict::Agrees { .. } => 'a',
            Verdict::Edge => 'e',
            Verdict::Differs { .. } => 'x',
            Verdict::Doubted(_) => '?',
            Verdict::Busy(_) => 'b',
        };
        (what, wrong.len())
    };
    for (runs, verdict) in [
        ("a", ('a', 0)),
        ("xaa", ('a', 1)),
        ("?x?aa", ('a', 3)),
        ("xx", ('x', 2)),
        ("xax", ('x', 2)),
        ("ex", ('x', 2)),
        ("ee", ('e', 2)),
        ("??????", ('?', 6)),
        ("x?b", ('b', 3)),
        ("xy", ('b', 2)),
        ("fy", ('x', 2)),
        ("ff", ('x', 2)),
    ] {
        assert_eq!(reply(runs), verdict, "{runs}");
    }
}

/// Scenario with the seed removed, and the number of seeds to run.
struct Case {
    name: String,
    text: String,
    seeds: u64,
}

fn scenario(protocol: &str, delay: u32, loss: &str) -> String {
    let link = |from: &str, to: &str| {
        format!(
            "[[links]]\nfrom = {from:?}\nto = {to:?}\nrate = \"8 Mbit/s\"\n\
             delay = \"{delay} ms\"\nper = {loss:?}\n"
        )
    };
    format!(
        "transfers = [{{ from = \"a\", to = \"b\", protocol = {protocol:?}, \
         size = \"300 kB\" }}]\n{}{}",
        link("a", "b"),
        link("b", "a")
    )
}

/// Three receivers listen to a hub, each with its own losses.
const GROUP: &str = r#"
groups.fleet.count = 3
links = [
    { from = "ground", to = "fleet", rate = "8 Mbit/s", delay = "100 ms", per = "1e-2" },
    { from = "fleet", to = "ground", rate = "8 Mbit/s", delay = "100 ms", per = "1e-2" },
]
transfers = [{ from = "ground", to = "fleet", protocol = "norm", size = "300 kB" }]
"#;

/// A lander temporarily out of sight of its relay; the receiver crashes and resumes.
const CHAIN: &str = r#"
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

/// The transfer is requested while its path is down, by a plan of outages or of contacts.
fn down_at_first(protocol: &str, plan: &str) -> String {
    let link =
        |ends: &str| format!("{{ {ends}, rate = \"20 Mbit/s\", delay = \"20 ms\", {plan} }}");
    format!(
        "links = [{}, {}]\ntransfers = [{{ from = \"a\", to = \"b\", protocol = {protocol:?}, \
         size = \"300 kB\", start = \"200 ms\" }}]\n",
        link("from = \"a\", to = \"b\""),
        link("from = \"b\", to = \"a\"")
    )
}

/// Scenarios, the longest first.
fn cases() -> Vec<Case> {
    let outages = "outages = [{ at = \"100 ms\", for = \"1 s\" }]";
    let contacts =
        "contacts = [{ at = \"0 s\", for = \"100 ms\" }, { at = \"1 s\", for = \"9 s\" }]";
    let down = |name: &str, protocol: &str, plan: &str| {
        let (name, text) = (format!("{protocol}, {name}"), down_at_first(protocol, plan));
        Case { name, text, seeds: 1 }
    };
    let mut cases = vec![
        down("down at first", "cfdp", outages),
        down("down at first", "cfdp-ltp", outages),
        down("down at first", "ltp", outages),
        down("down before a contact", "cfdp", contacts),
        down("down before a contact", "cfdp-ltp", contacts),
        down("down before a contact", "ltp", contacts),
        Case { name: "a chain".to_owned(), text: CHAIN.to_owned(), seeds: 3 },
        Case { name: "a group".to_owned(), text: GROUP.to_owned(), seeds: 3 },
    ];
    for (delay, seeds) in [(300, 3), (25, 4)] {
        for loss in ["1e-2", "0"] {
            for protocol in ["cfdp", "cfdp-ltp", "ltp", "saratoga", "norm"] {
                let name = format!("{protocol}, {delay} ms, {loss}");
                cases.push(Case { name, text: scenario(protocol, delay, loss), seeds });
            }
        }
    }
    cases
}

/// Runs all of them; returns the verdicts seed by seed.
fn judge_all(cases: &[Case], folder: &Path) -> Vec<Vec<(Verdict, Vec<String>)>> {
    let all = cases.iter().enumerate();
    let all = all.flat_map(|(case, of)| (1..=of.seeds).map(move |seed| (case, seed)));
    let left = Mutex::new(all.collect::<Vec<_>>().into_iter());
    let work = || {
        let next = || left.lock().unwrap().next();
        let judged = std::iter::from_fn(next).map(|(case, seed)| {
            let path = folder.join(format!("{case}-{seed}.toml"));
            fs::write(&path, format!("seed = {seed}\n{}", cases[case].text)).unwrap();
            (case, seed, judge(&path))
        });
        judged.collect::<Vec<_>>()
    };
    let mut judged = thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    judged.sort_by_key(|(case, seed, _)| (*case, *seed));
    let until = Instant::now() + PATIENCE;
    for (case, seed, judged) in &mut judged {
        judge_again(&folder.join(format!("{case}-{seed}.toml")), judged, until);
    }
    let mut by_case: Vec<Vec<_>> = cases.iter().map(|_| Vec::new()).collect();
    for (case, _, verdict) in judged {
        by_case[case].push(verdict);
    }
    by_case
}

#[test]
fn transfers_take_as_long_as_in_the_simulator() {
    if !world::possible(false) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cases = cases();
    let judged = judge_all(&cases, folder.path());
    let mut table =
        "delivered after s: simulator, emulator (runs that were otherwise), a column a seed\n"
            .to_owned();
    let (mut agree, mut busy, mut differences) = (0, 0, Vec::new());
    for (case, verdicts) in cases.iter().zip(&judged) {
        write!(table, "{:24}", case.name).unwrap();
        for (seed, (verdict, wrong)) in (1..).zip(verdicts) {
            let cell = match verdict {
                Verdict::Agrees { sim, emu } => format!("{sim:.4}, {emu:.4}"),
                Verdict::Differs { why, .. } => {
                    differences.push(format!("{}, seed {seed}: {why}; {wrong:?}", case.name));
                    "differs".to_owned()
                }
                Verdict::Edge => "on an edge".to_owned(),
                Verdict::Doubted(_) => "doubted".to_owned(),
                Verdict::Busy(_) => "machine busy".to_owned(),
            };
            write!(table, "  {:20}", format!("{cell} ({})", wrong.len())).unwrap();
        }
        let agrees = verdicts.iter().all(|(verdict, _)| matches!(verdict, Verdict::Agrees { .. }));
        agree += usize::from(agrees);
        let at_best = |(verdict, _): &(Verdict, _)| {
            matches!(verdict, Verdict::Agrees { .. } | Verdict::Busy(_))
        };
        busy += usize::from(!agrees && verdicts.iter().all(at_best));
        table += if agrees { "  agrees\n" } else { "\n" };
    }
    eprintln!("{table}");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    if busy > 0 {
        testing::left_out!("{busy} scenarios, as this machine wakes nobody in time");
    }
    assert!(
        agree + busy + SPARED >= cases.len(),
        "{agree} of {} scenarios agree, and {busy} could not be measured",
        cases.len()
    );
}
