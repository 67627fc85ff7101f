//! The candidates of a question with their runs.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use transport::protocol::Protocol;
use transport::text::SpecError;

use super::capacity;
use super::estimate::{Estimate, Facts, Sample, estimate};
use super::needs::{coded, is_controlled, possible, simplicity};
use super::one_way::OneWay;
use super::search::look;
use super::tried::{EVENTS_PER_PACKET, Tried};
use super::{Advice, Basis, CUT, Candidate, MANY_RUNS, MEMORY_MAX, PACKETS_PER_S, Question};
use crate::compare::{self, Measured, Plan};
use crate::link_spec::LinkSpec;
use crate::metrics::TransferMetrics;
use crate::parallel;
use crate::run::RunError;
use crate::stats::{Summary, mean};

/// Estimated packets in both directions per packet of the file, before simulation.
const PACKETS_RATIO: f64 = 1.5;
/// Runs per shorter file.
const SHORT_RUNS: u32 = 2;
/// Minimum packets of the largest shorter file: several blocks of codes.
const SHORT_PACKETS: u64 = 512;
/// Packets of the largest shorter file for several receivers, whose times are not estimated.
const GROUP_PACKETS: u64 = 64;
/// Shares of the budget for the first round, the second, and shorter files if there are any.
const FIRST: f64 = 0.3;
const SECOND: f64 = 0.3;
const SHORT: f64 = 0.15;
/// Maximum packets of the second and the third round: more runs change nothing.
const ROUND_MAX: f64 = 1_200_000.0;
/// Minimum number of transports in the second and the third round, and the factor on the best time
/// within which further transports reach these rounds.
const REACH: [(usize, f64); 2] = [(8, 1.05), (3, 1.02)];
/// Factor on the best mean time above which a transport's fastest run excludes it from further
/// runs.
const HOPELESS: f64 = 1.5;
/// Maximum transports that send the whole file in the first batch.
const FINALISTS: usize = 6;
/// Repetition of long files. Transports within the factor `CLOSE` of the best time repeat until
/// the standard error is below the share `CERTAIN` of the mean, or up to `RUNS_MAX` runs.
const CLOSE: f64 = 1.05;
const CERTAIN: f64 = 0.004;
const RUNS_MAX: usize = 12;
/// Packets per packet that its file needs with losses below which a run of the first rounds never
/// ends early.
const RUN_LEAST: f64 = 5.0;
/// Factor on the packets that shorter files promise below which a run with the whole file never
/// ends early.
const WHOLE_LEAST: f64 = 2.0;
/// Round trips of the largest shorter file from which a code over whole files is estimated.
const CODED_ROUNDS: f64 = 2.0;
/// Factor within which times tie, and factor within which means tie if they agree within their
/// noise.
const TIE: f64 = 1.005;
const NOISY_TIE: f64 = 1.02;

/// Candidates, best first once they are ranked.
pub(super) struct Field<'a> {
    question: &'a Question,
    /// Remaining packets of the budget.
    budget: f64,
    /// Events of all runs.
    events: u64,
    /// Sizes of the shorter files; `None` if every run has the whole file.
    short: Option<[u64; 3]>,
    facts: Facts,
    is_stationary: bool,
    tried: Vec<Tried>,
}

impl<'a> Field<'a> {
    pub(super) fn new(
        question: &'a Question,
        protocols: Vec<Protocol>,
        budget: f64,
    ) -> Result<Self, SpecError> {
        let first = protocols.first().ok_or_else(|| SpecError::invalid("no transport is left"))?;
        let scenario = question.plan(Bytes::new()).scenario(first, question.seed)?;
        let facts = look(&scenario, question.size.bytes())?;
        let count = protocols.len() as f64;
        let receivers = f64::from(question.receivers.max(1));
        let packets = question.size.bytes().div_ceil(facts.payload).max(1) as f64;
        let whole = count * packets * receivers * PACKETS_RATIO;
        let is_short = f64::from(SHORT_RUNS) * whole > FIRST * budget;
        let share = SHORT * budget / (f64::from(SHORT_RUNS) * 1.75 * whole);
        let largest = (question.size.bytes() as f64 * share) as u64;
        let least = if question.receivers == 1 { SHORT_PACKETS } else { GROUP_PACKETS };
        let largest = largest.max(least * facts.payload).min(question.size.bytes() / 2).max(4);
        let modes = if question.has_return { Vec::new() } else { OneWay::modes(&facts) };
        let mut tried: Vec<_> = protocols.into_iter().map(Tried::new).collect();
        for mode in modes {
            let Some(protocol) = coded() else { break };
            let settings = Some(mode.settings(&protocol)?);
            let world = |_: &Protocol| question.world(&protocol, Some(mode));
            if possible(vec![protocol.clone()], world).is_err() {
                break;
            }
            tried.push(Tried { one_way: Some(mode), settings, ..Tried::new(protocol) });
        }
        Ok(Self {
            question,
            budget,
            events: 0,
            short: is_short.then_some([largest / 4, largest / 2, largest]),
            facts,
            is_stationary: question.has_return
                && question.receivers == 1
                && question
                    .link
                    .hops
                    .iter()
                    .all(|hop| is_steady(hop) && is_steady(&hop.way_back())),
            tried,
        })
    }

