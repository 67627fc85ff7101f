//! A payload that is a part of a file.

use engine::{Completion, EffectError, EffectResult, FileName, FilestoreRequest, OpenMode};

use super::joining::Fit;
use super::taking::{Lying, Part, PartNames, PartState, Step, Taking};
use super::{Files, Indication, Use};
use crate::app::Order;
use crate::codec::file_part::{FilePart, crc_append};
use crate::effects::PIECE;

impl Files {
    /// Begins with a payload that is a part of a file; returns any other.
    pub(super) fn begin_part(&mut self, mut taking: Box<Taking>) -> Option<Box<Taking>> {
        let beginning = taking.ahead.clone();
        let Ok((part, expected_crc)) = FilePart::decode(&beginning) else { return Some(taking) };
        let header_len = part.header_len();
        let (Some(len), Ok(crc)) = (taking.delivery.len.checked_sub(header_len as u64), part.crc())
        else {
            return Some(taking);
        };
        let source = taking.delivery.source.to_string();
        let limits = self.receiving.limits;
        let (key, fit) = self.receiving.files.fit(&part, &source, len, limits);
        if fit == Fit::Contradiction {
            return Some(taking);
        }
        let header = taking.ahead.split_to(header_len);
        taking.step = Step::Part(Part {
            key,
            header,
            text: part.to_string(),
            start: part.offset,
            end: part.offset + len,
            expected_crc,
            crc,
            at: part.offset,
            file: None,
            state: PartState::Opening,
        });
        self.begin_fitting(taking, fit);
        None
    }

    fn begin_fitting(&mut self, mut taking: Box<Taking>, fit: Fit) {
        let purpose = taking.purpose();
        let Step::Part(part) = &mut taking.step else { return };
        let file = self.receiving.files.get_mut(&part.key).map(|file| file.working_file());
        let Some(working) = file else { return };
        let (state, mode) = match fit {
            Fit::Complete => (PartState::Looking, OpenMode::Read),
            Fit::New => (PartState::Opening, OpenMode::Write),
            Fit::Known | Fit::Contradiction => return self.part_over(taking),
        };
        part.state = state;
        self.effects.open(purpose, working, mode);
        self.receiving.current = Some(taking);
    }

    /// Writes, asks for or ends the bytes of a part.
    pub(super) fn go_on_with_part(&mut self, mut taking: Box<Taking>) {
        let purpose = taking.purpose();
        let Step::Part(part) = &mut taking.step else { return };
        let Some(file) = part.file else { return };
        if !taking.ahead.is_empty() {
            let bytes = taking.ahead.split_to(taking.ahead.len().min(PIECE as usize));
            part.crc = crc_append(part.crc, &bytes);
            part.state = PartState::Writing(bytes.len() as u64);
            self.effects.write(purpose, file, part.at, bytes);
        } else if !taking.is_last {
            part.state = PartState::Pulling;
            return self.pull(taking);
        } else if part.at != part.end || part.crc != part.expected_crc {
            return self.damaged(taking);
        } else {
            part.state = PartState::Syncing;
            self.effects.sync(purpose, file);
        }
        self.receiving.current = Some(taking);
    }

    pub(super) fn part_done(&mut self, mut taking: Box<Taking>, result: EffectResult) {
        let purpose = taking.purpose();
        let Step::Part(part) = &mut taking.step else { return };
        let state = std::mem::replace(&mut part.state, PartState::Pulling);
        let result = match (result, state) {
            (Ok(result), state) => (result, state),
            (Err(EffectError::NotFound), PartState::Looking) => return self.renamed(taking),
            // No other name would help.
            (Err(error @ EffectError::Failed(_)), PartState::Renaming(_)) => {
                return self.set_aside(taking, error);
            }
            (Err(error), PartState::Renaming(PartNames { left, .. })) => {
                return self.choose(taking, left, error);
            }
            // It has its name, even if that is not recorded.
            (Err(_), state @ PartState::Finishing(_)) => (Completion::Done, state),
            (Err(error), _) => return self.set_aside(taking, error),
        };
        match result {
            (Completion::Opened { file, .. }, PartState::Looking) => {
                // The process ended before it renamed the file.
                self.effects.close(Some(file));
                if let Some(joined) = self.receiving.files.get_mut(&part.key) {
                    joined.named = None;
                    let is_there = joined.has(part.start, part.end);
                    let fit = if is_there { Fit::Known } else { Fit::New };
                    return self.begin_fitting(taking, fit);
                }
            }
            (Completion::Opened { file, .. }, PartState::Opening) => {
                part.file = Some(file);
                return self.go_on_with_part(taking);
            }
            (_, PartState::Writing(len)) => {
                part.at += len;
                return self.go_on_with_part(taking);
            }
            (_, PartState::Syncing) => {
                part.state = PartState::Recording;
                if let Some(joined) = self.receiving.files.get_mut(&part.key) {
                    joined.there.insert(part.start, part.end);
                    let put = joined.put();
                    self.effects.index(purpose, put);
                }
            }
            (_, PartState::Recording) => return self.part_over(taking),
            (_, PartState::Choosing(names)) => {
                if let Some(joined) = self.receiving.files.get_mut(&part.key) {
                    let (from, to) = (joined.working_file(), names.name.clone());
                    self.effects.filestore(purpose, FilestoreRequest::RenameFile { from, to });
                }
                part.state = PartState::Renaming(names);
            }
            (_, PartState::Renaming(names)) => return self.finish(taking, names.name),
            (_, PartState::Finishing(place)) => {
                let joined = self.receiving.files.get_mut(&part.key);
                if let Some((name, total)) = joined.map(|file| (file.name.clone(), file.total)) {
                    self.received(&taking, name, place, total);
                }
                return;
            }
            (_, state) => part.state = state,
        }
        self.receiving.current = Some(taking);
    }

