//! Outages that are known beforehand.

use engine::{Engine, Input, PathEvent, PathId, Time};

use super::{Driver, Event};
use crate::Schedule;

impl<E: Engine> Driver<E> {
    /// Makes all paths, which are added later, follow a schedule: the engine is notified when a
    /// direction goes down or up, and the observer when a contact begins or ends.
    pub fn follow(&mut self, mut schedule: Schedule) {
        schedule.begin(self.pump.now(), self.pump.clock);
        self.schedule = Some(schedule);
    }

    /// Reports the changes of the schedule that are due.
    pub(super) fn keep_to_schedule(
        &mut self,
        now: Time,
        on: &mut impl FnMut(Time, &mut E, Event<E::Indication>),
    ) {
        let Some(schedule) = &mut self.schedule else { return };
        let change = schedule.look(now, self.pump.clock, now >= self.next_tick);
        let contact = schedule.contact();
        if let Some(change) = change {
            let is_open =
                |path: &PathId| !self.outages.is_out(*path) && !self.groups.is_left(*path);
            for path in self.peers.paths().filter(is_open).collect::<Vec<_>>() {
                let info = self.info(path);
                let changed = |it: &Schedule| it.changed(now, change, info);
                for event in self.schedule.as_ref().map(changed).unwrap_or_default() {
                    if event == PathEvent::Down {
                        self.paused.remove(&path);
                    }
                    self.pump.engine.handle_input(now, Input::Path(path, event));
                }
            }
        }
        if std::mem::replace(&mut self.contact, contact) != contact {
            on(now, &mut self.pump.engine, Event::Contact(contact));
        }
    }
}
