//! Bundles that an engine below a layer received as files. When the engine would give one its name, the agent is asked, and the
//! engine hears that it is done once the agent has the bundle: so its sender does not believe before that it is safe. A short
//! bundle is read from its file before, a long one stays in it.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use engine::{
    Area, Completion, Effect, EffectError, FileId, FileName, FilestoreRequest, OpenMode, Rng,
    StoreEffect, Ticket,
};

use super::blocks::Blocks;
use super::layer::{Event, LinkId, Refusal, TransferId};
use super::neighbours::Neighbours;

/// What the engine hears of an effect.
pub(super) type Answer = (Ticket, Result<Completion, EffectError>);

/// A bundle that came.
#[derive(Debug)]
struct Coming {
    link: LinkId,
    /// What the engine waits for.
    install: Ticket,
    file: FileName,
    len: u64,
    /// All of it, if it is short.
    octets: Option<Bytes>,
}

/// What the store does with a file that came.
#[derive(Debug)]
enum Step {
    /// It gives it a name of the layer's, for the engine may use that of its working file again.
    Name(Coming),
    /// It reads a short one.
    Open(Coming),
    Read(Coming, FileId),
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
    /// A file came whole, and would get this name.
    Whole {
        /// The effect.
        install: Ticket,
        /// The working file.
        from: FileName,
        /// The name.
        to: FileName,
    },
}

/// The files of an engine below a layer: those that it reads, and those that came.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Bundles that the engine reads.
    pub(super) blocks: Blocks,
    pub(super) effects: VecDeque<Effect>,
    steps: BTreeMap<Ticket, Step>,
    /// Bundles that the agent has not answered for.
    coming: BTreeMap<TransferId, Coming>,
    /// Bundles that came while the agent wanted nothing.
    held: VecDeque<Coming>,
    /// Octets of a bundle up to which it is read from its file.
    inline: u64,
    /// What names of this run begin with.
    run: u64,
    next_name: u64,
    next_transfer: u64,
}

impl Arrivals {
    pub(super) fn new(inline: u64, rng: &mut Rng) -> Self {
        Self {
            blocks: Blocks::default(),
            effects: VecDeque::new(),
            steps: BTreeMap::new(),
            coming: BTreeMap::new(),
            held: VecDeque::new(),
            inline,
            run: rng.next_u64(),
            next_name: 0,
            next_transfer: 0,
        }
    }

    /// A name that is used once.
    pub(super) fn name(&mut self) -> String {
        self.next_name += 1;
        format!("bundle-{:016x}-{}", self.run, self.next_name)
    }

    /// Passes an effect of the engine on to the store, unless the layer has to do with it.
    pub(super) fn pass(&mut self, effect: Effect) -> Passed {
        if let Effect::Store(StoreEffect::Filestore {
            ticket,
            request: FilestoreRequest::Install { from, to },
        }) = &effect
            && to.area() == Area::Files
        {
            return Passed::Whole { install: *ticket, from: from.clone(), to: to.clone() };
        }
        let Self { blocks, effects, .. } = self;
        let answer = blocks.pass(effect, &mut |effect| effects.push_back(effect));
        answer.map_or(Passed::On, Passed::Answered)
    }

    /// A bundle is whole and synced.
    pub(super) fn came(&mut self, link: LinkId, len: u64, install: Ticket, from: FileName) {
        let octets = None;
        if len <= self.inline {
            let coming = Coming { link, install, file: from.clone(), len, octets };
            let open = |ticket| StoreEffect::Open { ticket, name: from, mode: OpenMode::Read };
            self.step(Step::Open(coming), open);
            return;
        }
        let file = FileName::spool(&self.name()).expect("letters, digits and dashes are a name");
        let request = FilestoreRequest::Install { from, to: file.clone() };
        let coming = Coming { link, install, file, len, octets };
        self.step(Step::Name(coming), |ticket| StoreEffect::Filestore { ticket, request });
    }

    fn step(&mut self, step: Step, effect: impl FnOnce(Ticket) -> StoreEffect) {
        let ticket = self.blocks.nobody();
        self.steps.insert(ticket, step);
        self.effects.push_back(effect(ticket).into());
    }

    /// Takes an answer of the store; what the engine hears, if anything.
    pub(super) fn answered<K: Copy + Ord>(
        &mut self,
        (ticket, answer): Answer,
        neighbours: &mut Neighbours<K>,
    ) -> Option<Answer> {
        if let Some(step) = self.steps.remove(&ticket) {
            self.blocks.forget_ticket(ticket);
            return self.stepped(step, answer, neighbours);
        }
        let Self { blocks, effects, .. } = self;
        blocks.answered(ticket, answer, &mut |effect| effects.push_back(effect))
    }

    /// The store has done something with a file that came.
    fn stepped<K: Copy + Ord>(
        &mut self,
        step: Step,
        answer: Result<Completion, EffectError>,
        neighbours: &mut Neighbours<K>,
    ) -> Option<Answer> {
        match (step, answer) {
            (Step::Name(coming), Ok(_)) => self.hand_on(coming, neighbours),
            (Step::Open(coming), Ok(Completion::Opened { file, .. })) => {
                let (offset, len) = (0, coming.len as usize);
                let read = |ticket| StoreEffect::Read { ticket, file, offset, len };
                self.step(Step::Read(coming, file), read);
            }
            (Step::Read(mut coming, file), answer) => {
                self.effects.push_back(StoreEffect::Close { file }.into());
                match answer {
                    Ok(Completion::Read(octets)) if octets.len() as u64 == coming.len => {
                        coming.octets = Some(octets);
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
    fn hand_on<K: Copy + Ord>(&mut self, coming: Coming, neighbours: &mut Neighbours<K>) {
        let link = coming.link;
        if neighbours.get(link).is_some_and(|link| link.is_held) {
            self.held.push_back(coming);
            return;
        }
        let transfer = TransferId(self.next_transfer);
        self.next_transfer += 1;
        let events = &mut neighbours.events;
        events.push_back(Event::Begins { link, transfer, octets: Some(coming.len) });
        let file = match coming.octets.clone() {
            Some(octets) => {
                events.push_back(Event::Piece { link, transfer, octets });
                None
            }
            None => Some((coming.file.clone(), coming.len)),
        };
        events.push_back(Event::Whole { link, transfer, file });
        neighbours.statistics.received += 1;
        self.coming.insert(transfer, coming);
    }

    /// The agent wants to hear of a neighbour again.
    pub(super) fn resume<K: Copy + Ord>(&mut self, link: LinkId, neighbours: &mut Neighbours<K>) {
        neighbours.hold(link, false);
        for coming in std::mem::take(&mut self.held) {
            self.hand_on(coming, neighbours);
        }
    }

    /// The agent has decided on a bundle; what the engine hears, if it does at once.
    pub(super) fn decided(&mut self, transfer: TransferId, why: Option<Refusal>) -> Option<Answer> {
        let Coming { install, file, octets, .. } = self.coming.remove(&transfer)?;
        // What the agent has, or would not take the next time either, need not come again.
        let word = match why {
            Some(Refusal::NoResources | Refusal::Retransmit) => Err(EffectError::NoSpace),
            Some(Refusal::Completed | Refusal::NotAcceptable) | None => Ok(Completion::Done),
        };
        if why.is_none() && octets.is_none() {
            // The file is the agent's.
            return Some((install, word));
        }
        let request = FilestoreRequest::DenyFile(file);
        let remove = |ticket| StoreEffect::Filestore { ticket, request };
        self.step(Step::Remove((install, word)), remove);
        None
    }
}
