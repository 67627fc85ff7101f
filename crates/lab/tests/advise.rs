//! Advice against brute force: every transport as often as the best.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use engine::Rng;
use lab::advise::{self, Advice, Question};
use lab::link_spec::LinkSpec;
use lab::preset::Preset;
use lab::quantity::{Probability, Rate, Size, Span};
use slowlight_lab as lab;

fn question(link: LinkSpec, size: u64) -> Question {
    Question {
        link: Preset::single(link),
        size: Size(size),
        has_return: true,
        receivers: 1,
        in_order: false,
        relay: false,
        deadline: None,
        seed: 1,
        jobs: None,
    }
}

fn geo(per: f64) -> LinkSpec {
    LinkSpec {
        rate: Some(Rate(10_000_000)),
        delay: Some(Span(Duration::from_millis(250))),
        per: Some(Probability(per)),
        ..LinkSpec::default()
    }
}

fn advice(question: &Question) -> Advice {
    advise::advise(question, &AtomicBool::new(false)).unwrap().unwrap()
}

/// From 10 kbit/s to 100 Mbit/s, 1 ms to 10 min, no loss to a tenth, 1 kB to 3 MB; each on a
/// logarithmic scale.
fn random(seed: u64) -> Question {
    let mut rng = Rng::new(seed, "random link");
    let mut between = |low: f64, high: f64| low * (high / low).powf(rng.unit());
    let rate = between(1e4, 1e8);
    let delay = between(1e-3, 600.0);
    let per = between(1e-6, 1e-1);
    // What takes longer than a day to send is nobody's question.
    let size = between(1e3, 3e6).min(rate / 8.0 * 86_400.0);
    let link = LinkSpec {
        rate: Some(Rate(rate as u64)),
        delay: Some(Span(Duration::from_secs_f64(delay))),
        per: Some(Probability(per)),
        ..LinkSpec::default()
    };
    question(link, size as u64)
}

#[test]
fn advice_is_what_brute_force_finds() {
    let links = std::env::var("SLOWLIGHT_LINKS").map_or(12, |links| links.parse().unwrap());
    for seed in 1..=links {
        let question = random(seed);
        let asked = format!("seed {seed}: {} over {:?}", question.size, question.link.hops[0]);
        let brute = advise::brute_force(&question, &AtomicBool::new(false)).unwrap().unwrap();
        let (best, all) = (&advice(&question).ranking[0], &brute.ranking);
        let found = all.iter().find(|other| other.protocol == best.protocol).unwrap();
        let same = found.protocol == all[0].protocol;
        let near = found.success >= all[0].success
            && found.mean_s.unwrap() <= 1.02 * all[0].mean_s.unwrap();
        assert!(same || near, "{asked}: {found:?}, but {:?}", all[0]);
    }
}

#[test]
fn needs_admit_what_serves_them() {
    let names = |question: &Question| -> Vec<String> {
        advise::candidates(question).unwrap().iter().map(ToString::to_string).collect()
    };
    let plain = question(geo(0.0), 100_000);
    assert!(names(&plain).contains(&"cfdp".to_owned()));
    assert!(!names(&plain).contains(&"cfdp-1".to_owned()));
    let one_way = Question { has_return: false, ..plain.clone() };
    assert!(names(&one_way).contains(&"cfdp-1".to_owned()));
    let ordered = Question { in_order: true, ..plain.clone() };
    assert!(names(&ordered).contains(&"ftp".to_owned()));
    assert!(!names(&ordered).contains(&"cfdp".to_owned()));
    let refused = advise::candidates(&Question { has_return: false, ..ordered }).unwrap_err();
    assert!(refused.to_string().contains("need a way back"), "{refused}");
    let relayed = Question { relay: true, ..plain };
    assert!(
        names(&relayed).iter().all(|name| name.starts_with("bp-")
            || name.contains("ltp-t")
            || name.starts_with("cfdp"))
    );
}

#[test]
fn without_a_way_back_parity_brings_what_losses_take() {
    let lossy = Question { has_return: false, ..question(geo(1e-2), 1_000_000) };
    let best = &advice(&lossy).ranking[0];
    assert_eq!((best.protocol.to_string().as_str(), best.success), ("norm-fec", 1.0));
}

#[test]
fn a_deadline_is_kept_or_is_not() {
    let within = |seconds| Question {
        deadline: Some(Span(Duration::from_secs(seconds))),
        ..question(geo(1e-3), 1_000_000)
    };
    assert_eq!(advice(&within(3)).ranking[0].success, 1.0);
    assert_eq!(advice(&within(1)).ranking[0].success, 0.0);
}

#[test]
fn a_long_file_is_drawn_on_from_shorter_ones() {
    let long = advice(&question(geo(0.0), 40_000_000));
    assert!(long.extrapolated);
    let best = &long.ranking[0];
    let simulated = advise::brute_force(
        &Question { size: Size(10_000_000), ..question(geo(0.0), 0) },
        &AtomicBool::new(false),
    );
    let simulated = simulated.unwrap().unwrap();
    let whole = simulated.ranking.iter().find(|c| c.protocol == best.protocol).unwrap();
    // 30 MB more at 10 Mbit/s: 24 s, and what headers take.
    let more = best.mean_s.unwrap() - whole.mean_s.unwrap();
    assert!((24.0..26.0).contains(&more), "{more}");
}
