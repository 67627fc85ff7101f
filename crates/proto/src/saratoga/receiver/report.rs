//! STATUS packets: when one leaves, and which holes it lists (§4.5).

use std::collections::VecDeque;
use std::time::Duration;

use engine::Time;
use wire::saratoga::{Data, Hole, Holes, Packet, Status, StatusCode, Timestamp, Width};

use super::extent::Extent;
use super::{Phase, Receiver};
use crate::path::{Burst, Path};
use crate::saratoga::config::Version;
use crate::saratoga::core::{Alarm, Core};
use crate::thin_return::{self, ArrivalRate, EARLY_ITEMS};

/// STATUS packets of one report at most; holes beyond them follow the next time.
const PACKETS_MAX: usize = 64;

/// Requests for a STATUS that wait for a reply. Of more, the oldest is forgotten.
const REQUESTS_MAX: usize = 16;

/// STATUS packets at most that a sender gets without having requested one, after a silence each.
const UNREQUESTED_MAX: u32 = 3;

/// Shorter backlogs of a path do not delay a STATUS.
const BACKLOG_LEAST: Duration = Duration::from_millis(5);

/// Bytes of a STATUS without holes, with its timestamp and the headers below it: 32 and 42.
const STATUS_LEN: u64 = 74;

/// Bytes that cross the forward link in the time of one hole, from which on the return link is
/// thin: 8 bytes against 4 KiB are a ratio of 1 to 512.
const THIN: u64 = 4096;

/// Need of a session's sender for STATUS packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// It did not request a STATUS so far; this many were sent nevertheless.
    Unknown { sent: u32 },
    /// It requests STATUS packets, or was itself requested to send.
    Status,
    /// It sent the end without a request for a STATUS, as over links without a return (§4.4).
    Nothing,
}

/// A request for a STATUS, or the STATUS that nobody requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    /// Timestamp of the data to which it replies.
    timestamp: Option<Timestamp>,
    /// Behind the data to which it replies.
    in_response_to: u64,
    is_voluntary: bool,
}

impl Reply {
    /// Timestamp of the request.
    pub(super) fn requested_at(self) -> Option<Timestamp> {
        self.timestamp.filter(|_| !self.is_voluntary)
    }
}

/// Session and path of STATUS packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms<'a> {
    pub(super) path: Option<&'a Path>,
    pub(super) version: Version,
    pub(super) session: u32,
    /// Bytes of the longest datagram, where settings say so.
    pub(super) datagram_max: Option<usize>,
    /// Whether the METADATA arrived.
    pub(super) is_described: bool,
}

/// STATUS packets of a session: the requests for them, and those that are being sent.
#[derive(Debug)]
pub(super) struct Reports {
    wants: Wants,
    /// Requests: the timestamp, and the byte behind the data that came with it.
    requests: VecDeque<(Option<Timestamp>, u64)>,
    /// The timestamp of the data with the highest offset that had one.
    stamped: (u64, Option<Timestamp>),
    is_due: bool,
    /// Whether a STATUS is due that says that the receiver is there (§6.1.2), unless the sender
    /// requests one first.
    greeting_due: bool,
    /// Whether a STATUS waited until the path was free.
    has_waited: bool,
    arrivals: ArrivalRate,
    /// End of what the last STATUS listed, which over a thin return link the next one leaves out.
    reported: u64,
    /// STATUS packets of a report that is being sent.
    outbox: VecDeque<Vec<u8>>,
}

impl Reports {
    /// STATUS packets of a session that this peer requested, or that the sender began.
    pub(super) fn new(is_ours: bool) -> Self {
        Self {
            wants: if is_ours { Wants::Status } else { Wants::Unknown { sent: 0 } },
            requests: VecDeque::new(),
            stamped: (0, None),
            is_due: false,
            greeting_due: !is_ours,
            has_waited: false,
            arrivals: ArrivalRate::new(),
            reported: 0,
            outbox: VecDeque::new(),
        }
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.outbox.iter().map(Vec::len).sum()
    }

    /// Notes that the sender requested the session.
    pub(super) fn session_requested(&mut self) {
        self.wants = Wants::Status;
        self.greeting_due = false;
    }

    /// Notes data that may be new.
    pub(super) fn data_arrived(&mut self, now: Time, len: usize) {
        self.arrivals.arrived(now, len);
    }

    /// Notes what a packet that ends at `end` requests.
    pub(super) fn heed(&mut self, data: &Data<'_>, end: u64) {
        if data.timestamp.is_some() && end >= self.stamped.0 {
            self.stamped = (end, data.timestamp);
        }
        if data.wants_status {
            self.session_requested();
            if self.requests.len() >= REQUESTS_MAX {
                self.requests.pop_front();
            }
            self.requests.push_back((data.timestamp, end));
        }
        if data.is_end && !data.wants_status && matches!(self.wants, Wants::Unknown { .. }) {
            self.wants = Wants::Nothing;
        }
    }

    /// Has a STATUS sent that nobody requested.
    pub(super) fn volunteer(&mut self) {
        self.is_due = true;
    }

