//! Bundles that an engine below a layer received as files. When the engine would give one its name, the agent is asked, and the
//! engine hears that it is done once the agent has the bundle: so its sender does not believe before that it is safe. A short
//! bundle is read from its file before, a long one stays in it.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use engine::{
    Area, Completion, Effect, EffectError, FileId, FileName, FilestoreRequest, OpenMode, PathId,
    Rng, StoreEffect, Ticket,
};

use super::blocks::Blocks;
use super::layer::{Event, LinkId, Refusal, TransferId};
use super::neighbours::Neighbours;

/// How the names of files begin that are handed to the agent.
pub(super) const OF_LAYERS: &str = "bundle-";

/// What the engine hears of an effect.
pub(super) type Answer = (Ticket, Result<Completion, EffectError>);

/// A file that is whole, and would get its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arriving<K> {
    /// The engine's session.
    pub session: K,
    /// From where it came.
    pub from: PathId,
    /// Its bytes.
    pub len: u64,
}

/// A bundle that came.
#[derive(Debug)]
struct Coming<K> {
    session: K,
    /// The session is over: nobody waits for a word, and nothing bounds how many there are.
    is_over: bool,
    link: LinkId,
    /// What the engine waits for.
    install: Ticket,
    file: FileName,
    len: u64,
    /// All of it, if it is short.
    bytes: Option<Bytes>,
}

/// What the store does with a file that came.
#[derive(Debug)]
enum Step<K> {
    /// It gives it a name of the layer's, for the engine may use that of its working file again.
    Name(Coming<K>),
    /// It reads a short one.
    Open(Coming<K>),
    Read(Coming<K>, FileId),
    /// It forgets one that was read, or is not wanted; then the engine hears this.
    Remove(Answer),
}

/// What becomes of an effect of the engine.
#[derive(Debug)]
pub(super) enum Passed {
    /// The store has it.
    On,
    /// It is answered.
    Answered(Answer),
    /// A file came whole, and would get its name.
    Whole {
        /// The effect.
        install: Ticket,
        /// The working file.
        file: FileName,
    },
}

/// The files of an engine below a layer: those that it reads, and those that came.
#[derive(Debug)]
pub(super) struct Arrivals<K> {
    /// Bundles that the engine reads.
    pub(super) blocks: Blocks,
    pub(super) effects: VecDeque<Effect>,
    steps: BTreeMap<Ticket, Step<K>>,
    /// Bundles that the agent has not answered for.
    coming: BTreeMap<TransferId, Coming<K>>,
    /// Bundles that came while the agent wanted nothing.
    held: VecDeque<Coming<K>>,
    /// Bytes of a bundle up to which it is read from its file.
    inline: u64,
    /// The agent's directory, where longer ones are handed to it: what it does not know there after a crash, it removes.
    directory: FileName,
    /// What names of this run begin with.
    run: u64,
    next_name: u64,
    next_transfer: u64,
}

impl<K: Copy + Ord> Arrivals<K> {
    pub(super) fn new(inline: u64, directory: FileName, rng: &mut Rng) -> Self {
        Self {
            blocks: Blocks::default(),
            effects: VecDeque::new(),
            steps: BTreeMap::new(),
            coming: BTreeMap::new(),
            held: VecDeque::new(),
            inline,
            directory,
            run: rng.next_u64(),
            next_name: 0,
            next_transfer: 0,
        }
    }

    /// A name that is used once.
    pub(super) fn name(&mut self) -> String {
        self.next_name += 1;
        format!("{OF_LAYERS}{:016x}-{}", self.run, self.next_name)
    }

    /// Passes an effect of the engine on to the store, unless the layer has to do with it.
    pub(super) fn pass(&mut self, effect: Effect) -> Passed {
        if let Effect::Store(StoreEffect::Filestore {
            ticket,
            request: FilestoreRequest::Install { from, to },
        }) = &effect
            && to.area() == Area::Files
        {
            return Passed::Whole { install: *ticket, file: from.clone() };
        }
        let answer = self.blocks.pass(effect, &mut self.effects);
        answer.map_or(Passed::On, Passed::Answered)
    }

    /// A bundle is whole and synced, in the engine's working file.
    pub(super) fn came(
        &mut self,
        link: LinkId,
        Arriving { session, len, .. }: Arriving<K>,
        (install, from): (Ticket, FileName),
    ) {
        let coming =
            |file| Coming { session, is_over: false, link, install, file, len, bytes: None };
        if len <= self.inline {
            let coming = coming(from.clone());
            let open = |ticket| StoreEffect::Open { ticket, name: from, mode: OpenMode::Read };
            self.step(Step::Open(coming), open);
            return;
        }
        let name = self.name();
        let name = format!("{}/{name}", self.directory.path());
        let file =
            FileName::spool(&name).expect("a directory's name with letters behind it is a name");
        let coming = coming(file.clone());
        let request = FilestoreRequest::Install { from, to: file };
        self.step(Step::Name(coming), |ticket| StoreEffect::Filestore { ticket, request });
    }

