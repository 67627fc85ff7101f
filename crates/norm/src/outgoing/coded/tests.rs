//! States of coded objects at their sender.

use engine::{FileId, FileName, PathId, Rng};
use session::Slots;
use testing::memory::Counted;

use super::super::{Cut, ObjectId, Position};
use super::*;
use crate::coding::Coding;
use crate::grtt::Grtt;
use crate::outgoing::Symbols;
use crate::profile;
use crate::transmission::Transmission;

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
    object.set_coded(is_one_way.then_some(3));
    let size = 1000 * u64::from(block_len) * u64::from(blocks);
    object.opened(&mut core, FileId(1), size);
    let cut = Cut { segment: 1000, room: 1400, coding, loss: None, has_fti: true };
    object.cut(&mut core, cut, 1).expect("it can be cut");
    object.at = Position { block: blocks, symbol: 0 };
    object.source.as_mut().expect("it is open").skip_to(size);
    object.has_begun = true;
    object.info_turn.is_due = false;
    core.shared.effects.clear();
    (core, transmission, object)
}

#[test]
fn carousels_count_more_segments_than_32_bits_hold() {
    let most = u32::MAX;
    let mut coded = Coded { total: most.into(), ..Coded::default() };
    coded.change(0, |state| (state.sent, state.goal) = (most.into(), most.into()));
    coded.on_sent(0, 0, Time::ZERO);
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
        let mut sender = Counted::new(|| sent(100, 10, is_one_way));
        let before = sender.memory();
        sender.charge(|(_, _, object)| {
            let shape = object.shape.clone().expect("it is cut");
            for number in 0..1_000_000 {
                object.on_repeated((number / 10_000) as u32, 3, number, Time::ZERO, &shape);
            }
        });
        // 65,536 of them take 1 MiB.
        let (memory, one) = (sender.memory() - before, 1 << 20);
        let expected = if is_one_way { 0..one / 4 } else { one..one * 5 / 4 };
        assert!(expected.contains(&memory), "{memory}");
    }
}

#[test]
fn states_of_blocks_are_dropped_and_restored() {
    const MOST: usize = 100 << 10;
    let (mut core, transmission, mut object) = sent(5_000, 4, false);
    let shape = object.shape.clone().expect("it is cut");
    object.limit_states(MOST);
    for (number, at) in (0..5_000).flat_map(|block| (0..4).map(move |at| (block, at))).enumerate() {
        object.at = Position { block: at.0, symbol: at.1 };
        object.on_source_sent(number as u64, Time::ZERO, &shape);
        assert!(object.coded.kept.bytes <= MOST);
    }
    object.at = Position { block: 5_000, symbol: 0 };
    assert!(object.coded.blocks.len() > 100 && !object.coded.blocks.contains_key(&7));
    let answer = |object: &mut Outgoing, node| {
        object.answer(Time::from_secs(9), NodeId(node), None, &transmission);
    };
    // A receiver lacks two segments.
    let symbols = Symbols { named: Bits::new(), count: 2 };
    assert!(object.mark(&mut core, 7, &symbols));
    answer(&mut object, 1);
    let state = &object.coded.blocks[&7];
    assert_eq!((state.sent, state.goal, object.first_short()), (4, 6, Some(7)));
    object.coded.change(7, |state| (state.sent, state.next_row) = (6, 2));
    // Others claim to lack all, again and again.
    for node in 2..50 {
        assert!(object.mark_all(&mut core));
        assert!(object.coded.lacking.len() <= 4_096);
        answer(&mut object, node);
        assert!(object.coded.kept.bytes <= MOST);
    }
    assert!(!object.coded.blocks.contains_key(&7));
    // Its parity goes on where it ended.
    assert!(object.mark(&mut core, 7, &symbols));
    let state = &object.coded.blocks[&7];
    assert_eq!((state.sent, state.next_row), (6, 2));
    let bytes: usize = object.coded.blocks.values().map(CodedBlock::memory).sum();
    assert_eq!(bytes, object.coded.kept.bytes);
}
