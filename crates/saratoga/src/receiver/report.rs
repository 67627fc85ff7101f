//! STATUS packets: when they are sent, and which holes they list (§4.5).

use std::collections::VecDeque;
use std::time::Duration;

use engine::Time;
use session::path::{Burst, Path};
use session::thin_return::{self, ArrivalRate, EARLY_ITEMS};

use super::extent::Extent;
use super::{Phase, Receiver};
use crate::config::Version;
use crate::core::{Alarm, Core};
use crate::packet::{Data, Hole, Holes, Packet, Status, StatusCode, Timestamp, Width};

/// Maximum STATUS packets of one report; further holes follow next time.
const PACKETS_MAX: usize = 64;

/// Maximum number of requests waiting for a reply. Beyond it, the oldest is forgotten.
const REQUESTS_MAX: usize = 16;

/// Maximum number of STATUS packets sent, each after a silence, to a sender that never requested
/// one.
const UNREQUESTED_MAX: u32 = 3;

/// Backlogs of a path shorter than this do not delay a STATUS.
const BACKLOG_LEAST: Duration = Duration::from_millis(5);

/// Bytes of a STATUS without holes, with its timestamp and the headers below it: 32 and 42.
const STATUS_LEN: u64 = 74;

/// Bytes that cross the forward link in the time of one hole, at or above which the return link
/// counts as thin: 8 bytes against 4 KiB are a ratio of 1 to 512.
const THIN: u64 = 4096;

/// Whether a session's sender needs STATUS packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// The sender has not requested a STATUS so far; this many were sent nevertheless.
    Unknown { sent: u32 },
    /// The sender requests STATUS packets, or was itself requested to send.
    Status,
    /// The sender sent the end without requesting a STATUS, as over paths without a return link
    /// (§4.4).
    Nothing,
}

/// Request for a STATUS, or an unrequested STATUS.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    /// Timestamp of the data to which the STATUS replies.
    timestamp: Option<Timestamp>,
    /// Offset after the data to which the STATUS replies.
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
    /// Bytes of the longest datagram, if configured.
    pub(super) datagram_max: Option<usize>,
    /// Whether the METADATA has arrived.
    pub(super) is_described: bool,
}

/// STATUS packets of a session: pending requests, and packets being sent.
#[derive(Debug)]
pub(super) struct Reports {
    wants: Wants,
    /// Requests: timestamp, and the offset after the data of the same packet.
    requests: VecDeque<(Option<Timestamp>, u64)>,
    /// Timestamp of the stamped data with the highest offset.
    stamped: (u64, Option<Timestamp>),
    is_due: bool,
    /// Whether the sender does not know what an earlier session received.
    resumes: bool,
    /// Whether an initial STATUS is due (§6.1.2), unless the sender requests one first.
    greeting_due: bool,
    /// Whether a STATUS waited until the path was free.
    has_waited: bool,
    arrivals: ArrivalRate,
    /// End of the holes listed in the last STATUS. Over a thin return link, the next STATUS lists
    /// no hole before this offset, unless no new data is to come.
    reported: u64,
    /// STATUS packets of the report being sent.
    outbox: VecDeque<Vec<u8>>,
}

