//! Window of a channel (RFC 4254 §5.2).

use super::PACKET;

/// Window offered to the peer.
#[derive(Debug)]
pub(super) struct Window {
    left: u64,
    max: u64,
    /// Bytes read and not offered again.
    consumed: u64,
}

impl Window {
    /// A client offers its window at once, a server when the channel's purpose is known.
    pub(super) fn new(max: u64, at_once: bool) -> Self {
        Self { left: if at_once { max } else { 0 }, max, consumed: 0 }
    }

    pub(super) fn max(&self) -> u32 {
        u32::try_from(self.max).unwrap_or(u32::MAX)
    }

    /// Offers the whole window.
    pub(super) fn open(&mut self) {
        self.left = self.max;
    }

    /// Accounts for received bytes.
    ///
    /// # Errors
    /// More bytes than offered.
    pub(super) fn take(&mut self, len: u64) -> Result<(), &'static str> {
        self.left = self.left.checked_sub(len).ok_or("more than the window")?;
        Ok(())
    }

    /// Accounts for bytes read. Returns how many are to be offered again: a window is offered in
    /// portions (`channel_check_window()`), and by newer releases after `often` three packets.
    pub(super) fn consume(&mut self, len: u64, often: bool) -> Option<u32> {
        self.consumed += len;
        let some = often && self.max - self.left > 3 * PACKET as u64;
        let is_due = self.consumed > 0 && (some || self.left < self.max / 2);
        is_due.then(|| {
            let amount = std::mem::take(&mut self.consumed);
            self.left += amount;
            u32::try_from(amount).unwrap_or(u32::MAX)
        })
    }
}
