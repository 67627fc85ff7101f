//! Repairs: receivers' requests become segments to send, and proactive parity covers some losses
//! in advance.

use std::time::Duration;

use engine::Time;

use super::{Core, Limit, Mark, Marks, Outgoing, Shape, Transmission};
use crate::repaired::{Repaired, Wanted};

/// Number of segments waiting to be read for repairs above which no further whole blocks are
/// queued: enough to keep reads busy, regardless of the requested amount.
const SEGMENTS_AHEAD: usize = 256;

impl Outgoing {
    /// Whether the whole object was sent, or will be before repairs of the current block can be
    /// requested.
    pub(crate) fn is_ending(&self) -> bool {
        // Repairs may be lost, which becomes known one round later.
        self.is_sent() || self.shape.as_ref().is_some_and(|shape| self.is_tail(shape, 2))
    }

    /// Whether the rest after the current block takes less time than `rounds` rounds of repairs.
    fn is_tail(&self, shape: &Shape, rounds: u64) -> bool {
        if shape.is_stream {
            return false;
        }
        let behind = shape.partition.first_segment(self.at.block.saturating_add(1));
        shape.partition.segments().saturating_sub(behind) < self.tail.saturating_mul(rounds)
    }

    /// Number of proactive parity segments for the block that begins: the configured number, and
    /// near the end as many as receivers lacked before, because nothing else is sent during a
    /// repair round.
    pub(super) fn proactive_parity(&self, transmission: &Transmission, shape: &Shape) -> u16 {
        let block_len = shape.partition.block_len(self.at.block);
        let always = shape.coding.auto_parity_of(block_len);
        if !self.is_tail(shape, 1) {
            return always;
        }
        always.max(transmission.losses.parity(block_len)).min(shape.coding.parity)
    }

    /// Moves new requests to the requests to be advertised to other receivers.
    pub(crate) fn publish(&mut self, most: usize) {
        self.requests.advertised.add(&self.requests.marks, most);
    }

    /// Clears the requests that were advertised.
    pub(crate) fn on_published(&mut self) {
        self.requests.advertised = Marks::default();
    }

    /// Decides how to repair the requested blocks: with unsent parity, each segment of which
    /// repairs a different loss at each receiver, or with source segments where parity does not
    /// suffice. `is_last` if nothing else will be sent for long.
    pub(crate) fn commit(
        &mut self,
        core: &mut Core,
        now: Time,
        transmission: &mut Transmission,
        is_last: bool,
    ) {
        let Some(shape) = self.shape.take() else { return };
        let Marks { parts, whole } = std::mem::take(&mut self.requests.marks);
        for (first, end) in whole.iter() {
            if self.requests.due.len() >= core.config.limits.repairs {
                // Receivers that lack the repair request it again.
                core.user.limit_reached(Limit::Repairs);
                break;
            }
            self.requests.due.insert(first as u32..end as u32, now);
        }
        for (block, mark) in parts {
            // A completely retransmitted block needs nothing else.
            if !self.requests.due.contains(block) {
                self.commit_block(core, now, transmission, &shape, block, mark, is_last);
            }
        }
        self.take_due(core, transmission.round_trip(), &shape);
        self.shape = Some(shape);
        self.read_repairs(core);
        self.make_parity(core);
    }

    pub(super) fn read_repairs(&mut self, core: &mut Core) {
        if let Some(source) = self.source.as_mut() {
            source.read_repairs(&mut core.shared, self.handle);
        }
    }

    /// Queues segments of blocks to be retransmitted as a whole, while few are queued. Returns
    /// whether there was such a block.
    pub(super) fn take_due(
        &mut self,
        core: &mut Core,
        round_trip: Duration,
        shape: &Shape,
    ) -> bool {
        let mut any = false;
        let most = core.config.limits.repairs.min(SEGMENTS_AHEAD);
        while let Some(source) = &self.source
            && (source.repairs_waiting() == 0
                || source.repairs_waiting() + usize::from(shape.block_len(0)) <= most)
            && let Some((block, at)) = self.requests.due.take()
        {
            any = true;
            self.repaired(core, block, shape).requested(at, round_trip);
            self.repair_explicitly(core, shape, block, &Mark::whole(shape.block_len(block)));
        }
        any
    }

