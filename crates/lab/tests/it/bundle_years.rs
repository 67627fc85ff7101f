//! Contacts over years: a lander on the far side, an orbiter, and Earth.
//!
//! `SLOWLIGHT_DAYS=3653 cargo test --release -p slowlight-lab --test it bundle_years --
//! --nocapture`
//!
//! runs ten years, in 1.5 GB of memory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "the numbers of a long run are printed")]

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use lab::run::{self, Recorders, Run};
use lab::scenario::Scenario;
use slowlight_lab as lab;
use transport::contact_plan::orbits::{Orbits, Passes};
use transport::contact_plan::{self, Format};

const DAY: u64 = 86_400;

/// Capacity of the orbiter's store in bytes.
const STORE: u64 = 2_000_000;

/// A picture a day from the lander, in bundles of 50 kB, and commands once a week from Earth. Node
/// numbers follow the order of the names: Earth 1, lander 2, orbiter 3.
fn world(days: u64, folder: &Path) -> Scenario {
    let orbits = Orbits::default();
    let passes = orbits.passes(Duration::from_secs(days * DAY));
    let plan = passes.plan(&orbits, [2, 3, 1], 1_000_000, 2_000_000).unwrap();
    let path = folder.join("plan.toml");
    std::fs::write(&path, contact_plan::write(Format::Toml, &plan).text).unwrap();
    // Records of the last bundles are dropped a month after the plan ends.
    let limits = format!("time = \"{} d\", events = {}", days + 60, 100_000_000 + days * 100_000);
    let mut text = format!("seed = 1\nlimits = {{ {limits} }}\n");
    for node in ["earth", "lander", "orbiter"] {
        let store = if node == "orbiter" { STORE } else { 1_000_000_000 };
        write!(
            text,
            "[nodes.{node}.mib]\ncontact_plan = {path:?}\nbundle_size = \"50 kB\"\nlifetime = \"30 d\"\n\
             limits = {{ bytes = \"{store} B\" }}\ntcpcl = {{ keepalive = \"10 min\" }}\n"
        )
        .unwrap();
    }
    for (from, to, rate, delay) in [
        ("lander", "orbiter", "1 Mbit/s", "20 ms"),
        ("orbiter", "lander", "1 Mbit/s", "20 ms"),
        ("orbiter", "earth", "2 Mbit/s", "1280 ms"),
        ("earth", "orbiter", "2 Mbit/s", "1280 ms"),
    ] {
        write!(
            text,
            "[[links]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate}\"\ndelay = \"{delay}\"\n"
        )
        .unwrap();
    }
    // Bundles of the last days may not arrive before the plan ends.
    for day in 0..days.saturating_sub(5) {
        let transfer = |from: &str, to: &str, size: &str| {
            format!(
                "[[transfers]]\nfrom = \"{from}\"\nto = \"{to}\"\nvia = [\"orbiter\"]\n\
                 protocol = \"bp-tcpcl\"\nsize = \"{size}\"\nname = \"{from}-{day}\"\n\
                 start = \"{} s\"\n",
                day * DAY + 3_600
            )
        };
        text += &transfer("lander", "earth", "200 kB");
        if day % 7 == 0 {
            text += &transfer("earth", "lander", "20 kB");
        }
    }
    let mut scenario = Scenario::parse(&text, "years").unwrap();
    let (near, far) = (Passes::windows(&passes.lander), Passes::windows(&passes.earth));
    for link in &mut scenario.links {
        let ends = [link.from.as_deref(), link.to.as_deref()];
        let is_near = ends.contains(&Some("lander"));
        link.contacts = Some(if is_near { near.clone() } else { far.clone() });
    }
    println!("{days} days: {} passes of the lander, {} of Earth", near.len(), far.len());
    scenario.resolved().unwrap()
}

fn check(run: &Run) {
    assert_eq!(run.ended, "idle");
    for transfer in &run.transfers {
        assert!(transfer.completed && transfer.verified, "{transfer:?}");
        assert!(!transfer.wrong_success);
    }
    let node = |name: &str| run.bundle_nodes[name];
    let (earth, lander, orbiter) = (node("earth"), node("lander"), node("orbiter"));
    // Every bundle was delivered once, and its source got a report of the delivery.
    assert_eq!(earth.delivered, lander.sourced, "{run:?}");
    assert_eq!(lander.delivered, earth.sourced);
    for it in [earth, lander, orbiter] {
        assert_eq!((it.held, it.expired, it.deleted, it.refused), (0, 0, 0, 0), "{it:?}");
    }
    assert!(orbiter.bytes_peak <= STORE, "{orbiter:?}");
    assert!(run.under_way.is_empty());
}

#[test]
fn many_contacts_lose_no_bundle() {
    let days = std::env::var("SLOWLIGHT_DAYS").map_or(30, |days| days.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let made = Instant::now();
    let scenario = world(days, folder.path());
    let contents = run::contents(&scenario).unwrap();
    let started = Instant::now();
    let run = run::run(&scenario, &contents, Recorders::default()).unwrap();
    println!(
        "world made in {:.1} s; {} transfers, {} events in {:.1} s of real time; ended {} at day {:.1}",
        (started - made).as_secs_f64(),
        run.transfers.len(),
        run.events,
        started.elapsed().as_secs_f64(),
        run.ended,
        run.time_s / DAY as f64
    );
    println!("{:#?}", run.bundle_nodes);
    check(&run);
}

#[test]
fn work_per_simulated_day_stays_constant() {
    let events = |days: u64| {
        let folder = tempfile::tempdir().unwrap();
        let scenario = world(days, folder.path());
        let contents = run::contents(&scenario).unwrap();
        run::run(&scenario, &contents, Recorders::default()).unwrap().events as f64
    };
    // The visibility from orbiter and lander has a period of 27.3 days.
    let (some, more, most) = (events(10), events(38), events(65));
    let (middle, end) = (more - some, most - more);
    assert!((0.8..1.25).contains(&(end / middle)), "{some} {more} {most}");
}
