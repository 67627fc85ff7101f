//! Bundles of many peers, whole and in part, as bytes: shares of the store, and rules.

use std::time::Duration;

use super::super::agent::{
    Acceptance, Agent, By, Config, Indication, Limit, Limits, Pattern, RequestError, SendRequest,
    Statistics,
};
use super::super::layer::{Command, Event, LinkId, Neighbour, Refusal, TransferId};
use super::super::security::{OnFault, Role};
use super::attacks::{bytes_of_seven, bytes_of_six, seven, signed, six};
use super::world::{World, chain, node};
use crate::codec::bp7::{CreationTimestamp, Eid, Fragment, Primary};
use bytes::Bytes;

/// Creation time of bundles, within the world's present.
const NOW_MS: u64 = 800_000_009_000;
/// Link of the neighbour `ipn:1.0`.
const NEAR: LinkId = LinkId(1);
/// Link of an unknown peer.
const FAR: LinkId = LinkId(LinkId::CAME.0 + 1);

/// Node 2 of 3, without files.
struct Door {
    world: World,
    next: u64,
}

impl Door {
    fn config(limits: Limits, accept: Vec<Acceptance>) -> Config {
        let limits = Limits { inline: usize::MAX, inline_total: usize::MAX, ..limits };
        Config { limits, accept, ..chain(3, 1, false) }
    }

    fn new(limits: Limits, accept: Vec<Acceptance>) -> Self {
        Self::with(Self::config(limits, accept))
    }

    fn with(config: Config) -> Self {
        let mut door = Self { world: World::alone(config), next: 0 };
        for (link, node) in [(NEAR, Some(node(0))), (FAR, None)] {
            let neighbour = Neighbour {
                node,
                is_authenticated: false,
                bundle_max: 0,
                window: 0,
                window_bytes: 0,
            };
            door.event(Event::Up { link, neighbour });
        }
        door
    }

    fn agent(&mut self) -> &mut Agent {
        &mut self.world.nodes[0].agent
    }

    /// Hands in an event; returns the refusals that follow.
    fn event(&mut self, event: Event) -> Vec<(TransferId, Refusal)> {
        self.world.event(0, event);
        let refused = self.world.commands(0).into_iter().filter_map(|command| match command {
            Command::Refuse { transfer, why, .. } => Some((transfer, why)),
            _ => None,
        });
        refused.collect()
    }

    /// Begins a transfer.
    fn begin(&mut self, link: LinkId, bytes: Option<u64>) -> Result<TransferId, Refusal> {
        let transfer = TransferId(self.next);
        self.next += 1;
        let refused = self.event(Event::Begins { link, transfer, bytes });
        refused.first().map_or(Ok(transfer), |(_, why)| Err(*why))
    }

    fn piece(&mut self, link: LinkId, transfer: TransferId, bytes: &[u8]) -> Vec<TransferId> {
        let bytes = Bytes::copy_from_slice(bytes);
        let refused = self.event(Event::Piece { link, transfer, bytes });
        refused.into_iter().map(|(transfer, _)| transfer).collect()
    }

    /// Hands in a whole bundle; an error is its refusal.
    fn whole(&mut self, link: LinkId, bytes: &[u8]) -> Result<(), Refusal> {
        let transfer = self.begin(link, Some(bytes.len() as u64))?;
        let piece = Event::Piece { link, transfer, bytes: Bytes::copy_from_slice(bytes) };
        let mut refused = self.event(piece);
        refused.extend(self.event(Event::Whole { link, transfer, file: None }));
        refused.first().map_or(Ok(()), |(_, why)| Err(*why))
    }

    fn send(&mut self, len: usize) -> Result<(), RequestError> {
        let (now, request) = (self.world.now, SendRequest::new(Eid::ipn(3, 5), vec![0; len]));
        let sent = self.agent().send(now, request).map(drop);
        self.world.commands(0);
        sent
    }

    fn statistics(&self) -> Statistics {
        self.world.nodes[0].agent.statistics()
    }

    fn bytes(&self) -> u64 {
        self.statistics().bytes
    }

    /// Indications since the last call.
    fn indications(&mut self) -> Vec<Indication> {
        std::mem::take(&mut self.world.nodes[0].indications)
    }

    fn reached(&mut self) -> Vec<Limit> {
        let reached = self.indications().into_iter().filter_map(|indication| match indication {
            Indication::LimitReached(limit) => Some(limit),
            _ => None,
        });
        reached.collect()
    }
}

fn primary(sequence: u64, from: u32, to: Eid) -> Primary {
    let creation = CreationTimestamp { time_ms: NOW_MS, sequence };
    // Ten years.
    Primary { creation, lifetime_ms: 315_360_000_000, ..seven(Eid::ipn(from, 9), to) }
}

