//! Order by the capacity that transports take.

use super::{Basis, Candidate};

/// Factor on the best mean time within which transports are ordered by capacity.
pub(super) const WITHIN: f64 = 1.1;
/// Factor within which capacities tie; the faster transport precedes.
const TIE: f64 = 1.01;

/// Moves the transport that takes the least capacity to the front, among those that deliver as
/// surely as the first: all of them if that meets a `deadline`, otherwise those within [`WITHIN`]
/// of the best time. The others of these follow, by capacity. Returns how many there are, and the
/// former first transport, if another one precedes it.
pub(super) fn by_capacity(ranking: &mut [Candidate], deadline: bool) -> (usize, Option<Candidate>) {
    let Some(first) = ranking.first().cloned() else { return (0, None) };
    let (Some(best_s), Basis::Simulated) = (first.mean_s, first.basis) else { return (1, None) };
    let in_time = deadline && first.success.is_some_and(|success| success > 0.0);
    let admits = |other: &Candidate| {
        other.basis == Basis::Simulated
            && other.success >= first.success
            && other.spent.is_some()
            && other.mean_s.is_some_and(|mean| in_time || mean <= WITHIN * best_s)
    };
    // A stable sort keeps the order of the others.
    ranking.sort_by_key(|other| !admits(other));
    let count = ranking.iter().take_while(|other| admits(other)).count();
    let capacity = |other: &Candidate| other.spent.unwrap_or(f64::INFINITY);
    let admitted = &mut ranking[..count];
    admitted.sort_by(|a, b| capacity(a).total_cmp(&capacity(b)));
    let least = admitted.first().map_or(0.0, capacity);
    let tied = admitted.iter().take_while(|other| capacity(other) <= TIE * least).count();
    let time = |other: &Candidate| other.mean_s.unwrap_or(f64::INFINITY);
    admitted[..tied].sort_by(|a, b| time(a).total_cmp(&time(b)));
    let is_other = ranking.first().is_some_and(|best| best.protocol != first.protocol);
    (count.max(1), is_other.then_some(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, mean_s: f64, spent: f64, success: f64) -> Candidate {
        Candidate {
            protocol: name.parse().expect("a protocol"),
            one_way: None,
            basis: Basis::Simulated,
            runs: 10,
            success: Some(success),
            mean_s: Some(mean_s),
            interval_s: None,
            bound_s: None,
            ready_s: None,
            packets_ratio: None,
            spent: Some(spent),
            failures: std::collections::BTreeMap::new(),
        }
    }

    fn ranked(deadline: bool) -> (Vec<String>, usize, Option<String>) {
        let mut ranking = [
            candidate("norm-fec", 10.0, 1.3, 1.0),
            candidate("saratoga", 10.5, 1.105, 1.0),
            candidate("cfdp", 10.9, 1.1, 1.0),
            candidate("ltp", 12.0, 1.05, 1.0),
            candidate("ftp", 10.0, 1.0, 0.5),
        ];
        let (count, fastest) = by_capacity(&mut ranking, deadline);
        let names = ranking.iter().map(|one| one.protocol.to_string()).collect();
        (names, count, fastest.map(|one| one.protocol.to_string()))
    }

    #[test]
    fn capacity_orders_those_that_are_about_as_fast() {
        let (names, count, fastest) = ranked(false);
        assert_eq!(names, ["saratoga", "cfdp", "norm-fec", "ltp", "ftp"]);
        assert_eq!((count, fastest.as_deref()), (3, Some("norm-fec")));
    }

    #[test]
    fn capacity_orders_those_that_meet_the_deadline() {
        let (names, count, _) = ranked(true);
        assert_eq!(names, ["ltp", "cfdp", "saratoga", "norm-fec", "ftp"]);
        assert_eq!(count, 4);
    }
}
