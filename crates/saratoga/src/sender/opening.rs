//! Start of a session: its source is prepared, its requester proves that it receives, and a
//! session that continues an earlier one of another process learns what is there.
//!
//! The address of a request can be forged. Until a STATUS returns a timestamp of the session, the
//! requester gets METADATA and a DATA packet that requests a STATUS, within an [`Allowance`].
//!
//! The receiver of a resumed session may have a part of the file, or all of it. The sender
//! requests a STATUS with an empty DATA packet, and sends data once it knows the missing parts.

use bytes::Bytes;
use engine::{FileId, Time};
use session::UnexpectedLength;
use session::allowance::Allowance;
use session::path::{Burst, Class, Path, Turn};
use session::source::Source;
use session::storage::Storage as _;
use session::sum::Reading;
use session::timer::Timer;
use session::window::Window;
use wire::checksum::ChecksumType;

use super::{Phase, Sender};
use crate::config::Version;
use crate::core::{Alarm, Core};
use crate::indication::Put;
use crate::packet::{Data, Packet, Status, StatusCode};
use crate::{codec, ending};

/// Requests for a STATUS after which data is sent without a reply.
const REQUESTS_MAX: u32 = 3;

/// Number of them where the round trip is unknown: they take 6.5 s, and the Moon replies after
/// 2.6 s.
const BLIND_REQUESTS_MAX: u32 = 12;

/// State of a session that waits for the first STATUS.
#[derive(Debug, Default)]
pub(super) struct Resuming {
    /// Number of requests sent.
    requests: u32,
    /// Whether the last one is overdue, or lacked the METADATA.
    is_due: bool,
}

/// State of a session whose requester is unproven.
#[derive(Debug)]
pub(super) struct Unproven {
    allowance: Allowance,
    /// Whether a request for a STATUS is due.
    is_due: bool,
}

impl Unproven {
    /// State after a request of `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        let mut unproven = Self { allowance: Allowance::default(), is_due: false };
        unproven.received(len);
        unproven
    }

    /// Notes a packet of the requester.
    fn received(&mut self, len: usize) {
        self.allowance.received(len);
        self.is_due = true;
    }
}

impl Resuming {
    /// State before the first request.
    pub(super) fn new() -> Self {
        Self { requests: 0, is_due: true }
    }
}

impl Sender {
    /// Sends a listing from memory.
    pub(super) fn list(&mut self, core: &mut Core, now: Time, bytes: Bytes) {
        let len = bytes.len() as u64;
        if !self.takes(core, len) {
            return;
        }
        if len > core.config.limits.directory.saturating_sub(core.listings) {
            self.end(core, StatusCode::SenderResources);
            return;
        }
        core.listings += len;
        if let Some(mut sum) = core.config.checksum.sum() {
            sum.update(0, &bytes);
            self.offer.checksum = Some(sum.finish());
        }
        let source = Source::in_memory(bytes, ChecksumType::Null);
        self.begin(core, now, source);
    }

    /// Notes that the file is open.
    pub(super) fn opened(&mut self, core: &mut Core, now: Time, file: FileId, len: u64) {
        if !self.takes(core, len) {
            core.shared.close(file);
            return;
        }
        // A receiver must discard a file that does not match its checksum (§4.3), damaged or not.
        let has_no_sum = self.offer.is_stream() || self.offer.order.udp_lite;
        match core.config.checksum.sum().filter(|_| !has_no_sum) {
            Some(sum) => {
                self.phase = Phase::Summing { file, reading: Reading::new(sum) };
                self.sum_up(core, now);
            }
            None => self.begin_file(core, now, file),
        }
    }

    /// Whether data of this size can be sent; ends the session if not.
    fn takes(&mut self, core: &mut Core, len: u64) -> bool {
        let takes = self.offer.measure(len, &self.remote, core.config.limits.file);
        if !takes {
            self.end(core, StatusCode::TooLong);
        }
        takes
    }