/// A bundle for node 3 with a payload of `len` bytes.
fn bundle(sequence: u64, len: usize) -> Vec<u8> {
    bytes_of_seven(primary(sequence, 66, Eid::ipn(3, 5)), &vec![7; len])
}

fn rule() -> Acceptance {
    Acceptance {
        by: By::Any,
        from: Pattern::Any,
        to: Pattern::Any,
        refuse: false,
        bundles: usize::MAX,
        bytes: u64::MAX,
        bundle: u64::MAX,
        lifetime_ms: u64::MAX,
    }
}

#[test]
fn arriving_bundles_count_against_the_store() {
    for announces in [true, false] {
        let mut door = Door::new(Limits { bytes: 10_000_000, ..Limits::default() }, Vec::new());
        let mut arriving = Vec::new();
        for peer in 0..30 {
            let bytes = bundle(peer, 9_900_000);
            let link = LinkId(FAR.0 + 1 + peer as u32);
            let Ok(transfer) = door.begin(link, announces.then_some(bytes.len() as u64)) else {
                continue;
            };
            // All but the last bytes.
            if door.piece(link, transfer, &bytes[..9_800_000]).is_empty() {
                arriving.push((link, transfer, bytes));
            }
        }
        assert_eq!(arriving.len(), 1, "{announces}");
        assert_eq!(door.reached(), [Limit::Bytes]);
        // Nor is there room for users until it is gone.
        door.send(200_000).unwrap_err();
        let (link, transfer, _) = arriving.remove(0);
        door.event(Event::Broken { link, transfer, keep: false });
        door.send(200_000).unwrap();
    }
}

#[test]
fn the_youngest_makes_room_for_an_older_one() {
    let mut door = Door::new(Limits { bytes: 10_000, ..Limits::default() }, Vec::new());
    let [first, second, third] = [0, 1, 2].map(|_| door.begin(FAR, None).unwrap());
    let start = |sequence, len| bundle(sequence, len)[..100].to_vec();
    assert_eq!(door.piece(FAR, second, &start(2, 3000)), []);
    assert_eq!(door.piece(FAR, third, &start(3, 3000)), []);
    assert_eq!(door.piece(FAR, first, &start(1, 6000)), [third]);
    // One that could never fit is refused itself.
    let fourth = door.begin(FAR, None).unwrap();
    assert_eq!(door.piece(FAR, fourth, &start(4, 20_000)), [fourth]);
    let rest = bundle(1, 6000)[100..].to_vec();
    assert_eq!(door.piece(FAR, first, &rest), []);
    assert!(door.event(Event::Whole { link: FAR, transfer: first, file: None }).is_empty());
    assert!((6000..6100).contains(&door.bytes()));
}

#[test]
fn a_bundle_that_never_fits_is_refused_for_good_and_said_once() {
    let limits = Limits { bytes: 10_000, strangers_share: 25, ..Limits::default() };
    for (link, len) in [(NEAR, 10_001), (FAR, 3000)] {
        let mut door = Door::new(limits, Vec::new());
        for n in 0..5 {
            // Announced, by its head, and by its bytes.
            assert_eq!(door.begin(link, Some(len)), Err(Refusal::NotAcceptable));
            assert_eq!(door.whole(link, &bundle(n, len as usize)), Err(Refusal::NotAcceptable));
            let transfer = door.begin(link, None).unwrap();
            assert_eq!(door.piece(link, transfer, &bundle(n, len as usize)), [transfer]);
        }
        // One that a layer refused by itself.
        door.event(Event::Refused { link, why: Refusal::NotAcceptable });
        assert_eq!(door.statistics().refused, 16);
        let mut notices = 0;
        for indication in door.indications() {
            notices += usize::from(matches!(indication, Indication::Notice { .. }));
            assert!(!matches!(indication, Indication::LimitReached(_)));
        }
        assert_eq!(notices, 1);
        for _ in 0..3 {
            door.event(Event::Refused { link, why: Refusal::NoResources });
        }
        assert_eq!((door.statistics().refused, door.reached()), (19, vec![Limit::Bytes]));
    }
}

#[test]
fn violations_of_a_rule_are_indicated_once_a_minute() {
    let mut config = Door::config(Limits::default(), Vec::new());
    config.security = signed(Role::Verifier, OnFault::Delete);
    let mut door = Door::with(config);
    let mut counts = Vec::new();
    for n in 0..130 {
        assert_eq!(door.whole(FAR, &bundle(n, 100)), Err(Refusal::NotAcceptable));
        for indication in door.indications() {
            if let Indication::Discarded { rule, reason, count, .. } = indication {
                assert_eq!((rule, reason), (Some(1), crate::codec::bp7::Reason::MissingSecurity));
                counts.push(count);
            }
        }
        door.world.now += Duration::from_secs(1);
    }
    assert_eq!(counts, [1, 60, 60]);
    let statistics = door.statistics();
    assert_eq!((statistics.insecure, statistics.deleted), (130, 130));
}

