//! Packets changed on their way: damaged, or restored after header compression.

use std::io;

use engine::Time;
use link::{Damage, Fate, Left};
use rt::frame::Vnet;

use super::{Pump, REFUSED, Segment, copy_segment};

impl Pump {
    /// Passes a segment through the far end of a line with header compression.
    pub(super) fn leave_line(&mut self, index: usize, segment: Segment, fate: &Fate) -> Left {
        let Some(line) = &mut self.pipes[index].line else { return Left::Same };
        self.scratch.clear();
        let (bytes, shape) = self.store.packet(segment.packet);
        copy_segment(bytes, shape, segment.index, &mut self.scratch);
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
        let (bytes, shape) = self.store.packet(segment.packet);
        copy_segment(bytes, shape, segment.index, &mut self.scratch);
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

    /// Delivers a changed segment.
    fn hand_over_scratch(&mut self, index: usize, segment: Segment, due: Time) -> io::Result<()> {
        let whole = &mut self.scratch;
        let pipe = &mut self.pipes[index];
        let written = self.ports[pipe.to].tun.write(&Vnet::default(), &[], [&**whole]);
        let port = pipe.to;
        let at = pipe.wrote(written, self.clock, 1, false)?;
        if let Some(at) = at {
            pipe.lateness.record(at.since(due), 1);
        }
        if let Some(tap) = self.tap.as_mut().filter(|tap| tap.wants(port)) {
            let received = at.unwrap_or_else(|| self.clock.now());
            tap.received(port, received, whole.clone(), at.is_none().then_some(REFUSED));
        }
        self.store.release(segment.packet, 1);
        Ok(())
    }
}
