//! Loss to peers, kept from one coded transfer to the next.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::state::state_home;

/// File of the losses in the state folder.
const FILE: &str = "loss.json";

/// Number of peers remembered.
const PEERS_MAX: usize = 256;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Losses by address of the peer.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Losses(BTreeMap<String, Measured>);

/// Loss measured in a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Measured {
    loss: f64,
    /// Number of segments that it was measured with.
    segments: f64,
    /// Time, in seconds since 1970.
    at: u64,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Losses {
    fn read(base: &Path) -> Self {
        // A missing or torn file only costs time.
        let text = std::fs::read(base.join(FILE)).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    fn write(&self, base: &Path) -> Result<()> {
        std::fs::create_dir_all(base)?;
        let path = base.join(FILE);
        let new = path.with_extension(format!("json.{}", std::process::id()));
        std::fs::write(&new, serde_json::to_vec(self)?)?;
        Ok(std::fs::rename(new, path)?)
    }

    /// Loss and the number of segments that it counts for, which halves every day.
    fn loss_to(&self, peer: &str, now: u64) -> Option<(f64, f64)> {
        let Measured { loss, segments, at } = *self.0.get(peer)?;
        let days = now.saturating_sub(at) as f64 / DAY.as_secs_f64();
        let is_sound = (0.0..1.0).contains(&loss) && segments.is_finite();
        is_sound.then(|| (loss, segments * 0.5_f64.powf(days)))
    }

    fn note(&mut self, peer: &str, measured: Measured) {
        self.0.insert(peer.to_owned(), measured);
        while self.0.len() > PEERS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, measured)| measured.at);
            let Some(oldest) = oldest.map(|(peer, _)| peer.clone()) else { return };
            self.0.remove(&oldest);
        }
    }
}

/// Loss of the last coded transfer to a peer, and the number of segments that it counts for.
pub(super) fn remembered(peer: &str) -> Option<(f64, f64)> {
    Losses::read(&state_home().ok()?).loss_to(peer, now())
}

/// Keeps the loss of a coded transfer for the next one to the same peer.
pub(super) fn remember(peer: &str, loss: f64, segments: f64) {
    let Ok(base) = state_home() else { return };
    let mut losses = Losses::read(&base);
    losses.note(peer, Measured { loss, segments, at: now() });
    if let Err(error) = losses.write(&base) {
        tracing::warn!(%error, "the loss to the peer cannot be kept");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_age_and_make_room() {
        let place = tempfile::tempdir().unwrap();
        let mut losses = Losses::read(place.path());
        assert_eq!(losses.loss_to("a:1", 0), None);
        let day = DAY.as_secs();
        losses.note("a:1", Measured { loss: 0.1, segments: 2_000.0, at: day });
        losses.write(place.path()).unwrap();
        let losses = Losses::read(place.path());
        assert_eq!(losses.loss_to("a:1", day), Some((0.1, 2_000.0)));
        assert_eq!(losses.loss_to("a:1", 3 * day), Some((0.1, 500.0)));
        let mut losses = losses;
        for n in 0..PEERS_MAX as u64 {
            losses.note(&format!("b:{n}"), Measured { loss: 0.0, segments: 1.0, at: 2 * day + n });
        }
        assert_eq!((losses.0.len(), losses.loss_to("a:1", day)), (PEERS_MAX, None));
        std::fs::write(place.path().join(FILE), b"{").unwrap();
        assert!(Losses::read(place.path()).0.is_empty());
    }
}
