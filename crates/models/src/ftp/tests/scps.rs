//! SCPS-FP extensions.

use crate::message::{Change, Crc, Range, ReadControl, TO_END, UpdateControl};

use super::*;

fn scps(change: impl Fn(&mut ScpsClient)) -> World {
    let mut scps = ScpsClient::default();
    change(&mut scps);
    let client = ClientConfig {
        scps: Some(scps),
        timeout: Duration::from_secs(30),
        ..ClientConfig::default()
    };
    with(client, ServerConfig { scps: true, ..ServerConfig::default() })
}

fn at(milliseconds: u64) -> Time {
    Time::ZERO + Duration::from_millis(milliseconds)
}

fn lines<'a>(world: &'a World, begin: &str) -> Vec<&'a str> {
    let all = world.lines.iter().map(|(_, line)| line.as_str());
    all.filter(|line| line.starts_with(begin)).collect()
}

fn answer(world: &World, id: RequestId) -> String {
    let mut answers = world.hosts[0].reported.iter().filter_map(|reported| match reported {
        Indication::Answered { request, reply } if *request == id => Some(reply.to_string()),
        _ => None,
    });
    answers.next_back().expect("an answer")
}

#[test]
fn files_resume_at_any_break() {
    let content = bytes(300_000);
    let mut offsets = std::collections::BTreeSet::new();
    // The dialogue takes four seconds; then the file follows, 100,000 bytes per 0.3 s, in pieces of
    // less and more than a segment, of a read and others.
    for piece in [599, 1460, 65_536, 7_001] {
        for fetch in [false, true] {
            for moment in (0..20).map(|step| 3_600 + step * 100) {
                let mut world = scps(|_| {});
                world.piece = piece;
                let id = if fetch {
                    world.file(1, "f", &content);
                    world.on_node(0, |node| node.get(SERVER, "f", file("g")).unwrap())
                } else {
                    world.file(0, "f", &content);
                    put(&mut world, "f", "g")
                };
                world.run_until(at(moment));
                if world.streams() < 2 {
                    continue;
                }
                world.break_data();
                world.run();
                assert_eq!(outcome(&world, id), Ok(300_000), "{piece} {fetch} {moment}");
                assert!(world.content(usize::from(!fetch), "g").unwrap() == content);
                offsets.extend(lines(&world, "REST").into_iter().map(str::to_owned));
                assert_eq!(world.hosts[0].store.names(engine::Area::Spool).count(), 0);
            }
        }
    }
    assert!(offsets.len() > 3, "{offsets:?}");
}

#[test]
fn files_resume_at_any_partial_length() {
    for has in [0, 1, 2, 1459, 1460, 1461, 65_535, 65_536, 65_537, 69_999, 70_000, 70_001] {
        let mut world = scps(|_| {});
        let content = bytes(70_000);
        world.file(0, "f", &content);
        let id = put(&mut world, "f", "g");
        // The server listens and nobody connects: the transfer aborts before its first byte.
        world.firewall = true;
        world.run_until(at(4_500));
        world.firewall = false;
        let there = bytes(70_001);
        world.file(1, "g", &there[..has]);
        world.run();
        assert_eq!(outcome(&world, id), Ok(70_000), "{has}");
        assert!(world.content(1, "g").unwrap() == content, "{has}");
    }
}

#[test]
fn partial_files_are_removed_without_restarts() {
    let mut world = scps(|scps| scps.auto_restart = false);
    world.file(0, "f", &bytes(500_000));
    let id = put(&mut world, "f", "g");
    world.run_until(at(4_000));
    assert!(world.content(1, "g").is_some());
    world.break_data();
    world.run();
    assert!(outcome(&world, id).is_err());
    assert_eq!(world.content(1, "g"), None);
}

#[test]
fn restarts_are_bounded() {
    let mut world = scps(|scps| scps.restarts = 3);
    world.firewall = true;
    world.file(0, "f", &bytes(10));
    let id = put(&mut world, "f", "g");
    world.run();
    assert!(matches!(outcome(&world, id), Err(Failure::Data(_))));
    assert!(world.now > at(3 * 5_000));
}

