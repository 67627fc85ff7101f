//! Growth of long queues.

use std::collections::VecDeque;

/// Queues double up to this length. Longer ones hold much of a machine's memory, and grow by an
/// eighth: so much is left over at most.
const DOUBLED_MAX: usize = 8192;

/// By how much a queue grows that has this much room.
fn growth(room: usize) -> usize {
    if room < DOUBLED_MAX { room.max(16) } else { room / 8 }
}

/// Makes room for one more.
pub(crate) fn make_room<T>(queue: &mut VecDeque<T>) {
    if queue.len() == queue.capacity() {
        queue.reserve_exact(growth(queue.capacity()));
    }
}

/// Room of a queue, with that which the next packet beyond it adds.
pub(crate) fn room<T>(queue: &VecDeque<T>) -> usize {
    queue.capacity() + growth(queue.capacity())
}

/// Whether a queue was much longer once.
pub(crate) fn is_idle<T>(queue: &VecDeque<T>) -> bool {
    queue.capacity() / 4 > queue.len() + DOUBLED_MAX
}
