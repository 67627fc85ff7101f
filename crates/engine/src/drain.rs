//! A driver's loop, for files in memory.

use crate::{Effect, Engine, Input, MemoryStore, PathId, Time, TxBuf};

/// Output of an engine until it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drained<I> {
    /// Datagrams, in order.
    pub datagrams: Vec<Datagram>,
    /// Indications, in order.
    pub indications: Vec<I>,
}

/// A datagram to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Destination.
    pub path: PathId,
    /// Earliest time to send. If it is later than now, the engine is to be drained again then.
    pub not_before: Time,
    /// Content.
    pub bytes: Vec<u8>,
}

/// Executes the pending effects of an engine on its store. Returns those on paths and streams, or
/// `None` if no effect was pending.
pub fn execute_effects<E: Engine + ?Sized>(
    now: Time,
    engine: &mut E,
    files: &mut MemoryStore,
) -> Option<Vec<Effect>> {
    let mut others = None;
    while let Some(effect) = engine.poll_effect() {
        let others = others.get_or_insert_with(Vec::new);
        let Effect::Store(effect) = effect else {
            others.push(effect);
            continue;
        };
        if let Some((ticket, result)) = files.execute(effect) {
            engine.handle_input(now, Input::Done(ticket, result));
        }
    }
    others
}

/// Polls an engine until it waits for time, a datagram or a request, and executes its storage
/// effects. Effects on paths and streams are dropped.
///
/// Examples and tests use it. Drivers with sockets and disks are in `slowlight-rt`.
pub fn drain<E: Engine>(
    now: Time,
    engine: &mut E,
    files: &mut MemoryStore,
) -> Drained<E::Indication> {
    let mut drained = Drained { datagrams: Vec::new(), indications: Vec::new() };
    let mut tx = TxBuf::new(1);
    loop {
        execute_effects(now, engine, files);
        if let Some(indication) = engine.poll_indication() {
            drained.indications.push(indication);
            continue;
        }
        if drained.datagrams.last().is_some_and(|last| last.not_before > now) {
            return drained;
        }
        tx.clear();
        let Some(transmit) = engine.poll_transmit(now, &mut tx) else { return drained };
        let (path, not_before) = (transmit.path, transmit.not_before);
        let datagrams = tx.datagrams().map(<[u8]>::to_vec);
        drained.datagrams.extend(datagrams.map(|bytes| Datagram { path, not_before, bytes }));
    }
}
