//! Objects that an earlier process began to send, and receivers that restarted: only what they
//! lack is sent. Receivers of coded objects list it; those of others request it as repairs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::fec::Partition;
use engine::Time;
use session::ranges::Ranges;

use super::{Content, Core, Outgoing, Position, Shape, Transmission};
use crate::bits::Bits;
use crate::incoming::identity::Identity;
use crate::message::NodeId;
use crate::report::ReportOf;

/// Number of segments of a block queued at once. Parity covers the others.
const QUEUED_MAX: usize = 8_192;

/// Maximum number of blocks without state that one list restores: others are requested again.
const RESTORED_MAX: usize = 4096;

/// Minimum time between two queries, and the minimum time for a reply.
const APART_LEAST: Duration = Duration::from_millis(100);
const PATIENCE_LEAST: Duration = Duration::from_secs(1);

/// Missing parts of an object, as a receiver's NACK lists them.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// End of the blocks that are listed.
    pub(crate) end: u32,
    /// Blocks of which the receiver has nothing.
    pub(crate) whole: Ranges,
    /// Segments of other blocks.
    pub(crate) parts: BTreeMap<u32, Bits>,
}

impl List {
    /// Whether the receiver lacks nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.whole.len() == 0 && self.parts.is_empty()
    }
}

/// Resumption of an object.
#[derive(Debug, Default)]
pub(super) struct Resume {
    /// Version of the file.
    pub(super) version: u64,
    /// Key of the record of the object.
    key: Option<u64>,
    /// Instance of the sender in the earlier process that began to send the object.
    pub(super) former: Option<u16>,
    query: Query,
    /// Source segments that receivers have, which are not sent.
    blocks: Ranges,
    parts: BTreeMap<u32, Bits>,
}

/// Query of what receivers have of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Query {
    #[default]
    None,
    Due,
    /// Sent first and last at these times.
    Sent(Time, Time),
}

impl Resume {
    /// Whether the object can resume.
    pub(super) fn is_possible(&self) -> bool {
        self.key.is_some()
    }

    /// Whether receivers have a source segment of a block that was not sent yet.
    pub(super) fn has(&self, block: u32, symbol: u16) -> bool {
        self.parts.get(&block).is_some_and(|part| part.contains(symbol))
            || self.blocks.contains(block.into())
    }

    /// Forgets the segments of a block.
    pub(super) fn pass(&mut self, block: u32) {
        self.parts.remove(&block);
    }

    /// Bytes of the blocks from `block` on that receivers have.
    pub(super) fn bytes_from(&self, block: u32, partition: &Partition) -> u64 {
        let ranges = self.blocks.iter().filter(|(_, end)| *end > u64::from(block));
        let offset = |at: u64| partition.block_offset(at as u32);
        ranges.map(|(first, end)| offset(end) - offset(first.max(block.into()))).sum()
    }

    fn skip(&mut self, block: u32, symbols: &Bits, block_len: u16) {
        if symbols.len() >= block_len.into() {
            self.blocks.insert(block.into(), u64::from(block) + 1);
            return;
        }
        self.parts.entry(block).or_default().union(symbols);
    }
}

impl Outgoing {
    /// Records that the object is being sent. If an earlier process sent it, receivers of a coded
    /// object are queried first, and others are requested to confirm that they have all of it.
    pub(super) fn record(&mut self, core: &mut Core, instance: u16) {
        let config = &core.config;
        let may_resume = config.journal.enabled
            && !config.sender.is_one_way()
            && !config.is_group(self.id.peer)
            && matches!(self.content, Content::File(_));
        let Some(shape) = self.shape.as_ref() else { return };
        if !may_resume || self.info.is_empty() || self.size == 0 {
            return;
        }
        let identity = Identity {
            name: self.info.clone(),
            size: self.size,
            segment_size: shape.fti.segment_size,
            block_len: shape.fti.block_len,
            version: self.resume.version,
        };
        let key = identity.sent_key(self.id.peer.0);
        self.resume.key = Some(key);
        self.resume.former = core.begin_sending(key, instance);
        match self.resume.former {
            Some(_) if shape.coding.is_long() => self.resume.query = Query::Due,
            Some(_) => {
                self.at = Position { block: shape.partition.blocks(), symbol: 0 };
                self.source.iter_mut().for_each(|source| source.skip_to(self.size));
            }
            None => {}
        }
    }

    /// Keeps the record of the object beyond its end.
    pub(crate) fn keep_record(&mut self) {
        self.resume.key = None;
    }

    /// Removes the record of the object.
    pub(crate) fn forget_record(&self, core: &mut Core) {
        if let Some(key) = self.resume.key {
            core.end_sending(key);
        }
    }

    /// Whether receivers are being queried for what they have.
    pub(crate) fn is_querying(&self) -> bool {
        self.resume.query != Query::None
    }

    /// Notes a sent NORM_INFO. Returns whether it is a query, to which receivers reply after a
    /// probe.
    pub(super) fn on_info_sent(&mut self, at: Time) -> bool {
        let query = &mut self.resume.query;
        *query = match *query {
            Query::None => return false,
            Query::Due => Query::Sent(at, at),
            Query::Sent(first, _) => Query::Sent(first, at),
        };
        true
    }

    /// Repeats the query, or gives it up. Returns whether there is something to send.
    pub(crate) fn query_again(&mut self, now: Time, round_trip: Duration) -> bool {
        let Query::Sent(first, last) = self.resume.query else { return false };
        if now.since(first) >= (round_trip * 2).max(PATIENCE_LEAST) {
            self.resume.query = Query::None;
            return true;
        }
        let is_due = now.since(last) >= (round_trip / 4).max(APART_LEAST);
        if is_due {
            self.info_turn.is_due = true;
        }
        is_due
    }

