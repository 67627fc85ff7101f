//! Forged fragments, as the bytes that a stranger or a neighbour sends.

use super::super::security::{OnFault, Role};
use super::agent::taken;
use super::attacks::{like, signed, signed_fragments};
use super::world::{World, chains};

const LEN: usize = 1000;
/// A link whose peer has no name.
const STRANGER: usize = 7;

/// All orders of `count` things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let longer = |order: Vec<usize>| {
        (0..count).map(move |at| {
            let mut order = order.clone();
            order.insert(at, count - 1);
            order
        })
    };
    orders(count - 1).into_iter().flat_map(longer).collect()
}

/// Bounds of a fragment.
fn bounds(fragment: &[u8]) -> (u64, usize) {
    let bundle =
        crate::codec::bp7::Bundle::decode(fragment, &crate::codec::bp7::Bounds::default()).unwrap();
    (bundle.head.primary().fragment.unwrap().offset, bundle.payload.len())
}

/// Fragments with the same bounds as the true ones, and other bytes; and ones that overlap them.
fn forged(first: &[u8], second: &[u8]) -> Vec<Vec<u8>> {
    let ((_, len), (offset, rest)) = (bounds(first), bounds(second));
    let total = LEN as u64;
    vec![
        like(first, 0, total, &vec![b'!'; len]),
        like(first, offset, total, &vec![b'!'; rest]),
        like(first, 0, total, b"!"),
        like(first, offset - 1, total, &vec![b'!'; rest + 1]),
    ]
}

/// Node 1 with two neighbours; its rule about signatures, if any.
fn place(has_rule: bool) -> World {
    let mut configs = chains(3, true);
    if has_rule {
        configs[1].security = signed(Role::Acceptor, OnFault::Delete);
    }
    World::connected(configs, &[(0, 1), (1, 2)])
}

fn hand_in(world: &mut World, from: usize, bytes: &[u8]) {
    world.hand_in(1, from, bytes);
    world.settle();
}

#[test]
fn forged_fragments_of_others_do_not_cost_a_signed_bundle() {
    let ([first, second], whole) = signed_fragments(LEN);
    let all = forged(&first, &second);
    for by in [STRANGER, 2] {
        for pair in [[0, 1], [0, 2], [1, 2], [0, 3], [2, 3]] {
            for order in orders(4) {
                let mut world = place(true);
                for which in &order {
                    match which {
                        0 => hand_in(&mut world, 0, &first),
                        1 => hand_in(&mut world, 0, &second),
                        n => hand_in(&mut world, by, &all[pair[n - 2]]),
                    }
                }
                let what = format!("by {by}, forged {pair:?}, order {order:?}");
                assert_eq!(taken(&world, 1), std::slice::from_ref(&whole), "{what}");
                for bytes in [&first, &second, &all[0], &all[1]] {
                    hand_in(&mut world, 0, bytes);
                    hand_in(&mut world, by, bytes);
                }
                assert_eq!(taken(&world, 1).len(), 1, "{what}");
                assert_eq!(world.nodes[1].agent.statistics().bundles, 0, "{what}");
                assert_eq!(world.nodes[1].disk.files(), 0, "{what}");
            }
        }
    }
}

/// Without a rule, fragments of strangers are not joined with those of neighbours.
#[test]
fn fragments_of_strangers_do_not_join_those_of_neighbours() {
    let ([first, second], whole) = signed_fragments(LEN);
    let all = forged(&first, &second);
    for forged in &all {
        for order in orders(3) {
            let mut world = place(false);
            for which in order {
                let (by, bytes) = [(0, &first), (0, &second), (STRANGER, forged)][which];
                hand_in(&mut world, by, bytes);
                world.crash(1);
                world.settle();
            }
            assert_eq!(taken(&world, 1), std::slice::from_ref(&whole));
            assert_eq!(world.nodes[1].agent.statistics().bundles, 0);
        }
    }
    // Those of several neighbours make a bundle, and those of strangers another.
    for (one, other) in [(0, 2), (STRANGER, STRANGER)] {
        let mut world = place(false);
        hand_in(&mut world, one, &first);
        hand_in(&mut world, other, &second);
        assert_eq!(taken(&world, 1), std::slice::from_ref(&whole));
    }
}

/// A peer that forges many fragments costs its own, and a bounded number of reassemblies.
#[test]
fn many_forged_fragments_are_joined_a_few_times() {
    let ([first, second], whole) = signed_fragments(LEN);
    let mut world = place(true);
    let total = LEN as u64;
    for len in 1..200 {
        hand_in(&mut world, STRANGER, &like(&first, 0, total, &vec![b'!'; len]));
    }
    hand_in(&mut world, 0, &second);
    hand_in(&mut world, STRANGER, &like(&first, 100, total, &[b'!'; LEN - 100]));
    assert!(world.nodes[1].agent.statistics().deleted < 20);
    hand_in(&mut world, 0, &first);
    assert_eq!(taken(&world, 1), [whole]);
    assert_eq!(world.nodes[1].agent.statistics().bundles, 0);
}
