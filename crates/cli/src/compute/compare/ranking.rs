//! The table of a comparison.

use lab::compare::Row;
use lab::stats::Summary;
use transport::contract::Feature;
use transport::protocol::Protocol;

use crate::compute::show;
use crate::compute::table::{Cell, Column, Table, Tone};

/// Difference of times up to which two protocols tie whatever the noise, as a share.
const TIE: f64 = 1e-3;

/// Rows in the order of the table: those that complete most often first, then by time.
pub(super) fn ranked(rows: &[Row]) -> Vec<&Row> {
    let mut ranked: Vec<_> = rows.iter().collect();
    let time = |row: &Row| row.delivered_s.map_or(f64::INFINITY, |delivered| delivered.mean);
    ranked.sort_by(|a, b| b.completed.cmp(&a.completed).then(time(a).total_cmp(&time(b))));
    ranked
}

/// First row of each family: protocols of a kind, and those that code whole files.
pub(super) fn leaders<'a>(ranked: &[&'a Row]) -> Vec<&'a Row> {
    let family = |row: &Row| (row.protocol.kind.family(), row.protocol.codes_files());
    let is_first = |at: usize| {
        let own = family(ranked[at]);
        ranked[..at].iter().all(|above| family(above) != own)
    };
    (0..ranked.len()).filter(|at| is_first(*at)).map(|at| ranked[at]).collect()
}

/// Remark on a protocol in one word, with its explanation.
type Remark = (fn(&Protocol) -> bool, &'static str, &'static str);

static REMARKS: [Remark; 3] = [
    (
        Protocol::codes_files,
        "coded",
        "needs slowlight at both ends, and sends parity before it is requested",
    ),
    (|protocol| protocol.kind.has(Feature::Coded), "parity", "is sent before it is requested"),
    (
        Protocol::is_controlled,
        "shared",
        "has congestion control, for paths with other traffic; the others need a reserved rate",
    ),
];

fn remarks(protocol: &Protocol) -> impl Iterator<Item = &'static Remark> {
    REMARKS.iter().filter(|(applies, ..)| applies(protocol))
}

/// Explanations of the remarks on these rows, one a line.
pub(super) fn legend(rows: &[&Row]) -> Vec<String> {
    let is_used = |(applies, ..): &&Remark| rows.iter().any(|row| applies(&row.protocol));
    REMARKS.iter().filter(is_used).map(|(_, word, meaning)| format!("{word}: {meaning}")).collect()
}

/// Ranks of ranked rows: `=` is a tie with the first row above that has a number, `-` a protocol
/// that never completed. Rows are compared with the numbered one alone, so that no chain of small
/// steps is a tie.
fn ranks(rows: &[&Row]) -> Vec<String> {
    let mut first: Option<&Row> = None;
    let mut ranks = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        if row.completed == 0 {
            ranks.push("-".to_owned());
        } else if first.is_some_and(|first| is_tie(first, row)) {
            ranks.push("=".to_owned());
        } else {
            first = Some(row);
            ranks.push((at + 1).to_string());
        }
    }
    ranks
}

/// Whether two protocols complete as often, and their mean times differ by no more than their
/// standard errors together, or by less than a thousandth.
fn is_tie(first: &Row, row: &Row) -> bool {
    first.completed == row.completed
        && first.delivered_s.zip(row.delivered_s).is_some_and(|(a, b)| {
            let apart = (b.mean - a.mean).abs();
            apart <= a.sem + b.sem || apart <= TIE * a.mean
        })
}

/// Bound that all rows have in common, as it is printed.
pub(super) fn common_bound(rows: &[&Row]) -> Option<String> {
    let mut bounds = rows.iter().map(|row| row.bound_s.map(show::duration));
    let first = bounds.next().flatten()?;
    bounds.all(|bound| bound.as_ref() == Some(&first)).then_some(first)
}

