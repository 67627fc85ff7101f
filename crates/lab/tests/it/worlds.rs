//! Properties of any world: its files, counters, recordings and end.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use slowlight_lab as lab;

use lab::run::{self, Recorders, Run, RunError};
use lab::scenario::Scenario;

fn world(link: &str, transfers: &[&str]) -> Scenario {
    let mut text = "seed = 1\n".to_owned();
    for (from, to) in [("a", "b"), ("b", "a")] {
        text += &format!("[[links]]\nfrom = \"{from}\"\nto = \"{to}\"\n{link}\n");
    }
    for transfer in transfers {
        text += &format!("[[transfers]]\nfrom = \"a\"\nto = \"b\"\n{transfer}\n");
    }
    Scenario::parse(&text, "world").unwrap().resolved().unwrap()
}

fn play(scenario: &Scenario) -> Run {
    run::run(scenario, &run::contents(scenario).unwrap(), Recorders::default()).unwrap()
}

const LINE: &str = "rate = \"1 Mbit/s\"\ndelay = \"10 ms\"";

#[test]
fn every_made_up_file_has_its_own_content() {
    let world = world(LINE, &["size = \"10 kB\""; 3]);
    let files = run::contents(&world).unwrap();
    assert!(files[0] != files[1] && files[1] != files[2] && files[0] != files[2]);
    assert_eq!(files, run::contents(&world).unwrap());
    assert_eq!(files[0], lab::content::random_content(1, 10_000));
}

#[test]
fn packets_are_attributed_only_to_lone_transfers() {
    let one = play(&world(LINE, &["size = \"10 kB\""])).transfers.remove(0);
    assert!(one.traffic.packets_str > Some(6) && one.traffic.bytes_rts > Some(0));
    assert!(one.quiet_s.is_some() && one.wire_s.is_some() && one.traffic.throughput_bps.is_some());
    let run = play(&world(LINE, &["size = \"10 kB\"", "size = \"10 kB\"\nstart = \"5 s\""]));
    assert!(run.succeeded());
    for transfer in &run.transfers {
        assert!(transfer.delivered_s < Some(0.2) && transfer.goodput_bps.is_some());
        assert_eq!((transfer.traffic.packets_str, transfer.traffic.packets_rts), (None, None));
        assert_eq!((transfer.traffic.bytes_str, transfer.traffic.bytes_rts), (None, None));
        assert_eq!((transfer.quiet_s, transfer.wire_s), (None, None));
        assert_eq!((transfer.traffic.throughput_bps, transfer.goodput_grc_bps), (None, None));
    }
}

/// Links below the minimum MTU of a protocol are refused before anything runs; the MTU in the
/// error is enough.
#[test]
fn a_link_too_narrow_for_a_protocol_is_refused_with_the_limit() {
    for protocol in ["norm", "ltp", "ltp/async-reports"] {
        let at = |mtu: &str| {
            let link = format!("{LINE}\nmtu = \"{mtu}\"");
            world(&link, &[&format!("size = \"10 kB\"\nprotocol = \"{protocol}\"")])
        };
        let narrow = at("61 B");
        let contents = run::contents(&narrow).unwrap();
        let refused = run::run(&narrow, &contents, Recorders::default()).unwrap_err().to_string();
        assert!(refused.contains("link a -> b: datagrams are 33 B at most"), "{refused}");
        let (_, rest) = refused.split_once("set `mtu` to ").unwrap();
        let (least, _) = rest.split_once(" or more").unwrap();
        assert!(play(&at(least)).succeeded(), "{protocol}: {least}");
    }
    let wide = world(&format!("{LINE}\nmtu = \"61 B\""), &["size = \"1 kB\""]);
    assert!(run::contents(&wide).is_ok() && play(&wide).succeeded(), "cfdp needs no more");
}

#[test]
fn a_file_beyond_memory_is_refused() {
    for content in ["random", "zeros"] {
        let transfer = format!("size = \"100 TB\"\ncontent = \"{content}\"");
        let error = run::contents(&world(LINE, &[&transfer])).unwrap_err().to_string();
        assert!(error.contains("no memory for a file of 100 TB"), "{error}");
    }
}

#[test]
fn a_run_can_be_cancelled_and_ends_by_itself() {
    let world = world(LINE, &["size = \"100 kB\""]);
    let contents = run::contents(&world).unwrap();
    let cancelled = AtomicBool::new(true);
    let run = run::run_unless(&cancelled, &world, &contents, Recorders::default()).unwrap();
    assert_eq!((run.ended.as_str(), run.succeeded()), ("cancelled", false));
    assert_eq!(world.limits.events, Some(101_000_000));
}

