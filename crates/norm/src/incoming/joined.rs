//! Requests over a thin return link.
//!
//! A request takes transmission time on the return link, and every byte requested in excess takes
//! time on the forward link. Where a few bytes on the return link take as long as many segments on
//! the forward link, blocks are requested as one range. The request adds the largest number of
//! segments that any of the blocks lacks ([`EXT_LACKS`]). The sender then sends that many parity
//! segments for each.

use super::blocks::Blocks;
use super::{Block, Incoming, Kind, RequestRound, State};
use crate::message::{RequestFlags, RequestWriter};

/// Type of a private header extension: the largest number of segments that a receiver lacks of any
/// block requested in the message. Other implementations skip it and send whole blocks.
pub(crate) const EXT_LACKS: u8 = 195;

/// Maximum number of blocks that one message may request in this way.
pub(crate) const JOINED_MAX: u64 = 1024;

impl Incoming {
    /// Requests incomplete blocks as ranges, if that is faster than listing them. Returns the
    /// largest number of segments that one lacks, which the message has to carry.
    pub(crate) fn request_joined(
        &mut self,
        writer: &mut RequestWriter<'_>,
        block: Option<u64>,
        round: RequestRound,
    ) -> Option<u16> {
        let object = self.number();
        let is_possible = self.state == State::Receiving && !self.awaits_session();
        if !is_possible || self.is_info_only || !round.price.counts() {
            return None;
        }
        let Kind::Blocks(blocks) = &mut self.kind else { return None };
        blocks.request_joined(writer, object, block, round)
    }
}

impl Blocks {
    fn request_joined(
        &mut self,
        writer: &mut RequestWriter<'_>,
        object: u16,
        block: Option<u64>,
        RequestRound { now, since, price }: RequestRound,
    ) -> Option<u16> {
        let parts = self.parts.range(..self.shape.end(block));
        let parts = parts.filter(|(_, block)| !block.was_requested(since));
        let first = *parts.clone().next()?.0;
        let parts = parts.take_while(|(number, _)| u64::from(**number - first) < JOINED_MAX);
        let lacks = |(number, block): (&u32, &Block)| {
            // A block without memory for parity is listed.
            let block_len = u32::from(self.block_len(*number));
            (!block.is_direct).then(|| (*number, block_len.saturating_sub(block.have.len())))
        };
        let needs: Vec<_> = parts.map(lacks).collect::<Option<_>>()?;
        let most = needs.iter().map(|(_, lacks)| *lacks).max()?;
        let runs = price.join(needs.iter().map(|(number, _)| *number), most);
        let sent: u64 = runs.iter().map(|(first, end)| (end - first) * u64::from(most)).sum();
        let lacked: u64 = needs.iter().map(|(_, lacks)| u64::from(*lacks)).sum();
        if !price.favours(&runs, sent - lacked, needs.len()) {
            return None;
        }
        let position = |block| self.shape.position(object, block, 0);
        let mut through = None;
        for (first, end) in runs {
            let (first, last) = (first as u32, (end - 1) as u32);
            if writer.range(RequestFlags::BLOCK, position(first), position(last)).is_err() {
                break;
            }
            through = Some(last);
        }
        for (_, block) in self.parts.range_mut(..=through?) {
            if !block.was_requested(since) {
                (block.requested_at, block.is_answered) = (Some(now), false);
            }
        }
        u16::try_from(most).ok()
    }
}
