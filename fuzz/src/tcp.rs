//! TCP: segments, and a stack that receives scripted packets.

use std::net::SocketAddr;
use std::time::Duration;

use engine::{Engine, Input, PathEvent, PathId, PathInfo, Receive, Rng, Time, TxBuf};
use tcp::scps::{Bets, LossCause, RateControl, Scps, Snack, SnackForm};
use tcp::segment::scps::{self, Compressed, Inherited};
use tcp::segment::{
    HEADER_LEN, Header, OPTIONS_MAX, PROTOCOL, PseudoHeader, Segment, encode, options_len,
};
use tcp::{
    Backlog, Buffer, Config, ConnectionId, Cookies, Indication, KeepAlive, Limits, LossRecovery,
    Options, Stack,
};
use wire::icmp;
use wire::ip::{self, Ipv4};
use wire::ipv6::Ipv6;

use crate::script::Script;

/// Decodes a TCP segment in an IP packet, of version 6 if it says so.
///
/// # Panics
/// If a decoded segment does not survive encoding.
pub fn tcp_segment(data: &[u8]) {
    let (payload, pseudo) = if let Ok((ip, payload)) = Ipv6::decode(data) {
        let mut again = [0xa5; 40];
        ip.encode(&mut again);
        assert_eq!(again, data[..40]);
        (payload, PseudoHeader::new(ip.source.into(), ip.destination.into(), ip.next_header))
    } else if let Ok((ip, payload)) = Ipv4::decode(data) {
        (payload, PseudoHeader::new(ip.source.into(), ip.destination.into(), ip.protocol))
    } else {
        return;
    };
    let Ok(segment) = Segment::decode_unchecked(payload) else { return };
    assert!(!segment.to_string().is_empty());
    assert!(segment.options.as_bytes().len() <= OPTIONS_MAX);
    let options: Vec<_> = segment.options.map_while(Result::ok).collect();
    let start = HEADER_LEN + options_len(&options);
    let mut bytes = vec![0xa5; start + segment.payload.len()];
    bytes[start..].copy_from_slice(segment.payload);
    encode(&segment.header, &options, pseudo, &mut bytes).expect("decoded values fit");
    let again = Segment::decode(&bytes, pseudo).expect("our own segment");
    assert_eq!((again.header, again.payload), (segment.header, segment.payload));
    let read: Vec<_> = again.options.map(|option| option.expect("it was sound")).collect();
    assert_eq!(read, options);
}

/// Decodes a packet with a compressed header of SCPS-TP.
///
/// # Panics
/// If a decoded header does not survive encoding.
pub fn scps_header(data: &[u8]) {
    let Ok((packet, checksum_at)) = Compressed::decode_unchecked(data) else { return };
    assert!(!packet.to_string().is_empty() && checksum_at + 2 <= data.len());
    let mut place = [0xa5; OPTIONS_MAX];
    if let Ok((header, options)) = packet.expand(&Inherited::default(), &mut place) {
        assert_eq!(header.flags, packet.head.flags);
        assert!(options.as_bytes().len() <= OPTIONS_MAX);
    }
    let options: Vec<_> = packet.options.map_while(Result::ok).collect();
    if options_len(&options) > OPTIONS_MAX {
        return;
    }
    let pseudo = PseudoHeader::new(far(0).ip(), near().ip(), scps::COMPRESSED_PROTOCOL);
    let start = packet.head.encoded_len(&options);
    let mut bytes = vec![0xa5; start + packet.payload.len()];
    bytes[start..].copy_from_slice(packet.payload);
    scps::encode(&packet.head, &options, pseudo, &mut bytes).expect("decoded values fit");
    let again = Compressed::decode(&bytes, pseudo).expect("our own packet");
    assert_eq!((again.head, again.payload), (packet.head, packet.payload));
    let read: Vec<_> = again.options.map(|option| option.expect("it was sound")).collect();
    assert_eq!(read, options);
}

const PATH: PathId = PathId(1);

/// Bound on the stack's memory: eight connections with buffers of four KiB and their state.
const MEMORY_MAX: usize = 256 << 10;

