//! Session at the peer that sends the file (draft-wood-tsvwg-saratoga-22 §6).
//!
//! [`Offer`] is the data to send, [`Requests`] holds its requests for a STATUS, [`InFlight`] the
//! retransmissions that the receiver has not reported on, and [`Filling`] retransmits data while
//! reports are delayed.

mod fill;
mod in_flight;
mod offer;
mod opening;
mod requests;
mod status;

use std::time::Duration;

use engine::{Completion, EffectError, FileId, FileName, FilestoreRequest, OpenMode, Time};
use session::Base;
use session::UnexpectedLength;
use session::path::{Burst, Class, Path, Turn};
use session::source::Source;
use session::storage::Storage as _;
use session::sum::Reading;
use session::window::Window;

use self::fill::Filling;
use self::in_flight::InFlight;
use self::offer::Offer;
pub(crate) use self::offer::Order;
use self::opening::{Resuming, Unproven};
use self::requests::{Echo, Requests, missing};
use super::config::{Remote, Version};
use super::congestion::Control;
use super::core::{Alarm, Core, Job, Task};
use super::directory;
use super::ending;
use super::indication::{Failure, Finished, Indication, Put, Report, SessionId};
use crate::packet::{Content, Data, Packet, Status, StatusCode};

/// Reply time above which a lost METADATA is expensive.
const LONG: Duration = Duration::from_millis(200);

/// Session that sends.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) base: Base<Alarm>,
    pub(crate) id: SessionId,
    remote: Remote,
    offer: Offer,
    source: Option<Source>,
    request_due: bool,
    /// Whether an acceptance of the request must be sent.
    accept_due: bool,
    metadata_due: bool,
    /// Whether the receiver has the METADATA, or does not need it.
    metadata_known: bool,
    requests: Requests,
    /// Limit until the peer has proved that it receives, if it is an unknown requester.
    unproven: Option<Unproven>,
    /// Wait for the first STATUS, if an earlier session sent a part of the file.
    resuming: Option<Resuming>,
    in_flight: InFlight,
    filling: Filling,
    window: Option<Window>,
    /// Congestion control.
    control: Option<Control>,
    /// Bytes delivered by an earlier session.
    resumed: u64,
    /// Kind of failure, if any.
    failed: Option<Failed>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The file is being opened, or the directory listed.
    Opening,
    /// The checksum is being computed.
    Summing {
        file: FileId,
        reading: Reading,
    },
    /// The receiver's permission is requested.
    Asking,
    Sending,
    /// Ended here; the receiver must be notified.
    Ending,
    Done,
}

/// End of a failed session, by the notification of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    /// The request of the peer is refused.
    Refused(StatusCode),
    /// METADATA reports the end of the session.
    Announced,
    /// No notification: the receiver ended it, or has no such session.
    Quietly,
}

impl Sender {
    pub(crate) fn new(
        base: Base<Alarm>,
        id: SessionId,
        order: Order,
        core: &mut Core,
        now: Time,
    ) -> Self {
        let remote = core.config.remote(id.peer).clone();
        let unproven = (order.is_requested && core.config.wants_proof(id.peer))
            .then(|| Unproven::new(core.arrived));
        // Requests of an earlier process have other masks.
        let is_masked = unproven.is_some() || order.resumes;
        let requests =
            if is_masked { Requests::masked(&mut core.rng) } else { Requests::default() };
        let handle = base.seat.handle;
        if order.content == Content::Directory {
            let request = FilestoreRequest::List(order.source.clone());
            core.shared.filestore(handle, Job::Own(Task::List), request);
        } else {
            core.shared.open(handle, order.source.clone(), OpenMode::Read);
        }
        let mut sender = Self {
            base,
            id,
            remote,
            request_due: false,
            accept_due: false,
            metadata_due: false,
            metadata_known: order.put == Put::Blind,
            source: None,
            requests,
            unproven,
            resuming: None,
            in_flight: InFlight::default(),
            filling: Filling::default(),
            window: None,
            control: None,
            resumed: 0,
            failed: None,
            phase: Phase::Opening,
            offer: Offer::new(order, core.config.version),
        };
        if sender.is_theirs() {
            sender.await_peer(core, now);
        }
        sender
    }