#[test]
fn each_neighbour_has_a_share_and_users_a_reserve() {
    let limits =
        Limits { bytes: 100_000, share: 60, strangers_share: 25, reserve: 20, ..Limits::default() };
    let mut door = Door::new(limits, Vec::new());
    let accepted = |door: &mut Door, link, from: u64| {
        (from..from + 100).filter(|n| door.whole(link, &bundle(*n, 900)).is_ok()).count()
    };
    // A bundle has between 900 and 1,000 bytes in the store.
    let strangers = accepted(&mut door, FAR, 0);
    assert!((25..=27).contains(&strangers), "{strangers}");
    let other = LinkId(FAR.0 + 1);
    assert_eq!(accepted(&mut door, other, 100), 0);
    assert_eq!(door.reached(), [Limit::Share]);
    let near = accepted(&mut door, NEAR, 200);
    assert!(near + strangers >= 80 && door.bytes() <= 80_000, "{near}");
    assert_eq!(door.whole(NEAR, &bundle(999, 900)), Err(Refusal::NoResources));
    for _ in 0..100 {
        door.send(100).unwrap();
    }
}

#[test]
fn ten_years_of_bundles_for_nowhere_leave_room_for_users() {
    let limits = Limits { bundles: 1000, strangers_share: 25, reserve: 5, ..Limits::default() };
    let mut door = Door::new(limits, Vec::new());
    let nowhere = |n| bytes_of_seven(primary(n, 66, Eid::ipn(77, 7)), &[]);
    let accepted = (0..5000).filter(|n| door.whole(FAR, &nowhere(*n)).is_ok()).count();
    assert_eq!(accepted, 250);
    door.send(100).unwrap();
    // Refused at once, if the node is so configured: without a route, or a registered endpoint.
    let mut door = Door::new(Limits { unrouted: false, ..limits }, Vec::new());
    assert_eq!(door.whole(FAR, &nowhere(1)), Err(Refusal::NotAcceptable));
    let here = bytes_of_seven(primary(2, 66, Eid::ipn(2, 7)), &[]);
    assert_eq!(door.whole(FAR, &here), Err(Refusal::NotAcceptable));
    door.agent().register(&Eid::ipn(2, 7)).unwrap();
    assert_eq!(door.whole(FAR, &here), Ok(()));
    assert_eq!(door.whole(FAR, &bundle(3, 10)), Ok(()));
}

#[test]
fn rules_bound_bundles_by_source_destination_and_neighbour() {
    let second = Duration::from_secs(1);
    let rules = vec![
        Acceptance { from: Pattern::Node(Eid::ipn(13, 0)), refuse: true, ..rule() },
        Acceptance { by: By::Neighbour(node(0)), bundles: 3, lifetime_ms: 60_000, ..rule() },
        Acceptance { by: By::Strangers, bundle: 500, bytes: 700, ..rule() },
    ];
    let mut door = Door::new(Limits::default(), rules);
    let of_13 = bytes_of_seven(primary(1, 13, Eid::ipn(3, 5)), &[]);
    for link in [NEAR, FAR] {
        assert_eq!(door.whole(link, &of_13), Err(Refusal::NotAcceptable));
    }
    // Three bundles, for a minute each.
    for n in 0..5 {
        let expected = if n < 3 { Ok(()) } else { Err(Refusal::NoResources) };
        assert_eq!(door.whole(NEAR, &bundle(n, 900)), expected, "{n}");
    }
    // A long one is refused by its head, before its payload has come.
    let long = bundle(9, 600);
    let transfer = door.begin(FAR, None).unwrap();
    assert_eq!(door.piece(FAR, transfer, &long[..100]), [transfer]);
    // 700 bytes together.
    assert_eq!(door.whole(FAR, &bundle(10, 300)), Ok(()));
    assert_eq!(door.whole(FAR, &bundle(11, 400)), Err(Refusal::NoResources));
    // Expired bundles make room.
    door.world.pass_a_little(61 * second);
    assert!(door.statistics().expired == 3 && door.bytes() < 500);
    assert_eq!(door.whole(NEAR, &bundle(12, 900)), Ok(()));
}

