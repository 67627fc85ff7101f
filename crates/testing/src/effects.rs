//! Storage effects of an engine that is driven by hand.

use engine::{Effect, Engine, Input, MemoryStore, Time};

/// Executes the pending effects of an engine on its store. Returns those on paths and streams, or
/// `None` if no effect was pending.
pub fn execute<E: Engine + ?Sized>(
    now: Time,
    engine: &mut E,
    store: &mut MemoryStore,
) -> Option<Vec<Effect>> {
    let mut others = None;
    while let Some(effect) = engine.poll_effect() {
        let others = others.get_or_insert_with(Vec::new);
        let Effect::Store(effect) = effect else {
            others.push(effect);
            continue;
        };
        if let Some((ticket, result)) = store.execute(effect) {
            engine.handle_input(now, Input::Done(ticket, result));
        }
    }
    others
}
