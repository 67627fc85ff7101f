//! Path MTU discovery: by ICMP (RFC 1191, RFC 8201, with the checks of RFC 5927) and by losses
//! (RFC 4821, RFC 8899).

use std::net::IpAddr;
use std::time::Duration;

use engine::Time;

use super::{Connection, Negotiated};
use crate::packet::{self, Refused};
use crate::segment::HEADER_LEN;
use crate::seq;

/// Time after which a larger packet is tried again (RFC 1191 §6.3, RFC 8201 §4).
pub(crate) const LIFETIME: Duration = Duration::from_secs(600);

/// Minimum MTU accepted from a router, as in Linux (`min_pmtu`): a forged report would make
/// segments of a few bytes. If a router reports less, packets of IPv4 are sent without DF.
const LEAST_V4: usize = 552;
/// Minimum MTU of IPv6 (RFC 8200 §5).
const LEAST_V6: usize = 1280;

/// Common MTUs (RFC 1191 §7.1, with Ethernet's and IPv6's). The next lower one is used if a
/// router's report has no MTU.
const PLATEAUS: [usize; 9] = [17_914, 8166, 4352, 2002, 1500, 1280, 1006, 576, 508];

/// Packet sizes tried one after the other where packets vanish without a report.
const FALLBACKS: [usize; 3] = [1500, 1280, 576];

/// Consecutive timeouts after which a full segment counts as too long: if no segment of its size
/// was acknowledged before, and if one was, so that the path must have changed.
const TIMEOUTS_UNPROVEN: u32 = 2;
const TIMEOUTS_PROVEN: u32 = 4;

/// Full segments that must be ready to follow a probe of the path: duplicate acknowledgments show
/// the probe's loss.
const BEHIND_PROBE: u64 = 4;

/// State of path MTU discovery for one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathMtu {
    /// Longest packet of the interface.
    pub(super) interface: usize,
    /// Longest segment that the peer accepts.
    pub(super) peer_mss: u16,
    /// Longest packet, if shorter than the interface's.
    limit: Option<usize>,
    /// Bytes of data in the longest acknowledged segment.
    proven: u64,
    /// Earliest time for a probe with a longer packet.
    probe_at: Option<Time>,
    /// Data of a probe under way.
    probe: Option<(u64, u64)>,
    /// The limit follows from timeouts, not from a report.
    guessed: bool,
}

impl PathMtu {
    /// Starts from the path MTU that other connections to this host discovered. Returns whether
    /// routers may fragment packets, too.
    pub(super) fn known(now: Time, at: &Negotiated) -> (Self, bool) {
        let host = at.tuple.remote.ip();
        let limit = at.path_mtu.map(|mtu| mtu.max(least(host)));
        let fragments = host.is_ipv4() && at.path_mtu.is_some_and(|mtu| mtu < LEAST_V4);
        let known = Self {
            interface: at.mtu,
            peer_mss: packet::mss_default(host),
            limit,
            proven: 0,
            probe_at: limit.map(|_| now + LIFETIME),
            probe: None,
            guessed: false,
        };
        (known, fragments)
    }

    /// Longest packet that may be sent.
    fn packet_max(&self) -> usize {
        self.limit.map_or(self.interface, |limit| limit.min(self.interface))
    }
}

/// Minimum MTU accepted for a path to this host.
fn least(host: IpAddr) -> usize {
    match host {
        IpAddr::V4(_) => LEAST_V4,
        IpAddr::V6(_) => LEAST_V6,
    }
}

impl Connection {
    /// Longest packet that may be sent.
    pub(super) fn packet_max(&self) -> usize {
        self.path_mtu.packet_max()
    }

    fn is_v4(&self) -> bool {
        self.flow.tuple.remote.is_ipv4()
    }

    /// Bytes of data in a packet of this length with uncompressed headers.
    fn data_within(&self, packet: usize) -> u64 {
        self.data_of(packet.saturating_sub(self.flow.ip_len() + HEADER_LEN))
    }

    /// Path MTU by a report, if it quotes a segment in flight (RFC 5927 §4.1) that was longer.
    pub(crate) fn judge_report(&self, report: &Refused) -> Option<usize> {
        let at = seq::expand(self.snd.una(), report.sequence);
        if !self.may_send() || at < self.snd.una() || at >= self.snd.nxt() {
            return None;
        }
        let stated = usize::try_from(report.mtu).unwrap_or(usize::MAX);
        let mtu = if stated == 0 {
            PLATEAUS.into_iter().find(|plateau| *plateau < report.len)?
        } else {
            stated
        };
        (mtu < report.len).then_some(mtu)
    }

