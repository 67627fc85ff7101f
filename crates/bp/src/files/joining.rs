//! Reception of files.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::{Completion, EffectError, FileName, FilestoreRequest, OpenMode, StoreEffect, Time};

use super::super::agent::{Agent, DeliveryId};
use super::super::layer::Content;
use super::{Failure, Files, Indication, Use};
use crate::codec::bp7::{BundleId, Eid};
use crate::codec::file_part::{FilePart, HEADER_MAX, crc_append};

/// A received part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartId(u64);

/// A file with received parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct File(u64);

#[derive(Debug)]
pub(super) struct Part {
    delivery: DeliveryId,
    bundle: BundleId,
    from: Eid,
    content: Content,
    /// File it is read from, once open.
    open: Option<engine::FileId>,
    /// File named by its header, once read.
    of: Option<File>,
}

/// Place of a part in its file.
#[derive(Clone, Copy, Debug)]
struct Place {
    part: PartId,
    len: u64,
    header: u64,
    crc: u32,
}

#[derive(Debug)]
pub(super) struct Joining {
    from: Eid,
    transfer: u64,
    name: String,
    total: u64,
    /// Parts by offset.
    places: BTreeMap<u64, Place>,
    bytes: u64,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// Parts are missing.
    Gathering,
    /// Opening the working file.
    Opening,
    /// Reading a part, or writing a piece of it.
    Copying { into: engine::FileId, at: u64, read: u64, crc: u32 },
    /// Syncing.
    Syncing { into: engine::FileId },
    /// Installing it under its name.
    Naming,
}

impl Files {
    pub(super) fn delivered(
        &mut self,
        now: Time,
        delivery: DeliveryId,
        bundle: BundleId,
        from: Eid,
        content: Content,
    ) {
        let id = PartId(delivery.0);
        let place = Self::place(&content);
        let bytes = match &content {
            Content::Bytes(bytes) => Some(bytes.clone()),
            Content::File { .. } => None,
        };
        self.parts.insert(id, Part { delivery, bundle, from, content, open: None, of: None });
        match (bytes, place) {
            (Some(bytes), _) => self.look(now, id, &bytes),
            (None, Some((name, ..))) => self.open(Use::Look(id), name, OpenMode::Read),
            (None, None) => {}
        }
    }

    /// Handles an opened file of a part, or its first bytes.
    pub(super) fn looked(
        &mut self,
        now: Time,
        id: PartId,
        result: Result<Completion, EffectError>,
    ) {
        let place = self.parts.get(&id).and_then(|part| Self::place(&part.content));
        let (Some(part), Some((_, offset, len))) = (self.parts.get_mut(&id), place) else {
            if let Ok(Completion::Opened { file, .. }) = result {
                self.close(file);
            }
            return;
        };
        match result {
            Ok(Completion::Opened { file, .. }) => {
                part.open = Some(file);
                let most = usize::try_from(len).unwrap_or(usize::MAX).min(HEADER_MAX);
                self.read(Use::Look(id), file, offset, most);
            }
            Ok(Completion::Read(bytes)) => self.look(now, id, &bytes),
            Ok(_) | Err(_) => self.drop_part(now, id),
        }
    }

