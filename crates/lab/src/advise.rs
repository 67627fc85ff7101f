//! Which transport to take for a link: every one that the needs admit is simulated, in rounds that
//! fewer and fewer of them reach.
//!
//! The first round has a few runs of each, the second more of those that may still be best, the last
//! many of the first three and of those as good; so those left behind are ranked below them. Every
//! protocol sees the same seeds, so what a later round adds is what brute force would have found for
//! it. Files above [`SIMULATED_MAX`] are not simulated whole, for several receivers even less of them:
//! the times of two smaller ones say what the rest takes, as time grows linearly once a transfer has
//! filled the link.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use serde::Serialize;

use crate::compare::{self, Plan};
use crate::link_spec::LinkSpec;
use crate::metrics::TransferMetrics;
use crate::preset::Preset;
use crate::protocol::{Carried, Family, Kind, Protocol};
use crate::quantity::{Probability, Size, Span};
use crate::run::RunError;
use crate::stats::mean;
use crate::text::SpecError;

/// What is to be carried, and what it needs.
#[derive(Clone, Debug)]
pub struct Question {
    /// The hops from the sender to the receiver.
    pub link: Preset,
    /// The file.
    pub size: Size,
    /// Whether anything comes back.
    pub has_return: bool,
    /// How many receive it.
    pub receivers: u32,
    /// Whether the receiver wants the octets in their order, as they come.
    pub in_order: bool,
    /// Whether hosts between the hops keep what they hand on.
    pub relay: bool,
    /// When the file must be there, after the transfer is asked for.
    pub deadline: Option<Span>,
    /// The first seed.
    pub seed: u64,
    /// Threads; `None` for one a core.
    pub jobs: Option<usize>,
}

/// The largest file that is simulated whole.
pub const SIMULATED_MAX: u64 = 10_000_000;

/// What came of the simulations.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// Those that were simulated, the best first; not all with the same number of runs.
    pub ranking: Vec<Candidate>,
    /// Whether times are those of smaller files, drawn on.
    pub extrapolated: bool,
    /// How many worlds were run.
    pub runs: usize,
}

/// One transport, as far as it was simulated.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// The protocol.
    #[serde(serialize_with = "as_text")]
    pub protocol: Protocol,
    /// Runs.
    pub runs: usize,
    /// The share of them in which the file was there, in time if there is a deadline.
    pub success: f64,
    /// Mean seconds until the file is there, of the runs in which it came.
    pub mean_s: Option<f64>,
    /// The time that 5 of 100 of these runs are below, and the one that 5 are above.
    pub interval_s: Option<(f64, f64)>,
    /// The least that any transport can take, in the mean.
    pub bound_s: Option<f64>,
    /// Seconds until the file could begin to cross, of protocols that have such a moment.
    pub ready_s: Option<f64>,
    /// Packets from the sender for each that the bound has.
    pub packets_ratio: Option<f64>,
    /// Why runs failed: a reason, and how many.
    pub failures: BTreeMap<String, usize>,
}

fn as_text<S: serde::Serializer>(protocol: &Protocol, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(protocol)
}

/// How many reach the second round and the third at least, and how near the best, as a share of its
/// time, all others have to be to reach it, too: where few packets are lost, few runs do not tell
/// who bears a loss and who had none.
const REACH: [(usize, f64); 2] = [(8, 1.05), (3, 1.02)];

/// Whose fastest run takes more than so many times the mean of the best is not run again: no luck
/// makes up for that.
const HOPELESS: f64 = 1.5;

/// Packets that the second round has, and the third, in all: some two seconds on two cores. Fewer reach
/// a round than might be the best where packets are too many for all of them, but [`LEAST`] do.
const PACKETS_MAX: u64 = 1_200_000;
const LEAST: usize = 3;

/// Octets that are simulated at least of a long file, however many receive it: enough to fill a link of
/// 10 Mbit/s and a second of light.
const SIMULATED_MIN: u64 = 2_000_000;

