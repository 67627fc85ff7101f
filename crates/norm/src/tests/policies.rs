//! Policies for late receivers and for the scope and time of requests (RFC 5740 §5.2, §5.3), and
//! the estimated size of a group (§5.5.4).

use std::time::Duration;

use crate::message::{Body, Flags, Message, RequestFlags};

use super::group::Group;
use super::world::content;
use crate::{Config, EndGame, Failure, Indication, Nacking, RepairBoundary, SyncPolicy};

/// Sender of three files of 300,000 bytes, a quarter of a second each, and two receivers, the
/// second of which joins in the middle of the second file.
fn late(sync: SyncPolicy) -> Group {
    let mut config = Config::default();
    // Everything is available until the end.
    config.sender.end = EndGame::Flush;
    config.receiver.sync = sync;
    let mut group = Group::of(2, &config);
    group.hosts[2].is_on = false;
    for name in ["a", "b", "c"] {
        group.send(0, &content(300_000), name);
    }
    group.run_for(Duration::from_millis(380));
    group.hosts[2].is_on = true;
    group.run();
    group
}

fn got(group: &Group, host: usize) -> Vec<String> {
    let done = group.finished(host).into_iter().filter(|end| end.result.is_ok());
    done.map(|end| String::from_utf8_lossy(&end.info).into_owned()).collect()
}

#[test]
fn a_late_receiver_starts_by_its_policy() {
    for (sync, expected) in [
        (SyncPolicy::Current, &["c"][..]),
        (SyncPolicy::Object, &["b", "c"]),
        (SyncPolicy::All, &["a", "b", "c"]),
    ] {
        let group = late(sync);
        assert_eq!(got(&group, 1), ["a", "b", "c"]);
        let mut here = got(&group, 2);
        here.sort();
        assert_eq!(here, expected, "{sync:?}: {:#?}", group.transcript());
        // Objects that never existed are not reported.
        let spoken = group.hosts[2].indications.iter().filter(|indication| {
            matches!(indication, Indication::Started { .. } | Indication::Finished(_))
        });
        assert_eq!(spoken.count(), 2 * expected.len());
    }
}

#[test]
fn late_receivers_that_start_with_the_next_object_request_nothing() {
    let group = late(SyncPolicy::Current);
    assert_eq!(group.nacks(), 0, "{:#?}", group.transcript());
    assert!(late(SyncPolicy::Object).nacks() > 0);
}

/// NACKs of a receiver that request anything but NORM_INFO, and those that request it.
fn requested(group: &Group, host: usize) -> (usize, usize) {
    let mut found = (0, 0);
    for (_, from, bytes) in &group.log {
        let Ok(Message { body: Body::Nack(nack), .. }) = Message::decode(bytes) else { continue };
        if *from == host {
            let is_info = |flags: RequestFlags| flags == RequestFlags::INFO;
            let all_info = nack.requests.iter().all(|request| is_info(request.flags));
            found.0 += usize::from(!all_info);
            found.1 += usize::from(all_info);
        }
    }
    found
}

#[test]
fn receivers_request_only_what_their_policy_allows() {
    for nacking in [Nacking::Normal, Nacking::InfoOnly, Nacking::None] {
        let mut config = Config::default();
        config.sender.end = EndGame::Flush;
        config.receiver.nacking = nacking;
        let mut group = Group::of(1, &config);
        // The first segment of each object, and NORM_INFO of the second.
        let mut infos = 0;
        group.lose = Box::new(move |_, _, number, message| match &message.body {
            Body::Data(data) => number < 400 && data.id.symbol == 0,
            Body::Info(_) => {
                infos += 1;
                infos == 2
            }
            _ => false,
        });
        group.send(0, &content(30_000), "a");
        group.send(0, &content(30_000), "b");
        group.run();
        let (data, info) = requested(&group, 1);
        let infos = group.hosts[1]
            .indications
            .iter()
            .filter(|indication| matches!(indication, Indication::Info { .. }));
        let infos = infos.count();
        match nacking {
            Nacking::Normal => assert_eq!(got(&group, 1), ["a", "b"]),
            Nacking::InfoOnly => assert_eq!((data, info > 0, infos), (0, true, 2)),
            Nacking::None => assert_eq!((data, info, infos), (0, 0, 1)),
        }
        if nacking != Nacking::Normal {
            let ends: Vec<_> = group.finished(1).iter().map(|end| end.result.clone()).collect();
            assert_eq!(ends, [Err(Failure::Silence), Err(Failure::Silence)]);
            let acks = group.count(1, |body| matches!(body, Body::Ack(_)));
            assert!(acks > 0, "it is not silent");
        }
    }
}

