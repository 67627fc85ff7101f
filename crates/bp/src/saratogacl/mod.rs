//! Convergence layer over Saratoga (draft-wood-dtnrg-saratoga): each bundle is put as a file of
//! the bundle type. See [`filecl`].
//!
//! Regardless of its settings, the engine uses version 1, and lets peers put only bundles. Its
//! journal lets a restarted node receive the rest of a long bundle. A restarted sender repeats
//! name, checksum and session number, by which the peer recognises the bundle.

#[cfg(test)]
mod tests;

use ::saratoga::packet::StatusCode;
use ::saratoga::{self, Finished, Indication, Put, PutRequest, Report, Role, SessionId};
use engine::{Rng, Ticket, Time};

use super::filecl::{self, Arriving, Bundle, FileCl, FileEngine, Meaning};
use super::layer::{Outcome, Refusal};

/// The convergence layer over Saratoga.
pub type SaratogaCl = FileCl<saratoga::Node>;

/// Settings of a [`SaratogaCl`].
pub type Config = filecl::Config<saratoga::Config>;

impl FileEngine for saratoga::Node {
    type Config = saratoga::Config;
    type Session = SessionId;

    fn of_bundles(mut config: saratoga::Config, rng: Rng) -> Self {
        config.permissions = saratoga::Permissions { put: true, get: false, delete: false };
        config.version = saratoga::Version::V1;
        Self::for_bundles(config, rng)
    }

    fn file_max(config: &saratoga::Config) -> u64 {
        config.limits.file
    }

    fn send_bundle(&mut self, now: Time, bundle: Bundle) -> Option<SessionId> {
        let Bundle { to, source, name, is_reliable, identity } = bundle;
        let put = if is_reliable { Put::Push } else { Put::Blind };
        let session = identity.map(|identity| identity.number as u32);
        let resumes = identity.is_some_and(|identity| identity.resumes);
        let request = PutRequest { put, session, resumes, ..PutRequest::new(to, source, name) };
        self.put_bundle(now, request).ok()
    }

    fn cancel_bundle(&mut self, now: Time, session: SessionId) -> bool {
        self.cancel(now, session).is_ok()
    }

    fn arriving(&self, install: Ticket) -> Option<Arriving<SessionId>> {
        let Report { id, size, .. } = self.asker(install)?;
        Some(Arriving { session: id, from: id.peer, len: size? })
    }

    fn meaning(indication: Indication) -> Meaning<SessionId> {
        match indication {
            Indication::Finished(finished) if finished.id.role == Role::Sender => {
                Meaning::Sent(finished.id, outcome(&finished))
            }
            Indication::Finished(finished) => Meaning::Over(finished.id),
            Indication::Restored { .. }
            | Indication::Started { .. }
            | Indication::Receiving { .. }
            | Indication::Listing { .. }
            | Indication::Beacon { .. }
            | Indication::LimitReached(_) => Meaning::Nothing,
        }
    }
}

/// Result of a session for its bundle.
fn outcome(finished: &Finished) -> Outcome {
    match finished.result {
        Ok(()) if finished.is_confirmed => Outcome::Acknowledged,
        Ok(()) => Outcome::Left,
        Err(failure) if failure.is_ours => Outcome::Failed { acknowledged: 0 },
        Err(failure) if failure.code == StatusCode::ReceiverResources => {
            Outcome::Refused(Refusal::NoResources)
        }
        Err(failure)
            if [
                StatusCode::TooLong,
                StatusCode::UnsupportedPacket,
                StatusCode::DescriptorMismatch,
                StatusCode::AccessDenied,
            ]
            .contains(&failure.code) =>
        {
            Outcome::Refused(Refusal::NotAcceptable)
        }
        Err(_) => Outcome::Failed { acknowledged: 0 },
    }
}
