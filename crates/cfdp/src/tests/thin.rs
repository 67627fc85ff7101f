//! Return links that carry a thousandth of the forward link, or less.

use std::time::Duration;

use engine::{Input, PathEvent, PathInfo, Rng, Time};

use super::world::{PATH, World, config, content, name, put_request};
use crate::Config;
use crate::pdu::{Body, ConditionCode, Pdu};
use crate::test_world::path_info;

/// Forward and return rates in bit/s, and whether the sender knows the return rate.
#[derive(Clone, Copy)]
struct Rates(u64, u64, bool);

const THINNEST: Rates = Rates(150_000_000, 2_000, true);

/// A file of `len` bytes to send over a path with these rates.
fn world(
    config: &Config,
    Rates(there, back, is_known): Rates,
    owlt: Duration,
    len: usize,
) -> World {
    let info = PathInfo { rate_bps: Some(there), owlt: Some(owlt), ..path_info() };
    let return_bps = is_known.then_some(back);
    let mut world = World::with_path(config, PathInfo { return_bps, ..info.clone() });
    let info = PathInfo { rate_bps: Some(back), return_bps: Some(there), ..info };
    world.input(1, Input::Path(PATH, PathEvent::Up(info)));
    world.hosts[0].store.insert(name("source"), content(len));
    world
}

/// Sends 5 MB with 10 % of packets lost. Returns the delivery time, the number of requested gaps,
/// and the bytes on the return link until then.
fn run(config: &Config, rates: Rates, owlt: Duration) -> (f64, usize, usize) {
    let file = content(5_000_000);
    let mut world = world(config, rates, owlt, file.len());
    let mut rng = Rng::new(1, "losses");
    world.lose(move |side, _, _| side == 0 && rng.chance(0.1));
    world.put(put_request());
    while world.finished(1).is_none() {
        assert!(world.step());
    }
    assert_eq!(world.finished(1).map(|f| f.condition), Some(ConditionCode::NoError));
    assert!(world.hosts[1].store.get(&name("copy")) == Some(&file[..]));
    let back = world.log.iter().filter(|sent| sent.from == 1);
    let gaps = back.clone().map(|sent| match Pdu::decode(&sent.bytes).map(|p| p.body) {
        Ok(Body::Nak(nak)) => nak.requests.iter().count(),
        Ok(_) | Err(_) => 0,
    });
    let bytes = back.clone().map(|sent| sent.bytes.len() + 42).sum();
    (world.now.as_secs_f64(), gaps.sum(), bytes)
}

#[test]
fn near_gaps_are_requested_as_one() {
    let owlt = Duration::from_millis(10);
    let unknown = Rates(150_000_000, 2_000, false);
    let (secs, gaps, bytes) = run(&config(|_| {}), unknown, owlt);
    // 500 gaps of 8 bytes would take 16 s.
    assert!(gaps < 40 && bytes < 700 && secs < 3.0, "{secs} s, {gaps} gaps, {bytes} bytes");
    // An engine limited to twenty gaps requests those that exist.
    let old = config(|remote| remote.naks.gaps_max = Some(20));
    let (secs, gaps, bytes) = run(&old, unknown, owlt);
    assert!(gaps > 400 && secs > 10.0, "{secs} s, {gaps} gaps, {bytes} bytes");
}

#[test]
fn a_thin_return_link_is_used_before_the_end() {
    let owlt = Duration::from_millis(250);
    let (secs, gaps, bytes) = run(&config(|_| {}), Rates(10_000_000, 2_000, true), owlt);
    // The bound is 4.9 s.
    assert!(secs < 9.5, "{secs} s, {gaps} gaps, {bytes} bytes");
    // If the return link is not thin, nothing is joined or requested early.
    let (secs, gaps, bytes) = run(&config(|_| {}), Rates(10_000_000, 1_000_000, true), owlt);
    assert!(secs < 6.5 && gaps > 400, "{secs} s, {gaps} gaps, {bytes} bytes");
}

#[test]
fn unconfirmed_data_is_repeated_while_the_nak_is_delayed() {
    let owlt = Duration::from_millis(10);
    let (secs, ..) = run(&config(|_| {}), THINNEST, owlt);
    let single = config(|remote| remote.repair_copies = 1);
    let (without, ..) = run(&single, THINNEST, owlt);
    assert!(secs < 1.4 && secs < without, "{secs} s, {without} s without repeats");
}

/// Bytes of the file sent more than once.
fn repeated(rates: Rates, owlt: Duration, len: usize) -> u64 {
    let mut world = world(&config(|_| {}), rates, owlt, len);
    world.put(put_request());
    world.run();
    assert_eq!(world.finished(0).map(|f| f.condition), Some(ConditionCode::NoError));
    world.hosts[0].engine.stats().repair_bytes
}

#[test]
fn wide_return_links_cause_no_repeats() {
    for is_known in [false, true] {
        let [near, far] = [10, 250].map(Duration::from_millis);
        assert_eq!(repeated(Rates(150_000_000, 1_000_000, is_known), near, 5_000_000), 0);
        assert_eq!(repeated(Rates(10_000_000, 10_000_000, is_known), far, 5_000_000), 0);
        // An ACK takes 55 ms, and a packet 1 s.
        assert_eq!(repeated(Rates(9_600, 9_600, is_known), near, 20_000), 0);
        assert_eq!(repeated(Rates(2_000, 2_000, is_known), near, 20_000), 0);
    }
    // A late reply over a return link of unknown rate may come from a peer that was out of reach.
    assert_eq!(repeated(Rates(150_000_000, 2_000, false), Duration::from_millis(10), 5_000_000), 0);
    // Without losses, too, the wait for the first reply is filled.
    assert!(repeated(THINNEST, Duration::from_millis(10), 5_000_000) > 1_000_000);
}

#[test]
fn repeats_to_a_vanished_peer_stop() {
    let mut world = world(&config(|_| {}), THINNEST, Duration::from_millis(10), 5_000_000);
    world.lose(|_, _, _| true);
    world.put(put_request());
    world.run_until(Time::from_secs(60));
    let repeated = world.hosts[0].engine.stats().repair_bytes;
    assert!((10_000_000..=30_000_000).contains(&repeated), "{repeated}");
    world.run_until(Time::from_secs(600));
    assert_eq!(world.hosts[0].engine.stats().repair_bytes, repeated);
}
