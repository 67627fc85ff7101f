//! Stack with a peer whose segments are all handwritten.

use std::net::SocketAddr;
use std::time::Duration;

use engine::{Ecn, Engine, Input, PathEvent, PathInfo, Receive, Rng, Time, TxBuf};

use super::world::{PATH, PORT};
use crate::packet::{self, Flow, Tuple};
use crate::segment::{Capabilities, Flags, HEADER_LEN, Header, TcpOption, options_len};
use crate::{
    Backlog, CloseReason, Config, ConnectionId, Indication, ListenerId, Options, Stack, State,
};

/// Peer's initial sequence number.
pub(super) const ISN: u32 = 1000;

pub(super) const SYN: Flags = Flags::SYN;
pub(super) const ACK: Flags = Flags::ACK;
pub(super) const FIN: Flags = Flags::FIN;
pub(super) const RST: Flags = Flags::RST;

/// Segment sent by the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) at: Time,
    pub(super) flags: Flags,
    /// Relative to its initial number.
    pub(super) sequence: u32,
    /// Relative to the peer's initial number.
    pub(super) acknowledgment: u32,
    pub(super) window: u16,
    pub(super) len: usize,
    pub(super) stamps: Option<(u32, u32)>,
    pub(super) mss: Option<u16>,
    pub(super) scale: Option<u8>,
    pub(super) sack: bool,
    pub(super) blocks: Vec<(u32, u32)>,
    pub(super) scps: Option<Capabilities>,
    /// Offset and size of a hole.
    pub(super) snack: Option<(u16, u16)>,
    pub(super) ecn: Ecn,
    pub(super) dscp: u8,
    pub(super) hop_limit: u8,
}

pub(super) struct Raw {
    pub(super) stack: Stack,
    pub(super) now: Time,
    local: SocketAddr,
    remote: SocketAddr,
    first: Option<u32>,
    pub(super) received: Vec<Received>,
    pub(super) indications: Vec<Indication>,
    pub(super) ecn: Ecn,
}

impl Raw {
    pub(super) fn new(config: Config) -> Self {
        let mut stack = Stack::new(config, Rng::new(5, "raw"));
        let up = PathEvent::Up(PathInfo::datagram(1500));
        stack.handle_input(Time::ZERO, Input::Path(PATH, up));
        Self {
            stack,
            now: Time::from_secs(1000),
            local: ([10, 0, 0, 2], PORT).into(),
            remote: ([10, 0, 0, 1], 4000).into(),
            first: None,
            received: Vec::new(),
            indications: Vec::new(),
            ecn: Ecn::NotEct,
        }
    }

    /// Options that keep segments easy to read.
    pub(super) fn bare() -> Options {
        Options {
            timestamps: false,
            sack: false,
            window_scale: false,
            acks: crate::AckPolicy { quick: 0, ..Options::default().acks },
            ..Options::default()
        }
    }

    pub(super) fn listen(&mut self, options: Options, backlog: Backlog) -> ListenerId {
        self.stack.listen(self.local, options, backlog).expect("nobody listens there")
    }

    /// Opens a connection from the stack to the peer.
    pub(super) fn connect(&mut self, options: Options) -> ConnectionId {
        let local = SocketAddr::new(self.local.ip(), 5000);
        self.local = local;
        let id = self.stack.connect(self.now, local, self.remote, options).expect("it can");
        self.drain();
        id
    }

    /// Uses two other addresses and ports.
    pub(super) fn between(mut self, local: SocketAddr, remote: SocketAddr) -> Self {
        (self.local, self.remote) = (local, remote);
        self
    }

    /// Changes the peer's port.
    pub(super) fn speak_from(&mut self, port: u16) {
        self.remote.set_port(port);
        self.first = None;
    }