/// Runs a script for a stack: segments that nearly fit, time, users' calls, states of its
/// interface.
///
/// # Panics
/// If the stack breaks the contract.
pub fn tcp_stack(data: &[u8]) {
    let mut play = Play::new(Script(data));
    while let Some(op) = play.script.byte() {
        play.op(op);
        assert!(play.stack.memory() <= MEMORY_MAX, "{}", play.stack.memory());
    }
    play.end();
}

struct Play<'a> {
    script: Script<'a>,
    stack: Stack,
    now: Time,
    known: Vec<ConnectionId>,
    /// Numbers near which the peer sends: the last ones of the stack, per port.
    last_sent: [(u32, u32); 4],
    path_open: bool,
}

fn near() -> SocketAddr {
    ([10, 0, 0, 1], 80).into()
}

fn far(port: u8) -> SocketAddr {
    ([10, 0, 0, 2], 4000 + u16::from(port % 4)).into()
}

impl<'a> Play<'a> {
    fn new(mut script: Script<'a>) -> Self {
        let (first, second) = (script.or_zero(), script.or_zero());
        let limits = Limits { connections: 8, time_wait: 4, replies: 8, gaps: 16 };
        let robust = first & 1 == 0;
        let config = Config { limits, robust, ..Config::default() };
        let mut stack = Stack::new(config, Rng::new(1, "tcp"));
        let cookies = [Cookies::Never, Cookies::WhenFull, Cookies::Always][usize::from(first % 3)];
        let backlog = Backlog { half_open: 3, cookies };
        let options = options(first, second);
        stack.listen(near(), options.clone(), backlog).expect("the port is free");
        let mut play = Self {
            script,
            stack,
            now: Time::from_secs(1),
            known: Vec::new(),
            last_sent: [(0, 0); 4],
            path_open: true,
        };
        play.path(PathEvent::Up(PathInfo::datagram(600)));
        play
    }

    fn path(&mut self, event: PathEvent) {
        self.path_open = matches!(event, PathEvent::Up(_) | PathEvent::Writable);
        self.stack.handle_input(self.now, Input::Path(PATH, event));
        self.drain();
    }

    fn op(&mut self, op: u8) {
        let now = self.now;
        let id = self.known.get(usize::from(op >> 4)).copied();
        match op & 15 {
            0..=7 => self.segment(),
            8 => self.report(),
            9 => {
                let time = Duration::from_millis(u64::from(self.script.or_zero()) * 20);
                self.wait(time);
            }
            10 => {
                let time = Duration::from_secs(u64::from(self.script.or_zero()));
                self.wait(time);
            }
            11 => {
                let (first, second) = (self.script.or_zero(), self.script.or_zero());
                let opened = self.stack.connect(
                    now,
                    SocketAddr::new(near().ip(), 0),
                    far(first),
                    options(first, second),
                );
                self.known.extend(opened);
            }
            12 => {
                let len = usize::from(self.script.or_zero()) * 40;
                // Most of these are refused: the connection may have ended.
                let _ = id.map(|id| self.stack.send(now, id, &vec![op; len]));
            }
            13 => {
                let len = usize::from(self.script.or_zero());
                let _ = id.map(|id| self.stack.consume(now, id, len));
            }
            14 => {
                let _ = id.map(|id| match self.script.or_zero() % 3 {
                    0 => self.stack.shut_down(now, id),
                    1 => self.stack.close(now, id),
                    _ => self.stack.abort(now, id),
                });
            }
            _ => {
                let event = match self.script.or_zero() % 4 {
                    0 => PathEvent::Blocked,
                    1 => PathEvent::Down,
                    2 => PathEvent::Up(PathInfo::datagram(300)),
                    _ => PathEvent::Up(PathInfo::datagram(1500)),
                };
                self.path(event);
            }
        }
        self.drain();
    }

