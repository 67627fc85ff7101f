//! Coded objects: blocks as long as the object, and parity until the receivers have enough.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use engine::{StoreEffect, Time, Work};
use sha2::{Digest as _, Sha256};

use super::carousel::Rounds;
use super::info::InfoSchedule;
use super::parity::Windows;
use super::runs::Runs;
use super::{Content, Core, Job, Outgoing, Output, Shape, Task};
use crate::bits::Bits;
use crate::digest::{BlockDigest, DIGEST_LEN, DIGESTS_MAX, Digest, digest_of, first_bytes};
use crate::endgame::{Ending, Observed, Terms};
use crate::jobs::{Encode, Span};
use crate::losses::Loss;
use crate::message::{Flags, NodeId};

/// Segments before the end of a block at which its parity is prepared.
const LEAD: u16 = 256;

/// Minimum number of parity segments computed at once, and the memory for them.
const BATCH_LEAST: u16 = 64;
const BATCH_BYTES: usize = 32 << 20;

/// Size of an object up to which its first NORM_INFO has its digest.
const SHORT: u64 = 256 << 10;

/// Round trips before the end in which receivers may not get another round of repairs.
const NEAR: f64 = 1.5;

/// Number of the newest blocks that each report affects.
const NEWEST: usize = 16;

/// Maximum number of blocks of an object that a carousel repeats.
pub(super) const BLOCKS_MAX: u32 = 4096;

/// Bytes of the states of an object's blocks.
const BYTES_MAX: usize = 16 << 20;

/// Memory of the states, and what is kept of those dropped.
#[derive(Debug)]
pub(super) struct Kept {
    /// Bytes of the states.
    pub(super) bytes: usize,
    pub(super) most: usize,
    /// Block at which the search for a state to drop continues.
    pub(super) next: u32,
    /// Next rows of parity of blocks without state, by block.
    pub(super) rows: Vec<u16>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { bytes: 0, most: BYTES_MAX, next: 0, rows: Vec::new() }
    }
}

/// State of a coded object at its sender.
#[derive(Debug, Default)]
pub(super) struct Coded {
    pub(super) blocks: BTreeMap<u32, CodedBlock>,
    pub(super) kept: Kept,
    /// Blocks that need more segments than were sent.
    pub(super) short: BTreeSet<u32>,
    /// Blocks of which source segments were queued to be sent again.
    pub(super) repeating: BTreeSet<u32>,
    /// All segments sent.
    pub(super) sent: Runs,
    total: u64,
    pub(super) receivers: BTreeMap<NodeId, Loss>,
    /// Loss to a receiver that was replaced.
    pub(super) former: Option<Loss>,
    /// Segments that a receiver lacks of blocks, as its NACK names them.
    pub(super) lacking: Vec<(u32, u32)>,
    /// Segments that a receiver names in its NACK, of blocks without further parity.
    pub(super) named: Vec<(u32, Bits)>,
    /// Segments sent again: numbers of their messages, blocks and symbols.
    pub(super) repeats: VecDeque<(u64, u32, u16)>,
    info: InfoSchedule,
    pub(super) rounds: Rounds,
    pub(super) digests: Digests,
    pub(super) windows: Windows,
    /// Whether the object will have long blocks.
    pub(super) is_wanted: bool,
    /// Whether no receiver can report.
    pub(super) is_one_way: bool,
    /// Copies of NORM_INFO of which such a receiver almost certainly gets one.
    pub(super) info_copies: u32,
    /// Segments of later objects, and number of objects that end in the same round trip.
    behind: u64,
    rivals: u32,
}

/// Digests of the blocks whose source segments were sent.
#[derive(Debug, Default)]
pub(super) struct Digests {
    /// Digest of the current block so far.
    pub(super) current: Sha256,
    of: Vec<Digest>,
    /// Blocks whose digests receivers requested.
    wanted: Vec<u32>,
    /// First block whose digest goes out next in a round of a carousel.
    turn: u32,
}

/// Block of which something was sent.
#[derive(Debug, Default)]
pub(super) struct CodedBlock {
    /// Segments sent: source, then parity, then source again. Those that receivers had before
    /// count.
    pub(super) sent: u64,
    /// Next row of parity to be sent for the first time.
    pub(super) next_row: u16,
    /// Source segments queued to be sent again.
    pub(super) queued: u32,
    /// Next segment to be sent again, after all were sent.
    pub(super) again: u32,
    /// Segments that receivers request, after all parity was sent.
    pub(super) named: Bits,
    /// Whether the segments sent last were all named.
    pub(super) is_named: bool,
    /// Number of segments to have been sent.
    pub(super) goal: u64,
    pub(super) runs: Runs,
    pub(super) known: BTreeMap<NodeId, Known>,
}

