//! Trees that are kept give the routes that a search without them gives.

use engine::Rng;

use super::oracle::{key, random_plan};
use super::*;
use crate::settings::{Exclusion, Queueing};

#[test]
fn kept_trees_change_no_route() {
    let mut routed = 0;
    for seed in 0..400 {
        let mut rng = Rng::new(seed, "kept");
        let contacts = 20 + rng.below(60);
        let plan = random_plan(&mut rng, 9, contacts);
        let settings = Settings {
            queueing: [Queueing::Every, Queueing::First][rng.below(2) as usize],
            exclusion: [Exclusion::Entry, Exclusion::Everywhere][rng.below(2) as usize],
            partial: rng.chance(0.3),
            ..bare()
        };
        let mut router = Router::new(1, plan, settings);
        let mut taken: Vec<(Route, u64, Priority)> = Vec::new();
        let mut now = Time::ZERO;
        for step in 0..60 {
            let to = 2 + rng.below(8);
            let bytes = [0, 100, 100, 500, 3000][rng.below(5) as usize];
            let priority =
                [Priority::Bulk, Priority::Normal, Priority::Expedited][rng.below(3) as usize];
            let excluded: BTreeSet<u64> =
                if rng.chance(0.3) { [2 + rng.below(8)].into() } else { BTreeSet::new() };
            let wanted = Wanted {
                destination: to,
                bytes,
                priority,
                expires: at(20 + rng.below(80)),
                excluded: &excluded,
            };
            let fresh = router.routes(now, &wanted, 1).pop();
            let kept = router.best(now, &wanted);
            assert_eq!(kept, fresh, "seed {seed}, step {step}: {wanted:?}");
            if let Some(route) = kept {
                let (arrives, ..) = key(&router, &route);
                assert!(arrives <= wanted.expires);
                routed += 1;
                if rng.chance(0.6) {
                    router.promise(&route, bytes, priority);
                    taken.push((route, bytes, priority));
                }
            }
            if rng.chance(0.1) && !taken.is_empty() {
                let (route, bytes, priority) =
                    taken.swap_remove(rng.below(taken.len() as u64) as usize);
                router.release(&route, bytes, priority);
            }
            if rng.chance(0.1) {
                router.set_failed(now, 2 + rng.below(8), rng.chance(0.6));
            }
            if rng.chance(0.3) {
                now += Duration::from_millis(rng.below(3000));
                router.forget_before(now);
            }
        }
    }
    assert!(routed > 5000, "{routed}");
}