    /// Ends the query if a receiver reports that it has nothing.
    pub(super) fn end_query_of_fresh(&mut self, of: &ReportOf) {
        let Some(shape) = &self.shape else { return };
        let is_fresh = of.block == 0 && of.arrived == 0;
        if is_fresh && of.missing == shape.partition.block_len(0) {
            self.resume.query = Query::None;
        }
    }

    /// Processes a receiver's list of everything that it lacks. `newest` is the newest message that
    /// it had received.
    pub(crate) fn on_list(
        &mut self,
        core: &mut Core,
        now: Time,
        node: NodeId,
        newest: Option<u16>,
        list: &List,
        transmission: &Transmission,
    ) {
        self.resume.query = Query::None;
        let Some(shape) = self.shape.take() else { return };
        let through = match newest {
            Some(newest) => self.message(now, newest, transmission),
            None => 0,
        };
        let mut changed = Vec::new();
        for block in self.listed_blocks(list, &shape) {
            self.restore_state(block, shape.partition.block_len(block));
            if self.listed_block(core, &shape, block, list, node, through) {
                changed.push(block);
            }
        }
        self.shape = Some(shape);
        self.judge_with(&transmission.terms, changed);
    }

    /// Skips whole blocks that a receiver has, and returns those to be considered one by one: the
    /// current one, those with state, and those of which the receiver lacks parts. Their number
    /// depends on the length of the list, not on that of the object.
    fn listed_blocks(&mut self, list: &List, shape: &Shape) -> BTreeSet<u32> {
        let (at, blocks) = (self.at.block, shape.partition.blocks());
        self.forget_skipped(at);
        let mut lacking = list.whole.clone();
        for block in list.parts.keys() {
            lacking.insert(u64::from(*block), u64::from(*block) + 1);
        }
        let (next, end) = (u64::from(at) + 1, u64::from(list.end.min(blocks)));
        for (first, end) in lacking.gaps(next, end) {
            self.resume.blocks.insert(first, end);
        }
        let whole = list.whole.iter().flat_map(|(first, end)| first..end.min(at.into()));
        let whole = whole.take(RESTORED_MAX).map(|block| block as u32);
        let parts = list.parts.keys().chain(self.coded.blocks.keys()).copied();
        let all = parts.chain([at]).filter(|block| *block < blocks);
        all.chain(whole).collect()
    }

    /// Forgets what lists said of blocks of which nothing was sent: each list has all of them.
    fn forget_skipped(&mut self, at: u32) {
        let behind = at.saturating_add(1);
        self.resume.blocks.remove(behind.into(), u64::MAX);
        self.resume.parts.retain(|block, _| *block < behind);
        let states: Vec<_> = self.coded.blocks.range(behind..).map(|(block, _)| *block).collect();
        for block in states {
            self.coded.drop_state(block);
        }
    }

    /// Returns whether the object has state of the block.
    fn listed_block(
        &mut self,
        core: &mut Core,
        shape: &Shape,
        block: u32,
        list: &List,
        node: NodeId,
        through: u64,
    ) -> bool {
        let block_len = shape.partition.block_len(block);
        let at = match block.cmp(&self.at.block) {
            std::cmp::Ordering::Less => block_len,
            std::cmp::Ordering::Equal => self.at.symbol.min(block_len),
            std::cmp::Ordering::Greater => 0,
        };
        let part = list.parts.get(&block);
        let is_all = block >= list.end || list.whole.contains(block.into());
        let lacks = |symbol| is_all || part.is_some_and(|part| part.contains(symbol));
        let mut skipped = Bits::new();
        let first = if self.resume.blocks.contains(block.into()) { block_len } else { at };
        for symbol in (first..block_len).filter(|symbol| !lacks(*symbol)) {
            if !self.resume.has(block, symbol) {
                skipped.insert(symbol);
            }
        }
        let is_known = self.coded.blocks.contains_key(&block);
        if skipped.len() > 0 {
            self.coded.change(block, |state| {
                state.sent += u64::from(skipped.len());
                state.runs.skip(skipped.len().into());
            });
            self.resume.skip(block, &skipped, block_len);
        } else if !is_known {
            return false;
        }
        let row = part.and_then(|part| part.iter().find(|symbol| *symbol >= block_len));
        let row = row.map_or(0, |symbol| symbol - block_len).min(shape.coding.parity);
        self.coded.change(block, |state| state.next_row = state.next_row.max(row));
        if is_all || part.is_some() {
            let lacks = (0..at).filter(|symbol| lacks(*symbol));
            self.repeat(core, shape, block, lacks, through);
        }
        let missing = if is_all { block_len.into() } else { part.map_or(0, Bits::len) };
        let have = u32::from(block_len).saturating_sub(missing);
        self.knows(block, node, through, have);
        true
    }

    /// Queues source segments of a block that a receiver lacks, except those that may be under way:
    /// sent after the newest message that it had received.
    fn repeat(
        &mut self,
        core: &mut Core,
        shape: &Shape,
        block: u32,
        symbols: impl Iterator<Item = u16>,
        through: u64,
    ) {
        let source = &mut self.source;
        let mut is_repeated = false;
        self.coded.change(block, |state| {
            let Some(source) = source.as_mut().filter(|_| state.queued == 0) else { return };
            let end = state.runs.through(through);
            // One by one, so that no segment is read in two pieces.
            for symbol in symbols.take_while(|symbol| u64::from(*symbol) < end).take(QUEUED_MAX) {
                let (start, stop) = shape.segment_span(block, symbol);
                if !source.request(start, stop, core.config.limits.repairs) {
                    break;
                }
                state.queued += 1;
                (state.is_named, is_repeated) = (true, true);
            }
        });
        if is_repeated {
            self.coded.repeating.insert(block);
        }
    }
}
