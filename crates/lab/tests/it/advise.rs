//! Advice compared with whole simulations: every number comes from a run of the whole file, or is
//! an interval that contains its result.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use engine::Rng;
use lab::advise::{self, Advice, Basis, Candidate, PACKETS_PER_S, Question};
use lab::content;
use lab::link_spec::{Errors, LinkSpec, RateStep};
use lab::preset::{Preset, Sharing};
use lab::run::{self, Recorders};
use lab::stats::Summary;
use slowlight_lab as lab;
use transport::quantity::Window;
use transport::quantity::{Probability, Rate, Size, Span};

fn seconds(seconds: f64) -> Span {
    Span(Duration::from_secs_f64(seconds))
}

fn question(link: LinkSpec, size: u64) -> Question {
    Question {
        link: Preset::single(link),
        size: Size(size),
        has_return: true,
        receivers: 1,
        relay: false,
        deadline: None,
        thrifty: false,
        sharing: Some(Sharing::Dedicated),
        budget: seconds(15.0),
        seed: 1,
        jobs: None,
    }
}

fn link(rate: u64, delay: f64, per: f64) -> LinkSpec {
    LinkSpec {
        rate: Some(Rate(rate)),
        delay: Some(seconds(delay)),
        errors: Errors { per: Some(Probability(per)), ..Errors::default() },
        ..LinkSpec::default()
    }
}

#[test]
fn transports_too_large_for_a_link_are_no_candidates() {
    let narrow = LinkSpec { mtu: Some(Size(70)), ..geo(0.0) };
    let names: Vec<_> = advice(&question(narrow, 10_000))
        .ranking
        .iter()
        .map(|candidate| candidate.protocol.to_string())
        .collect();
    assert!(names.contains(&"saratoga".to_owned()), "{names:?}");
    assert!(!names.contains(&"norm".to_owned()), "{names:?}");
}

fn geo(per: f64) -> LinkSpec {
    link(10_000_000, 0.25, per)
}

fn outages(windows: &[(f64, f64)]) -> Option<Vec<Window>> {
    let window = |(at, lasts): &(f64, f64)| Window { at: seconds(*at), lasts: seconds(*lasts) };
    Some(windows.iter().map(window).collect())
}

fn advice(question: &Question) -> Advice {
    advise::advise(question, &AtomicBool::new(false)).unwrap().unwrap()
}

/// Simulations of whole files.
struct Truth<'a> {
    question: &'a Question,
    content: Bytes,
    found: BTreeMap<(String, u32), Option<f64>>,
}

impl<'a> Truth<'a> {
    fn new(question: &'a Question) -> Self {
        let content = content::made_up(question.seed, 0, question.size.bytes()).unwrap();
        Self { question, content, found: BTreeMap::new() }
    }

    /// Seconds until delivery with one seed; `None` if the file is not delivered.
    fn run(&mut self, row: &Candidate, run: u32) -> Option<f64> {
        *self.found.entry((row.title(), run)).or_insert_with(|| {
            let mut scenario = self.question.scenario_of(row).unwrap();
            scenario.seed = self.question.seed + u64::from(run);
            let contents = std::slice::from_ref(&self.content);
            let run = run::run(&scenario, contents, Recorders::default()).unwrap();
            let transfer = &run.transfers[0];
            let is_whole =
                if self.question.has_return { transfer.completed } else { transfer.verified };
            let delivered = transfer.delivered_s.filter(|_| is_whole && run.ended == "idle");
            // A lucky run may beat a bound that is a mean over losses, but no other.
            let bound = transfer.bound_s.filter(|_| !transfer.least.bound_is_mean).unwrap_or(0.0);
            assert!(delivered.is_none_or(|time| time >= 0.999_999 * bound), "{transfer:?}");
            delivered
        })
    }