    /// Limits packets to `mtu` bytes, as a router reported. Longer segments in flight are
    /// retransmitted as shorter ones.
    pub(crate) fn limit_packets(&mut self, now: Time, mtu: usize) {
        let least = least(self.flow.tuple.remote.ip());
        let limit = mtu.max(least);
        let fragments = self.is_v4() && mtu < least && !self.flow.may_fragment;
        let probe_failed = limit == self.packet_max() && self.path_mtu.probe.is_some();
        if limit >= self.packet_max() && !fragments && !probe_failed {
            return;
        }
        self.flow.may_fragment |= fragments;
        self.lower(limit, now + LIFETIME);
        self.path_mtu.guessed = false;
        self.counts.path_mtu_reports += 1;
        self.send_shorter(now, self.data_within(mtu));
    }

    fn lower(&mut self, limit: usize, probe_at: Time) {
        self.path_mtu.limit = Some(limit);
        self.path_mtu.probe_at = Some(probe_at);
        self.path_mtu.probe = None;
        self.control.set_mss(self.mss());
    }

    /// Marks segments in flight with more than `most` bytes as lost, though not by congestion.
    fn send_shorter(&mut self, now: Time, most: u64) {
        if self.board.lose_longer(most) == 0 {
            return;
        }
        self.losses.cut(self.snd.nxt());
        self.timers.reorder_at = None;
        self.arm_retransmission(now);
    }

    /// Handles a retransmission timeout: if it repeats for a full segment, packets of that length
    /// may vanish without a report.
    pub(super) fn suspect_black_hole(&mut self, now: Time) {
        let enough =
            if self.path_mtu.proven >= self.mss() { TIMEOUTS_PROVEN } else { TIMEOUTS_UNPROVEN };
        if !self.options.mtu_probing || self.timers.timeouts < enough {
            return;
        }
        let now_max = self.packet_max();
        let fallbacks = if self.is_v4() { &FALLBACKS[..] } else { &FALLBACKS[..2] };
        let Some(next) = fallbacks.iter().copied().find(|next| *next < now_max) else { return };
        // Segments that fit into a shorter packet are not lost because of their length.
        if self.board.first_len() <= self.data_within(next) {
            return;
        }
        self.lower(next, now);
        self.path_mtu.guessed = true;
        self.counts.black_holes += 1;
    }

    /// Notes an acknowledgment of segments of up to `longest` bytes.
    pub(super) fn note_proven(&mut self, longest: u64) {
        self.path_mtu.proven = self.path_mtu.proven.max(longest);
        let Some((_, end)) = self.path_mtu.probe.filter(|(_, end)| self.snd.una() >= *end) else {
            return;
        };
        // The probe went through, as it was sent once.
        let (limit, _) = (self.path_mtu.limit.take(), self.path_mtu.probe.take());
        debug_assert!(
            limit.is_some() && end <= self.snd.una(),
            "a probe is longer than a limit allows"
        );
        (self.path_mtu.probe_at, self.flow.may_fragment) = (None, false);
        self.control.set_mss(self.mss());
        self.events.path_mtu = Some(self.path_mtu.interface);
    }

    /// Bytes of new data for a probe of the path, if one is due.
    pub(super) fn probe_len(&self, now: Time, there: u64) -> Option<u64> {
        let due = self.path_mtu.probe_at.is_some_and(|at| at <= now);
        if !due
            || self.path_mtu.probe.is_some()
            || !self.losses.is_open()
            || self.timers.timeouts > 0
        {
            return None;
        }
        let len = self
            .data_within(self.path_mtu.interface)
            .min(self.data_of(usize::from(self.path_mtu.peer_mss)));
        let len = self.options.mss.map_or(len, |mss| len.min(self.data_of(usize::from(mss))));
        if self.space.marks.after(self.snd.nxt()).is_some() {
            return None;
        }
        let enough = there.min(self.snd.usable()) >= len + BEHIND_PROBE * self.mss();
        (enough && len > self.mss() && !self.compresses()).then_some(len)
    }

    /// Notes that new data was sent in a packet beyond the limit.
    pub(super) fn note_probe(&mut self, start: u64, end: u64) {
        self.path_mtu.probe = Some((start, end));
    }

    /// Whether a probe of the path is all that is lost, which does not indicate congestion (RFC
    /// 4821 §7.5).
    pub(super) fn lost_probe_alone(&mut self) -> bool {
        let Some((start, end)) = self.path_mtu.probe else { return false };
        self.board.lost() == end - start && self.board.first_lost() == Some(start)
    }

    /// Ends the probe if its segment, which begins at `start`, is retransmitted.
    pub(super) fn end_failed_probe(&mut self, now: Time, start: u64) {
        if self.path_mtu.probe.take_if(|(from, to)| (*from..*to).contains(&start)).is_some() {
            self.path_mtu.probe_at = Some(now + LIFETIME);
            if self.path_mtu.guessed {
                self.events.path_mtu = self.path_mtu.limit;
            }
        }
    }
}
