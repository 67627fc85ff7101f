//! A session at the peer that receives the file (draft-wood-tsvwg-saratoga-22 §6).
//!
//! Nothing is said to be there before it is safe: the STATUS that says that all has arrived is sent
//! when the file has its name.

mod completion;
mod report;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use engine::{Completion, EffectError, FileName, IndexRequest, OpenMode, Time};
use wire::checksum::{Checksum, ChecksumType};
use wire::saratoga::{
    Content, Data, FileChecksum, Metadata, Packet, Request, RequestKind, Status, StatusCode,
    Timestamp, Width,
};

use self::report::Wants;
use crate::path::{Burst, Class, Turn};
use crate::ranges::Ranges;
use crate::saratoga::config::{Remote, Version};
use crate::saratoga::core::{Alarm, Core, Job, Task};
use crate::saratoga::indication::{Failure, Indication, Limit, Report, SessionId};
use crate::saratoga::partials::{self, Partial};
use crate::session::Base;
use crate::spool::Spool;
use crate::storage::Storage as _;
use crate::sum::{Sum, Value};
use crate::thin_return::ArrivalRate;

/// STATUS packets of one report at most; holes beyond them are told the next time.
const PACKETS_MAX: usize = 64;

/// Requests for a STATUS that wait to be answered. Of more, the oldest is forgotten.
const REQUESTS_MAX: usize = 16;

/// Packets of a sender up to which they are counted.
const FEW_PACKETS: u32 = 2;

/// How long data waits for METADATA, if eight answers are not longer.
const UNKNOWN_MOST: Duration = Duration::from_secs(600);

/// What this peer asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) kind: RequestKind,
    /// The name there.
    pub(crate) name: String,
    /// The name here; nothing of a directory, which is only looked at.
    pub(crate) destination: Option<FileName>,
}

/// A session that receives.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) base: Base<Alarm>,
    pub(crate) id: SessionId,
    remote: Remote,
    wish: Option<Wish>,
    request_due: bool,
    known: Option<Known>,
    /// Whether the working file was opened, which takes METADATA and a DATA packet.
    is_begun: bool,
    /// Packets of the sender that arrived, up to [`FEW_PACKETS`].
    packets: u32,
    /// Whether one of them was a DATA packet.
    has_data: bool,
    width: Width,
    /// What has arrived.
    ranges: Ranges,
    /// Behind the highest octet of which the sender spoke.
    highest: u64,
    /// The end, if it is known.
    end: Option<u64>,
    /// The end of a stream that came before its description.
    early_end: Option<u64>,
    spool: Spool,
    /// The number of its record and its working file.
    number: u32,
    /// Octets that an earlier session brought.
    resumed: u64,
    /// Requests for a STATUS: the timestamp, and the octet behind the data that asked.
    requests: VecDeque<(Option<Timestamp>, u64)>,
    /// The timestamp of the data with the highest offset that had one.
    stamped: (u64, Option<Timestamp>),
    voluntary_due: bool,
    /// Whether a STATUS is due that says that the receiver is there (§6.1.2), unless the sender
    /// requests one first.
    greeting_due: bool,
    wants: Wants,
    /// Whether a STATUS waited until the path was free.
    has_waited: bool,
    arrivals: ArrivalRate,
    /// End of what the last STATUS listed, which over a thin return link the next one leaves out.
    reported: u64,
    /// STATUS packets of a report that is being sent.
    outbox: VecDeque<Vec<u8>>,
    /// What is written and being made safe, and what is safe and on record.
    saving: Option<Ranges>,
    saved: Ranges,
    record_due: bool,
    recording: bool,
    /// Octets covered when it was last saved.
    saved_at: u64,
    syncs: u32,
    /// The record of a directory, as far as it was read.
    listing: Vec<u8>,
    misses: u32,
    /// Whether the file has its name.
    is_installed: bool,
    /// Why it failed.
    failure: Option<StatusCode>,
    phase: Phase,
}

/// What the METADATA says.
#[derive(Debug)]
struct Known {
    content: Content,
    name: String,
    destination: Option<FileName>,
    /// The checksum; `None` if there is none, or none that can be computed.
    checksum: Option<Value>,
    /// The packet without its session's number.
    identity: Bytes,
    /// Whether a later session may go on with what came: only a checksum tells at the end whether
    /// both were about the same octets.
    can_go_on: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The request is on its way.
    Asking,
    Receiving,
    /// All is there; the checksum is being completed.
    Verifying,
    Syncing,
    /// The directory is read.
    Reading,
    Installing,
    /// All is well, or failed here: the sender is told.
    Telling(StatusCode),
    Done,
}