    /// Success rate of `runs` runs, within the deadline if there is one, and the times of all
    /// deliveries.
    fn runs(&mut self, row: &Candidate, runs: u32) -> (f64, Summary) {
        let times: Vec<_> = (0..runs).filter_map(|run| self.run(row, run)).collect();
        let deadline = self.question.deadline.map_or(f64::INFINITY, |d| d.duration().as_secs_f64());
        let in_time = times.iter().filter(|time| **time <= deadline).count();
        (in_time as f64 / f64::from(runs), Summary::from_samples(&times).unwrap_or_default())
    }
}

/// Runs for the comparison with a row that has none of its own.
const BESIDE: u32 = 2;

/// Fails unless a row's numbers match as many runs of the whole file, or its interval contains
/// their mean.
fn holds(label: &str, truth: &mut Truth<'_>, row: &Candidate) {
    let runs = u32::try_from(row.runs).unwrap();
    if row.basis == Basis::Simulated {
        let (success, time) = truth.runs(row, runs);
        assert_eq!(row.success, Some(success), "{label}: {row:?}");
        let delivered = (time.mean > 0.0).then_some(time.mean);
        let differs = row.mean_s.zip(delivered).map(|(found, mean)| (found / mean - 1.0).abs());
        let agrees = row.mean_s.is_some() == delivered.is_some() && differs.unwrap_or(0.0) < 0.02;
        assert!(agrees, "{label}: {row:?}, not {time:?}");
        return;
    }
    let (success, Summary { mean, .. }) = truth.runs(row, BESIDE);
    // If the deadline decides, these runs must meet or miss it as well.
    assert!(row.success.is_none_or(|found| found == success), "{label}: {row:?}, not {success}");
    if let Some((low, high)) = row.interval_s.filter(|_| mean > 0.0) {
        let within = mean >= 0.999 * low && high.is_none_or(|high| mean <= 1.001 * high);
        assert!(within, "{label}: {row:?}, not {mean}");
    }
}

/// Fails if a number is below the bound, or belongs to a row that was not simulated.
fn assert_honest(label: &str, advice: &Advice) {
    for row in advice.ranking.iter().chain(&advice.dedicated) {
        let bound = row.bound_s.unwrap_or(f64::INFINITY);
        assert!(row.mean_s.is_none_or(|mean| mean >= bound), "{label}: {row:?}");
        assert_eq!(row.basis == Basis::Simulated, row.runs > 0, "{label}: {row:?}");
        if row.basis != Basis::Simulated {
            assert!(row.interval_s.is_none_or(|(low, _)| low >= bound), "{label}: {row:?}");
        }
    }
    for row in advice.ranking.iter().filter(|_| advice.controlled) {
        assert!(advise::is_controlled(&row.protocol), "{label}: {row:?}");
    }
}

/// Random question: 9.6 kbit/s to 1 Gbit/s, 1 ms to 22 min, no loss to 0.3, 1 kB to 1 GB, each on
/// a logarithmic scale; some with a thin return link, outages, contacts, rate steps, several
/// receivers, no return link or a deadline.
fn random(seed: u64) -> Question {
    let mut rng = Rng::new(seed, "random link");
    let mut between = |low: f64, high: f64| low * (high / low).powf(rng.unit());
    let rate = between(9.6e3, 1e9);
    let delay = between(1e-3, 1320.0);
    let per = between(1e-6, 0.3);
    // At most a day of bits.
    let size = between(1e3, 1e9).min(rate / 8.0 * 86_400.0);
    let thin = between(1.0, 100.0);
    // A step coprime to a hundred: few seeds have all of the properties.
    let kind = (seed * 61 % 100) as u32;
    let busy = size * 8.0 / rate + delay;
    let cuts: Vec<_> = (1..=3).map(|n| (busy * f64::from(n) * 0.4, busy * 0.2)).collect();
    let passes = [(0.1, 0.4), (0.7, 0.5), (1.5, 1e4)].map(|(at, lasts)| (at * busy, lasts * busy));
    let step = |at, share: f64| RateStep {
        at: seconds(at * busy),
        rate: Rate((rate * share).max(1.0) as u64),
    };
    let steps = vec![step(0.0, 1.0), step(0.4, 0.3), step(1.2, 1.0)];
    let plain = link(rate as u64, delay, per);
    let is_stepped = (50..58).contains(&kind);
    let spec = LinkSpec {
        back: Some(Box::new(LinkSpec {
            rate: Some(Rate((rate / thin) as u64)),
            ..LinkSpec::default()
        })),
        outages: outages(&cuts).filter(|_| (38..50).contains(&kind)),
        rate: plain.rate.filter(|_| !is_stepped),
        rate_steps: is_stepped.then_some(steps),
        contacts: outages(&passes).filter(|_| (58..67).contains(&kind)),
        ..plain
    };
    let deadline = between(1.0, 4.0) * busy;
    Question {
        receivers: if (67..80).contains(&kind) { 2 + kind % 4 } else { 1 },
        has_return: kind < 80,
        sharing: kind.is_multiple_of(2).then_some(Sharing::Dedicated),
        deadline: kind.is_multiple_of(3).then(|| seconds(deadline)),
        budget: seconds(0.6),
        ..question(spec, size as u64)
    }
}

