//! Requesters that have not proved that they receive.
//!
//! The address of a request can be forged. Until a STATUS returns a timestamp of the session, the
//! requester gets METADATA and a DATA packet that requests a STATUS, within an [`Allowance`].

use engine::Time;
use session::allowance::Allowance;
use session::path::{Burst, Class, Turn};
use session::timer::Timer;

use super::Sender;
use crate::codec;
use crate::core::{Alarm, Core};
use crate::ending;
use crate::packet::{Data, Packet, Status};

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

impl Sender {
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