    /// Whether the sender has no use for a STATUS.
    pub(super) fn is_unwanted(&self) -> bool {
        self.wants == Wants::Nothing
    }

    /// Whether a STATUS waits to be made.
    pub(super) fn is_due(&self) -> bool {
        !self.requests.is_empty() || self.is_due
    }

    /// Takes the next STATUS to make: what waited has that of the last request.
    pub(super) fn next(&mut self, extent: &Extent) -> Option<Reply> {
        let is_due = std::mem::take(&mut self.is_due);
        let request = self.requests.pop_back();
        self.requests.clear();
        match request {
            Some((timestamp, in_response_to)) => {
                Some(Reply { timestamp, in_response_to, is_voluntary: false })
            }
            None => is_due.then_some(Reply {
                timestamp: self.stamped.1,
                in_response_to: extent.highest(),
                is_voluntary: true,
            }),
        }
    }

    /// Queues a packet.
    pub(super) fn push(&mut self, packet: Vec<u8>) {
        self.outbox.push_back(packet);
    }

    /// Returns the packet to send next.
    pub(super) fn front(&self) -> Option<Packet<'_>> {
        self.outbox.front().and_then(|bytes| Packet::decode(bytes).ok())
    }

    /// Notes that this was sent.
    pub(super) fn sent(&mut self) {
        self.outbox.pop_front();
    }

    /// Forgets requests and packets.
    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.outbox.clear();
    }

    /// Continues under another number, because the sender began again.
    pub(super) fn restart(&mut self) {
        self.clear();
        self.stamped = (0, None);
        self.reported = 0;
    }

    /// Whether a STATUS that nobody requested may be of use to the sender.
    fn may_volunteer(&mut self) -> bool {
        match &mut self.wants {
            Wants::Status => true,
            Wants::Nothing => false,
            Wants::Unknown { sent } => {
                *sent += 1;
                *sent <= UNREQUESTED_MAX
            }
        }
    }

    /// Most bytes between two holes that cost less time than another hole in a STATUS.
    fn bridge(&self, path: Option<&Path>, width: Width) -> u64 {
        let back = path.and_then(Path::rate_bps);
        thin_return::bridge(2 * width.bytes(), self.arrivals.bps(), back)
    }

    /// Offset from which on a STATUS lists holes.
    ///
    /// While new data arrives and the return link is thin, each lists those that opened since the
    /// one before: repairs of the others are under way. Once all was sent, a STATUS lists all.
    fn listed_from(&self, extent: &Extent, version: Version, longest: u64) -> u64 {
        match version {
            Version::V1 if longest >= THIN && extent.to_come() > 0 => self.reported,
            Version::V0 | Version::V1 => 0,
        }
    }

    /// Holes of `from..end`, some of them joined over a thin return link (§4.5 allows that).
    ///
    /// To send a hole takes longer there than to receive the data up to the next one again: 8 bytes
    /// take 32 ms at 2 kbit/s, in which 40 kB arrive at 10 Mbit/s. While new data arrives, however,
    /// the return link would be idle. So a STATUS may take as long as that does, or half of it where
    /// the return link is not thin: of 0.6 s of data, 0.6 s, which are 150 bytes and some 10 holes at
    /// 2 kbit/s. Over a thin one it lists few, so that the next one follows soon.
    fn holes(
        &self,
        extent: &Extent,
        path: Option<&Path>,
        width: Width,
        (from, end): (u64, u64),
    ) -> Vec<Hole> {
        let gaps: Vec<_> = extent.ranges.gaps(from, end).collect();
        let (forward, back) = (self.arrivals.bps(), path.and_then(Path::rate_bps));
        let longest = self.bridge(path, width);
        let share = if longest >= THIN { extent.to_come() } else { extent.to_come() / 2 };
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        let room = thin_return::bridge(share, back, forward).saturating_sub(STATUS_LEN);
        let count = usize::try_from(room).unwrap_or(usize::MAX) / (2 * width.bytes());
        let count = if longest >= THIN { count.min(EARLY_ITEMS) } else { count };
        let bridge = thin_return::bridge_for(&gaps, longest, count);
        let joined = thin_return::join(gaps, bridge);
        joined.map(|(start, end)| Hole { start, last: end - 1 }).collect()
    }

    /// Makes the STATUS packets that list what is missing: more than one if the holes do not fit.
    pub(super) fn make(&mut self, extent: &Extent, terms: &Terms<'_>, reply: Reply) {
        let Reply { timestamp, in_response_to, is_voluntary } = reply;
        let mtu = terms.path.map_or(0, Path::mtu);
        let max = terms.datagram_max.map_or(mtu, |max| max.min(mtu));
        let width = extent.width().max(Width::fitting(extent.highest()));
        let stamp_len = timestamp.map_or(0, |timestamp| timestamp.len());
        let room = max.saturating_sub(8 + stamp_len + 2 * width.bytes());
        let each = (room / (2 * width.bytes())).max(1);
        // Version 0 tells of all that is missing: where nothing is, all is there.
        let end = match terms.version {
            Version::V0 => extent.end().unwrap_or(extent.highest()),
            Version::V1 => extent.highest(),
        };
        // Without METADATA it is not known what an earlier session brought (§4.5, bit 13).
        let (end, in_response_to) = if terms.is_described { (end, in_response_to) } else { (0, 0) };
        let longest = self.bridge(terms.path, width);
        let from = self.listed_from(extent, terms.version, longest).min(end);
        let holes = self.holes(extent, terms.path, width, (from, end));
        let first = holes.first().map_or(end.min(extent.highest()), |hole| hole.start);
        let progress = if from > 0 { extent.ranges.prefix() } else { first };
        self.reported = end;
        // Where there are no holes, both edges of what is worked on are the same.
        let in_response_to = in_response_to.max(progress);
        let mut parts: Vec<&[Hole]> = holes.chunks(each).take(PACKETS_MAX).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let is_partial = parts.len() > 1 || from > 0;
        for part in parts {
            let packet = Packet::Status(Status {
                descriptor: width,
                timestamp,
                lacks_metadata: !terms.is_described,
                is_partial,
                is_voluntary,
                code: StatusCode::Ok,
                session: terms.session,
                progress,
                in_response_to,
                holes: Holes::new(part),
            });
            self.outbox.extend(packet.to_vec());
        }
    }
}