impl Receiver {
    pub(crate) fn new(
        base: Base<Alarm>,
        id: SessionId,
        wish: Option<Wish>,
        number: u32,
        core: &mut Core,
        now: Time,
    ) -> Self {
        let asking = wish.is_some();
        let mut receiver = Self {
            base,
            id,
            remote: core.config.remote(id.peer).clone(),
            wish,
            request_due: asking,
            known: None,
            is_begun: false,
            packets: 0,
            has_data: false,
            width: Width::W16,
            ranges: Ranges::new(),
            highest: 0,
            end: None,
            early_end: None,
            spool: Spool::new(spool_name(number)),
            number,
            resumed: 0,
            requests: VecDeque::new(),
            stamped: (0, None),
            voluntary_due: false,
            greeting_due: !asking,
            wants: if asking { Wants::Status } else { Wants::Unknown { sent: 0 } },
            has_waited: false,
            arrivals: ArrivalRate::new(),
            reported: 0,
            outbox: VecDeque::new(),
            saving: None,
            saved: Ranges::new(),
            record_due: false,
            recording: false,
            saved_at: 0,
            syncs: 0,
            listing: Vec::new(),
            misses: 0,
            is_installed: false,
            failure: None,
            phase: if asking { Phase::Asking } else { Phase::Receiving },
        };
        if asking {
            receiver.base.want(&mut core.shared, Class::Control);
        } else {
            // Within the time of a reply a sender that wants a STATUS has requested one, and what
            // comes without a request may come over a link without a return.
            let wait = core.answer_time(&receiver.base, &receiver.remote);
            receiver.base.alarm(&mut core.shared, Alarm::Voluntary, now, wait);
        }
        let wait = receiver.given_up_at(core).since(now);
        receiver.base.alarm(&mut core.shared, Alarm::Inactivity, now, wait);
        receiver
    }

    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Whether it still takes data.
    pub(crate) fn is_receiving(&self) -> bool {
        matches!(self.phase, Phase::Asking | Phase::Receiving)
    }

    /// Whether it is about the file that this METADATA describes.
    pub(crate) fn is_about(&self, identity: &[u8]) -> bool {
        let known = self.known.as_ref();
        let is_theirs = self.wish.is_none() && self.is_receiving();
        is_theirs && known.is_some_and(|known| known.can_go_on && known.identity == identity)
    }

    /// Whether the peer began it.
    pub(crate) fn is_theirs(&self) -> bool {
        self.wish.is_none()
    }

    /// Whether nothing is known of the file.
    pub(crate) fn is_unknown(&self) -> bool {
        self.known.is_none() && self.is_theirs()
    }

    /// Order in which half-open sessions make room, the smallest first: one with a single packet
    /// does at once, because its next packet begins it again, and one without METADATA or without
    /// data after a silence of two replies.
    pub(crate) fn half_open(&self, core: &Core, now: Time) -> Option<(bool, Time)> {
        let has_begun = self.known.is_some() && self.ranges.covered() > 0;
        if !self.is_theirs() || has_begun || self.phase != Phase::Receiving {
            return None;
        }
        let has_few = self.packets < FEW_PACKETS;
        let patience = 2 * core.answer_time(&self.base, &self.remote);
        let is_silent = now.since(self.base.last_heard) >= patience;
        (has_few || is_silent).then_some((!has_few, self.base.last_heard))
    }

    /// Whether it writes, or is to write, the file of this name.
    pub(crate) fn uses(&self, name: &FileName) -> bool {
        let known = self.known.as_ref().and_then(|known| known.destination.as_ref());
        known == Some(name)
    }

    /// Goes on under another number, because the sender began anew.
    pub(crate) fn adopt(&mut self, core: &mut Core, now: Time, id: SessionId) {
        self.id = id;
        self.base.move_to(&mut core.shared, now, id.peer);
        self.requests.clear();
        self.outbox.clear();
        self.stamped = (0, None);
        self.reported = 0;
        self.resumed = self.ranges.covered();
        core.user.indicate(Indication::Receiving {
            id,
            name: self.name(),
            size: self.end,
            resumed: self.resumed,
        });
        self.volunteer(core);
    }

