//! Random conversations: options, contents, link, losses. All bytes must arrive in order, both
//! ends must close, and no deadline may remain.

use std::time::Duration;

use engine::{PathEvent, PathInfo, Rng};

use super::world::{User, World, content, finished};
use crate::cc::{Algorithm, Bic, Counting, Cubic, IdleRule, Vegas};
use crate::scps::{Carrier, LossCause, RateControl, Scps, Snack, SnackForm};
use crate::test_world::Fate;
use crate::{
    AckPolicy, Backlog, Buffer, Config, Cookies, InitialWindow, KeepAlive, LossRecovery, Options,
    Timeouts,
};

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

fn buffer(rng: &mut Rng) -> Buffer {
    let size = pick(rng, &[1, 100, 1_000, 4_000, 16_384, 65_535, 300_000]);
    if rng.chance(0.5) {
        Buffer::Fixed(size)
    } else {
        Buffer::Auto { initial: size, max: size.max(pick(rng, &[10_000, 100_000, 1_000_000])) }
    }
}

pub(super) fn options(rng: &mut Rng) -> Options {
    let counting = pick(rng, &[Counting::Acks, Counting::Bytes { limit: 1 }, Counting::default()]);
    let window = pick(rng, &[None, Some(3_000), Some(50_000)]);
    let congestion = match rng.below(8) {
        0 => Algorithm::Tahoe(counting),
        1 => Algorithm::Reno(counting),
        2 => Algorithm::NewReno(counting),
        3 => Algorithm::Vegas(pick(rng, &[Vegas::LINUX, Vegas::PAPER, Vegas::SCPS])),
        4 => Algorithm::Bic(Bic::default()),
        5 => Algorithm::Cubic(pick(rng, &[Cubic::RFC9438, Cubic::LINUX, Cubic::LINUX_2_6_19])),
        6 => Algorithm::Bbr,
        _ => Algorithm::None { window },
    };
    Options {
        mss: pick(rng, &[None, None, Some(88), Some(536), Some(1460), Some(9000)]),
        window_scale: rng.chance(0.7),
        timestamps: rng.chance(0.6),
        sack: rng.chance(0.7),
        duplicate_sack: rng.chance(0.7),
        recovery: pick(
            rng,
            &[
                LossRecovery::NewReno,
                LossRecovery::Sack6675,
                LossRecovery::Prr,
                LossRecovery::RateHalving,
            ],
        ),
        rack: rng.chance(0.5),
        tail_loss_probe: rng.chance(0.5),
        limited_transmit: rng.chance(0.7),
        undo: rng.chance(0.7),
        ecn: rng.chance(0.3),
        nagle: rng.chance(0.5),
        minshall: rng.chance(0.5),
        acks: AckPolicy {
            every: pick(rng, &[0, 1, 2, 2, 2, 8]),
            max_delay: Duration::from_millis(pick(rng, &[0, 40, 200, 500])),
            quick: pick(rng, &[0, 3, 16]),
        },
        timeouts: Timeouts {
            initial: Duration::from_millis(pick(rng, &[1000, 3000])),
            min: Duration::from_millis(pick(rng, &[10, 200, 1000])),
            max: Duration::from_secs(pick(rng, &[10, 120])),
            margin: Duration::from_millis(pick(rng, &[1, 100, 200])),
        },
        syn_retries: 40,
        retries: 60,
        keep_alive: rng.chance(0.2).then_some(KeepAlive {
            idle: Duration::from_secs(5),
            interval: Duration::from_secs(1),
            probes: 60,
        }),
        // Drawn separately: conversations of earlier seeds stay the same.
        mtu_probing: rng.clone().chance(0.5),
        initial_window: pick(rng, &[InitialWindow::Rfc3390, InitialWindow::Segments(10)]),
        idle: pick(rng, &[None, Some(IdleRule::Restart), Some(IdleRule::Decay)]),
        send_buffer: buffer(rng),
        any_room: rng.chance(0.3),
        receive_buffer: buffer(rng),
        congestion,
        pacing: rng.chance(0.3),
        hop_limit: 64,
        dscp: 0,
        scps: rng.chance(0.5).then(|| scps(rng)),
    }
}

fn scps(rng: &mut Rng) -> Scps {
    let snack = rng.chance(0.8).then(|| Snack {
        form: pick(rng, &[SnackForm::Short, SnackForm::Bits]),
        delay: Duration::from_millis(pick(rng, &[0, 0, 30, 300])),
        repeats: pick(rng, &[1, 3, 3]),
    });
    let assume = pick(rng, &[LossCause::Congestion, LossCause::Corruption]);
    let rate = rng.chance(0.4).then(|| RateControl {
        bps: pick(rng, &[None, Some(50_000), Some(5_000_000)]),
        tick: Duration::from_millis(pick(rng, &[0, 10, 100])),
    });
    let dwell = Duration::from_millis(pick(rng, &[0, 1000]));
    let protocol = pick(rng, &[Carrier::Tcp, Carrier::Tcp, Carrier::Scps]);
    let (suspends, header_compression) = (rng.chance(0.5), rng.chance(0.5));
    Scps {
        snack,
        assume,
        dwell,
        suspends,
        rate,
        protocol,
        header_compression,
        bets: None,
        records: 100,
    }
}

