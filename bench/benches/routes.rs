//! Routes through a plan of 200 nodes and 16,000 contacts in a day: the first one, one to another
//! destination by the trees of earlier searches, and the same one again.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use engine::{Rng, Time};
use routing::changes::{Change, Draft};
use routing::contacts::{Contact, ContactPlan, Range};
use routing::routes::{Priority, Router, Wanted};
use routing::settings::Settings;

const NODES: u64 = 200;
const CONTACTS: u64 = 16_000;
const DAY: u64 = 86_400;

/// Contacts of 100 s to 1,000 s between 2,000 pairs of nodes.
fn plan() -> Option<ContactPlan> {
    let mut rng = Rng::new(1, "routes");
    let mut draft = Draft::default();
    let pairs: Vec<(u64, u64)> = (0..2000)
        .map(|_| {
            let from = rng.below(NODES);
            (1 + from, 1 + (from + 1 + rng.below(NODES - 1)) % NODES)
        })
        .collect();
    let mut contacts = 0;
    while contacts < CONTACTS {
        let (from, to) = *pairs.get(rng.below(2000) as usize)?;
        let start = rng.below(DAY - 1000);
        let (start, end) = (Time::from_secs(start), Time::from_secs(start + 100 + rng.below(900)));
        let new = Contact { from, to, start, end, rate_bps: 8_000_000, confidence: 1.0 };
        let owlt = Duration::from_millis(5 * rng.below(4));
        if draft.apply(&Change::AddContact(new)).is_ok() {
            draft.apply(&Change::AddRange(Range { from, to, start, end, owlt })).ok()?;
            contacts += 1;
        }
    }
    draft.plan().ok()
}

fn routes(c: &mut Criterion) {
    let plan = plan().expect("contacts of a pair that do not overlap");
    let router = Router::new(1, plan, Settings::default());
    let nobody = BTreeSet::new();
    let wanted = |destination| Wanted {
        destination,
        bytes: 1_000_000,
        priority: Priority::Normal,
        expires: Time::MAX,
        excluded: &nobody,
    };
    let mut group = c.benchmark_group("routes");
    group.sample_size(50).measurement_time(Duration::from_secs(2));
    let mut rng = Rng::new(2, "destinations");
    let mut draw = move || (Time::from_secs(rng.below(DAY / 2)), 2 + rng.below(NODES - 1));
    group.bench_function("first", |b| {
        b.iter_batched(
            || (router.clone(), draw()),
            |(mut router, (now, to))| {
                black_box(router.best(now, &wanted(to)));
                // It is dropped outside the measurement.
                router
            },
            BatchSize::LargeInput,
        );
    });
    let mut rng = Rng::new(2, "destinations");
    let mut draw = move || (Time::from_secs(rng.below(DAY / 2)), 2 + rng.below(NODES - 1));
    group.bench_function("another destination", |b| {
        b.iter_batched(
            || {
                let mut router = router.clone();
                let (now, to) = draw();
                let others: Vec<u64> = (2..=NODES).filter(|other| *other != to).collect();
                for other in others {
                    black_box(router.best(now, &wanted(other)));
                }
                (router, (now, to))
            },
            |(mut router, (now, to))| {
                black_box(router.best(now, &wanted(to)));
                router
            },
            BatchSize::LargeInput,
        );
    });
    let mut same = router.clone();
    assert!(same.best(Time::from_secs(1000), &wanted(100)).is_some(), "a route is measured");
    group.bench_function("the same again", |b| {
        b.iter(|| black_box(same.best(Time::from_secs(1000), &wanted(100))));
    });
    group.finish();
}

criterion_group!(benches, routes);
criterion_main!(benches);