/// Whether a link has a time-dependent setting.
fn has<T>(question: &Question, of: impl Fn(&LinkSpec) -> &Option<T>) -> bool {
    of(&question.link.hops[0]).is_some()
}

#[test]
fn random_links_cover_every_property() {
    let all: Vec<_> = (1..=20).map(random).collect();
    let count = |what: &dyn Fn(&Question) -> bool| all.iter().filter(|q| what(q)).count();
    for (name, found) in [
        ("outages", count(&|q| has(q, |link| &link.outages))),
        ("contacts", count(&|q| has(q, |link| &link.contacts))),
        ("rate steps", count(&|q| has(q, |link| &link.rate_steps))),
        ("several receivers", count(&|q| q.receivers > 1)),
        ("one way", count(&|q| !q.has_return)),
        ("deadline", count(&|q| q.deadline.is_some())),
        ("shared", count(&|q| q.is_controlled())),
    ] {
        assert!(found > 0, "no link with {name}");
    }
}

/// Maximum packets of the runs compared with one advice.
const PACKETS_MAX: f64 = 150_000.0;

#[test]
fn advice_matches_whole_file_runs() {
    let nightly: Option<u64> = std::env::var("SLOWLIGHT_LINKS").ok().map(|n| n.parse().unwrap());
    // At night the budget is about the default one.
    let scale = if nightly.is_some() { 20 } else { 1 };
    let most = PACKETS_MAX * f64::from(scale);
    let (mut checked, mut estimated) = (0, 0);
    for seed in 1..=nightly.unwrap_or(20) {
        let mut question = random(seed);
        question.budget.0 *= scale;
        let label = format!("seed {seed}: {question:?}");
        let found = advice(&question);
        assert_honest(&label, &found);
        let packets = question.size.bytes() as f64 / 1400.0 * f64::from(question.receivers) * 1.5;
        let rows = (most / packets) as usize;
        if rows == 0 {
            continue;
        }
        let mut truth = Truth::new(&question);
        for row in found.ranking.iter().take(rows.min(4)) {
            holds(&label, &mut truth, row);
        }
        // Only rows without a whole simulation may have a wrong estimate.
        let not_whole = found.ranking.iter().filter(|row| row.basis != Basis::Simulated);
        for row in not_whole.take(rows.min(6)) {
            holds(&label, &mut truth, row);
            estimated += usize::from(row.basis == Basis::Estimated);
        }
        let best = &found.ranking[0];
        let runs = best.runs.min(20);
        if best.basis != Basis::Simulated || rows < found.ranking.len() * runs {
            continue;
        }
        checked += 1;
        let runs = u32::try_from(runs).unwrap();
        let (success, time) = truth.runs(best, runs);
        // Statistical error of this number of runs.
        let luck = if runs > 1 { 2.0 / f64::from(runs).sqrt() } else { 0.0 };
        // The interval of an estimate decides whether the row may be the faster one.
        let may_be_faster = |row: &&Candidate| {
            let low = row.interval_s.map(|(low, _)| low);
            row.basis == Basis::Estimated
                && low.zip(best.mean_s).is_some_and(|(low, mean)| low < mean)
        };
        for other in found.ranking.iter().filter(|row| !may_be_faster(row)) {
            let (others, times) = truth.runs(other, runs);
            let noise = 3.0 * times.sem.hypot(time.sem);
            let is_faster = others > 0.0 && times.mean + noise < time.mean / 1.02;
            let is_better = others > success + luck || others >= success && is_faster;
            assert!(!is_better, "{label}: {best:?} has {time:?}, {} {times:?}", other.protocol);
        }
    }
    println!("{checked} winners beside all others, {estimated} estimates beside their truth");
    assert!(checked >= 5 && estimated >= 3, "{checked}, {estimated}");
}