#[test]
fn records_are_read() {
    let ranges = |ends: &[(u32, u32)]| {
        ends.iter().map(|(first, last)| Range { first: *first, last: *last }).collect()
    };
    let content = bytes(5000);
    for (forced, ends, expected) in [
        (false, &[(10, 19), (4990, TO_END), (0, 0)][..], Ok(())),
        (false, &[(4990, 5000)], Err(556)),
        (true, &[(4990, 5000), (6000, 6001)], Ok(())),
    ] {
        let mut world = scps(|_| {});
        world.file(1, "f", &content);
        let control = ReadControl { path: "f".to_owned(), forced, ranges: ranges(ends) };
        let id = world.on_node(0, |node| node.read_records(SERVER, &control, file("r")).unwrap());
        world.run();
        match (outcome(&world, id), expected) {
            (Ok(_), Ok(())) => {
                assert_eq!(world.content(0, "r").unwrap(), control.read(&content).0);
                let whole = control.read(&content).1;
                assert_eq!(lines(&world, "258").is_empty(), whole);
            }
            (Err(Failure::Reply(reply)), Err(code)) => assert_eq!(reply.code, code),
            other => panic!("{other:?}"),
        }
    }
    // Ten records, whose count is an LF.
    let mut world = scps(|_| {});
    world.file(1, "f", &content);
    let ends: Vec<_> = (0..10).map(|at| (at * 100, at * 100 + 9)).collect();
    let control = ReadControl { path: "f".to_owned(), forced: false, ranges: ranges(&ends) };
    let id = world.on_node(0, |node| node.read_records(SERVER, &control, file("r")).unwrap());
    world.run();
    assert_eq!(outcome(&world, id), Ok(100));
}

#[test]
fn a_file_is_changed_copied_and_summed_where_it_is() {
    let mut world = scps(|_| {});
    // Without the repetitions of other content here.
    let mut old = vec![0; 200_000];
    engine::Rng::new(1, "file").fill(&mut old);
    let mut new = old.clone();
    new.splice(100_000..100_003, *b"other bytes");
    world.file(1, "old", &old);
    let control = UpdateControl::between("old", &old, "new", &new).unwrap();
    assert!(control.encode().unwrap().len() < 1000);
    let [update, copy, sum, missing] = world.on_node(0, |node| {
        [
            node.update(SERVER, &control).unwrap(),
            node.copy(SERVER, "new", "copied").unwrap(),
            node.checksum(SERVER, "copied").unwrap(),
            node.checksum(SERVER, "missing").unwrap(),
        ]
    });
    world.run();
    assert_eq!(answer(&world, update), "250 UPDT OK");
    assert!(world.content(1, "new").unwrap() == new);
    assert!(world.content(1, "old").unwrap() == old);
    assert!(outcome(&world, copy).is_ok());
    assert!(world.content(1, "copied").unwrap() == new);
    assert_eq!(answer(&world, sum), format!("250 CRC:{}", Crc::compute(&new)));
    assert!(matches!(outcome(&world, missing), Err(Failure::Reply(reply)) if reply.code == 550));

    // A change for another original is refused.
    let wrong =
        UpdateControl { changes: vec![Change::Delete { offset: 0, length: 1 }], crc: 1, ..control };
    let id = world.on_node(0, |node| node.update(SERVER, &wrong).unwrap());
    world.run();
    assert!(matches!(outcome(&world, id), Err(Failure::Reply(reply)) if reply.code == 551));
    assert!(world.content(1, "new").unwrap() == new);
}

