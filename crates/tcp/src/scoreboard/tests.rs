use proptest::prelude::*;

use super::*;

const MSS: u64 = 100;

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// Ten segments of 100 bytes, one per millisecond.
fn ten() -> Scoreboard {
    let mut board = Scoreboard::new(1000);
    (0..10).for_each(|n| board.send(at(n), 1000 + n * MSS, 1000 + (n + 1) * MSS));
    board
}

fn segment(board: &mut Scoreboard, index: Option<usize>) -> Option<(u64, u64)> {
    index.and_then(|index| board.segment(index, MSS))
}

#[test]
fn three_runs_or_more_than_two_segments_make_a_loss() {
    let mut board = ten();
    let mut news = Delivery::default();
    assert!(board.sack(at(60), 1200, 1300, &mut news));
    assert_eq!(board.loss_edge(MSS), None);
    assert!(board.sack(at(61), 1400, 1500, &mut news));
    assert_eq!(board.loss_edge(MSS), None, "two runs, 200 bytes");
    assert!(!board.sack(at(62), 1400, 1500, &mut news), "no news");
    assert!(board.sack(at(62), 1500, 1600, &mut news));
    assert_eq!(board.loss_edge(MSS), Some(1200), "300 bytes, the third hundred of them there");
    assert_eq!((news.sacked, news.newly_delivered), (300, 300));
    assert_eq!(board.lose_to(1200), 200);
    // 1,000 - 300 - 200.
    assert_eq!((board.pipe(), board.lost()), (500, 200));
    let lost = board.next_lost();
    assert_eq!(segment(&mut board, lost), Some((1000, 1100)));
    board.resend(at(63), 0);
    let lost = board.next_lost();
    assert_eq!(segment(&mut board, lost), Some((1100, 1200)));
    board.resend(at(63), 1);
    assert_eq!((board.next_lost(), board.pipe()), (None, 700));
    let unsure = board.next_unsure();
    assert_eq!(segment(&mut board, unsure), Some((1300, 1400)));
    board.acknowledge(at(120), 1400, &mut news);
    assert_eq!((board.out(), board.pipe(), news.resent_acked), (600, 400, true));
}

#[test]
fn segments_sent_well_before_delivered_ones_are_lost() {
    let mut board = ten();
    let mut news = Delivery::default();
    // Sent at 3 ms, arrives after 50.
    board.sack(at(53), 1300, 1400, &mut news);
    // Sent at 0, 1, 2 ms: due after 50 ms and an allowance of 1.
    assert_eq!(board.lose_by_time(at(51), at(1).since(at(0))), (100, Some(at(52))));
    assert_eq!(board.lose_by_time(at(53), at(1).since(at(0))), (200, None));
    (0..3).for_each(|index| board.resend(at(54), index));
    assert_eq!(board.lose_by_time(at(99), Duration::ZERO), (0, None));
    // Retransmitted at 54 ms; a segment sent at 60 arrives at 110, so that is lost again.
    board.send(at(60), 2000, 2100);
    board.sack(at(110), 2000, 2100, &mut news);
    let (bytes, again) = board.lose_by_time(at(110), Duration::ZERO);
    assert_eq!((bytes, again), (900, None), "three again and six for the first time");
    let lost = board.next_lost();
    assert_eq!(segment(&mut board, lost), Some((1000, 1100)));
}

#[test]
fn only_segments_behind_an_earlier_sack_are_reordered() {
    let mut board = ten();
    // The peer acknowledges every second segment. The first waits for that, the second is lost,
    // and the third brings an acknowledgment of the first with a report of the third.
    let mut news = Delivery::default();
    board.sack(at(60), 1200, 1300, &mut news);
    board.acknowledge(at(60), 1100, &mut news);
    assert!(!board.is_reordered());
    // An acknowledgment is lost; the next one reports the newest block first.
    let mut news = Delivery::default();
    board.sack(at(63), 1700, 1800, &mut news);
    board.sack(at(63), 1400, 1600, &mut news);
    assert!(!board.is_reordered());
    board.sack(at(64), 1300, 1400, &mut Delivery::default());
    assert!(board.is_reordered(), "it arrived after 1400 to 1600 had");
}

#[test]
fn a_longer_allowance_for_reordering_ends_after_16_recoveries() {
    let mut board = ten();
    board.on_late_segment();
    (0..15).for_each(|_| board.recovered());
    assert_eq!(board.reordering_steps(), 2);
    board.recovered();
    assert_eq!(board.reordering_steps(), 1);
}

#[test]
fn segments_lost_before_a_timeout_are_not_rejudged() {
    let mut board = ten();
    let mut news = Delivery::default();
    board.sack(at(53), 1300, 1400, &mut news);
    assert_eq!(board.lose_by_time(at(53), Duration::ZERO), (300, None));
    board.lose_all();
    board.forgive();
    assert_eq!(board.lose_by_time(at(53), Duration::ZERO), (0, None));
    board.sack(at(57), 1700, 1800, &mut news);
    assert_eq!(board.lose_by_time(at(57), Duration::ZERO), (300, None), "1400 to 1700");
}

