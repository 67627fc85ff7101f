//! Units of client data that are gathered into blocks (CCSDS 734.1-B, service data aggregation).

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Time;
use wire::ltp::Unit;

use super::Node;
use super::config::Aggregation;
use super::core::Alarm;
use super::indication::RequestError;
use super::sender::Sender;
use crate::path::Handle;
use crate::session::Alarm as _;
use crate::timer::TICK;

/// Time after which units are tried again that no session could begin for.
const UNITS_RETRY: Duration = Duration::from_millis(100);

/// Units of client data that wait for others, by the engine they are for.
#[derive(Debug, Default)]
pub(super) struct Gathered(BTreeMap<u64, Vec<u8>>);

impl Gathered {
    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

impl Node {
    /// Gathers a small unit of client data into a block with others for the same engine, which is sent
    /// as [`super::Config::aggregation`] says, all of it red. What is gathered is lost with this
    /// engine.
    ///
    /// # Errors
    /// The request cannot be carried out; the unit was not taken.
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
            // If no session can begin now, the timer tries again.
            self.send_units(now, destination);
        }
        Ok(())
    }

    /// Sends what was gathered for an engine; `false` if no session can begin.
    fn send_units(&mut self, now: Time, destination: u64) -> bool {
        if !self.has_room() {
            return false;
        }
        let Some(block) = self.gathered.0.remove(&destination) else { return true };
        self.core.shared.timers.cancel((Handle::NOBODY, Alarm::Units(destination)));
        // From now on the session counts them.
        self.core.units -= block.len();
        let (base, peer) = self.new_session(now, destination);
        let sender = Sender::of_units(base, peer, destination, block.into(), &mut self.core);
        self.begin(sender);
        true
    }

    /// The first of the units gathered for an engine has waited long enough.
    pub(super) fn units_are_due(&mut self, now: Time, destination: u64) {
        if !self.send_units(now, destination) {
            let alarm = Alarm::Units(destination);
            self.core.shared.timers.set((Handle::NOBODY, alarm), now + UNITS_RETRY, alarm.why());
        }
    }
}
