//! Replies to the peer and the user: Keep Alive, prompted NAKs, reports, filestore responses.

use std::time::Duration;

use engine::{PathInfo, Time};

use super::hostile::{data, header, metadata, say, toward_sender};
use super::world::{ENTITIES, World, config, content, name, put_request};
use crate::pdu::{
    Body, ConditionCode, FilestoreAction, FilestoreStatus, Header, KeepAlive, PromptResponse,
    TransactionStatus,
};
use crate::test_world::path_info;
use crate::{FilestoreRequest, Indication, NakMode, PutRequest, Report, Role, State};

fn condition(world: &World, side: usize) -> Option<ConditionCode> {
    world.finished(side).map(|finished| finished.condition)
}

#[test]
fn a_receiver_that_falls_behind_reaches_the_keep_alive_limit() {
    let mut world = World::new(&config(|remote| {
        remote.keep_alive = Some(Duration::from_millis(20));
        remote.keep_alive_discrepancy = Some(100_000);
    }));
    world.hosts[0].store.insert(name("source"), content(2_000_000));
    world.put(put_request());
    // The receiver reports its progress, but gets no more data.
    world.lose(|side, number, datagram| side == 0 && number > 200 && datagram.len() > 99);
    world.run_until(Time::from_secs(2));
    assert_eq!(condition(&world, 0), Some(ConditionCode::KeepAliveLimitReached));
    // 200 PDUs and 100 kB take 0.25 s, the data in flight in 58 ms as long; the whole file 1.7 s.
    let ended = world.datagrams().into_iter().find(|line| line.text.starts_with("EOF"));
    let eof = ended.expect("an EOF that cancels");
    assert!(eof.at < Time::from_nanos(500_000_000), "{eof:?}");
}

#[test]
fn data_in_flight_does_not_count_as_lag() {
    // 2.5 MB are under way in the round trip of 4 s, of which the limit allows 0.1 MB.
    let mut world = World::with_path(
        &config(|remote| {
            remote.keep_alive = Some(Duration::from_millis(100));
            remote.keep_alive_discrepancy = Some(100_000);
        }),
        PathInfo { owlt: Some(Duration::from_secs(2)), rate_bps: Some(5_000_000), ..path_info() },
    );
    world.hosts[0].store.insert(name("source"), content(5_000_000));
    world.put(put_request());
    world.run();
    assert_eq!(condition(&world, 0), Some(ConditionCode::NoError));
}

/// An older Keep Alive arrives after a newer one.
#[test]
fn overtaken_keep_alives_do_not_count_as_lag() {
    for (reports, is_lag) in [([500_000, 100_000], false), ([100_000, 100_000], true)] {
        let mut world = World::new(&config(|remote| remote.keep_alive_discrepancy = Some(100_000)));
        world.hosts[0].store.insert(name("source"), content(2_000_000));
        let id = world.put(put_request());
        world.run_until(Time::from_nanos(500_000_000));
        for progress in reports {
            say(&mut world, 0, toward_sender(id), Body::KeepAlive(KeepAlive { progress }));
        }
        world.run();
        let expected =
            if is_lag { ConditionCode::KeepAliveLimitReached } else { ConditionCode::NoError };
        assert_eq!(condition(&world, 0), Some(expected), "{reports:?}");
    }
}

#[test]
fn prompts_receive_replies() {
    let mut world = World::new(&config(|remote| remote.naks.mode = NakMode::Prompted));
    world.hosts[0].store.insert(name("source"), content(200_000));
    let id = world.put(put_request());
    // The third data PDU is lost.
    world.lose(|side, number, _| side == 0 && number == 3);
    world.run_until(Time::from_nanos(60_000_000));
    for response in [PromptResponse::Nak, PromptResponse::KeepAlive] {
        world.hosts[0].engine.prompt(world.now, id, response).expect("it is under way");
    }
    world.drain(0);
    world.run_until(Time::from_nanos(140_000_000));
    let lines = world.transcript();
    let nak = lines.iter().find(|line| line.starts_with("< NAK 0-")).expect("a NAK");
    assert!(nak.matches('-').count() == 2, "one gap: {nak}");
    assert!(lines.iter().any(|line| line.starts_with("< Keep Alive ")), "{lines:?}");
    world.run();
    assert_eq!(condition(&world, 0), Some(ConditionCode::NoError));
}

#[test]
fn progress_is_confirmed_while_a_file_is_sent() {
    let every = Duration::from_millis(20);
    let mut world = World::new(&config(|remote| remote.progress_prompt = Some(every)));
    world.hosts[0].store.insert(name("source"), content(200_000));
    world.put(put_request());
    let report = |world: &World| world.hosts[0].engine.transactions().next().expect("under way");
    world.run_until(Time::from_nanos(15_000_000));
    assert_eq!(report(&world).confirmed, None, "no reply can be here");
    world.run_until(Time::from_nanos(120_000_000));
    let progress = report(&world);
    let confirmed = progress.confirmed.expect("a Keep Alive arrived");
    assert!((20_000..progress.progress).contains(&confirmed), "{progress:?}");
    world.run();
    assert_eq!(condition(&world, 0), Some(ConditionCode::NoError));
    let lines = world.transcript();
    let eof = lines.iter().position(|line| line.starts_with("> EOF")).expect("an EOF");
    let prompt = |line: &String| line.starts_with("> Prompt");
    // Of 168 ms of data.
    assert_eq!(lines[..eof].iter().filter(|line| prompt(line)).count(), 8, "{lines:#?}");
    assert!(!lines[eof..].iter().any(prompt), "{lines:#?}");
}