/// Report of a receiver on a block: it had `have` of the first `of` segments sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) of: u64,
    pub(super) have: u32,
}

/// Outcome of an attempt to send a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Sent,
    /// The message must wait for the next batch.
    Full,
    /// The segment is being computed.
    Waits,
    /// Enough was sent.
    Enough,
}

impl Coded {
    /// Notes a segment sent in the message with this number. Returns whether NORM_INFO is due.
    pub(super) fn on_sent(&mut self, block: u32, number: u64, at: Time) -> bool {
        self.total += 1;
        let is_one_way = self.is_one_way;
        if !is_one_way {
            self.sent.sent(number, at);
        }
        self.change(block, |state| {
            state.sent += 1;
            // Without reports, nobody names messages.
            if !is_one_way {
                state.runs.sent(number, at);
            }
        });
        self.info.take_due(self.total)
    }

    /// Changes the state of a block.
    pub(super) fn change(&mut self, block: u32, change: impl FnOnce(&mut CodedBlock)) {
        let before = self.blocks.get(&block).map_or(0, CodedBlock::memory);
        let state = self.blocks.entry(block).or_default();
        change(state);
        self.kept.bytes = self.kept.bytes + state.memory() - before;
        if state.is_short() {
            self.short.insert(block)
        } else {
            self.short.remove(&block)
        };
    }

    /// Schedules copies of NORM_INFO behind the source segments of a block: in the segments of
    /// later blocks, and regularly in the parity of the last one.
    fn source_ends(&mut self, block: u32, is_last: bool) {
        self.info = InfoSchedule::behind(self.total, is_last);
        let whole = self.digests.current.finalize_reset();
        if self.digests.of.len() == block as usize {
            self.digests.of.push(first_bytes(&whole));
        }
    }

    /// Digests of blocks that fit in `room` bytes: those of requested blocks, and of the newest.
    pub(super) fn digests(&self, room: usize) -> Vec<BlockDigest> {
        let wanted = &self.digests.wanted;
        let count = self.digests.of.len() as u32;
        let (turn, is_round) = (self.digests.turn, self.rounds.count > 0);
        let others = (0..count)
            .map(|at| if is_round { (turn % count + at) % count } else { count - 1 - at });
        let others: Vec<_> =
            others.filter(|block| !wanted.contains(block)).take(DIGESTS_MAX).collect();
        let most = (room / DIGEST_LEN).min(DIGESTS_MAX);
        let blocks = wanted.iter().copied().chain(others).take(most);
        let of = |block: u32| {
            let digest = *self.digests.of.get(block as usize)?;
            Some(BlockDigest { block: (block & 0xffff) as u16, digest })
        };
        blocks.filter_map(of).collect()
    }

    /// Notes that NORM_INFO with `count` digests was sent.
    pub(super) fn on_digests_sent(&mut self, count: usize) {
        let wanted = &mut self.digests.wanted;
        let requested = count.min(wanted.len());
        wanted.drain(..requested);
        self.digests.turn = self.digests.turn.wrapping_add((count - requested) as u32);
    }

    /// Schedules this number of copies of NORM_INFO in the segments of a round.
    pub(super) fn info_in_round(&mut self, copies: u32, gap: u64) {
        self.info = InfoSchedule::evenly(self.total, gap, copies);
    }

    /// Leaves all blocks at what was sent.
    pub(super) fn stop_all(&mut self) {
        while let Some(block) = self.short.first().copied() {
            self.change(block, |state| state.goal = state.sent_soon());
        }
    }

    /// Loss and bursts to expect: the worst of all receivers'.
    fn observed(&self, assumed: f64) -> Observed {
        let of = |loss: &Loss| (loss.expected(assumed), loss.spread());
        let worst = self.receivers.values().map(of);
        let worst = worst.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)));
        let (loss, spread) = worst.unwrap_or((assumed, 1.0));
        Observed { loss, spread, is_reported: !self.receivers.is_empty() }
    }
}

impl CodedBlock {
    /// Segments that were sent, or are queued.
    pub(super) fn sent_soon(&self) -> u64 {
        self.sent + u64::from(self.queued)
    }

