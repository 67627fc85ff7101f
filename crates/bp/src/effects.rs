//! Queue of an engine's effects, and the purposes of those that are pending.

use std::collections::VecDeque;

use bytes::Bytes;
use engine::{
    Completion, Effect, EffectResult, FileId, FileName, FilestoreRequest, IndexRequest, OpenMode,
    PathEffect, PathId, StoreEffect, Ticket, Tickets,
};

/// Most bytes of a file that are read at one time.
pub(crate) const PIECE: u64 = 256 << 10;

/// Ticket of an effect before it is queued.
const UNNUMBERED: Ticket = Ticket(0);

/// Queued effects, and the purpose `P` of each pending one.
#[derive(Debug)]
pub(crate) struct Effects<P> {
    queue: VecDeque<Effect>,
    tickets: Tickets<P>,
}

impl<P> Default for Effects<P> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), tickets: Tickets::new() }
    }
}

impl<P> Effects<P> {
    /// Next effect for the driver.
    pub(crate) fn poll(&mut self) -> Option<Effect> {
        self.queue.pop_front()
    }

    /// Purpose of a completed effect.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<P> {
        self.take_renumbered(ticket).map(|(purpose, _)| purpose)
    }

    /// Owner of a completed effect, and its own ticket.
    pub(crate) fn take_renumbered(&mut self, ticket: Ticket) -> Option<(P, Ticket)> {
        self.tickets.take(ticket)
    }

    /// Gives an effect of another engine a ticket of this one.
    pub(crate) fn renumbered(&mut self, owner: P, effect: Effect) -> Effect {
        self.tickets.renumbered(owner, effect)
    }

    /// Queues an effect without a completion.
    pub(crate) fn push(&mut self, effect: impl Into<Effect>) {
        self.queue.push_back(effect.into());
    }

    fn request(&mut self, purpose: P, effect: StoreEffect) {
        let effect = self.tickets.renumbered(purpose, effect.into());
        self.queue.push_back(effect);
    }

    pub(crate) fn open(&mut self, purpose: P, name: FileName, mode: OpenMode) {
        self.request(purpose, StoreEffect::Open { ticket: UNNUMBERED, name, mode });
    }

    /// Reads the next bytes of a file, of which `left` are needed: at most a [`PIECE`].
    pub(crate) fn read(&mut self, purpose: P, file: FileId, offset: u64, left: u64) {
        let len = left.min(PIECE) as usize;
        self.request(purpose, StoreEffect::Read { ticket: UNNUMBERED, file, offset, len });
    }

    pub(crate) fn write(&mut self, purpose: P, file: FileId, offset: u64, bytes: Bytes) {
        self.request(purpose, StoreEffect::Write { ticket: UNNUMBERED, file, offset, bytes });
    }

    pub(crate) fn sync(&mut self, purpose: P, file: FileId) {
        self.request(purpose, StoreEffect::Sync { ticket: UNNUMBERED, file });
    }

    pub(crate) fn filestore(&mut self, purpose: P, request: FilestoreRequest) {
        self.request(purpose, StoreEffect::Filestore { ticket: UNNUMBERED, request });
    }

    pub(crate) fn index(&mut self, purpose: P, request: IndexRequest) {
        self.request(purpose, StoreEffect::Index { ticket: UNNUMBERED, request });
    }

    /// Pauses or resumes reading from a path.
    pub(crate) fn pause(&mut self, path: PathId, pauses: bool) {
        self.push(if pauses {
            PathEffect::PauseRead { path }
        } else {
            PathEffect::ResumeRead { path }
        });
    }

    /// Closes a file, if it is open.
    pub(crate) fn close(&mut self, file: impl Into<Option<FileId>>) {
        if let Some(file) = file.into() {
            self.push(StoreEffect::Close { file });
        }
    }

    /// Closes the file of a completion that nobody waits for.
    pub(crate) fn close_orphan(&mut self, result: &EffectResult) {
        if let Ok(Completion::Opened { file, .. }) = result {
            self.close(*file);
        }
    }
}
