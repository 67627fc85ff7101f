//! Bundles that an engine below a layer receives as files. When the engine is about to install a
//! file, the agent decides first. The engine's effect completes once the agent has the bundle, so
//! the sender is informed of success only when the bundle is safe. A short bundle is read from its
//! file first; a long one stays in it.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use engine::{
    Area, Completion, Effect, EffectError, EffectResult, FileId, FileName, FilestoreRequest,
    OpenMode, PathId, Rng, StoreEffect, Ticket,
};

use super::blocks::{Blocks, EffectDone};
use super::layer::{Event, Identity, LinkId, Refusal, TransferId};
use super::neighbours::Neighbours;

/// Prefix of the names of files handed to the agent.
pub(super) const OF_LAYERS: &str = "bundle-";

/// Names of files that a layer hands over. The engine may use the name of its working file again.
#[derive(Debug)]
pub(super) struct HandoverNames {
    /// The agent's directory. After a crash the agent removes files there that no record names.
    directory: FileName,
    /// Number in the names of this run.
    run: u64,
    next: u64,
}

impl HandoverNames {
    pub(super) fn new(directory: FileName, rng: &mut Rng) -> Self {
        Self { directory, run: rng.next_u64(), next: 0 }
    }

    /// A unique name.
    fn next(&mut self) -> String {
        self.next += 1;
        format!("{OF_LAYERS}{:016x}-{}", self.run, self.next)
    }

    /// Name of the next file.
    pub(super) fn next_file(&mut self) -> FileName {
        let name = self.next();
        FileName::spool(&format!("{}/{name}", self.directory.path()))
            .expect("a directory's name with letters behind it is a name")
    }
}

/// A complete file, about to be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arriving<K> {
    /// The engine's session.
    pub session: K,
    /// Path of the sender.
    pub from: PathId,
    /// Length in bytes.
    pub len: u64,
}

/// A received bundle.
#[derive(Debug)]
struct Coming<K> {
    session: K,
    /// Whether the session has ended: no reply is due, and the engine no longer bounds their
    /// number.
    is_over: bool,
    link: LinkId,
    /// Ticket of the engine's pending effect.
    install: Ticket,
    file: FileName,
    len: u64,
    /// The whole bundle, if it is short.
    bytes: Option<Bytes>,
}

/// Step of the store for a received file.
#[derive(Debug)]
enum Step<K> {
    /// Renames it to a name of the layer.
    Name(Coming<K>),
    /// Opens, then reads, a short file.
    Open(Coming<K>),
    Read(Coming<K>, FileId),
    /// Removes a file that was read or is not wanted, then passes this completion to the engine.
    Remove(EffectDone),
}

/// Result of passing on an effect of the engine.
#[derive(Debug)]
pub(super) enum Passed {
    /// Passed on to the store.
    On,
    /// Completed at once.
    Completed(EffectDone),
    /// A complete file is about to be installed.
    Whole {
        /// The effect.
        install: Ticket,
        /// The working file.
        file: FileName,
    },
}

/// Files of the engine below a layer: those it reads, and those it received.
#[derive(Debug)]
pub(super) struct Arrivals<K> {
    /// Bundles that the engine reads.
    pub(super) blocks: Blocks,
    steps: BTreeMap<Ticket, Step<K>>,
    /// Bundles on which the agent has not decided.
    coming: BTreeMap<TransferId, Coming<K>>,
    /// Bundles received while the agent had paused the neighbour.
    held: VecDeque<Coming<K>>,
    /// Longest bundle that is read from its file, in bytes.
    inline: u64,
    /// Names of the files of longer ones.
    names: HandoverNames,
    next_transfer: u64,
}

impl<K: Copy + Ord> Arrivals<K> {
    pub(super) fn new(inline: u64, directory: FileName, rng: &mut Rng) -> Self {
        Self {
            blocks: Blocks::default(),
            steps: BTreeMap::new(),
            coming: BTreeMap::new(),
            held: VecDeque::new(),
            inline,
            names: HandoverNames::new(directory, rng),
            next_transfer: 0,
        }
    }