/// Typical links, each with a file: advice is compared with a whole run of its first row and of
/// the first row that was not simulated whole.
fn compared(name: &str, question: &Question) -> Advice {
    let found = advice(question);
    assert_honest(name, &found);
    let mut truth = Truth::new(question);
    holds(name, &mut truth, &found.ranking[0]);
    found
}

fn lunar(outage: &[(f64, f64)]) -> LinkSpec {
    LinkSpec {
        back: Some(Box::new(LinkSpec { rate: Some(Rate(100_000)), ..LinkSpec::default() })),
        outages: outages(outage).filter(|all| !all.is_empty()),
        ..link(5_000_000, 1.3, 1e-3)
    }
}

fn starlink() -> LinkSpec {
    LinkSpec {
        back: Some(Box::new(LinkSpec { rate: Some(Rate(15_000_000)), ..LinkSpec::default() })),
        ..link(100_000_000, 0.02, 0.005)
    }
}

#[test]
fn advice_for_several_receivers_matches_compare() {
    let five = Question { receivers: 5, ..question(geo(1e-3), 10_000_000) };
    let found = compared("10 MB to five", &five);
    let best = &found.ranking[0];
    assert!(best.basis == Basis::Simulated && best.mean_s > Some(8.0), "{best:?}");
    let late = Question { deadline: Some(seconds(6.0)), ..five };
    assert!(advice(&late).ranking.iter().all(|row| row.success == Some(0.0)));
    let two = Question { receivers: 2, ..question(geo(1e-3), 20_000_000) };
    assert!(compared("20 MB to two", &two).ranking[0].mean_s > Some(16.0));
}

#[test]
fn outages_after_the_shorter_files_count() {
    // A fiftieth of 1 GB over the Moon's distance with three outages, within a fiftieth of the budget.
    let cut = lunar(&[(6.0, 12.0), (24.0, 12.0), (42.0, 12.0)]);
    let cut = Question { budget: seconds(0.4), ..question(cut, 20_000_000) };
    let found = compared("20 MB with outages", &cut);
    let first = &found.ranking[0];
    assert!(first.mean_s.is_none_or(|mean| mean > 68.0), "{first:?}");
    assert!(found.ranking.iter().all(|row| row.basis != Basis::Estimated), "{found:?}");
    let deadline = Question { deadline: Some(seconds(36.0)), ..cut };
    assert!(advice(&deadline).ranking.iter().all(|row| row.success == Some(0.0)));
}

#[test]
fn a_file_beyond_memory_is_not_estimated_over_passes() {
    let day = 86_400.0;
    let nights: Vec<_> = (0..7).map(|n| (28_800.0 + day * f64::from(n), 57_600.0)).collect();
    let spec = LinkSpec { outages: outages(&nights), ..link(2_000_000, 600.0, 1e-4) };
    let found = advice(&question(spec, 8_000_000_000));
    assert_honest("8 GB in passes", &found);
    for row in &found.ranking {
        assert_eq!((row.basis, row.mean_s), (Basis::Unknown, None), "{row:?}");
        let (low, high) = row.interval_s.unwrap();
        // 32,000 s of bits reach into the second pass.
        assert!(low > day && high.is_none(), "{row:?}");
    }
}

