//! Preparation of a source: a listing in memory, or a file whose checksum was computed.

use bytes::Bytes;
use engine::{FileId, Time};
use session::UnexpectedLength;
use session::path::{Class, Path};
use session::source::Source;
use session::storage::Storage as _;
use session::sum::Reading;
use session::window::Window;
use wire::checksum::ChecksumType;

use super::resuming::Resuming;
use super::{Phase, Sender};
use crate::config::Version;
use crate::core::Core;
use crate::indication::Put;
use crate::packet::StatusCode;

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
}
