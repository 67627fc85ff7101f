//! Content of captures and traces.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::Time;
use link::{ErrorKind, ErrorModel};
use pcap::{Checksum, LinkType, Reader, Record};
use slowlight_sim::{Limit, LinkEnd, Outcome, TraceRow};

use super::toy::*;

/// Ten datagrams and the replies; the third is lost, the fifth damaged.
struct Recorded {
    near: Vec<u8>,
    far: Vec<u8>,
    rows: Vec<String>,
}

fn record(framed: bool) -> Recorded {
    let mut config = line(Duration::from_millis(50));
    if !framed {
        config.framing = link::Framing::Raw;
    }
    let mut forward = config.clone();
    forward.errors = vec![
        ErrorModel::dropping(ErrorKind::DropList(vec![2])),
        ErrorModel::damaging(ErrorKind::DropList(vec![4])),
    ];
    let Pair { mut world, earth, moon, forward: link, back } = pair(|host| host, &config);
    let change = move |link: &mut link::Link<slowlight_sim::Packet>, now| {
        link.set_config(now, forward).unwrap();
    };
    world.schedule(Time::ZERO, slowlight_sim::Action::SetLink(link, Box::new(change)));
    let (near, far) = (Shared::default(), Shared::default());
    world.capture(link, LinkEnd::Near, near.clone()).unwrap();
    world.capture_host_link(moon, earth, far.clone()).unwrap();
    let rows = Arc::new(Mutex::new(vec![TraceRow::HEADER.to_owned()]));
    let sink = Arc::clone(&rows);
    world.trace(
        |data: &[u8]| ("number", Some(u64::from(data[3]))),
        move |row| sink.lock().unwrap().push(row.to_string()),
    );
    assert_eq!(world.run_until(Time::from_secs(1)), Outcome::Idle);
    world.call(moon, |toy, _| toy.echo = true);
    world.call(earth, |toy, _| toy.send(10, 1000));
    assert_eq!(world.run(Limit::default()), Outcome::Idle);
    assert_eq!(world.link_stats(back).delivered.packets, 8);
    world.finish_captures().unwrap();
    let rows = rows.lock().unwrap().clone();
    Recorded { near: near.bytes(), far: far.bytes(), rows }
}

