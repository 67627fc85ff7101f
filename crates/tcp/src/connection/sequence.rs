//! Send sequence variables (RFC 9293 §3.3.1).

use crate::seq;

/// Sequence numbers of sent data, and the peer's window.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendSequence {
    iss: u64,
    una: u64,
    nxt: u64,
    /// SND.WND and MAX.SND.WND.
    window: u64,
    window_max: u64,
    /// SND.WL1 and SND.WL2: the segment that last set the window.
    window_from: (u64, u64),
    /// Snd.Wind.Shift (RFC 7323 §2.3).
    shift: u8,
    /// End of the last short segment (`snd_sml`).
    short_end: u64,
    /// Whether the persist timer expired: the next segment may be as short as the window.
    override_window: bool,
}

impl SendSequence {
    pub(super) fn new(iss: u64) -> Self {
        Self {
            iss,
            una: iss,
            nxt: iss,
            window: 0,
            window_max: 0,
            window_from: (0, 0),
            shift: 0,
            short_end: 0,
            override_window: false,
        }
    }

    pub(super) fn iss(&self) -> u64 {
        self.iss
    }

    pub(super) fn una(&self) -> u64 {
        self.una
    }

    pub(super) fn nxt(&self) -> u64 {
        self.nxt
    }

    pub(super) fn window(&self) -> u64 {
        self.window
    }

    pub(super) fn window_max(&self) -> u64 {
        self.window_max
    }

    pub(super) fn shift(&self) -> u8 {
        self.shift
    }

    /// Bytes allowed by the peer's window.
    pub(super) fn usable(&self) -> u64 {
        (self.una + self.window).saturating_sub(self.nxt)
    }

    /// Expanded acknowledgment number.
    pub(super) fn expand(&self, acknowledgment: u32) -> u64 {
        seq::expand(self.una, acknowledgment)
    }

    /// Whether an acknowledgment covers sent, unacknowledged data.
    pub(super) fn is_acceptable(&self, ack: u64) -> bool {
        self.una < ack && ack <= self.nxt
    }

    /// Processes the peer's SYN; its stream begins at `next`.
    pub(super) fn synchronize(&mut self, next: u64, shift: u8) {
        self.window_from = (next - 1, self.una);
        self.shift = shift;
    }

    /// Sets the window of a SYN, which is not scaled.
    pub(super) fn set_syn_window(&mut self, field: u16) {
        self.window = u64::from(field);
        self.window_max = self.window;
    }

    /// Processes the acknowledgment of the SYN, in a segment at `at`.
    pub(super) fn syn_acknowledged(&mut self, field: u16, at: u64) {
        self.una = self.iss + 1;
        self.window = u64::from(field) << self.shift;
        self.window_max = self.window;
        self.window_from = (at, self.una);
    }

    /// Updates the window from a segment at `at`, unless a later one has set it (RFC 9293
    /// §3.10.7.4).
    pub(super) fn update_window(&mut self, field: u16, at: u64, ack: u64) {
        if ack < self.una || (at, ack) < self.window_from {
            return;
        }
        self.window = u64::from(field) << self.shift;
        self.window_max = self.window_max.max(self.window);
        self.window_from = (at, ack);
    }

    /// Notes that the SYN was sent.
    pub(super) fn syn_sent(&mut self) {
        self.nxt = self.iss + 1;
    }

    /// Prepares a retransmission of the SYN with an acknowledgment.
    pub(super) fn rewind_to_syn(&mut self) {
        self.nxt = self.iss;
    }

    /// Notes new data sent up to `end`.
    pub(super) fn sent(&mut self, end: u64) {
        self.nxt = end;
        self.override_window = false;
    }

    /// Notes that the last segment was short.
    pub(super) fn sent_short(&mut self) {
        self.short_end = self.nxt;
    }

    /// Whether a short segment is in flight.
    pub(super) fn has_short(&self) -> bool {
        self.short_end > self.una
    }

    /// Allows the next segment to be as short as the window.
    pub(super) fn override_window(&mut self) {
        self.override_window = true;
    }

    pub(super) fn overrides_window(&self) -> bool {
        self.override_window
    }

    pub(super) fn acknowledge(&mut self, ack: u64) {
        self.una = ack;
    }

    /// Gives up data before `end`. The peer's window still counts from its acknowledgment.
    pub(super) fn pass(&mut self, end: u64) {
        self.window = self.window.saturating_sub(end - self.una);
        self.una = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_segment_sets_the_window() {
        let mut snd = SendSequence::new(1000);
        snd.synchronize(501, 2);
        snd.syn_sent();
        assert!(snd.is_acceptable(1001) && !snd.is_acceptable(1000));
        snd.syn_acknowledged(100, 501);
        assert_eq!((snd.una(), snd.usable()), (1001, 400));
        snd.sent(1301);
        snd.update_window(50, 501, 1101);
        snd.acknowledge(1101);
        assert_eq!((snd.window(), snd.window_max(), snd.usable()), (200, 400, 0));
        // It was sent before.
        snd.update_window(500, 501, 1001);
        assert_eq!(snd.window(), 200);
        snd.pass(1201);
        assert_eq!((snd.una(), snd.window()), (1201, 100));
    }
}
