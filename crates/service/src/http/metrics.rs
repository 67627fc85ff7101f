//! Metrics of a snapshot, in the text format of OpenMetrics 1.0.

use std::fmt::{Display, Write as _};

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Media type of the format.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Number that only grows.
    Counter,
    /// Number without unit.
    Gauge,
    /// Time in seconds.
    Seconds,
}

/// Text of metrics whose names begin with a prefix.
#[derive(Clone, Debug)]
pub struct Metrics {
    prefix: &'static str,
    text: String,
}

impl Metrics {
    /// Begins the text.
    #[must_use]
    pub fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new() }
    }

    /// Adds a metric with one value.
    pub fn add(&mut self, kind: Kind, name: &str, help: &str, value: impl Display) {
        self.family(kind, name, help, [([("", ""); 0], value)]);
    }

    /// Adds a metric with a value for each set of labels; without values it is left out.
    pub fn family<'a, const N: usize>(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([(&'a str, &'a str); N], impl Display)>,
    ) {
        let (kind, total, unit) = match kind {
            Kind::Counter => ("counter", "_total", ""),
            Kind::Gauge => ("gauge", "", ""),
            Kind::Seconds => ("gauge", "", "_seconds"),
        };
        let name = format!("{}_{name}{unit}", self.prefix);
        let mut head = format!("# HELP {name} {help}.\n# TYPE {name} {kind}\n");
        if !unit.is_empty() {
            head += &format!("# UNIT {name} {}\n", &unit[1..]);
        }
        for (labels, value) in values {
            let labels = labels.map(|(label, text)| format!("{label}=\"{}\"", escaped(text)));
            let labels = if N > 0 { format!("{{{}}}", labels.join(",")) } else { String::new() };
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, "{head}{name}{total}{labels} {value}");
            head.clear();
        }
    }

    /// Ends the text.
    #[must_use]
    pub fn finish(self) -> String {
        self.text + "# EOF\n"
    }
}

impl IntoResponse for Metrics {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, TYPE)], self.finish()).into_response()
    }
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_the_form_of_openmetrics() {
        let mut metrics = Metrics::new("x");
        metrics.add(Kind::Counter, "packets", "Packets", 5);
        metrics.add(Kind::Seconds, "age", "Age", 1.5);
        metrics.family(Kind::Gauge, "empty", "Left out", [([("a", "b"); 1], 0); 0]);
        let links = [([("link", "a\\b\n\"c\""), ("way", "there")], 1), ([("link", "d"); 2], 2)];
        metrics.family(Kind::Gauge, "up", "Up", links);
        let expected = "# HELP x_packets Packets.\n\
                        # TYPE x_packets counter\n\
                        x_packets_total 5\n\
                        # HELP x_age_seconds Age.\n\
                        # TYPE x_age_seconds gauge\n\
                        # UNIT x_age_seconds seconds\n\
                        x_age_seconds 1.5\n\
                        # HELP x_up Up.\n\
                        # TYPE x_up gauge\n\
                        x_up{link=\"a\\\\b\\n\\\"c\\\"\",way=\"there\"} 1\n\
                        x_up{link=\"d\",link=\"d\"} 2\n\
                        # EOF\n";
        assert_eq!(metrics.finish(), expected);
    }
}