/// Those that the needs admit.
///
/// # Errors
///
/// When needs contradict each other.
pub fn candidates(question: &Question) -> Result<Vec<Protocol>, SpecError> {
    let Question { has_return, receivers, in_order, relay, .. } = question;
    if *in_order && !has_return {
        let message = "octets in their order need a way back: TCP does that, and nothing else here";
        return Err(SpecError::invalid(message));
    }
    let admits = |kind: &Kind| {
        let is_file = kind.carries() == Carried::File && *kind != Kind::Telnet;
        // Without a way back none can repeat what is lost, and one that tries never ends; parity needs none.
        let is_whole = kind.is_reliable() == *has_return || *kind == Kind::NormFec;
        let is_ordered = !in_order || kind.family() == Family::OverTcp;
        let hands_on = !relay || kind.hands_on();
        // What carries CFDP below it is compared by itself, and this adds only CFDP's headers; over
        // relays it is another story.
        let is_plain = *relay || !kind.name().starts_with("cfdp-bp");
        // Bundles and blocks go to one receiver at a time, over ways that are made for it.
        let to_many = *receivers == 1 || kind.family() != Family::Bundles;
        is_file && is_whole && is_ordered && hands_on && is_plain && to_many
    };
    let all: Vec<_> = Kind::ALL.iter().copied().filter(admits).map(Protocol::plain).collect();
    if all.is_empty() {
        return Err(SpecError::invalid("no transport here has all that is needed"));
    }
    Ok(all)
}

/// Simulates, and ranks.
///
/// # Errors
///
/// When the link cannot be simulated at all, or needs contradict each other.
pub fn advise(question: &Question, cancelled: &AtomicBool) -> Result<Option<Advice>, RunError> {
    let mut field = Field::new(question)?;
    let [first, second, third] = field.rounds();
    let mut left = field.tried.len();
    let rounds =
        [(first, Some((REACH[0], second))), (second, Some((REACH[1], third))), (third, None)];
    for (runs, next) in rounds {
        if !field.play(left, runs, cancelled)? {
            return Ok(None);
        }
        field.rank(left);
        let Some(((count, near), runs)) = next else { break };
        left = field.hopeful(count.max(field.near(near)).min(left));
        left = field.affordable(left, runs).max(LEAST.min(left));
    }
    Ok(Some(field.told()))
}

/// Simulates every candidate as often as [`advise`] does the best, and ranks.
///
/// # Errors
///
/// As [`advise`].
pub fn brute_force(
    question: &Question,
    cancelled: &AtomicBool,
) -> Result<Option<Advice>, RunError> {
    let mut field = Field::new(question)?;
    let [_, _, runs] = field.rounds();
    let all = field.tried.len();
    if !field.play(all, runs, cancelled)? {
        return Ok(None);
    }
    field.rank(all);
    Ok(Some(field.told()))
}

/// A candidate with its runs.
struct Tried {
    protocol: Protocol,
    runs: Vec<TransferMetrics>,
    /// The same with half of the file, where times are drawn on.
    halves: Vec<TransferMetrics>,
}

impl Tried {
    /// Whether another run would be the same: no loss is drawn, and the first runs did not differ.
    fn is_settled(&self) -> bool {
        let times = || self.runs.iter().map(|run| run.delivered_s.unwrap_or(f64::INFINITY));
        let slowest = times().fold(0.0, f64::max);
        self.runs.len() > 1
            && self.runs.iter().all(|run| !run.bound_is_mean)
            && times()
                .all(|time| time.total_cmp(&slowest).is_eq() || slowest - time < 1e-3 * slowest)
    }

    /// Packets of a run in both directions, with those of its half, in the mean.
    fn packets(&self) -> u64 {
        let mean = |runs: &[TransferMetrics]| {
            let packets = |run: &TransferMetrics| {
                run.packets_str.unwrap_or_default() + run.packets_rts.unwrap_or_default()
            };
            runs.iter().map(packets).sum::<u64>() / (runs.len() as u64).max(1)
        };
        mean(&self.runs) + mean(&self.halves)
    }
}

/// The candidates, the best first once they are ranked.
struct Field<'a> {
    question: &'a Question,
    /// Octets that are simulated.
    size: u64,
    whole: Plan,
    half: Option<Plan>,
    tried: Vec<Tried>,
}

impl<'a> Field<'a> {
    fn new(question: &'a Question) -> Result<Self, SpecError> {
        let protocols = candidates(question)?;
        let most = (SIMULATED_MAX / u64::from(question.receivers.max(1))).max(SIMULATED_MIN);
        let size = question.size.bytes().min(most);
        let plan = |size: u64| -> Result<Plan, SpecError> {
            let content = crate::run::made_up(question.seed, 0, size)?;
            Ok(question.plan(content))
        };
        let is_whole = size == question.size.bytes();
        let half = if is_whole { None } else { Some(plan(size / 2)?) };
        let tried = |protocol| Tried { protocol, runs: Vec::new(), halves: Vec::new() };
        let tried = protocols.into_iter().map(tried).collect();
        Ok(Self { question, size, whole: plan(size)?, half, tried })
    }