    /// Starts to wait for a sign of life.
    fn await_peer(&mut self, core: &mut Core, now: Time) {
        self.base.last_received = now;
        let wait = core.given_up_at(&self.base, &self.remote).since(now);
        self.base.alarm(&mut core.shared, Alarm::Inactivity, now, wait);
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Whether the file is being opened, or its checksum computed.
    fn is_preparing(&self) -> bool {
        matches!(self.phase, Phase::Opening | Phase::Summing { .. })
    }

    fn is_sending(&self) -> bool {
        matches!(self.phase, Phase::Sending)
    }

    /// Whether the peer requested it.
    pub(crate) fn is_theirs(&self) -> bool {
        self.offer.order.is_requested
    }

    /// Order in which half-open sessions are dropped. A requested session may be dropped if for
    /// twice the reply time the peer left requests for a STATUS without a reply, and never sent
    /// any, or did not repeat its request while the file was being opened.
    pub(crate) fn half_open(&self, core: &Core, now: Time) -> Option<(bool, Time)> {
        let patience = 2 * core.answer_time(&self.base, &self.remote);
        let is_silent = now.since(self.base.last_received) >= patience;
        let has_no_reply = self.requests.is_waiting() && !self.requests.has_reply();
        let is_half_open = self.is_theirs() && (has_no_reply || self.is_preparing()) && is_silent;
        is_half_open.then_some((true, self.base.last_received))
    }

    /// Whether a file of this name is being sent, and must not be deleted.
    pub(crate) fn uses(&self, name: &FileName) -> bool {
        self.offer.order.source == *name
    }

    pub(crate) fn report(&self) -> Report {
        Report {
            id: self.id,
            progress: self.source.as_ref().map_or(0, Source::sent),
            confirmed: Some(self.filling.confirmed()).filter(|confirmed| *confirmed > 0),
            size: self.offer.size,
            name: self.offer.order.name.clone(),
        }
    }

    /// Processes the result of an effect of this session.
    pub(crate) fn done(
        &mut self,
        core: &mut Core,
        now: Time,
        job: Job,
        answer: Result<Completion, EffectError>,
    ) {
        let failed = StatusCode::Unspecified;
        match (job, answer) {
            (Job::Open, Ok(Completion::Opened { file, len, modified })) => {
                self.offer.modified = modified;
                if matches!(self.phase, Phase::Opening) {
                    self.opened(core, now, file, len);
                } else {
                    core.shared.close(file);
                }
            }
            (Job::Open | Job::Own(Task::List), Err(error)) => {
                let code = match error {
                    EffectError::NotFound | EffectError::WrongKind => StatusCode::NotFound,
                    EffectError::NotAllowed => StatusCode::AccessDenied,
                    EffectError::Exists
                    | EffectError::NotEmpty
                    | EffectError::NoSpace
                    | EffectError::NameTooLong
                    | EffectError::Changed
                    | EffectError::Failed(_) => StatusCode::SenderResources,
                };
                self.end(core, code);
            }
            (Job::Own(Task::List), Ok(Completion::Listing(entries))) => {
                let (widest, most) = (self.offer.order.descriptor, core.config.limits.directory);
                match directory::encode(&entries, widest, most, core.config.udp_lite) {
                    Some(bytes) => self.list(core, now, bytes),
                    None => self.end(core, StatusCode::TooLong),
                }
            }
            (Job::Read { offset, len }, Ok(Completion::Read(bytes))) => {
                if self.read(core, now, offset, len, bytes).is_err() {
                    self.end(core, failed);
                }
            }
            (Job::Repair { offset }, Ok(Completion::Read(bytes))) => {
                let Some(source) = self.source.as_mut() else { return };
                match source.repair_done(offset, bytes) {
                    Ok(()) => self.base.want(&mut core.shared, Class::Repair),
                    Err(UnexpectedLength) => self.end(core, failed),
                }
            }
            (Job::Own(Task::List) | Job::Open | Job::Read { .. } | Job::Repair { .. }, _) => {
                core.stats.storage_errors += 1;
                self.end(core, failed);
            }
            (
                Job::Write { .. }
                | Job::Sync
                | Job::Install
                | Job::Forget
                | Job::Own(Task::Load | Task::Delete | Task::Record { .. }),
                _,
            ) => {}
        }
    }

    fn read_ahead(&mut self, core: &mut Core) {
        let mtu = core.shared.paths.get(&self.id.peer).map_or(0, Path::mtu).max(64);
        let segment = self.room(mtu, false).unwrap_or(1);
        if let Some(source) = self.source.as_mut() {
            source.read_ahead(&mut core.shared, self.base.seat.handle, segment);
        }
    }

    /// Maximum bytes of file data in a DATA packet; `None` if not even one fits.
    fn room(&self, mtu: usize, stamped: bool) -> Option<usize> {
        self.offer.room(&self.remote, mtu, stamped)
    }

    /// Sends queued packets of one class.
    pub(crate) fn emit(&mut self, core: &mut Core, class: Class, burst: &mut Burst<'_>) -> Turn {
        let sending = self.is_sending();
        match class {
            Class::Control => self.emit_control(core, burst),
            _ if sending && self.unproven.is_some() => self.emit_probe(core, burst),
            _ if sending && self.resuming.is_some() => self.emit_resuming(core, burst),
            Class::Metadata if sending => self.emit_metadata(core, burst),
            Class::Repair if sending => self.emit_repairs(core, burst),
            Class::Bulk if sending => {
                let turn = self.emit_new(core, burst);
                self.begin_fill(core, burst.departure());
                turn
            }
            Class::Metadata | Class::Repair | Class::Bulk => Turn::Over,
        }
    }

    fn emit_control(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        if self.accept_due && self.emit_acceptance(core, burst) == Turn::More {
            return Turn::More;
        }
        if matches!(self.phase, Phase::Asking) && self.request_due {
            let request = self.offer.request(self.id.number, core.config.udp_lite);
            if !core.push(burst, &request) {
                return Turn::More;
            }
            self.request_due = false;
            let auto = core.answer_time(&self.base, &self.remote);
            let wait = self.remote.request_timer.probe(auto, self.requests.misses);
            self.base.alarm(&mut core.shared, Alarm::Request, burst.departure(), wait);
        }
        if matches!(self.phase, Phase::Ending) {
            // A sender ends a session by METADATA with this bit (§4.3, bit 12).
            if !core.push(burst, &self.offer.metadata(self.id.number, true)) {
                return Turn::More;
            }
            self.close(core);
        }
        Turn::Over
    }

    /// Packet that reports the end of the session, also for later requests.
    pub(crate) fn last_word(&self) -> Vec<u8> {
        match self.failed {
            Some(Failed::Refused(code)) => ending::status(self.id.number, code),
            Some(Failed::Announced) => {
                self.offer.metadata(self.id.number, true).to_vec().unwrap_or_default()
            }
            Some(Failed::Quietly) | None => Vec::new(),
        }
    }

    fn emit_metadata(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        if self.metadata_due {
            if !core.push(burst, &self.offer.metadata(self.id.number, false)) {
                return Turn::More;
            }
            self.metadata_due = false;
        }
        Turn::Over
    }

    /// Writes a DATA packet; `false` if the batch is full. One that requests a STATUS carries a
    /// timestamp, unless no reply is expected.
    fn push_data(
        &mut self,
        core: &mut Core,
        burst: &mut Burst<'_>,
        offset: u64,
        data: &[u8],
        wants_status: bool,
        is_end: bool,
    ) -> bool {
        let (at, before) = (burst.departure(), self.requests.count());
        let packet = Packet::Data(Data {
            timestamp: wants_status.then(|| self.requests.timestamp(at)),
            wants_status,
            is_end,
            ..self.offer.data(self.id.number, offset, data)
        });
        let len = burst.len();
        if !core.push(burst, &packet) {
            return false;
        }
        let went = burst.len() > len;
        if wants_status && went {
            self.request_left(core, at);
        }
        if went && !data.is_empty() {
            self.data_left(core, at, offset, data.len(), before);
        }
        true
    }

    /// Notes a sent request for a STATUS. The wait for a reply starts with the first one after a
    /// reply.
    fn request_left(&mut self, core: &mut Core, at: Time) {
        if self.requests.left() {
            self.base.last_received = self.base.last_received.max(at);
        }
        let auto = core.answer_time(&self.base, &self.remote);
        let interval = self.remote.status_interval;
        let usual = interval.map(|timer| timer.duration(Requests::interval(auto), 0));
        self.requests.plan(at, usual, self.control.as_ref().map(Control::ask_within));
        // Until the METADATA is known to have arrived, it is repeated with each request; a probe of
        // a silent receiver follows it. With long reply times, it is sent twice at the start.
        let again = (self.requests.count() > 1 || auto > LONG) && self.requests.misses == 0;
        if !self.metadata_known && again && self.offer.version() == Version::V1 {
            self.metadata_due = true;
            self.base.want(&mut core.shared, Class::Metadata);
        }
    }

    /// Whether a packet must request a STATUS, because one is due or because it is the first: that
    /// measures the round trip.
    fn is_request_due(&self, at: Time) -> bool {
        let first = self.remote.status_interval.is_some() || self.control.is_some();
        !self.offer.is_blind() && self.requests.is_due_at(at, first)
    }

    fn emit_new(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let Some(mut source) = self.source.take() else { return Turn::Over };
        let turn = self.emit_source(core, burst, &mut source);
        self.source = Some(source);
        self.read_ahead(core);
        if turn == Turn::More {
            return turn;
        }
        self.emit_end(core, burst)
    }

    fn emit_source(&mut self, core: &mut Core, burst: &mut Burst<'_>, source: &mut Source) -> Turn {
        let answers = !self.offer.is_blind();
        loop {
            let offset = source.sent();
            let mut asks = self.is_request_due(burst.departure());
            if answers && let Some(window) = self.window.as_mut() {
                asks |= window.prompts(offset);
            }
            let Some(room) = self.room(burst.mtu(), asks) else {
                self.end(core, StatusCode::SenderResources);
                return Turn::Over;
            };
            if let Some(window) = self.window.as_ref()
                && window.room(offset) < room as u64
            {
                if !self.base.is_armed(Alarm::Window) {
                    let auto = core.answer_time(&self.base, &self.remote);
                    self.base.alarm(&mut core.shared, Alarm::Window, burst.departure(), auto);
                }
                return Turn::Over;
            }
            let Some(next) = source.next_new(room) else { return Turn::Over };
            if !self.pace(core, burst.departure()) {
                return Turn::Over;
            }
            let (len, end) = (next.data.len(), next.offset + next.data.len() as u64);
            if !self.offer.reaches(end) {
                // A stream became longer than the descriptor that the peer accepts.
                self.end(core, StatusCode::TooLong);
                return Turn::Over;
            }
            let is_end = source.size == Some(end);
            // Data that fits in the last packet without a timestamp may not fit with one.
            let last_fits = self.room(burst.mtu(), true).is_some_and(|room| len <= room);
            let asks = asks || is_end && answers && last_fits;
            if !self.push_data(
                core,
                burst,
                next.offset,
                next.data,
                asks,
                is_end && (asks || !answers),
            ) {
                return Turn::More;
            }
            source.new_sent(len);
            if is_end && (asks || !answers) {
                self.end_left(core, burst);
            }
        }
    }

    /// Sends an empty packet once all is sent, to request a STATUS (§6.1.1).
    fn emit_end(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let Some(source) = self.source.as_ref() else { return Turn::Over };
        let Some(size) = source.size.filter(|_| source.at_end()) else { return Turn::Over };
        if self.requests.end_sent() && (!self.requests.is_due || source.has_repairs()) {
            return Turn::Over;
        }
        let answers = !self.offer.is_blind();
        if !self.push_data(core, burst, size, &[], answers, true) {
            return Turn::More;
        }
        self.end_left(core, burst);
        Turn::Over
    }

    /// Notes that the end was sent with a request for a STATUS.
    fn end_left(&mut self, core: &mut Core, burst: &Burst<'_>) {
        self.requests.end_left();
        if self.offer.is_blind() {
            self.succeed(core, false);
            return;
        }
        let auto = core.answer_time(&self.base, &self.remote);
        let wait = self.remote.answer_timer.probe(auto, self.requests.misses);
        self.base.alarm(&mut core.shared, Alarm::Poll, burst.departure(), wait);
        self.filling.end_left();
    }

    fn emit_repairs(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let Some(mut source) = self.source.take() else { return Turn::Over };
        let turn = loop {
            // Once the end of a stream was sent, only a request with the end can show completion.
            let may_ask = !(self.requests.end_sent() && self.offer.is_stream());
            let asks = may_ask && self.is_request_due(burst.departure());
            let room = self.room(burst.mtu(), asks).unwrap_or(1);
            if !source.has_repairs() {
                self.go_on_filling(core, &mut source, burst.departure());
            }
            let Some(next) = source.next_repair(room) else { break Turn::Over };
            if !self.pace(core, burst.departure()) {
                break Turn::Over;
            }
            let (offset, len, before) = (next.offset, next.data.len(), self.requests.count());
            if !self.push_data(core, burst, offset, next.data, asks, false) {
                break Turn::More;
            }
            core.stats.repair_bytes += len as u64;
            self.in_flight.sent(offset, offset + len as u64, before, burst.departure());
            source.repair_sent(len);
            self.requests.is_due = true;
        };
        source.read_repairs(&mut core.shared, self.base.seat.handle);
        let asks = self.requests.end_sent() && self.requests.is_due;
        if turn == Turn::Over && !source.has_repairs() && asks {
            self.base.want(&mut core.shared, Class::Bulk);
        }
        self.source = Some(source);
        turn
    }

    /// Processes the receiver's STATUS (§4.5).
    pub(crate) fn on_status(&mut self, core: &mut Core, now: Time, status: &Status<'_>) {
        if matches!(self.phase, Phase::Ending | Phase::Done) {
            return;
        }
        if status.code != StatusCode::Ok {
            self.fail(core, Failure::there(status.code));
            self.close(core);
            return;
        }
        if self.unproven.is_some() && !self.proves(core, now, status) {
            return;
        }
        self.status_arrived(now, status);
        match self.phase {
            Phase::Asking => {
                self.base.disarm(&mut core.shared, Alarm::Request);
                self.go_ahead(core);
                return;
            }
            // A blind sender ignores replies and never retransmits, or it might do so for ever.
            Phase::Sending if self.offer.is_blind() => return,
            Phase::Sending => {}
            Phase::Opening | Phase::Summing { .. } | Phase::Ending | Phase::Done => return,
        }
        let echo = self.requests.echo(status, now);
        // A reply to an earlier process lacks what that one sent later.
        if self.resuming.is_some() && echo.is_none() && status.progress < self.offer.len() {
            return;
        }
        let reply = core.answer_time(&self.base, &self.remote);
        let is_sample = |echo: &Echo| self.requests.is_sample(*echo, now, reply);
        if let Some(echo) = echo.filter(|it| !status.is_voluntary && is_sample(it)) {
            self.base.seat.sample(&mut core.shared.paths, now.since(echo.at));
        }
        if let Some(echo) = echo {
            self.heed(core, now, status, echo);
        }
        if status.lacks_metadata {
            self.metadata_due |= !self.offer.is_blind();
            self.base.want(&mut core.shared, Class::Metadata);
        } else {
            self.metadata_known = true;
        }
        if self.resuming.is_some() && status.lacks_metadata {
            self.request_parts_again(core);
            return;
        }
        let resumes = self.resuming.take().is_some();
        let Some(source) = self.source.as_ref() else { return };
        // Before a stream's end has arrived, nothing is missing either.
        let of_end = !self.offer.is_stream() || self.requests.knows_end(status, echo);
        let is_whole =
            !status.is_partial && !status.lacks_metadata && status.holes.is_empty() && of_end;
        let is_sent = resumes || source.at_end();
        if is_whole && is_sent && source.size.is_some_and(|size| status.progress >= size) {
            self.succeed(core, true);
            return;
        }
        self.filling.confirm(status, source.sent(), core.config.limits.gaps);
        if !self.fills(core, now) {
            self.repair(core, now, status, echo);
        }
        if resumes {
            self.base.disarm(&mut core.shared, Alarm::Poll);
            self.requests.hurry(now);
            self.begin_data(core);
        }
    }

    /// Retransmits missing data that is not under way.
    fn repair(&mut self, core: &mut Core, now: Time, status: &Status<'_>, echo: Option<Echo>) {
        let path = core.shared.paths.get(&self.id.peer);
        let segment = self.room(path.map_or(0, Path::mtu).max(64), false).unwrap_or(1);
        let times = path.and_then(|path| path.times(segment));
        let handle = self.base.seat.handle;
        let is_needed = path.is_some_and(|path| path.is_wanted_by_others(Class::Bulk, handle));
        // Without a timestamp, queues on the path are unknown: some packets may wait there.
        let waiting = times.map_or(Duration::ZERO, |(packet, _)| 8 * packet);
        let reply = core.answer_time(&self.base, &self.remote);
        self.in_flight.settle(echo, now, 3 * reply + waiting);
        let Some(source) = self.source.as_mut() else { return };
        if !status.is_partial && status.in_response_to > source.sent() {
            // The receiver has more than was sent, from an earlier session.
            let there = status.in_response_to.saturating_sub(missing(status));
            self.resumed = self.resumed.max(there.saturating_sub(source.sent()));
            source.skip_to(status.in_response_to);
            source.read_ahead(&mut core.shared, self.base.seat.handle, segment);
            self.base.want(&mut core.shared, Class::Bulk);
        }
        let max = core.config.limits.gaps;
        'holes: for hole in status.holes.iter() {
            let (mut at, end) = (hole.start, hole.last.saturating_add(1));
            while let Some((start, next)) = self.in_flight.gap(at, end) {
                if !source.request(start, next, max) {
                    break 'holes;
                }
                at = next;
            }
        }
        // While there is new data to send, here or in other sessions, a copy of a repair takes its
        // place. On a shared path, it also costs others.
        let spares = source.at_end() && !is_needed && self.control.is_none();
        let copies = if spares { self.remote.repair_copies } else { 1 };
        // Over a thin return link a reply takes longer than the light time.
        let times = times.map(|(packet, round_trip)| (packet, round_trip.max(reply)));
        source.choose_copies(copies, segment, times);
        source.read_repairs(&mut core.shared, self.base.seat.handle);
        if let Some(window) = self.window.as_mut() {
            window.replied(status.in_response_to, source.sent());
            self.base.disarm(&mut core.shared, Alarm::Window);
            self.base.want(&mut core.shared, Class::Bulk);
        }
        if source.has_repairs() {
            self.base.want(&mut core.shared, Class::Repair);
        }
    }