    pub(super) fn is_short(&self) -> bool {
        self.sent_soon() < self.goal
    }
}

impl Outgoing {
    /// Notes that the object will have long blocks. Its NORM_DATA then leaves out what NORM_INFO
    /// says. Without reports, `info_copies` is the number of copies of NORM_INFO that are needed.
    pub(crate) fn set_coded(&mut self, info_copies: Option<u32>) {
        (self.coded.is_wanted, self.coded.is_one_way) = (true, info_copies.is_some());
        self.coded.info_copies = info_copies.unwrap_or(0);
    }

    /// Notes the segments of later objects, and the number of objects that end in the same round
    /// trip.
    pub(crate) fn set_rivals(&mut self, behind: u64, rivals: u32) {
        (self.coded.behind, self.coded.rivals) = (behind, rivals);
    }

    /// Whether the object has long blocks.
    pub(crate) fn is_coded(&self) -> bool {
        self.shape.as_ref().is_some_and(|shape| shape.coding.is_long())
    }

    /// Whether the object has long blocks, or will have them once its file is open.
    pub(crate) fn becomes_coded(&self) -> bool {
        self.is_coded() || self.coded.is_wanted && self.shape.is_none()
    }

    /// Whether blocks of a coded object need more segments than were sent, except the current one.
    pub(super) fn is_coded_short(&self) -> bool {
        self.first_short().is_some()
    }

    /// Notes that a source segment was sent.
    pub(super) fn on_source_sent(&mut self, number: u64, at: Time, shape: &Shape) {
        if self.coded.total == 0 && self.coded.is_one_way {
            self.coded.info = InfoSchedule::at_first(self.coded.info_copies, shape.symbol_len);
        }
        self.info_turn.is_due |= self.coded.on_sent(self.at.block, number, at);
        self.bound_states(self.at.block);
        self.source_ends(shape);
    }

    /// Announces the digest of a block with its last source segment.
    pub(super) fn source_ends(&mut self, shape: &Shape) {
        let block = self.at.block;
        if self.at.symbol + 1 >= shape.partition.block_len(block) {
            self.coded.source_ends(block, block + 1 >= shape.partition.blocks());
            self.resume.pass(block);
            self.info_turn.is_due = true;
        }
    }

    /// Prepares the parity of the current block if its source segments end soon.
    pub(super) fn prepare_parity(&mut self, out: &mut Output<'_, '_>, shape: &Shape) {
        let block = self.at.block;
        let block_len = shape.partition.block_len(block);
        let at = self.at.symbol;
        // Receivers have all of a block without state.
        let is_due = at == block_len.saturating_sub(LEAD).max(1);
        if !is_due || !self.coded.blocks.contains_key(&block) {
            return;
        }
        let goal = self.goal(block, &out.transmission.terms, shape);
        if goal > u64::from(block_len) {
            let more = goal - u64::from(block_len);
            let row = self.coded.blocks.get(&block).map_or(0, |state| state.next_row);
            self.compute(out.core, shape, block, row, more);
        }
    }