#[test]
fn refused_sources_are_refused_after_the_lifetime_too() {
    let refuse = Acceptance { from: Pattern::Node(Eid::ipn(13, 0)), refuse: true, ..rule() };
    let mut door = Door::new(Limits::default(), vec![refuse]);
    let late = |from| {
        let primary = Primary { lifetime_ms: 100, ..primary(1, from, Eid::ipn(3, 5)) };
        bytes_of_seven(primary, &[7; 100])
    };
    let mut deleted = |from| {
        let taken = door.whole(FAR, &late(from));
        let is_deleted = |it: &Indication| matches!(it, Indication::Deleted { .. });
        let deleted = door.indications().into_iter().filter(is_deleted).count();
        (taken, deleted, door.statistics().expired)
    };
    assert_eq!(deleted(13), (Err(Refusal::NotAcceptable), 0, 0));
    assert_eq!(deleted(14), (Ok(()), 1, 1));
}

#[test]
fn stored_bundles_count_under_the_rules_of_a_reload() {
    let one = || Acceptance { by: By::Strangers, bundles: 1, lifetime_ms: 60_000, ..rule() };
    let other = Acceptance { from: Pattern::Node(Eid::ipn(13, 0)), ..rule() };
    let mut door = Door::new(Limits::default(), vec![one()]);
    assert_eq!(door.whole(FAR, &bundle(1, 100)), Ok(()));
    assert_eq!(door.whole(FAR, &bundle(2, 100)), Err(Refusal::NoResources));
    let (now, config) = (door.world.now, Door::config(Limits::default(), vec![other, one()]));
    door.agent().reload(now, config);
    assert_eq!(door.whole(FAR, &bundle(3, 100)), Err(Refusal::NoResources));
    door.world.pass_a_little(Duration::from_secs(61));
    let later = |sequence| {
        let mut primary = primary(sequence, 66, Eid::ipn(3, 5));
        primary.creation.time_ms += 61_000;
        bytes_of_seven(primary, &[7; 100])
    };
    assert_eq!(door.whole(FAR, &later(4)), Ok(()));
    assert_eq!(door.whole(FAR, &later(5)), Err(Refusal::NoResources));
}

#[test]
fn a_part_of_a_neighbours_bundle_stays_the_neighbours() {
    let strangers = Acceptance { by: By::Strangers, refuse: true, ..rule() };
    let mut door = Door::new(Limits::default(), vec![strangers]);
    let bundle = bytes_of_six(six(Eid::ipn(66, 9), Eid::ipn(3, 5)), &[7; 400]);
    assert_eq!(door.whole(FAR, &bundle), Err(Refusal::NotAcceptable));
    let transfer = door.begin(NEAR, None).unwrap();
    door.piece(NEAR, transfer, &bundle[..200]);
    door.event(Event::Broken { link: NEAR, transfer, keep: true });
    // The neighbour counts it as kept.
    assert!(door.bytes() > 100, "{}", door.bytes());
}

/// A door with a security rule for all bundles, and payloads longer than `inline` bytes in files.
fn checking(inline: usize, strangers: Acceptance) -> Door {
    let mut door = Door::new(Limits::default(), Vec::new());
    let limits = Limits { inline, ..Limits::default() };
    let security = signed(Role::Acceptor, OnFault::Pass);
    let config = Config { limits, security, ..Door::config(limits, vec![strangers]) };
    let now = door.world.now;
    door.agent().reload(now, config);
    door
}

#[test]
fn a_reassembled_bundle_stays_the_neighbours_after_its_security() {
    for inline in [0, usize::MAX] {
        let mut door = checking(inline, Acceptance { by: By::Strangers, bundles: 1, ..rule() });
        for offset in [0, 200] {
            let fragment = Some(Fragment { offset, total: 400 });
            let primary = Primary { fragment, ..primary(1, 66, Eid::ipn(2, 5)) };
            assert_eq!(door.whole(NEAR, &bytes_of_seven(primary, &[7; 200])), Ok(()));
        }
        assert_eq!(door.statistics().bundles, 1, "{inline}");
        // Strangers have room for one.
        assert_eq!(door.whole(FAR, &bundle(2, 100)), Ok(()), "{inline}");
        assert_eq!(door.whole(FAR, &bundle(3, 100)), Err(Refusal::NoResources), "{inline}");
    }
}

#[test]
fn a_bundle_stays_the_neighbours_when_its_link_ends_during_its_security() {
    let mut door = checking(0, Acceptance { by: By::Strangers, refuse: true, ..rule() });
    let transfer = door.begin(NEAR, None).unwrap();
    assert_eq!(door.piece(NEAR, transfer, &bundle(1, 400)), []);
    // Its payload is a file, which is read after the end of the link.
    door.world.event(0, Event::Whole { link: NEAR, transfer, file: None });
    assert!(door.event(Event::Down { link: NEAR, why: "a test" }).is_empty());
    assert_eq!(door.statistics().bundles, 1);
}