    /// Sends a segment with correct checksums, whose numbers are near valid ones.
    fn segment(&mut self) {
        let [port, flags, at, ack, len, count] = [(); 6].map(|()| self.script.or_zero());
        let (sequence, acknowledgment) = self.last_sent[usize::from(port % 4)];
        let offset = |by: u8| i32::from(by.cast_signed()).pow(3) as u32;
        let options = self.script.bytes(usize::from(count % 11) * 4);
        let payload = usize::from(len & 0x7f);
        let mut bytes = vec![0; HEADER_LEN + options.len() + payload];
        let words = (HEADER_LEN + options.len()) / 4;
        bytes[0..2].copy_from_slice(&far(port).port().to_be_bytes());
        bytes[2..4].copy_from_slice(&near().port().to_be_bytes());
        bytes[4..8].copy_from_slice(&sequence.wrapping_add(offset(at)).to_be_bytes());
        bytes[8..12].copy_from_slice(&acknowledgment.wrapping_add(offset(ack)).to_be_bytes());
        bytes[12] = (words as u8) << 4;
        bytes[13] = flags;
        bytes[14..16].copy_from_slice(&u16::from(len).wrapping_mul(257).to_be_bytes());
        bytes[HEADER_LEN..HEADER_LEN + options.len()].copy_from_slice(options);
        let pseudo = PseudoHeader::new(far(port).ip(), near().ip(), PROTOCOL);
        let checksum = !pseudo.total(&bytes);
        bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
        let mut packet = [0; ip::HEADER_LEN].to_vec();
        packet.extend(bytes);
        let ip = Ipv4 {
            traffic_class: port >> 6,
            total_len: packet.len() as u16,
            id: 0,
            fragment: 0,
            ttl: 64,
            protocol: PROTOCOL,
            source: [10, 0, 0, 2].into(),
            destination: [10, 0, 0, 1].into(),
        };
        ip.encode(packet.first_chunk_mut().expect("a header"));
        let receive = Receive::datagram(PATH, &packet);
        self.stack.handle_input(self.now, Input::Receive(receive));
    }

    /// Sends a router's report about a packet of the stack, or about one it might have sent.
    fn report(&mut self) {
        let [port, at, len, mtu] = [(); 4].map(|()| self.script.or_zero());
        let (_, sequence) = self.last_sent[usize::from(port % 4)];
        let mut quoted = [0; ip::HEADER_LEN + 8];
        let (head, ports) = quoted.split_first_chunk_mut().expect("a header and more");
        let ip = Ipv4 {
            traffic_class: 0,
            total_len: u16::from(len) * 8,
            id: 0,
            fragment: ip::DONT_FRAGMENT,
            ttl: 1,
            protocol: PROTOCOL,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
        };
        ip.encode(head);
        ports[..2].copy_from_slice(&near().port().to_be_bytes());
        ports[2..4].copy_from_slice(&far(port).port().to_be_bytes());
        let sequence = sequence.wrapping_sub(u32::from(at) * 16);
        ports[4..].copy_from_slice(&sequence.to_be_bytes());
        let mut packet = [&[0; ip::HEADER_LEN + icmp::HEADER_LEN][..], &quoted].concat();
        icmp::encode(u32::from(mtu) * 8, &mut packet[ip::HEADER_LEN..]);
        let ip = Ipv4 {
            total_len: packet.len() as u16,
            protocol: icmp::PROTOCOL,
            source: [10, 0, 0, 9].into(),
            destination: [10, 0, 0, 1].into(),
            ..ip
        };
        ip.encode(packet.first_chunk_mut().expect("a header"));
        let receive = Receive::datagram(PATH, &packet);
        self.stack.handle_input(self.now, Input::Receive(receive));
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        // Every call is due.
        for _ in 0..10_000 {
            let Some(deadline) = self.stack.poll_timeout().filter(|d| d.at <= until) else { break };
            self.now = self.now.max(deadline.at);
            self.stack.handle_timeout(self.now);
            self.drain();
            let next = self.stack.poll_timeout();
            assert!(next.is_none_or(|next| next.at > self.now), "{next:?} at {}", self.now);
        }
        self.now = until;
    }

