//! Growth of long queues.

use std::collections::VecDeque;

/// Queues double up to this length. Longer ones hold much of a machine's memory and grow by an
/// eighth, which bounds the unused part.
const DOUBLED_MAX: usize = 8192;

/// Returns the growth of a queue with this capacity.
fn growth(room: usize) -> usize {
    if room < DOUBLED_MAX { room.max(16) } else { room / 8 }
}

/// Makes room for one more.
pub(crate) fn make_room<T>(queue: &mut VecDeque<T>) {
    if queue.len() == queue.capacity() {
        queue.reserve_exact(growth(queue.capacity()));
    }
}

/// Returns a queue's capacity, including growth for the next packet.
pub(crate) fn room<T>(queue: &VecDeque<T>) -> usize {
    queue.capacity() + growth(queue.capacity())
}

/// Whether a queue was once much longer.
pub(crate) fn is_idle<T>(queue: &VecDeque<T>) -> bool {
    queue.capacity() / 4 > queue.len() + DOUBLED_MAX
}