    /// Reads the whole file for its checksum, which precedes the file, so that a receiver can
    /// recognise an incomplete file.
    fn sum_up(&mut self, core: &mut Core, now: Time) {
        let Phase::Summing { file, reading } = &mut self.phase else { return };
        let size = self.offer.len();
        if reading.sum.position() < size {
            reading.read_on(&mut core.shared, self.base.seat.handle, *file, size);
            return;
        }
        self.offer.checksum = Some(reading.sum.finish());
        let file = *file;
        self.begin_file(core, now, file);
    }

    /// Processes a read of the file.
    pub(super) fn read(
        &mut self,
        core: &mut Core,
        now: Time,
        offset: u64,
        len: usize,
        bytes: Bytes,
    ) -> Result<(), UnexpectedLength> {
        if let Phase::Summing { reading, .. } = &mut self.phase {
            reading.take(offset, len, bytes)?;
            self.sum_up(core, now);
            return Ok(());
        }
        let Some(source) = self.source.as_mut() else { return Ok(()) };
        // The length of a stream is known once its end was read.
        source.read_done(offset, len, bytes, core.config.limits.file)?;
        self.offer.size = source.size;
        self.read_ahead(core);
        self.base.want(&mut core.shared, Class::Bulk);
        Ok(())
    }

    fn begin_file(&mut self, core: &mut Core, now: Time, file: FileId) {
        // The checksum was computed before.
        let source = Source::new(file, self.offer.size, 0, ChecksumType::Null);
        self.begin(core, now, source);
    }

    /// Requests permission to send the file, or starts at once.
    fn begin(&mut self, core: &mut Core, now: Time, source: Option<Source>) {
        self.source = source;
        if self.offer.order.put == Put::Ask && !self.offer.order.is_requested {
            self.phase = Phase::Asking;
            self.request_due = true;
            self.base.want(&mut core.shared, Class::Control);
        } else {
            self.go_ahead(core);
        }
        self.await_peer(core, now);
    }

    /// Starts to send METADATA and file.
    pub(super) fn go_ahead(&mut self, core: &mut Core) {
        self.phase = Phase::Sending;
        // In version 1 the METADATA is the acceptance.
        self.accept_due = self.is_theirs() && self.offer.version() == Version::V0;
        self.metadata_due = true;
        // Without a checksum, the receiver cannot recognise the file.
        let resumes = self.offer.order.resumes && self.offer.checksum.is_some();
        self.resuming = (resumes && !self.offer.is_blind()).then(Resuming::new);
        if self.unproven.is_some() || self.resuming.is_some() {
            self.base.want(&mut core.shared, Class::Bulk);
        } else {
            self.begin_data(core);
        }
    }

    /// Starts to send the file.
    pub(super) fn begin_data(&mut self, core: &mut Core) {
        let path = core.shared.paths.get(&self.id.peer);
        let is_paced = path.is_some_and(Path::is_paced) || !self.remote.interval.is_zero();
        if !is_paced && !self.offer.is_blind() {
            let sent = self.source.as_ref().map_or(0, Source::sent);
            self.window = self.remote.unpaced_window.map(|window| Window::new(window, sent));
        }
        self.control = self.control(core);
        self.read_ahead(core);
        self.want_all(core);
    }

    /// Sends METADATA and a request for a STATUS.
    pub(super) fn emit_resuming(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        if self.emit_metadata(core, burst) == Turn::More {
            return Turn::More;
        }
        if self.resuming.as_ref().is_none_or(|resuming| !resuming.is_due) {
            return Turn::Over;
        }
        if !self.push_data(core, burst, 0, &[], true, false) {
            return Turn::More;
        }
        if let Some(resuming) = self.resuming.as_mut() {
            resuming.requests += 1;
            resuming.is_due = false;
        }
        let auto = core.answer_time(&self.base, &self.remote);
        let wait = self.remote.answer_timer.probe(auto, self.requests.misses);
        self.base.alarm(&mut core.shared, Alarm::Poll, burst.departure(), wait);
        Turn::Over
    }