    fn drain(&mut self) {
        let mut tx = TxBuf::new(8);
        for _ in 0..20_000 {
            let mut busy = false;
            while let Some(indication) = self.stack.poll_indication() {
                busy = true;
                match indication {
                    Indication::Incoming { connection, .. } => self.known.push(connection),
                    Indication::Closed { connection, .. } => {
                        self.known.retain(|known| *known != connection);
                        // Unread data is discarded.
                        let _ = self.stack.abort(self.now, connection);
                    }
                    Indication::Connected { .. }
                    | Indication::Readable { .. }
                    | Indication::Writable { .. }
                    | Indication::PeerClosed { .. }
                    | Indication::BacklogFull { .. }
                    | Indication::Record { .. }
                    | Indication::Holes { .. }
                    | Indication::PlainTcp { .. } => {}
                }
            }
            tx.clear();
            if self.stack.poll_transmit(self.now, &mut tx).is_some() {
                busy = true;
                assert!(self.path_open, "nothing is sent on a path that is not open");
                tx.datagrams().for_each(|packet| Self::check_packet(&mut self.last_sent, packet));
            }
            if !busy {
                return;
            }
        }
        panic!("a drain does not end");
    }

    /// Checks that every packet of the stack is valid.
    fn check_packet(last_sent: &mut [(u32, u32); 4], packet: &[u8]) {
        let (ip, payload) = Ipv4::decode(packet).expect("a sound header");
        let pseudo = PseudoHeader::new(ip.source.into(), ip.destination.into(), ip.protocol);
        if ip.protocol == scps::COMPRESSED_PROTOCOL {
            Compressed::decode(payload, pseudo).expect("a sound packet");
            return;
        }
        let segment = Segment::decode(payload, pseudo).expect("a sound segment");
        assert!(segment.options.into_iter().all(|option| option.is_ok()));
        let Header { destination, sequence, acknowledgment, .. } = segment.header;
        let next = sequence.wrapping_add(segment.occupies());
        last_sent[usize::from(destination % 4)] = (acknowledgment, next);
    }

    /// Aborts all connections; the stack comes to rest.
    fn end(&mut self) {
        self.path(PathEvent::Up(PathInfo::datagram(600)));
        for id in std::mem::take(&mut self.known) {
            let _ = self.stack.abort(self.now, id);
        }
        self.drain();
        self.wait(Duration::from_secs(3600));
        assert_eq!(self.stack.connections().count(), 0);
        assert!(self.stack.poll_timeout().is_none(), "{:?}", self.stack.poll_timeout());
    }
}

fn space(first: u8) -> Scps {
    let form = if first & 0x20 == 0 { SnackForm::Short } else { SnackForm::Bits };
    let odd = first & 0x40 != 0;
    Scps {
        snack: Some(Snack { form, ..Snack::default() }),
        assume: if odd { LossCause::Corruption } else { LossCause::Congestion },
        rate: odd.then(|| RateControl { bps: Some(100_000), ..RateControl::default() }),
        header_compression: first & 0x80 != 0,
        bets: odd.then(|| Bets { holes: 4, ..Bets::default() }),
        records: 4,
        ..Scps::default()
    }
}

fn options(first: u8, second: u8) -> Options {
    let has = |bit: u8| second & 1 << bit != 0;
    Options {
        timestamps: has(0),
        sack: has(1),
        window_scale: has(2),
        rack: has(3),
        ecn: has(4),
        tail_loss_probe: has(5),
        pacing: has(6),
        keep_alive: has(7).then(KeepAlive::default),
        mtu_probing: first & 2 != 0,
        recovery: [
            LossRecovery::NewReno,
            LossRecovery::Sack6675,
            LossRecovery::Prr,
            LossRecovery::RateHalving,
        ][usize::from(first >> 2 & 3)],
        send_buffer: Buffer::Fixed(4096),
        receive_buffer: Buffer::Fixed(4096),
        syn_retries: 3,
        retries: 5,
        scps: (first & 0x10 != 0).then(|| space(first)),
        ..Options::default()
    }
}
