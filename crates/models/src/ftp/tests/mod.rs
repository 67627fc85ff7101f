//! Conversations of a client with a server.

mod relay;
mod scps;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{FileName, FilestoreRequest, PathEffect, PathId, StreamEffect, Time};
use proptest::prelude::*;

use super::*;
use world::{SERVER, World};

fn worlds() -> World {
    World::new([Config::default(), Config::default()])
}

fn with(client: ClientConfig, server: ServerConfig) -> World {
    let ours = Config { client, ..Config::default() };
    World::new([ours, Config { server, ..Config::default() }])
}

fn file(name: &str) -> FileName {
    FileName::file(name).unwrap()
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn put(world: &mut World, name: &str, to: &str) -> RequestId {
    world.on_node(0, |node| node.put(SERVER, file(name), to).unwrap())
}

fn outcome(world: &World, id: RequestId) -> Result<u64, Failure> {
    ended(&world.hosts[0].reported, id)
}

/// Result of a request, by the indications of its user.
fn ended(reported: &[Indication], id: RequestId) -> Result<u64, Failure> {
    let mut found = reported.iter().filter_map(|reported| match reported {
        Indication::Finished { request, bytes, .. } if *request == id => Some(Ok(*bytes)),
        Indication::Failed { request, why } if *request == id => Some(Err(why.clone())),
        _ => None,
    });
    let outcome = found.next().expect("the request ended");
    assert_eq!(found.next(), None, "it ended once");
    outcome
}

#[test]
fn a_file_is_stored_by_the_dialogue_of_rfc_959() {
    let mut world = worlds();
    let content = bytes(300_000);
    world.file(0, "a.bin", &content);
    let id = put(&mut world, "a.bin", "b.bin");
    world.run();
    assert_eq!(outcome(&world, id), Ok(300_000));
    assert!(world.content(1, "b.bin").unwrap() == content);
    let lines: Vec<_> = world.lines.iter().map(|(host, line)| (*host, line.as_str())).collect();
    let expected = [
        (1, "220 slowlight"),
        (0, "USER anonymous"),
        (1, "331 The password, please."),
        (0, "PASS slowlight@"),
        (1, "230 Logged in."),
        (0, "TYPE I"),
        (1, "200 The type is set."),
        (0, "PASV"),
        (1, "227 Entering Passive Mode (10,0,0,2,19,137)"),
        (0, "STOR b.bin"),
        (1, "150 The data connection follows."),
        (1, "226 It is done."),
        (0, "QUIT"),
        (1, "221 Goodbye."),
    ];
    assert_eq!(lines, expected);
    let received = |reported: &Indication| matches!(reported, Indication::Received { bytes: 300_000, name, .. } if name == "b.bin");
    assert!(world.hosts[1].reported.iter().any(received), "{:?}", world.hosts[1].reported);
    assert_eq!(world.hosts[1].node.sessions(), 0);
}

#[test]
fn files_are_fetched_in_active_and_passive_mode() {
    for data in [DataConnection::Pasv, DataConnection::Epsv, DataConnection::Port] {
        for length in [0, 1, 65_536, 200_000] {
            let client = ClientConfig { data, ..ClientConfig::default() };
            let mut world = with(client, ServerConfig::default());
            let content = bytes(length);
            world.file(1, "there", &content);
            let id = world.on_node(0, |node| node.get(SERVER, "/there", file("here")).unwrap());
            world.run();
            assert_eq!(outcome(&world, id), Ok(length as u64), "{data:?}");
            assert!(world.content(0, "here").unwrap() == content);
        }
    }
}

#[test]
fn several_requests_share_a_control_connection_and_one_failure_spoils_none() {
    let mut world = worlds();
    world.file(0, "a", b"alpha");
    world.file(1, "b", b"beta");
    let (one, two, three) = world.on_node(0, |node| {
        (
            node.put(SERVER, file("a"), "a").unwrap(),
            node.get(SERVER, "missing", file("x")).unwrap(),
            node.get(SERVER, "b", file("b")).unwrap(),
        )
    });
    let none = put(&mut world, "not here", "c");
    world.run();
    assert_eq!(outcome(&world, one), Ok(5));
    let Err(Failure::Reply(reply)) = outcome(&world, two) else { panic!("a reply") };
    assert_eq!(reply.code, 550);
    assert_eq!(outcome(&world, three), Ok(4));
    assert!(matches!(outcome(&world, none), Err(Failure::Store(_))));
    assert_eq!(world.content(0, "b").unwrap(), b"beta");
    assert_eq!(world.content(0, "x"), None);
    let users = world.lines.iter().filter(|(_, line)| line.starts_with("USER")).count();
    assert_eq!(users, 1);
    // The working file of a failed transfer was removed.
    assert_eq!(world.hosts[0].store.names(engine::Area::Spool).count(), 0);
}

#[test]
fn text_transfers_convert_line_ends() {
    let client = ClientConfig { representation: Representation::Ascii, ..ClientConfig::default() };
    let mut world = with(client, ServerConfig::default());
    world.piece = 1;
    world.file(0, "a.txt", b"one\ntwo\r\nthree\rfour\n");
    let id = put(&mut world, "a.txt", "b.txt");
    world.run();
    // Twenty bytes; two line feeds of three were sent with a carriage return.
    assert_eq!(outcome(&world, id), Ok(22));
    assert_eq!(world.content(1, "b.txt").unwrap(), b"one\ntwo\nthree\rfour\n");
}

#[test]
fn wrong_passwords_and_missing_connections_are_reported() {
    let accounts = Accounts::Named(BTreeMap::from([("anna".into(), "secret".into())]));
    let server = ServerConfig { accounts, ..ServerConfig::default() };
    let client = |password: &str| ClientConfig {
        user: "anna".into(),
        password: password.into(),
        ..ClientConfig::default()
    };
    for (password, code) in [("secret", None), ("guess", Some(530))] {
        let mut world = with(client(password), server.clone());
        world.file(0, "a", b"alpha");
        let id = put(&mut world, "a", "a");
        world.run();
        match (outcome(&world, id), code) {
            (Ok(5), None) => {}
            (Err(Failure::Reply(reply)), Some(code)) => assert_eq!(reply.code, code),
            other => panic!("{other:?}"),
        }
    }
    let mut world = worlds();
    world.firewall = true;
    world.file(0, "a", b"alpha");
    let id = put(&mut world, "a", "a");
    world.run();
    assert!(matches!(outcome(&world, id), Err(Failure::Data(_))));
    assert_eq!(world.hosts[1].node.sessions(), 0);
}

#[test]
fn broken_data_connections_end_only_their_request() {
    let mut world = worlds();
    world.file(0, "a", &bytes(5_000_000));
    world.file(0, "b", b"beta");
    let (one, two) = (put(&mut world, "a", "a"), put(&mut world, "b", "b"));
    world.run_until(Time::from_secs(7));
    assert_eq!(world.streams(), 2, "the first file is under way");
    world.break_data();
    world.run();
    assert!(matches!(outcome(&world, one), Err(Failure::Data(_) | Failure::Reply(_))));
    assert_eq!(outcome(&world, two), Ok(4));
    let aborted = |reported: &Indication| matches!(reported, Indication::Aborted { .. });
    assert!(world.hosts[1].reported.iter().any(aborted));
    // Data from before the break exists, so that a client can resume after it.
    let length = world.content(1, "a").unwrap().len();
    assert!(length > 100_000 && length < 5_000_000, "{length}");
}

#[test]
fn partial_files_never_count_as_complete() {
    // A client cancels its upload; a sender's store fails in the middle.
    for (host, fetch) in [(0, false), (0, true), (1, true)] {
        let mut world = worlds();
        let id = if fetch {
            world.file(1, "a", &bytes(2_000_000));
            world.on_node(0, |node| node.get(SERVER, "a", file("b")).unwrap())
        } else {
            world.file(0, "a", &bytes(2_000_000));
            put(&mut world, "a", "b")
        };
        world.run_until(Time::from_secs(6));
        assert_eq!((world.streams(), world.resets), (2, 0), "it is under way");
        if host == 0 {
            let now = world.now;
            assert!(world.on_node(0, |node| node.cancel(now, id)));
        } else {
            world.fail_reads = true;
        }
        world.run();
        assert!(outcome(&world, id).is_err());
        assert_eq!(world.resets, 1, "{host} {fetch}");
        let whole = |reported: &Indication| matches!(reported, Indication::Received { .. });
        assert!(!world.hosts[1].reported.iter().any(whole));
        assert_eq!(world.content(0, "b"), None);
    }
}

/// A server's effects when another host than its client opens the data connection.
fn visited_by_another(third_party: bool, ours: bool) -> Vec<Effect> {
    let server = ServerConfig { third_party, ..ServerConfig::default() };
    let mut node = Node::new(Config { server, ..Config::default() });
    let ends = |peer: &str| {
        let ends = Some(("10.0.0.2:21".parse().unwrap(), peer.parse().unwrap()));
        PathInfo { ends, ..PathInfo::stream() }
    };
    let now = Time::ZERO;
    node.handle_input(now, Input::Path(PathId(9), PathEvent::Up(ends("10.0.0.1:4000"))));
    let lines = b"USER a\r\nPASS b\r\nPASV\r\n";
    node.handle_input(now, Input::Receive(engine::Receive::datagram(PathId(9), lines)));
    let Some(Effect::Stream(StreamEffect::Listen { ticket, .. })) = node.poll_effect() else {
        panic!("it listens")
    };
    let address = Completion::Listening("10.0.0.2:5000".parse().unwrap());
    node.handle_input(now, Input::Done(ticket, Ok(address)));
    let peer = if ours { "10.0.0.1:4001" } else { "10.0.0.66:4001" };
    let info = PathInfo { ticket: Some(ticket), ..ends(peer) };
    node.handle_input(now, Input::Path(PathId(10), PathEvent::Up(info)));
    std::iter::from_fn(|| node.poll_effect()).collect()
}

#[test]
fn foreign_data_connections_are_reset_unless_allowed() {
    let path = PathId(10);
    assert_eq!(visited_by_another(false, false), [Effect::Stream(StreamEffect::Reset { path })]);
    // Data before the command is held back.
    let kept = [Effect::Path(PathEffect::PauseRead { path })];
    assert_eq!(visited_by_another(false, true), kept);
    assert_eq!(visited_by_another(true, false), kept);
}

#[test]
fn clients_connect_to_the_server_despite_the_pasv_address() {
    for (third_party, goal) in [(false, "10.0.0.2:1540"), (true, "10.9.9.9:1540")] {
        let client = ClientConfig { third_party, ..ClientConfig::default() };
        let mut node = Node::new(Config { client, ..Config::default() });
        let now = Time::ZERO;
        node.get(PathId(1), "f", file("f")).unwrap();
        let ends = Some(("10.0.0.1:4000".parse().unwrap(), "10.0.0.2:21".parse().unwrap()));
        let info = PathInfo { ends, ..PathInfo::stream() };
        node.handle_input(now, Input::Path(PathId(1), PathEvent::Up(info)));
        let say = |node: &mut Node, lines: &[u8]| {
            let lines = engine::Receive::datagram(PathId(1), lines);
            node.handle_input(now, Input::Receive(lines));
            std::iter::from_fn(|| node.poll_effect()).collect::<Vec<_>>()
        };
        let effects = say(&mut node, b"220 a\r\n230 b\r\n200 c\r\n");
        let ticket = effects.iter().find_map(Effect::ticket).unwrap();
        let opened = Completion::Opened { file: engine::FileId(1), len: 0, modified: None };
        node.handle_input(now, Input::Done(ticket, Ok(opened)));
        let effects = say(&mut node, b"227 Passive (10,9,9,9,6,4)\r\n");
        let [Effect::Stream(StreamEffect::Connect { to, .. })] = effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(to, goal.parse().unwrap());
    }
}

#[test]
fn silence_ends_a_session() {
    let server = ServerConfig { idle: Duration::from_secs(30), ..ServerConfig::default() };
    let mut node = Node::new(Config { server, ..Config::default() });
    let up = PathEvent::Up(PathInfo::stream());
    node.handle_input(Time::ZERO, Input::Path(PathId(9), up));
    let mut tx = TxBuf::new(1);
    assert!(node.poll_transmit(Time::ZERO, &mut tx).is_some());
    assert_eq!(node.poll_timeout().unwrap().at, Time::from_secs(30));
    node.handle_timeout(Time::from_secs(30));
    tx.clear();
    assert!(node.poll_transmit(Time::from_secs(30), &mut tx).is_some());
    assert_eq!(tx.bytes(), b"421 Nothing came for too long.\r\n");
    assert_eq!((node.sessions(), node.poll_timeout()), (0, None));
    assert_eq!(node.poll_effect(), Some(Effect::Path(PathEffect::Close { path: PathId(9) })));
}

/// Replies of a server to lines of a client, one after the other.
fn talk(lines: &[&str]) -> Vec<String> {
    talk_to(lines, ServerConfig::default())
}

fn talk_to(lines: &[&str], server: ServerConfig) -> Vec<String> {
    let mut world = with(ClientConfig::default(), server);
    let make = FilestoreRequest::CreateDirectory(file("dir"));
    world.hosts[1].store.execute(StoreEffect::Filestore { ticket: Ticket(0), request: make });
    world.file(1, "dir/inner.txt", b"12345");
    world.file(1, "top", &[1; 1000]);
    let path = PathId(9);
    let info = PathInfo {
        ends: Some(("10.0.0.2:21".parse().unwrap(), "10.0.0.1:4000".parse().unwrap())),
        ..PathInfo::stream()
    };
    let host = &mut world.hosts[1];
    let now = Time::ZERO;
    let mut replies = Vec::new();
    let mut input = |host: &mut world::Host, input: Input<'_>| {
        host.node.handle_input(now, input);
        loop {
            let mut idle = true;
            while let Some(effect) = host.node.poll_effect() {
                idle = false;
                let Effect::Store(effect) = effect else { continue };
                if let Some((ticket, answer)) = host.store.execute(effect) {
                    host.node.handle_input(now, Input::Done(ticket, answer));
                }
            }
            let mut tx = TxBuf::new(1);
            while host.node.poll_transmit(now, &mut tx).is_some() {
                idle = false;
                let text = String::from_utf8(tx.bytes().to_vec()).unwrap();
                replies.extend(text.lines().map(str::to_owned));
                tx.clear();
            }
            if idle {
                break;
            }
        }
    };
    input(host, Input::Path(path, PathEvent::Up(info)));
    for line in lines {
        let line = format!("{line}\r\n");
        input(host, Input::Receive(engine::Receive::datagram(path, line.as_bytes())));
    }
    replies
}

