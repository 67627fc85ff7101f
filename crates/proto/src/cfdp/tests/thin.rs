//! Return links that carry a thousandth of the forward link, or less.

use std::time::Duration;

use engine::{Input, PathEvent, PathInfo, Rng};
use wire::cfdp::{Body, ConditionCode, Pdu};

use super::world::{PATH, World, config, content, name, put_request};
use crate::cfdp::Config;

/// 5 MB with a tenth of the packets lost: when the file was there, the gaps that were requested,
/// and the bytes on the return link until then.
fn run(config: &Config, forward_bps: u64, return_bps: u64, owlt: Duration) -> (f64, usize, usize) {
    let file = content(5_000_000);
    let info = PathInfo { rate_bps: Some(forward_bps), ..World::new(config).info };
    let info = PathInfo { owlt: Some(owlt), ..info };
    let mut world = World::with_path(config, info.clone());
    let back = PathInfo { rate_bps: Some(return_bps), ..info };
    world.input(1, Input::Path(PATH, PathEvent::Up(back)));
    world.sides[0].store.insert(name("source"), file.clone());
    let mut rng = Rng::new(1, "losses");
    world.lose = Box::new(move |side, _, _| side == 0 && rng.chance(0.1));
    world.put(put_request());
    while world.finished(1).is_none() {
        assert!(world.step());
    }
    assert_eq!(world.finished(1).map(|f| f.condition), Some(ConditionCode::NoError));
    assert!(world.sides[1].store.get(&name("copy")) == Some(&file[..]));
    let back = world.log.iter().filter(|(_, side, ..)| *side == 1);
    let gaps =
        back.clone().map(|(_, _, datagram, _)| match Pdu::decode(datagram).map(|p| p.body) {
            Ok(Body::Nak(nak)) => nak.requests.iter().count(),
            Ok(_) | Err(_) => 0,
        });
    let bytes = back.clone().map(|(_, _, datagram, _)| datagram.len() + 42).sum();
    (world.now.as_secs_f64(), gaps.sum(), bytes)
}

#[test]
fn near_gaps_are_requested_as_one() {
    let owlt = Duration::from_millis(10);
    let (secs, gaps, bytes) = run(&config(|_| {}), 150_000_000, 2_000, owlt);
    // 500 gaps of 8 bytes would take 16 s.
    assert!(gaps < 40 && bytes < 700 && secs < 3.0, "{secs} s, {gaps} gaps, {bytes} bytes");
    // An engine that keeps twenty gaps requests those that there are.
    let old = config(|remote| remote.nak_gaps_max = Some(20));
    let (secs, gaps, bytes) = run(&old, 150_000_000, 2_000, owlt);
    assert!(gaps > 400 && secs > 10.0, "{secs} s, {gaps} gaps, {bytes} bytes");
}

#[test]
fn a_thin_return_link_is_used_before_the_end() {
    let owlt = Duration::from_millis(250);
    let (secs, gaps, bytes) = run(&config(|_| {}), 10_000_000, 2_000, owlt);
    // The bound is 4.9 s.
    println!("{secs} s, {gaps} gaps, {bytes} bytes");
    assert!(secs < 10.6, "{secs} s, {gaps} gaps, {bytes} bytes");
    // Where the return link is not thin, nothing is joined, nor requested before the end.
    let (secs, gaps, bytes) = run(&config(|_| {}), 10_000_000, 1_000_000, owlt);
    assert!(secs < 6.5 && gaps > 400, "{secs} s, {gaps} gaps, {bytes} bytes");
}