    /// Name of a bundle to send: the same in all runs if it has an identity, otherwise a unique
    /// one.
    pub(super) fn name_of(&mut self, identity: Option<Identity>) -> String {
        let again = |Identity { number, .. }| format!("{OF_LAYERS}{number:016x}");
        identity.map_or_else(|| self.names.next(), again)
    }

    /// Passes an effect of the engine on to the store, unless it concerns the layer.
    pub(super) fn pass(&mut self, effect: Effect) -> Passed {
        if let Effect::Store(StoreEffect::Filestore {
            ticket,
            request: FilestoreRequest::Install { from, to },
        }) = &effect
            && to.area() == Area::Files
        {
            return Passed::Whole { install: *ticket, file: self.blocks.scope.file(from.clone()) };
        }
        let result = self.blocks.pass(effect);
        result.map_or(Passed::On, Passed::Completed)
    }

    /// Handles a bundle that is complete and synced in the engine's working file.
    pub(super) fn came(
        &mut self,
        link: LinkId,
        Arriving { session, len, .. }: Arriving<K>,
        install: Ticket,
        from: FileName,
    ) {
        let coming =
            |file| Coming { session, is_over: false, link, install, file, len, bytes: None };
        if len <= self.inline {
            let coming = coming(from.clone());
            let open = |ticket| StoreEffect::Open { ticket, name: from, mode: OpenMode::Read };
            self.step(Step::Open(coming), open);
            return;
        }
        let file = self.names.next_file();
        let coming = coming(file.clone());
        let request = FilestoreRequest::Install { from, to: file };
        self.step(Step::Name(coming), |ticket| StoreEffect::Filestore { ticket, request });
    }

    /// Handles the end of a file's session. A bundle not yet reported to the agent is dropped,
    /// since the engine no longer counts it.
    pub(super) fn over(&mut self, session: K) {
        for step in self.steps.values_mut() {
            if let Step::Name(coming) | Step::Open(coming) | Step::Read(coming, _) = step
                && coming.session == session
            {
                coming.is_over = true;
            }
        }
        while let Some(at) = self.held.iter().position(|coming| coming.session == session) {
            self.held.remove(at).into_iter().for_each(|coming| self.forget(coming));
        }
    }

    fn forget(&mut self, coming: Coming<K>) {
        self.blocks.delete(coming.file);
    }

    /// Whether undecided bundles of a neighbour are pending.
    pub(super) fn has_from(&self, link: LinkId) -> bool {
        let in_steps = self.steps.values().filter_map(|step| match step {
            Step::Name(coming) | Step::Open(coming) | Step::Read(coming, _) => Some(coming),
            Step::Remove(_) => None,
        });
        let mut all = in_steps.chain(self.coming.values()).chain(&self.held);
        all.any(|coming| coming.link == link)
    }

