//! States of coded objects at their sender.

use engine::{FileId, FileName, PathId, Rng};

use super::super::{Cut, ObjectId, Position};
use super::*;
use crate::norm::coding::Coding;
use crate::norm::grtt::Grtt;
use crate::norm::profile;
use crate::session::Slots;

const SECOND: std::time::Duration = std::time::Duration::from_secs(1);

/// Coded file of segments of 1,000 bytes, all sent as far as its counters say.
fn sent(blocks: u32, block_len: u16, is_one_way: bool) -> (Core, Transmission, Outgoing) {
    let mut config = profile("coded").expect("there is such a profile");
    config.sender.block_len = block_len;
    let coding = Coding::new(&config.sender).expect("there is such a code");
    let mut core = Core::new(config, Rng::new(1, "norm"));
    let transmission = Transmission::new(1, Grtt::new(SECOND, SECOND / 1000, SECOND), 0, 10);
    let id = ObjectId { peer: PathId(0), sender: 1, number: 7 };
    let content = Content::File(FileName::file("source").expect("a name"));
    let mut object = Outgoing::new(id, Slots::<()>::new().reserve(), content, Bytes::new());
    object.will_be_coded(is_one_way);
    let size = 1000 * u64::from(block_len) * u64::from(blocks);
    object.opened(&mut core, FileId(1), size);
    let cut = Cut { segment: 1000, room: 1400, coding, loss: None, has_fti: true };
    object.cut(&mut core, cut).expect("it can be cut");
    object.at = Position { block: blocks, symbol: 0 };
    object.source.as_mut().expect("it is open").skip_to(size);
    object.has_begun = true;
    object.info_turn.end();
    core.shared.effects.clear();
    (core, transmission, object)
}

#[test]
fn carousels_count_more_segments_than_32_bits_hold() {
    let most = u32::MAX;
    let mut coded = Coded { total: most.into(), ..Coded::default() };
    coded.change(0, |state| (state.sent, state.goal) = (most.into(), most.into()));
    coded.went(0, 0, Time::ZERO);
    assert_eq!((coded.total, coded.blocks[&0].sent), (1 << 32, 1 << 32));
    // A round after as many segments still has a goal.
    let (_, transmission, mut object) = sent(1, 100, true);
    let terms = Terms { confidence: Some(0.99), ..transmission.terms };
    let shape = object.shape.take().expect("it is cut");
    let first = object.goal(0, &terms, &shape);
    assert!((100..200).contains(&first), "{first}");
    object.coded.rounds.count = 1 << 30;
    assert_eq!(object.goal(0, &terms, &shape), first * ((1 << 30) + 1));
}

#[test]
fn segments_sent_again_are_remembered_within_a_bound() {
    for is_one_way in [true, false] {
        let (_, _, mut object) = sent(100, 10, is_one_way);
        let mut number = 0;
        for block in 0..100 {
            for _ in 0..10_000 {
                object.again_went((block, 3), number, Time::ZERO);
                number += 1;
            }
        }
        // 65,536 of them take 1 MiB.
        let (memory, one) = (object.coded.memory(), 1 << 20);
        let expected = if is_one_way { 0..one / 4 } else { one..one * 5 / 4 };
        assert!(expected.contains(&memory), "{memory}");
    }
}