impl Reports {
    /// State for a session that this peer requested, or that the sender started.
    pub(super) fn new(is_ours: bool) -> Self {
        Self {
            wants: if is_ours { Wants::Status } else { Wants::Unknown { sent: 0 } },
            requests: VecDeque::new(),
            stamped: (0, None),
            is_due: false,
            resumes: false,
            greeting_due: !is_ours,
            has_waited: false,
            arrivals: ArrivalRate::new(),
            reported: 0,
            outbox: VecDeque::new(),
        }
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

    /// Notes the requests of a packet that ends at `end`.
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

    /// Schedules an unrequested STATUS.
    pub(super) fn volunteer(&mut self) {
        self.is_due = true;
    }

    /// Whether the sender does not need a STATUS.
    pub(super) fn is_unwanted(&self) -> bool {
        self.wants == Wants::Nothing
    }

    /// Whether a STATUS is due.
    pub(super) fn is_due(&self) -> bool {
        !self.requests.is_empty() || self.is_due
    }

    /// Returns the next STATUS to send, which replies to the latest request.
    pub(super) fn next(&mut self, extent: &Extent) -> Option<Reply> {
        let is_due = std::mem::take(&mut self.is_due);
        let resumes = std::mem::take(&mut self.resumes);
        let request = self.requests.pop_back();
        self.requests.clear();
        // A reply to a packet at the beginning of the file would not cover what follows.
        if let Some((timestamp, in_response_to)) = request.filter(|_| !resumes) {
            return Some(Reply { timestamp, in_response_to, is_voluntary: false });
        }
        (is_due || resumes).then_some(Reply {
            timestamp: request.map_or(self.stamped.1, |(timestamp, _)| timestamp),
            in_response_to: extent.highest(),
            is_voluntary: true,
        })
    }

    /// Queues a packet.
    pub(super) fn push(&mut self, packet: Vec<u8>) {
        self.outbox.push_back(packet);
    }

    /// Returns the packet to send next.
    pub(super) fn front(&self) -> Option<Packet<'_>> {
        self.outbox.front().and_then(|bytes| Packet::decode(bytes).ok())
    }

    /// Removes the packet that was sent.
    pub(super) fn sent(&mut self) {
        self.outbox.pop_front();
    }

