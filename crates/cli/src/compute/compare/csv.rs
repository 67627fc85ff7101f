//! A comparison as comma-separated values, for papers.

use lab::compare::Row;
use lab::stats::Summary;

use crate::compute::table::FIXED;

/// Names and values of one row's columns; a value that there is not is empty.
struct Columns {
    names: Vec<String>,
    values: Vec<String>,
}

impl Columns {
    fn add(&mut self, name: impl Into<String>, value: Option<impl ToString>) {
        self.names.push(name.into());
        self.values.push(value.map(|value| value.to_string()).unwrap_or_default());
    }

    /// Measures of many runs, with the unit at the end of each name.
    fn summary(&mut self, name: &str, unit: &str, summary: Option<Summary>) {
        let of = |value: fn(Summary) -> f64| summary.map(value);
        self.add(format!("{name}_mean_{unit}"), of(|s| s.mean));
        self.add(format!("{name}_sd_{unit}"), of(|s| s.sd));
        self.add(format!("{name}_sem_{unit}"), of(|s| s.sem));
        self.add(format!("{name}_median_{unit}"), of(|s| s.median));
        self.add(format!("{name}_min_{unit}"), of(|s| s.min));
        self.add(format!("{name}_max_{unit}"), of(|s| s.max));
    }
}

fn columns(row: &Row) -> Columns {
    let mut columns = Columns { names: Vec::new(), values: Vec::new() };
    columns.add("protocol", Some(&row.protocol));
    columns.add("multicast", row.multicast);
    columns.add("runs", Some(row.runs));
    columns.add("completed", Some(row.completed));
    columns.add("file_bytes", Some(row.file_bytes));
    columns.summary("delivered", "s", row.delivered_s);
    columns.summary("each_delivered", "s", row.each_delivered_s);
    columns.summary("confirmed", "s", row.confirmed_s);
    columns.summary("ready", "s", row.ready_s);
    columns.summary("transfer", "s", row.transfer_s);
    columns.summary("quiet", "s", row.quiet_s);
    columns.summary("wire", "s", row.wire_s);
    columns.summary("goodput", "bps", row.goodput_bps);
    columns.summary("goodput_grc", "bps", row.goodput_grc_bps);
    columns.add("bound_s", row.bound_s);
    columns.add("efficiency", row.efficiency);
    columns.add("spent", row.spent);
    columns.add("bound_spent", row.bound_spent);
    columns.add("throughput_bps", row.traffic.throughput_bps);
    columns.add("packets_str", Some(row.traffic.packets_str));
    columns.add("packets_rts", Some(row.traffic.packets_rts));
    columns.add("bytes_str", Some(row.traffic.bytes_str));
    columns.add("bytes_rts", Some(row.traffic.bytes_rts));
    columns.add("link_bytes", Some(row.traffic.link_bytes));
    columns.add("repairs_str", row.traffic.repairs_str);
    columns.add("nacks_rts", row.traffic.nacks_rts);
    let buffers = row.traffic.buffers;
    columns.add("peer_window_limited_s", buffers.map(|limits| limits.peer_window_limited_s));
    columns.add("send_buffer_limited_s", buffers.map(|limits| limits.send_buffer_limited_s));
    let latency = row.latency;
    columns.add("latency_count", latency.map(|latency| latency.count));
    columns.add("latency_min_s", latency.map(|latency| latency.min_s));
    columns.add("latency_median_s", latency.map(|latency| latency.median_s));
    columns.add("latency_p95_s", latency.map(|latency| latency.p95_s));
    columns.add("latency_p99_s", latency.map(|latency| latency.p99_s));
    columns.add("latency_max_s", latency.map(|latency| latency.max_s));
    columns
}

/// Lines of a file: conditions as comments, one line of names, one a protocol.
pub(super) fn lines(conditions: &[String], rows: &[&Row]) -> Vec<String> {
    let comment = |line: &String| format!("# {}", line.trim().replace(FIXED, " "));
    let mut lines: Vec<_> = conditions.iter().map(comment).collect();
    for (at, row) in rows.iter().enumerate() {
        let Columns { names, values } = columns(row);
        if at == 0 {
            lines.push(names.join(","));
        }
        lines.push(values.join(","));
    }
    lines
}
