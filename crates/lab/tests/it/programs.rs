//! Models of programs through modelled links.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use lab::metrics::TransferMetrics;
use lab::run::{self, Recorders};
use lab::scenario::Scenario;
use slowlight_lab as lab;

const TOOLS: [&str; 6] =
    ["scp", "scp/openssh-9.2-legacy", "sftp", "rsync", "rsync-daemon", "telnet"];

/// Metrics of a file transfer from a to b.
fn carried(protocol: &str, size: &str, link: &str, settings: &str) -> TransferMetrics {
    let text = format!(
        "seed = 1
        [nodes.a.mib]\n{settings}\n[nodes.b.mib]\n{settings}
        [[links]]\nfrom = \"a\"\nto = \"b\"\n{link}
        [[links]]\nfrom = \"b\"\nto = \"a\"\n{link}
        [[transfers]]\nfrom = \"a\"\nto = \"b\"\nsize = \"{size}\"\nname = \"test file\"
        protocol = \"{protocol}\"",
    );
    let scenario = Scenario::parse(&text, "world").unwrap().resolved().unwrap();
    let again = Scenario::parse(&scenario.to_toml().unwrap(), "again").unwrap();
    assert_eq!(again.resolved().unwrap().to_toml().unwrap(), scenario.to_toml().unwrap());
    let contents = run::contents(&scenario).unwrap();
    let mut run = run::run(&scenario, &contents, Recorders::default()).unwrap();
    assert_eq!(run.ended, "idle", "{protocol}");
    assert!(run.under_way.is_empty(), "{protocol}: {:?}", run.under_way);
    run.transfers.remove(0)
}

fn link(delay: Duration) -> String {
    format!("rate = \"20 Mbit/s\"\ndelay = \"{} ms\"", delay.as_millis())
}

const NO_COSTS: &str = "program.costs = false";

#[test]
fn every_program_carries_files_of_every_size_through_losses() {
    for tool in TOOLS {
        for size in ["0 B", "1 B", "10 kB", "700 kB"] {
            let size = if tool == "telnet" { size.replace("kB", "B") } else { size.to_owned() };
            let lossy = format!("{}\nper = 0.01", link(Duration::from_millis(20)));
            let transfer = carried(tool, &size, &lossy, "");
            assert!(transfer.completed && transfer.verified, "{tool} {size}: {transfer:?}");
            assert!(transfer.confirmed_s >= transfer.delivered_s, "{tool} {size}");
        }
    }
}

#[test]
fn round_trips_match_the_real_programs() {
    // Counted in captures of OpenSSH 9.2 and rsync 3.5 in the emulator, at 300 ms one way.
    let second = Duration::from_secs(1);
    for (tool, least, most) in [
        ("scp", 20.0, 20.9),
        ("sftp", 20.0, 20.9),
        ("rsync", 17.0, 17.9),
        ("rsync-daemon", 12.0, 12.9),
    ] {
        let transfer = carried(tool, "10 kB", &link(second), NO_COSTS);
        let trips = transfer.confirmed_s.unwrap() / 2.0;
        assert!((least..most).contains(&trips), "{tool}: {trips} round trips");
    }
}

#[test]
fn logins_time_out_after_the_grace_period() {
    // At least seven round trips; with a light time of ten seconds two minutes hold six.
    for tool in ["sftp/openssh-4.2", "scp/openssh-4.2", "sftp", "rsync"] {
        let near = carried(tool, "1 kB", &link(Duration::from_secs(1)), "");
        assert!(near.completed, "{tool}: {near:?}");
        let far = carried(tool, "1 kB", &link(Duration::from_secs(10)), "");
        assert!(!far.completed && !far.wrong_success, "{tool}");
        let why = far.failure.unwrap();
        assert!(why.contains("LoginGraceTime"), "{why}");
        let patient = "program.grace = \"1 h\"";
        assert!(carried(tool, "1 kB", &link(Duration::from_secs(10)), patient).completed, "{tool}");
    }
    // A daemon has no login.
    assert!(carried("rsync-daemon", "1 kB", &link(Duration::from_secs(10)), "").completed);
}

