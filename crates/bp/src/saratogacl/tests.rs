//! Two layers over a path with chosen losses.

use std::time::Duration;

use ::saratoga::packet::{Content as Kind, Packet, StatusCode};
use engine::{FileName, PathInfo, Rng};

use super::{Config, SaratogaCl};
use crate::layer::{Command, Content, Layer, LinkId, Outcome, Refusal, Tag};
use crate::tests::hub::{self, Hub};
use crate::tests::pair::{
    LINK, PATH, Pair, assert_arrive, assert_completes, assert_continues, assert_pauses,
    assert_refused, assert_repeats, assert_waits, bytes, content, files, whole,
};

const FAILED: Outcome = Outcome::Failed { acknowledged: 0 };

fn layer(number: usize, seed: u64) -> Box<dyn Layer> {
    let config = Config { peers: [(LINK, PATH)].into(), ..Config::default() };
    let layer = SaratogaCl::new(config, Rng::new(seed, &format!("saratoga {number}")));
    Box::new(layer.named("saratoga"))
}

fn pair_of(seed: u64) -> Pair {
    let owlt = Some(Duration::from_millis(10));
    let info = PathInfo { owlt, rate_bps: Some(100_000_000), ..PathInfo::datagram(1472) };
    Pair::new([layer(0, seed), layer(1, seed)], info, seed)
}

#[test]
fn long_bundles_continue_after_a_restart() {
    assert_continues(layer);
}

#[test]
fn repeated_sessions_leave_the_bundle_alone() {
    assert_repeats(layer);
}

#[test]
fn bundles_are_put_with_the_bundle_kind() {
    let mut pair = pair_of(1);
    pair.send(1, content(3000));
    pair.pass(Duration::from_secs(10));
    let metadata = pair.wires[0].sent.iter().find_map(|datagram| match Packet::decode(datagram) {
        Ok(Packet::Metadata(metadata)) => Some(metadata.content),
        _ => None,
    });
    assert_eq!(metadata, Some(Kind::Bundle));
    assert_eq!(pair.came(1), [whole(3000)]);
    assert_eq!(pair.outcomes(0), [(1, Outcome::Acknowledged)]);
    // A short one was read; a longer one stays in its file, which the agent owns.
    assert_eq!(files(&pair.ends[1].store), 0);
    pair.send(2, content(70_000));
    pair.pass(Duration::from_secs(10));
    assert_eq!(pair.came(1), [whole(3000), whole(70_000)]);
    assert_eq!(files(&pair.ends[1].store), 1);
    assert!(pair.is_idle());
}

#[test]
fn bundles_arrive_from_memory_and_from_files() {
    for seed in 0..4 {
        assert_arrive(seed, pair_of(seed), &[0, 1000, 1500, 70_000, 700_000]);
    }
}

#[test]
fn the_last_status_waits_for_the_agent() {
    assert_waits(|| pair_of(1), Duration::from_secs(5), &[5000]);
}

#[test]
fn refused_bundles_are_retransmitted_unless_unneeded() {
    let cases = [
        (Refusal::NoResources, Outcome::Refused(Refusal::NoResources)),
        (Refusal::Completed, Outcome::Acknowledged),
        (Refusal::NotAcceptable, Outcome::Refused(Refusal::NotAcceptable)),
    ];
    assert_refused(|| pair_of(1), &[5000, 100_000], &cases);
}

#[test]
fn unreliable_bundles_are_sent_once() {
    let mut pair = pair_of(1);
    pair.send_from(0, 1, content(3000), false);
    pair.pass(Duration::from_secs(10));
    assert_eq!(pair.outcomes(0), [(1, Outcome::Left)]);
    assert_eq!(pair.came(1), [whole(3000)]);
}

#[test]
fn a_session_resumes_after_an_outage_or_is_given_up() {
    for (away, outcome) in [(600, Outcome::Acknowledged), (3700, FAILED)] {
        let mut pair = pair_of(1);
        pair.wires[0].lost = (0..40).collect();
        pair.send(1, content(50_000));
        pair.down();
        pair.pass(Duration::from_secs(away));
        pair.up();
        pair.pass(Duration::from_secs(1000));
        assert_eq!(pair.outcomes(0), [(1, outcome)]);
    }
}