fn records(bytes: &[u8]) -> Vec<Record> {
    Reader::new(bytes).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn the_near_end_shows_fates_and_the_far_end_what_arrives() {
    let Recorded { near, far, .. } = record(true);
    let (near, far) = (records(&near), records(&far));
    // Ten out, eight back: one is lost and one fails its checksum.
    assert_eq!((near.len(), far.len()), (18, 17));
    assert!(near.is_sorted_by_key(|record| record.at) && far.is_sorted_by_key(|r| r.at));
    let comments: Vec<_> = near.iter().filter_map(|record| record.comment.as_deref()).collect();
    assert_eq!(comments, ["lost on the way: drop list", "damaged on the way"]);
    assert!(far.iter().all(|record| record.comment.is_none()));
    assert_eq!(near[0].at, Time::from_secs(1));
    // 1,042 bytes at 10 Mbit/s and 50 ms.
    assert_eq!(far[0].at, Time::from_nanos(1_050_833_600));
    assert_eq!(near[0].interface_name.as_deref(), Some("earth-moon"));
    assert_eq!((near[0].link_type, near[0].bytes.len()), (LinkType::Ethernet, 1042));
    let datagram = near[0].udp().unwrap();
    assert_eq!((datagram.ip.source, datagram.ip.destination), (EARTH, MOON));
    assert_eq!((datagram.udp.source, datagram.data.len(), datagram.ip.id), (PORT, 1000, 0));
    let intact = |record: &&Record| {
        record.udp().is_some_and(|datagram| datagram.checksum == Checksum::Right)
    };
    assert_eq!(near.iter().filter(intact).count(), 18);
    assert_eq!(far.iter().filter(intact).count(), 16);
}

#[test]
fn a_trace_reports_every_packet() {
    let Recorded { rows, .. } = record(true);
    assert_eq!(rows.len(), 1 + 10 + 8);
    assert_eq!(rows[0], TraceRow::HEADER);
    assert_eq!(rows[1], "1.000000000\t1.050833600\tearth\tmoon\t1028\tnumber\t0\tdelivered");
    let fates = |fate: &str| rows.iter().filter(|row| row.ends_with(fate)).count();
    assert_eq!((fates("lost: drop list"), fates("\tdamaged")), (1, 1));
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let (one, two) = (record(false), record(false));
    assert_eq!(one.near, two.near);
    assert_eq!(one.far, two.far);
    assert_eq!(one.rows, two.rows);
    assert_eq!(records(&one.near)[0].link_type, LinkType::Raw);
}

#[test]
fn unrelated_hosts_change_nothing() {
    let run = |more: bool| {
        let mut config = line(Duration::from_millis(50));
        config.errors = vec![ErrorModel::dropping(ErrorKind::PerPacket(0.3))];
        let Pair { mut world, earth, moon, .. } = pair(|host| host, &config);
        if more {
            let address = std::net::Ipv4Addr::new(10, 7, 7, 7);
            let mars = world.add_host(slowlight_sim::HostConfig::new("mars", address));
            world.add_link(mars, earth, config.clone()).unwrap();
            world.add_link(earth, mars, config).unwrap();
        }
        world.call(earth, |toy, _| toy.send(200, 1000));
        assert_eq!(world.run(Limit::default()), Outcome::Idle);
        received(&world.drain_indications(), moon)
    };
    assert!((100..180).contains(&run(false).len()));
    assert_eq!(run(false), run(true));
}

/// Returns tshark's output for a capture; `None` without tshark.
fn tshark(bytes: &[u8], arguments: &[&str]) -> Option<Vec<u8>> {
    let name = format!("slowlight-{}-{}.pcapng", std::process::id(), arguments.len());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, bytes).unwrap();
    let output = Command::new("tshark").arg("-r").arg(&path).args(arguments).output();
    std::fs::remove_file(&path).unwrap();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(output.stdout)
        }
        Err(error) => {
            testing::skipped!("tshark does not start: {error}");
            None
        }
    }
}

#[test]
fn tshark_agrees() {
    let fields = [
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "udp.check_checksum:TRUE",
        "-T",
        "fields",
        "-e",
        "frame.time_epoch",
        "-e",
        "frame.interface_name",
        "-e",
        "ip.checksum.status",
        "-e",
        "udp.checksum.status",
        "-e",
        "udp.length",
        "-e",
        "frame.comment",
    ];
    for framed in [true, false] {
        let Recorded { near, far, .. } = record(framed);
        let (Some(near), Some(far)) = (tshark(&near, &fields), tshark(&far, &fields)) else {
            return;
        };
        let (near, far) = (String::from_utf8(near).unwrap(), String::from_utf8(far).unwrap());
        let near: Vec<_> = near.lines().collect();
        assert_eq!(near.len(), 18);
        assert_eq!(near[0], "1.000000000\tearth-moon\t1\t1\t1008\t");
        assert!(near[2].ends_with("\tlost on the way: drop list"), "{}", near[2]);
        assert!(near.iter().all(|line| line.contains("\tearth-moon\t1\t1\t1008\t")));
        let far: Vec<_> = far.lines().collect();
        assert_eq!(far.len(), 17);
        let good = far.iter().filter(|line| line.contains("\tmoon-earth\t1\t1\t1008\t")).count();
        assert_eq!(good, 16, "one was damaged");
    }
}

#[test]
fn captures_written_by_tshark_are_read() {
    let Recorded { near, .. } = record(true);
    let ours = records(&near);
    for (format, resolution) in [("pcap", 1000), ("nsecpcap", 1), ("pcapng", 1)] {
        let Some(written) = tshark(&near, &["-F", format, "-w", "-"]) else { return };
        let theirs = records(&written);
        assert_eq!(theirs.len(), ours.len());
        for (theirs, ours) in theirs.iter().zip(&ours) {
            let at = ours.at.as_nanos() / resolution * resolution;
            assert_eq!((theirs.at.as_nanos(), &theirs.bytes), (at, &ours.bytes), "{format}");
            assert_eq!(theirs.link_type, LinkType::Ethernet);
        }
    }
}
