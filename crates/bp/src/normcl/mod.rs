//! Convergence layer over NORM (RFC 5740): each bundle is an object. See [`filecl`].
//!
//! A link leads to one neighbour or to a group, as its path does. NORM's settings decide who
//! acknowledges. A bundle is `Acknowledged` if all known receivers acknowledged it, which each
//! does once its agent has the bundle. Without acknowledging receivers it has only `Left`. No
//! specification defines bundles over NORM; the objects are files without NORM_INFO.

#[cfg(test)]
mod tests;

use ::norm::{self, Content, Finished, Indication, ObjectId, Report, SendRequest};
use bytes::Bytes;
use engine::{Rng, Ticket, Time};

use super::filecl::{self, Arriving, Bundle, FileCl, FileEngine, Meaning};
use super::layer::Outcome;

/// The convergence layer over NORM.
pub type NormCl = FileCl<norm::Node>;

/// Settings of a [`NormCl`].
pub type Config = filecl::Config<norm::Config>;

impl FileEngine for norm::Node {
    type Config = norm::Config;
    type Session = ObjectId;

    fn of_bundles(mut config: norm::Config, rng: Rng) -> Self {
        config.receiver.enabled = true;
        config.receiver.streams = None;
        // Bundles are sent again as a whole, and their files have no names.
        config.journal.enabled = false;
        Self::new(config, rng)
    }

    fn file_max(config: &norm::Config) -> u64 {
        config.limits.object
    }

    fn send_bundle(&mut self, now: Time, bundle: Bundle) -> Option<ObjectId> {
        let content = Content::File(bundle.source);
        self.send(now, SendRequest { peer: bundle.to, content, info: Bytes::new() }).ok()
    }

    fn cancel_bundle(&mut self, now: Time, session: ObjectId) -> bool {
        self.cancel(now, session).is_ok()
    }

    fn arriving(&self, install: Ticket) -> Option<Arriving<ObjectId>> {
        let Report { id, size, .. } = self.asker(install)?;
        Some(Arriving { session: id, from: id.peer, len: size? })
    }

    fn meaning(indication: Indication) -> Meaning<ObjectId> {
        match indication {
            Indication::Finished(finished) if finished.is_sender => {
                Meaning::Sent(finished.id, outcome(&finished))
            }
            // Data that are no file are acknowledged before an agent could store them.
            Indication::Finished(finished) if finished.data.is_some() => Meaning::NoBundle,
            Indication::Finished(finished) => Meaning::Over(finished.id),
            Indication::Started { .. }
            | Indication::Receiving { .. }
            | Indication::Stream { .. }
            | Indication::Readable { .. }
            | Indication::Writable { .. }
            | Indication::Flushed { .. }
            | Indication::Info { .. }
            | Indication::SenderDiscovered { .. }
            | Indication::Command { .. }
            | Indication::CommandSent { .. }
            | Indication::Question { .. }
            | Indication::Answered { .. }
            | Indication::QuestionOver { .. }
            | Indication::SenderEnded { .. }
            | Indication::SessionEnded { .. }
            | Indication::LimitReached(_) => Meaning::Nothing,
        }
    }
}

/// Result of an object for its bundle.
fn outcome(finished: &Finished) -> Outcome {
    match finished.result {
        Ok(()) if finished.is_confirmed => Outcome::Acknowledged,
        Ok(()) => Outcome::Left,
        Err(_) => Outcome::Failed { acknowledged: 0 },
    }
}
