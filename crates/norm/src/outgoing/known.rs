//! Segments of coded objects that receivers have, as they report and request them.

use std::time::Duration;

use engine::Time;

use super::coded::{CodedBlock, Known};
use super::{Outgoing, Transmission};
use crate::losses::Loss;
use crate::message::NodeId;
use crate::report::Report;

/// Maximum number of blocks of which one NACK requests parts: others are requested again.
const LACKING_MAX: usize = 4096;

/// Maximum number of receivers whose reports on a block are kept.
const KNOWN_MAX: usize = 4096;

impl Outgoing {
    /// Processes a receiver's report.
    pub(crate) fn on_report(
        &mut self,
        now: Time,
        node: NodeId,
        report: &Report,
        transmission: &Transmission,
        most: usize,
        is_single: bool,
    ) {
        let Some(shape) = self.shape.as_ref() else { return };
        let block = report.of.block;
        if block >= shape.partition.blocks() {
            return;
        }
        let block_len = shape.partition.block_len(block);
        let through = self.message(now, report.newest, transmission);
        if !self.admits(node, report, through, most, is_single) {
            return;
        }
        let sent = clamped(self.coded.sent.through(through));
        let loss = self.coded.receivers.entry(node).or_default();
        loss.reported(sent, report.of.arrived, report.runs);
        self.end_query_of_fresh(&report.of);
        let have = block_len.saturating_sub(report.of.missing);
        self.restore_state(block, block_len);
        self.knows(block, node, through, have.into());
        self.judge_with(&transmission.terms, [block]);
        self.bound_states(block);
    }

    /// Whether there is room for the reports of a receiver among `most`. On a path to a single one,
    /// another receiver than before has restarted.
    fn admits(
        &mut self,
        node: NodeId,
        report: &Report,
        through: u64,
        most: usize,
        is_single: bool,
    ) -> bool {
        let coded = &mut self.coded;
        if coded.receivers.contains_key(&node) || coded.receivers.len() >= most {
            return coded.receivers.contains_key(&node);
        }
        let former = coded.receivers.values().next_back().cloned().or_else(|| coded.former.take());
        if let Some(mut loss) = former.filter(|_| is_single) {
            loss.joins(clamped(coded.sent.through(through)), report.of.arrived, report.runs);
            coded.receivers.insert(node, loss);
        }
        true
    }

    /// Forgets a receiver that was replaced.
    pub(crate) fn forget_receiver(&mut self, node: NodeId) {
        let former = self.coded.receivers.remove(&node);
        self.coded.former = former.or(self.coded.former.take());
        self.coded.blocks.values_mut().for_each(|block| _ = block.known.remove(&node));
        self.coded.kept.bytes = self.coded.blocks.values().map(CodedBlock::memory).sum();
    }

    /// Number of the message that a receiver names as its newest.
    pub(super) fn message(&self, now: Time, wire: u16, transmission: &Transmission) -> u64 {
        let terms = &transmission.terms;
        let interval = Duration::from_secs_f64(terms.interval);
        let newest = transmission.sequence.saturating_sub(1);
        self.coded.sent.unwrap(wire, newest, now, transmission.round_trip(), interval)
    }

    /// Notes that a receiver had `have` segments of a block, of those sent up to a message.
    pub(super) fn knows(&mut self, block: u32, node: NodeId, through: u64, have: u32) {
        let is_known =
            |state: &CodedBlock| state.known.contains_key(&node) || state.known.len() < KNOWN_MAX;
        if !self.coded.blocks.get(&block).is_some_and(is_known) {
            return;
        }
        self.coded.change(block, |state| {
            let of = state.runs.through(through);
            let known = Known { of, have };
            let kept = state.known.entry(node).or_insert(known);
            if of >= kept.of {
                *kept = known;
            }
        });
    }

    /// Notes that a receiver lacks segments of a block; all of them if `missing` is `None`.
    pub(super) fn note_lacking(&mut self, block: u32, missing: Option<u32>) -> bool {
        let Some(shape) = &self.shape else { return false };
        if block >= shape.partition.blocks() || self.coded.lacking.len() >= LACKING_MAX {
            return false;
        }
        let block_len = shape.partition.block_len(block);
        self.restore_state(block, block_len);
        if !self.coded.blocks.contains_key(&block) {
            return false;
        }
        let block_len = u32::from(block_len);
        self.coded.lacking.push((block, missing.unwrap_or(block_len).min(block_len)));
        true
    }

    /// Notes that a receiver has nothing of blocks.
    pub(super) fn note_lacking_blocks(&mut self, first: u32, last: u32) -> bool {
        let last = last.max(first);
        // Blocks from the current one on have a state only if something was sent of them.
        let next = self.at.block.max(first);
        let rest: Vec<_> =
            self.coded.blocks.range(next..=last.max(next)).map(|(block, _)| *block).collect();
        let rest = rest.into_iter().filter(|block| *block <= last);
        let mut any = false;
        for block in (first..self.at.block.min(last.saturating_add(1))).chain(rest) {
            if self.coded.lacking.len() >= LACKING_MAX {
                break;
            }
            any |= self.note_lacking(block, None);
        }
        any
    }

    /// Decides what to send to a receiver that requested parts of blocks. `newest` is the newest
    /// message that it had received, if reported.
    pub(crate) fn answer(
        &mut self,
        now: Time,
        node: NodeId,
        newest: Option<u16>,
        transmission: &Transmission,
    ) {
        let Some(shape) = self.shape.as_ref() else { return };
        let partition = shape.partition;
        let through = match newest {
            Some(newest) => self.message(now, newest, transmission),
            None => self.coded.sent.number_at(now - transmission.round_trip()),
        };
        self.take_named(through);
        let lacking = std::mem::take(&mut self.coded.lacking);
        for (block, missing) in &lacking {
            let block_len = u32::from(partition.block_len(*block));
            self.knows(*block, node, through, block_len.saturating_sub(*missing));
        }
        self.judge_with(&transmission.terms, lacking.into_iter().map(|(block, _)| block));
        self.bound_states(self.at.block);
    }

    /// Least number of bytes that a receiver has, as far as receivers have reported.
    pub(super) fn delivered(&self) -> u64 {
        let Some(shape) = self.shape.as_ref() else { return 0 };
        let partition = &shape.partition;
        let known = self.coded.blocks.iter().filter(|(_, it)| !it.known.is_empty());
        let end = known.clone().next_back().map_or(0, |(block, _)| block + 1);
        let lacks = |(number, state): (&u32, &CodedBlock)| {
            let have = state.known.values().map(|known| known.have).min().unwrap_or(0);
            let lacks = u32::from(partition.block_len(*number)).saturating_sub(have);
            u64::from(lacks) * u64::from(shape.symbol_len)
        };
        let lacking: u64 = known.map(lacks).sum();
        let behind = self.resume.bytes_from(end, partition);
        (partition.block_offset(end) + behind).saturating_sub(lacking)
    }

    /// Loss measured on this object by the receiver that lost most.
    pub(crate) fn measured_loss(&self) -> Option<(f64, f64)> {
        let all = self.coded.receivers.values().filter_map(Loss::measured);
        all.max_by(|one, other| one.0.total_cmp(&other.0))
    }
}

/// Number of segments by which a loss is measured: reports have 32 bits.
fn clamped(segments: u64) -> u32 {
    u32::try_from(segments).unwrap_or(u32::MAX)
}
