//! The order of steps in a turn.

use super::*;

/// Time limit of an order.
const LIMIT: Duration = Duration::from_secs(20);
/// Points in the first turn at which an order may arrive.
const POINTS: usize = 5;

#[test]
fn commands_are_executed_at_any_point_of_a_turn() {
    for point in 0..POINTS {
        let made = Pump::new(Vec::new(), Vec::new(), Arc::new([]), 1 << 20);
        let (mut pump, handle) = made.expect("an event descriptor");
        let (answer, answered) = crossbeam_channel::bounded(1);
        let (other, mut answer, mut passed) = (handle.clone(), Some(answer), 0);
        pump.interfere = Box::new(move || {
            if passed == point {
                other.order(Order::CountOnTheWay(answer.take().expect("it is reached once")));
            }
            passed += 1;
        });
        let thread = std::thread::spawn(move || pump.run(false));
        let result = answered.recv_timeout(LIMIT);
        handle.stop();
        thread.join().expect("it does not panic").expect("it ends in order");
        assert_eq!(result, Ok(0), "an order at point {point} of a turn is lost");
    }
}