#[test]
fn started_transfers_complete_after_the_contact() {
    assert_completes(pair_of(1));
}

#[test]
fn cancelled_and_unreadable_bundles_fail() {
    let mut pair = pair_of(1);
    pair.wires[0].lost = (0..100).collect();
    pair.send(1, content(50_000));
    pair.command(0, Command::Cancel { link: LINK, tag: Tag(1) });
    let name = FileName::spool("bp/none").unwrap();
    pair.send(2, Content::File { name, offset: 0, len: 90_000 });
    pair.pass(Duration::from_secs(10_000));
    assert_eq!(pair.outcomes(0), [(1, FAILED), (2, FAILED)]);
    assert_eq!(pair.came(1).len(), 0);
}

#[test]
fn bundles_wait_while_the_agent_pauses() {
    assert_pauses(pair_of(1));
}

/// Two senders and one receiver.
fn around() -> Hub<SaratogaCl, saratoga::Node> {
    let peers = (0..2).map(|n| (LinkId(n as u32), hub::path(n))).collect();
    let config = Config { peers, ..Config::default() };
    let layer = SaratogaCl::new(config, Rng::new(1, "middle"));
    let config = saratoga::Config {
        journal: saratoga::JournalPolicy { enabled: false, ..Default::default() },
        ..saratoga::Config::default()
    };
    let peer = |seed| saratoga::Node::for_bundles(config.clone(), Rng::new(seed, "peer"));
    Hub::new(layer, vec![peer(1), peer(1)])
}

fn request(
    hub: &mut Hub<SaratogaCl, saratoga::Node>,
    n: usize,
    len: usize,
) -> saratoga::PutRequest {
    let source = hub.file(n, &bytes(len));
    saratoga::PutRequest::new(PATH, source, "a/name")
}

fn results(hub: &Hub<SaratogaCl, saratoga::Node>) -> Vec<(usize, Result<(), StatusCode>)> {
    let finished = hub.indications.iter().filter_map(|(n, indication)| match indication {
        saratoga::Indication::Finished(finished) => {
            Some((*n, finished.result.map_err(|failure| failure.code)))
        }
        _ => None,
    });
    finished.collect()
}

#[test]
fn bundles_of_one_name_from_two_peers_are_distinct() {
    for lengths in [[100_000, 70_000], [2000, 1000]] {
        let mut hub = around();
        for (n, len) in lengths.into_iter().enumerate() {
            let request = request(&mut hub, n, len);
            hub.peers[n].put_bundle(hub.now, request).unwrap();
        }
        hub.pass(Duration::from_secs(60));
        let mut came = hub.came();
        came.sort_by_key(|(link, _)| *link);
        assert!(came == [0, 1].map(|n| (LinkId(n as u32), bytes(lengths[n]))));
        let mut results = results(&hub);
        results.sort_unstable_by_key(|(n, _)| *n);
        assert_eq!(results, [(0, Ok(())), (1, Ok(()))]);
    }
}

#[test]
fn files_and_streams_are_refused() {
    let mut hub = around();
    for stream in [false, true] {
        let request = saratoga::PutRequest { stream, ..request(&mut hub, 0, 3000) };
        hub.peers[0].put(hub.now, request).unwrap();
        hub.pass(Duration::from_secs(10));
        assert_eq!(results(&hub), [(0, Err(StatusCode::UnsupportedPacket))]);
        hub.indications.clear();
    }
    assert_eq!(hub.events, []);
    assert_eq!(files(&hub.store), 0);
    let request = request(&mut hub, 1, 3000);
    hub.peers[1].put_bundle(hub.now, request).unwrap();
    hub.pass(Duration::from_secs(10));
    assert_eq!(hub.came(), [(LinkId(1), bytes(3000))]);
}