#[test]
fn a_shared_path_has_congestion_control() {
    let shared =
        Question { sharing: None, budget: seconds(3.0), ..question(starlink(), 10_000_000) };
    let found = compared("10 MB over a shared path", &shared);
    assert!(found.controlled);
    assert!(found.ranking.iter().any(|row| row.protocol.to_string() == "ftp/bbr"));
    let dedicated = found.dedicated.unwrap();
    assert!(!advise::is_controlled(&dedicated.protocol), "{dedicated:?}");
    let mut mine = Question { budget: seconds(3.0), ..question(starlink(), 10_000_000) };
    assert!(!advise::is_controlled(&compared("of one's own", &mine).ranking[0].protocol));
    // The link's entry applies unless the question overrides it.
    mine.sharing = None;
    mine.link.sharing = Some(Sharing::Dedicated);
    assert!(!mine.is_controlled());
    mine.sharing = Some(Sharing::Shared);
    assert!(mine.is_controlled());
}

#[test]
fn ties_go_to_the_simplest() {
    let found = advice(&question(geo(0.0), 1_000_000));
    assert!(found.tied > 1, "{found:?}");
    let first = &found.ranking[0];
    assert_eq!(
        advise::deployment(&first.protocol, false),
        advise::Deployment::Commands,
        "{first:?}"
    );
    assert!(!first.protocol.kind.top().is_fetched);
    for row in &found.ranking[..found.tied] {
        assert!(row.mean_s <= first.mean_s.map(|mean| mean * 1.021), "{row:?}");
    }
}

#[test]
fn more_budget_simulates_more() {
    let within = |budget| Question { budget: seconds(budget), ..question(geo(1e-3), 20_000_000) };
    let short = advice(&within(0.05));
    // What coded transfers of a file take does not follow from shorter ones.
    let is_coded = |row: &Candidate| row.protocol.to_string().contains("/coded");
    let is_estimate = |row: &Candidate| {
        let basis = if is_coded(row) { Basis::Unknown } else { Basis::Estimated };
        row.basis == basis && row.success.is_none()
    };
    assert!(short.ranking.iter().all(is_estimate), "{short:?}");
    assert!(short.run_s.is_some_and(|run_s| run_s * PACKETS_PER_S > 14_000.0), "{short:?}");
    let whole = advice(&within(15.0));
    let best = &whole.ranking[0];
    assert!(best.basis == Basis::Simulated && whole.run_s.is_none(), "{best:?}");
    // The estimates of all that were simulated contain the truth.
    for row in whole.ranking.iter().filter(|row| !is_coded(row)) {
        let estimate = short.ranking.iter().find(|other| other.protocol == row.protocol).unwrap();
        let ((low, high), mean) = (estimate.interval_s.unwrap(), row.mean_s.unwrap());
        assert!(
            mean >= 0.999 * low && high.is_none_or(|high| mean <= high),
            "{estimate:?} {row:?}"
        );
    }
}

#[test]
fn requirements_select_suitable_candidates() {
    let names = |question: &Question| -> Vec<String> {
        advise::candidates(question).unwrap().iter().map(ToString::to_string).collect()
    };
    let plain = question(geo(0.0), 100_000);
    assert!(names(&plain).contains(&"cfdp".to_owned()));
    assert!(!names(&plain).contains(&"cfdp-1".to_owned()));
    let one_way = Question { has_return: false, ..plain.clone() };
    assert!(names(&one_way).contains(&"cfdp-1".to_owned()));
    let relayed = Question { relay: true, ..plain };
    assert!(
        names(&relayed).iter().all(|name| name.starts_with("bp-")
            || name.contains("ltp-t")
            || name.starts_with("cfdp"))
    );
}