    /// Repeats METADATA and the request for a STATUS, or sends data without a reply.
    pub(super) fn request_parts_again(&mut self, core: &mut Core) {
        let round_trip = self.base.seat.round_trip(&core.shared.paths);
        let is_known = !round_trip.least().is_zero();
        let most = if is_known { REQUESTS_MAX } else { BLIND_REQUESTS_MAX };
        let Some(resuming) = self.resuming.as_mut() else { return };
        self.metadata_due = true;
        if resuming.requests < most {
            resuming.is_due = true;
            self.base.want(&mut core.shared, Class::Bulk);
        } else {
            self.resuming = None;
            self.begin_data(core);
        }
    }

    /// Processes a repetition of the request. While the file is being opened, the requester gets a
    /// STATUS that accepts the request, as a sign of life.
    pub(crate) fn requested_again(&mut self, core: &mut Core, now: Time) {
        if self.is_preparing() {
            self.base.last_received = now;
            self.accept_due = true;
        }
        self.peer_sent(core);
    }

    /// Continues after a packet of the requester.
    fn peer_sent(&mut self, core: &mut Core) {
        if let Some(unproven) = self.unproven.as_mut() {
            unproven.received(core.arrived);
        }
        self.want_all(core);
    }

    /// Sends a STATUS that accepts the request, if the allowance permits.
    pub(super) fn emit_acceptance(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let acceptance = Packet::Status(codec::acceptance(self.id.number));
        let len = acceptance.encoded_len();
        let allowance = self.unproven.as_mut().map(|unproven| &mut unproven.allowance);
        if allowance.as_ref().is_none_or(|allowance| allowance.admits(len)) {
            if !core.push(burst, &acceptance) {
                return Turn::More;
            }
            if let Some(allowance) = allowance {
                allowance.take(len);
            }
        }
        self.accept_due = false;
        Turn::Over
    }

    /// Sends METADATA and a request for a STATUS, as far as the allowance permits: the request if
    /// it does not permit both.
    pub(super) fn emit_probe(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        let Some(unproven) = self.unproven.as_mut().filter(|unproven| unproven.is_due) else {
            return Turn::Over;
        };
        let metadata = self.offer.metadata(self.id.number, false);
        let probe = self.offer.data(self.id.number, 0, &[]);
        let len = Data::overhead(probe.descriptor, true);
        if !unproven.allowance.admits(len) {
            unproven.is_due = false;
            return Turn::Over;
        }
        let mut rest = unproven.allowance;
        rest.take(len);
        if self.metadata_due && rest.take(metadata.encoded_len()) {
            if !core.push(burst, &metadata) {
                return Turn::More;
            }
            unproven.allowance.take(metadata.encoded_len());
            self.metadata_due = false;
        }
        if !self.push_data(core, burst, 0, &[], true, false) {
            return Turn::More;
        }
        if let Some(unproven) = self.unproven.as_mut() {
            unproven.allowance.take(len);
            unproven.is_due = false;
        }
        let auto = core.answer_time(&self.base, &self.remote);
        let wait = Timer::Auto.duration(auto, self.requests.misses);
        self.base.alarm(&mut core.shared, Alarm::Poll, burst.departure(), wait);
        Turn::Over
    }

    /// Repeats METADATA and the request for a STATUS.
    pub(super) fn unproved(&mut self, core: &mut Core) {
        self.requests.missed();
        self.metadata_due = true;
        if let Some(unproven) = self.unproven.as_mut() {
            unproven.is_due = true;
        }
        self.base.want(&mut core.shared, Class::Bulk);
    }

    /// Whether a STATUS proves that the requester receives; if so, starts to send the file.
    pub(super) fn proves(&mut self, core: &mut Core, now: Time, status: &Status<'_>) -> bool {
        if self.requests.echo(status, now).is_none() {
            self.peer_sent(core);
            return false;
        }
        self.unproven = None;
        self.metadata_due = status.lacks_metadata;
        self.base.disarm(&mut core.shared, Alarm::Poll);
        self.requests.hurry(now);
        self.begin_data(core);
        true
    }

    /// Whether the peer may be sent a refusal now; it gets one for each later request.
    pub(super) fn may_refuse(&self) -> bool {
        let refusal = ending::REFUSAL_LEN;
        self.unproven.as_ref().is_none_or(|unproven| unproven.allowance.admits(refusal))
    }
}