#[test]
fn files_are_verified_after_sending() {
    for (length, piece) in [(0, 1460), (65_536, 65_536), (200_000, 7_001)] {
        let mut world = scps(|scps| scps.verify = true);
        world.piece = piece;
        let content = bytes(length);
        world.file(0, "f", &content);
        world.file(0, "g", b"another");
        let (id, another) = (put(&mut world, "f", "f"), put(&mut world, "g", "g"));
        world.run();
        assert_eq!(outcome(&world, id), Ok(length as u64));
        assert_eq!(outcome(&world, another), Ok(7));
        assert_eq!(lines(&world, "250 CRC:")[0], format!("250 CRC:{}", Crc::compute(&content)));
    }
    // The file changes after it was read: the server's file differs from the local one.
    let mut world = scps(|scps| scps.verify = true);
    world.file(0, "f", &bytes(300_000));
    let id = put(&mut world, "f", "f");
    world.run_until(at(4_500));
    assert!(!lines(&world, "STOR").is_empty() && lines(&world, "226").is_empty());
    world.file(1, "f", &bytes(10));
    world.file(0, "f", b"changed");
    world.run();
    let Err(Failure::Checksum { here, there }) = outcome(&world, id) else { panic!("it differs") };
    assert_ne!(here, there);
}

#[test]
fn missing_control_files_read_and_change_nothing() {
    let mut world = scps(|_| {});
    world.file(1, "f", b"original");
    let (id, other) = world.on_node(0, |node| {
        (node.update_by(SERVER, file("missing")).unwrap(), node.checksum(SERVER, "f").unwrap())
    });
    world.run();
    assert!(matches!(outcome(&world, id), Err(Failure::Store(_))));
    assert_eq!(answer(&world, other), format!("250 CRC:{}", Crc::compute(b"original")));
    assert!(lines(&world, "UPDT").is_empty());
}

#[test]
fn returning_clients_take_over_their_file() {
    // The data connection and the control connection are lost, and only the client has noticed.
    let mut world = scps(|scps| scps.auto_restart = false);
    let content = bytes(400_000);
    world.file(0, "f", &content);
    let first = put(&mut world, "f", "g");
    world.run_until(at(4_500));
    world.cut();
    assert_eq!(outcome(&world, first), Err(Failure::Control));
    let again = put(&mut world, "f", "g");
    world.run();
    assert_eq!(outcome(&world, again), Ok(400_000));
    // The server's first session ended after fifteen minutes, and removed nothing.
    assert!(world.now > at(900_000));
    assert!(world.content(1, "g").unwrap() == content);
    let aborted = |reported: &&Indication| matches!(reported, Indication::Aborted { .. });
    assert_eq!(world.hosts[1].reported.iter().filter(aborted).count(), 1);
    assert_eq!(world.hosts[1].node.sessions(), 0);
}

#[test]
fn reply_texts_are_omitted_when_disabled() {
    let mut world = scps(|scps| scps.suppress = true);
    world.file(0, "f", b"content");
    let id = put(&mut world, "f", "g");
    world.run();
    assert_eq!(outcome(&world, id), Ok(7));
    let of_server: Vec<_> =
        world.lines.iter().filter(|(host, _)| *host == 1).map(|(_, line)| line.as_str()).collect();
    assert!(of_server.contains(&"226") && of_server.contains(&"150"), "{of_server:?}");
}

#[test]
fn servers_report_what_they_support() {
    let lines = [
        "USER a",
        "PASS b",
        "IDLE 0",
        "IDLE 100",
        "BETS",
        "NBES",
        "SITE crcon",
        "SITE else",
        "INTR",
        "READ f",
        "UPDT f",
        "COPY a b",
        "NARS",
        "ARST",
        "SUPP",
        "NOOP",
    ];
    let codes = talk_to(&lines, ServerConfig { scps: true, ..ServerConfig::default() });
    let codes: Vec<_> = codes.iter().map(|line| line[..3].to_owned()).collect();
    assert_eq!(
        codes,
        [
            "220", "331", "230", "501", "200", "250", "250", "216", "504", "226", "425", "501",
            "550", "200", "200", "211", "200"
        ]
    );
    // One that only supports FTP does none of it.
    let codes = talk_to(&["USER a", "PASS b", "ARST", "INTR"], ServerConfig::default());
    assert!(codes[3].starts_with("502") && codes[4].starts_with("502"), "{codes:?}");
}