/// One line for each of the ranked rows, and whether some tie.
pub(super) fn table(ranked: &[&Row], receivers: u32) -> (Table, bool) {
    let delivered = if receivers > 1 { "to all" } else { "delivered" };
    let mut columns = vec![
        Column::right(""),
        Column::left("protocol"),
        Column::left(""),
        Column::right("failed"),
        Column::right(delivered),
        Column::left("").close(),
        Column::left("fastest to slowest").spare(2),
        Column::right("to each").spare(1),
        Column::right("bound"),
        Column::right("of bound"),
        Column::bar().spare(1),
        Column::right("spent").spare(0),
        Column::left("note"),
        Column::right("confirmed").spare(3),
        Column::right("ready").spare(4),
        Column::right("bytes back").spare(5),
        Column::right("bytes sent").spare(6),
    ];
    let wide =
        ["packets sent", "packets back", "goodput", "std dev", "median", "transfer", "quiet"];
    columns.extend(wide.map(|head| Column::right(head).wide()));
    let mut table = Table::new(columns);
    let has_common = common_bound(ranked).is_some();
    let ranks = ranks(ranked);
    let has_ties = ranks.iter().any(|rank| rank == "=");
    let mut is_best = true;
    for (at, (rank, row)) in ranks.into_iter().zip(ranked).enumerate() {
        is_best &= at == 0 || rank == "=";
        table.row(cells(rank, row, receivers, has_common, is_best));
    }
    (table, has_ties)
}

fn cells(rank: String, row: &Row, receivers: u32, has_common: bool, is_best: bool) -> Vec<Cell> {
    let mean = |time: Option<Summary>| Cell::optional(time.map(|time| show::duration(time.mean)));
    let delivered = row.delivered_s;
    let failed = row.runs - row.completed;
    let error = delivered.and_then(|time| show::error(time.mean, time.sem));
    let how = row.multicast.map(|is_multicast| {
        if is_multicast { "to the group".to_owned() } else { format!("{receivers} transfers") }
    });
    let bound = row.bound_s.filter(|_| !has_common);
    let notes: Vec<_> = remarks(&row.protocol).map(|(_, word, _)| *word).collect();
    let name = if is_best && row.completed > 0 { Tone::Strong } else { Tone::Plain };
    vec![
        rank.into(),
        Cell::from(row.protocol.to_string()).tone(name),
        Cell::from(how.unwrap_or_default()),
        match failed {
            0 => Cell::None,
            failed => Cell::from(format!("{failed} of {}", row.runs)).tone(Tone::Bad),
        },
        mean(delivered),
        Cell::from(error.unwrap_or_default()).tone(Tone::Dim),
        delivered.map_or(Cell::None, |time| {
            Cell::from(show::range(time.min, time.max).unwrap_or_default())
        }),
        mean(row.each_delivered_s),
        Cell::optional(bound.map(show::duration)),
        Cell::optional(row.efficiency.map(show::percent)),
        row.efficiency.map_or_else(|| Cell::from(""), Cell::Bar),
        Cell::optional(row.spent.map(show::factor)),
        Cell::from(notes.join(", ")),
        mean(row.confirmed_s),
        mean(row.ready_s),
        Cell::from(show::bytes(row.traffic.bytes_rts)),
        Cell::from(show::bytes(row.traffic.bytes_str)),
        Cell::from(show::count(row.traffic.packets_str)),
        Cell::from(show::count(row.traffic.packets_rts)),
        Cell::optional(row.goodput_bps.map(|goodput| show::rate(goodput.mean))),
        Cell::optional(delivered.filter(|time| time.sem > 0.0).map(|time| show::seconds(time.sd))),
        Cell::optional(delivered.map(|time| show::seconds(time.median))),
        mean(row.transfer_s),
        mean(row.quiet_s),
    ]
}

#[cfg(test)]
mod tests {
    use lab::metrics::Traffic;

    use super::*;
    use crate::compute::table::Page;

    const PAGE: Page = Page { width: 100, has_colors: false, is_wide: false };

