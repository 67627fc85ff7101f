//! Session at the peer that receives the file (draft-wood-tsvwg-saratoga-22 §6).
//!
//! Nothing is confirmed before it is safely stored: the STATUS that reports completion is sent
//! when the file has its name.

mod completion;
mod description;
mod extent;
mod report;

use std::time::Duration;

use engine::{Completion, EffectError, FileName, IndexRequest, Time};
use session::allowance::Allowance;
use session::delivery::{Delivery, Event};
use session::path::{Burst, Class, Turn};
use session::{Base, StoreRefusal};

use self::description::Description;
pub(crate) use self::description::identity;
use self::extent::Extent;
use self::report::{Reply, Reports};
use crate::config::Remote;
use crate::core::{Alarm, Core, Job, Task};
use crate::indication::{Failure, Indication, Limit, Report, SessionId};
use crate::packet::{Content, Data, Metadata, Packet, Request, RequestKind, Status, StatusCode};
use crate::partials::{self, Partial};

/// Number up to which a sender's packets are counted.
const FEW_PACKETS: u32 = 2;

/// Time for which data waits for METADATA, or eight reply times if that is longer.
const UNKNOWN_MOST: Duration = Duration::from_secs(600);

/// Request of this peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) kind: RequestKind,
    /// Name at the peer.
    pub(crate) name: String,
    /// Local name; `None` for a directory, which is only listed.
    pub(crate) destination: Option<FileName>,
}