#[test]
fn servers_reply_to_each_command_with_its_code() {
    let cases = [
        ("PWD", "257 \"/\""),
        ("SIZE top", "550"),
        ("TYPE I", "200"),
        ("SIZE top", "213 1000"),
        ("SIZE ../../top", "213 1000"),
        ("SIZE .slowlight/x", "553"),
        ("CWD dir", "250"),
        ("PWD", "257 \"/dir\""),
        ("SIZE inner.txt", "213 5"),
        ("SIZE /top", "213 1000"),
        ("CDUP", "250"),
        ("CWD nowhere", "550"),
        ("MKD new", "257"),
        ("MKD new", "550"),
        ("RMD new", "250"),
        ("RNTO x", "503"),
        ("RNFR top", "350"),
        ("RNTO /dir/moved", "250"),
        ("SIZE dir/moved", "213 1000"),
        ("DELE dir/moved", "250"),
        ("DELE dir/moved", "550"),
        ("MODE S", "200"),
        ("MODE B", "504"),
        ("STRU F", "200"),
        ("STRU R", "504"),
        ("TYPE E", "501"),
        ("RETR top", "425"),
        ("PORT 10,0,0,9,200,1", "504"),
        ("PORT 10,0,0,1,0,22", "504"),
        ("PORT 10,0,0,1,200,1", "200"),
        ("REST 5", "350"),
        ("SITE chmod 777 x", "502"),
        ("WHAT is this", "500"),
        ("STAT", "211"),
        ("SYST", "215"),
        ("REIN", "220"),
        ("PWD", "530"),
        ("QUIT", "221"),
    ];
    let mut lines = vec!["PWD", "PASS x", "USER anna", "PASS secret"];
    lines.extend(cases.iter().map(|(line, _)| *line));
    let lines = talk(&lines);
    let expected = ["220", "530", "503", "331", "230"].into_iter();
    let expected: Vec<_> = expected.chain(cases.iter().map(|(_, reply)| *reply)).collect();
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (index, (line, expected)) in lines.iter().zip(expected).enumerate() {
        assert!(line.starts_with(expected), "reply {index}: {line}, wanted {expected}");
    }
}