impl Receiver {
    /// A direction of the path came up: the sender learns at once what is missing.
    pub(crate) fn path_up(&mut self, core: &mut Core) {
        self.request_due |= self.phase == Phase::Asking;
        let is_informed = self.phase == Phase::Receiving && self.reports.wants == Wants::Status;
        self.reports.is_due |= is_informed && self.has_data;
        self.want_all(core);
    }

    /// Time for a STATUS that nobody requested.
    pub(super) fn voluntary(&mut self, core: &mut Core, now: Time) {
        let quiet = self.quiet(core);
        let silent_at = self.base.last_received + quiet;
        let is_silent = silent_at <= now;
        let every = self.remote.voluntary_interval;
        let mut wait = silent_at.since(now);
        let greets = std::mem::take(&mut self.reports.greeting_due);
        if every.is_some() || is_silent || greets {
            if every.is_none() && !self.reports.may_volunteer() || self.reports.is_unwanted() {
                return;
            }
            if is_silent {
                // Repairs of what was listed before are under way no more.
                self.reports.reported = 0;
            }
            self.volunteer(core);
            // A sender that was started again knows only what it is asked for.
            let can_go_on =
                self.description.as_ref().is_none_or(|description| description.can_go_on);
            let is_gone = is_silent && self.misses > 0 && can_go_on;
            self.request_due = is_gone && self.wish.is_some();
            self.misses += u32::from(is_silent);
            wait = every.map_or(quiet, |every| every.min(quiet));
        }
        self.base.alarm(&mut core.shared, Alarm::Voluntary, now, wait);
    }

    /// Whether a STATUS has to wait because the one before it still occupies the path: it is made
    /// when it can leave, and describes what has arrived until then. It waits once, because others
    /// may keep the path occupied.
    pub(super) fn waits_for_path(&mut self, core: &mut Core, burst: &Burst<'_>) -> bool {
        let wait = burst.backlog();
        if self.reports.has_waited || wait < BACKLOG_LEAST {
            self.reports.has_waited = false;
            return false;
        }
        if !self.base.is_armed(Alarm::Pace) {
            self.base.alarm(&mut core.shared, Alarm::Pace, burst.now(), wait);
        }
        true
    }

    /// The path is free.
    pub(super) fn path_free(&mut self, core: &mut Core) {
        self.reports.has_waited = true;
        self.want_all(core);
    }

    /// Returns the session and path of its STATUS packets.
    pub(super) fn terms<'a>(&self, core: &'a Core) -> Terms<'a> {
        Terms {
            path: core.shared.paths.get(&self.id.peer),
            version: core.config.version,
            session: self.id.number,
            datagram_max: self.remote.datagram_max,
            is_described: self.description.is_some(),
        }
    }

    /// The last STATUS of the session, for those who ask later, too.
    pub(crate) fn last_word(&self) -> Vec<u8> {
        match self.phase {
            Phase::Closing(code) => self.last_word_as(code, None),
            Phase::Asking
            | Phase::Receiving
            | Phase::Verifying
            | Phase::Syncing
            | Phase::Reading
            | Phase::Installing
            | Phase::Done => self.last_word_as(self.outcome(), None),
        }
    }

    fn outcome(&self) -> StatusCode {
        self.outcome.unwrap_or(StatusCode::NotInterested)
    }

    pub(super) fn last_word_as(&self, code: StatusCode, timestamp: Option<Timestamp>) -> Vec<u8> {
        let size = if code == StatusCode::Ok {
            self.extent.end().unwrap_or(self.extent.highest())
        } else {
            0
        };
        let packet = Packet::Status(Status {
            descriptor: self.extent.width().max(Width::fitting(size)),
            timestamp,
            lacks_metadata: code == StatusCode::MetadataRequired,
            is_partial: false,
            is_voluntary: true,
            code,
            session: self.id.number,
            progress: size,
            in_response_to: size,
            holes: Holes::NONE,
        });
        packet.to_vec().unwrap_or_default()
    }
}