#[test]
fn plain_cfdp_is_of_the_class_that_the_senders_mib_has_for_the_receiver() {
    let class = |protocol: &str, mib: &str| {
        let text = format!(
            "seed = 1
            links = [{{ from = \"a\", to = \"b\" }}, {{ from = \"b\", to = \"a\" }}]
            transfers = [{{ from = \"a\", to = \"b\", protocol = \"{protocol}\", size = \"1 kB\" }}]
            nodes.b.mib.default.class = 1
            {mib}"
        );
        let world = Scenario::parse(&text, "world").unwrap().resolved().unwrap();
        let run = play(&world);
        assert!(run.succeeded(), "{run:?}");
        // The sender of class 1 is never informed of the end, and the receiver sends nothing.
        let transfer = &run.transfers[0];
        assert_eq!(transfer.confirmed_s.is_some(), transfer.traffic.packets_rts != Some(0));
        assert_eq!(transfer.confirmed_s.is_some(), world.is_reliable(&world.transfers[0]));
        if transfer.confirmed_s.is_some() { 2 } else { 1 }
    };
    assert_eq!(class("cfdp", ""), 2);
    assert_eq!(class("cfdp", "nodes.a.mib.default.class = 1"), 1);
    assert_eq!(class("cfdp", "nodes.a.mib.remotes.2.class = 1"), 1);
    assert_eq!(class("cfdp", "nodes.a.mib.remotes.3.class = 1"), 2);
    let but = "nodes.a.mib = { default = { class = 1 }, remotes.2 = { class = 2 } }";
    assert_eq!(class("cfdp", but), 2);
    assert_eq!(class("cfdp-1", but), 1);
}

#[test]
fn completion_is_reported_with_any_mib() {
    let text = "seed = 1
        links = [{ from = \"a\", to = \"b\" }, { from = \"b\", to = \"a\" }]
        transfers = [{ from = \"a\", to = \"b\", size = \"1 kB\" }]
        nodes.b.mib.indications.transaction_finished = false";
    let world = Scenario::parse(text, "world").unwrap().resolved().unwrap();
    assert!(play(&world).succeeded());
    // The run used the resolved scenario.
    let mib = world.nodes["b"].mib.as_ref().unwrap();
    assert!(mib.to_toml().unwrap().contains("transaction_finished = true"));
}

/// Writer that the test can read.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_capture_at_a_relay_shows_both_of_its_sides() {
    let text = "seed = 1
        capture.at = \"r\"
        links = [
            { from = \"a\", to = \"r\", mtu = \"1500 B\" }, { from = \"r\", to = \"a\" },
            { from = \"r\", to = \"b\", drop = [3] }, { from = \"b\", to = \"r\" },
        ]
        transfers = [{ from = \"a\", to = \"b\", size = \"10 kB\" }]";
    let world = Scenario::parse(text, "world").unwrap().resolved().unwrap();
    let kept = Kept::default();
    let recorders = Recorders { pcap: Some(Box::new(kept.clone())), trace: None };
    let run = run::run(&world, &run::contents(&world).unwrap(), recorders).unwrap();
    assert!(run.succeeded(), "{run:?}");
    let bytes = kept.0.lock().unwrap().clone();
    let records: Vec<_> = pcap::Reader::new(&bytes[..]).unwrap().collect::<Result<_, _>>().unwrap();
    let on = |name: &str| {
        records.iter().filter(|record| record.interface_name.as_deref() == Some(name)).count()
    };
    let transfer = &run.transfers[0];
    let packets =
        (transfer.traffic.packets_str.unwrap() + transfer.traffic.packets_rts.unwrap()) as usize;
    assert_eq!((on("r-a"), on("r-b"), records.len()), (packets, packets, 2 * packets));
    assert!(records.is_sorted_by_key(|record| record.at));
    let lost: Vec<_> = records.iter().filter(|record| record.comment.is_some()).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].interface_name.as_deref(), Some("r-b"));
}

/// Writer that accepts everything and fails when it is flushed, like a buffer over a full disk.
struct Full;

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn a_recording_that_is_lost_at_the_end_is_an_error() {
    let world = world(LINE, &["size = \"1 kB\""]);
    let contents = run::contents(&world).unwrap();
    for (pcap, trace) in [(false, true), (true, false)] {
        let sink = |wanted: bool| wanted.then(|| Box::new(Full) as Box<dyn Write + Send>);
        let recorders = Recorders { pcap: sink(pcap), trace: sink(trace) };
        let error = run::run(&world, &contents, recorders).unwrap_err();
        assert!(matches!(error, RunError::Record(_)), "{error}");
    }
}

#[test]
fn outages_do_not_start_inactivity_timers() {
    // Longer than any protocol's inactivity timeout.
    let line =
        "rate = \"1 Mbit/s\"\ndelay = \"300 ms\"\noutages = [{ at = \"0.2 s\", for = \"7200 s\" }]";
    // The packet that is cut is lost, which only these repair.
    for protocol in ["cfdp", "ltp", "saratoga", "saratoga-get"] {
        let world = world(line, &[&format!("size = \"100 kB\"\nprotocol = \"{protocol}\"")]);
        let run = play(&world);
        assert!(run.succeeded(), "{protocol}: {run:?}");
    }
}
