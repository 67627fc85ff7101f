//! Random runs of nodes in a chain: their paths lose, duplicate and delay datagrams or cut streams
//! at random places, and fail for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Rng;

use super::super::agent::SendRequest;
use super::super::layer::{Command, Layer};
use super::super::ltpcl::{self, Ltpcl};
use super::super::normcl::{self, NormCl};
use super::super::saratogacl::{self, SaratogaCl};
use super::super::tcpcl::{self, Protocol, Tcpcl, Version3};
use super::super::udpcl::{self, Fragmentation, Udpcl};
use super::nodes::{Medium, World, link, path};
use super::world::{endpoint, node};

/// Convergence layer under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Udpcl,
    Ltpcl,
    Saratoga,
    Norm,
    Tcpcl4,
    Tcpcl3,
}

impl Kind {
    /// Whether it retransmits.
    const fn is_reliable(self) -> bool {
        match self {
            Self::Udpcl => false,
            Self::Ltpcl | Self::Saratoga | Self::Norm | Self::Tcpcl4 | Self::Tcpcl3 => true,
        }
    }

    const fn has_streams(self) -> bool {
        match self {
            Self::Udpcl | Self::Ltpcl | Self::Saratoga | Self::Norm => false,
            Self::Tcpcl4 | Self::Tcpcl3 => true,
        }
    }

    fn layer(self, at: usize, around: &[usize], seed: u64) -> Box<dyn Layer> {
        match self {
            Self::Udpcl => {
                let peers = around.iter().map(|to| (link(*to), path(*to))).collect();
                let fragmentation = Fragmentation::OfLayer;
                Box::new(Udpcl::new(udpcl::Config {
                    peers,
                    fragmentation,
                    ..udpcl::Config::default()
                }))
            }
            Self::Saratoga => {
                let peers = around.iter().map(|to| (link(*to), path(*to))).collect();
                let patience = Duration::from_secs(20);
                let config =
                    saratogacl::Config { peers, patience, ..saratogacl::Config::default() };
                Box::new(SaratogaCl::new(config, Rng::new(seed, &format!("saratoga {at}"))))
            }
            Self::Norm => {
                let peers = around.iter().map(|to| (link(*to), path(*to))).collect();
                let engine = norm::Config { node: at as u32 + 1, ..norm::Config::default() };
                let patience = Duration::from_secs(20);
                let config = normcl::Config { engine, peers, patience, ..Default::default() };
                Box::new(NormCl::new(config, Rng::new(seed, &format!("norm {at}"))))
            }
            Self::Ltpcl => {
                let peer = |to: &usize| ltpcl::Peer { engine: *to as u64 + 1, path: path(*to) };
                let peers = around.iter().map(|to| (link(*to), peer(to))).collect();
                let form = match seed % 4 {
                    0 => Some(ltpcl::Sharing::Units),
                    2 => Some(ltpcl::Sharing::Bundles),
                    _ => None,
                };
                let sharing = form.map(|form| ltpcl::Aggregation { form, ..Default::default() });
                let limits = ltp::Limits { units: 8000, ..ltp::Limits::default() };
                let engine = at as u64 + 1;
                let aggregation = sharing.is_some().then(ltp::Aggregation::default);
                let ltp = ltp::Config { engine, limits, aggregation, ..ltp::Config::default() };
                let patience = Duration::from_secs(20);
                let config = ltpcl::Config { ltp, peers, patience, ..ltpcl::Config::default() };
                let config = ltpcl::Config { aggregation: sharing, ..config };
                Box::new(Ltpcl::new(config, Rng::new(seed, &format!("ltp {at}"))))
            }
            Self::Tcpcl4 => tcpcl(at, around, Protocol::Tcpcl4),
            Self::Tcpcl3 => tcpcl(at, around, Protocol::Tcpcl3(Version3::default())),
        }
    }
}

