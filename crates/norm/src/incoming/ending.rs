//! End of a received object: its name, its result, and what is left of it.

use bytes::Bytes;
use engine::{FileName, NameError};

use super::{Incoming, Kind, State};
use crate::core::Core;
use crate::indication::{Failure, Finished, Indication, Limit};
use crate::message::Flags;

impl Incoming {
    /// Local file name: NORM_INFO of a file, otherwise the object's number (RFC 5740 §4.2.2 leaves
    /// the content of NORM_INFO to the sender).
    fn destination(&self) -> Result<FileName, NameError> {
        let info = self.info.as_deref().filter(|_| self.flags.contains(Flags::FILE));
        let info = info.unwrap_or_default();
        match std::str::from_utf8(info) {
            // Other implementations terminate the name with a zero.
            Ok(name) if !info.is_empty() => FileName::file(name.trim_end_matches('\0')),
            Ok(_) | Err(_) => {
                // Numbers are unwrapped from 1 << 16 on.
                let number = self.id.number.checked_sub(1 << 16).unwrap_or(self.id.number);
                FileName::file(&format!("norm-{:08x}.{number}", self.id.sender))
            }
        }
    }

    pub(super) fn on_synced(&mut self, core: &mut Core) {
        let to = self.destination();
        let Kind::Blocks(blocks) = &mut self.kind else { return };
        if !blocks.sink.is_open() {
            return;
        }
        match to {
            Ok(to) => {
                self.state = State::Installing;
                blocks.sink.install(core, to);
            }
            Err(error) => self.fail(core, Failure::Name(error)),
        }
    }

    pub(super) fn finished(
        &mut self,
        core: &mut Core,
        result: Result<(), Failure>,
        data: Option<Bytes>,
    ) {
        if result.is_ok() {
            self.show(core);
        }
        if !self.is_announced || self.is_held {
            return;
        }
        let (progress, size) = self.progress();
        let is_whole = self.stream().is_none_or(|stream| stream.is_whole());
        let name = match &mut self.kind {
            Kind::Blocks(blocks) if result.is_ok() => blocks.sink.take_name(),
            Kind::Blocks(_) | Kind::Stream(_) | Kind::Unknown(_) => None,
        };
        core.user.indicate(Indication::Finished(Finished {
            id: self.id,
            is_sender: false,
            is_confirmed: result.is_ok() && is_whole,
            result,
            acknowledged: 0,
            info: self.info.clone().unwrap_or_default(),
            name,
            data,
            size: size.unwrap_or(progress),
        }));
    }

    /// Gives up missing parts because the sender abandoned the object. A complete object stays.
    pub(crate) fn abandon(&mut self, core: &mut Core, failure: Failure) {
        if self.state == State::Receiving {
            self.fail(core, failure);
        }
    }

    /// Fails the object, and discards its data unless a later session may resume it.
    pub(crate) fn fail(&mut self, core: &mut Core, failure: Failure) {
        if self.is_over() {
            return;
        }
        let is_refused = !matches!(failure, Failure::Abandoned | Failure::Ended | Failure::Resumed);
        let is_kept = (!is_refused || failure == Failure::Silence)
            && self.state == State::Receiving
            && self.suspend(core);
        let cannot_store = failure.store_refusal();
        self.state = State::Failed { is_refused, cannot_store };
        match &mut self.kind {
            Kind::Unknown(parked) => drop(parked.take(core)),
            Kind::Blocks(blocks) => {
                if !is_kept {
                    blocks.forget_record(core);
                }
                blocks.discard(core);
            }
            Kind::Stream(stream) => stream.clear(core),
        }
        core.user.limit_left(Limit::Assembly);
        self.finished(core, Err(failure), None);
    }
}