    /// Simulates as much as the budget allows. Returns `false` if it was cancelled.
    pub(super) fn play(&mut self, cancelled: &AtomicBool) -> Result<bool, RunError> {
        match self.short {
            _ if !self.facts.is_possible => Ok(true),
            None => self.eliminate(cancelled),
            Some(sizes) => Ok(self.survey(sizes, cancelled)? && self.finish(cancelled)?),
        }
    }

    /// Simulates whole files, in rounds.
    fn eliminate(&mut self, cancelled: &AtomicBool) -> Result<bool, RunError> {
        let all = self.budget;
        let bytes = self.question.size.bytes().saturating_mul(self.question.receivers.into());
        let some = |of: u64, least: u32, most: u32| {
            u32::try_from(of / bytes.max(1)).unwrap_or(most).clamp(least, most)
        };
        let mut left = self.tried.len();
        let most = FIRST * all / left as f64;
        if !self.run(left, 1, most, cancelled)? {
            return Ok(false);
        }
        // The first run of each shows what the others cost.
        let packets = (FIRST * all).min(self.budget);
        let first = self.affordable_runs(left, some(20_000_000, SHORT_RUNS, 16), packets);
        if !self.run(left, first, most, cancelled)? {
            return Ok(false);
        }
        self.rank(left);
        let rounds = [some(100_000_000, 8, 64), some(200_000_000, 20, 100)];
        for (runs, (least, near)) in rounds.into_iter().zip(REACH) {
            left = self.hopeful(least.max(self.near(self.reach(near))).min(left));
            let packets = (SECOND * all).min(ROUND_MAX).min(self.budget);
            let runs = self.affordable_runs(left.min(3), runs, packets);
            left = self.affordable(left, runs, packets).max(3.min(left));
            if !self.run(left, runs, most, cancelled)? {
                return Ok(false);
            }
            self.rank(left);
        }
        Ok(true)
    }

    /// Simulates shorter files of three sizes with every transport.
    fn survey(&mut self, sizes: [u64; 3], cancelled: &AtomicBool) -> Result<bool, RunError> {
        let content = crate::content::made_up(self.question.seed, 0, sizes[2])?;
        let which: Vec<_> = (0..self.tried.len())
            .flat_map(|index| (0..SHORT_RUNS).map(move |run| (index, run)))
            .collect();
        let most = SHORT * self.budget / (sizes.len() * which.len()) as f64;
        for (index, size) in sizes.into_iter().enumerate() {
            let content = content.slice(..usize::try_from(size).unwrap_or(0));
            let Some(found) = self.measured(&content, &which, most, cancelled)? else {
                return Ok(false);
            };
            for (tried, runs) in self.tried.iter_mut().zip(found.chunks(SHORT_RUNS as usize)) {
                tried.short[index] = runs.to_vec();
            }
        }
        Ok(true)
    }