    /// Number of segments of a block to have been sent.
    pub(super) fn goal(&self, block: u32, terms: &Terms, shape: &Shape) -> u64 {
        let partition = &shape.partition;
        let block_len = u32::from(partition.block_len(block));
        let segments = partition.segments();
        let (at, symbol) = (self.at.block.min(partition.blocks()), u64::from(self.at.symbol));
        let gone = if at < partition.blocks() {
            partition.first_segment(at) + symbol.min(partition.block_len(at).into())
        } else {
            segments
        };
        let left = segments.saturating_sub(gone).saturating_add(self.coded.behind) as f64;
        let window = NEAR * terms.round_trip / terms.interval.max(1e-9);
        let blocks = (window / f64::from(partition.block_len(0).max(1))).ceil();
        let blocks = (blocks as u32).clamp(1, partition.blocks());
        if let Some(confidence) = terms.confidence {
            let all = partition.blocks();
            let rounds = self.coded.rounds.count.saturating_add(1);
            let round = terms.unheard(confidence, block_len, all) + shape.coding.surplus();
            // Each copy of NORM_INFO in parity follows a segment of it.
            let round = round.max(block_len + self.coded.info_copies);
            return u64::from(round).saturating_mul(rounds);
        }
        let observed = self.coded.observed(terms.loss);
        let is_near = left <= window;
        let state = self.coded.blocks.get(&block);
        let known = state.map(|state| &state.known).filter(|known| !known.is_empty());
        // Receivers that have not reported may lack more.
        let reported = known.map_or(0, |known| known.len() as u32);
        let receivers = if reported >= terms.receivers { 1 } else { terms.receivers };
        let blocks = blocks.max(self.coded.rivals);
        let ending = Ending { segments: segments as f64, blocks, receivers };
        let Some(known) = known else {
            return if is_near {
                terms.further(ending, block_len, observed).into()
            } else {
                block_len.into()
            };
        };
        let parity = u32::from(shape.coding.parity);
        let is_named = state.is_some_and(|state| state.is_named);
        let of = |(node, known): (&NodeId, &Known)| {
            let lacking = block_len.saturating_sub(known.have);
            let loss = self.coded.receivers.get(node);
            let observed = loss.map_or(observed, |loss| Observed {
                loss: loss.expected(terms.loss),
                spread: loss.spread(),
                is_reported: true,
            });
            let observed = if is_named {
                observed
            } else {
                observed.once_repeated(block_len, parity, known.of, lacking)
            };
            let likely = known.of as f64 + Terms::likely(lacking, observed);
            (lacking > 0).then_some((likely, known.of, lacking, observed))
        };
        // With a thousand receivers, the exact number for each would take too long.
        let worst = known.iter().filter_map(of).max_by(|one, other| one.0.total_cmp(&other.0));
        let Some((_, sent, lacking, observed)) = worst else { return 0 };
        let more = if is_near {
            terms.further(ending, lacking, observed)
        } else {
            Terms::meanwhile(lacking, observed)
        };
        sent + u64::from(more)
    }

    /// Computes the goal of the current block, once.
    pub(super) fn judge_block(&mut self, block: u32, terms: &Terms, shape: &Shape) {
        if self.coded.blocks.get(&block).is_some_and(|state| state.goal == 0) {
            let goal = self.goal(block, terms, shape);
            self.coded.change(block, |state| state.goal = goal.max(1));
            let parity = goal.saturating_sub(shape.partition.block_len(block).into());
            if self.coded.is_one_way {
                let is_last = block + 1 >= shape.partition.blocks();
                self.coded.info.spread(self.coded.total, parity, self.coded.info_copies, is_last);
            }
        }
    }

    /// Computes the goals of the newest blocks whose source segments were sent.
    pub(crate) fn judge(&mut self, terms: &Terms) {
        self.judge_with(terms, []);
    }

    /// Computes the goals of the named and the newest blocks whose source segments were sent. Work
    /// for each report or request must not grow with the object.
    pub(super) fn judge_with(&mut self, terms: &Terms, named: impl IntoIterator<Item = u32>) {
        let Some(shape) = self.shape.take() else { return };
        let newest = self.coded.blocks.keys().rev().take(NEWEST).copied();
        let blocks: BTreeSet<u32> = newest.chain(named).collect();
        for block in blocks {
            let block_len = u64::from(shape.partition.block_len(block));
            let is_due = self.coded.blocks.get(&block).is_some_and(|state| {
                state.sent >= block_len && (block == self.at.block || !state.known.is_empty())
            });
            if is_due {
                let goal = self.goal(block, terms, &shape);
                self.coded.change(block, |state| state.goal = goal);
            }
        }
        self.shape = Some(shape);
    }

    /// Sends the next segment of a block after its source segments, if more are needed.
    pub(super) fn emit_coded(
        &mut self,
        out: &mut Output<'_, '_>,
        shape: &Shape,
        block: u32,
        flags: Flags,
    ) -> Step {
        let block_len = shape.partition.block_len(block);
        let Some(state) = self.coded.blocks.get(&block) else { return Step::Enough };
        if !state.is_short() {
            return Step::Enough;
        }
        let parity = shape.coding.parity;
        if state.queued > 0 && state.next_row < parity {
            return Step::Waits;
        }
        let Some(row) = state.row(block_len, parity) else {
            return self.send_again(out.core, shape, block);
        };
        if self.coded.windows.get(block, row).is_none() {
            let more = state.goal - state.sent_soon();
            self.compute(out.core, shape, block, row, more);
        }
        let Some(payload) = self.coded.windows.get(block, row) else { return Step::Waits };
        let (number, at) = (out.transmission.sequence, out.departure());
        if !shape.push(out, flags, shape.id(block, block_len + row), payload) {
            return Step::Full;
        }
        if flags.contains(Flags::REPAIR) {
            out.core.stats.parity_repairs += 1;
        } else {
            out.core.stats.auto_parity += 1;
        }
        self.on_parity_sent(block, block_len + row, number, shape);
        self.info_turn.is_due |= self.coded.on_sent(block, number, at);
        self.bound_states(block);
        Step::Sent
    }