    /// Ends the session and notifies the receiver.
    pub(crate) fn end(&mut self, core: &mut Core, code: StatusCode) {
        match self.phase {
            // The receiver has no state yet, or gets a refusal.
            Phase::Opening | Phase::Summing { .. } | Phase::Asking => {
                self.fail(core, Failure::here(code));
                self.close(core);
            }
            Phase::Sending if self.unproven.is_some() => {
                self.fail(core, Failure::here(code));
                self.close(core);
            }
            Phase::Sending => {
                self.fail(core, Failure::here(code));
                self.failed = Some(Failed::Announced);
                self.phase = Phase::Ending;
                self.base.disarm_all(&mut core.shared);
                self.base.want(&mut core.shared, Class::Control);
            }
            Phase::Ending | Phase::Done => {}
        }
    }

    /// Whether the session ends by refusing the peer's request.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.failed, Some(Failed::Refused(_))) && self.may_refuse()
    }

    fn succeed(&mut self, core: &mut Core, is_confirmed: bool) {
        self.finished(core, Ok(()), is_confirmed);
        self.release(core);
        if self.offer.order.delete && is_confirmed {
            let request = FilestoreRequest::DeleteFile(self.offer.order.source.clone());
            core.shared.filestore(self.base.seat.handle, Job::Forget, request);
        }
        self.close(core);
    }

    fn fail(&mut self, core: &mut Core, failure: Failure) {
        let refuses = self.is_theirs() && (!self.is_sending() || self.unproven.is_some());
        self.failed = Some(if refuses { Failed::Refused(failure.code) } else { Failed::Quietly });
        self.finished(core, Err(failure), false);
        self.release(core);
    }

    fn finished(&self, core: &mut Core, result: Result<(), Failure>, is_confirmed: bool) {
        core.user.indicate(Indication::Finished(Finished {
            id: self.id,
            result,
            is_confirmed,
            name: self.offer.order.name.clone(),
            size: self.offer.len(),
            resumed: self.resumed,
        }));
    }

    pub(crate) fn release(&mut self, core: &mut Core) {
        if let Phase::Summing { file, .. } = self.phase {
            core.shared.close(file);
        }
        let Some(source) = self.source.take() else { return };
        source.close(&mut core.shared);
        if self.offer.order.content == Content::Directory {
            core.listings -= self.offer.len();
        }
    }

    fn close(&mut self, core: &mut Core) {
        self.base.disarm_all(&mut core.shared);
        self.phase = Phase::Done;
    }

    /// Requests a turn for everything queued.
    pub(crate) fn want_all(&mut self, core: &mut Core) {
        for class in Class::ALL {
            self.base.want(&mut core.shared, class);
        }
    }
}