#[test]
fn parity_repairs_losses_without_a_return_link() {
    let lossy = Question { has_return: false, ..question(geo(1e-2), 1_000_000) };
    let best = &advice(&lossy).ranking[0];
    let coded = best.one_way.is_some() || best.protocol.to_string() == "norm-fec";
    assert!(coded && best.success == Some(1.0), "{best:?}");
    // A transfer of thousands of packets arrives where a short one mostly does.
    let long = Question { budget: seconds(0.5), ..question(geo(1e-4), 20_000_000) };
    let found = advice(&Question { has_return: false, ..long });
    let once = found.ranking.iter().find(|row| row.protocol.to_string() == "cfdp-1").unwrap();
    assert!(once.basis != Basis::Estimated && once.success != Some(1.0), "{once:?}");
}

#[test]
fn whole_files_are_coded_for_a_link_without_return() {
    let lossy = Question { has_return: false, ..question(link(2_000_000, 1.0, 0.2), 500_000) };
    let found = advice(&lossy);
    // A carousel delivers what a single round does not, so either may be first.
    for row in &found.ranking[..2] {
        let mode = row.one_way.unwrap();
        assert_eq!((row.protocol.to_string().as_str(), mode.loss), ("norm/coded", 0.2));
        assert_eq!(mode.confidence, 0.999);
        assert!(row.success >= Some(advise::SURE) && row.runs >= 8, "{row:?}");
        assert!(row.mean_s.unwrap() < 1.1 * row.bound_s.unwrap(), "{row:?}");
    }
    let best = &found.ranking[0];
    assert_ne!(best.one_way, found.ranking[1].one_way);
    let scenario = lossy.scenario_of(best).unwrap().to_toml().unwrap();
    assert!(scenario.contains("confidence = \"0.999\""), "{scenario}");
}

#[test]
fn links_of_light_minutes_are_not_shared() {
    let unsaid =
        |delay| Question { sharing: None, ..question(link(1_000_000, delay, 0.01), 1_000) };
    assert!(unsaid(0.2).is_controlled() && !unsaid(0.21).is_controlled() && unsaid(0.21).is_far());
    let shared = Question { sharing: Some(Sharing::Shared), ..unsaid(600.0) };
    assert!(shared.is_controlled());
}

#[test]
fn datagrams_suit_bit_errors() {
    let errors = Errors { ber: Some(Probability(1e-4)), ..Errors::default() };
    let spec = LinkSpec { errors, ..link(2_000_000, 1.3, 0.0) };
    let plain = Question { budget: seconds(2.0), ..question(spec, 100_000) };
    let mut suited = plain.clone();
    let size = suited.suit_datagrams().unwrap().unwrap();
    assert!((192..=320).contains(&size.bytes()), "{size}");
    assert_eq!(suited.datagram(), Some(size));
    let best = |question: &Question| advice(question).ranking[0].mean_s.unwrap();
    assert!(best(&suited) < 0.6 * best(&plain));
    // A given size, and losses of whole packets, stay as they are.
    assert_eq!(suited.suit_datagrams().unwrap(), None);
    assert_eq!(question(geo(0.1), 1_000_000).suit_datagrams().unwrap(), None);
}

#[test]
fn a_mean_is_within_its_interval() {
    let few = question(geo(0.1), 100_000);
    for row in advice(&few).ranking.iter().filter(|row| row.runs < advise::MANY_RUNS) {
        let (Some(mean), Some((low, high))) = (row.mean_s, row.interval_s) else { continue };
        assert!(low <= mean && high.is_none_or(|high| mean <= high), "{row:?}");
    }
}

#[test]
fn transports_that_deliver_late_come_before_those_that_do_not() {
    // A bundle does not fit into a contact of 4 s, and a layer does not wait for the next one.
    let every = "2 h+7196 s".parse().unwrap();
    let spec = LinkSpec { outage_every: Some(every), ..link(2_000_000, 0.01, 1e-3) };
    let late = Question {
        deadline: Some(seconds(30.0)),
        budget: seconds(3.0),
        ..question(spec, 3_000_000)
    };
    let found = advice(&late);
    let simulated = found.ranking.iter().filter(|row| row.basis == Basis::Simulated);
    let delivered: Vec<_> = simulated.map(|row| row.mean_s.is_some()).collect();
    assert!(delivered.contains(&true) && delivered.contains(&false), "{found:?}");
    assert!(delivered.is_sorted_by(|a, b| a >= b), "{found:?}");
}

