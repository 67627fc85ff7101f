//! What holds for any world: its files, its counters, its recordings and its end.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, Write};
use std::sync::atomic::AtomicBool;

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
    lab::text::parse::<Scenario>(&text, "world").unwrap().resolved().unwrap()
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
    assert_eq!(files[0], lab::engines::random_content(1, 10_000));
}

#[test]
fn packets_are_those_of_a_transfer_only_where_it_is_alone() {
    let one = play(&world(LINE, &["size = \"10 kB\""])).transfers.remove(0);
    assert!(one.packets_str > Some(10) && one.bytes_rts > Some(0));
    assert!(one.quiet_s.is_some() && one.wire_s.is_some() && one.throughput_bps.is_some());
    let run = play(&world(LINE, &["size = \"10 kB\"", "size = \"10 kB\"\nstart = \"5 s\""]));
    assert!(run.succeeded());
    for transfer in &run.transfers {
        assert!(transfer.delivered_s < Some(0.2) && transfer.goodput_bps.is_some());
        assert_eq!((transfer.packets_str, transfer.packets_rts), (None, None));
        assert_eq!((transfer.bytes_str, transfer.bytes_rts), (None, None));
        assert_eq!((transfer.quiet_s, transfer.wire_s), (None, None));
        assert_eq!((transfer.throughput_bps, transfer.goodput_grc_bps), (None, None));
    }
}

#[test]
fn a_file_beyond_memory_is_refused() {
    for content in ["random", "zeros"] {
        let transfer = format!("size = \"100 TB\"\ncontent = \"{content}\"");
        let error = run::contents(&world(LINE, &[&transfer])).unwrap_err().to_string();
        assert!(error.contains("no memory for a file of 100000 GB"), "{error}");
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

/// Takes everything and fails when it shall be on disk, as a buffer over a full one does.
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
