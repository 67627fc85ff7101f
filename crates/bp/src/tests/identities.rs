//! Identities of transmissions over restarts.

use super::super::agent::{Config, Limits, Routing, SendRequest};
use super::super::layer::Identity;
use super::agent::{payload, send, taken};
use super::anonymous::anonymous_seven;
use super::world::{World, chain, endpoint};
use crate::codec::bp7::BundleFlags;

const LONG: usize = 100_000;

/// Sends a bundle over a link that breaks by a crash of its sender, `crashes` times.
fn identities(world: &mut World, crashes: usize) -> Vec<Option<Identity>> {
    world.identities.clear();
    for _ in 0..crashes {
        while world.in_transit(0, 1) == 0 {
            assert!(world.act(0, 0), "the bundle leaves");
        }
        world.crash(0);
    }
    world.settle();
    std::mem::take(&mut world.identities)
}

#[test]
fn all_runs_give_a_long_bundle_the_same_number() {
    let mut world = World::chain(2, true, 1);
    world.settle();
    send(&mut world, 0, SendRequest::new(endpoint(1), payload(LONG)));
    let all = identities(&mut world, 2);
    let [Some(first), Some(second), Some(third)] = all[..] else { panic!("{all:?}") };
    assert_eq!([first.resumes, second.resumes, third.resumes], [false, true, true]);
    assert_eq!([second.number, third.number], [first.number; 2]);
    assert_eq!(taken(&world, 1), [payload(LONG)]);
    // A bundle of the same length has another number.
    send(&mut world, 0, SendRequest::new(endpoint(1), payload(LONG)));
    let all = identities(&mut world, 0);
    let [Some(other)] = all[..] else { panic!("{all:?}") };
    assert!(other.number != first.number && !other.resumes);
}

#[test]
fn nobody_else_knows_the_number_of_a_bundle() {
    let numbers = [1, 2].map(|seed| {
        let mut world = World::chain(2, true, seed);
        world.settle();
        send(&mut world, 0, SendRequest::new(endpoint(1), payload(LONG)));
        let all = identities(&mut world, 0);
        (all[0].map(|identity| identity.number), world.crossed[0].2.clone())
    });
    assert_eq!(numbers[0].1, numbers[1].1, "the bundles are equal");
    assert_ne!(numbers[0].0, numbers[1].0);
}

#[test]
fn bundles_without_a_source_have_different_numbers() {
    let limits = Limits { unchecked: true, ..Limits::default() };
    let unchecked = |at| Config { limits, ..chain(3, at, true) };
    let mut world = World::connected((0..3).map(unchecked).collect(), &[(0, 1), (1, 2)]);
    let flags = BundleFlags::MUST_NOT_FRAGMENT;
    for first in [1, 2] {
        let payload = [&[first], &payload(LONG)[..]].concat();
        world.hand_in(1, 0, &anonymous_seven(flags, endpoint(2), &payload, false));
    }
    let all = identities(&mut world, 0);
    let [Some(one), Some(other)] = all[..] else { panic!("{all:?}") };
    assert_ne!(one.number, other.number);
}

#[test]
fn neighbours_get_different_numbers() {
    let epidemic = |at| Config { routing: Routing::Epidemic, ..chain(3, at, true) };
    let mut world = World::connected((0..3).map(epidemic).collect(), &[(0, 1), (0, 2)]);
    send(&mut world, 0, SendRequest::new(endpoint(7), payload(LONG)));
    let all = identities(&mut world, 0);
    let [Some(one), Some(other)] = all[..] else { panic!("{all:?}") };
    assert_ne!(one.number, other.number);
}

/// Short ones are sent at once, and a store in memory is empty after a restart.
#[test]
fn other_bundles_always_start_over() {
    let mut world = World::chain(2, true, 1);
    world.settle();
    send(&mut world, 0, SendRequest::new(endpoint(1), payload(60_000)));
    assert_eq!(identities(&mut world, 0), [None]);
    let mut world = World::chain(2, false, 1);
    world.settle();
    send(&mut world, 0, SendRequest::new(endpoint(1), payload(LONG)));
    assert_eq!(identities(&mut world, 0), [None]);
}