    pub(crate) fn report(&self) -> Report {
        Report { id: self.id, progress: self.ranges.covered(), size: self.end, name: self.name() }
    }

    pub(crate) fn memory(&self) -> usize {
        let ranges = self.ranges.len() + self.saved.len();
        let saving = self.saving.as_ref().map_or(0, Ranges::len);
        let outbox: usize = self.outbox.iter().map(Vec::len).sum();
        let known = self.known.as_ref().map_or(0, |known| known.identity.len() * 2);
        (ranges + saving) * 2 * size_of::<u64>() + outbox + known + self.listing.len()
    }

    /// Hands collected data to the store, because too much waits in this engine.
    pub(crate) fn flush(&mut self, core: &mut Core) {
        if self.phase == Phase::Receiving {
            self.spool.flush(&mut core.shared, self.base.seat.handle);
        }
    }

    fn name(&self) -> String {
        match (&self.known, &self.wish) {
            (Some(Known { destination: Some(name), .. }), _)
            | (None, Some(Wish { destination: Some(name), .. })) => name.path().to_owned(),
            (Some(known), _) => known.name.clone(),
            (None, Some(wish)) => wish.name.clone(),
            (None, None) => String::new(),
        }
    }

    fn heard(&mut self, core: &mut Core, now: Time) {
        self.base.last_heard = now;
        self.misses = 0;
        self.packets = (self.packets + 1).min(FEW_PACKETS);
        if self.phase == Phase::Asking {
            self.phase = Phase::Receiving;
            self.request_due = false;
            self.base.disarm(&mut core.shared, Alarm::Request);
        }
        let quiet = self.quiet(core);
        let wait = self.remote.voluntary_interval.map_or(quiet, |every| every.min(quiet));
        // A timer a packet would be dear: it looks at the time of the last one when it goes off.
        if !self.base.is_armed(Alarm::Voluntary) {
            self.base.alarm(&mut core.shared, Alarm::Voluntary, now, wait);
        }
    }

    /// Silence after which it says again what it lacks.
    fn quiet(&self, core: &Core) -> Duration {
        let auto = core.answer_time(&self.base, &self.remote);
        2 * self.remote.answer_timer.duration(auto, self.misses)
    }

    /// The sender requested the session (§4.2), and gets a STATUS for it.
    pub(crate) fn requested(&mut self, core: &mut Core) {
        self.wants = Wants::Status;
        self.greeting_due = false;
        self.volunteer(core);
    }

    /// Sends a STATUS that nobody asked for.
    pub(crate) fn volunteer(&mut self, core: &mut Core) {
        self.voluntary_due = true;
        self.base.want(&mut core.shared, Class::Control);
    }

    /// When it gives up if nothing more comes. Data of which nothing is said does not wait long.
    fn given_up_at(&self, core: &Core) -> Time {
        let limit = core.given_up_at(&self.base, &self.remote);
        if self.known.is_some() || self.wish.is_some() {
            return limit;
        }
        let answer = core.answer_time(&self.base, &self.remote);
        limit.min(self.base.last_heard + (8 * answer).max(UNKNOWN_MOST))
    }

    /// What is sent is described (§4.3).
    pub(crate) fn on_metadata(&mut self, core: &mut Core, now: Time, metadata: &Metadata<'_>) {
        if !self.is_receiving() {
            return;
        }
        // A sender whose session is over says so as often as it hears of it: nothing more comes.
        if !metadata.is_over || self.phase == Phase::Asking {
            self.heard(core, now);
        }
        if self.known.is_none() && !self.know(core, now, metadata) {
            return;
        }
        let is_stream = self.known.as_ref().is_some_and(|it| it.content == Content::Stream);
        if metadata.is_over && !(is_stream && self.end.is_some()) {
            self.fail(core, Failure { is_ours: false, code: StatusCode::Unspecified });
            self.close(core);
            return;
        }
        self.check_complete(core, now);
    }

