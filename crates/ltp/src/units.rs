//! Aggregation of client data units into blocks (CCSDS 734.1-B, service data aggregation).

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Time;
use session::Alarm as _;
use session::path::Handle;
use session::timer::TICK;

use super::Node;
use super::config::Aggregation;
use super::core::Alarm;
use super::indication::RequestError;
use super::sender::Sender;
use crate::segment::Unit;

/// Time after which queued units are retried if no session could start.
const UNITS_RETRY: Duration = Duration::from_millis(100);

/// Queued units of client data, by destination engine.
#[derive(Debug, Default)]
pub(super) struct Gathered(BTreeMap<u64, Vec<u8>>);

impl Node {
    /// Adds a small unit of client data to a block for the same engine, which is sent according to
    /// [`super::Config::aggregation`], all red. Queued units are lost if the engine stops.
    ///
    /// # Errors
    /// The request is refused; the unit was not accepted.
    pub fn send_data(
        &mut self,
        now: Time,
        destination: u64,
        service: u64,
        data: &[u8],
    ) -> Result<(), RequestError> {
        self.check_destination(destination)?;
        let limits = &self.core.config.limits;
        let Some(Aggregation { size, age }) = self.core.config.aggregation else {
            return Err(RequestError::NoAggregation);
        };
        let unit = Unit { service, data };
        let len = unit.encoded_len();
        if len > limits.units {
            return Err(RequestError::LargeUnit(len));
        }
        let is_new = !self.gathered.0.contains_key(&destination);
        if len > limits.units_total.saturating_sub(self.core.units)
            || is_new && self.gathered.0.len() >= limits.sessions
        {
            return Err(RequestError::TooManyUnits);
        }
        let size = size.min(limits.units);
        let gathered = self.gathered.0.get(&destination).map_or(0, Vec::len);
        if gathered > 0 && gathered + len > size && !self.send_units(now, destination) {
            return Err(RequestError::TooManySessions);
        }
        let block = self.gathered.0.entry(destination).or_default();
        if block.is_empty() {
            let alarm = Alarm::Units(destination);
            self.core.shared.timers.set((Handle::NOBODY, alarm), now + age.max(TICK), alarm.why());
        }
        let at = block.len();
        block.resize(at + len, 0);
        unit.encode(&mut block[at..]).expect("the unit has the length it said");
        self.core.units += len;
        if block.len() >= size {
            // If no session can start now, the timer retries.
            self.send_units(now, destination);
        }
        Ok(())
    }

    /// Sends the units queued for an engine. Returns `false` if no session can start.
    fn send_units(&mut self, now: Time, destination: u64) -> bool {
        if !self.has_room() {
            return false;
        }
        let Some(block) = self.gathered.0.remove(&destination) else { return true };
        self.core.shared.timers.cancel((Handle::NOBODY, Alarm::Units(destination)));
        // From now on the session accounts for the queued units.
        self.core.units -= block.len();
        let (base, peer) = self.new_session(now, destination);
        let sender = Sender::of_units(base, peer, destination, block.into(), &mut self.core);
        self.begin(sender);
        true
    }

    /// Sends units whose maximum wait has expired.
    pub(super) fn units_are_due(&mut self, now: Time, destination: u64) {
        if !self.send_units(now, destination) {
            let alarm = Alarm::Units(destination);
            self.core.shared.timers.set((Handle::NOBODY, alarm), now + UNITS_RETRY, alarm.why());
        }
    }
}
