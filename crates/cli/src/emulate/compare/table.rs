//! Tables of transfers in real time, and what went wrong.

use std::collections::BTreeSet;

use lab::adapter::Verdict;
use lab::stats::Summary;
use testbed::tool::Outcome;
use transport::quantity::{Probability, Span};

use super::{Condition, Done};
use crate::compute::show;
use crate::compute::table::{Cell, Column, Table, Tone};

/// Head of a column with the name of programs and protocols.
const NAME: &str = "program or protocol";

/// A row for each tool and protocol: its times under one condition, or its goodput in Mbit/s under
/// several, each in a column.
pub(super) fn table(
    order: &[String],
    conditions: &[Condition],
    done: &[Done],
    line_bps: Option<u64>,
) -> Table {
    let of_cell = |what: &str, condition: Condition| -> Vec<&Done> {
        let is_of = |done: &&Done| done.case.what == what && done.case.condition == condition;
        done.iter().filter(is_of).collect()
    };
    // Under other conditions than the link's, the table has to name them.
    if *conditions == [Condition::default()] {
        return times(order, line_bps, |what| of_cell(what, Condition::default()));
    }
    let heads = conditions.iter().map(|condition| Column::right(head(*condition)));
    let mut table = Table::new([Column::left(NAME)].into_iter().chain(heads));
    for what in order {
        let cells = conditions.iter().map(|condition| cell(&of_cell(what, *condition)));
        table.row([Cell::from(what.as_str())].into_iter().chain(cells));
    }
    table
}

/// Times and goodput of each under one condition.
fn times<'a>(
    order: &[String],
    line_bps: Option<u64>,
    runs: impl Fn(&str) -> Vec<&'a Done>,
) -> Table {
    let mut table = Table::new([
        Column::left(NAME),
        Column::right("failed"),
        Column::right("median"),
        Column::left("fastest to slowest").spare(1),
        Column::right("goodput"),
        Column::right("of line").spare(0),
        Column::bar().spare(2),
        Column::left(""),
    ]);
    for what in order {
        let runs = runs(what);
        let seconds = summary(&runs, |outcome| outcome.seconds);
        let goodput = summary(&runs, |outcome| outcome.goodput_bps).map(|rates| rates.median);
        let share = goodput.zip(line_bps).map(|(goodput, line)| goodput / line as f64);
        let doubt = if is_doubted(&runs) { "?" } else { "" };
        table.row([
            what.as_str().into(),
            failures(&runs).map_or(Cell::None, |failures| Cell::from(failures).tone(Tone::Bad)),
            Cell::optional(seconds.map(|times| show::duration(times.median))),
            Cell::optional(seconds.and_then(|times| show::range(times.min, times.max))),
            Cell::optional(goodput.map(show::rate)),
            Cell::optional(share.map(show::percent)),
            share.map_or_else(|| Cell::from(""), Cell::Bar),
            Cell::from(doubt).tone(Tone::Fair),
        ]);
    }
    table
}

fn summary(runs: &[&Done], value: fn(&Outcome) -> Option<f64>) -> Option<Summary> {
    let values = runs.iter().filter_map(|run| value(&run.outcome));
    Summary::from_samples(&values.collect::<Vec<_>>())
}

/// Number of failed runs, if any.
fn failures(runs: &[&Done]) -> Option<String> {
    let failed = runs.iter().filter(|run| run.outcome.why.is_some()).count();
    (failed > 0).then(|| format!("{failed} of {} failed", runs.len()))
}

fn is_doubted(runs: &[&Done]) -> bool {
    runs.iter().any(|run| !run.doubts.is_empty())
}

fn head(Condition { delay, per }: Condition) -> String {
    let words: Vec<_> =
        delay.iter().map(Span::to_string).chain(per.iter().map(Probability::to_string)).collect();
    if words.is_empty() { "this link".to_owned() } else { words.join(", ") }
}

/// Median goodput in Mbit/s, with failed runs, and a mark if it is not to be believed.
fn cell(runs: &[&Done]) -> Cell {
    let Some(rates) = summary(runs, |outcome| outcome.goodput_bps) else {
        return Cell::from("failed").tone(Tone::Bad);
    };
    let failures = failures(runs).map(|failures| format!(" ({failures})")).unwrap_or_default();
    let mark = if is_doubted(runs) { "?" } else { "" };
    format!("{:.2}{failures}{mark}", rates.median / 1e6).into()
}

/// Lines that say what was verified, and why something failed or is in doubt.
pub(super) fn notes(done: &[Done]) -> Vec<String> {
    let of = |verdict: Verdict| done.iter().filter(|done| done.outcome.verdict == verdict).count();
    let (identical, measured) = (of(Verdict::Identical), of(Verdict::Measured));
    let mut notes = vec![format!(
        "{identical} files arrived with the SHA-256 of the one sent; {measured} tools measured only; {} failed",
        done.len() - identical - measured
    )];
    let mut printed = BTreeSet::new();
    for Done { case, outcome, doubts } in done {
        let place = head(case.condition);
        let text = outcome.why.iter().chain(doubts.iter().take(1));
        for why in
            text.filter(|why| printed.insert((case.what.clone(), place.clone(), (*why).clone())))
        {
            let mark = if outcome.why.as_ref() == Some(why) { "" } else { "? " };
            notes.push(format!("{mark}{} ({place}, seed {}): {why}", case.what, case.seed));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::Case;
    use super::*;
    use crate::compute::table::Page;

    fn run(goodput_bps: Option<f64>, seed: u64) -> Done {
        let (verdict, why) = match goodput_bps {
            Some(_) => (Verdict::Identical, None),
            None => (Verdict::Failed, Some("gone".to_owned())),
        };
        Done {
            case: Case { what: "scp".to_owned(), condition: Condition::default(), seed },
            outcome: Outcome { verdict, seconds: goodput_bps.map(|_| 1.0), goodput_bps, why },
            doubts: Vec::new(),
        }
    }

    #[test]
    fn a_cell_has_the_median_and_what_failed() {
        let runs = [run(Some(1e6), 1), run(Some(3e6), 2), run(Some(2e6), 3), run(None, 4)];
        let of = |runs: &[Done]| cell(&runs.iter().collect::<Vec<_>>());
        assert_eq!(of(&runs), "2.00 (1 of 4 failed)".into());
        assert_eq!(of(&runs[..2]), "2.00".into(), "between the two");
        assert_eq!(of(&runs[3..]), Cell::from("failed").tone(Tone::Bad));
        let doubted = Done { doubts: vec!["late".to_owned()], ..run(Some(1e6), 1) };
        assert_eq!(of(&[doubted]), "1.00?".into());
    }

    #[test]
    fn one_condition_is_a_table_of_times() {
        let runs = [run(Some(1e6), 1), run(Some(3e6), 2), run(Some(2e6), 3), run(None, 4)];
        let order = ["scp".to_owned()];
        let page = Page { width: 100, has_colors: false, is_wide: false };
        let shown = table(&order, &[Condition::default()], &runs, Some(10_000_000)).drawn(page);
        for part in ["1 of 4 failed", "1.00 s", "2.000 Mbit/s", "20.0 %"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