#[test]
fn repairs_wait_for_the_boundary() {
    let first_nack = |boundary| {
        let mut config = Config::default();
        config.receiver.repair_boundary = boundary;
        let mut group = Group::of(1, &config);
        group.lose = Box::new(|_, _, number, message| {
            number < 20 && matches!(&message.body, Body::Data(data) if data.id.symbol == 3)
        });
        let file = content(600_000);
        group.send(0, &file, "a");
        group.send(0, &file, "b");
        group.run();
        ["a", "b"].into_iter().for_each(|name| group.assert_has(1, name, &file));
        let is_nack = |bytes: &[u8]| {
            matches!(Message::decode(bytes), Ok(Message { body: Body::Nack(_), .. }))
        };
        let first =
            group.log.iter().find(|(_, _, bytes)| is_nack(bytes)).expect("something was lost");
        first.0.as_secs_f64()
    };
    // The first block of ten ends after 0.05 s, the first object after half a second.
    assert!(first_nack(RepairBoundary::Block) < 0.3);
    assert!((0.4..0.8).contains(&first_nack(RepairBoundary::Object)));
}

#[test]
fn large_requests_are_split_into_messages() {
    let mut config = Config::default();
    config.sender.fec = crate::message::Scheme::NoCode;
    let info = engine::PathInfo { rate_bps: Some(1_000_000), ..engine::PathInfo::datagram(128) };
    let mut group = Group::on(vec![config; 2], info);
    group.lose = Box::new(|_, _, number, message| {
        number < 320 && matches!(&message.body, Body::Data(data) if data.id.symbol % 2 == 0)
    });
    let file = content(25_000);
    group.send(0, &file, "copy");
    group.run();
    group.assert_has(1, "copy", &file);
    let nacks = group.log.iter().filter(|(_, _, bytes)| {
        matches!(Message::decode(bytes), Ok(Message { body: Body::Nack(_), .. }))
    });
    let times: Vec<_> = nacks.map(|(at, ..)| at.as_secs_f64()).collect();
    // Half of a block of 64 is 32 requests of 8 bytes: three messages of 128 bytes, one after the
    // other.
    assert!(times.windows(3).any(|three| three[2] - three[0] < 0.01), "{times:?}");
    // Retransmissions are flagged.
    let marked = |with: Flags, without: Flags| {
        group.count(0, |body| {
            matches!(body, Body::Data(data) if data.flags.contains(with) && !data.flags.contains(without))
        })
    };
    assert!(
        group.count(
            0,
            |body| matches!(body, Body::Data(data) if data.flags.contains(Flags::REPAIR))
        ) > 50
    );
    assert_eq!(marked(Flags::REPAIR, Flags::EXPLICIT) + marked(Flags::EXPLICIT, Flags::REPAIR), 0);
}

#[test]
fn the_group_size_is_announced() {
    for (receivers, expected) in [(2, 10..=50), (40, 50..=500), (150, 100..=1000)] {
        let mut group = Group::of(receivers, &Config::default());
        // Over a minute, slowly.
        let info = engine::PathInfo { rate_bps: Some(200_000), ..group.info.clone() };
        for host in &mut group.hosts {
            host.store.close_all();
        }
        group.info = info.clone();
        let event = engine::PathEvent::Up(info);
        let input = engine::Input::Path(super::group::GROUP, event);
        engine::Engine::handle_input(&mut group.hosts[0].node, group.now, input);
        group.send(0, &content(1_500_000), "copy");
        group.run();
        let sizes = group.log.iter().filter_map(|(_, from, bytes)| {
            let message = Message::decode(bytes).expect("a message");
            let sender = message.body.sender().filter(|_| *from == 0)?;
            Some((crate::message::group_size(sender.group_size), sender.backoff))
        });
        let sizes: Vec<_> = sizes.collect();
        assert_eq!(sizes[0], (10, 1), "nothing is known yet");
        let last = sizes[sizes.len() - 1];
        assert!(expected.contains(&last.0), "{receivers}: {last:?}");
        assert!((1..=2).contains(&last.1), "{receivers}: {last:?}");
    }
    // The configured size is kept.
    let mut config = Config::default();
    config.sender.group_size = Some(5_000);
    let mut group = Group::of(2, &config);
    group.send(0, &content(50_000), "copy");
    group.run();
    let is_said = |body: &Body<'_>| {
        body.sender().is_some_and(|sender| sender.group_size == 0x0a && sender.backoff == 4)
    };
    assert_eq!(group.count(0, is_said), group.count(0, |_| true));
}