    /// Delivers a segment of the peer, with relative numbers. Returns the stack's segments.
    pub(super) fn say(
        &mut self,
        flags: Flags,
        (sequence, acknowledgment): (u32, u32),
        payload: &[u8],
        options: &[TcpOption<'_>],
    ) -> Vec<Received> {
        let ack = if flags.contains(ACK) {
            self.first.unwrap_or(0).wrapping_add(acknowledgment)
        } else {
            0
        };
        let header = Header {
            sequence: ISN.wrapping_add(sequence),
            acknowledgment: ack,
            flags,
            window: 60_000,
            ..Header::default()
        };
        self.say_exactly(header, payload, options)
    }

    pub(super) fn say_exactly(
        &mut self,
        header: Header,
        payload: &[u8],
        options: &[TcpOption<'_>],
    ) -> Vec<Received> {
        let bytes = self.packet(header, payload, options);
        self.hear(Receive::datagram(PATH, &bytes))
    }

    /// Packet of the peer.
    pub(super) fn packet(
        &self,
        header: Header,
        payload: &[u8],
        options: &[TcpOption<'_>],
    ) -> Vec<u8> {
        let tuple = Tuple { local: self.remote, remote: self.local };
        let mut flow = Flow::new(tuple, 64, 0, 0);
        let head = flow.ip_len() + HEADER_LEN + options_len(options);
        let mut bytes = vec![0; head + payload.len()];
        bytes[head..].copy_from_slice(payload);
        flow.write(&mut bytes, header, options, self.ecn);
        bytes
    }

    /// Delivers a packet to the stack. Returns the stack's segments.
    pub(super) fn hear(&mut self, receive: Receive<'_>) -> Vec<Received> {
        let before = self.received.len();
        self.stack.handle_input(self.now, Input::Receive(receive));
        self.drain();
        self.received[before..].to_vec()
    }

    /// Lets time pass, and processes due events. Returns the stack's segments.
    pub(super) fn wait(&mut self, time: Duration) -> Vec<Received> {
        let (before, until) = (self.received.len(), self.now + time);
        while let Some(deadline) = self.stack.poll_timeout().filter(|d| d.at <= until) {
            self.now = self.now.max(deadline.at);
            self.stack.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
        self.received[before..].to_vec()
    }

    pub(super) fn drain(&mut self) {
        let mut tx = TxBuf::new(64);
        loop {
            while let Some(indication) = self.stack.poll_indication() {
                self.indications.push(indication);
            }
            tx.clear();
            if self.stack.poll_transmit(self.now, &mut tx).is_none() {
                break;
            }
            for bytes in tx.datagrams() {
                let arrived = packet::decode(bytes).expect("our own packet");
                let (traffic_class, hop_limit) = if bytes[0] >> 4 == 6 {
                    (bytes[0] << 4 | bytes[1] >> 4, bytes[7])
                } else {
                    (bytes[1], bytes[8])
                };
                let header = arrived.segment.header;
                if header.flags.contains(SYN) {
                    self.first = Some(header.sequence);
                }
                let first = self.first.unwrap_or(0);
                let mut received = Received {
                    at: self.now,
                    flags: header.flags,
                    sequence: header.sequence.wrapping_sub(first),
                    acknowledgment: header.acknowledgment.wrapping_sub(ISN),
                    window: header.window,
                    len: arrived.segment.payload.len(),
                    stamps: None,
                    mss: None,
                    scale: None,
                    sack: false,
                    blocks: Vec::new(),
                    scps: None,
                    snack: None,
                    ecn: arrived.ecn,
                    dscp: traffic_class >> 2,
                    hop_limit,
                };
                for option in arrived.segment.options.map(|option| option.expect("sound")) {
                    match option {
                        TcpOption::Timestamps { value, echo } => {
                            received.stamps = Some((value, echo));
                        }
                        TcpOption::MaximumSegmentSize(mss) => received.mss = Some(mss),
                        TcpOption::WindowScale(shift) => received.scale = Some(shift),
                        TcpOption::SackPermitted => received.sack = true,
                        TcpOption::ScpsCapabilities(scps) => received.scps = Some(scps),
                        TcpOption::Snack { offset, size, .. } => {
                            received.snack = Some((offset, size));
                        }
                        TcpOption::Sack(blocks) => {
                            let edge = |number: u32| number.wrapping_sub(ISN);
                            let blocks = blocks.as_slice().iter();
                            received.blocks =
                                blocks.map(|b| (edge(b.left), edge(b.right))).collect();
                        }
                        _ => {}
                    }
                }
                self.received.push(received);
            }
        }
    }

    /// Opens a connection from the peer to the stack.
    pub(super) fn establish(
        &mut self,
        options: Options,
        offered: &[TcpOption<'_>],
    ) -> ConnectionId {
        self.listen(options, Backlog::default());
        self.say(SYN, (0, 0), &[], offered);
        let stamps = offered.iter().find_map(|option| match option {
            TcpOption::Timestamps { value, .. } => Some(*value),
            _ => None,
        });
        let stamps = stamps.map(|value| TcpOption::Timestamps { value, echo: 0 });
        self.say(ACK, (1, 1), &[], stamps.as_slice());
        self.incoming().expect("it is established")
    }

    pub(super) fn incoming(&self) -> Option<ConnectionId> {
        self.indications.iter().rev().find_map(|indication| match indication {
            Indication::Incoming { connection, .. } => Some(*connection),
            _ => None,
        })
    }

    /// Absolute number of the stack's on the wire.
    pub(super) fn absolute(&self, at: u32) -> u32 {
        self.first.unwrap_or(0).wrapping_add(at)
    }

    pub(super) fn write(&mut self, id: ConnectionId, len: usize) -> Vec<Received> {
        let before = self.received.len();
        let taken = self.stack.send(self.now, id, &vec![7; len]).expect("it is open");
        assert_eq!(taken, len);
        self.drain();
        self.received[before..].to_vec()
    }

    pub(super) fn state(&mut self, id: ConnectionId) -> Option<State> {
        self.stack.info(id).ok().map(|info| info.state)
    }

    pub(super) fn closed(&self) -> Option<CloseReason> {
        self.indications.iter().find_map(|indication| match indication {
            Indication::Closed { reason, .. } => Some(*reason),
            _ => None,
        })
    }
}

/// Flags, sequence number, acknowledgment and length of each.
pub(super) fn brief(received: &[Received]) -> Vec<(Flags, u32, u32, usize)> {
    received.iter().map(|h| (h.flags, h.sequence, h.acknowledgment, h.len)).collect()
}
