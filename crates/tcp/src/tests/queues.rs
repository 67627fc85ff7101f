//! Long paths with deep queues: one loss causes one retransmission, as with the kernel's TCP.

use std::collections::BTreeSet;
use std::time::Duration;

use engine::Rng;

use super::world::{User, World, content, finished, lose};
use crate::cc::{Algorithm, Counting, Cubic};
use crate::test_world::Line;
use crate::{Backlog, Buffer, Counts, Options, Profile};

/// Sends 4 MB over 8 Mbit/s and 300 ms; the sender's packets of these numbers are lost.
fn sent(congestion: Algorithm, lost: &'static [usize]) -> Counts {
    const SIZE: usize = 4_000_000;
    let mut world = World::plain(1);
    world.logging = false;
    world.line().delay = Duration::from_millis(300);
    world.line().rate_bps = Some(8_000_000);
    world.lose(lose(lost, &[]));
    let options = Options { congestion, ..Profile::Modern.options() };
    world.listen(options.clone(), Backlog::default());
    let id = world.connect(options, User { content: content(SIZE), ..User::default() });
    let mut received = 0;
    while received < SIZE {
        world.run_for(Duration::from_millis(100));
        received = world.hosts[1].engine.users.values().map(|user| user.received.len()).sum();
    }
    let counts = world.info(0, id).counts;
    world.run();
    finished(&world).unwrap();
    counts
}

/// A path that loses one of `one_of` packets at random.
struct Lossy {
    bps: u64,
    delay: Duration,
    queue: u64,
    one_of: u64,
}

impl Lossy {
    /// Sends `size` bytes by BBR. Returns the seconds until everything has arrived, and the
    /// sender's counts at about that time.
    fn sent(&self, seed: u64, size: usize, options: &Options) -> (f64, Counts) {
        let mut world = World::plain(seed);
        world.logging = false;
        *world.line() = Line::new(self.delay, Some(self.bps));
        world.line().queue = self.queue;
        let (mut rng, one_of) = (Rng::new(seed, "losses"), self.one_of);
        world.lose(move |_, _, _| rng.below(one_of) == 0);
        let options = Options { congestion: Algorithm::Bbr, ..options.clone() };
        world.listen(options.clone(), Backlog::default());
        let begin = world.now;
        let id = world.connect(options, User { content: content(size), ..User::default() });
        let mut counts = Counts::default();
        while world.hosts[1].engine.users.values().all(|user| user.received.len() < size) {
            world.run_for(Duration::from_millis(100));
            counts = world.info(0, id).counts;
        }
        (world.now.since(begin).as_secs_f64(), counts)
    }
}

/// Buffers that limit nothing.
fn unlimited() -> Options {
    let buffer = |buffer: Buffer| Buffer::Auto { initial: buffer.initial(), max: 256 << 20 };
    let modern = Profile::Modern.options();
    Options {
        send_buffer: buffer(modern.send_buffer),
        receive_buffer: buffer(modern.receive_buffer),
        ..modern
    }
}

#[test]
fn bbr_over_a_lossy_path_keeps_its_time_for_any_seed() {
    let delay = Duration::from_millis(300);
    let path = Lossy { bps: 50_000_000, delay, queue: 7_500_000, one_of: 100 };
    let times: Vec<_> = (1..=20).map(|seed| path.sent(seed, 20_000_000, &unlimited()).0).collect();
    let worst = times.iter().copied().fold(0.0, f64::max);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    assert!(mean < 17.0 && worst < 21.0, "{mean} {times:?}");
}

/// Recoveries follow one another here: one starts while retransmissions of the previous one are in
/// flight. Their acknowledgments echo older timestamps, which do not show that a loss is spurious.
#[test]
fn no_loss_is_spurious_on_a_path_that_keeps_the_order() {
    let delay = Duration::from_millis(150);
    let path = Lossy { bps: 20_000_000, delay, queue: 1_000_000, one_of: 30 };
    for seed in 1..=10 {
        let (_, counts) = path.sent(seed, 2_000_000, &Profile::Modern.options());
        assert!(counts.recoveries > 3, "seed {seed}: {counts:?}");
        assert_eq!(counts.spurious, 0, "seed {seed}: {counts:?}");
    }
}

/// With a buffer of less than two windows, lost segments often leave no room for data. A sender
/// that took this for a lack of data stayed in its startup phase, and overflowed the queue in each
/// round.
#[test]
fn a_full_send_buffer_does_not_keep_bbr_in_its_startup_phase() {
    let delay = Duration::from_millis(150);
    let path = Lossy { bps: 100_000_000, delay, queue: 750_000, one_of: 200 };
    for seed in 1..=5 {
        let (_, counts) = path.sent(seed, 30_000_000, &Profile::Modern.options());
        // Some 21,000 segments, of which one of 200 is lost, and what the queue dropped once. In
        // every round it would drop more than 2,000.
        assert!(counts.retransmissions < 1500, "seed {seed}: {counts:?}");
    }
}

#[test]
fn first_ten_segments_are_not_paced() {
    let mut world = World::plain(1);
    let options = Options { congestion: Algorithm::Bbr, ..Profile::Modern.options() };
    world.listen(options.clone(), Backlog::default());
    world.connect(options, User { content: content(100_000), ..User::default() });
    world.run();
    finished(&world).unwrap();
    let data = world.log.iter().filter(|sent| sent.from == 0 && sent.bytes.len() > 1000);
    let times: Vec<_> = data.map(|sent| sent.at).collect();
    assert_eq!(times[0], times[9], "the initial window");
    let round = times.iter().filter(|at| **at > times[9] && at.since(times[9]).as_millis() < 150);
    let paced: BTreeSet<_> = round.collect();
    assert!(paced.len() > 2, "the next round is paced: {paced:?}");
}

fn controls() -> [Algorithm; 3] {
    let counting = Counting::Bytes { limit: u64::MAX };
    [Algorithm::Bbr, Algorithm::NewReno(counting), Algorithm::Cubic(Cubic::LINUX)]
}

#[test]
fn one_loss_in_a_queue_that_grows_is_one_retransmission() {
    for congestion in controls() {
        for lost in [&[900][..], &[1300], &[460]] {
            let counts = sent(congestion, lost);
            let losses = (counts.retransmissions, counts.recoveries, counts.timeouts);
            assert_eq!(losses, (1, 1, 0), "{congestion:?}, {lost:?}");
        }
    }
}

#[test]
fn a_queue_that_overflows_in_slow_start_makes_one_recovery() {
    // 10 Mbit/s and 300 ms are 750 kB; 50 packets wait. The kernel takes 30.3 s with Reno and
    // 18.4 s with CUBIC, and resends 161 and 81 segments.
    for (congestion, most) in controls().into_iter().skip(1).zip([32.0, 19.5]) {
        let mut world = World::plain(1);
        world.logging = false;
        world.line().delay = Duration::from_millis(300);
        world.line().rate_bps = Some(10_000_000);
        world.line().queue = 75_000;
        let options = Options { congestion, ..Profile::Modern.options() };
        world.listen(options.clone(), Backlog::default());
        let begin = world.now;
        let id = world.connect(options, User { content: content(10_000_000), ..User::default() });
        let mut counts = Counts::default();
        while world.hosts[1].engine.users.values().all(|user| user.received.len() < 10_000_000) {
            world.run_for(Duration::from_millis(100));
            counts = world.info(0, id).counts;
        }
        let took = world.now.since(begin).as_secs_f64();
        assert!(took < most && counts.timeouts == 0, "{congestion:?}: {took} s, {counts:?}");
    }
}
