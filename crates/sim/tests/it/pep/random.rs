//! Random worlds: packets are lost, duplicated or reordered; each host still receives everything
//! that the other sent, and nothing is left in the gateways.

use std::time::Duration;

use engine::Receive;
use link::{Delay, ErrorKind, ErrorModel};
use proptest::prelude::*;
use tcp::Profile;

use super::talker::Manner;
use super::world::{CLIENT, GATES, PORT, Plan, SERVER, satellite};

fn manner() -> impl Strategy<Value = Manner> {
    let stops = prop::option::weighted(0.3, (0..100_000_usize, 1..20_u64));
    let sends = prop_oneof![Just(0), 1..3000_usize, 3000..200_000_usize];
    let resets_at = prop::option::weighted(0.1, 1..100_000_usize);
    (sends, stops, resets_at).prop_map(|(sends, stops, resets_at)| Manner {
        sends,
        ends: true,
        waits: false,
        resets_at,
        stops: stops.map(|(at, seconds)| (at, Duration::from_secs(seconds))),
    })
}

fn plan() -> impl Strategy<Value = (Plan, usize)> {
    let profile = prop::sample::select(Profile::ALL.to_vec());
    let losses = (0..60_u32, 0..60_u32).prop_map(|(a, b)| [a, b]);
    let shape = (any::<u64>(), 1..6_usize, any::<[bool; 2]>(), any::<bool>(), any::<bool>());
    let pep = (1..4_usize, 1..8_usize, 0..400_u64);
    (manner(), manner(), profile, losses, shape, pep).prop_map(
        |(client, server, profile, losses, shape, (buffer, connections, delay))| {
            let (seed, count, gates, early_accept, mangles) = shape;
            let mut plan = Plan::new(client, server);
            (plan.seed, plan.gates) = (seed, gates);
            (plan.early_accept, plan.mangles) = (early_accept, mangles);
            for (wan, per_mille) in plan.wan.iter_mut().zip(losses) {
                let lost = ErrorKind::PerPacket(f64::from(per_mille) / 1000.0);
                *wan = link::Config {
                    delay: Delay::Constant(Duration::from_millis(delay)),
                    errors: vec![ErrorModel::dropping(lost)],
                    ..satellite()
                };
            }
            plan.wan_options = profile.options();
            plan.pep.buffer = buffer * Receive::PIECE_MAX;
            plan.pep.buffer_total = 0;
            plan.pep.connections = connections;
            // Losses of 6 % in each direction leave no connection half-open for long.
            plan.pep.idle = Some(Duration::from_secs(1800));
            (plan, count)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn bytes_are_the_same_and_nothing_is_left((plan, count) in plan()) {
        let mut play = plan.build();
        play.connect(count, PORT);
        play.run();
        let sends = [(CLIENT, plan.server.sends), (SERVER, plan.client.sends)];
        let mut good = 0;
        for (host, sends) in sends {
            for stream in play.streams(host) {
                prop_assert!(!stream.wrong);
                prop_assert!(stream.received <= sends);
                if stream.peer_ended {
                    prop_assert_eq!(stream.received, sends);
                    good += 1;
                }
            }
        }
        let resets = plan.client.resets_at.is_some() || plan.server.resets_at.is_some();
        let room = count <= plan.pep.connections || plan.gates == [false; 2];
        if !resets && room {
            prop_assert_eq!(good, 2 * count, "all connections end well");
        }
        for (gate, _) in GATES.into_iter().zip(plan.gates).filter(|(_, there)| *there) {
            let statistics = play.statistics(gate);
            prop_assert!(statistics.open_peak <= plan.pep.connections);
            prop_assert!(statistics.buffered_peak <= plan.pep.bytes_max());
        }
    }
}