    /// Takes up a description; `false` if the session ends of it.
    fn know(&mut self, core: &mut Core, now: Time, metadata: &Metadata<'_>) -> bool {
        let is_stream = metadata.content == Content::Stream;
        let size = metadata.entry.size;
        let limits = &core.config.limits;
        let most =
            if metadata.content == Content::Directory { limits.directory } else { limits.file };
        let asked_for = self.wish.as_ref().map(|wish| wish.kind == RequestKind::GetDir);
        let is_directory = metadata.content == Content::Directory;
        // Who sends what was asked for learns from the request how wide it may be.
        let is_too_wide = asked_for.is_none() && metadata.descriptor > core.config.descriptor;
        // A peer below a bundle agent takes nothing else, and another none of these.
        let is_bundle = metadata.content == Content::Bundle;
        let is_unknown = is_bundle != core.takes_bundles;
        let code = if is_unknown || is_directory && asked_for.is_none() {
            Some(StatusCode::UnsupportedPacket)
        } else if is_too_wide {
            Some(StatusCode::DescriptorMismatch)
        } else if asked_for.is_some_and(|directory| directory != is_directory) {
            Some(StatusCode::FlagsChanged)
        } else if size > most {
            Some(StatusCode::TooLong)
        } else if is_stream && self.early_end.is_some_and(|end| end < self.highest) {
            Some(StatusCode::Unspecified)
        } else {
            None
        };
        if let Some(code) = code {
            self.refuse(core, now, code);
            return false;
        }
        let Ok(name) = std::str::from_utf8(metadata.entry.path) else {
            self.refuse(core, now, StatusCode::AccessDenied);
            return false;
        };
        let destination = match &self.wish {
            Some(wish) => wish.destination.clone(),
            None => match FileName::file(name) {
                Ok(name) => Some(name),
                Err(_) => {
                    self.refuse(core, now, StatusCode::AccessDenied);
                    return false;
                }
            },
        };
        let checksum = match metadata.checksum {
            FileChecksum::Crc32(crc) => Some(Value::Check(crc)),
            FileChecksum::Md5(md5) => Some(Value::Md5(md5)),
            FileChecksum::Sha1(sha1) => Some(Value::Sha1(sha1)),
            FileChecksum::None | FileChecksum::Other { .. } => None,
        };
        let identity = identity(metadata);
        let content = metadata.content;
        self.width = metadata.descriptor;
        self.end = if is_stream { self.early_end } else { Some(size) };
        let name = name.to_owned();
        let has_sum = checksum.is_some() && core.config.version == Version::V1;
        let can_go_on = content == Content::File && has_sum;
        self.known = Some(Known { content, name, destination, checksum, identity, can_go_on });
        if self.has_data {
            self.begin(core);
        }
        true
    }

    /// Opens the working file: that of an earlier session about the same file, if there is one.
    /// Sessions that have nothing but a description hold no file.
    fn begin(&mut self, core: &mut Core) {
        let Some(known) = self.known.as_ref().filter(|_| !self.is_begun) else { return };
        self.is_begun = true;
        let destination = known.destination.as_ref().filter(|_| known.can_go_on);
        let earlier = destination.and_then(|name| core.partials.take(&known.identity, name));
        let sum = match known.checksum {
            None => None,
            Some(Value::Check(_)) => Checksum::new(ChecksumType::Crc32c).map(Sum::Check),
            Some(Value::Md5(_)) => Some(Sum::md5()),
            Some(Value::Sha1(_)) => Some(Sum::sha1()),
        };
        let handle = self.base.seat.handle;
        let mut mode = OpenMode::Truncate;
        if let Some((number, partial)) = earlier {
            self.number = number;
            self.spool.name = spool_name(number);
            self.resumed = partial.ranges.covered();
            self.saved = partial.ranges;
            mode = OpenMode::Write;
            for (start, end) in self.saved.iter() {
                self.ranges.insert(start, end);
            }
        }
        if let Some(end) = self.end {
            // What came ahead of the description and lies beyond the end was damaged.
            self.ranges.remove(end, u64::MAX);
            self.highest = self.highest.min(end);
        }
        self.highest = self.highest.max(self.ranges.end());
        self.saved_at = self.ranges.covered();
        self.spool.open_summed(&mut core.shared, handle, sum, mode, &self.saved);
        core.user.indicate(Indication::Receiving {
            id: self.id,
            name: self.name(),
            size: self.end,
            resumed: self.resumed,
        });
        if self.resumed > 0 {
            self.volunteer(core);
        }
    }

