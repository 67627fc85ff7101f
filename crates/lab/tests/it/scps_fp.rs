//! SCPS-FP through modelled links: interrupted and resumed transfers, best effort, and reading and
//! changing of records.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use lab::compare::{self, Plan};
use lab::content;
use lab::preset::Preset;
use lab::run::{self, Recorders, Run};
use lab::scenario::Scenario;
use slowlight_lab as lab;

/// One transfer from `a` to `b` with settings of both; `to` and `back` are more keys of the links.
struct World {
    settings: &'static str,
    to: &'static str,
    back: &'static str,
    transfer: &'static str,
}

const PLAIN: World = World {
    settings: "timeout = \"30 s\"",
    to: "",
    back: "",
    transfer: "protocol = \"scps-fp\"\nsize = \"1 MB\"",
};

impl World {
    fn run(&self) -> Run {
        let Self { settings, to, back, transfer } = self;
        let link = "rate = \"1 Mbit/s\"\ndelay = \"250 ms\"";
        let text = format!(
            "seed = 3
            [nodes.a.mib]\n{settings}
            [nodes.b.mib]\n{settings}
            [[links]]\nfrom = \"a\"\nto = \"b\"\n{link}\n{to}
            [[links]]\nfrom = \"b\"\nto = \"a\"\n{link}\n{back}
            [[transfers]]\nfrom = \"a\"\nto = \"b\"\n{transfer}"
        );
        let scenario = Scenario::parse(&text, "world").unwrap().resolved().unwrap();
        // The resolved scenario has the same meaning.
        let again = Scenario::parse(&scenario.to_toml().unwrap(), "again").unwrap();
        assert_eq!(again.resolved().unwrap().to_toml().unwrap(), scenario.to_toml().unwrap());
        let contents = run::contents(&scenario).unwrap();
        run::run(&scenario, &contents, Recorders::default()).unwrap()
    }
}

/// Bytes that crossed the first link, headers included.
fn bytes(run: &Run) -> u64 {
    run.transfers[0].traffic.bytes_str.unwrap()
}

#[test]
fn transfers_resume_after_an_outage_ends_both_connections() {
    let whole = PLAIN.run();
    assert!(whole.succeeded(), "{whole:?}");
    // The file takes over eight seconds, after a dialogue of six, with an outage of ten minutes in
    // between. All of TCP's retries end before its end, and so do the server's.
    let outage = "outages = [{ at = \"10 s\", for = \"10 min\" }]";
    let settings =
        "timeout = \"30 s\"\ntcp.retries = 5\nidle = \"2 min\"\ndata_timeout = \"1 min\"";
    let world = World { to: outage, back: outage, settings, ..PLAIN };
    let run = world.run();
    assert!(run.succeeded(), "{run:?}");
    let confirmed = run.transfers[0].confirmed_s.unwrap();
    assert!((610.0..700.0).contains(&confirmed), "{confirmed}");
    // Received data did not cross again: the difference is less than the file plus the data in
    // flight.
    let (once, twice) = (bytes(&whole), bytes(&run));
    assert!(twice < once + once / 4, "{once} {twice}");
    // Without restarts it fails, and the partial file is removed.
    let never = "timeout = \"30 s\"\ntcp.retries = 5\nauto_restart = false";
    let run = World { settings: never, ..world }.run();
    assert!(!run.transfers[0].completed && !run.transfers[0].wrong_success, "{run:?}");
}

#[test]
fn clients_resume_at_servers_unaware_of_the_disconnect() {
    // The client gives up after 20 s; the server would wait for a day.
    let outage = "outages = [{ at = \"10 s\", for = \"3 min\" }]";
    let settings = "timeout = \"20 s\"\nidle = \"24 h\"\ndata_timeout = \"24 h\"";
    let run = World { to: outage, back: outage, settings, ..PLAIN }.run();
    assert!(run.succeeded(), "{run:?}");
    let confirmed = run.transfers[0].confirmed_s.unwrap();
    assert!((190.0..400.0).contains(&confirmed), "{confirmed}");
}

