//! Files by LTP-T, over one hop and over forwarding engines.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;
use std::sync::atomic::AtomicBool;

use crate::chains::{self, chain, play};
use lab::compare::{Plan, compare};
use lab::content;
use lab::preset::Preset;
use lab::run::{self, Recorders, Run};
use lab::scenario::Scenario;
use slowlight_lab as lab;

fn transfer(way: &str, more: &str) -> String {
    chains::transfer(way, "ltp-t", more)
}

fn delivered(run: &Run) -> f64 {
    assert!(run.succeeded(), "{run:#?}");
    let it = &run.transfers[0];
    assert!(it.verified && !it.wrong_success, "{it:?}");
    assert!(run.under_way.is_empty(), "{run:?}");
    it.delivered_s.unwrap()
}

/// Settings of nodes that forward only complete blocks.
fn whole_first(nodes: &str) -> String {
    let node = |name: char| format!("nodes.{name}.mib.transport.cut_through = false\n");
    nodes.chars().map(node).collect()
}

#[test]
fn a_file_crosses_one_hop_and_is_confirmed() {
    for size in ["1 B", "1 kB", "300 kB"] {
        let run = play(&(chain("ab", "", "") + &transfer("ab", &format!("size = \"{size}\""))));
        let delivered = delivered(&run);
        assert!(run.transfers[0].confirmed_s.unwrap() > delivered + 0.1, "{run:?}");
    }
}

#[test]
fn relays_add_light_time_but_no_transmission_time() {
    // 300 kB at 1 Mbit/s are 2.4 s, and 2.6 s with all headers.
    let one = delivered(&play(&(chain("ab", "", "") + &transfer("ab", "size = \"300 kB\""))));
    let text = chain("abcd", "", "") + &transfer("abcd", "size = \"300 kB\"");
    let run = play(&text);
    let three = delivered(&run);
    assert!((one + 0.2..one + 0.5).contains(&three), "{one} {three}");
    // The first engine confirms the block; there is no later confirmation.
    assert_eq!(run.transfers[0].confirmed_s, None);
    let again = play(&text);
    assert_eq!(serde_json::to_string(&run).unwrap(), serde_json::to_string(&again).unwrap());
    let stored = delivered(&play(&(whole_first("abcd") + &text)));
    assert!(stored > 3.0 * one - 0.3, "{one} {stored}");
}

/// Seconds that 4 MiB take over the orbiter of the 2007 study, without the light time.
fn by_an_orbiter(protocol: &str, ltt_ms: u32) -> f64 {
    let of_study = "ltp-t/ltplib-2007";
    let text = include_str!("../../../../scenarios/ltpt-two-hops.toml");
    assert!(text.contains(of_study));
    let text = text.replace(of_study, protocol);
    let mut scenario = Scenario::parse(&text, "ltpt-two-hops.toml").unwrap();
    for link in scenario.links.iter_mut().filter(|link| link.from.as_deref() == Some("router")) {
        link.delay = Some(format!("{ltt_ms} ms").parse().unwrap());
    }
    let scenario = scenario.resolved().unwrap();
    let contents = run::contents(&scenario).unwrap();
    let run = run::run(&scenario, &contents, Recorders::default()).unwrap();
    delivered(&run) - f64::from(ltt_ms) / 1000.0
}

/// Without the rate of 2007 the link's rate applies: 4 MiB at 100 Mbit/s are 0.34 s per hop.
/// Bundles over UDP cross as fragments of a datagram each, which are forwarded one by one; a whole
/// bundle takes the time of both hops.
#[test]
fn the_defaults_take_the_link_s_rate() {
    for ltt_ms in [10, 100, 1_000, 10_000] {
        let [udp, tcpcl, blocks] =
            ["bp-udp", "bp-tcpcl", "ltp-t"].map(|protocol| by_an_orbiter(protocol, ltt_ms));
        assert!((0.34..0.45).contains(&blocks), "{ltt_ms} ms: {blocks}");
        assert!((0.34..0.45).contains(&udp), "{ltt_ms} ms: {udp}");
        assert!(tcpcl > 0.68, "{ltt_ms} ms: {tcpcl}");
    }
}

#[test]
fn losses_on_every_hop_are_repaired_hop_by_hop() {
    for per in ["1e-2", "1e-1"] {
        let link = format!("per = \"{per}\"");
        let run = play(&(chain("abc", &link, "") + &transfer("abc", "size = \"300 kB\"")));
        assert!((2.5..10.0).contains(&delivered(&run)), "{per}");
    }
}

/// The second hop is down for the first hour.
fn cut(text: &str) -> String {
    let outage = "outages = [{ at = \"0 s\", for = \"1 h\" }]";
    let cut = |text: &str, from: &str, to: &str| {
        let ends = format!("from = \"{from}\"\nto = \"{to}\"\n");
        assert!(text.contains(&ends));
        text.replace(&ends, &format!("{ends}{outage}\n"))
    };
    cut(&cut(text, "b", "c"), "c", "b")
}

#[test]
fn relays_keep_waiting_blocks() {
    let text = cut(&chain("abc", "", "")) + &transfer("abc", "size = \"100 kB\"");
    let run = play(&text);
    assert!((3600.0..3610.0).contains(&delivered(&run)), "{run:?}");
    // 100 kB are 72 datagrams of 1,472 bytes with their extensions, plus the report acknowledgment:
    // nothing is retransmitted while the relay waits.
    for (from, to) in [("a", "b"), ("b", "c")] {
        let link = run.links.iter().find(|link| link.from == from && link.to == to).unwrap();
        assert!((70..80).contains(&link.pushed), "{link:?}");
    }
}