    /// Computes `more` parity segments of a block from `row` on, or reads the block for it.
    fn compute(&mut self, core: &mut Core, shape: &Shape, block: u32, row: u16, more: u64) {
        if self.coded.windows.is_reading() || self.coded.windows.get(block, row).is_some() {
            return;
        }
        // A quarter more: the next report may ask for it.
        let more =
            u16::try_from(more.saturating_add(more / 4)).unwrap_or(u16::MAX).max(BATCH_LEAST);
        let most = BATCH_BYTES / usize::from(shape.symbol_len.max(1));
        let more = more.min(u16::try_from(most).unwrap_or(u16::MAX));
        let rows = row..row.saturating_add(more).min(shape.coding.parity);
        if rows.is_empty() {
            return;
        }
        let (offset, end) = shape.span(block);
        let block_len = shape.block_len(block);
        if let Content::Data(data) = &self.content {
            let data = &data[offset as usize..end as usize];
            let mut wanted = Bits::new();
            wanted.insert_all(rows.start, rows.end - 1);
            let work = &mut core.long;
            let made = shape.coding.rows(work, shape.symbol_len, block_len, data, &wanted);
            let made = made.into_iter().map(|(_, parity)| parity);
            self.coded.windows.insert(block, rows.start, made);
        } else if let Some(source) = &self.source
            && let Some(code) = shape.coding.long_code(block_len, shape.symbol_len.into())
        {
            let span = Span { offset, len: end - offset };
            let work = Work::new(Encode { code, span, rows: rows.clone() });
            let ticket = core.shared.ticket(self.handle, Job::Own(Task::Encode { block }));
            let work = StoreEffect::Work { ticket, file: source.file, work };
            core.shared.effects.push_back(work.into());
            self.coded.windows.reads(block, rows);
        }
    }

    /// Notes parity of a block that was computed.
    pub(super) fn encoded(&mut self, block: u32, bytes: &Bytes) {
        let Some(shape) = &self.shape else { return };
        let Some(rows) = self.coded.windows.read(block) else { return };
        let len = usize::from(shape.symbol_len);
        let segments = (0..rows.len()).map(|row| bytes.slice(row * len..(row + 1) * len));
        if bytes.len() == rows.len() * len {
            self.coded.windows.insert(block, rows.start, segments);
        }
    }

    /// Sends the segments that blocks before the current one need. Returns the last step.
    pub(super) fn emit_coded_repairs(&mut self, out: &mut Output<'_, '_>, shape: &Shape) -> Step {
        let mut last = Step::Enough;
        self.check_round(out.departure());
        while let Some(block) = self.first_short() {
            last = self.emit_coded(out, shape, block, Flags::REPAIR);
            match last {
                Step::Sent => {}
                Step::Full | Step::Waits => return last,
                // Nothing more can be sent.
                Step::Enough => {
                    self.coded.change(block, |state| {
                        state.goal = state.goal.min(state.sent_soon());
                    });
                }
            }
        }
        last
    }

    fn first_short(&self) -> Option<u32> {
        self.coded.short.first().copied().filter(|block| *block < self.at.block)
    }

    /// Computes the digest of a short object before its first NORM_INFO, so that all copies have
    /// it. Returns `false` while the object is being read.
    pub(super) fn digest_first(&mut self, shape: &Shape) -> bool {
        let is_short = self.size <= SHORT && shape.partition.blocks() == 1;
        if self.has_begun || !is_short || !shape.coding.is_long() {
            return true;
        }
        let next = self.source.as_ref().and_then(|source| source.next_new(self.size as usize));
        let Some(next) = next else { return false };
        if next.data.len() as u64 == self.size && self.coded.digests.of.is_empty() {
            self.coded.digests.of.push(digest_of(next.data));
        }
        true
    }

    /// Notes that a receiver requested NORM_INFO for the digest of a block.
    pub(crate) fn want_digest(&mut self, block: u32) {
        let wanted = &mut self.coded.digests.wanted;
        if wanted.len() < DIGESTS_MAX && !wanted.contains(&block) {
            wanted.push(block);
        }
    }
}

#[cfg(test)]
mod tests;