    /// The session of a file is over. A bundle of which the agent has not heard is forgotten, for the engine does not count it any
    /// more.
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
        let ticket = self.blocks.nobody();
        let request = FilestoreRequest::DenyFile(coming.file);
        self.effects.push_back(StoreEffect::Filestore { ticket, request }.into());
    }

    /// Whether there are bundles from a neighbour that are not answered for.
    pub(super) fn has_from(&self, link: LinkId) -> bool {
        let in_steps = self.steps.values().filter_map(|step| match step {
            Step::Name(coming) | Step::Open(coming) | Step::Read(coming, _) => Some(coming),
            Step::Remove(_) => None,
        });
        let mut all = in_steps.chain(self.coming.values()).chain(&self.held);
        all.any(|coming| coming.link == link)
    }

    /// Bytes of memory held on account of peers.
    pub(super) fn memory(&self) -> usize {
        let bytes = self.coming.values().chain(&self.held).filter_map(|it| it.bytes.as_ref());
        bytes.map(Bytes::len).sum::<usize>()
            + self.steps.len() * size_of::<(Ticket, Step<K>)>()
            + self.coming.len() * size_of::<(TransferId, Coming<K>)>()
            + self.held.len() * size_of::<Coming<K>>()
    }

    fn step(&mut self, step: Step<K>, effect: impl FnOnce(Ticket) -> StoreEffect) {
        let ticket = self.blocks.nobody();
        self.steps.insert(ticket, step);
        self.effects.push_back(effect(ticket).into());
    }

    /// Takes an answer of the store; what the engine hears, if anything.
    pub(super) fn answered(
        &mut self,
        (ticket, answer): Answer,
        neighbours: &mut Neighbours<K, PathId>,
    ) -> Option<Answer> {
        if let Some(step) = self.steps.remove(&ticket) {
            self.blocks.forget_ticket(ticket);
            return self.stepped(step, answer, neighbours);
        }
        self.blocks.answered(ticket, answer, &mut self.effects)
    }

    /// The store has done something with a file that came.
    fn stepped(
        &mut self,
        step: Step<K>,
        answer: Result<Completion, EffectError>,
        neighbours: &mut Neighbours<K, PathId>,
    ) -> Option<Answer> {
        match (step, answer) {
            (Step::Name(coming), Ok(_)) => self.hand_on(coming, neighbours),
            (Step::Open(coming), Ok(Completion::Opened { file, len, .. })) => {
                if len != coming.len {
                    self.effects.push_back(StoreEffect::Close { file }.into());
                    return Some((coming.install, Err(EffectError::NotFound)));
                }
                let (offset, len) = (0, coming.len as usize);
                let read = |ticket| StoreEffect::Read { ticket, file, offset, len };
                self.step(Step::Read(coming, file), read);
            }
            (Step::Read(mut coming, file), answer) => {
                self.effects.push_back(StoreEffect::Close { file }.into());
                match answer {
                    Ok(Completion::Read(bytes)) if bytes.len() as u64 == coming.len => {
                        coming.bytes = Some(bytes);
                        self.hand_on(coming, neighbours);
                    }
                    Ok(_) | Err(_) => return Some((coming.install, Err(EffectError::NotFound))),
                }
            }
            (Step::Name(coming) | Step::Open(coming), answer) => {
                return Some((coming.install, answer.and(Err(EffectError::NotFound))));
            }
            // What cannot be removed is in nobody's way.
            (Step::Remove(word), _) => return Some(word),
        }
        None
    }

    /// Asks the agent about a bundle, or waits until it wants to hear of one.
    fn hand_on(&mut self, coming: Coming<K>, neighbours: &mut Neighbours<K, PathId>) {
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

    /// The agent wants to hear of a neighbour again.
    pub(super) fn resume(&mut self, link: LinkId, neighbours: &mut Neighbours<K, PathId>) {
        neighbours.hold(link, false);
        for coming in std::mem::take(&mut self.held) {
            self.hand_on(coming, neighbours);
        }
    }

    /// The agent has decided on a bundle; what the engine hears, if it does at once.
    pub(super) fn decided(&mut self, transfer: TransferId, why: Option<Refusal>) -> Option<Answer> {
        let Coming { install, file, bytes, .. } = self.coming.remove(&transfer)?;
        let word = match why {
            Some(Refusal::NoResources | Refusal::Retransmit) => Err(EffectError::NoSpace),
            Some(Refusal::NotAcceptable) => Err(EffectError::NotAllowed),
            // What the agent has need not come again.
            Some(Refusal::Completed) | None => Ok(Completion::Done),
        };
        if why.is_none() && bytes.is_none() {
            // The file is the agent's.
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
    fn nothing_is_kept_of_what_is_over_before_it_has_its_name() {
        let link = LinkId(1);
        let most = Bounds { patience: Duration::ZERO, window: 1, bundle_max: 1000, strangers: 0 };
        let mut neighbours = Neighbours::new(most, [(link, PathId(1))].into_iter());
        let directory = FileName::spool("bp").unwrap();
        let mut arrivals = Arrivals::new(10, directory, &mut Rng::new(1, "arrivals"));
        let arriving = Arriving { session: 5, from: PathId(1), len: 100 };
        let working = FileName::spool("working").unwrap();
        arrivals.came(link, arriving, (Ticket(9), working));
        let Some(Effect::Store(StoreEffect::Filestore { ticket, request })) =
            arrivals.effects.pop_front()
        else {
            panic!("it gets a name")
        };
        let FilestoreRequest::Install { to, .. } = request else { panic!("{request:?}") };
        arrivals.over(5);
        let answer = arrivals.answered((ticket, Ok(Completion::Done)), &mut neighbours);
        assert_eq!((answer, neighbours.events.len(), arrivals.memory()), (None, 0, 0));
        let Some(Effect::Store(StoreEffect::Filestore { request, .. })) =
            arrivals.effects.pop_front()
        else {
            panic!("it goes")
        };
        assert_eq!(request, FilestoreRequest::DenyFile(to));
    }
}
