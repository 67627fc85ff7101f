//! Transfers of a server: start, completion, abort.

use engine::{EffectError, FileName};

use super::{MISSING, Session};
use crate::ftp::core::{Core, DataEvent, Flow};
use crate::ftp::indication::Indication;

/// Transfer under way.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) name: String,
    /// Name in this server's store, if the client sends the file.
    pub(super) file: Option<FileName>,
    /// Reply code at its end.
    pub(super) code: u16,
    /// Whether the client sends the file.
    pub(super) incoming: bool,
}

impl Session {
    /// Aborts the transfer, because the control connection was lost (RFC 959 §2.3).
    pub(in crate::ftp) fn abort_transfer(&mut self, core: &mut Core) {
        if let Some(data) = self.data.take() {
            core.drop_data(data);
        }
        if let Some(transfer) = self.transfer.take() {
            let path = self.control.path;
            let Transfer { name, file, incoming, .. } = transfer;
            // A file that another client has resumed is not removed.
            if let Some(file) = file.filter(|file| core.end_storing(file, path)) {
                self.forget_partial(file, core);
            }
            core.indicate(Indication::Aborted { path, name, incoming });
        }
    }

    /// Aborts the transfer because another client stores the same file: a returning client has lost
    /// this control connection.
    pub(in crate::ftp) fn superseded(&mut self, core: &mut Core) {
        if self.transfer.is_some() {
            self.reply(426, "Another client stores that file now.");
            self.abort_transfer(core);
        }
    }

    pub(super) fn begin(&mut self, transfer: Transfer, flow: Flow, core: &mut Core) {
        let data = match (self.data, self.target) {
            (Some(data), _) => data,
            (None, Some(target)) => core.connect(self.control.path, target, self.is_best_effort()),
            // The data connection was closed while the file was being opened.
            (None, None) => return self.reply(425, "There is no data connection."),
        };
        self.data = Some(data);
        if let Some(file) = &transfer.file {
            core.begin_storing(file.clone(), self.control.path);
        }
        self.transfer = Some(transfer);
        self.reply(150, "The data connection follows.");
        core.begin(data, flow);
    }

    fn complete(&mut self, bytes: u64, missing: u64, crc: Option<u32>, core: &mut Core) {
        let Some(transfer) = self.transfer.take() else { return };
        self.forget_way(core);
        let Transfer { name, file, code, incoming } = transfer;
        let path = self.control.path;
        if let Some(file) = file {
            core.end_storing(&file, path);
        }
        if incoming {
            core.indicate(Indication::Received { path, name, bytes, missing });
        } else if !name.is_empty() {
            core.indicate(Indication::Sent { path, name, bytes });
        }
        let lacks = if missing > 0 { format!(" {MISSING}{missing}") } else { String::new() };
        let sum = crc.map_or_else(String::new, |crc| format!(" CRC: {crc}"));
        self.reply(code, &format!("It is done.{lacks}{sum}"));
    }

    pub(in crate::ftp) fn data_event(&mut self, event: DataEvent, core: &mut Core) {
        if self.transfer.is_none() {
            // Unused, or connected without need.
            match event {
                DataEvent::Up | DataEvent::Complete { .. } | DataEvent::Missing { .. } => {}
                DataEvent::NotMade(_) | DataEvent::Broken | DataEvent::Store(_) => {
                    self.forget_way(core);
                }
            }
            return;
        }
        match event {
            DataEvent::Up => {}
            DataEvent::Missing { offset, bytes } => {
                let name = self.transfer.as_ref().map_or("", |transfer| &transfer.name).to_owned();
                core.indicate(Indication::Missing { path: self.control.path, name, offset, bytes });
            }
            DataEvent::Complete { bytes, crc, missing } => {
                self.complete(bytes, missing, crc, core);
            }
            DataEvent::NotMade(error) => {
                self.reply(425, &format!("No data connection: {error}."));
                self.abort_transfer(core);
            }
            DataEvent::Broken => {
                self.reply(426, "The data connection broke.");
                self.abort_transfer(core);
            }
            DataEvent::Store(error) => {
                let code = if error == EffectError::NoSpace { 552 } else { 451 };
                self.reply(code, &format!("{error}."));
                self.abort_transfer(core);
            }
        }
        if self.leaves {
            self.reply(221, "Goodbye.");
            self.control.close();
        }
    }
}
