//! Dispatch of received packets (RFC 9293 §3.10.7.1, §3.10.7.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use engine::{PathId, Time};

use super::{Reply, Stack, Timer};
use crate::config::{Cookies, Options};
use crate::connection::{Connection, Negotiated, Offer, Stray};
use crate::indication::{Indication, ListenerId};
use crate::isn;
use crate::packet::{
    self, Arrived, ArrivedCompressed, Ends, Fault, Flow, PacketContent, Refused, Tuple,
};
use crate::segment::scps::Inherited;
use crate::segment::{Flags, HEADER_LEN, Header, OPTIONS_MAX, Segment, TcpOption};
use crate::seq;
use crate::time_wait::Verdict;

/// Hop limit of a reply to an unknown connection.
const HOPS: u8 = 64;

impl Stack {
    pub(super) fn packet(&mut self, now: Time, path: PathId, bytes: &[u8]) {
        self.statistics.packets += 1;
        let arrived = match packet::read(bytes) {
            Ok(PacketContent::Segment(arrived)) => arrived,
            Ok(PacketContent::Compressed(arrived)) => return self.compressed(now, &arrived),
            Ok(PacketContent::Refused(report)) => return self.refused(now, &report),
            Err(fault) => {
                let count = match fault {
                    Fault::NotTcp => &mut self.statistics.not_tcp,
                    Fault::Fragment => &mut self.statistics.fragments,
                    Fault::Checksum => {
                        self.corruption_experienced(now, path);
                        &mut self.statistics.bad_checksums
                    }
                    Fault::Malformed => &mut self.statistics.malformed,
                };
                *count += 1;
                return;
            }
        };
        if let Some(index) = self.by_tuple.get(&arrived.tuple).copied() {
            let slot = &mut self.slots[index as usize];
            let Some(connection) = slot.connection.as_deref_mut() else { return };
            let stray = connection.segment(now, arrived.ecn, &arrived.segment);
            self.settle(now, index);
            if stray == Stray::Reset {
                self.reset(path, &arrived);
            }
            return;
        }
        if !self.is_for_this(arrived.tuple) {
            self.statistics.misdirected += 1;
            return;
        }
        self.stranger(now, path, &arrived);
    }

    /// Processes a packet with a compressed header.
    fn compressed(&mut self, now: Time, arrived: &ArrivedCompressed<'_>) {
        let packet = &arrived.packet;
        let known = self.numbers.find(arrived.local, arrived.remote, packet.head.connection);
        let slot = known.and_then(|index| Some((index, self.slots.get_mut(index as usize)?)));
        let Some((index, connection)) =
            slot.and_then(|(index, slot)| Some((index, slot.connection.as_deref_mut()?)))
        else {
            // The port for a reset is unknown.
            self.statistics.strangers += 1;
            return;
        };
        let (acknowledgment, stamps) = connection.space.last_header;
        let inherited = Inherited {
            source: connection.flow.tuple.remote.port(),
            destination: connection.flow.tuple.local.port(),
            sequence: seq::wire(connection.receive_next()),
            acknowledgment,
            stamps,
        };
        let mut place = [0; OPTIONS_MAX];
        let numbered = packet.head.sequence.is_some() || packet.payload.is_empty();
        let Some((header, options)) =
            packet.expand(&inherited, &mut place).ok().filter(|_| numbered)
        else {
            self.statistics.malformed += 1;
            return;
        };
        let segment = Segment { header, options, payload: packet.payload };
        connection.segment(now, arrived.ecn, &segment);
        self.settle(now, index);
    }

    /// Processes a router's report of a dropped packet that was too long for its next link.
    fn refused(&mut self, now: Time, report: &Refused) {
        let judged = self.connection_of(&report.ends).and_then(|connection| {
            let mtu = connection.judge_report(report)?;
            Some((mtu, connection.path))
        });
        let Some((mtu, path)) = judged else {
            // The report may be forged (RFC 5927 §4.1), or arrive long after the connection's end.
            self.statistics.reports_ignored += 1;
            return;
        };
        self.statistics.reports_taken += 1;
        let host = report.ends.remote();
        if self.path_mtus.get(now, path, host).is_none_or(|known| mtu <= known) {
            self.path_mtus.learn(now, path, host, mtu);
        }
        self.limit_packets(now, path, host, mtu);
    }

