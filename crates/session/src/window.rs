//! Window of a sender without a rate: how far it may run ahead of its receiver.
//!
//! Over a path without a rate a sender cannot detect that its receiver is slower: data that the
//! receiving host cannot hold are lost and retransmitted. Protocols have the means to find out:
//! CFDP's Prompt requests a Keep Alive (CCSDS 727.0-B-5 §4.6.5), a flag of Saratoga's DATA a
//! STATUS, and the reply reports the receiver's progress. New data beyond a bound waits for that.
//! This is flow control between two hosts; it is not congestion control.

/// Prompts for each window: enough that the reply to one arrives before the window is used up.
const PROMPTS: u64 = 4;

/// Expired waits after which the receiver counts as unresponsive, or as too distant for a window
/// of this kind.
const SILENCES_MAX: u32 = 3;

/// The window, and the progress of the receiver.
#[derive(Debug)]
pub struct Window {
    /// Configured window.
    most: u64,
    /// Current window: smaller after a silence, which indicates losses.
    now: u64,
    /// Progress of the receiver.
    confirmed: u64,
    /// Bytes sent at the last prompt.
    prompted: u64,
    /// Consecutive waits that ended without a reply.
    silences: u32,
}

impl Window {
    /// Window of `most` bytes for a transfer that begins after `sent` bytes.
    pub fn new(most: u64, sent: u64) -> Self {
        let most = most.max(1);
        Self { most, now: most, confirmed: sent, prompted: sent, silences: 0 }
    }

    /// Bytes that may be sent now, after `sent` bytes.
    pub fn room(&self, sent: u64) -> u64 {
        if self.silences >= SILENCES_MAX {
            return u64::MAX;
        }
        (self.confirmed + self.now).saturating_sub(sent)
    }

    /// Bytes between prompts.
    pub fn every(&self) -> u64 {
        (self.now / PROMPTS).max(1)
    }

    /// Whether to prompt the receiver after `sent` bytes.
    pub fn prompts(&mut self, sent: u64) -> bool {
        let due = self.silences < SILENCES_MAX && sent >= self.prompted + self.now / PROMPTS;
        if due {
            self.prompted = sent;
        }
        due
    }

    /// Records the receiver's progress after `sent` bytes.
    pub fn replied(&mut self, progress: u64, sent: u64) {
        if progress > self.confirmed && self.silences < SILENCES_MAX {
            self.confirmed = progress.min(sent);
            self.silences = 0;
            self.now = (self.now + self.now / 16 + 1).min(self.most);
        }
    }

    /// Records a wait without a reply: the data in flight are lost, and are repaired at the end.
    pub fn silent(&mut self, sent: u64) {
        self.confirmed = sent;
        self.prompted = sent;
        self.silences += 1;
        self.now = (self.now / 2).max(self.most / 64).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_open_the_window_and_silence_halves_it() {
        let mut window = Window::new(1600, 100);
        assert_eq!(window.room(100), 1600);
        assert!(
            !window.prompts(499)
                && window.prompts(500)
                && !window.prompts(899)
                && window.prompts(900)
        );
        assert_eq!(window.room(1700), 0);
        window.replied(900, 1700);
        window.replied(500, 1700);
        assert_eq!(window.room(1700), 800, "an old reply takes nothing back");
        window.silent(2500);
        assert_eq!(window.room(2500), 800);
        for step in 1..100 {
            window.replied(2500 + step, 3000);
        }
        assert_eq!(window.room(2599), 1600, "it grows again, to what was set");
        window.replied(u64::MAX, 3000);
        assert_eq!(window.room(3000), 1600, "nobody has what was not sent");
    }

    #[test]
    fn an_unresponsive_receiver_is_not_waited_for() {
        let mut window = Window::new(1000, 0);
        for sent in [1000, 1500, 1750] {
            window.silent(sent);
        }
        assert_eq!(window.room(1750), u64::MAX);
        assert!(!window.prompts(1_000_000));
        window.replied(1_000_000, 2_000_000);
        assert_eq!(window.room(2_000_000), u64::MAX, "too late: its round trip is long");
    }
}