    /// Adds a part to its file.
    fn look(&mut self, now: Time, id: PartId, beginning: &[u8]) {
        let Some(part) = self.parts.get(&id) else { return };
        let Ok((header, crc)) = FilePart::decode(beginning) else {
            return self.drop_part(now, id);
        };
        let header_len = header.header_len() as u64;
        let Some(len) = part.content.len().checked_sub(header_len) else {
            return self.drop_part(now, id);
        };
        let FilePart { transfer, total, offset, name } = header;
        let of =
            |(_, known): &(&File, &Joining)| known.from == part.from && known.transfer == transfer;
        let found = self.joining.iter().find(of).map(|(file, _)| *file);
        let fits = found.and_then(|file| self.joining.get(&file)).is_none_or(|known| {
            let before = known.places.range(..=offset).next_back();
            let after = known.places.range(offset..).next();
            known.total == total
                && known.name == name
                && matches!(known.step, Step::Gathering)
                && before.is_none_or(|(at, place)| at + place.len <= offset && *at != offset)
                && after.is_none_or(|(at, _)| offset.saturating_add(len) <= *at)
        });
        if !fits || offset.saturating_add(len) > total {
            return self.drop_part(now, id);
        }
        let file = found.unwrap_or_else(|| {
            self.next += 1;
            File(self.next)
        });
        let fresh = || Joining {
            from: part.from.clone(),
            transfer,
            name: name.to_owned(),
            total,
            places: BTreeMap::new(),
            bytes: 0,
            step: Step::Gathering,
        };
        let joining = self.joining.entry(file).or_insert_with(fresh);
        joining.places.insert(offset, Place { part: id, len, header: header_len, crc });
        joining.bytes += len;
        let is_whole = joining.bytes == joining.total;
        if let Some(part) = self.parts.get_mut(&id) {
            part.of = Some(file);
        }
        if is_whole {
            self.join(now, file);
        }
    }

    /// Drops a bundle that is not part of a file.
    fn drop_part(&mut self, now: Time, id: PartId) {
        let Some(part) = self.take_part(now, id) else { return };
        let result = Err(Failure::Contradiction);
        self.indications.push_back(Indication::Received {
            from: part.from,
            name: String::new(),
            result,
        });
    }

    /// Confirms the bundle of a part to the agent.
    fn take_part(&mut self, now: Time, id: PartId) -> Option<Part> {
        let part = self.parts.remove(&id)?;
        if let Some(file) = part.open {
            self.close(file);
        }
        let delivery = part.delivery;
        // It may have expired.
        let _ = self.node.with_agent(now, |agent: &mut Agent| agent.confirm(now, delivery));
        Some(part)
    }

    /// Handles the expiry of a bundle with a part.
    pub(super) fn lost(&mut self, bundle: &BundleId) {
        let found = self.parts.iter().find(|(_, part)| part.bundle == *bundle);
        let Some(id) = found.map(|(id, _)| *id) else { return };
        let Some(part) = self.parts.remove(&id) else { return };
        if let Some(file) = part.open {
            self.close(file);
        }
        let Some(of) = part.of else { return };
        let Some(joining) = self.joining.get_mut(&of) else { return };
        if !matches!(joining.step, Step::Gathering) {
            return;
        }
        let at = joining.places.iter().find(|(_, place)| place.part == id).map(|(at, _)| *at);
        if let Some(place) = at.and_then(|at| joining.places.remove(&at)) {
            joining.bytes -= place.len;
        }
        if joining.places.is_empty() {
            self.joining.remove(&of);
        }
    }

    fn working(file: File) -> FileName {
        let name = format!("files-in-{:016x}", file.0);
        FileName::spool(&name).expect("letters and digits are a name")
    }

    /// Starts joining once all parts have arrived.
    fn join(&mut self, now: Time, file: File) {
        let Some(joining) = self.joining.get_mut(&file) else { return };
        if FileName::file(&joining.name).is_err() {
            return self.over(now, file, Err(Failure::Contradiction));
        }
        joining.step = Step::Opening;
        self.open(Use::Join(file), Self::working(file), OpenMode::Truncate);
    }

    pub(super) fn joining_effect_done(
        &mut self,
        now: Time,
        file: &File,
        result: Result<Completion, EffectError>,
    ) {
        let file = *file;
        let Some(joining) = self.joining.get_mut(&file) else { return };
        let result = match result {
            Ok(result) => result,
            Err(error) => return self.over(now, file, Err(Failure::Store(error))),
        };
        match (std::mem::replace(&mut joining.step, Step::Gathering), result) {
            (Step::Opening, Completion::Opened { file: into, .. }) => {
                self.begin_part(now, file, into, 0);
            }
            (Step::Copying { into, at, read, crc }, Completion::Read(bytes)) => {
                if bytes.is_empty() {
                    joining.step = Step::Copying { into, at, read, crc };
                    return self.over(now, file, Err(Failure::Damaged));
                }
                let crc = crc_append(crc, &bytes);
                let to = at + read;
                let read = read + bytes.len() as u64;
                joining.step = Step::Copying { into, at, read, crc };
                self.write(Use::Join(file), into, to, bytes);
            }
            (Step::Copying { into, at, read, crc }, _) => {
                self.copy_part(now, file, into, at, read, crc);
            }
            (Step::Syncing { into }, _) => {
                let name = FileName::file(&joining.name);
                joining.step = Step::Naming;
                self.close(into);
                if let Ok(to) = name {
                    let request = FilestoreRequest::Install { from: Self::working(file), to };
                    self.ask(Use::Join(file), |ticket| StoreEffect::Filestore { ticket, request });
                }
            }
            (Step::Naming, _) => self.over(now, file, Ok(())),
            (step, _) => joining.step = step,
        }
    }