#[test]
fn the_budget_holds_for_events() {
    // Thousands of outages pass within a round trip, and each is an event without a packet.
    let every = "20 ms+10 ms".parse().unwrap();
    let spec = LinkSpec { outage_every: Some(every), ..link(10_000_000, 100.0, 0.0) };
    for (size, budget) in [(10_000, 0.2), (3_000_000, 2.0)] {
        let found = advice(&Question { budget: seconds(budget), ..question(spec.clone(), size) });
        let spent = found.events as f64 / 3.0 / PACKETS_PER_S;
        assert!(spent <= budget, "{size}: {spent} s");
        let is_cut = |row: &Candidate| row.failures.contains_key(advise::CUT);
        assert!(found.ranking.iter().any(is_cut), "{found:?}");
    }
}

#[test]
fn events_after_a_completed_transfer_do_not_count() {
    // Until the lifetime of bundles ends, the link goes down thousands of times.
    let every = "4 s+2 s+2 s".parse().unwrap();
    let spec = LinkSpec { outage_every: Some(every), ..link(1_000_000, 0.2, 0.0) };
    let found = advice(&Question { budget: seconds(1.0), ..question(spec, 400_000) });
    let cut: Vec<_> =
        found.ranking.iter().filter(|row| row.failures.contains_key(advise::CUT)).collect();
    assert!(cut.is_empty(), "{cut:?}");
}

#[test]
fn deadlines_are_met_or_missed() {
    let within = |seconds| Question {
        deadline: Some(Span(Duration::from_secs(seconds))),
        ..question(geo(1e-3), 1_000_000)
    };
    assert_eq!(advice(&within(3)).ranking[0].success, Some(1.0));
    assert_eq!(advice(&within(1)).ranking[0].success, Some(0.0));
}

#[test]
fn long_files_in_full() {
    if std::env::var_os("SLOWLIGHT_LINKS").is_none() {
        return;
    }
    let giga = 1_000_000_000;
    let cut = [(300.0, 600.0), (1200.0, 600.0), (2100.0, 600.0)];
    let cut = question(lunar(&cut), giga);
    // A run with a hundred receivers takes most of the default budget.
    let hundred = question(geo(1e-3), 10_000_000);
    let hundred = Question { receivers: 100, budget: seconds(60.0), ..hundred };
    for (name, question) in [
        ("10 MB to a hundred", hundred),
        ("1 GB from the Moon", question(lunar(&[]), giga)),
        ("1 GB from the Moon with outages", cut.clone()),
        ("1 GB over geo", question(geo(1e-3), giga)),
        (
            "100 MB over a shared path",
            Question { sharing: None, ..question(starlink(), 100_000_000) },
        ),
    ] {
        let found = compared(name, &question);
        assert_eq!(found.ranking[0].basis, Basis::Simulated, "{name}");
    }
    // Because of the outages nothing arrives before the end of the third, at 30 min.
    let late = advice(&Question { deadline: Some(seconds(1800.0)), ..cut });
    assert!(late.ranking.iter().all(|row| row.success == Some(0.0)), "{late:?}");
}

#[test]
fn long_files_without_return_complete_by_parity() {
    if std::env::var_os("SLOWLIGHT_LINKS").is_none() {
        return;
    }
    let question = Question { has_return: false, ..question(geo(1e-5), 1_000_000_000) };
    let found = compared("1 GB one way", &question);
    let best = &found.ranking[0];
    assert!(best.basis == Basis::Simulated && best.one_way.is_some(), "{best:?}");
    let mut truth = Truth::new(&question);
    for row in found.ranking.iter().filter(|row| row.protocol.to_string() == "cfdp-1") {
        // A share of e^-6.9 of such transfers loses no packet.
        assert!(row.success.is_none_or(|success| success == 0.0), "{row:?}");
        holds("cfdp-1", &mut truth, row);
    }
}
