//! Recommendation of a transport for a link: all candidates are simulated, within a budget.
//!
//! Files within the budget are simulated whole, in rounds that fewer and fewer transports reach.
//! With longer files every transport first sends shorter ones, and the finalists then send the
//! whole file. A transport without a whole simulation is reported as estimated, with the error of
//! the estimate. No estimate is possible where shorter files do not predict longer ones: with
//! outages, changing rates, several receivers or no return link.
//!
//! The budget is counted in packets, not in seconds, so that advice does not depend on the
//! machine. Events count as packets where a run has more of them.

mod capacity;
mod estimate;
mod field;
mod needs;
mod one_way;
mod search;
mod tried;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::compare::Plan;
use crate::link_spec::LinkSpec;
use crate::preset::{Preset, Sharing};
use crate::run::RunError;
use crate::scenario::Scenario;
use crate::{parallel, passes};

use field::Field;
pub use needs::{Deployment, candidates, contenders, deployment, is_controlled, possible, streams};
pub use one_way::OneWay;
use transport::protocol::Protocol;
use transport::quantity::{Probability, Size, Span};
use transport::text::SpecError;

/// File to transfer, link, and requirements.
#[derive(Clone, Debug)]
pub struct Question {
    /// Hops from the sender to the receiver.
    pub link: Preset,
    /// Size of the file.
    pub size: Size,
    /// Whether there is a return link.
    pub has_return: bool,
    /// Number of receivers.
    pub receivers: u32,
    /// Whether hosts between the hops store and forward.
    pub relay: bool,
    /// Time within which the file must be delivered.
    pub deadline: Option<Span>,
    /// Whether capacity decides among transports that are about as fast, or meet the deadline.
    pub thrifty: bool,
    /// Other users of the path; default: the link's own entry, or shared if it has none.
    pub sharing: Option<Sharing>,
    /// Processor time to spend, counted in packets at [`PACKETS_PER_S`].
    pub budget: Span,
    /// First seed.
    pub seed: u64,
    /// Threads; `None` for one per core.
    pub jobs: Option<usize>,
}

/// Packets per second of the budget: roughly the simulation speed of a core of 2020.
pub const PACKETS_PER_S: f64 = 250_000.0;

/// Size of a file and its copies at the receivers up to which it is simulated whole, in bytes.
pub const MEMORY_MAX: u64 = 6_000_000_000;

/// Share of the runs from which on a transport delivers, in time if there is a deadline.
pub const SURE: f64 = 0.95;

/// Runs from which on an interval contains 90 % of them; fewer have a minimum and a maximum.
pub const MANY_RUNS: usize = 20;

/// One-way light time up to which a path counts as shared unless its link says otherwise: paths
/// with other users that are longer are rare.
pub const SHARED_DELAY_MAX: Duration = Duration::from_millis(200);

/// Result of the simulations.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// Transports, best first; not all with the same number of runs.
    pub ranking: Vec<Candidate>,
    /// Number of transports at the head of the ranking that tie; 1 if none does.
    pub tied: usize,
    /// If capacity decides: number of transports at the head of the ranking among which it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thrifty: Option<usize>,
    /// If capacity decides: the first by time, if it is not the first of the ranking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fastest: Option<Candidate>,
    /// On a shared path: the best transport without congestion control, for an owner of the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedicated: Option<Candidate>,
    /// Whether only transports with congestion control are ranked.
    pub controlled: bool,
    /// Processor seconds that one run of the first transport needs, if it was not simulated whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_s: Option<f64>,
    /// Rate of the narrowest hop in bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Rate of the return link in bits per second, if it is a hundredth of `rate_bps` or less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_bps: Option<u64>,
    /// One-way light time, in seconds.
    pub delay_s: f64,
    /// Number of worlds; none is simulated if the file cannot arrive.
    pub runs: usize,
    /// Simulated events of all worlds.
    pub events: u64,
}

/// Failure of a run that took its part of the budget.
pub const CUT: &str =
    "the simulation took its part of the budget and ended; give a larger --budget";