    /// How many runs each has after each round: many of small files.
    fn rounds(&self) -> [u32; 3] {
        let octets = self.size.saturating_mul(u64::from(self.question.receivers)).max(1);
        let some = |all: u64, least: u32, most: u32| {
            u32::try_from(all / octets).unwrap_or(most).clamp(least, most)
        };
        [some(20_000_000, 2, 16), some(100_000_000, 8, 64), some(200_000_000, 20, 100)]
    }

    /// Runs the first so many until each has so many runs; whether it was not cancelled.
    fn play(&mut self, count: usize, runs: u32, cancelled: &AtomicBool) -> Result<bool, RunError> {
        let settled: Vec<_> = self.tried[..count].iter().map(Tried::is_settled).collect();
        let halved = self.half.as_ref().map(|plan| (plan, true));
        for (plan, is_half) in [(&self.whole, false)].into_iter().chain(halved) {
            let mut tasks = Vec::new();
            for (tried, _) in self.tried.iter().zip(&settled).filter(|(_, settled)| !**settled) {
                let before = if is_half { &tried.halves } else { &tried.runs };
                let from = u32::try_from(before.len()).unwrap_or(runs);
                tasks.extend((from..runs).map(|run| (&tried.protocol, run)));
            }
            let Some(found) = compare::measure(plan, &tasks, cancelled, &|| ())? else {
                return Ok(false);
            };
            let names: Vec<_> = tasks.iter().map(|(protocol, _)| (*protocol).clone()).collect();
            for (name, metrics) in names.into_iter().zip(found) {
                if let Some(tried) = self.tried.iter_mut().find(|tried| tried.protocol == name) {
                    let to = if is_half { &mut tried.halves } else { &mut tried.runs };
                    to.push(metrics);
                }
            }
        }
        Ok(true)
    }

    /// Sorts the first so many by how often the file comes, then by when. Those behind them were left
    /// there with fewer runs, whose mean may be a lucky one.
    fn rank(&mut self, count: usize) {
        let key = |tried: &Tried| {
            let candidate = self.candidate(tried);
            (candidate.success, candidate.mean_s.unwrap_or(f64::INFINITY))
        };
        let mut ranked: Vec<_> = self.tried[..count].iter().map(key).zip(0..).collect();
        ranked.sort_by(|((success_a, time_a), _), ((success_b, time_b), _)| {
            success_b.total_cmp(success_a).then(time_a.total_cmp(time_b))
        });
        let behind = self.tried.split_off(count);
        let mut first: Vec<_> = self.tried.drain(..).map(Some).collect();
        self.tried = ranked.into_iter().filter_map(|(_, index)| first[index].take()).collect();
        self.tried.extend(behind);
    }

    /// How many, from the first on, take no longer than so many times what the first does.
    fn near(&self, times: f64) -> usize {
        let mean = |tried: &Tried| self.candidate(tried).mean_s.unwrap_or(f64::INFINITY);
        let best = self.tried.first().map_or(0.0, mean);
        self.tried.iter().take_while(|tried| mean(tried) <= times * best).count()
    }

    /// For how many, from the first on, there are packets enough to have so many runs of each.
    fn affordable(&self, count: usize, runs: u32) -> usize {
        let receivers = u64::from(self.question.receivers.max(1));
        let mut packets = 0_u64;
        let cost = |tried: &Tried| {
            let more = (runs as usize).saturating_sub(tried.runs.len()) as u64;
            match tried.is_settled() {
                true => 0,
                false => tried.packets().saturating_mul(more).saturating_mul(receivers),
            }
        };
        let mut fits = |tried: &&Tried| {
            packets = packets.saturating_add(cost(tried));
            packets <= PACKETS_MAX
        };
        self.tried[..count].iter().take_while(|tried| fits(tried)).count()
    }

    /// Puts those of the first so many behind the others of them that cannot become the best; how many
    /// may.
    fn hopeful(&mut self, count: usize) -> usize {
        let Some(first) = self.tried.first().map(|tried| self.candidate(tried)) else {
            return count;
        };
        let Some(best) = first.mean_s else { return count };
        let hopes = |tried: &Tried| match self.candidate(tried).interval_s {
            Some((fastest, _)) => fastest <= HOPELESS * best,
            // What never came cannot come as often as what always did.
            None => first.success < 1.0,
        };
        let hopes: Vec<_> = self.tried[..count].iter().map(hopes).collect();
        let behind = self.tried.split_off(count);
        let (with, without): (Vec<_>, Vec<_>) =
            self.tried.drain(..).zip(&hopes).partition(|(_, hopes)| **hopes);
        let left = with.len();
        self.tried = with.into_iter().chain(without).map(|(tried, _)| tried).collect();
        self.tried.extend(behind);
        left
    }