fn fate(rng: &mut Rng) -> Fate {
    let mut own = Rng::new(rng.next_u64(), "fate");
    let loss = pick(rng, &[0.0, 0.01, 0.05, 0.2]);
    let reorder = pick(rng, &[0.0, 0.0, 0.05, 0.3]);
    let double = pick(rng, &[0.0, 0.0, 0.05, 0.3]);
    let damage = pick(rng, &[0.0, 0.0, 0.02]);
    let mark = pick(rng, &[0.0, 0.1]);
    let jitter = pick(rng, &[1_u64, 30, 500]) * 1_000_000;
    Box::new(move |passing| {
        if own.chance(damage) {
            let bit = own.below(passing.bytes.len() as u64 * 8) as usize;
            passing.bytes[bit / 8] ^= 1 << (bit % 8);
        } else if passing.bytes[0] == 0x45 && passing.bytes[1] & 3 == 2 && own.chance(mark) {
            let (mut ip, _) = wire::ip::Ipv4::decode(passing.bytes).expect("our own packet");
            ip.traffic_class |= 3;
            ip.encode(passing.bytes.first_chunk_mut().expect("a header"));
        }
        let mut later =
            || Duration::from_nanos(if own.chance(reorder) { own.below(jitter) } else { 0 });
        let (first, second) = (later(), later());
        match () {
            () if own.chance(loss) => Vec::new(),
            () if own.chance(double) => vec![first, second],
            () => vec![first],
        }
    })
}

/// Runs one conversation. `Err` describes the failure.
pub(super) fn converse(seed: u64) -> Result<(), String> {
    converse_with(seed, |_| {})
}

/// Runs a conversation with options changed by `change` at both ends.
fn converse_with(seed: u64, mut change: impl FnMut(&mut Options)) -> Result<(), String> {
    let mut rng = Rng::new(seed, "conversation");
    // A timeout may be longer than the usual 2 MSL, after which a retransmitted FIN is reset.
    let time_wait = Duration::from_secs(1000);
    let config = |rng: &mut Rng| Config { robust: rng.chance(0.8), time_wait, ..Config::default() };
    let configs = [config(&mut rng), config(&mut rng)];
    let mut world = World::new(configs, seed, rng.chance(0.2));
    world.logging = false;
    world.batch = pick(&mut rng, &[1, 3, 64]);
    world.line().delay = Duration::from_millis(pick(&mut rng, &[0, 1, 20, 300]));
    world.line().rate_bps = pick(&mut rng, &[None, Some(200_000), Some(10_000_000)]);
    world.line().queue = pick(&mut rng, &[u64::MAX, 20_000]);
    world.fate = fate(&mut rng);
    let mtu = pick(&mut rng, &[1500, 1500, 576, 9000, 200]);
    world.hops[0].info = PathInfo::datagram(mtu);
    world.start();
    let [mut first, mut second] = [options(&mut rng), options(&mut rng)];
    change(&mut first);
    change(&mut second);
    let cookies = pick(&mut rng, &[Cookies::Never, Cookies::WhenFull, Cookies::Always]);
    // Small windows carry little in a round trip.
    let small = [&first, &second]
        .iter()
        .any(|o| o.send_buffer.max().min(o.receive_buffer.max()) < 1000 || o.mss == Some(88));
    let most = if small { 2_000 } else { 60_000 };
    let lens =
        [rng.below(most) as usize, if rng.chance(0.5) { 0 } else { rng.below(most) as usize }];
    let waits = rng.chance(0.5);
    let user =
        |len, waits_for_peer| User { content: content(len), waits_for_peer, ..User::default() };
    world.hosts[1].engine.template = user(lens[1], waits);
    if cookies == Cookies::Always {
        // The first segment after the SYN must be the next one, or the cookie is unknown.
        world.lose(|_, _, _| false);
        world.line().queue = u64::MAX;
    }
    world.listen(second, Backlog { half_open: 8, cookies });
    let id = world.connect(first, user(lens[0], false));
    // A path that is congested or down for a while.
    for _ in 0..rng.below(3) {
        world.run_for(Duration::from_millis(rng.below(400)));
        let host = rng.below(2) as usize;
        let gone = if rng.chance(0.5) { PathEvent::Blocked } else { PathEvent::Down };
        world.path(host, gone);
        world.run_for(Duration::from_millis(rng.below(3000)));
        world.up(host);
    }
    let ended = world.ends_within(400_000);
    let info = world.hosts[0].engine.stack.info(id);
    if !ended {
        return Err(format!("at {} it does not end: {:?}; {info:?}", world.now, world.deadlines()));
    }
    finished(&world).map_err(|error| format!("{error}; {info:?}"))
}

fn converse_all(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(error) = converse(seed) {
            panic!("seed {seed}: {error}");
        }
    }
}

#[test]
fn any_conversation_ends_well() {
    converse_all(0..300);
}

/// A timeout that does not grow may give up on a link with heavy loss; nothing else may fail.
#[test]
fn connections_with_minimum_timeout_above_maximum_end() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed, "time-outs");
        let ended = converse_with(seed, |options| {
            options.timeouts.min = Duration::from_millis(pick(&mut rng, &[2_000, 12_000]));
            options.timeouts.max = Duration::from_millis(pick(&mut rng, &[0, 100, 1_000]));
        });
        let is_over = ended.as_ref().err().is_none_or(|error| error.contains("TimedOut"));
        assert!(is_over, "seed {seed}: {ended:?}");
    }
}

/// A constant timeout below the round trip; an acknowledgment that leaves too little of the rate
/// for the data after it; a FIN to a peer that has forgotten the connection's number.
#[test]
fn former_endless_conversations_end() {
    [74, 1578, 3199, 8265].into_iter().for_each(|seed| converse_all(seed..seed + 1));
}

#[test]
#[ignore = "thousands of conversations, by hand"]
fn very_many_conversations_end_well() {
    converse_all(1_000..11_000);
}
