//! A host that duplicates, delays and reorders the packets it forwards.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use engine::{Deadline, Input, PathEvent, PathId, Rng, Time, Transmit, TxBuf};

#[derive(Debug)]
pub(crate) struct Mangler {
    rng: Rng,
    paths: Vec<PathId>,
    now: VecDeque<(PathId, Vec<u8>)>,
    later: BTreeMap<(Time, u64), (PathId, Vec<u8>)>,
    serial: u64,
}

impl Mangler {
    pub(crate) fn new(rng: Rng) -> Self {
        let (paths, now, later) = (Vec::new(), VecDeque::new(), BTreeMap::new());
        Self { rng, paths, now, later, serial: 0 }
    }

    pub(crate) fn take(&mut self, now: Time, input: &Input<'_>) {
        match input {
            Input::Path(path, PathEvent::Up(_)) => self.paths.push(*path),
            Input::Receive(receive) => {
                let on = self.paths.iter().find(|path| **path != receive.path);
                let on = *on.expect("it stands between two");
                for packet in receive.datagrams() {
                    // 3 % are duplicated, 5 % delayed.
                    let copies = if self.rng.below(100) < 3 { 2 } else { 1 };
                    for _ in 0..copies {
                        if self.rng.below(100) < 5 {
                            let late = Duration::from_micros(1 + self.rng.below(60_000));
                            self.serial += 1;
                            self.later.insert((now + late, self.serial), (on, packet.to_vec()));
                        } else {
                            self.now.push_back((on, packet.to_vec()));
                        }
                    }
                }
            }
            Input::Path(..) | Input::Done(..) => {}
        }
    }

    pub(crate) fn release(&mut self, now: Time) {
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= now) {
            self.now.push_back(entry.remove());
        }
    }

    pub(crate) fn give(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let (path, packet) = self.now.pop_front()?;
        tx.push(packet.len())?.copy_from_slice(&packet);
        tx.transmit(path, now)
    }

    pub(crate) fn next(&self) -> Option<Deadline> {
        let (at, _) = self.later.keys().next()?;
        Some(Deadline { at: *at, why: "a packet that is late" })
    }
}
