//! Numbered requirements of RFC 9293 not covered by other tests, with exact segments.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use engine::{Ecn, Engine as _, Receive};

use super::raw::{ACK, FIN, ISN, RST, Raw, Received, SYN, brief};
use super::world::{PATH, PORT, User, World, content, finished, mend_checksum};
use crate::packet;
use crate::segment::{Flags, Header, TcpOption};
use crate::{
    Backlog, Buffer, CloseReason, Config, Cookies, KeepAlive, Options, Profile, RequestError, State,
};

const MSS: [TcpOption<'static>; 1] = [TcpOption::MaximumSegmentSize(1460)];

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn sizes(received: &[Received]) -> Vec<(u32, usize)> {
    received.iter().map(|h| (h.sequence, h.len)).collect()
}

fn raw() -> Raw {
    Raw::new(Config::default())
}

/// An acknowledgment of all before `at`, with this window.
fn window(raw: &mut Raw, at: u32, window: u16) -> Vec<Received> {
    let acknowledgment = raw.absolute(at);
    let header =
        Header { sequence: ISN + 1, acknowledgment, flags: ACK, window, ..Header::default() };
    raw.say_exactly(header, &[], &[])
}

/// MUST-14, MUST-15, MUST-65, MUST-67, SHLD-5: 536 = 576 - 40, 1220 = 1280 - 60.
#[test]
fn only_syns_announce_the_mss_and_it_has_a_default() {
    let v4: [SocketAddr; 2] = [([10, 0, 0, 2], PORT).into(), ([10, 0, 0, 1], 4000).into()];
    let v6: [SocketAddr; 2] = ["[fd00::2]:80".parse().unwrap(), "[fd00::1]:4000".parse().unwrap()];
    for ([local, remote], announced, default) in [(v4, 1460, 536), (v6, 1440, 1220)] {
        for cookies in [Cookies::Never, Cookies::Always] {
            let mut raw = raw().between(local, remote);
            raw.listen(Raw::bare(), Backlog { half_open: 1, cookies });
            assert_eq!(raw.say(SYN, (0, 0), &[], &[])[0].mss, Some(announced));
            raw.say(ACK, (1, 1), &[], &[]);
            let id = raw.incoming().expect("it is established");
            let data = raw.write(id, 5000);
            assert_eq!(data[0].len, default, "{cookies:?}");
            assert!(data.iter().all(|received| received.mss.is_none()));
        }
        let mut raw = raw().between(local, remote);
        raw.connect(Raw::bare());
        assert_eq!(raw.received[0].mss, Some(announced));
    }
}

/// MUST-5, MUST-6, MUST-7, MUST-64: the second is not a valid option length, and nothing after it
/// is read.
#[test]
fn unknown_and_misplaced_options_are_ignored() {
    let foreign = [TcpOption::NoOperation, TcpOption::Unknown { kind: 253, data: &[1, 2] }];
    let mut raw = raw();
    let id = raw.establish(Raw::bare(), &foreign);
    // A segment size within a connection is ignored.
    raw.say(ACK, (1, 1), b"data", &[foreign[1], TcpOption::MaximumSegmentSize(100)]);
    let info = raw.stack.info(id).unwrap();
    assert_eq!((info.readable, info.mss), (4, 536));
    for (sequence, len) in [(5, 0), (9, 1), (13, 200)] {
        let header = Header {
            sequence: ISN + sequence,
            acknowledgment: raw.absolute(1),
            flags: ACK,
            window: 9000,
            ..Header::default()
        };
        let mut bytes = raw.packet(header, b"more", &[TcpOption::NoOperation; 4]);
        bytes[40..44].copy_from_slice(&[253, len, 2, 4]);
        mend_checksum(&mut bytes);
        raw.hear(Receive::datagram(PATH, &bytes));
        assert_eq!(raw.stack.info(id).unwrap().readable, u64::from(sequence) + 3, "{len}");
    }
}

/// MUST-50.
#[test]
fn options_of_ip_are_left_alone() {
    let mut raw = raw();
    raw.listen(Raw::bare(), Backlog::default());
    let header = Header { sequence: ISN, flags: SYN, window: 9000, ..Header::default() };
    let mut bytes = raw.packet(header, &[], &[]);
    // Three of no operation, and the end of the list.
    bytes.splice(20..20, [1, 1, 1, 0]);
    (bytes[0], bytes[3]) = (0x46, bytes[3] + 4);
    bytes[10..12].fill(0);
    let checksum = !wire::ip::fold(wire::ip::sum(&bytes[..24]));
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    let received = raw.hear(Receive::datagram(PATH, &bytes));
    assert_eq!(brief(&received), [(SYN | ACK, 0, 1, 0)]);
}

/// MUST-55, MUST-56: unreachable (net, host, port, source route), quench, time exceeded, parameter
/// problem.
#[test]
fn icmp_errors_do_not_end_connections() {
    let mut raw = raw();
    let id = raw.establish(Raw::bare(), &[]);
    let kinds = [(3, 0), (3, 1), (3, 3), (3, 5), (4, 0), (11, 0), (12, 0)];
    let header = Header { sequence: ISN, flags: ACK, ..Header::default() };
    for (kind, code) in kinds {
        // A header of IP, eight bytes of ICMP, and the packet that it is about.
        let quoted = raw.packet(header, &[], &[]);
        let (ip, _) = wire::ip::Ipv4::decode(&quoted).unwrap();
        let mut bytes = [&quoted[..20], &[kind, code, 0, 0, 0, 0, 0, 0], &quoted].concat();
        let total_len = bytes.len() as u16;
        let ip = wire::ip::Ipv4 { protocol: 1, total_len, ..ip };
        ip.encode(bytes.first_chunk_mut().unwrap());
        assert!(raw.hear(Receive::datagram(PATH, &bytes)).is_empty());
    }
    assert_eq!(raw.state(id), Some(State::Established));
    assert_eq!(raw.stack.statistics().not_tcp, kinds.len() as u64);
}

/// MUST-46, MUST-57, MUST-63.
#[test]
fn multicast_and_unspecified_addresses_are_refused() {
    let host = |address: &str, port| SocketAddr::new(address.parse::<IpAddr>().unwrap(), port);
    for wrong in ["255.255.255.255", "224.0.0.1", "0.0.0.0", "ff02::1", "::"] {
        let (near, far) =
            if wrong.contains(':') { ("fd00::2", "fd00::1") } else { ("10.0.0.2", "10.0.0.1") };
        let ends = [(host(near, PORT), host(wrong, 4000)), (host(wrong, PORT), host(far, 4000))];
        for (local, remote) in ends {
            let mut raw = raw().between(local, remote);
            let any = if wrong.contains(':') { "::" } else { "0.0.0.0" };
            raw.stack.listen(host(any, PORT), Raw::bare(), Backlog::default()).unwrap();
            assert!(raw.say(SYN, (0, 0), &[], &[]).is_empty(), "{local} {remote}");
            assert_eq!(raw.stack.statistics().misdirected, 1);
        }
        let mut raw = raw();
        let requested = raw.stack.connect(raw.now, host(near, 0), host(wrong, 80), Raw::bare());
        assert_eq!(requested, Err(RequestError::Address), "{wrong}");
    }
}

/// MUST-11.
#[test]
fn a_reset_before_the_end_of_the_handshake_refuses_the_asker_and_leaves_the_listener() {
    let mut asker = raw();
    asker.connect(Raw::bare());
    asker.say(SYN, (0, 0), &[], &[]);
    asker.say(RST, (1, 0), &[], &[]);
    assert_eq!(asker.closed(), Some(CloseReason::Refused));
    let mut listener = raw();
    listener.listen(Raw::bare(), Backlog::default());
    listener.say(SYN, (0, 0), &[], &[]);
    assert!(listener.say(RST, (1, 0), &[], &[]).is_empty() && listener.indications.is_empty());
    assert_eq!(brief(&listener.say(SYN, (50, 0), &[], &[])), [(SYN | ACK, 0, 51, 0)]);
}

/// MUST-41, MUST-42.
#[test]
fn a_port_is_listened_at_while_a_connection_of_it_opens() {
    let mut raw = raw();
    let id = raw.connect(Raw::bare());
    raw.listen(Raw::bare(), Backlog::default());
    assert_eq!(raw.state(id), Some(State::SynSent));
    raw.speak_from(4001);
    assert_eq!(brief(&raw.say(SYN, (0, 0), &[], &[])), [(SYN | ACK, 0, 1, 0)]);
    assert_eq!(raw.state(id), Some(State::SynSent));
}

/// MUST-66, SHLD-2.
#[test]
fn a_reset_with_data_counts_in_a_closed_window() {
    let mut raw = raw();
    let options = Options { receive_buffer: Buffer::Fixed(1000), ..Raw::bare() };
    raw.establish(options, &[]);
    raw.say(ACK, (1, 1), &[0; 1000], &[]);
    raw.wait(millis(100));
    assert_eq!(raw.received.last().map(|received| received.window), Some(0));
    assert!(raw.say(RST, (1002, 0), b"why", &[]).is_empty());
    assert_eq!(raw.closed(), None);
    raw.say(RST, (1001, 0), b"why", &[]);
    assert_eq!(raw.closed(), Some(CloseReason::Reset));
}

/// MUST-34, SHLD-15.
#[test]
fn shrunk_windows_block_new_data() {
    let mut raw = raw();
    let id = raw.establish(Raw::bare(), &MSS);
    assert_eq!(raw.write(id, 2 * 1460).len(), 2);
    window(&mut raw, 1, 1000);
    assert!(raw.write(id, 1460).is_empty());
    assert_eq!(sizes(&window(&mut raw, 2921, 60_000)), [(2921, 1460)]);
}

/// MUST-35, MUST-37, SHLD-17.
#[test]
fn zero_windows_persist_while_the_peer_replies() {
    for answers in [true, false] {
        let mut raw = raw();
        let id = raw.establish(Options { retries: 3, ..Raw::bare() }, &MSS);
        raw.write(id, 4 * 1460);
        window(&mut raw, 1, 0);
        for _ in 0..8 {
            let next = raw.stack.poll_timeout().expect("it asks again").at;
            let again = raw.wait(next.since(raw.now));
            assert_eq!(sizes(&again), [(1, 1460)]);
            window(&mut raw, 1, 0);
        }
        if answers {
            window(&mut raw, 1 + 4 * 1460, 60_000);
            assert_eq!(raw.stack.info(id).unwrap().unacknowledged, 0);
        } else {
            raw.wait(seconds(1000));
            assert_eq!(raw.closed(), Some(CloseReason::TimedOut));
        }
    }
}

/// SHLD-14: acknowledgment and window.
#[test]
fn right_window_edge_never_moves_back() {
    let mut world = World::plain(1);
    let options =
        Options { receive_buffer: Buffer::Fixed(8000), window_scale: false, ..Options::default() };
    world.hosts[1].engine.template = User { reads: false, waits_for_peer: true, ..User::default() };
    world.listen(options, Backlog::default());
    world.connect(Options::default(), User { content: content(40_000), ..User::default() });
    world.run_for(seconds(3));
    let other = world.accepted().unwrap();
    world.hosts[1].engine.users.get_mut(&other).unwrap().reads = true;
    world.use_connection(1, other);
    world.run();
    finished(&world).unwrap();
    let edges = world.log.iter().filter(|sent| sent.from == 1).map(|sent| {
        let header = packet::decode(&sent.bytes).expect("our own packet").segment.header;
        header.acknowledgment.wrapping_add(u32::from(header.window))
    });
    let edges: Vec<u32> = edges.collect();
    assert!(edges.len() > 10);
    assert!(edges.windows(2).all(|two| two[1].wrapping_sub(two[0]) < 1 << 31), "{edges:?}");
}

/// MUST-38: a segment and half of the largest window do not fit, until the timer expires.
#[test]
fn a_window_that_opens_by_little_is_not_used_at_once() {
    let mut raw = raw();
    let id = raw.establish(Raw::bare(), &MSS);
    window(&mut raw, 1, 3000);
    assert_eq!(sizes(&raw.write(id, 10_000)), [(1, 1460), (1461, 1460)]);
    assert!(window(&mut raw, 2921, 100).is_empty());
    assert!(raw.wait(millis(199)).is_empty());
    assert_eq!(sizes(&raw.wait(millis(1))), [(2921, 100)]);
}

/// MUST-60, MUST-61.
#[test]
fn last_segment_of_a_write_is_pushed() {
    let mut raw = raw();
    let id = raw.establish(Raw::bare(), &MSS);
    let pushed: Vec<_> = raw.write(id, 2000).iter().map(|h| h.flags.contains(Flags::PSH)).collect();
    assert_eq!(pushed, [false, true]);
}

/// MUST-58, MUST-59.
#[test]
fn segments_of_a_batch_are_acknowledged_together() {
    let mut raw = raw();
    raw.establish(Raw::bare(), &[]);
    let acknowledgment = raw.absolute(1);
    let all: Vec<Vec<u8>> = (0..4)
        .map(|n| {
            let sequence = ISN + 1 + 536 * n;
            let header =
                Header { sequence, acknowledgment, flags: ACK, window: 9000, ..Header::default() };
            raw.packet(header, &[0; 536], &[])
        })
        .collect();
    let bytes = all.concat();
    let receive = Receive { stride: all[0].len(), ..Receive::datagram(PATH, &bytes) };
    assert_eq!(brief(&raw.hear(receive)), [(ACK, 1, 1 + 4 * 536, 0)]);
}

/// MUST-18: retransmitted data gives no sample, and the timeout stays doubled until a sample.
#[test]
fn karn_s_rule() {
    let mut raw = raw();
    let id = raw.establish(Raw::bare(), &[]);
    let before = raw.stack.info(id).unwrap().srtt;
    raw.write(id, 10);
    assert_eq!(raw.wait(millis(250)).len(), 1);
    raw.say(ACK, (1, 11), &[], &[]);
    let info = raw.stack.info(id).unwrap();
    assert_eq!((info.srtt, info.rto), (before, millis(400)));
    raw.write(id, 10);
    raw.wait(millis(80));
    raw.say(ACK, (1, 21), &[], &[]);
    // The handshake took no time: an eighth of 80 ms, and the minimum margin of 200 ms.
    let info = raw.stack.info(id).unwrap();
    assert_eq!((info.srtt, info.rto), (Some(millis(10)), millis(210)));
}

/// SHLD-11.
#[test]
fn data_is_not_given_up_within_100_s() {
    let mut raw = raw();
    let id = raw.establish(Options { timestamps: false, ..Options::default() }, &[]);
    raw.write(id, 10);
    assert!(raw.wait(seconds(100)).len() > 3);
    assert_eq!((raw.state(id), raw.closed()), (Some(State::Established), None));
}

/// MUST-24, MUST-25, MUST-26, MUST-28.
#[test]
fn keep_alive_is_off_unless_wanted_and_waits_for_two_hours() {
    assert!(Profile::ALL.iter().all(|profile| profile.options().keep_alive.is_none()));
    let mut silent = raw();
    silent.establish(Raw::bare(), &[]);
    assert!(silent.wait(seconds(100_000)).is_empty());
    let mut asking = raw();
    let keep_alive = Some(KeepAlive::default());
    asking.establish(Options { keep_alive, ..Raw::bare() }, &[]);
    assert!(asking.wait(seconds(7199)).is_empty());
    assert_eq!(brief(&asking.wait(seconds(1))), [(ACK, 0, 1, 0)]);
    // Unacknowledged data is retransmitted, and no other probe is sent.
    let mut sending = raw();
    let keep_alive = Some(KeepAlive { idle: seconds(1), interval: seconds(1), probes: 2 });
    let id = sending.establish(Options { keep_alive, ..Raw::bare() }, &[]);
    sending.write(id, 10);
    let again = sending.wait(seconds(20));
    assert!(again.len() > 3 && again.iter().all(|received| received.len == 10), "{again:?}");
    assert_eq!(sending.closed(), None);
}

/// MUST-48, MUST-49, SHLD-22.
#[test]
fn all_packets_have_the_configured_code_point_and_hop_limit() {
    let mut raw = raw();
    let id = raw.establish(Options { dscp: 46, hop_limit: 9, ..Raw::bare() }, &[]);
    raw.write(id, 10);
    raw.say(ACK, (1, 11), b"data", &[]);
    raw.wait(millis(100));
    raw.stack.shut_down(raw.now, id).unwrap();
    raw.drain();
    assert!(raw.received.last().is_some_and(|received| received.flags.contains(FIN)));
    let marks: Vec<_> =
        raw.received.iter().map(|received| (received.dscp, received.hop_limit)).collect();
    assert_eq!(marks, [(46, 9); 4]);
}

/// SHLD-4, RFC 6191: the number is an old one, and the timestamp shows that the SYN is not.
#[test]
fn in_time_wait_a_later_timestamp_opens() {
    let stamp = |value| [TcpOption::Timestamps { value, echo: 0 }];
    let mut raw = raw();
    let id = raw.establish(Options { timestamps: true, ..Raw::bare() }, &stamp(100));
    raw.stack.shut_down(raw.now, id).unwrap();
    raw.drain();
    raw.say(FIN | ACK, (1, 2), &[], &stamp(101));
    assert_eq!(raw.closed(), Some(CloseReason::Graceful));
    let old = 0_u32.wrapping_sub(50_000);
    assert_eq!(raw.say(SYN, (old, 0), &[], &stamp(101))[0].flags, ACK);
    assert_eq!(raw.say(SYN, (old, 0), &[], &stamp(102))[0].flags, SYN | ACK);
}

/// RFC 3168 §6.1.1.1, §6.1.5.
#[test]
fn retransmissions_use_no_ecn() {
    let both = Flags::ECE | Flags::CWR;
    let mut asker = raw();
    asker.connect(Options { ecn: true, ..Raw::bare() });
    let again = asker.wait(seconds(1));
    assert_eq!((asker.received[0].flags, again[0].flags), (SYN | both, SYN));
    let mut sender = raw();
    sender.listen(Options { ecn: true, ..Raw::bare() }, Backlog::default());
    sender.say(SYN | both, (0, 0), &[], &[]);
    sender.say(ACK, (1, 1), &[], &[]);
    let id = sender.incoming().unwrap();
    assert_eq!(sender.write(id, 10)[0].ecn, Ecn::Ect0);
    let again = sender.wait(millis(250));
    assert_eq!((again[0].len, again[0].ecn), (10, Ecn::NotEct));
}