    /// Forgets requests and packets.
    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.outbox.clear();
    }

    /// Continues under another number, because the sender restarted.
    pub(super) fn restart(&mut self) {
        self.clear();
        self.stamped = (0, None);
        self.list_all();
    }

    /// Has the next STATUS list all holes, because its sender may know of none.
    pub(super) fn list_all(&mut self) {
        self.reported = 0;
    }

    /// Has the next STATUS cover what an earlier session received.
    pub(super) fn resume(&mut self) {
        self.resumes = true;
    }

    /// Counts an unrequested STATUS. Returns whether it may be useful to the sender.
    fn try_volunteer(&mut self) -> bool {
        match &mut self.wants {
            Wants::Status => true,
            Wants::Nothing => false,
            Wants::Unknown { sent } => {
                *sent += 1;
                *sent <= UNREQUESTED_MAX
            }
        }
    }

    /// Maximum bytes between two holes that cost less time than another hole in a STATUS.
    fn bridge(&self, path: Option<&Path>, width: Width) -> u64 {
        let back = path.and_then(Path::rate_bps);
        thin_return::bridge(2 * width.bytes(), self.arrivals.bps(), back)
    }

    /// Offset from which on a STATUS lists holes.
    ///
    /// While new data arrives and the return link is thin, each STATUS lists only holes that opened
    /// since the previous one, because repairs of the others are in flight. Once everything was
    /// sent, a STATUS lists all.
    fn listed_from(&self, extent: &Extent, version: Version, longest: u64) -> u64 {
        match version {
            Version::V1 if longest >= THIN && extent.to_come() > 0 => self.reported,
            Version::V0 | Version::V1 => 0,
        }
    }

    /// Holes of `from..end`, some of them joined over a thin return link (§4.5 allows that).
    ///
    /// Sending a hole takes longer there than receiving the data up to the next one again: 8 bytes
    /// take 32 ms at 2 kbit/s, in which 40 kB arrive at 10 Mbit/s. While new data arrives, however,
    /// the return link would be idle. A STATUS may therefore take as long as the data, or half of
    /// it where the return link is not thin. For 0.6 s of data this is 0.6 s: 150 bytes and some 10
    /// holes at 2 kbit/s. Over a thin one it lists few, so that the next one follows soon.
    fn holes(
        &self,
        extent: &Extent,
        path: Option<&Path>,
        width: Width,
        from: u64,
        end: u64,
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

    /// Makes the STATUS packets that list missing data: several if the holes do not fit.
    pub(super) fn make(&mut self, extent: &Extent, terms: &Terms<'_>, reply: Reply) {
        let Reply { timestamp, in_response_to, is_voluntary } = reply;
        let mtu = terms.path.map_or(0, Path::mtu);
        let max = terms.datagram_max.map_or(mtu, |max| max.min(mtu));
        let width = extent.width().max(Width::fitting(extent.highest()));
        let stamp_len = timestamp.map_or(0, |timestamp| timestamp.len());
        let room = max.saturating_sub(8 + stamp_len + 2 * width.bytes());
        let each = (room / (2 * width.bytes())).max(1);
        // Version 0 lists all missing data: nothing listed means completion.
        let end = match terms.version {
            Version::V0 => extent.end().unwrap_or(extent.highest()),
            Version::V1 => extent.highest(),
        };
        // Without METADATA, ranges of an earlier session are unknown (§4.5, bit 13).
        let (end, in_response_to) = if terms.is_described { (end, in_response_to) } else { (0, 0) };
        let longest = self.bridge(terms.path, width);
        let from = self.listed_from(extent, terms.version, longest).min(end);
        let holes = self.holes(extent, terms.path, width, from, end);
        let first = holes.first().map_or(end.min(extent.highest()), |hole| hole.start);
        let progress = if from > 0 { extent.ranges.prefix() } else { first };
        self.reported = end;
        // Without holes, both edges of the window are the same.
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
    /// Reports missing data at once when a direction of the path comes up.
    pub(crate) fn path_up(&mut self, core: &mut Core) {
        self.request_due |= self.phase == Phase::Asking;
        let is_informed = self.phase == Phase::Receiving && self.reports.wants == Wants::Status;
        self.reports.is_due |= is_informed && self.has_data;
        self.want_all(core);
    }

    /// Handles the timer for an unrequested STATUS.
    pub(super) fn voluntary(&mut self, core: &mut Core, now: Time) {
        let quiet = self.quiet(core);
        let silent_at = self.base.last_received + quiet;
        let is_silent = silent_at <= now;
        let every = self.remote.voluntary_interval;
        let mut wait = silent_at.since(now);
        let greets = std::mem::take(&mut self.reports.greeting_due);
        if every.is_some() || is_silent || greets {
            if every.is_none() && !self.reports.try_volunteer() || self.reports.is_unwanted() {
                return;
            }
            if is_silent {
                // Repairs of holes listed before are no longer under way.
                self.reports.reported = 0;
            }
            self.volunteer(core);
            // A restarted sender knows only the requests it receives.
            let can_go_on =
                self.description.as_ref().is_none_or(|description| description.can_go_on);
            let is_gone = is_silent && self.misses > 0 && can_go_on;
            self.request_due = is_gone && self.wish.is_some();
            self.misses += u32::from(is_silent);
            wait = every.map_or(quiet, |every| every.min(quiet));
        }
        self.base.alarm(&mut core.shared, Alarm::Voluntary, now, wait);
    }

    /// Whether a STATUS has to wait because the previous one still occupies the path. It is made
    /// when it can be sent, and then describes everything received until then. It waits once,
    /// because others may keep the path occupied.
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

    /// Notes that the path is free.
    pub(super) fn path_free(&mut self, core: &mut Core) {
        self.reports.has_waited = true;
        self.want_all(core);
    }

    /// Session and path of the STATUS packets.
    pub(super) fn terms<'a>(&self, core: &'a Core) -> Terms<'a> {
        Terms {
            path: core.shared.paths.get(&self.id.peer),
            version: core.config.version,
            session: self.id.number,
            datagram_max: self.remote.datagram_max,
            is_described: self.description.is_some(),
        }
    }

    /// Last STATUS of the session, also for later requests.
    pub(crate) fn last_word(&self) -> Vec<u8> {
        match self.phase {
            Phase::Closing(code) => self.last_word_as(code, None),
            Phase::Asking | Phase::Receiving | Phase::Storing | Phase::Reading | Phase::Done => {
                self.last_word_as(self.outcome(), None)
            }
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