    /// A row of ten runs, of which so many completed, each after about so many seconds.
    fn row(protocol: &str, completed: usize, time_s: f64, error_s: f64) -> Row {
        let of = |mean: f64| Summary {
            mean,
            median: mean,
            sem: error_s,
            sd: error_s * (completed as f64).sqrt(),
            min: mean - 2.0 * error_s,
            max: mean + 3.0 * error_s,
        };
        let delivered_s = (completed > 0).then(|| of(time_s));
        Row {
            protocol: protocol.parse().expect("a protocol"),
            multicast: None,
            runs: 10,
            completed,
            file_bytes: 1_000_000,
            goodput_bps: delivered_s.map(|_| of(8e6 / time_s)),
            goodput_grc_bps: None,
            delivered_s,
            each_delivered_s: None,
            confirmed_s: None,
            ready_s: None,
            transfer_s: None,
            latency: None,
            quiet_s: None,
            wire_s: None,
            bound_s: Some(8.0),
            efficiency: delivered_s.map(|time| 8.0 / time.mean),
            spent: Some(1.126),
            bound_spent: None,
            traffic: Traffic::default(),
            failures: Vec::new(),
        }
    }

    #[test]
    fn rows_within_their_errors_of_the_first_tie() {
        let rows = [
            row("norm", 10, 10.0, 0.1),
            row("ltp", 10, 10.3, 0.1),
            row("saratoga", 10, 10.15, 0.1),
            row("cfdp", 9, 9.0, 0.1),
            row("ltp-t", 10, 10.305, 0.0),
            row("scp", 0, 0.0, 0.0),
            row("ftp", 0, 0.0, 0.0),
        ];
        let ranked = ranked(&rows);
        let names: Vec<_> = ranked.iter().map(|row| row.protocol.to_string()).collect();
        assert_eq!(names, ["norm", "saratoga", "ltp", "ltp-t", "cfdp", "scp", "ftp"]);
        // `ltp` ties with `saratoga`, but not with `norm`, which is the first; `ltp-t` is within a
        // thousandth of `ltp`.
        assert_eq!(ranks(&ranked), ["1", "=", "3", "=", "5", "-", "-"]);
    }

    #[test]
    fn what_all_rows_share_or_lack_is_no_column() {
        let exact = [row("ltp", 10, 9.0, 0.0), row("cfdp", 10, 3_725.0, 0.0)];
        let exact: Vec<_> = exact.iter().collect();
        let text = table(&exact, 1).0.drawn(PAGE);
        assert!(text.contains("1 h 2 min") && !text.contains('±'), "{text}");
        assert!(text.contains("1.13×"), "{text}");
        for head in ["failed", "fastest to slowest", "note", "confirmed", "ready"] {
            assert!(!text.contains(head), "{head}: {text}");
        }
        assert_eq!(common_bound(&exact).as_deref(), Some("8.00 s"));
        let noisy = [row("ltp", 10, 9.0, 0.1), row("ftp", 4, 20.0, 1.0)];
        let text = table(&ranked(&noisy), 1).0.drawn(PAGE);
        for part in ["± 0.10 s", "8.80 to 9.30 s", "6 of 10", "88.9 %", "shared"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn families_are_led_by_their_fastest() {
        let rows = [
            row("norm/coded", 10, 8.1, 0.0),
            row("norm/coded-eager", 10, 8.2, 0.0),
            row("norm-fec", 10, 8.3, 0.0),
            row("norm", 10, 8.4, 0.0),
            row("bp-ltp", 10, 8.5, 0.0),
            row("ltp", 10, 8.6, 0.0),
            row("bp-tcpcl", 10, 9.0, 0.0),
            row("ftp/bbr", 10, 9.5, 0.0),
            row("ftp/cubic", 10, 9.6, 0.0),
        ];
        let leaders = leaders(&ranked(&rows));
        let names: Vec<_> = leaders.iter().map(|row| row.protocol.to_string()).collect();
        assert_eq!(names, ["norm/coded", "norm-fec", "bp-ltp", "ltp", "ftp/bbr"]);
        let legend = legend(&leaders);
        let words: Vec<_> = legend.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(words, ["coded", "parity", "shared"]);
    }
}
