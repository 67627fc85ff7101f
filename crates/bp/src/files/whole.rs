//! A payload that becomes a file of its own.

use engine::{Completion, EffectError, EffectResult, FileName, FilestoreRequest, OpenMode};
use sha2::Digest as _;

use super::taking::{Comparing, Lying, Step, Taking, Whole, WholeNames, WholeState};
use super::{Files, PAYLOAD_PREFIX, names};

/// Name made of a bundle's identifier.
fn file_name(name: &str) -> FileName {
    FileName::file(name).expect("letters, digits and hyphens are a name")
}

impl Files {
    pub(super) fn begin_whole(&mut self, mut taking: Box<Taking>, lying: Option<Lying>) {
        let working = format!("{PAYLOAD_PREFIX}{:016x}", taking.delivery.arrival.0);
        let working = FileName::spool(&working).expect("letters and digits are a name");
        taking.step = Step::Whole(Box::new(Whole {
            hash: names::hash_of_bundle(&taking.delivery.bundle),
            working: working.clone(),
            file: None,
            at: 0,
            lying,
            state: WholeState::Opening,
        }));
        self.effects.open(taking.purpose(), working, OpenMode::Truncate);
        self.receiving.current = Some(taking);
    }

    /// Writes, reads or ends the bytes of a payload.
    pub(super) fn go_on_with_whole(&mut self, mut taking: Box<Taking>) {
        let purpose = taking.purpose();
        let Step::Whole(whole) = &mut taking.step else { return };
        let Some(file) = whole.file else { return };
        if !taking.ahead.is_empty() {
            let bytes = std::mem::take(&mut taking.ahead);
            whole.hash.update(&bytes);
            whole.state = WholeState::Writing(bytes.len() as u64);
            self.effects.write(purpose, file, whole.at, bytes);
        } else if let Some(lying) = whole.lying.as_ref().filter(|lying| lying.at < lying.end) {
            whole.state = WholeState::Reading;
            self.effects.read(purpose, lying.file, lying.at, lying.end - lying.at);
        } else if taking.is_last {
            whole.state = WholeState::Syncing;
            self.effects.sync(purpose, file);
        } else {
            whole.state = WholeState::Pulling;
            return self.pull(taking);
        }
        self.receiving.current = Some(taking);
    }

    pub(super) fn whole_done(&mut self, mut taking: Box<Taking>, result: EffectResult) {
        let purpose = taking.purpose();
        let bundle = taking.delivery.bundle.clone();
        let Step::Whole(whole) = &mut taking.step else { return };
        let state = std::mem::replace(&mut whole.state, WholeState::Pulling);
        match (state, result) {
            (WholeState::Opening, Ok(Completion::Opened { file, .. })) => {
                whole.file = Some(file);
                return self.go_on_with_whole(taking);
            }
            (WholeState::Reading, Ok(Completion::Read(bytes))) if !bytes.is_empty() => {
                if let Some(lying) = &mut whole.lying {
                    lying.at += bytes.len() as u64;
                }
                taking.ahead = bytes;
                return self.go_on_with_whole(taking);
            }
            (WholeState::Reading, Ok(_)) => return self.set_aside(taking, EffectError::Changed),
            (WholeState::Writing(len), Ok(_)) => {
                whole.at += len;
                return self.go_on_with_whole(taking);
            }
            (WholeState::Syncing, Ok(_)) => {
                let (file, lying) = (whole.file.take(), whole.lying.take());
                let other = names::of_hash(whole.hash.clone());
                self.effects.close(file);
                self.drop_lying(lying);
                let name = file_name(&names::of_bundle(&bundle));
                let candidates = WholeNames { name, other: Some(file_name(&other)) };
                return self.rename(taking, candidates);
            }
            (WholeState::Renaming(candidates), Ok(_)) => {
                let bytes = taking.delivery.len;
                return self.received(&taking, String::new(), candidates.name, bytes);
            }
            (WholeState::Renaming(candidates), Err(EffectError::Exists)) => {
                self.effects.open(purpose, candidates.name.clone(), OpenMode::Read);
                let hash = names::hash_of_bundle(&bundle);
                whole.state =
                    WholeState::Comparing(candidates, Comparing { file: None, at: 0, hash });
            }
            (WholeState::Comparing(candidates, comparing), result) => {
                return self.compare(taking, candidates, comparing, result);
            }
            (_, Err(error)) => return self.set_aside(taking, error),
            (state, Ok(_)) => whole.state = state,
        }
        self.receiving.current = Some(taking);
    }

    fn rename(&mut self, mut taking: Box<Taking>, candidates: WholeNames) {
        let purpose = taking.purpose();
        let Step::Whole(whole) = &mut taking.step else { return };
        let (from, to) = (whole.working.clone(), candidates.name.clone());
        whole.state = WholeState::Renaming(candidates);
        self.effects.filestore(purpose, FilestoreRequest::RenameFile { from, to });
        self.receiving.current = Some(taking);
    }

    /// Compares a payload with a file that has its name. One of equal content is the result of an
    /// earlier delivery; another one stays.
    fn compare(
        &mut self,
        mut taking: Box<Taking>,
        candidates: WholeNames,
        mut comparing: Comparing,
        result: EffectResult,
    ) {
        let (purpose, len) = (taking.purpose(), taking.delivery.len);
        let Step::Whole(whole) = &mut taking.step else { return };
        let mut is_other = true;
        match result {
            Ok(Completion::Opened { file, len: found, .. }) => {
                comparing.file = Some(file);
                is_other = found != len;
            }
            Ok(Completion::Read(bytes)) if !bytes.is_empty() => {
                comparing.at += bytes.len() as u64;
                comparing.hash.update(&bytes);
                is_other = false;
            }
            Ok(_) | Err(_) => {}
        }
        if let Some(file) = comparing.file.filter(|_| !is_other && comparing.at < len) {
            self.effects.read(purpose, file, comparing.at, len - comparing.at);
            whole.state = WholeState::Comparing(candidates, comparing);
            self.receiving.current = Some(taking);
            return;
        }
        self.effects.close(comparing.file);
        if !is_other && comparing.hash.finalize() == whole.hash.clone().finalize() {
            let working = whole.working.clone();
            self.delete(working);
            return self.received(&taking, String::new(), candidates.name, len);
        }
        match candidates.other {
            Some(name) => self.rename(taking, WholeNames { name, other: None }),
            None => self.set_aside(taking, EffectError::Exists),
        }
    }

    /// Deletes the working file of which nothing is used, before the payload gets its name.
    fn drop_lying(&mut self, lying: Option<Lying>) {
        let Some(Lying { key, file, .. }) = lying else { return };
        self.effects.close(Some(file));
        if let Some(joined) = self.receiving.files.remove_if_empty(&key) {
            self.delete(joined.working_file());
        }
    }

    pub(super) fn abandon_whole(&mut self, whole: Whole) {
        if let WholeState::Comparing(_, Comparing { file, .. }) = whole.state {
            self.effects.close(file);
        }
        self.effects.close(whole.file);
        if let Some(Lying { key, file, .. }) = whole.lying {
            self.effects.close(Some(file));
            self.receiving.files.remove_if_empty(&key);
        }
        self.delete(whole.working);
    }
}