    fn connection_of(&self, ends: &Ends) -> Option<&Connection> {
        let mut all = self.slots.iter().filter_map(|slot| slot.connection.as_deref());
        match *ends {
            Ends::Ports(tuple) => {
                let slot = self.slots.get(*self.by_tuple.get(&tuple)? as usize)?;
                slot.connection.as_deref()
            }
            Ends::Number { local, remote, number } => all.find(|connection| {
                let tuple = connection.flow.tuple;
                let is_between = tuple.local.ip() == local && tuple.remote.ip() == remote;
                is_between && connection.compresses_as(number)
            }),
        }
    }

    /// Limits the packet size of all connections to a host.
    fn limit_packets(&mut self, now: Time, path: PathId, host: IpAddr, mtu: usize) {
        for index in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[index as usize];
            let Some(connection) = slot.connection.as_deref_mut() else { continue };
            if connection.path == path && connection.flow.tuple.remote.ip() == host {
                connection.limit_packets(now, mtu);
                self.settle(now, index);
            }
        }
    }

    /// Whether it can have been sent to this host.
    pub(super) fn is_for_this(&self, Tuple { remote, local }: Tuple) -> bool {
        let ours = &self.config.addresses;
        is_host(remote.ip())
            && is_host(local.ip())
            && remote.port() != 0
            && (ours.is_empty() || ours.contains(&local.ip()))
    }

    fn stranger(&mut self, now: Time, path: PathId, arrived: &Arrived<'_>) {
        let mut initial = None;
        match self.time_wait.judge(now, arrived.tuple, &arrived.segment) {
            Some(Verdict::Ignore) => return,
            Some(Verdict::Answer) => return self.answer_from_time_wait(now, arrived.tuple),
            Some(Verdict::Renew) => {
                let until = now + self.config.time_wait;
                self.timers.set(Timer::TimeWait(arrived.tuple), until, "TIME-WAIT");
                return self.answer_from_time_wait(now, arrived.tuple);
            }
            Some(Verdict::Anew { initial: from }) => initial = Some(from),
            None => {}
        }
        let flags = arrived.segment.header.flags;
        let listener = self.listener_for(arrived.tuple.local);
        if flags.contains(Flags::RST) {
            return;
        }
        let Some(listener) = listener else {
            self.statistics.strangers += 1;
            return self.reset(path, arrived);
        };
        if flags.contains(Flags::ACK) {
            if !self.cookie_returns(now, path, listener, arrived) {
                self.statistics.strangers += 1;
                self.reset(path, arrived);
            }
            return;
        }
        if flags.contains(Flags::SYN) && !flags.contains(Flags::FIN) {
            if initial.is_some() {
                self.time_wait.remove(arrived.tuple);
                self.timers.cancel(Timer::TimeWait(arrived.tuple));
            }
            self.syn(now, path, listener, arrived, initial);
        }
    }

    /// Listener for an address and port: the exact one, else the one for any address, else the one
    /// for any port.
    pub(super) fn listener_for(&self, local: SocketAddr) -> Option<ListenerId> {
        let any: IpAddr = match local.ip() {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let places = [
            local,
            SocketAddr::new(any, local.port()),
            SocketAddr::new(local.ip(), 0),
            SocketAddr::new(any, 0),
        ];
        places.iter().find_map(|place| self.listening.get(place).copied())
    }

    fn mtu(&self, path: PathId) -> usize {
        self.interfaces.get(&path).map_or(576, |interface| interface.mtu)
    }

    fn negotiated(
        &mut self,
        now: Time,
        path: PathId,
        tuple: Tuple,
        initial: u32,
        carrier: u8,
        options: &Options,
    ) -> Negotiated {
        Negotiated {
            path_mtu: self.path_mtus.get(now, path, tuple.remote.ip()),
            carrier,
            own_number: self.numbers.take(&mut self.rng, tuple, options),
            tuple,
            path,
            mtu: self.mtu(path),
            initial,
            stamp_offset: self.secret.stamp_offset(tuple),
            seed: self.rng.next_u64(),
        }
    }

    /// Processes a SYN for a listener.
    fn syn(
        &mut self,
        now: Time,
        path: PathId,
        id: ListenerId,
        arrived: &Arrived<'_>,
        initial: Option<u32>,
    ) {
        let full = self.is_full();
        let Some(listener) = self.listeners.get_mut(&id) else { return };
        let beyond = full || listener.half_open >= listener.backlog.half_open;
        if beyond && !listener.reported_full {
            listener.reported_full = true;
            self.indications.push_back(Indication::BacklogFull { listener: id });
        }
        match listener.backlog.cookies {
            Cookies::Always => return self.send_cookie(now, path, id, arrived),
            Cookies::WhenFull if beyond && !full => {
                return self.send_cookie(now, path, id, arrived);
            }
            Cookies::WhenFull | Cookies::Never if beyond => {
                self.statistics.refused_syns += 1;
                return;
            }
            Cookies::WhenFull | Cookies::Never => {}
        }
        listener.half_open += 1;
        let defaults = listener.options.clone();
        let options = self.options_over(path, &defaults);
        let initial = initial.unwrap_or_else(|| self.secret.initial(now, arrived.tuple));
        let at = self.negotiated(now, path, arrived.tuple, initial, arrived.carrier, &options);
        let rules = self.rules;
        let connection = Connection::passive(now, &at, options, rules, id, &arrived.segment);
        let index = self.place(now, connection, false);
        self.settle(now, index);
    }

    /// Part of an offer that a listener accepts.
    fn agreed(options: &Options, offer: Offer) -> Offer {
        let stamp = offer.stamp.filter(|_| options.timestamps);
        // Without timestamps, a cookie has no room for the other options.
        Offer {
            mss: offer.mss,
            stamp,
            scale: offer.scale.filter(|_| options.window_scale && stamp.is_some()),
            sack: offer.sack && options.sack && stamp.is_some(),
            ecn: offer.ecn && options.ecn && stamp.is_some(),
            scps: None,
        }
    }

    /// Replies to a SYN without remembering it.
    fn send_cookie(&mut self, now: Time, path: PathId, id: ListenerId, arrived: &Arrived<'_>) {
        let tuple = arrived.tuple;
        let Some(listener) = self.listeners.get(&id) else { return };
        let settings = self.options_over(path, &listener.options);
        let offer = Self::agreed(&settings, Offer::from_segment(&arrived.segment));
        let sequence = arrived.segment.header.sequence;
        let mss = offer.mss.unwrap_or(packet::mss_default(tuple.remote.ip()));
        let cookie = self.secret.cookie(now, tuple, sequence, mss);
        let flow =
            Flow::new(tuple, settings.hop_limit, settings.dscp, 0).with_carrier(arrived.carrier);
        let fit = self.mtu(path).saturating_sub(flow.ip_len() + HEADER_LEN).min(65_535) as u16;
        let fit = settings.mss.map_or(fit, |mss| mss.min(fit));
        let mut options = vec![TcpOption::MaximumSegmentSize(fit)];
        if let Some(echo) = offer.stamp {
            let clock = (now.as_nanos() / 1_000_000) as u32;
            let stamp = self.secret.stamp_offset(tuple).wrapping_add(clock);
            let value = isn::stamp_with(stamp, &offer);
            options.push(if offer.sack {
                TcpOption::SackPermitted
            } else {
                TcpOption::NoOperation
            });
            if !offer.sack {
                options.push(TcpOption::NoOperation);
            }
            options.push(TcpOption::Timestamps { value, echo });
        }
        if offer.scale.is_some() {
            let shift = settings.receive_scale();
            options.extend([TcpOption::NoOperation, TcpOption::WindowScale(shift)]);
        }
        let echo = if offer.ecn { Flags::ECE } else { Flags::NONE };
        let header = Header {
            sequence: cookie,
            acknowledgment: sequence.wrapping_add(1),
            flags: Flags::SYN | Flags::ACK | echo,
            window: settings.receive_capacity().min(65_535) as u16,
            ..Header::default()
        };
        self.statistics.cookies_sent += 1;
        self.reply(Reply { path, flow, header, options });
    }

    /// Processes an acknowledgment for a listener that may return a cookie.
    fn cookie_returns(
        &mut self,
        now: Time,
        path: PathId,
        id: ListenerId,
        arrived: &Arrived<'_>,
    ) -> bool {
        let Some(listener) = self.listeners.get(&id) else { return false };
        let header = arrived.segment.header;
        if listener.backlog.cookies == Cookies::Never || self.is_full() {
            return false;
        }
        if header.flags.intersects(Flags::SYN) {
            return false;
        }
        let (irs, iss) = (header.sequence.wrapping_sub(1), header.acknowledgment.wrapping_sub(1));
        let Some(mss) = self.secret.open(now, arrived.tuple, irs, iss) else { return false };
        let options = self.options_over(path, &listener.options);
        let stamps =
            arrived.segment.options.map_while(Result::ok).find_map(|option| match option {
                TcpOption::Timestamps { value, echo } => Some((value, echo)),
                _ => None,
            });
        let offer = match stamps.filter(|_| options.timestamps) {
            Some((value, echo)) => isn::offer_in(echo, mss, value),
            None => Offer { mss: Some(mss), ..Offer::default() },
        };
        // A cookie does not remember SCPS-TP.
        let plain = Options { scps: None, ..options.clone() };
        let at = self.negotiated(now, path, arrived.tuple, iss, arrived.carrier, &plain);
        let rules = self.rules;
        let mut connection = Connection::from_cookie(now, &at, options, rules, id, irs, offer);
        connection.segment(now, arrived.ecn, &arrived.segment);
        if let Some(listener) = self.listeners.get_mut(&id) {
            listener.half_open += 1;
        }
        self.statistics.cookies_accepted += 1;
        let index = self.place(now, connection, false);
        self.settle(now, index);
        true
    }

    /// Sends the acknowledgment of a closed connection.
    pub(super) fn answer_from_time_wait(&mut self, now: Time, tuple: Tuple) {
        let Some(entry) = self.time_wait.get(tuple) else { return };
        let clock = (now.as_nanos() / 1_000_000) as u32;
        let stamps = entry.stamps.map(|(recent, offset)| {
            let value = offset.wrapping_add(clock);
            [
                TcpOption::NoOperation,
                TcpOption::NoOperation,
                TcpOption::Timestamps { value, echo: recent },
            ]
        });
        let header = Header {
            sequence: seq::wire(entry.send_next),
            acknowledgment: seq::wire(entry.receive_next),
            flags: Flags::ACK,
            window: entry.window,
            ..Header::default()
        };
        let options = stamps.map(Vec::from).unwrap_or_default();
        let (path, flow) = (entry.path, entry.flow.clone());
        self.reply(Reply { path, flow, header, options });
    }

    /// Replies with a reset to a segment of no connection (RFC 9293 §3.10.7.1).
    pub(super) fn reset(&mut self, path: PathId, arrived: &Arrived<'_>) {
        let segment: &Segment<'_> = &arrived.segment;
        let header = segment.header;
        if !self.config.reset_strangers || header.flags.contains(Flags::RST) {
            return;
        }
        let header = if header.flags.contains(Flags::ACK) {
            Header { sequence: header.acknowledgment, flags: Flags::RST, ..Header::default() }
        } else {
            Header {
                acknowledgment: header.sequence.wrapping_add(segment.occupies()),
                flags: Flags::RST | Flags::ACK,
                ..Header::default()
            }
        };
        let flow = Flow::new(arrived.tuple, HOPS, 0, 0).with_carrier(arrived.carrier);
        self.reply(Reply { path, flow, header, options: Vec::new() });
    }

    /// Resets the peer of a connection that is given up.
    pub(super) fn reset_peer(&mut self, index: u32) {
        let Some(connection) = self.slots[index as usize].connection.as_deref() else { return };
        let header = Header {
            sequence: seq::wire(connection.send_next()),
            acknowledgment: seq::wire(connection.receive_next()),
            flags: Flags::RST | Flags::ACK,
            ..Header::default()
        };
        let (path, flow) = (connection.path, connection.flow.clone());
        self.reply(Reply { path, flow, header, options: Vec::new() });
    }

    fn reply(&mut self, reply: Reply) {
        if self.replies.len() >= self.config.limits.replies {
            self.statistics.dropped_replies += 1;
            return;
        }
        self.replies.push_back(reply);
    }
}

/// Whether an address can be a host's.
pub(super) fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !address.is_broadcast() && !address.is_multicast() && !address.is_unspecified()
        }
        IpAddr::V6(address) => !address.is_multicast() && !address.is_unspecified(),
    }
}