    /// Repair state of a block.
    fn repaired(&mut self, core: &Core, block: u32, shape: &Shape) -> &mut Repaired {
        let most = core.config.limits.repairs;
        if !self.repaired.contains_key(&block) && self.repaired.len() >= most {
            // Only the record of sent parity is lost.
            self.repaired.pop_first();
        }
        let proactive = shape.coding.auto_parity_of(shape.block_len(block));
        self.repaired.entry(block).or_insert_with(|| Repaired::new(proactive))
    }

    fn commit_block(
        &mut self,
        core: &mut Core,
        now: Time,
        transmission: &mut Transmission,
        shape: &Shape,
        block: u32,
        mut mark: Mark,
        is_last: bool,
    ) {
        let parity = shape.coding.parity;
        let round_trip = transmission.round_trip();
        if self.commit_stream_block(now, round_trip, shape, block, &mark) {
            return;
        }
        let is_complete = self.ring.is_some() || block < self.at.block;
        let first_block = self.proactive.first_block;
        let is_resumed = self.resume.former.is_some();
        let repaired = self.repaired(core, block, shape);
        let proactive = repaired.proactive();
        let is_first = repaired.requested(now, round_trip);
        let block_len = shape.block_len(block);
        if repaired.covers(now, round_trip, block_len) {
            return;
        }
        let left = repaired.left(parity);
        let missing = u16::try_from(mark.missing).unwrap_or(u16::MAX);
        if let Some(first) = first_block.filter(|_| is_first && !mark.is_whole) {
            let last =
                mark.symbols.iter().last().map_or(0, |last| (last + 1).saturating_sub(block_len));
            let lacked = last.max(proactive.saturating_add(missing)).min(parity);
            transmission.losses.lacked(first + u64::from(block), lacked);
        }
        // A receiver that names a source segment received all sent parity and still lacks more.
        let names_sources = mark.symbols.iter().next().is_some_and(|first| first < block_len);
        // Which parity an earlier process sent is not known.
        let is_known = is_complete && !is_resumed;
        if !names_sources && !mark.is_whole && is_known {
            let lacking = repaired.lacking(Wanted { symbols: &mark.symbols, missing }, block_len);
            if lacking <= left {
                let spare = if is_last { repaired.spare(lacking, block_len) } else { 0 };
                let rows = repaired.take(lacking, spare, parity);
                self.plan(core, shape, block, rows);
                return;
            }
        }
        if !mark.is_whole || mark.symbols.iter().any(|symbol| symbol >= block_len) {
            // No unsent parity is left.
            repaired.use_up(parity);
        }
        // If segments were counted and not named, any of them may be missing.
        mark.is_whole |= mark.symbols.len() < mark.missing;
        self.repair_explicitly(core, shape, block, &mark);
    }

    /// Queues parity segments, given by row, except those already queued.
    fn plan(
        &mut self,
        core: &mut Core,
        shape: &Shape,
        block: u32,
        rows: impl Iterator<Item = u16>,
    ) {
        let most = core.config.limits.repairs;
        if !self.parity.plan(block, shape.block_len(block), rows, most) {
            // Receivers that lack the repair request it again.
            core.user.limit_reached(Limit::Repairs);
        }
    }