/// Session that receives.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) base: Base<Alarm>,
    pub(crate) id: SessionId,
    remote: Remote,
    wish: Option<Wish>,
    /// Limit of what a sender gets that is neither configured nor was requested to send.
    allowance: Option<Allowance>,
    request_due: bool,
    description: Option<Description>,
    /// Number of packets received, up to [`FEW_PACKETS`].
    packets: u32,
    /// Whether a DATA packet was received.
    has_data: bool,
    extent: Extent,
    delivery: Delivery,
    /// Number of the session's record and working file.
    number: u32,
    /// Bytes received by an earlier session.
    resumed: u64,
    reports: Reports,
    /// Directory record read so far.
    listing: Vec<u8>,
    misses: u32,
    /// Result: [`StatusCode::Ok`] once the file has its name.
    outcome: Option<StatusCode>,
    phase: Phase,
    /// Session of another path about the same file, which this one continues once it is silent.
    pub(crate) former: Option<SessionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The request is outstanding.
    Asking,
    Receiving,
    /// Complete; the file is being verified, stored and renamed.
    Storing,
    /// The directory is being read.
    Reading,
    /// Finished or failed here: the sender gets a last STATUS.
    Closing(StatusCode),
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
        let is_unknown = !asking && !core.config.knows(id.peer);
        let mut receiver = Self {
            base,
            id,
            remote: core.config.remote(id.peer).clone(),
            wish,
            allowance: is_unknown.then(Allowance::default),
            request_due: asking,
            description: None,
            packets: 0,
            has_data: false,
            extent: Extent::new(),
            delivery: Delivery::new(spool_name(number)),
            number,
            resumed: 0,
            reports: Reports::new(asking),
            listing: Vec::new(),
            misses: 0,
            outcome: None,
            phase: if asking { Phase::Asking } else { Phase::Receiving },
            former: None,
        };
        if asking {
            receiver.base.want(&mut core.shared, Class::Control);
        } else {
            // A sender that wants a STATUS has requested one within a reply time; unrequested ones
            // may have no return link.
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

    /// Whether it still accepts data.
    pub(crate) fn is_receiving(&self) -> bool {
        matches!(self.phase, Phase::Asking | Phase::Receiving)
    }

    pub(crate) fn identity(&self) -> Option<&bytes::Bytes> {
        self.description.as_ref().map(|description| &description.identity)
    }

    /// Whether this METADATA describes the session's file.
    pub(crate) fn is_about(&self, identity: &[u8]) -> bool {
        let description = self.description.as_ref();
        let is_open = self.is_receiving() || self.phase == Phase::Storing;
        let is_theirs = self.wish.is_none() && is_open;
        is_theirs
            && description.is_some_and(|description| {
                description.can_go_on && description.identity == identity
            })
    }

    /// Whether the peer started it.
    pub(crate) fn is_theirs(&self) -> bool {
        self.wish.is_none()
    }

    /// Whether nothing is known of the file.
    pub(crate) fn is_unknown(&self) -> bool {
        self.description.is_none() && self.is_theirs()
    }

    /// Order in which half-open sessions are dropped, smallest first. One with a single packet is
    /// dropped at once, because its next packet starts it again. One without METADATA or without
    /// data is dropped after a silence of two reply times.
    pub(crate) fn half_open(&self, core: &Core, now: Time) -> Option<(bool, Time)> {
        let has_begun = self.description.is_some() && self.extent.ranges.covered() > 0;
        if !self.is_theirs() || has_begun || self.phase != Phase::Receiving {
            return None;
        }
        let has_few = self.packets < FEW_PACKETS;
        let patience = 2 * core.answer_time(&self.base, &self.remote);
        let is_silent = now.since(self.base.last_received) >= patience;
        (has_few || is_silent).then_some((!has_few, self.base.last_received))
    }

    /// Whether the session writes, or will write, the file of this name.
    pub(crate) fn uses(&self, name: &FileName) -> bool {
        let description =
            self.description.as_ref().and_then(|description| description.destination.as_ref());
        description == Some(name)
    }

    /// Continues under another number, because the sender restarted.
    pub(crate) fn adopt(&mut self, core: &mut Core, now: Time, id: SessionId) {
        self.id = id;
        self.base.move_to(&mut core.shared, now, id.peer);
        self.reports.restart();
        self.reports.resume();
        self.resumed = self.extent.ranges.covered();
        core.user.indicate(Indication::Receiving {
            id,
            name: self.name(),
            size: self.extent.end(),
            resumed: self.resumed,
        });
        self.volunteer(core);
    }

    pub(crate) fn report(&self) -> Report {
        let progress = self.extent.ranges.covered();
        let (size, name) = (self.extent.end(), self.name());
        Report { id: self.id, progress, confirmed: None, size, name }
    }

    /// Hands collected data to the store, because too much waits in this engine.
    pub(crate) fn flush(&mut self, core: &mut Core) {
        if self.phase == Phase::Receiving {
            self.delivery.spool.flush(&mut core.shared, self.base.seat.handle);
        }
    }

    fn name(&self) -> String {
        match (&self.description, &self.wish) {
            (Some(Description { destination: Some(name), .. }), _)
            | (None, Some(Wish { destination: Some(name), .. })) => name.path().to_owned(),
            (Some(description), _) => description.name.clone(),
            (None, Some(wish)) => wish.name.clone(),
            (None, None) => String::new(),
        }
    }

    /// Notes the bytes of a packet of the sender.
    fn credit(&mut self, core: &Core) {
        if let Some(allowance) = self.allowance.as_mut() {
            allowance.received(core.arrived);
        }
    }

    /// Notes a packet of the sender.
    fn arrived(&mut self, core: &mut Core, now: Time) {
        self.base.last_received = now;
        self.misses = 0;
        self.packets = (self.packets + 1).min(FEW_PACKETS);
        if self.phase == Phase::Asking {
            self.phase = Phase::Receiving;
            self.request_due = false;
            self.base.disarm(&mut core.shared, Alarm::Request);
        }
        let quiet = self.quiet(core);
        let wait = self.remote.voluntary_interval.map_or(quiet, |every| every.min(quiet));
        // A timer for each packet would be expensive: this one checks the time of the last packet
        // when it fires.
        if !self.base.is_armed(Alarm::Voluntary) {
            self.base.alarm(&mut core.shared, Alarm::Voluntary, now, wait);
        }
    }

    /// Silence after which missing data is reported again.
    fn quiet(&self, core: &Core) -> Duration {
        let auto = core.answer_time(&self.base, &self.remote);
        2 * self.remote.answer_timer.duration(auto, self.misses)
    }

    /// Processes the sender's request for the session (§4.2), which gets a STATUS.
    pub(crate) fn requested(&mut self, core: &mut Core) {
        self.credit(core);
        self.reports.session_requested();
        self.volunteer(core);
    }

    /// Sends an unrequested STATUS.
    pub(crate) fn volunteer(&mut self, core: &mut Core) {
        self.reports.volunteer();
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Time at which the session is given up if nothing more arrives. Data without METADATA does
    /// not wait long.
    fn given_up_at(&self, core: &Core) -> Time {
        let limit = core.given_up_at(&self.base, &self.remote);
        if self.description.is_some() || self.wish.is_some() {
            return limit;
        }
        let answer = core.answer_time(&self.base, &self.remote);
        limit.min(self.base.last_received + (8 * answer).max(UNKNOWN_MOST))
    }

    /// Processes METADATA (§4.3).
    pub(crate) fn on_metadata(&mut self, core: &mut Core, now: Time, metadata: &Metadata<'_>) {
        self.credit(core);
        if !self.is_receiving() {
            return;
        }
        // A sender without the session repeats this for each packet it receives: nothing more will
        // arrive.
        if !metadata.is_over || self.phase == Phase::Asking {
            self.arrived(core, now);
        }
        if self.description.is_none() && !self.know(core, now, metadata) {
            return;
        }
        let is_stream = self.description.as_ref().is_some_and(|it| it.content == Content::Stream);
        if metadata.is_over && !(is_stream && self.extent.end().is_some()) {
            self.fail(core, Failure::there(StatusCode::Unspecified));
            self.close(core);
            return;
        }
        self.check_complete(core, now);
    }

    /// Takes a description. Returns `false` if it ends the session.
    fn know(&mut self, core: &mut Core, now: Time, metadata: &Metadata<'_>) -> bool {
        match Description::from_metadata(core, metadata, self.wish.as_ref(), &self.extent) {
            Ok(description) => self.description = Some(description),
            Err(failure) => {
                self.refuse_for(core, now, failure);
                return false;
            }
        }
        let is_stream = metadata.content == Content::Stream;
        self.extent.describe(metadata.descriptor, (!is_stream).then_some(metadata.entry.size));
        if self.has_data {
            self.begin(core);
        }
        true
    }

    /// Opens the working file: an earlier session's for the same file, if there is one. Sessions
    /// with nothing but a description hold no file.
    fn begin(&mut self, core: &mut Core) {
        let is_started = self.delivery.spool.is_started();
        let Some(description) = self.description.as_ref().filter(|_| !is_started) else { return };
        let destination = description.destination.as_ref().filter(|_| description.can_go_on);
        let earlier = destination.and_then(|name| core.partials.take(&description.identity, name));
        let sum = description.sum();
        if let Some((number, partial)) = earlier {
            self.number = number;
            self.delivery.spool.name = spool_name(number);
            self.resumed = partial.ranges.covered();
            self.delivery.resume(partial.ranges);
        }
        self.extent.begin(self.delivery.safe());
        self.delivery.count_saved(&self.extent.ranges);
        self.delivery.open(&mut core.shared, self.base.seat.handle, sum);
        core.user.indicate(Indication::Receiving {
            id: self.id,
            name: self.name(),
            size: self.extent.end(),
            resumed: self.resumed,
        });
        if self.resumed > 0 {
            self.reports.resume();
            self.volunteer(core);
        }
    }

    /// Processes DATA (§4.4).
    pub(crate) fn on_data(&mut self, core: &mut Core, now: Time, data: &Data<'_>) {
        self.credit(core);
        if matches!(self.phase, Phase::Closing(_) | Phase::Done) {
            return;
        }
        let end = data.offset + data.data.len() as u64;
        if self.is_receiving() {
            let description = self.description.as_ref();
            let code = description
                .and_then(|description| self.extent.contradiction(description.content, data));
            if let Some(code) = code {
                core.stats.data_dropped += 1;
                self.refuse(core, now, code);
                return;
            }
            // Data without room does not show that more follows.
            let is_beyond = self.extent.end().is_some_and(|known| end > known);
            if end > core.config.limits.file || is_beyond {
                core.stats.data_dropped += 1;
                return;
            }
            self.arrived(core, now);
            self.reports.data_arrived(now, data.data.len());
            self.take(core, now, data, end);
        } else {
            core.stats.duplicate_data += u64::from(!data.data.is_empty());
        }
        // A packet without data is about all that has arrived, also of an earlier process.
        let is_question = data.data.is_empty() && !data.is_end;
        if is_question {
            self.reports.list_all();
        }
        self.reports.heed(data, if is_question { end.max(self.extent.highest()) } else { end });
        self.check_complete(core, now);
        // Once complete, a reply waits until the file is stored.
        if data.wants_status && self.phase == Phase::Receiving {
            self.base.want(&mut core.shared, Class::Control);
        }
    }

    /// Takes the data of a packet.
    fn take(&mut self, core: &mut Core, now: Time, data: &Data<'_>, end: u64) {
        self.has_data = true;
        self.begin(core);
        self.extent.learn(data, end, self.description.is_some());
        let start = data.offset;
        if start == end {
            return;
        }
        let ranges = &mut self.extent.ranges;
        if ranges.would_add_range(start, end) && ranges.len() > core.config.limits.gaps {
            core.stats.data_dropped += 1;
            core.user.limit_reached(Limit::Gaps);
            return;
        }
        let gaps: Vec<_> = ranges.gaps(start, end).collect();
        if gaps.is_empty() {
            core.stats.duplicate_data += 1;
        }
        for (from, to) in gaps {
            let part = &data.data[(from - start) as usize..(to - start) as usize];
            let (shared, seat) = (&mut core.shared, &self.base.seat);
            if !self.delivery.append(shared, seat, ranges, from, part) {
                core.no_room();
                return;
            }
        }
        let policy = core.config.journal;
        if policy.enabled && self.description.is_some() {
            if self.delivery.is_save_due(&self.extent.ranges, policy) {
                self.save(core);
            } else if !self.base.is_armed(Alarm::Save) {
                let wait = self.delivery.save_wait(policy);
                self.base.alarm(&mut core.shared, Alarm::Save, now, wait);
            }
        }
    }

    /// Syncs data written so far, and then records it.
    fn save(&mut self, core: &mut Core) {
        let can_go_on = self.description.as_ref().is_some_and(|description| description.can_go_on);
        let ranges = &self.extent.ranges;
        if can_go_on && !self.delivery.is_saving() && !self.delivery.is_saved(ranges) {
            self.delivery.save(&mut core.shared, self.base.seat.handle, core.now, ranges);
        }
    }

    fn partial(&self) -> Option<Partial> {
        let description = self.description.as_ref().filter(|description| description.can_go_on)?;
        Some(Partial {
            identity: description.identity.clone(),
            destination: description.destination.clone()?,
            session: self.id.number,
            ranges: self.delivery.safe().clone(),
        })
    }

    /// Records the stored ranges.
    fn put_record(&mut self, core: &mut Core) {
        let Some(partial) = self.partial() else { return };
        let (key, value) = (partials::key(self.number), partial.encode());
        self.delivery.record.submit(
            &mut core.shared,
            self.base.seat.handle,
            Job::Own(Task::Record { number: self.number }),
            IndexRequest::Put { key, value },
        );
    }

    /// Sends queued packets: a receiver only has requests and STATUS packets.
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
            while let Some(packet) = self.reports.front() {
                let len = packet.encoded_len();
                if self.allowance.is_some_and(|allowance| !allowance.admits(len)) {
                    core.stats.replies_dropped += 1;
                    self.reports.sent();
                    continue;
                }
                if !core.push(burst, &packet) {
                    return Turn::More;
                }
                if let Some(allowance) = self.allowance.as_mut() {
                    allowance.take(len);
                }
                self.reports.sent();
            }
            if let Phase::Closing(code) = self.phase {
                let refuses = code != StatusCode::Ok;
                if !self.reports.is_due() || refuses && !core.admits_refusal(self.id.peer) {
                    self.close(core);
                    return Turn::Over;
                }
                let timestamp = self.reports.next(&self.extent).and_then(Reply::requested_at);
                self.reports.push(self.last_word_as(code, timestamp));
                continue;
            }
            // While it is being synced, no request gets a reply.
            if !self.is_open() || self.is_whole() {
                return Turn::Over;
            }
            if self.reports.is_due() && self.waits_for_path(core, burst) {
                return Turn::Over;
            }
            let Some(reply) = self.reports.next(&self.extent) else { return Turn::Over };
            let terms = self.terms(core);
            self.reports.make(&self.extent, &terms, reply);
        }
    }

    /// Whether the file is not finished yet.
    fn is_open(&self) -> bool {
        match self.phase {
            Phase::Receiving | Phase::Storing | Phase::Reading => true,
            Phase::Asking | Phase::Closing(_) | Phase::Done => false,
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
        self.description.is_some() && self.extent.is_whole()
    }

    /// Processes the result of an effect of this session.
    pub(crate) fn done(
        &mut self,
        core: &mut Core,
        now: Time,
        job: Job,
        answer: Result<Completion, EffectError>,
    ) {
        let is_over = matches!(self.phase, Phase::Closing(_) | Phase::Done);
        match (job, answer) {
            (Job::Own(Task::Record { number }), answer) => {
                core.stats.record_errors += u64::from(answer.is_err());
                let (handle, job) = (self.base.seat.handle, Job::Own(Task::Record { number }));
                if is_over {
                    self.delivery.record.drop_waiting();
                }
                if self.delivery.record.done(&mut core.shared, handle, job) && is_over {
                    core.forget_record(number);
                }
            }
            (Job::Read { len, .. }, Ok(Completion::Read(bytes)))
                if self.phase == Phase::Reading =>
            {
                self.listing.extend_from_slice(&bytes);
                if bytes.len() < len {
                    self.cannot_store(core, now, StoreRefusal::Failed);
                } else {
                    self.read_listing(core, now);
                }
            }
            (job, answer) => {
                let (shared, handle) = (&mut core.shared, self.base.seat.handle);
                let ranges = &mut self.extent.ranges;
                let event = self.delivery.on_done(shared, handle, now, ranges, &job, answer);
                if let Some(event) = event.filter(|_| !is_over) {
                    self.on_delivery(core, now, &event);
                }
            }
        }
    }

    fn on_delivery(&mut self, core: &mut Core, now: Time, event: &Event) {
        match event {
            Event::Opened => self.check_complete(core, now),
            Event::Summed => self.summed_up(core, now),
            Event::Saved => self.put_record(core),
            Event::Stored => self.install(core),
            Event::Installed => self.installed(core, now),
            Event::NotInstalled(cause) | Event::Failed(cause) => {
                self.cannot_store(core, now, *cause);
            }
        }
    }

    /// Processes a timer.
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
                } else if self.description.is_none() && self.wish.is_none() {
                    self.refuse(core, now, StatusCode::MetadataRequired);
                } else {
                    self.refuse(core, now, StatusCode::SenderTimeout);
                }
            }
            (Alarm::Inactivity, Phase::Closing(_)) => self.close(core),
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

    /// Processes the peer's refusal, or its report that the session is unknown.
    pub(crate) fn on_status(&mut self, core: &mut Core, now: Time, status: &Status<'_>) {
        if !self.is_receiving() {
            return;
        }
        if status.code == StatusCode::Ok {
            if self.wish.is_some() && self.description.is_none() {
                // The STATUS accepts the request, which the peer is preparing to fulfil.
                self.arrived(core, now);
            }
            return;
        }
        self.fail(core, Failure::there(status.code));
        self.close(core);
    }

    /// Requests a turn for everything queued.
    pub(crate) fn want_all(&mut self, core: &mut Core) {
        self.base.want(&mut core.shared, Class::Control);
    }
}

fn spool_name(number: u32) -> FileName {
    FileName::spool(&partials::key(number)).expect("letters, digits and dashes are a name")
}