#[test]
fn timeouts_mark_all_lost_and_can_be_undone() {
    let mut board = ten();
    let mut news = Delivery::default();
    board.sack(at(60), 1200, 1300, &mut news);
    assert_eq!(board.lose_all(), 900);
    assert_eq!(board.pipe(), 0);
    board.forgive();
    assert_eq!((board.pipe(), board.next_lost()), (900, None));
    // The peer discards data at the front that it had acknowledged.
    board.acknowledge(at(70), 1200, &mut news);
    assert_eq!(board.lose_all(), 800);
    assert!(!board.has_sacked());
}

#[test]
fn duplicate_acknowledgments_without_sack_count_as_segments_that_left() {
    let mut board = ten();
    (0..3).for_each(|_| board.add_phantom(MSS));
    assert_eq!(board.pipe(), 700);
    assert_eq!(board.lose_first(), 100);
    board.resend(at(50), 0);
    assert_eq!(board.pipe(), 700);
    (0..20).for_each(|_| board.add_phantom(MSS));
    assert_eq!(board.pipe(), 100, "the retransmission");
}

#[test]
fn long_segments_are_cut() {
    let mut board = ten();
    assert_eq!(board.segment(0, 60), Some((1000, 1060)));
    assert_eq!(board.segment(1, 60), Some((1060, 1100)));
    let mut news = Delivery::default();
    board.acknowledge(at(9), 1080, &mut news);
    assert_eq!((board.segment(0, 60), board.out()), (Some((1080, 1100)), 920));
}

#[test]
fn delivery_rate_is_the_slower_of_sending_and_arriving() {
    let mut board = Scoreboard::new(0);
    let mut news = Delivery::default();
    // Sent at once, arriving one per 10 ms.
    (0..10).for_each(|n| board.send(at(0), n * MSS, (n + 1) * MSS));
    board.acknowledge(at(100), 100, &mut news);
    board.send(at(100), 1000, 1100);
    for n in 1..10 {
        board.acknowledge(at(100 + 10 * n), 100 + n * 100, &mut Delivery::default());
    }
    let mut news = Delivery::default();
    board.acknowledge(at(200), 1100, &mut news);
    let rate = board.rate(&news).expect("a sample");
    // 1,000 bytes from 100 to 200 ms.
    assert_eq!((rate.delivered, rate.interval), (1000, Duration::from_millis(100)));
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Send(u64),
    Ack(u64),
    Sack(u64, u64),
    LoseTo(u64),
    LoseByTime,
    LoseAll,
    Resend,
    Forgive,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1..=MSS).prop_map(Op::Send),
        2 => (0..300_u64).prop_map(Op::Ack),
        4 => (0..1000_u64, 1..300_u64).prop_map(|(start, len)| Op::Sack(start, start + len)),
        1 => (0..500_u64).prop_map(Op::LoseTo),
        2 => Just(Op::LoseByTime),
        1 => Just(Op::LoseAll),
        4 => Just(Op::Resend),
        1 => Just(Op::Forgive),
    ]
}

proptest! {
    #[test]
    fn counters_match_the_segments(ops in prop::collection::vec(op(), 1..120)) {
        let mut board = Scoreboard::new(0);
        let mut news = Delivery::default();
        for (n, op) in ops.into_iter().enumerate() {
            let now = at(n as u64);
            let (una, nxt) = (board.una, board.nxt);
            match op {
                Op::Send(len) => board.send(now, nxt, nxt + len),
                Op::Ack(by) => board.acknowledge(now, (una + by).min(nxt), &mut news),
                Op::Sack(start, end) => {
                    let (start, end) = ((una + start).min(nxt), (una + end).min(nxt));
                    board.sack(now, start, end, &mut news);
                }
                Op::LoseTo(by) => _ = board.lose_to((una + by).min(nxt)),
                Op::LoseByTime => _ = board.lose_by_time(now, Duration::ZERO),
                Op::LoseAll => _ = board.lose_all(),
                Op::Resend => {
                    let index = board.next_lost();
                    index.into_iter().for_each(|index| board.resend(now, index));
                }
                Op::Forgive => board.forgive(),
            }
            let sum = |which: fn(&Record) -> bool| -> u64 {
                board.records.iter().filter(|r| which(r)).map(Record::len).sum()
            };
            prop_assert_eq!(board.sacked_bytes, sum(|r| r.sacked));
            prop_assert_eq!(board.lost_bytes, sum(|r| r.lost));
            prop_assert_eq!(board.resent_bytes, sum(|r| r.resent));
            prop_assert_eq!(board.out(), sum(|_| true));
            prop_assert_eq!(board.sacked.covered(), board.sacked_bytes);
            prop_assert!(board.records.iter().all(|r| !r.sacked || !(r.lost || r.resent)));
            // A cursor never hides data to be retransmitted.
            let first = board.records.iter().position(|r| r.lost && !r.resent);
            prop_assert_eq!(board.next_lost(), first);
        }
    }
}