    /// Whether the file was there, whoever knew of it.
    fn came(&self, run: &TransferMetrics) -> bool {
        if self.question.has_return { run.completed } else { run.verified }
    }

    fn candidate(&self, tried: &Tried) -> Candidate {
        let times = |runs: &[TransferMetrics]| -> Vec<f64> {
            let came = runs.iter().filter(|run| self.came(run));
            came.filter_map(|run| run.delivered_s).collect()
        };
        let shorter = mean(&times(&tried.halves));
        let simulated = times(&tried.runs);
        // What each octet takes that was not simulated.
        let rest = self.question.size.bytes() - self.size;
        let more = match &self.half {
            Some(half) if !simulated.is_empty() && shorter > 0.0 => {
                let octets = (self.size - half.content.len() as u64).max(1);
                (mean(&simulated) - shorter).max(0.0) / octets as f64 * rest as f64
            }
            Some(_) | None => 0.0,
        };
        let mut all: Vec<_> = simulated.iter().map(|time| time + more).collect();
        all.sort_by(f64::total_cmp);
        let deadline = self.question.deadline.map(|span| span.duration().as_secs_f64());
        let in_time = all.iter().filter(|time| deadline.is_none_or(|most| **time <= most)).count();
        let at = |share: f64| {
            let last = all.len().checked_sub(1)?;
            all.get((share * last as f64).round() as usize).copied()
        };
        let average = |of: &dyn Fn(&TransferMetrics) -> Option<f64>| {
            let some: Vec<_> = tried.runs.iter().filter_map(of).collect();
            (!some.is_empty()).then(|| mean(&some))
        };
        let mut failures = BTreeMap::new();
        for run in tried.runs.iter().filter(|run| !self.came(run)) {
            let why = run.failure.clone().unwrap_or_else(|| "the file is not whole".to_owned());
            *failures.entry(why).or_default() += 1;
        }
        let scale = self.question.size.bytes() as f64 / self.size.max(1) as f64;
        Candidate {
            protocol: tried.protocol.clone(),
            runs: tried.runs.len(),
            success: in_time as f64 / tried.runs.len().max(1) as f64,
            mean_s: (!all.is_empty()).then(|| mean(&all)),
            interval_s: at(0.05).zip(at(0.95)),
            bound_s: average(&|run| run.bound_s).filter(|_| scale <= 1.0),
            ready_s: average(&|run| run.ready_s),
            packets_ratio: average(&|run| {
                let least = run.file_bytes.div_ceil(run.bound_payload.max(1)).max(1);
                run.packets_str.map(|packets| packets as f64 / least as f64)
            }),
            failures,
        }
    }

    fn told(&self) -> Advice {
        let runs = self.tried.iter().map(|tried| tried.runs.len() + tried.halves.len()).sum();
        let ranking = self.tried.iter().map(|tried| self.candidate(tried)).collect();
        Advice { ranking, extrapolated: self.half.is_some(), runs }
    }
}

impl Question {
    /// What is simulated, with a file of this content.
    fn plan(&self, content: Bytes) -> Plan {
        let mut link = self.link.clone();
        if !self.has_return {
            for hop in &mut link.hops {
                let back = LinkSpec { per: Some(Probability(1.0)), ..hop.way_back() };
                hop.back = Some(Box::new(back));
            }
        }
        Plan {
            receivers: self.receivers,
            relay: self.relay,
            seed: self.seed,
            jobs: self.jobs,
            ..Plan::of(link, Vec::new(), content)
        }
    }

    /// The world in which a protocol was simulated, with all of the file.
    ///
    /// # Errors
    ///
    /// When the link contradicts itself.
    pub fn scenario(&self, protocol: &Protocol) -> Result<crate::scenario::Scenario, SpecError> {
        let mut scenario = self.plan(Bytes::new()).scenario(protocol, self.seed)?;
        for transfer in &mut scenario.transfers {
            transfer.size = Some(self.size);
        }
        Ok(scenario)
    }
}
