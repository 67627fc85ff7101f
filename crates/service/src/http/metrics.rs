//! Metrics of a snapshot, in the text format of OpenMetrics 1.0.

use std::sync::atomic::AtomicU64;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};

/// Media type of the format.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Type of a metric without unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Number that only grows.
    Counter,
    /// Any other number.
    Gauge,
}

type Labels = Vec<(&'static str, String)>;

/// Metrics whose names begin with a prefix.
#[derive(Debug)]
pub struct Metrics(Registry);

impl Metrics {
    /// No metrics yet.
    #[must_use]
    pub fn new(prefix: &'static str) -> Self {
        Self(Registry::with_prefix(prefix))
    }

    /// Adds a metric with one value.
    pub fn add(&mut self, kind: Kind, name: &str, help: &str, value: u64) {
        match kind {
            Kind::Counter => self.0.register(name, help, ConstCounter::new(value)),
            Kind::Gauge => self.0.register(name, help, ConstGauge::new(value)),
        }
    }

    /// Adds a time in seconds.
    pub fn add_seconds(&mut self, name: &str, help: &str, value: f64) {
        self.0.register_with_unit(name, help, Unit::Seconds, ConstGauge::new(value));
    }

    /// Adds a metric with a value for each set of labels; without values it is left out.
    pub fn family(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) {
        match kind {
            Kind::Counter => {
                let set = |counter: &Counter, value| counter.inc_by(value);
                self.0.register(name, help, filled(values, set));
            }
            Kind::Gauge => {
                let set = |gauge: &Gauge<u64, AtomicU64>, value| gauge.set(value);
                self.0.register(name, help, filled(values, set));
            }
        }
    }

    /// Adds a metric with a time in seconds for each set of labels.
    pub fn family_of_seconds(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        let set = |gauge: &Gauge<f64, AtomicU64>, value| gauge.set(value);
        self.0.register_with_unit(name, help, Unit::Seconds, filled(values, set));
    }

    /// Text of the metrics.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.0).expect("writing to a string cannot fail");
        text
    }
}

/// Metrics by their labels, each set to its value by `set`, which returns the former one.
fn filled<M: Default, V>(
    values: impl IntoIterator<Item = (Labels, V)>,
    set: impl Fn(&M, V) -> V,
) -> Family<Labels, M> {
    let family = Family::default();
    for (labels, value) in values {
        set(&family.get_or_create(&labels), value);
    }
    family
}

impl IntoResponse for Metrics {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, TYPE)], self.text()).into_response()
    }
}
