//! External programs between two hosts of the emulator. They need root or a user namespace, and
//! the programs; skipped tests are reported.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use emu::World;
use lab::adapter::{Adapter, Adapters, Verdict};
use lab::link_spec::LinkSpec;
use lab::preset::Preset;
use testbed::emulation;
use testbed::tool::{self, Job, Outcome};

const BYTES: usize = 300_000;

/// A world of two hosts, 20 ms and 50 Mbit/s apart.
fn world() -> Option<World> {
    let hop = LinkSpec {
        rate: Some("50 Mbit/s".parse().unwrap()),
        delay: Some("20 ms".parse().unwrap()),
        ..LinkSpec::default()
    };
    let scenario = emulation::between_two(&Preset::single(hop), 1).unwrap();
    match World::start(&emulation::plan(&scenario).unwrap()) {
        Ok(world) => Some(world),
        Err(error) if Path::new("/dev/net/tun").exists() && is_root() => panic!("{error}"),
        Err(error) => {
            testing::skipped!("worlds need root and /dev/net/tun: {error}");
            None
        }
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

fn carry(world: &World, adapter: &Adapter, limit: Duration) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("some file.bin");
    std::fs::write(&file, (0..BYTES).map(|at| (at % 251) as u8).collect::<Vec<_>>()).unwrap();
    let job = Job {
        adapter,
        file: &file,
        bytes: BYTES as u64,
        sha256: tool::sha256(&file).unwrap(),
        from: world.host(emulation::ENDS.0).unwrap(),
        to: world.host(emulation::ENDS.1).unwrap(),
        port: adapter.port,
        port2: adapter.port2,
        rate: Some(50_000_000),
        limit,
    };
    job.run(&AtomicBool::new(false)).unwrap()
}

/// Returns an adapter with these lines.
fn made_up(lines: &str) -> Adapter {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.toml"), format!("port = 4000\n{lines}")).unwrap();
    Adapters::with(Some(folder.path())).unwrap().find("x").unwrap()
}

#[test]
fn each_installed_tool_carries_a_file() {
    let adapters = Adapters::default();
    thread::scope(|scope| {
        for name in adapters.names() {
            let adapter = adapters.find(name).unwrap();
            if let Some(missing) = tool::missing(&adapter).first() {
                testing::left_out!("{name}: {missing}");
                continue;
            }
            scope.spawn(move || {
                let Some(world) = world() else { return };
                let outcome = carry(&world, &adapter, Duration::from_secs(60));
                let wanted = match adapter.goodput {
                    Some(_) => Verdict::Measured,
                    None => Verdict::Identical,
                };
                assert_eq!(outcome.verdict, wanted, "{}: {outcome:?}", adapter.name);
                let goodput = outcome.goodput_bps.unwrap();
                // A link carries no more than its rate; a measurement may omit its last queue.
                assert!(goodput > 1e5 && goodput < 6e7, "{}: {outcome:?}", adapter.name);
                world.stop().unwrap();
            });
        }
    });
}

#[test]
fn failed_tools_report_the_reason() {
    let Some(world) = world() else { return };
    let second = Duration::from_secs(1);
    for (lines, verdict, why) in [
        ("client = 'echo broken >&2; exit 3'", Verdict::Failed, "exit status: 3: broken"),
        ("client = 'true'", Verdict::Failed, "no file has arrived"),
        ("client = 'echo other > \"$OUT\"'", Verdict::Different, "a different file"),
        ("client = 'exec sleep 60'", Verdict::Failed, "not over after 1 s"),
        ("client = 'true'\nprepare = 'false'", Verdict::Failed, "preparing it failed"),
        (
            "client = 'true'\nserver = 'echo in use >&2; exit 1'\nready = 'tcp'",
            Verdict::Failed,
            "server ended with exit status: 1: in use",
        ),
        ("client = 'echo {}'\ngoodput = '/rate'", Verdict::Failed, "not JSON with a number"),
    ] {
        let outcome = carry(&world, &made_up(lines), second);
        assert_eq!(outcome.verdict, verdict, "{lines}: {outcome:?}");
        assert!(
            outcome.why.as_ref().is_some_and(|said| said.contains(why)),
            "{lines}: {outcome:?}"
        );
        assert_eq!(outcome.goodput_bps, None);
    }
    world.stop().unwrap();
}

#[test]
fn processes_started_by_a_tool_end_with_it() {
    let Some(world) = world() else { return };
    let folder = tempfile::tempdir().unwrap();
    let alive = folder.path().join("alive");
    // A daemon that has left its process group and session, and shows that it runs.
    let server = format!(
        "setsid sh -c 'while :; do date +%N > {}; sleep 0.02; done' & exec sleep 60",
        alive.display()
    );
    let adapter =
        made_up(&format!("server = \"{server}\"\nclient = 'sleep 0.3; cp \"$FILE\" \"$OUT\"'"));
    let outcome = carry(&world, &adapter, Duration::from_secs(20));
    assert_eq!(outcome.verdict, Verdict::Identical, "{outcome:?}");
    let started = Instant::now();
    let now = || std::fs::read_to_string(&alive).unwrap();
    let mut last = now();
    loop {
        thread::sleep(Duration::from_millis(200));
        let next = now();
        if next == last {
            break;
        }
        last = next;
        assert!(started.elapsed() < Duration::from_secs(10), "it still runs");
    }
    world.stop().unwrap();
}
