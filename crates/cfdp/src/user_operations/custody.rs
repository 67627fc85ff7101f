//! Destinations of received files, and files stored for forwarding.

use bytes::Bytes;
use engine::FileName;
use session::path::Handle;

use super::{Operations, message};
use crate::core::{Base, Core, Job};
use crate::pdu::{PutDetail, TransactionId, UserOperation};
use crate::request::FilestoreRequest;

/// Storage used by a file to be forwarded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Custody {
    bytes: u64,
    /// Whether the file is stored, rather than being received.
    held: bool,
}

/// Destination of a received file.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// Whether the reception is refused.
    pub(crate) refused: bool,
    /// Name that replaces the one in the Metadata.
    pub(crate) name: Option<FileName>,
    /// Filestore requests that replace the ones of the Metadata.
    pub(crate) requests: Option<Vec<FilestoreRequest>>,
    /// Whether the file is limited to the announced size until its EOF announces a longer one.
    pub(crate) stored: bool,
}

impl Placement {
    const REFUSED: Self = Self { refused: true, name: None, requests: None, stored: false };
}

/// Working file of the reception `id` that waits to be forwarded.
pub(super) fn spool_name(id: TransactionId) -> FileName {
    let name = format!("custody-{}-{}", id.source, id.sequence);
    FileName::spool(&name).expect("digits and dashes are a name")
}

impl Core {
    /// Destination of a received file, if not the one in its Metadata. `size` is the size in the
    /// Metadata.
    pub(crate) fn place(
        &mut self,
        base: &Base,
        has_file: bool,
        size: u64,
        messages: &[Bytes],
    ) -> Option<Placement> {
        if self.is_relayed(&base.header) {
            return Some(self.place_stored(base.id(), has_file, size, Some(Vec::new())));
        }
        if !message::has_operation(messages) {
            return None;
        }
        let operations = message::operations(messages);
        let request = message::sfo_request(&operations)?;
        if request.destination.value != self.config.entity {
            let refused = self.sfo_refusal(base.peer, &request).is_some();
            return Some(if refused {
                Placement::REFUSED
            } else {
                self.place_stored(base.id(), has_file, size, None)
            });
        }
        let requests = operations.iter().filter_map(|operation| {
            let UserOperation::Sfo(PutDetail::FilestoreRequest(request)) = operation else {
                return None;
            };
            Some(FilestoreRequest::from_wire(request))
        });
        let requests = Some(requests.collect());
        if !has_file {
            return Some(Placement { requests, ..Placement::default() });
        }
        let name = request.destination_name.to_str().and_then(|name| FileName::file(name).ok());
        Some(Placement { refused: name.is_none(), name, requests, stored: false })
    }

    fn place_stored(
        &mut self,
        id: TransactionId,
        has_file: bool,
        size: u64,
        requests: Option<Vec<FilestoreRequest>>,
    ) -> Placement {
        if !has_file {
            return Placement { requests, ..Placement::default() };
        }
        let settings = &self.config.user_operations;
        let operations = &mut self.operations;
        if operations.holds(id) {
            // The file of the same identifier is still being forwarded.
            return Placement::REFUSED;
        }
        let known = operations.custody.contains_key(&id);
        if !known
            && (operations.custody.len() >= settings.stored_files
                || operations.stored_bytes().saturating_add(size) > settings.stored_bytes)
        {
            return Placement::REFUSED;
        }
        operations.custody.entry(id).or_insert(Custody { bytes: size, held: false });
        Placement { refused: false, name: Some(spool_name(id)), requests, stored: true }
    }

    /// Whether there is room for a file that turns out to be this long.
    pub(crate) fn admits(&mut self, id: TransactionId, size: u64) -> bool {
        let others = self.operations.stored_bytes();
        let max = self.config.user_operations.stored_bytes;
        let Some(custody) = self.operations.custody.get_mut(&id) else { return true };
        let fits = (others - custody.bytes).saturating_add(size) <= max;
        if fits {
            custody.bytes = size;
        }
        fits
    }

    /// Takes or releases custody at the end of a reception.
    pub(super) fn take_custody(&mut self, id: TransactionId, good: bool) {
        let Some(custody) = self.operations.custody.get_mut(&id) else { return };
        if good {
            custody.held = true;
        } else {
            self.release(id);
        }
    }

    /// Takes custody of a file that an earlier run received.
    pub(super) fn take_custody_again(&mut self, id: TransactionId, bytes: u64) {
        self.operations.custody.insert(id, Custody { bytes, held: true });
    }

    /// Releases a stored file.
    pub(super) fn release(&mut self, id: TransactionId) {
        if self.operations.custody.remove(&id).is_some() {
            self.delete(spool_name(id));
        }
    }

    pub(super) fn delete(&mut self, name: FileName) {
        self.shared.filestore(
            Handle::NOBODY,
            Job::Forget,
            engine::FilestoreRequest::DenyFile(name),
        );
    }
}

impl Operations {
    fn stored_bytes(&self) -> u64 {
        self.custody.values().fold(0, |sum, custody| sum.saturating_add(custody.bytes))
    }

    pub(super) fn holds(&self, id: TransactionId) -> bool {
        self.custody.get(&id).is_some_and(|custody| custody.held)
    }

    /// Releases the storage reserved for a forgotten reception without a file.
    pub(super) fn reception_over(&mut self, id: TransactionId) {
        if self.custody.get(&id).is_some_and(|custody| !custody.held) {
            self.custody.remove(&id);
        }
    }
}