#[test]
fn sessions_and_requests_are_bounded() {
    let mut node = Node::new(Config {
        limits: Limits { sessions: 2, requests: 1, ..Limits::default() },
        ..Config::default()
    });
    for path in 0..3 {
        let up = PathEvent::Up(PathInfo::stream());
        node.handle_input(Time::ZERO, Input::Path(PathId(path), up));
    }
    assert_eq!(node.sessions(), 2);
    assert_eq!(node.poll_indication(), Some(Indication::Refused { path: PathId(2) }));
    node.put(PathId(7), file("a"), "a").unwrap();
    assert_eq!(node.put(PathId(7), file("a"), "a"), Err(RequestError::Full));
    assert_eq!(node.put(PathId(8), file("a"), "a\r\nDELE b"), Err(RequestError::Name));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn files_of_any_length_arrive_in_pieces_of_any_size(
        length in 0..400_000usize,
        piece in 1..70_000usize,
        fetch in any::<bool>(),
        data in 0..3usize,
    ) {
        let data = [DataConnection::Pasv, DataConnection::Epsv, DataConnection::Port][data];
        let client = ClientConfig { data, ..ClientConfig::default() };
        let mut world = with(client, ServerConfig::default());
        world.piece = piece.max(length / 2000 + 1);
        let content = bytes(length);
        let id = if fetch {
            world.file(1, "f", &content);
            world.on_node(0, |node| node.get(SERVER, "f", file("g")).unwrap())
        } else {
            world.file(0, "f", &content);
            put(&mut world, "f", "g")
        };
        world.run();
        prop_assert_eq!(outcome(&world, id), Ok(length as u64));
        prop_assert!(world.content(usize::from(!fetch), "g").unwrap() == content);
    }

    #[test]
    fn random_input_does_not_break_a_node(
        lines in proptest::collection::vec(
            "\\PC{0,30}|(USER|PASS|TYPE I|PASV|PORT 10,0,0,1,9,9|STOR a|RETR a|LIST|ABOR|QUIT|REST 9)",
            0..40,
        )
    ) {
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        prop_assert!(!talk(&lines).is_empty());
    }
}