    /// Simulates the whole file with the transports that may be the best.
    fn finish(&mut self, cancelled: &AtomicBool) -> Result<bool, RunError> {
        self.order();
        let size = self.question.size.bytes();
        let copies = self.question.copies();
        let costs: Vec<_> = self.tried.iter().map(|tried| self.whole_cost(tried)).collect();
        if copies > MEMORY_MAX || costs.first().is_none_or(|c| *c > self.budget) {
            return Ok(true);
        }
        let mut plan = self.question.plan(crate::content::made_up(self.question.seed, 0, size)?);
        // Another ranking may run at the same time.
        let memory = if self.question.is_controlled() { MEMORY_MAX / 2 } else { MEMORY_MAX };
        let at_once = usize::try_from(memory / copies.max(1)).unwrap_or(1);
        let cores = parallel::cores();
        plan.jobs = Some(plan.jobs.unwrap_or(cores).min(at_once).max(1));
        let batch = self.fitting(&costs, |index, _| index < FINALISTS);
        if !self.whole(&plan, &costs, &batch, cancelled)? {
            return Ok(false);
        }
        // Transports that may still be faster follow, and then the best again with other seeds.
        let best = self.best_whole();
        let hopes = self.fitting(&costs, |_, tried: &Tried| {
            tried.runs.is_empty() && self.optimistic(tried) < best * self.reach(NOISY_TIE)
        });
        if !self.whole(&plan, &costs, &hopes, cancelled)? {
            return Ok(false);
        }
        for _ in 0..RUNS_MAX {
            let best = self.best_whole();
            let again = self.fitting(&costs, |_, tried: &Tried| {
                self.mean_of(tried).is_some_and(|mean| mean <= best * self.reach(CLOSE))
                    && !self.is_certain(tried)
            });
            if again.is_empty() {
                break;
            }
            if !self.whole(&plan, &costs, &again, cancelled)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Comparison of this content whose runs end once they take `most` packets of the budget.
    fn plan(&self, content: Bytes, most: f64) -> Plan {
        Plan { events: Some((most * EVENTS_PER_PACKET) as u64), ..self.question.plan(content) }
    }

    /// Results of the runs with these numbers of transports, of `most` packets each, or many times
    /// what the file needs. Runs that end early are repeated while their part of the budget doubles.
    /// `None` if it was cancelled.
    fn measured(
        &mut self,
        content: &Bytes,
        which: &[(usize, u32)],
        most: f64,
        cancelled: &AtomicBool,
    ) -> Result<Option<Vec<Measured>>, RunError> {
        let packets = (content.len() as u64).div_ceil(self.facts.payload).max(1) as f64;
        let arriving = (1.0 - self.facts.loss_there).max(0.1);
        let least = RUN_LEAST * packets / arriving * f64::from(self.question.receivers.max(1));
        let mut most = most.max(least);
        let mut found: Vec<Option<Measured>> = vec![None; which.len()];
        loop {
            let is_open = |at: &usize| found[*at].as_ref().is_none_or(|run| run.is_cut);
            let open: Vec<_> = (0..which.len()).filter(is_open).collect();
            let plan = self.plan(content.clone(), most);
            let task = |(index, run): (usize, u32)| self.tried[index].task(run);
            let tasks: Vec<_> = open.iter().map(|at| task(which[*at])).collect();
            let Some(runs) = compare::measure(&plan, &tasks, cancelled, &|| ())? else {
                return Ok(None);
            };
            for (at, run) in open.into_iter().zip(runs) {
                self.charge(which[at].0, &run);
                found[at] = Some(run);
            }
            let cut = found.iter().flatten().filter(|run| run.is_cut).count();
            let part = FIRST * self.budget / cut.max(1) as f64;
            if cut == 0 || part < 2.0 * most {
                return Ok(Some(found.into_iter().flatten().collect()));
            }
            most = part;
        }
    }

    /// Takes a run of a transport from the budget.
    fn charge(&mut self, index: usize, run: &Measured) {
        let runs = std::slice::from_ref(run);
        self.budget -= self.tried[index].packets(runs, self.question.receivers);
        self.events += run.events;
    }

    /// Factor on the best time within which transports may be recommended.
    fn reach(&self, factor: f64) -> f64 {
        if self.question.thrifty { factor.max(capacity::WITHIN) } else { factor }
    }

    /// Whether more runs would hardly change the mean of a transport.
    fn is_certain(&self, tried: &Tried) -> bool {
        let certain = |summary: Summary| summary.sem <= CERTAIN * summary.mean;
        // A single run does not show the spread, but long files without congestion control have
        // little.
        let one_suffices = tried.runs.len() == 1
            && !is_controlled(&tried.protocol)
            && self.mean_of(tried).is_some_and(|mean| self.facts.rtt_s <= CERTAIN * mean);
        tried.is_settled()
            || one_suffices
            || tried.runs.len() > 1
                && Summary::from_samples(&self.times(&tried.runs)).is_some_and(certain)
    }

    /// Indices of the candidates that `admits` accepts, in order, within the budget.
    fn fitting(&self, costs: &[f64], admits: impl Fn(usize, &Tried) -> bool) -> Vec<usize> {
        let mut left = self.budget;
        let admitted = (0..self.tried.len()).filter(|index| admits(*index, &self.tried[*index]));
        admitted
            .take_while(|index| {
                left -= costs[*index];
                left >= 0.0
            })
            .collect()
    }

    /// Runs each of these once more with the whole file. A run ends once it takes its part of the
    /// budget, if that is far more than the shorter files promised.
    fn whole(
        &mut self,
        plan: &Plan,
        costs: &[f64],
        which: &[usize],
        cancelled: &AtomicBool,
    ) -> Result<bool, RunError> {
        let dearest = which.iter().map(|index| costs[*index]).fold(0.0, f64::max);
        let most = (WHOLE_LEAST * dearest).max(self.budget / which.len().max(1) as f64);
        let plan = Plan { events: Some((most * EVENTS_PER_PACKET) as u64), ..plan.clone() };
        let task = |index: &usize| {
            let tried = &self.tried[*index];
            tried.task(u32::try_from(tried.runs.len()).unwrap_or(u32::MAX))
        };
        let tasks: Vec<_> = which.iter().map(task).collect();
        let Some(found) = compare::measure(&plan, &tasks, cancelled, &|| ())? else {
            return Ok(false);
        };
        for (index, measured) in which.iter().zip(found) {
            self.charge(*index, &measured);
            self.tried[*index].runs.push(measured);
        }
        Ok(true)
    }

    /// Runs the first `count` until each has `runs` runs of the whole file, of at most `most`
    /// packets each.
    fn run(
        &mut self,
        count: usize,
        runs: u32,
        most: f64,
        cancelled: &AtomicBool,
    ) -> Result<bool, RunError> {
        let content = crate::content::made_up(self.question.seed, 0, self.question.size.bytes())?;
        let open = |tried: &Tried| {
            let from = u32::try_from(tried.runs.len()).unwrap_or(runs);
            if tried.is_settled() { runs..runs } else { from..runs }
        };
        let which: Vec<_> = self.tried[..count]
            .iter()
            .enumerate()
            .flat_map(|(index, tried)| open(tried).map(move |run| (index, run)))
            .collect();
        let Some(found) = self.measured(&content, &which, most, cancelled)? else {
            return Ok(false);
        };
        for ((index, _), measured) in which.into_iter().zip(found) {
            self.tried[index].runs.push(measured);
        }
        Ok(true)
    }
}

/// Whether a link is constant over time.
fn is_steady(link: &LinkSpec) -> bool {
    link.rate_steps.is_none()
        && link.delay_points.is_none()
        && link.bucket.is_none()
        && link.outages.as_ref().is_none_or(Vec::is_empty)
        && link.outage_every.is_none()
        && link.contacts.is_none()
        && !link.errors.has_positional()
}

/// Results of the runs.
impl Field<'_> {
    /// Packets of one run with the whole file, extrapolated from shorter ones.
    fn whole_cost(&self, tried: &Tried) -> f64 {
        let Some([.., largest]) = self.short else { return 0.0 };
        let runs = &tried.short[2];
        let each = tried.packets(runs, self.question.receivers) / runs.len().max(1) as f64;
        each.max(1.0) * self.question.size.bytes() as f64 / largest.max(1) as f64
    }

    /// Whether the file was delivered, confirmed or not.
    fn completed(&self, run: &Measured) -> bool {
        if self.question.has_return { run.metrics.completed } else { run.metrics.verified }
    }

    fn times(&self, runs: &[Measured]) -> Vec<f64> {
        let completed = runs.iter().filter(|run| self.completed(run));
        completed.filter_map(|run| run.metrics.delivered_s).collect()
    }

    fn mean_of(&self, tried: &Tried) -> Option<f64> {
        let times = self.times(&tried.runs);
        (!times.is_empty() && times.len() == tried.runs.len()).then(|| mean(&times))
    }

    fn best_whole(&self) -> f64 {
        let means = self.tried.iter().filter_map(|tried| self.mean_of(tried));
        means.fold(f64::INFINITY, f64::min)
    }

    /// Estimated time of the whole file, whether or not it may be reported.
    fn estimate(&self, tried: &Tried) -> Option<Estimate> {
        let sizes = self.short?;
        let sample = |(runs, size): (&Vec<Measured>, u64)| {
            let delivered = Summary::from_samples(&self.times(runs))?;
            let bounds: Vec<_> = runs.iter().filter_map(|run| run.metrics.bound_s).collect();
            let bound_s = mean(&bounds);
            let all = self.times(runs).len() == runs.len();
            all.then_some(Sample { size, delivered, runs: runs.len(), bound_s })
        };
        let samples: Vec<_> = tried.short.iter().zip(sizes).filter_map(sample).collect();
        let samples: &[Sample; 3] = samples.as_slice().try_into().ok()?;
        let size = self.question.size.bytes();
        let is_controlled = is_controlled(&tried.protocol);
        Some(estimate(samples, size, self.facts.bound_s?, &self.facts, is_controlled))
    }

    /// Whether shorter files predict the whole one. Those of a code over whole files must last for
    /// round trips: below that, the parity sent without a request is another share of the time.
    fn predicts(&self, tried: &Tried) -> bool {
        let bound_s = tried.short[2].first().and_then(|run| run.metrics.bound_s);
        !tried.protocol.codes_files()
            || bound_s.is_some_and(|bound_s| bound_s >= CODED_ROUNDS * self.facts.rtt_s)
    }

    /// Minimum time consistent with shorter files; infinite if they failed.
    fn optimistic(&self, tried: &Tried) -> f64 {
        self.estimate(tried).map_or(f64::INFINITY, |found| found.promise_s)
    }

    /// Sorts by the likely times estimated from shorter files; ties with the best by simplicity.
    fn order(&mut self) {
        let likely: Vec<_> = self
            .tried
            .iter()
            .map(|tried| self.estimate(tried).map_or(f64::INFINITY, |found| found.likely_s))
            .collect();
        let best = likely.iter().copied().fold(f64::INFINITY, f64::min);
        let relay = self.question.relay;
        let key = |likely: f64| if likely <= TIE * best { best } else { likely };
        let mut keyed: Vec<_> = likely.into_iter().map(key).zip(self.tried.drain(..)).collect();
        keyed.sort_by(|(a, x), (b, y)| {
            a.total_cmp(b)
                .then_with(|| simplicity(&x.protocol, relay).cmp(&simplicity(&y.protocol, relay)))
        });
        self.tried = keyed.into_iter().map(|(_, tried)| tried).collect();
    }

    /// Sorts the first `count` by success rate, then by time. Candidates behind them have fewer
    /// runs, so their mean may be luck.
    fn rank(&mut self, count: usize) {
        let behind = self.tried.split_off(count);
        let first: Vec<_> = self.tried.drain(..).collect();
        let mut keyed: Vec<_> = first
            .into_iter()
            .map(|tried| {
                let found = self.candidate(&tried);
                let success = found.success.unwrap_or_default();
                ((success, found.mean_s.unwrap_or(f64::INFINITY)), tried)
            })
            .collect();
        keyed.sort_by(|((success_a, time_a), _), ((success_b, time_b), _)| {
            success_b.total_cmp(success_a).then(time_a.total_cmp(time_b))
        });
        self.tried = keyed.into_iter().map(|(_, tried)| tried).collect();
        self.tried.extend(behind);
    }

    /// Number of transports, from the first on, within `times` of the best time.
    fn near(&self, times: f64) -> usize {
        let mean = |tried: &Tried| self.candidate(tried).mean_s.unwrap_or(f64::INFINITY);
        let best = self.tried.first().map_or(0.0, mean);
        self.tried.iter().take_while(|tried| mean(tried) <= times * best).count()
    }

    fn cost(&self, tried: &Tried, runs: u32) -> f64 {
        let more = (runs as usize).saturating_sub(tried.runs.len()) as f64;
        let packets = tried.packets(&tried.runs, self.question.receivers);
        let each = packets / tried.runs.len().max(1) as f64;
        if tried.is_settled() { 0.0 } else { each * more }
    }

    /// Number of the first transports that can have `runs` runs each within this number of packets.
    fn affordable(&self, count: usize, runs: u32, mut packets: f64) -> usize {
        let fits = |tried: &&Tried| {
            packets -= self.cost(tried, runs);
            packets >= 0.0
        };
        self.tried[..count].iter().take_while(fits).count()
    }

    /// Number of runs of each of the first transports within this number of packets, up to `runs`.
    fn affordable_runs(&self, count: usize, runs: u32, packets: f64) -> u32 {
        let mut runs = runs;
        while runs > 1 && self.affordable(count, runs, packets) < count {
            runs -= 1;
        }
        runs
    }

    /// Moves candidates among the first `count` that cannot become the best behind the others.
    /// Returns the number of the remaining ones.
    fn hopeful(&mut self, count: usize) -> usize {
        let Some(first) = self.tried.first().map(|tried| self.candidate(tried)) else {
            return count;
        };
        let Some(best) = first.mean_s else { return count };
        let hopes = |tried: &Tried| match self.candidate(tried).interval_s {
            Some((fastest, _)) => fastest <= HOPELESS * best,
            // A transport that never completed cannot match one that always did.
            None => first.success.is_some_and(|success| success < 1.0),
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

    fn candidate(&self, tried: &Tried) -> Candidate {
        let deadline = self.question.deadline.map(|span| span.duration().as_secs_f64());
        let bound = self.facts.bound_s;
        let average = |of: &dyn Fn(&TransferMetrics) -> Option<f64>| {
            let runs = if tried.runs.is_empty() { &tried.short[2] } else { &tried.runs };
            let some: Vec<_> = runs.iter().filter_map(|run| of(&run.metrics)).collect();
            (!some.is_empty()).then(|| mean(&some))
        };
        let mut failures = BTreeMap::new();
        let failed = tried.runs.iter().chain(tried.short.iter().flatten());
        for run in failed.filter(|run| !self.completed(run)) {
            let why = match &run.metrics.failure {
                _ if run.is_cut => CUT,
                Some(why) => why,
                None => "the file is incomplete",
            };
            *failures.entry(why.to_owned()).or_default() += 1;
        }
        let mut found = Candidate {
            protocol: tried.protocol.clone(),
            one_way: tried.one_way,
            basis: Basis::Unknown,
            runs: tried.runs.len(),
            // No run meets a deadline that is earlier than light time and rate allow.
            success: deadline.is_some_and(|deadline| deadline < self.facts.floor_s).then_some(0.0),
            mean_s: None,
            interval_s: bound.map(|bound| (bound, None)),
            bound_s: bound,
            ready_s: average(&|run| run.ready_s),
            packets_ratio: average(&|run| {
                let least = run.file_bytes.div_ceil(run.least.bound_payload.max(1)).max(1);
                run.traffic.packets_str.map(|packets| packets as f64 / least as f64)
            }),
            spent: average(&|run| run.spent),
            failures,
        };
        if !tried.runs.is_empty() {
            self.simulated(tried, deadline, &mut found);
        } else if let Some(estimate) =
            self.estimate(tried).filter(|_| self.is_stationary && self.predicts(tried))
        {
            found.basis = Basis::Estimated;
            found.mean_s = Some(estimate.mean_s);
            found.interval_s = Some((estimate.low_s, estimate.high_s));
            found.success = match (deadline, estimate.high_s) {
                // Shorter files were delivered; the success rate of the whole one is unknown.
                (None, _) => None,
                (Some(deadline), _) if estimate.low_s > deadline => Some(0.0),
                (Some(deadline), Some(high)) if high <= deadline => Some(1.0),
                (Some(_), _) => None,
            };
        }
        found
    }

    fn simulated(&self, tried: &Tried, deadline: Option<f64>, found: &mut Candidate) {
        let mut times = self.times(&tried.runs);
        times.sort_by(f64::total_cmp);
        let in_time =
            times.iter().filter(|time| deadline.is_none_or(|most| **time <= most)).count();
        let at = |share: f64| {
            let last = times.len().checked_sub(1)?;
            times.get((share * last as f64).round() as usize).copied()
        };
        found.basis = Basis::Simulated;
        found.success = Some(in_time as f64 / tried.runs.len() as f64);
        // A mean below the mean bound is luck.
        let least = self.facts.bound_s.unwrap_or(0.0);
        found.mean_s = (!times.is_empty()).then(|| mean(&times).max(least));
        // Few runs have no percentiles: minimum and maximum.
        let tails = if times.len() < MANY_RUNS { (0.0, 1.0) } else { (0.05, 0.95) };
        let interval = at(tails.0).zip(at(tails.1));
        found.interval_s = interval.map(|(low, high)| (low, Some(high.max(least))));
    }

    /// Ranks candidates of which some are estimated; rounds have ranked whole files already. Each
    /// comes with its least time.
    fn rank_estimates(&self, ranked: &mut [(Candidate, f64)]) {
        let success = |found: &Candidate| match (found.success, found.basis) {
            (Some(success), _) => success,
            // The order of estimates assumes that all are delivered.
            (None, Basis::Estimated) if self.question.deadline.is_none() => 1.0,
            (None, Basis::Simulated | Basis::Estimated | Basis::Unknown) => -1.0,
        };
        let whole = ranked.iter().filter(|(found, _)| found.basis == Basis::Simulated);
        let best = whole.filter_map(|(found, _)| found.mean_s).fold(f64::INFINITY, f64::min);
        // An estimate precedes a simulation only if its whole interval is below the simulated time.
        let is_faster = |found: &Candidate| {
            let high = found.interval_s.and_then(|(_, high)| high);
            found.basis == Basis::Estimated && high.is_some_and(|high| high < best)
        };
        let group = |found: &Candidate| match found.basis {
            Basis::Simulated | Basis::Estimated | Basis::Unknown if found.success == Some(0.0) => 3,
            Basis::Simulated => 0,
            Basis::Estimated => u8::from(!is_faster(found)),
            Basis::Unknown => 2,
        };
        ranked.sort_by(|(a, low_a), (b, low_b)| {
            group(a)
                .cmp(&group(b))
                .then(success(b).total_cmp(&success(a)))
                .then(a.mean_s.unwrap_or(*low_a).total_cmp(&b.mean_s.unwrap_or(*low_b)))
        });
    }

    /// Returns the ranking: whole simulations first, unless they fail and an estimate does not.
    pub(super) fn advice(&self) -> Advice {
        let runs =
            |tried: &Tried| tried.runs.len() + tried.short.iter().map(Vec::len).sum::<usize>();
        let mut ranked: Vec<_> = self
            .tried
            .iter()
            .map(|tried| (self.candidate(tried), self.optimistic(tried)))
            .collect();
        if self.short.is_some() {
            self.rank_estimates(&mut ranked);
        }
        let mut ranking: Vec<_> = ranked.into_iter().map(|(found, _)| found).collect();
        // What was never delivered has no time, and may have rounds that slow transports lack.
        ranking.sort_by_key(|found| !found.delivers());
        let (tied, thrifty) = if self.question.thrifty {
            let has_deadline = self.question.deadline.is_some();
            (1, Some(capacity::by_capacity(&mut ranking, has_deadline)))
        } else {
            (self.settle_ties(&mut ranking), None)
        };
        let (thrifty, fastest) = thrifty.unzip();
        let first = ranking.first().filter(|best| best.basis != Basis::Simulated);
        let run_s = first.and_then(|best| {
            let tried = self.tried.iter().find(|tried| tried.is(best))?;
            Some(self.whole_cost(tried) / PACKETS_PER_S)
        });
        let runs = self.tried.iter().map(runs).sum();
        Advice {
            ranking,
            tied,
            thrifty,
            fastest: fastest.flatten(),
            dedicated: None,
            controlled: false,
            run_s,
            rate_bps: self.facts.rate_bps,
            return_bps: self.facts.return_bps,
            delay_s: self.facts.delay_s,
            runs,
            events: self.events,
        }
    }

    /// Moves the simplest transport that ties with the best to the front. Returns their number.
    fn settle_ties(&self, ranking: &mut [Candidate]) -> usize {
        let Some(best) = ranking.first() else { return 0 };
        let (Some(mean_s), Basis::Simulated) = (best.mean_s, best.basis) else { return 1 };
        let deviation = |found: &Candidate| {
            let tried = self.tried.iter().find(|tried| tried.is(found));
            let times = tried.map(|tried| self.times(&tried.runs)).unwrap_or_default();
            Summary::from_samples(&times).map_or(0.0, |summary| summary.sem)
        };
        let (success, error) = (best.success, deviation(best));
        let ties = |found: &&Candidate| {
            let Some(other) = found.mean_s else { return false };
            let noise = 2.0 * error.hypot(deviation(found));
            found.basis == Basis::Simulated
                && found.success == success
                && (other <= TIE * mean_s || other <= NOISY_TIE * mean_s && other - mean_s <= noise)
        };
        let tied = ranking.iter().take_while(ties).count().max(1);
        let relay = self.question.relay;
        ranking[..tied]
            .sort_by(|a, b| simplicity(&a.protocol, relay).cmp(&simplicity(&b.protocol, relay)));
        tied
    }
}