/// Basis of a transport's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The whole file was simulated.
    Simulated,
    /// Shorter files were simulated, and the whole one is estimated.
    Estimated,
    /// Shorter files were simulated, which do not predict the whole one.
    Unknown,
}

/// One transport, as far as it was simulated.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// Protocol.
    #[serde(serialize_with = "as_text")]
    pub protocol: Protocol,
    /// Mode for a link without return, of a transport that otherwise needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_way: Option<OneWay>,
    /// Basis of its numbers.
    pub basis: Basis,
    /// Runs with the whole file.
    pub runs: usize,
    /// Share of runs in which the file was delivered, in time if there is a deadline. Without runs
    /// it is 1 or 0 if an estimate or the light time decides about the deadline, otherwise `None`.
    pub success: Option<f64>,
    /// Mean seconds until delivery, never below the bound.
    pub mean_s: Option<f64>,
    /// Simulated: 5th and 95th percentile of the runs, or minimum and maximum of fewer than
    /// [`MANY_RUNS`]. Otherwise the minimum and maximum estimated
    /// time, without the maximum if there is no upper limit.
    pub interval_s: Option<(f64, Option<f64>)>,
    /// Mean over transports of the minimum time with the whole file.
    pub bound_s: Option<f64>,
    /// Seconds until the file could start to cross, for protocols with such a moment.
    pub ready_s: Option<f64>,
    /// Packets from the sender per packet of the bound.
    pub packets_ratio: Option<f64>,
    /// Bytes on the link per byte of the file.
    pub spent: Option<f64>,
    /// Reasons of failed runs, with their number.
    pub failures: BTreeMap<String, usize>,
}

fn as_text<S: serde::Serializer>(protocol: &Protocol, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(protocol)
}

impl Candidate {
    /// Returns the name with the mode.
    #[must_use]
    pub fn title(&self) -> String {
        match self.one_way {
            None => self.protocol.to_string(),
            Some(OneWay { carousel: Some(_), .. }) => format!("{} carousel", self.protocol),
            Some(OneWay { carousel: None, .. }) => format!("{} one-way", self.protocol),
        }
    }

    /// Whether it delivered the whole file in a run, however late. An estimate supposes delivery.
    #[must_use]
    pub fn delivers(&self) -> bool {
        self.mean_s.is_some() || self.basis == Basis::Unknown
    }
}

/// Share of the budget for transports without congestion control on a shared path.
const DEDICATED_SHARE: f64 = 0.3;

/// Simulates within the budget, and ranks. `None` if it was cancelled.
///
/// # Errors
///
/// The link cannot be simulated, or requirements contradict each other.
pub fn advise(question: &Question, cancelled: &AtomicBool) -> Result<Option<Advice>, RunError> {
    let all = possible(candidates(question)?, |protocol| question.scenario(protocol))?;
    let controlled = question.is_controlled();
    let (admitted, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|protocol| !controlled || is_controlled(protocol));
    let share = if others.is_empty() { 0.0 } else { DEDICATED_SHARE };
    let (advice, dedicated) = both(
        question,
        || play(question, admitted, 1.0 - share, cancelled),
        || if others.is_empty() { Ok(None) } else { play(question, others, share, cancelled) },
    );
    let (Some(mut advice), dedicated) = (advice?, dedicated?) else { return Ok(None) };
    advice.controlled = controlled;
    if let Some(other) = dedicated {
        advice.runs += other.runs;
        advice.events += other.events;
        advice.dedicated = other.ranking.into_iter().next();
    }
    Ok((!cancelled.load(Ordering::Relaxed)).then_some(advice))
}

/// Ranks some transports within a share of the budget. `None` if it was cancelled.
fn play(
    question: &Question,
    protocols: Vec<Protocol>,
    share: f64,
    cancelled: &AtomicBool,
) -> Result<Option<Advice>, RunError> {
    let budget = question.budget.duration().as_secs_f64() * PACKETS_PER_S;
    let mut field = Field::new(question, protocols, budget * share)?;
    Ok(field.play(cancelled)?.then(|| field.advice()))
}