    /// Continues with the part that begins at `at`, or ends.
    fn begin_part(&mut self, now: Time, file: File, into: engine::FileId, at: u64) {
        let Some(joining) = self.joining.get_mut(&file) else { return };
        let Some(place) = joining.places.get(&at) else {
            joining.step = Step::Syncing { into };
            return self.sync(Use::Join(file), into);
        };
        let (name, total, transfer) = (joining.name.as_str(), joining.total, joining.transfer);
        let header = FilePart { transfer, total, offset: at, name };
        let crc = header.crc().unwrap_or_default();
        if place.len == 0 {
            // An empty file is one part without bytes.
            let is_sound = place.crc == crc;
            joining.step = Step::Syncing { into };
            return match is_sound {
                true => self.sync(Use::Join(file), into),
                false => self.over(now, file, Err(Failure::Damaged)),
            };
        }
        self.copy_part(now, file, into, at, 0, crc);
    }

    /// Copies the next piece of a part.
    fn copy_part(
        &mut self,
        now: Time,
        file: File,
        into: engine::FileId,
        at: u64,
        read: u64,
        crc: u32,
    ) {
        let most = self.config.limits.read.max(1) as u64;
        let Some(joining) = self.joining.get_mut(&file) else { return };
        joining.step = Step::Copying { into, at, read, crc };
        let Some(&place) = joining.places.get(&at) else { return };
        if read == place.len {
            if crc != place.crc {
                return self.over(now, file, Err(Failure::Damaged));
            }
            return self.begin_part(now, file, into, at + place.len);
        }
        let here = usize::try_from(most.min(place.len - read)).unwrap_or(usize::MAX);
        let Some(part) = self.parts.get(&place.part) else {
            return self.over(now, file, Err(Failure::Damaged));
        };
        let (from, content) = (place.header + read, part.content.clone());
        match (content, part.open) {
            (Content::Bytes(bytes), _) => {
                let start = usize::try_from(from).unwrap_or(usize::MAX);
                let piece: Bytes = bytes.slice(start..start + here);
                let crc = crc_append(crc, &piece);
                if let Some(joining) = self.joining.get_mut(&file) {
                    joining.step = Step::Copying { into, at, read: read + here as u64, crc };
                }
                self.write(Use::Join(file), into, at + read, piece);
            }
            (Content::File { offset, .. }, Some(open)) => {
                self.read(Use::Join(file), open, offset + from, here);
            }
            (Content::File { .. }, None) => self.over(now, file, Err(Failure::Damaged)),
        }
    }

    /// Reports the completion or failure of a file.
    fn over(&mut self, now: Time, file: File, result: Result<(), Failure>) {
        let Some(joining) = self.joining.remove(&file) else { return };
        if let Step::Copying { into, .. } | Step::Syncing { into } = joining.step {
            self.close(into);
        }
        if result.is_err() {
            self.remove(Self::working(file));
        }
        for place in joining.places.values() {
            self.take_part(now, place.part);
        }
        let Joining { from, name, .. } = joining;
        self.indications.push_back(Indication::Received { from, name, result });
    }

    /// Removes a working file.
    pub(super) fn remove(&mut self, name: FileName) {
        let request = FilestoreRequest::DenyFile(name);
        self.ask(Use::Forget, |ticket| StoreEffect::Filestore { ticket, request });
    }
}
