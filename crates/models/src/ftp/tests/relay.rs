//! Transfers between two servers.

use super::world::OTHER;
use super::*;

/// Client and two servers that support SCPS-FP and accept third parties, unless stated otherwise.
fn servers(third_party: [bool; 2]) -> World {
    let server = |third_party| Config {
        server: ServerConfig { third_party, scps: true, ..ServerConfig::default() },
        ..Config::default()
    };
    World::new([Config::default(), server(third_party[0]), server(third_party[1])])
}

fn relay(world: &mut World) -> RequestId {
    world.on_node(0, |node| node.relay(SERVER, "dir/f", OTHER, "g").unwrap())
}

fn with_file(third_party: [bool; 2]) -> World {
    let mut world = servers(third_party);
    let make = FilestoreRequest::CreateDirectory(file("dir"));
    world.hosts[1].store.execute(StoreEffect::Filestore { ticket: Ticket(0), request: make });
    world.file(1, "dir/f", &bytes(300_000));
    world
}

#[test]
fn files_cross_between_servers_directly() {
    let mut world = with_file([true, true]);
    let id = relay(&mut world);
    world.run();
    assert_eq!(outcome(&world, id), Ok(0));
    assert!(world.content(2, "g").unwrap() == bytes(300_000));
    // Two control connections and one between the servers.
    assert_eq!(world.streams(), 3);
    let started = |reported: &&Indication| matches!(reported, Indication::Begun { .. });
    assert_eq!(world.hosts[0].reported.iter().filter(started).count(), 1);
    let received =
        |reported: &Indication| matches!(reported, Indication::Received { bytes: 300_000, .. });
    assert!(world.hosts[2].reported.iter().any(received));
    assert!(world.hosts.iter().all(|host| host.node.under_way() == 0));
}

#[test]
fn impossible_requests_fail_once_and_harm_nothing() {
    // The giver accepts no third party; the taker accepts none; there is no such file.
    for (case, third_party) in [[false, true], [true, false], [true, true]].into_iter().enumerate()
    {
        let mut world = if case == 2 { servers(third_party) } else { with_file(third_party) };
        world.file(0, "h", b"other");
        world.file(2, "g", b"was there");
        let id = relay(&mut world);
        let after = put(&mut world, "h", "h");
        world.run();
        assert!(matches!(outcome(&world, id), Err(Failure::Reply(_))), "{case}");
        assert_eq!(outcome(&world, after), Ok(5), "{case}");
        // Only STOR touches a file at the taker.
        if case != 1 {
            assert_eq!(world.content(2, "g").unwrap(), b"was there", "{case}");
        }
        assert!(world.hosts.iter().all(|host| host.node.under_way() == 0), "{case}");
    }
}

#[test]
fn cancelling_either_half_ends_the_relay() {
    for moment in (0..40).map(|step| step * 250) {
        let mut world = with_file([true, true]);
        let id = relay(&mut world);
        world.run_until(Time::ZERO + Duration::from_millis(moment));
        let now = world.now;
        let under_way = world.on_node(0, |node| node.cancel(now, id));
        world.run();
        assert_eq!(outcome(&world, id).is_err(), under_way, "{moment}");
        assert!(world.hosts.iter().all(|host| host.node.under_way() == 0), "{moment}");
        assert!(world.hosts.iter().all(|host| host.node.sessions() == 0), "{moment}");
    }
}

#[test]
fn relays_need_two_servers_and_valid_names() {
    let mut node = Node::new(Config::default());
    assert_eq!(node.relay(SERVER, "f", SERVER, "g"), Err(RequestError::Same));
    assert_eq!(node.relay(SERVER, "f\r\n", OTHER, "g"), Err(RequestError::Name));
    assert_eq!(node.under_way(), 0);
}