    /// Data arrived (§4.4).
    pub(crate) fn on_data(&mut self, core: &mut Core, now: Time, data: &Data<'_>) {
        if matches!(self.phase, Phase::Telling(_) | Phase::Done) {
            return;
        }
        let end = data.offset + data.data.len() as u64;
        if self.is_receiving() {
            if let Some(code) = self.contradiction(data, end) {
                core.stats.data_dropped += 1;
                self.refuse(core, now, code);
                return;
            }
            // What the file has no room for is no sign that more of it comes.
            if end > core.config.limits.file || self.end.is_some_and(|known| end > known) {
                core.stats.data_dropped += 1;
                return;
            }
            self.heard(core, now);
            self.arrivals.arrived(now, data.data.len());
            self.take(core, now, data, end);
        } else {
            core.stats.duplicate_data += u64::from(!data.data.is_empty());
        }
        if data.timestamp.is_some() && end >= self.stamped.0 {
            self.stamped = (end, data.timestamp);
        }
        if data.wants_status {
            self.wants = Wants::Status;
            self.greeting_due = false;
            if self.requests.len() >= REQUESTS_MAX {
                self.requests.pop_front();
            }
            self.requests.push_back((data.timestamp, end));
        }
        if data.is_end && !data.wants_status && matches!(self.wants, Wants::Unknown { .. }) {
            self.wants = Wants::Nothing;
        }
        self.check_complete(core, now);
        // Once all is there, an answer waits until that is safe.
        if data.wants_status && self.phase == Phase::Receiving {
            self.base.want(&mut core.shared, Class::Control);
        }
    }

    /// How a packet contradicts the METADATA (§4.4, §6.6).
    fn contradiction(&self, data: &Data<'_>, end: u64) -> Option<StatusCode> {
        let known = self.known.as_ref()?;
        let is_stream = known.content == Content::Stream;
        let is_beyond = self.end.is_some_and(|known| end > known);
        if known.content != data.content {
            Some(StatusCode::FlagsChanged)
        } else if data.descriptor != self.width {
            Some(StatusCode::DescriptorMismatch)
        } else if data.is_end && self.end.is_some_and(|known| end < known) {
            Some(StatusCode::Unspecified)
        } else if is_stream && (is_beyond || data.is_end && end < self.highest) {
            // Only its packets tell how long a stream is: they must agree.
            Some(StatusCode::Unspecified)
        } else {
            None
        }
    }

    /// Takes what a packet brings.
    fn take(&mut self, core: &mut Core, now: Time, data: &Data<'_>, end: u64) {
        self.has_data = true;
        self.begin(core);
        if self.known.is_none() {
            self.width = self.width.max(data.descriptor);
        }
        if data.is_end && data.content == Content::Stream {
            if self.known.is_some() {
                self.end = Some(end);
            } else {
                self.early_end = Some(self.early_end.map_or(end, |other| other.min(end)));
            }
        }
        self.highest = self.highest.max(end);
        let start = data.offset;
        if start == end {
            return;
        }
        if self.ranges.would_add_range(start, end) && self.ranges.len() > core.config.limits.gaps {
            core.stats.data_dropped += 1;
            core.user.limit_reached(Limit::Gaps);
            return;
        }
        let gaps: Vec<_> = self.ranges.gaps(start, end).collect();
        if gaps.is_empty() {
            core.stats.duplicate_data += 1;
        }
        for (from, to) in gaps {
            let part = &data.data[(from - start) as usize..(to - start) as usize];
            if !self.spool.append(&mut core.shared, self.base.seat.handle, from, part) {
                core.no_room();
                if self.spool.is_writing() {
                    core.shared.pause(self.id.peer);
                }
                return;
            }
            self.ranges.insert(from, to);
        }
        let policy = core.config.journal;
        if policy.enabled && self.known.is_some() {
            if self.ranges.covered() >= self.saved_at + policy.bytes {
                self.save(core);
            } else if !self.base.is_armed(Alarm::Save) {
                self.base.alarm(&mut core.shared, Alarm::Save, now, policy.interval);
            }
        }
    }

    /// Makes safe what was written so far, and then puts on record that it is.
    fn save(&mut self, core: &mut Core) {
        let can_go_on = self.known.as_ref().is_some_and(|known| known.can_go_on);
        if !can_go_on || self.saving.is_some() || self.saved_at == self.ranges.covered() {
            return;
        }
        self.saved_at = self.ranges.covered();
        self.spool.flush(&mut core.shared, self.base.seat.handle);
        if self.spool.file().is_some() {
            self.saving = Some(self.ranges.clone());
            self.sync(core);
        }
    }