#[test]
fn relays_keep_blocks_across_a_crash() {
    let crash = "[nodes.b]\ncrashes = [{ at = \"600 s\", restart = \"700 s\" }]";
    let text = cut(&chain("abc", "", crash)) + &transfer("abc", "size = \"100 kB\"");
    let run = play(&text);
    assert!((3600.0..3610.0).contains(&delivered(&run)), "{run:?}");
}

#[test]
fn expired_blocks_are_given_up() {
    let text = cut(&chain("abc", "", "")) + &transfer("abc", "size = \"100 kB\"");
    let run =
        play(&text.replace("seed = 3", "seed = 3\nnodes.a.mib.transport.lifetime = \"10 min\""));
    let it = &run.transfers[0];
    assert!(!it.completed && !it.verified && !it.wrong_success, "{it:?}");
    assert_eq!(run.ended, "idle");
    assert!(run.under_way.is_empty(), "{run:?}");
}

#[test]
fn full_relays_make_the_previous_hop_wait() {
    // Room for one file, of two.
    let text = chain("abc", "", "nodes.b.mib.transport.limits.storage = \"110 kB\"")
        + &transfer("abc", "size = \"100 kB\"\nname = \"one\"")
        + &transfer("abc", "size = \"100 kB\"\nname = \"other\"");
    let run = play(&text);
    assert!(run.succeeded(), "{run:#?}");
    let times: Vec<_> = run.transfers.iter().map(|it| it.delivered_s.unwrap()).collect();
    // One transfer is refused, and retried after 10 s.
    assert!(times.iter().any(|time| *time < 5.0), "{times:?}");
    assert!(times.iter().any(|time| *time > 10.0), "{times:?}");
}

#[test]
fn files_cross_in_both_directions_and_end_on_the_way() {
    let text = chain("abc", "", "")
        + &transfer("abc", "size = \"100 kB\"\nname = \"one\"")
        + &transfer("cba", "size = \"150 kB\"\nname = \"other\"")
        + &transfer("ab", "size = \"50 kB\"\nname = \"third\"");
    let run = play(&text);
    assert!(run.succeeded(), "{run:#?}");
    assert!(run.transfers.iter().all(|it| it.verified && !it.wrong_success));
    assert!(run.transfers[2].confirmed_s.is_some());
}

#[test]
fn a_comparison_has_engines_between_its_hops() {
    let plan = |relay: bool| Plan {
        relay,
        ..Plan::new(
            Preset::find("moon-farside").unwrap(),
            ["ltp-t", "bp-tcpcl", "ltp"].map(|name| name.parse().unwrap()).into(),
            content::made_up(1, 0, 200_000).unwrap(),
        )
    };
    let times = |relay: bool| {
        let rows = compare(&plan(relay), &AtomicBool::new(false), &|| ()).unwrap().unwrap();
        ["ltp-t", "bp-tcpcl", "ltp"].map(|name| {
            let row = rows.iter().find(|row| row.protocol.to_string() == name).unwrap();
            assert_eq!(row.completed, 1, "{row:?}");
            row.delivered_s.unwrap().mean
        })
    };
    let ([direct, _, plain], [by_relay, bundles, routed]) = (times(false), times(true));
    // LTP runs end to end either way. A relay costs LTP-T almost nothing.
    assert!((plain - routed).abs() < 1e-9 && (direct / plain - 1.0).abs() < 0.05);
    assert!((by_relay - direct).abs() < 0.2, "{by_relay} {direct}");
    assert!(by_relay + 1.0 < bundles, "{by_relay} {bundles}");
}

#[test]
fn mistakes_are_reported() {
    let error = |text: &str| {
        let resolved = Scenario::parse(text, "world.toml").and_then(Scenario::resolved);
        let played = resolved.map_err(run::RunError::from).and_then(|scenario| {
            run::run(&scenario, &run::contents(&scenario)?, Recorders::default())
        });
        played.unwrap_err().to_string()
    };
    let text = chain("abc", "", "") + &transfer("abc", "overlay = \"sfo\"");
    assert!(error(&text).contains("bundles need none"), "{}", error(&text));
    let text = chain("abdc", "", "") + &chain("aec", "", "").replace("seed = 3", "");
    let text = text + &transfer("abdc", "name = \"x\"") + &transfer("aec", "name = \"y\"");
    assert!(error(&text).contains("two ways lead from a to c"), "{}", error(&text));
}

#[test]
fn tshark_reads_the_traffic() {
    let text = chain("abc", "per = \"1e-2\"", "capture = { at = \"b\", pcap = true }")
        + &transfer("abc", "size = \"100 kB\"");
    let capture = crate::runs::Shared::default();
    let run = crate::runs::run_once(&text, capture.recorders());
    assert!(run.succeeded(), "{run:#?}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), capture.bytes()).unwrap();
    let mut ask = Command::new("tshark");
    ask.arg("-r").arg(file.path()).args(["-d", "udp.port==2501-2503,ltp", "-T", "fields"]);
    for field in ["_ws.malformed", "_ws.expert.message", "ltp.type", "ltp.hdr.extn.tag"] {
        ask.args(["-e", field]);
    }
    let Ok(asked) = ask.output() else {
        testing::skipped!("there is no tshark");
        return;
    };
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let lines = String::from_utf8(asked.stdout).unwrap();
    assert!(!lines.to_lowercase().contains("malformed"), "{lines}");
    let column = |n: usize| lines.lines().filter_map(move |line| line.split('\t').nth(n));
    // Red data and reports, and source and destination of the block.
    assert!(column(2).all(|kind| !kind.is_empty()), "{lines}");
    let tags: Vec<&str> = column(3).filter(|tags| !tags.is_empty()).collect();
    assert!(tags.len() >= 140, "{lines}");
    assert!(tags.iter().all(|tags| tags.contains("208") || tags.contains("d0")), "{tags:?}");
}