fn reports(world: &World, side: usize) -> Vec<Report> {
    let indications = world.hosts[side].indications.iter();
    indications
        .filter_map(|indication| match indication {
            Indication::Report(report) => Some(report.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn reports_show_the_progress_of_a_transaction() {
    let mut world = World::new(&config(|_| {}));
    world.hosts[0].store.insert(name("source"), content(200_000));
    let id = world.put(put_request());
    world.run_until(Time::from_nanos(100_000_000));
    for side in 0..2 {
        world.hosts[side].engine.report(world.now, id).expect("it is under way");
        world.drain(side);
    }
    let [sender, receiver] = [0, 1].map(|side| reports(&world, side).remove(0));
    for (report, role, peer) in
        [(&sender, Role::Sender, ENTITIES[1]), (&receiver, Role::Receiver, ENTITIES[0])]
    {
        assert_eq!((report.id, report.role, report.peer.0), (id, role, peer));
        assert_eq!((report.size, report.state), (Some(200_000), State::Transferring));
        assert_eq!(report.condition, ConditionCode::NoError);
        assert_eq!(report.status, TransactionStatus::Active);
        assert_eq!((&*report.source_name, &*report.destination_name), ("source", "copy"));
    }
    // 10 Mbit/s for 0.1 s, and 25 ms later.
    assert!((100_000..125_000).contains(&sender.progress), "{sender:?}");
    assert!((70_000..95_000).contains(&receiver.progress), "{receiver:?}");
    world.hosts[0].engine.suspend(world.now, id).expect("it is under way");
    world.hosts[0].engine.report(world.now, id).expect("it is suspended");
    world.drain(0);
    assert_eq!(reports(&world, 0)[1].state, State::Suspended);
}

#[test]
fn all_nine_filestore_actions_are_carried_out() {
    let request = |action, first: &str, second: &str| FilestoreRequest {
        action,
        first: first.to_owned(),
        second: second.to_owned(),
    };
    let mut world = World::new(&config(|_| {}));
    for file in ["old", "victim", "unwanted", "tail"] {
        world.hosts[1].store.insert(name(file), file.as_bytes().to_vec());
    }
    let filestore_requests = vec![
        request(FilestoreAction::CreateFile, "new", ""),
        request(FilestoreAction::DeleteFile, "victim", ""),
        request(FilestoreAction::CreateDirectory, "dir", ""),
        request(FilestoreAction::RenameFile, "old", "dir/renamed"),
        request(FilestoreAction::AppendFile, "dir/renamed", "tail"),
        request(FilestoreAction::ReplaceFile, "new", "dir/renamed"),
        request(FilestoreAction::CreateDirectory, "short", ""),
        request(FilestoreAction::RemoveDirectory, "short", ""),
        request(FilestoreAction::DenyFile, "unwanted", ""),
        request(FilestoreAction::DenyFile, "not there", ""),
        request(FilestoreAction::DenyDirectory, "not there", ""),
        request(FilestoreAction::CreateDirectory, "denied", ""),
        request(FilestoreAction::DenyDirectory, "denied", ""),
    ];
    let count = filestore_requests.len();
    world.put(PutRequest { destination: ENTITIES[1], filestore_requests, ..PutRequest::default() });
    world.run();
    for side in 0..2 {
        let end = world.finished(side).expect("it ends");
        assert_eq!(end.condition, ConditionCode::NoError);
        let statuses: Vec<_> = end.filestore_responses.iter().map(|r| r.status).collect();
        assert_eq!(statuses, vec![FilestoreStatus::SUCCESSFUL; count], "{:?}", statuses);
    }
    let store = &world.hosts[1].store;
    assert_eq!(store.get(&name("new")), Some(&b"oldtail"[..]));
    assert_eq!(store.get(&name("victim")), None);
    assert_eq!(store.get(&name("unwanted")), None);
    assert_eq!(store.get(&name("old")), None);
    // A removed file cannot be removed again, and a created one exists.
    let filestore_requests = vec![
        request(FilestoreAction::CreateDirectory, "dir", ""),
        request(FilestoreAction::RemoveDirectory, "short", ""),
        request(FilestoreAction::RemoveDirectory, "denied", ""),
    ];
    for request in filestore_requests {
        let filestore_requests = vec![request.clone()];
        let put = PutRequest { filestore_requests, ..PutRequest::default() };
        world.put(PutRequest { destination: ENTITIES[1], ..put });
        world.run();
        let end = world.finished(1).expect("it ends");
        let status = end.filestore_responses[0].status;
        assert_ne!(status, FilestoreStatus::SUCCESSFUL, "{request:?}");
    }
}

#[test]
fn gaps_beyond_four_gigabytes_are_requested() {
    let mut world = World::new(&config(|remote| remote.naks.mode = NakMode::Immediate));
    let large = Header { large_file: true, ..header(1) };
    say(&mut world, 1, large, metadata(5 << 30));
    say(&mut world, 1, large, data(0, b"abcd"));
    let far = (1 << 32) + 100;
    say(&mut world, 1, large, data(far, b"abcd"));
    world.run_until(Time::from_nanos(10_000_000));
    let lines = world.transcript();
    assert!(lines.iter().any(|line| *line == format!("< NAK 4-{far}: 4-{far}")), "{lines:?}");
}