    fn partial(&self) -> Option<Partial> {
        let known = self.known.as_ref().filter(|known| known.can_go_on)?;
        Some(Partial {
            identity: known.identity.clone(),
            destination: known.destination.clone()?,
            ranges: self.saved.clone(),
        })
    }

    /// Puts on record what is safe; one record at a time.
    fn record(&mut self, core: &mut Core) {
        if self.recording {
            self.record_due = true;
            return;
        }
        let Some(partial) = self.partial() else { return };
        self.recording = true;
        self.record_due = false;
        let (key, value) = (partials::key(self.number), partial.to_bytes());
        let job = Job::Own(Task::Record { number: self.number });
        core.shared.index(self.base.seat.handle, job, IndexRequest::Put { key, value });
    }

    /// Sends what it has: a receiver only has requests and STATUS.
    pub(crate) fn emit(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        if self.request_due && self.is_receiving() {
            if !self.emit_request(core, burst) {
                return Turn::More;
            }
            if self.phase == Phase::Asking {
                return Turn::Over;
            }
        }
        loop {
            while let Some(octets) = self.outbox.front() {
                let Ok(packet) = Packet::decode(octets) else { break };
                if !core.push(burst, &packet) {
                    return Turn::More;
                }
                self.outbox.pop_front();
            }
            if let Phase::Telling(code) = self.phase {
                if !self.requests.is_empty() || self.voluntary_due {
                    let timestamp = self.requests.pop_back().and_then(|(timestamp, _)| timestamp);
                    self.requests.clear();
                    self.voluntary_due = false;
                    if code != StatusCode::Ok && !core.admits_refusal(self.id.peer) {
                        self.close(core);
                        return Turn::Over;
                    }
                    self.outbox.push_back(self.last_word_as(code, timestamp));
                    continue;
                }
                self.close(core);
                return Turn::Over;
            }
            let is_open = matches!(self.phase, Phase::Receiving | Phase::Verifying);
            if !is_open
                && !matches!(self.phase, Phase::Syncing | Phase::Installing | Phase::Reading)
            {
                return Turn::Over;
            }
            // While it is being made safe, nothing that was asked is answered.
            if self.is_whole() {
                return Turn::Over;
            }
            if (!self.requests.is_empty() || self.voluntary_due) && self.waits_for_path(core, burst)
            {
                return Turn::Over;
            }
            // What waited has the answer of the last one.
            let request = self.requests.pop_back();
            self.requests.clear();
            if let Some((timestamp, end)) = request {
                self.voluntary_due = false;
                self.make_status(core, timestamp, end, false);
            } else if std::mem::take(&mut self.voluntary_due) {
                let (_, timestamp) = self.stamped;
                self.make_status(core, timestamp, self.highest, true);
            } else {
                return Turn::Over;
            }
        }
    }