    /// Ends with a part of a file that was renamed. If the process ended before it recorded that,
    /// the file is reported now.
    fn renamed(&mut self, mut taking: Box<Taking>) {
        let Step::Part(part) = &mut taking.step else { return };
        let joined = self.receiving.files.get_mut(&part.key);
        let unreported = joined.filter(|joined| joined.is_whole() && joined.total > 0);
        let place = unreported.and_then(|joined| joined.named.clone());
        match place.and_then(|name| FileName::file(&name).ok()) {
            Some(place) => self.finish(taking, place),
            None => self.confirm(&taking),
        }
    }

    /// Records that a file has its name.
    fn finish(&mut self, mut taking: Box<Taking>, place: FileName) {
        let purpose = taking.purpose();
        let Step::Part(part) = &mut taking.step else { return };
        let (kept, removed) = self.receiving.files.completed(&part.key);
        if let Some(record) = removed {
            self.effects.index(Use::Nobody, record);
        }
        if let Some(record) = kept {
            self.effects.index(purpose, record);
        }
        part.state = PartState::Finishing(place);
        self.receiving.current = Some(taking);
    }

    /// Ends with a part that is there, and with its file if that is complete.
    fn part_over(&mut self, mut taking: Box<Taking>) {
        let Step::Part(part) = &mut taking.step else { return };
        let file = part.file.take();
        self.effects.close(file);
        let joined = self.receiving.files.get_mut(&part.key);
        match joined.filter(|joined| joined.is_whole()).map(|joined| joined.names()) {
            Some(names) => self.choose(taking, names.into(), EffectError::Exists),
            None => self.confirm(&taking),
        }
    }

    /// Chooses the next name for a complete file. Without any left, its last bundle stays in the
    /// node, for the reason that the last name failed.
    fn choose(&mut self, mut taking: Box<Taking>, mut left: Vec<String>, error: EffectError) {
        let purpose = taking.purpose();
        let Step::Part(part) = &mut taking.step else { return };
        let Some(joined) = self.receiving.files.get_mut(&part.key) else { return };
        while !left.is_empty() {
            let Ok(name) = FileName::file(&left.remove(0)) else { continue };
            joined.named = Some(name.path().to_owned());
            part.state = PartState::Choosing(PartNames { name, left });
            let put = joined.put();
            self.effects.index(purpose, put);
            self.receiving.current = Some(taking);
            return;
        }
        joined.named = None;
        self.set_aside(taking, error);
    }

    fn confirm(&mut self, taking: &Taking) {
        self.orders.push_back(Order::Confirm(taking.delivery.arrival));
    }

    /// Keeps a part with a wrong checksum as a payload of its own.
    fn damaged(&mut self, mut taking: Box<Taking>) {
        let Step::Part(part) = &mut taking.step else { return };
        let (bundle, text) = (taking.delivery.bundle.clone(), part.text.clone());
        self.indications.push_back(Indication::Damaged { bundle, part: text });
        let lying = part.file.take().map(|file| Lying {
            key: part.key.clone(),
            file,
            at: part.start,
            end: part.at,
        });
        taking.ahead = part.header.clone();
        self.begin_whole(taking, lying);
    }

    pub(super) fn abandon_part(&mut self, part: &Part) {
        self.effects.close(part.file);
        // The next part may open its working file at once.
        self.receiving.files.remove_if_empty(&part.key);
    }
}