#[test]
fn records_are_read_and_changed_without_whole_transfers() {
    let once = |transfer: &'static str| {
        let run = World { transfer, ..PLAIN }.run();
        assert!(run.succeeded(), "{transfer}: {run:?}");
        run
    };
    let whole = once("protocol = \"scps-fp-get\"\nsize = \"1 MB\"");
    assert!(bytes(&whole) > 1_000_000);
    for transfer in [
        "protocol = \"scps-fp-read\"\nsize = \"1 MB\"\nrecords = [\"10-1009\", \"999000-\"]",
        "protocol = \"scps-fp-update\"\nsize = \"1 MB\"\nrecords = [\"500000-501999\", \"7-7\"]",
        "protocol = \"scps-fp-copy\"\nsize = \"1 MB\"",
    ] {
        let run = once(transfer);
        assert!(bytes(&run) < 10_000, "{transfer}: {}", bytes(&run));
        // A partial file has no bound.
        assert_eq!((run.transfers[0].bound_s, run.transfers[0].efficiency), (None, None));
    }
}

#[test]
fn records_are_read_and_changed_after_an_outage() {
    let outage = "outages = [{ at = \"3 s\", for = \"5 min\" }]";
    let settings = "timeout = \"30 s\"\ntcp.retries = 5\nidle = \"2 min\"";
    for transfer in [
        "protocol = \"scps-fp-read\"\nsize = \"1 MB\"\nrecords = [\"0-599999\"]",
        "protocol = \"scps-fp-update\"\nsize = \"1 MB\"\nrecords = [\"0-599999\"]",
    ] {
        let run = World { to: outage, back: outage, settings, transfer }.run();
        assert!(run.succeeded(), "{run:?}");
        assert!(run.transfers[0].delivered_s.unwrap() > 303.0, "{run:?}");
    }
}

#[test]
fn comparisons_pass_records_to_protocols_that_support_them() {
    let names = ["scps-fp", "scps-fp-read", "scps-fp-update", "scps-fp-copy"];
    let plan = Plan {
        records: Some(vec!["0-999".parse().unwrap()]),
        ..Plan::new(
            Preset::find("geo").unwrap(),
            names.iter().map(|name| name.parse().unwrap()).collect(),
            content::made_up(1, 0, 300_000).unwrap(),
        )
    };
    let rows = compare::compare(&plan, &false.into(), &|| ()).unwrap().unwrap();
    let row = |name: &str| rows.iter().find(|row| row.protocol.to_string() == name).unwrap();
    assert!(names.iter().all(|name| row(name).completed == 1), "{rows:?}");
    assert!(
        row("scps-fp").traffic.bytes_str > 300_000.0
            && row("scps-fp-update").traffic.bytes_str < 10_000.0
    );
}

#[test]
fn files_are_verified_by_checksum() {
    let confirmed = |settings| {
        let run = World { settings, ..PLAIN }.run();
        assert!(run.succeeded(), "{run:?}");
        run.transfers[0].confirmed_s.unwrap()
    };
    let (plain, checked) = (confirmed("verify = false"), confirmed("verify = true"));
    // One request, and its reply.
    assert!((plain + 0.5..plain + 0.6).contains(&checked), "{plain} {checked}");
}

#[test]
fn best_effort_reports_gaps_and_rejects_partial_files() {
    // With this loss some segments never arrive in time.
    let to = "per = 0.2";
    let settings = "timeout = \"60 s\"\nbets = { receive_timeout = \"300 ms\" }";
    let transfer = "protocol = \"scps-fp/scps-rate\"\nsize = \"1 MB\"";
    let run = World { to, settings, transfer, ..PLAIN }.run();
    let lacking = &run.transfers[0];
    assert!(!lacking.completed && !lacking.wrong_success, "{lacking:?}");
    let why = lacking.failure.clone().unwrap();
    assert!(why.contains("bytes are missing"), "{why}");
    // Without it the whole file arrives.
    let settings = "timeout = \"60 s\"\nbets = \"off\"";
    let run = World { to, settings, transfer, ..PLAIN }.run();
    assert!(run.succeeded(), "{run:?}");
}