#[test]
fn channel_window_bounds_bytes_per_round_trip() {
    let far = "rate = \"100 Mbit/s\"\ndelay = \"300 ms\"";
    let crossing = |tool: &str, size: &str, settings: &str| {
        let transfer = carried(tool, size, far, settings);
        assert!(transfer.completed, "{tool}: {transfer:?}");
        transfer.transfer_s.unwrap()
    };
    // At most 128 KiB per round trip of 0.6 s: 1.75 Mbit/s; and at least three quarters of that,
    // because the window is advertised again when half of it was read.
    let old = 8.0 * 4e6 / crossing("sftp/openssh-4.2", "4 MB", NO_COSTS);
    assert!((0.5 * 1.75e6..1.75e6).contains(&old), "{old}");
    let new = 8.0 * 30e6 / crossing("sftp", "30 MB", NO_COSTS);
    assert!((8.0 * old..28e6).contains(&new), "{new}");
    let small = format!("{NO_COSTS}\nprogram.window = \"256 KiB\"");
    assert!(crossing("scp", "4 MB", &small) > 1.5 * crossing("scp", "4 MB", NO_COSTS));
}

#[test]
fn echo_latency_is_one_round_trip_unless_nagle_delays() {
    let far = link(Duration::from_millis(300));
    let of = |settings: &str| {
        let transfer = carried("telnet", "500 B", &far, settings);
        assert!(transfer.completed, "{transfer:?}");
        transfer.latency.unwrap()
    };
    let at_once = of("tcp.nagle = false\nprogram.costs = false");
    assert_eq!(at_once.count, 500);
    assert!((0.6..0.61).contains(&at_once.min_s), "{at_once:?}");
    assert!(at_once.p99_s < 0.61, "{at_once:?}");
    let waiting = of("program.costs = false");
    assert!(waiting.min_s >= at_once.min_s && waiting.median_s > 0.8, "{waiting:?}");
    assert!(waiting.median_s <= waiting.p95_s && waiting.p95_s <= waiting.p99_s);
    assert!(waiting.p99_s <= waiting.max_s);
    let lossy = format!("{far}\nper = 0.05");
    let lost = carried("telnet", "500 B", &lossy, "tcp.nagle = false").latency.unwrap();
    assert!(lost.max_s > 1.1, "{lost:?}");
}

#[test]
fn vanished_peers_are_detected() {
    for tool in TOOLS {
        let text = format!(
            "seed = 1
            [nodes.a.mib]\ntimeout = \"60 s\"\n[nodes.b.mib]\ntimeout = \"60 s\"
            [[nodes.b.crashes]]\nat = \"4 s\"
            [[links]]\nfrom = \"a\"\nto = \"b\"\nrate = \"1 Mbit/s\"\ndelay = \"100 ms\"
            [[links]]\nfrom = \"b\"\nto = \"a\"\nrate = \"1 Mbit/s\"\ndelay = \"100 ms\"
            [[transfers]]\nfrom = \"a\"\nto = \"b\"\nsize = \"{}\"\nprotocol = \"{tool}\"",
            if tool == "telnet" { "1 kB" } else { "5 MB" }
        );
        let scenario = Scenario::parse(&text, "world").unwrap().resolved().unwrap();
        let contents = run::contents(&scenario).unwrap();
        let run = run::run(&scenario, &contents, Recorders::default()).unwrap();
        assert_eq!(run.ended, "idle", "{tool}");
        let transfer = &run.transfers[0];
        assert!(!transfer.completed && !transfer.wrong_success, "{tool}: {transfer:?}");
        assert!(run.time_s < 7200.0, "{tool}: {}", run.time_s);
    }
}

#[test]
fn profiles_name_a_release_or_a_tcp_profile_or_both() {
    for name in ["sftp/openssh-4.2", "sftp/bbr", "scp/openssh-4.2+linux-2.6.18", "telnet/reno"] {
        assert_eq!(name.parse::<transport::protocol::Protocol>().unwrap().to_string(), name);
    }
    for wrong in ["sftp/openssh-1", "sftp/bbr+openssh-4.2", "telnet/openssh-4.2", "sftp/a+b"] {
        let refused = wrong.parse::<transport::protocol::Protocol>().unwrap_err().to_string();
        assert!(refused.contains("openssh-9.2"), "{refused}");
    }
}