fn tcpcl(at: usize, around: &[usize], protocol: Protocol) -> Box<dyn Layer> {
    let peer = |to: &usize| tcpcl::Peer { path: path(*to), server_name: String::new(), node: None };
    let peers = around.iter().map(|to| (link(*to), peer(to))).collect();
    let node = node(at);
    Box::new(Tcpcl::new(tcpcl::Config { node, protocol, peers, ..tcpcl::Config::default() }))
}

fn story(kind: Kind, seed: u64) -> Result<(), String> {
    let count = 2 + (seed % 3) as usize;
    // Without retransmissions, bundles only arrive if nothing is lost.
    let calm = !kind.is_reliable() && seed.is_multiple_of(2);
    let loss = if calm { 0 } else { seed % 5 * 40 };
    let medium = if kind.has_streams() { Medium::Streams } else { Medium::Datagrams { loss } };
    let mut world = World::new(count, medium, seed, |at, around| kind.layer(at, around, seed));
    let mut sent = BTreeMap::new();
    for step in 0..60u64 {
        match world.rng.below(10) {
            0..3 => {
                let from = world.rng.below(count as u64) as usize;
                let to = (from + 1) % count;
                let longest = [300, 5000, 40_000][world.rng.below(3) as usize];
                let len = world.rng.below(longest) as usize;
                let request = SendRequest::new(endpoint(to), vec![step as u8; len]);
                sent.insert(world.send(from, request), (to, len));
            }
            3 if !calm => {
                let left = world.rng.below(count as u64 - 1) as usize;
                world.down(left);
            }
            4 | 5 => {
                let left = world.rng.below(count as u64 - 1) as usize;
                if kind.has_streams() && world.rng.below(2) == 0 {
                    // A contact ends in order, with bundles in transit.
                    world.command(left, Command::Close { link: link(left + 1) });
                } else {
                    world.restore(left);
                }
            }
            _ => {
                let ms = world.rng.below(30_000);
                world.pass(Duration::from_millis(ms / (1 + ms % 40)));
            }
        }
    }
    for left in 0..count - 1 {
        world.restore(left);
    }
    world.pass(Duration::from_secs(3000));
    for (id, (to, len)) in &sent {
        let taken = world.places[*to].lengths(id);
        let may_be_lost = !kind.is_reliable() && !calm;
        if taken != [*len] && !(may_be_lost && taken.is_empty()) {
            return Err(format!("{id:?} of {len} bytes for {to} arrived as {taken:?}"));
        }
    }
    let stored: usize = world.places.iter().map(|place| place.stored).sum();
    if stored != sent.len() {
        return Err(format!("{stored} of {} bundles were stored", sent.len()));
    }
    for (at, place) in world.places.iter().enumerate() {
        let held = place.node.agent().statistics().bundles;
        if held > 0 {
            return Err(format!("{at} holds {held} bundles"));
        }
    }
    Ok(())
}

fn stories(kind: Kind, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        story(kind, seed).unwrap_or_else(|error| panic!("{kind:?}, seed {seed}: {error}"));
    }
}

#[test]
fn bundles_cross_datagrams_once() {
    stories(Kind::Udpcl, 0..100);
}

#[test]
fn bundles_cross_ltp_once_with_any_losses() {
    stories(Kind::Ltpcl, 0..100);
}

#[test]
fn bundles_cross_saratoga_once_with_any_losses() {
    stories(Kind::Saratoga, 0..60);
}

#[test]
fn bundles_cross_norm_once_with_any_losses() {
    stories(Kind::Norm, 0..60);
}

#[test]
fn bundles_cross_streams_that_break() {
    stories(Kind::Tcpcl4, 0..60);
    stories(Kind::Tcpcl3, 0..60);
}

#[test]
#[ignore = "thousands of stories, by hand"]
fn bundles_cross_once_in_many_runs() {
    let datagrams = [Kind::Udpcl, Kind::Ltpcl, Kind::Saratoga, Kind::Norm];
    for kind in datagrams.into_iter().chain([Kind::Tcpcl4, Kind::Tcpcl3]) {
        stories(kind, 1_000..6_000);
    }
}