    fn emit_request(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> bool {
        let Some(wish) = &self.wish else { return true };
        let request = Packet::Request(Request {
            kind: wish.kind,
            descriptor: core.config.descriptor,
            bundles: false,
            streams: true,
            udp_lite: core.config.udp_lite,
            session: self.id.number,
            path: wish.name.as_bytes(),
            authentication: &[],
        });
        if !core.push(burst, &request) {
            return false;
        }
        self.request_due = false;
        if self.phase == Phase::Asking {
            let auto = core.answer_time(&self.base, &self.remote);
            let wait = self.remote.request_timer.probe(auto, self.misses);
            self.base.alarm(&mut core.shared, Alarm::Request, burst.departure(), wait);
        }
        true
    }

    fn is_whole(&self) -> bool {
        let whole = self.end.filter(|end| self.ranges.gaps(0, *end).next().is_none());
        whole.is_some() && self.known.is_some()
    }

    /// An effect of this session was carried out.
    pub(crate) fn done(
        &mut self,
        core: &mut Core,
        now: Time,
        job: Job,
        answer: Result<Completion, EffectError>,
    ) {
        let is_over = matches!(self.phase, Phase::Telling(_) | Phase::Done);
        match (job, answer) {
            (Job::Write { cost }, answer) => {
                self.spool.written();
                core.shared.written(cost);
                if answer.is_err() && !is_over {
                    self.storage_failed(core, now);
                }
            }
            (Job::Open, Ok(Completion::Opened { file, len, .. })) => {
                if is_over {
                    core.shared.close(file);
                    return;
                }
                let (shared, handle) = (&mut core.shared, self.base.seat.handle);
                self.spool.opened(shared, handle, file, len, &mut self.ranges);
                self.saved.remove(len, u64::MAX);
                self.check_complete(core, now);
            }
            (Job::Own(Task::Record { number }), answer) => {
                self.recording = false;
                core.stats.record_errors += u64::from(answer.is_err());
                if is_over {
                    core.forget_record(number);
                } else if self.record_due {
                    self.record(core);
                }
            }
            _ if is_over => {}
            (Job::Read { offset, len }, Ok(Completion::Read(bytes))) => {
                if self.phase == Phase::Reading {
                    self.listing.extend_from_slice(&bytes);
                    if bytes.len() < len {
                        self.storage_failed(core, now);
                    } else {
                        self.read_listing(core, now);
                    }
                    return;
                }
                match self.spool.read_done(offset, len, bytes) {
                    Ok(()) => self.summed_up(core, now),
                    Err(()) => self.storage_failed(core, now),
                }
            }
            (Job::Sync, Ok(_)) => self.synced(core),
            (Job::Install, Ok(_)) => self.installed(core, now),
            (Job::Install, Err(EffectError::NotAllowed)) => {
                self.refuse(core, now, StatusCode::AccessDenied);
            }
            (Job::Open | Job::Read { .. } | Job::Sync | Job::Install, _) => {
                self.storage_failed(core, now);
            }
            (
                Job::Repair { .. } | Job::Forget | Job::Own(Task::Load | Task::Delete | Task::List),
                _,
            ) => {}
        }
    }

    /// A timer went off.
    pub(crate) fn alarm(&mut self, core: &mut Core, now: Time, alarm: Alarm) {
        match (alarm, self.phase) {
            (Alarm::Request, Phase::Asking) => {
                self.misses += 1;
                self.request_due = true;
                self.base.want(&mut core.shared, Class::Control);
            }
            (Alarm::Voluntary, Phase::Receiving) => self.voluntary(core, now),
            (Alarm::Pace, _) => self.path_free(core),
            (Alarm::Save, Phase::Receiving) => self.save(core),
            (Alarm::Inactivity, Phase::Asking | Phase::Receiving) => {
                let limit = self.given_up_at(core);
                if limit > now {
                    let wait = limit.since(now);
                    self.base.alarm(&mut core.shared, Alarm::Inactivity, now, wait);
                } else if self.known.is_none() && self.wish.is_none() {
                    self.refuse(core, now, StatusCode::MetadataRequired);
                } else {
                    self.refuse(core, now, StatusCode::SenderTimeout);
                }
            }
            (Alarm::Inactivity, Phase::Telling(_)) => self.close(core),
            (
                Alarm::Request
                | Alarm::Voluntary
                | Alarm::Save
                | Alarm::Inactivity
                | Alarm::Poll
                | Alarm::Window
                | Alarm::Silence
                | Alarm::Beacon,
                _,
            ) => {}
        }
    }

    /// The other peer refuses, or knows nothing of it.
    pub(crate) fn on_status(&mut self, core: &mut Core, now: Time, status: &Status<'_>) {
        if !self.is_receiving() {
            return;
        }
        if status.code == StatusCode::Ok {
            if self.phase == Phase::Asking {
                // It is going to send.
                self.heard(core, now);
            }
            return;
        }
        self.fail(core, Failure { is_ours: false, code: status.code });
        self.close(core);
    }

    /// Asks for a turn for all that waits to be sent.
    pub(crate) fn want_all(&mut self, core: &mut Core) {
        self.base.want(&mut core.shared, Class::Control);
    }
}

/// The METADATA packet without its session's number: what it says of the file.
pub(crate) fn identity(metadata: &Metadata<'_>) -> Bytes {
    let packet = Packet::Metadata(Metadata { session: 0, is_over: false, ..*metadata });
    packet.to_vec().unwrap_or_default().into()
}

fn spool_name(number: u32) -> FileName {
    FileName::spool(&partials::key(number)).expect("letters, digits and dashes are a name")
}