    /// Queues source segments, and parity requested by number.
    fn repair_explicitly(&mut self, core: &mut Core, shape: &Shape, block: u32, mark: &Mark) {
        let block_len = shape.block_len(block);
        let end = block_len + shape.coding.parity;
        let Some(repaired) = self.repaired.get_mut(&block) else { return };
        let parity = mark.symbols.iter().filter(|symbol| (block_len..end).contains(symbol));
        let rows: Vec<_> = parity.filter(|symbol| repaired.again(*symbol)).collect();
        self.plan(core, shape, block, rows.into_iter().map(|symbol| symbol - block_len));
        let Some(repaired) = self.repaired.get_mut(&block) else { return };
        let all = (0..block_len).filter(|_| mark.is_whole);
        let named = mark.symbols.iter().take_while(|symbol| *symbol < block_len);
        let symbols = all.chain(named.filter(|_| !mark.is_whole));
        let symbols: Vec<_> = symbols.filter(|symbol| repaired.again(*symbol)).collect();
        if self.ring.is_some() {
            self.retransmit(block, symbols);
            return;
        }
        let Some(source) = self.source.as_mut() else { return };
        let max = core.config.limits.repairs;
        for symbol in symbols {
            // One by one, so that no segment is read in two pieces.
            let (start, end) = shape.segment_span(block, symbol);
            if !source.request(start, end, max) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use engine::{FileId, FileName, PathId, Rng};

    use super::super::{Content, Cut, ObjectId, Position};
    use super::*;
    use crate::bits::Bits;
    use crate::coding::Coding;
    use crate::config::Config;
    use crate::grtt::Grtt;
    use crate::outgoing::Symbols;
    use session::Slots;
    use testing::memory::Counted;

    const SECOND: Duration = Duration::from_secs(1);

    /// File of 10 GB in 156,250 blocks, all sent.
    fn of_ten_gigabytes() -> (Core, Transmission, Outgoing) {
        let config = Config::default();
        let coding = Coding::new(&config.sender).expect("there is such a code");
        let mut core = Core::new(config, Rng::new(1, "norm"));
        let transmission = Transmission::new(1, Grtt::new(SECOND, Duration::ZERO, SECOND), 0, 10);
        let id = ObjectId { peer: PathId(0), sender: 1, number: 7 };
        let content = Content::File(FileName::file("source").expect("a name"));
        let handle = Slots::<()>::new().reserve();
        let mut object = Outgoing::new(id, handle, content, Bytes::new());
        object.opened(&mut core, FileId(1), 10_000_000_000);
        let cut = Cut { segment: 1000, room: 1400, coding, loss: None, has_fti: true };
        object.cut(&mut core, cut, 1).expect("it can be cut");
        object.at = Position { block: 156_250, symbol: 0 };
        let source = object.source.as_mut().expect("it is open");
        source.skip_to(10_000_000_000);
        object.has_begun = true;
        object.info_turn.is_due = false;
        core.shared.effects.clear();
        (core, transmission, object)
    }

    #[test]
    fn a_request_for_all_of_a_large_object_costs_little() {
        let mut sender = Counted::new(of_ten_gigabytes);
        let before = sender.memory();
        sender.charge(|(core, transmission, object)| {
            for round in 0..100 {
                let now = Time::ZERO + SECOND / 10 * round;
                assert!(object.mark_all(core));
                object.commit(core, now, transmission, false);
                assert!(!object.is_idle() && object.has_repairs());
            }
        });
        assert!(sender.memory() < before + 100_000, "{} {before}", sender.memory());
        let (core, transmission, object) = &mut *sender;
        // As many blocks were examined as are being read, and four more wait.
        let reads = core.shared.effects.len();
        assert!((1..=64).contains(&reads), "{reads}");
        assert!((5..=8).contains(&object.repaired.len()), "{}", object.repaired.len());
        assert!(object.requests.due.contains(156_249) && object.requests.due.len() <= 2);
        // Every other block costs as much as all of them.
        for block in (0..60_000).step_by(2) {
            object.mark_blocks(core, block, block);
        }
        object.commit(core, Time::ZERO + 20 * SECOND, transmission, false);
        assert!((5..=8).contains(&object.repaired.len()), "{}", object.repaired.len());
    }

    #[test]
    fn segments_of_due_blocks_are_not_requested_separately() {
        let (mut core, mut transmission, mut object) = of_ten_gigabytes();
        object.mark_blocks(&mut core, 0, 100_000);
        let mut named = Bits::new();
        named.insert(3);
        let symbols = Symbols { named, count: 0 };
        for block in [90_000, 120_000] {
            assert!(object.mark(&mut core, block, &symbols));
        }
        object.commit(&mut core, Time::ZERO, &mut transmission, false);
        assert!(object.repaired.contains_key(&120_000) && !object.repaired.contains_key(&90_000));
        assert!(!object.mark_blocks(&mut core, 156_250, u32::MAX), "there is no such block");
    }
}
