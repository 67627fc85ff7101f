//! What came of it, as a table and in words.

use std::collections::BTreeSet;
use std::io::{self, Write as _};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use lab::adapter::Verdict;

use super::Done;

type Condition<'a> = (&'a Option<String>, &'a Option<String>);

/// A line for each tool and protocol, a column for each delay and error: goodput in Mbit/s.
pub(super) fn table(order: &[String], conditions: &[Condition<'_>], done: &[Done]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    let heads = conditions.iter().map(|condition| head(*condition));
    table.set_header(["Mbit/s".to_owned()].into_iter().chain(heads));
    for what in order {
        let cells = conditions.iter().map(|(delay, per)| {
            let of_cell = |done: &&Done| {
                done.case.what == *what && done.case.delay == **delay && done.case.per == **per
            };
            cell(&done.iter().filter(of_cell).collect::<Vec<_>>())
        });
        table.add_row([what.clone()].into_iter().chain(cells));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn head((delay, per): Condition<'_>) -> String {
    let words: Vec<_> = delay.iter().chain(per.iter()).map(String::as_str).collect();
    if words.is_empty() { "this link".to_owned() } else { words.join(", ") }
}

/// The median, whether all was well, and whether that is to be believed.
fn cell(runs: &[&Done]) -> String {
    let mut rates: Vec<_> = runs.iter().filter_map(|run| run.outcome.goodput_bps).collect();
    rates.sort_by(f64::total_cmp);
    let failed = runs.iter().filter(|run| run.outcome.why.is_some()).count();
    let doubted = runs.iter().any(|run| !run.doubts.is_empty());
    let Some(median) = rates.get(rates.len() / 2).filter(|_| !rates.is_empty()) else {
        return "failed".to_owned();
    };
    let below = rates[(rates.len() - 1) / 2];
    let mut text = format!("{:.2}", f64::midpoint(below, *median) / 1e6);
    if failed > 0 {
        text += &format!(" ({failed} of {} failed)", runs.len());
    }
    if doubted {
        text.push('?');
    }
    text
}

/// Says why something failed or is in doubt, and what was verified.
pub(super) fn explain(done: &[Done]) -> io::Result<()> {
    let mut err = io::stderr().lock();
    let of = |verdict: Verdict| done.iter().filter(|done| done.outcome.verdict == verdict).count();
    let (identical, measured) = (of(Verdict::Identical), of(Verdict::Measured));
    writeln!(
        err,
        "{identical} files arrived with the SHA-256 of the one sent; {measured} tools measured only; {} failed",
        done.len() - identical - measured
    )?;
    let mut printed = BTreeSet::new();
    for Done { case, outcome, doubts } in done {
        let place = head((&case.delay, &case.per));
        let text = outcome.why.iter().chain(doubts.iter().take(1));
        for why in
            text.filter(|why| printed.insert((case.what.clone(), place.clone(), (*why).clone())))
        {
            let mark = if outcome.why.as_ref() == Some(why) { "" } else { "? " };
            writeln!(err, "{mark}{} ({place}, seed {}): {why}", case.what, case.seed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use testbed::tool::Outcome;

    use super::super::Case;
    use super::*;

    fn run(goodput_bps: Option<f64>, seed: u64) -> Done {
        let (verdict, why) = match goodput_bps {
            Some(_) => (Verdict::Identical, None),
            None => (Verdict::Failed, Some("gone".to_owned())),
        };
        Done {
            case: Case { what: "scp".to_owned(), delay: None, per: None, seed },
            outcome: Outcome { verdict, seconds: goodput_bps.map(|_| 1.0), goodput_bps, why },
            doubts: Vec::new(),
        }
    }

    #[test]
    fn a_cell_has_the_median_and_what_failed() {
        let runs = [run(Some(1e6), 1), run(Some(3e6), 2), run(Some(2e6), 3), run(None, 4)];
        let text = |runs: &[Done]| cell(&runs.iter().collect::<Vec<_>>());
        assert_eq!(text(&runs), "2.00 (1 of 4 failed)");
        assert_eq!(text(&runs[..2]), "2.00", "between the two");
        assert_eq!(text(&runs[3..]), "failed");
        let doubted = Done { doubts: vec!["late".to_owned()], ..run(Some(1e6), 1) };
        assert_eq!(text(&[doubted]), "1.00?");
        let order = ["scp".to_owned()];
        let shown = table(&order, &[(&None, &None)], &runs).to_string();
        assert!(shown.contains("this link") && shown.contains("2.00"), "{shown}");
    }
}
