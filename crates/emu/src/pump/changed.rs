//! What packets become on their way: damaged, or what a line with compressed headers restores.

use std::io;

use engine::Time;
use link::{Damage, Fate, Left, Rejected};
use rt::frame::Vnet;

use super::{Pipe, Pump, REFUSED, Segment, copy_segment};
use crate::store::Store;

impl Pipe {
    /// Hands a segment to the link, with the length that it has on the line.
    pub(super) fn take(
        &mut self,
        now: Time,
        store: &Store,
        segment: Segment,
    ) -> Result<(), Rejected<Segment>> {
        let Segment { packet, index } = segment;
        let len = store.shape(packet).segment_len(index);
        // What is not taken is not in the line's conversation.
        match self.line.as_mut().filter(|_| self.link.free_for(now, len)) {
            None => self.link.push(now, len, segment),
            Some(line) => {
                let mut whole = Vec::with_capacity(len);
                copy_segment(store.packet(packet), index, &mut whole);
                let framed = line.enter(&whole);
                let pushed = self.link.push_framed(now, len, framed, segment);
                if pushed.is_err() {
                    line.withdraw();
                }
                pushed
            }
        }
    }
}

impl Pump {
    /// What comes out of a line that compresses headers, of a segment that left its link.
    pub(super) fn leave_line(&mut self, index: usize, segment: Segment, fate: &Fate) -> Left {
        let Some(line) = &mut self.pipes[index].line else { return Left::Same };
        self.scratch.clear();
        copy_segment(self.store.packet(segment.packet), segment.index, &mut self.scratch);
        line.leave(fate, &self.scratch)
    }

    pub(super) fn hand_over_damaged(
        &mut self,
        index: usize,
        segment: Segment,
        damage: &Damage,
        due: Time,
    ) -> io::Result<()> {
        self.scratch.clear();
        copy_segment(self.store.packet(segment.packet), segment.index, &mut self.scratch);
        damage.apply(&mut self.scratch);
        self.hand_over_scratch(index, segment, due)
    }

    pub(super) fn hand_over_changed(
        &mut self,
        index: usize,
        segment: Segment,
        bytes: Vec<u8>,
        due: Time,
    ) -> io::Result<()> {
        self.scratch = bytes;
        self.hand_over_scratch(index, segment, due)
    }

    /// Hands over what a segment became on its way.
    fn hand_over_scratch(&mut self, index: usize, segment: Segment, due: Time) -> io::Result<()> {
        let whole = &mut self.scratch;
        let pipe = &mut self.pipes[index];
        let written = self.ports[pipe.to].tun.write(&Vnet::default(), &[], [&**whole]);
        let port = pipe.to;
        let at = pipe.wrote(written, self.clock, (1, false))?;
        if let Some(at) = at {
            pipe.lateness.record(at.since(due), 1);
        }
        if let Some(tap) = self.tap.as_mut().filter(|tap| tap.wants(port)) {
            let seen = at.unwrap_or_else(|| self.clock.now());
            tap.received(port, seen, whole.clone(), at.is_none().then_some(REFUSED));
        }
        self.store.release(segment.packet, 1);
        Ok(())
    }
}
