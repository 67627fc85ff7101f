//! Loss to peers, kept from one coded transfer to the next.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::remembered::{self, Fact, Remembered};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Losses by address of the peer.
type Losses = Remembered<Measured>;

/// Loss measured in a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Measured {
    loss: f64,
    /// Number of segments that it was measured with.
    segments: f64,
    /// Time, in seconds since 1970.
    at: u64,
}

impl Fact for Measured {
    const FILE: &str = "loss.json";

    fn learnt_at(&self) -> u64 {
        self.at
    }
}

/// Loss and the number of segments that it counts for, which halves every day.
fn loss_to(losses: &Losses, peer: &str, now: u64) -> Option<(f64, f64)> {
    let Measured { loss, segments, at } = *losses.about(peer)?;
    let days = now.saturating_sub(at) as f64 / DAY.as_secs_f64();
    let is_sound = (0.0..1.0).contains(&loss) && segments.is_finite();
    is_sound.then(|| (loss, segments * 0.5_f64.powf(days)))
}

/// Loss of the last coded transfer to a peer, and the number of segments that it counts for.
pub(super) fn remembered(peer: &str) -> Option<(f64, f64)> {
    loss_to(&remembered::recall()?, peer, remembered::now())
}

/// Keeps the loss of a coded transfer for the next one to the same peer.
pub(super) fn remember(peer: &str, loss: f64, segments: f64) {
    remembered::keep(peer, Measured { loss, segments, at: remembered::now() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::session::remembered::PEERS_MAX;

    #[test]
    fn losses_age_and_make_room() {
        let place = tempfile::tempdir().unwrap();
        let mut losses = Losses::read(place.path());
        assert_eq!(loss_to(&losses, "a:1", 0), None);
        let day = DAY.as_secs();
        losses.note("a:1", Measured { loss: 0.1, segments: 2_000.0, at: day });
        losses.write(place.path()).unwrap();
        let losses = Losses::read(place.path());
        assert_eq!(loss_to(&losses, "a:1", day), Some((0.1, 2_000.0)));
        assert_eq!(loss_to(&losses, "a:1", 3 * day), Some((0.1, 500.0)));
        let mut losses = losses;
        for n in 0..PEERS_MAX as u64 {
            losses.note(&format!("b:{n}"), Measured { loss: 0.0, segments: 1.0, at: 2 * day + n });
        }
        assert_eq!((losses.len(), loss_to(&losses, "a:1", day)), (PEERS_MAX, None));
        std::fs::write(place.path().join(Measured::FILE), b"{").unwrap();
        assert_eq!(Losses::read(place.path()).len(), 0);
    }
}
