//! New segments of an object, and what follows them: proactive parity, or parity of long blocks.

use session::path::Turn;
use sha2::Digest as _;

use super::coded::Step;
use super::{Core, Outgoing, Output, Position, Repaired, Shape};
use crate::message::Flags;

impl Outgoing {
    /// Sends new segments and the proactive parity of their blocks.
    pub(crate) fn emit_new(&mut self, out: &mut Output<'_, '_>) -> Turn {
        let turn = self.emit_segments(out);
        self.read_ahead(out.core);
        match turn {
            // NORM_INFO may be repeated after the last block.
            Turn::Over => self.emit_info(out),
            Turn::More => Turn::More,
        }
    }

    fn emit_segments(&mut self, out: &mut Output<'_, '_>) -> Turn {
        let Some(shape) = self.shape.take() else { return Turn::Over };
        let turn = loop {
            if self.emit_info_of(out, &shape) == Turn::More {
                break Turn::More;
            }
            if self.is_querying() {
                break Turn::Over;
            }
            if self.ring.is_some() {
                break self.emit_stream(out, &shape);
            }
            if u64::from(self.at.block) >= u64::from(shape.partition.blocks()) {
                break Turn::Over;
            }
            let block_len = shape.partition.block_len(self.at.block);
            let turn = if self.at.symbol < block_len {
                self.emit_source(out, &shape)
            } else if shape.coding.is_long() {
                self.emit_end(out, &shape)
            } else {
                self.emit_auto_parity(out, &shape)
            };
            if let Some(turn) = turn {
                break turn;
            }
        };
        self.shape = Some(shape);
        turn
    }

    /// Sends the next source segment. Returns the turn's outcome if no more can follow now.
    fn emit_source(&mut self, out: &mut Output<'_, '_>, shape: &Shape) -> Option<Turn> {
        let at = self.at;
        if at.symbol == 0 {
            self.proactive.count = self.proactive_parity(out.transmission, shape);
        }
        let len = usize::from(shape.partition.segment_len(at.block, at.symbol));
        // Receivers may have it of an earlier session.
        let is_skipped = self.resume.has(at.block, at.symbol);
        let Some(next) = self.source.as_ref().and_then(|source| source.next_new(len)) else {
            if is_skipped {
                self.prepare_parity(out, shape);
            }
            return Some(Turn::Over);
        };
        let data = next.data;
        let (message, departure) = (out.transmission.sequence, out.departure());
        let id = shape.id(at.block, at.symbol);
        if !is_skipped && !shape.push(out, Flags::NONE, id, data) {
            return Some(Turn::More);
        }
        if !is_skipped {
            if at.symbol == 0 {
                self.proactive.first_block.get_or_insert(out.transmission.losses.block_begins());
            }
            self.proactive.add(shape, at.symbol, data);
        }
        let sent = data.len();
        let is_coded = shape.coding.is_long();
        if is_coded {
            self.coded.digests.current.update(data);
        }
        if let Some(source) = self.source.as_mut() {
            source.new_sent(sent);
        }
        self.has_begun |= !is_skipped;
        if is_coded {
            if is_skipped {
                self.source_ends(shape);
            } else {
                self.on_source_sent(message, departure, shape);
            }
            self.at.symbol += 1;
            self.prepare_parity(out, shape);
            return None;
        }
        self.at.symbol += 1;
        // A repetition of NORM_INFO is due when the second block begins; before that, NORM_INFO is
        // sent three times.
        let block_len = shape.partition.block_len(0);
        if at.block == 0 && (at.symbol == block_len / 2 || at.symbol + 1 == block_len) {
            self.repeat_info(out.core, shape);
        }
        None
    }

    /// Sends the next proactive parity segment of a block whose source segments were all sent.
    fn emit_auto_parity(&mut self, out: &mut Output<'_, '_>, shape: &Shape) -> Option<Turn> {
        let at = self.at;
        let row = at.symbol - shape.partition.block_len(at.block);
        let Some(parity) = self.proactive.segment(row) else {
            self.on_block_sent(out.core, shape);
            return None;
        };
        if !shape.push(out, Flags::NONE, shape.id(at.block, at.symbol), parity) {
            return Some(Turn::More);
        }
        out.core.stats.auto_parity += 1;
        self.at.symbol += 1;
        None
    }

    /// Sends the parity of a block whose source segments were all sent, if its object has long
    /// blocks.
    fn emit_end(&mut self, out: &mut Output<'_, '_>, shape: &Shape) -> Option<Turn> {
        let block = self.at.block;
        self.judge_block(block, &out.transmission.terms, shape);
        match self.emit_coded(out, shape, block, Flags::NONE) {
            Step::Sent => None,
            Step::Full => Some(Turn::More),
            Step::Waits if !self.is_repeating(block) => Some(Turn::Over),
            Step::Waits | Step::Enough => {
                self.on_block_sent(out.core, shape);
                None
            }
        }
    }

    fn on_block_sent(&mut self, core: &Core, shape: &Shape) {
        let most = core.config.limits.repairs;
        let usual = shape.coding.auto_parity_of(shape.partition.block_len(self.at.block));
        let auto = self.proactive.count;
        if auto != usual && !shape.coding.is_long() && self.repaired.len() < most {
            self.repaired.entry(self.at.block).or_insert_with(|| Repaired::new(auto));
        }
        self.at = Position { block: self.at.block + 1, symbol: 0 };
        let every = core.config.sender.info_every;
        let is_last = self.at.block >= shape.partition.blocks();
        if every > 0 && self.at.block.is_multiple_of(every) || is_last {
            self.repeat_info(core, shape);
        }
    }

    /// Schedules a repetition of NORM_INFO with proactive parity, so that no receiver needs to
    /// request it.
    fn repeat_info(&mut self, core: &Core, shape: &Shape) {
        if shape.coding.auto_parity > 0 && core.config.sender.info_every > 0 {
            self.info_turn.is_due = !self.info.is_empty();
        }
    }
}