    /// Number of undecided bundles.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.steps.len() + self.coming.len() + self.held.len()
    }

    fn step(&mut self, step: Step<K>, effect: impl FnOnce(Ticket) -> StoreEffect) {
        let ticket = self.blocks.request(effect);
        self.steps.insert(ticket, step);
    }

    /// Handles a completion of the store; returns the completion for the engine, if any.
    pub(super) fn completed(
        &mut self,
        (ticket, result): EffectDone,
        neighbours: &mut Neighbours<K, PathId>,
    ) -> Option<EffectDone> {
        if let Some(step) = self.steps.remove(&ticket) {
            self.blocks.forget_ticket(ticket);
            return self.stepped(step, result, neighbours);
        }
        self.blocks.completed(ticket, result)
    }

    /// Handles the completion of a step.
    fn stepped(
        &mut self,
        step: Step<K>,
        result: EffectResult,
        neighbours: &mut Neighbours<K, PathId>,
    ) -> Option<EffectDone> {
        match (step, result) {
            (Step::Name(coming), Ok(_)) => self.report(coming, neighbours),
            (Step::Open(coming), Ok(Completion::Opened { file, len, .. })) => {
                if len != coming.len {
                    self.blocks.close(file);
                    return Some((coming.install, Err(EffectError::NotFound)));
                }
                let (offset, len) = (0, coming.len as usize);
                let read = |ticket| StoreEffect::Read { ticket, file, offset, len };
                self.step(Step::Read(coming, file), read);
            }
            (Step::Read(mut coming, file), result) => {
                self.blocks.close(file);
                match result {
                    Ok(Completion::Read(bytes)) if bytes.len() as u64 == coming.len => {
                        coming.bytes = Some(bytes);
                        self.report(coming, neighbours);
                    }
                    Ok(_) | Err(_) => return Some((coming.install, Err(EffectError::NotFound))),
                }
            }
            (Step::Name(coming) | Step::Open(coming), result) => {
                return Some((coming.install, result.and(Err(EffectError::NotFound))));
            }
            // A file that cannot be removed does no harm.
            (Step::Remove(word), _) => return Some(word),
        }
        None
    }

    /// Reports a bundle to the agent, or keeps it while the neighbour is paused.
    fn report(&mut self, coming: Coming<K>, neighbours: &mut Neighbours<K, PathId>) {
        let link = coming.link;
        if coming.is_over {
            self.forget(coming);
            return;
        }
        if neighbours.is_held(link) {
            self.held.push_back(coming);
            return;
        }
        let transfer = TransferId(self.next_transfer);
        self.next_transfer += 1;
        let events = &mut neighbours.events;
        events.push_back(Event::Begins { link, transfer, bytes: Some(coming.len) });
        let file = match coming.bytes.clone() {
            Some(bytes) => {
                events.push_back(Event::Piece { link, transfer, bytes });
                None
            }
            None => Some((coming.file.clone(), coming.len)),
        };
        events.push_back(Event::Whole { link, transfer, file });
        neighbours.statistics.received += 1;
        self.coming.insert(transfer, coming);
    }

    /// Resumes reporting a neighbour's bundles to the agent.
    pub(super) fn resume(&mut self, link: LinkId, neighbours: &mut Neighbours<K, PathId>) {
        neighbours.hold(link, false);
        for coming in std::mem::take(&mut self.held) {
            self.report(coming, neighbours);
        }
    }

    /// Handles the agent's decision on a bundle; returns the completion for the engine, if it is
    /// due at once.
    pub(super) fn decided(
        &mut self,
        transfer: TransferId,
        why: Option<Refusal>,
    ) -> Option<EffectDone> {
        let Coming { install, file, bytes, .. } = self.coming.remove(&transfer)?;
        let word = match why {
            Some(Refusal::NoResources | Refusal::Retransmit) => Err(EffectError::NoSpace),
            Some(Refusal::NotAcceptable) => Err(EffectError::NotAllowed),
            // A bundle that the agent already has need not come again.
            Some(Refusal::Completed) | None => Ok(Completion::Done),
        };
        if why.is_none() && bytes.is_none() {
            // The agent owns the file.
            return Some((install, word));
        }
        let request = FilestoreRequest::DenyFile(file);
        let remove = |ticket| StoreEffect::Filestore { ticket, request };
        self.step(Step::Remove((install, word)), remove);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::neighbours::Bounds;
    use super::*;

    #[test]
    fn sessions_that_end_before_the_rename_leave_nothing() {
        let link = LinkId(1);
        let most = Bounds { patience: Duration::ZERO, window: 1, bundle_max: 1000, strangers: 0 };
        let mut neighbours = Neighbours::new(most, [(link, PathId(1))].into_iter());
        let directory = FileName::spool("bp").unwrap();
        let mut arrivals = Arrivals::new(10, directory, &mut Rng::new(1, "arrivals"));
        let arriving = Arriving { session: 5, from: PathId(1), len: 100 };
        let working = FileName::spool("working").unwrap();
        arrivals.came(link, arriving, Ticket(9), working);
        let Some(Effect::Store(StoreEffect::Filestore { ticket, request })) =
            arrivals.blocks.poll_effect()
        else {
            panic!("it gets a name")
        };
        let FilestoreRequest::Install { to, .. } = request else { panic!("{request:?}") };
        arrivals.over(5);
        let result = arrivals.completed((ticket, Ok(Completion::Done)), &mut neighbours);
        assert_eq!((result, neighbours.events.len(), arrivals.waiting()), (None, 0, 0));
        let Some(Effect::Store(StoreEffect::Filestore { request, .. })) =
            arrivals.blocks.poll_effect()
        else {
            panic!("it goes")
        };
        assert_eq!(request, FilestoreRequest::DenyFile(to));
    }
}
