//! What receivers asked for becomes repairs, and some of it is sent before they ask.

use engine::Time;

use super::{Core, Limit, Mark, Outgoing, Shape, Voice};
use crate::norm::repaired::{Repaired, Wanted};

impl Outgoing {
    /// Whether all of it was sent once, or will be before repairs of what is sent now can be asked
    /// for.
    pub(crate) fn is_ending(&self) -> bool {
        // Repairs may be lost, which is not known before another round.
        self.is_sent() || self.shape.as_ref().is_some_and(|shape| self.is_tail(shape, 2))
    }

    /// Whether what follows the block under way takes less time than so many rounds of repairs.
    fn is_tail(&self, shape: &Shape, rounds: u64) -> bool {
        if shape.is_stream {
            return false;
        }
        let behind = shape.partition.first_segment(self.at.block.saturating_add(1));
        shape.partition.segments().saturating_sub(behind) < self.tail.saturating_mul(rounds)
    }

    /// Parity to send unasked with the block that begins: as settings have it, and with those near
    /// the end as much as others lacked, because nothing else is sent while that is asked for.
    pub(super) fn parity_unasked(&self, voice: &Voice, shape: &Shape) -> u16 {
        let always = shape.coding.auto_parity();
        if !self.is_tail(shape, 1) {
            return always;
        }
        let block_len = shape.partition.block_len(self.at.block);
        always.max(voice.losses.parity(block_len)).min(shape.coding.parity())
    }

    /// Others shall be told what is asked for now.
    pub(crate) fn tell(&mut self) {
        for (block, mark) in &self.marks {
            let told = self.advertised.entry(*block).or_default();
            mark.symbols.iter().for_each(|symbol| {
                told.symbols.insert(symbol);
            });
            told.is_whole |= mark.is_whole;
            told.missing = told.missing.max(mark.missing);
        }
    }

    /// They were told.
    pub(crate) fn was_told(&mut self) {
        self.advertised.clear();
    }

    /// Decides how to repair what was asked for: with parity that nobody has, of which each segment
    /// mends another loss at each receiver, or with the segments themselves where there is not
    /// enough of that. `is_last` if there is nothing else to send for long.
    pub(crate) fn commit(&mut self, core: &mut Core, now: Time, voice: &mut Voice, is_last: bool) {
        let Some(shape) = self.shape.take() else { return };
        for (block, mut mark) in std::mem::take(&mut self.marks) {
            self.commit_block(core, (now, is_last), voice, &shape, block, &mut mark);
        }
        self.shape = Some(shape);
        if let Some(source) = self.source.as_mut() {
            source.read_repairs(&mut core.kernel, self.handle);
        }
        self.make_parity(core);
    }

    fn commit_block(
        &mut self,
        core: &mut Core,
        (now, is_last): (Time, bool),
        voice: &mut Voice,
        shape: &Shape,
        block: u32,
        mark: &mut Mark,
    ) {
        let (auto, parity) = (shape.coding.auto_parity(), shape.coding.parity());
        let round_trip = voice.grtt.advertised();
        if self.commit_stream_block((now, round_trip), shape, block, mark) {
            return;
        }
        if !self.repaired.contains_key(&block) && self.repaired.len() >= core.config.limits.repairs
        {
            // What is forgotten is only which parity was sent.
            self.repaired.pop_first();
        }
        let repaired = self.repaired.entry(block).or_insert_with(|| Repaired::new(auto));
        let unasked = repaired.unasked();
        let is_first = repaired.asked(now, round_trip);
        let block_len = shape.block_len(block);
        let left = repaired.left(parity);
        let missing = u16::try_from(mark.missing).unwrap_or(u16::MAX);
        if let Some(first) = self.first_block.filter(|_| is_first && !mark.is_whole) {
            let last =
                mark.symbols.iter().last().map_or(0, |last| (last + 1).saturating_sub(block_len));
            let lacked = last.max(unasked.saturating_add(missing)).min(parity);
            voice.losses.lacked(first + u64::from(block), lacked);
        }
        // Who names a source segment has all the parity there is, and lacks more than that.
        let names_sources = mark.symbols.iter().next().is_some_and(|first| first < block_len);
        let is_complete = self.ring.is_some() || block < self.at.block;
        if !names_sources && !mark.is_whole && is_complete {
            let lacking = repaired.lacking(Wanted { symbols: &mark.symbols, missing }, block_len);
            if lacking <= left {
                let spare = if is_last { repaired.spare(lacking, block_len) } else { 0 };
                let rows = repaired.take(lacking, spare, parity);
                self.plan(core, shape, block, rows);
                return;
            }
        }
        if !mark.is_whole || mark.symbols.iter().any(|symbol| symbol >= block_len) {
            // No parity is left that nobody has.
            repaired.use_up(parity);
        }
        // Where they were counted and not named, any of them may be missing.
        mark.is_whole |= mark.symbols.len() < mark.missing;
        self.repair_explicitly(core, shape, block, mark);
    }

    /// Queues parity segments, counted from the first one, but for those that are queued.
    fn plan(
        &mut self,
        core: &mut Core,
        shape: &Shape,
        block: u32,
        rows: impl Iterator<Item = u16>,
    ) {
        let reading = self.reading.iter().find(|(other, _)| *other == block);
        let is_read = |row: &u16| reading.is_some_and(|(_, rows)| rows.contains(row));
        let block_len = shape.block_len(block);
        let is_ready = |row: &u16| {
            let place = (block, block_len + row);
            self.ready.iter().any(|(id, _)| (id.block, id.symbol) == place)
        };
        let rows: Vec<_> = rows.filter(|row| !is_read(row) && !is_ready(row)).collect();
        if rows.is_empty() {
            return;
        }
        let is_planned = self.plans.contains_key(&block);
        if !is_planned && self.plans.len() >= core.config.limits.repairs {
            // Who lacks it asks for it again.
            core.limit_reached(Limit::Repairs);
            return;
        }
        let plan = self.plans.entry(block).or_default();
        for row in rows {
            if !plan.contains(&row) {
                plan.push(row);
            }
        }
    }

    /// Queues the segments themselves, and parity that was asked for by number.
    fn repair_explicitly(&mut self, core: &mut Core, shape: &Shape, block: u32, mark: &Mark) {
        let block_len = shape.block_len(block);
        let end = block_len + shape.coding.parity();
        let Some(repaired) = self.repaired.get_mut(&block) else { return };
        let parity = mark.symbols.iter().filter(|symbol| (block_len..end).contains(symbol));
        let rows: Vec<_> = parity.filter(|symbol| repaired.again(*symbol)).collect();
        self.plan(core, shape, block, rows.into_iter().map(|symbol| symbol - block_len));
        let Some(repaired) = self.repaired.get_mut(&block) else { return };
        let is_asked = |symbol: &u16| mark.is_whole || mark.symbols.contains(*symbol);
        let symbols = (0..block_len).filter(is_asked).filter(|symbol| repaired.again(*symbol));
        let symbols: Vec<_> = symbols.collect();
        if self.ring.is_some() {
            self.ask_again(block, symbols);
            return;
        }
        let Some(source) = self.source.as_mut() else { return };
        let max = core.config.limits.repairs;
        for symbol in symbols {
            // One by one, so that a segment is never read in two pieces.
            let start = shape.partition.segment_offset(block, symbol);
            let end = start + u64::from(shape.partition.segment_len(block, symbol));
            if !source.request(start, end, max) {
                return;
            }
        }
    }
}