/// Runs both concurrently, so that a long run of one leaves no core idle, unless only one thread
/// or too little memory is allowed.
fn both<A, B: Send>(
    question: &Question,
    first: impl FnOnce() -> A,
    second: impl FnOnce() -> B + Send,
) -> (A, B) {
    if question.jobs == Some(1) || question.copies() > MEMORY_MAX / 2 {
        return (first(), second());
    }
    parallel::both(first, second)
}

impl Question {
    /// Bytes of the file and of the receivers' copies.
    fn copies(&self) -> u64 {
        self.size.bytes().saturating_mul(1 + u64::from(self.receivers))
    }

    /// Returns the other users of the path: those given, those of the link's entry, or by its light
    /// time.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        let given = self.sharing.or(self.link.sharing);
        let by_light = if self.is_far() { Sharing::Dedicated } else { Sharing::Shared };
        given.unwrap_or(by_light)
    }

    /// Whether light takes more than [`SHARED_DELAY_MAX`] to the receiver.
    #[must_use]
    pub fn is_far(&self) -> bool {
        let longest = |hop: &LinkSpec| {
            let points = hop.delay_points.iter().flatten().map(|point| point.delay);
            points.chain(hop.delay).map(Span::duration).max().unwrap_or_default()
        };
        self.link.hops.iter().map(longest).sum::<Duration>() > SHARED_DELAY_MAX
    }

    /// Chooses the datagrams that suit bit errors of the link, unless their size is given or the
    /// largest that fit are best. Returns the size.
    ///
    /// # Errors
    ///
    /// The link contradicts itself.
    pub fn suit_datagrams(&mut self) -> Result<Option<Size>, SpecError> {
        let hops = &mut self.link.hops;
        if hops.iter().any(|hop| hop.datagram.is_some()) {
            return Ok(None);
        }
        let size = search::suited_datagram(hops, self.size.bytes())?;
        for hop in hops.iter_mut().filter(|_| size.is_some()) {
            hop.datagram = size;
        }
        Ok(size)
    }

    /// Returns the length of bundles that suits the contacts of the link, if the default may not.
    #[must_use]
    pub fn part(&self) -> Option<Size> {
        passes::part(&self.link, self.size.bytes())
    }

    /// Returns the datagram size that the link gives.
    #[must_use]
    pub fn datagram(&self) -> Option<Size> {
        self.link.hops.iter().filter_map(|hop| hop.datagram).min()
    }

    /// Whether only transports with congestion control are recommended. Without a return link there
    /// are none.
    #[must_use]
    pub fn is_controlled(&self) -> bool {
        self.has_return && self.sharing() == Sharing::Shared
    }

    /// Returns the comparison that simulates a file of this content.
    #[must_use]
    pub fn plan(&self, content: Bytes) -> Plan {
        let mut link = self.link.clone();
        if !self.has_return {
            for hop in &mut link.hops {
                let mut back = hop.way_back();
                back.errors.per = Some(Probability(1.0));
                hop.back = Some(Box::new(back));
            }
        }
        Plan {
            receivers: self.receivers,
            relay: self.relay,
            seed: self.seed,
            jobs: self.jobs,
            part: self.part(),
            ..Plan::new(link, Vec::new(), content)
        }
    }

    /// Returns the world in which a protocol was simulated with the whole file.
    ///
    /// # Errors
    ///
    /// The link contradicts itself.
    pub fn scenario(&self, protocol: &Protocol) -> Result<Scenario, SpecError> {
        self.world(protocol, None)
    }

    /// Returns the world in which a candidate was simulated with the whole file.
    ///
    /// # Errors
    ///
    /// The link contradicts itself.
    pub fn scenario_of(&self, candidate: &Candidate) -> Result<Scenario, SpecError> {
        self.world(&candidate.protocol, candidate.one_way)
    }

    fn world(&self, protocol: &Protocol, one_way: Option<OneWay>) -> Result<Scenario, SpecError> {
        let settings = one_way.map(|mode| mode.settings(protocol)).transpose()?;
        let plan = self.plan(Bytes::new());
        let mut scenario = plan.scenario_with(protocol, settings.as_ref(), self.seed)?;
        for transfer in &mut scenario.transfers {
            transfer.size = Some(self.size);
        }
        Ok(scenario)
    }
}
