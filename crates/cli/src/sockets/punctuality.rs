//! Lateness of a TCP that runs in a process, and trust in its results.

use std::sync::Arc;
use std::time::Duration;

use rt::{Bounds, Lateness, Timings};
use serde_json::{Value, json};
use transport::quantity::Span;

use crate::{Usage, doubts};

/// Options on how late a TCP in this process may be.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Exactness {
    /// Fail if the run was not exact
    #[arg(long, help_heading = "Exactness")]
    pub(crate) strict: bool,

    /// Lateness bound for 99 % of timers and wake-ups in a trusted run
    #[arg(long, help_heading = "Exactness", value_name = "DURATION", default_value = "1 ms")]
    late: Span,

    /// Lateness bound for every timer and wake-up
    #[arg(long, help_heading = "Exactness", value_name = "DURATION", default_value = "10 ms")]
    late_most: Span,
}

impl Exactness {
    /// Bounds of a trusted run.
    pub(crate) fn bounds(&self) -> Result<Bounds, Usage> {
        let (late, most) = (self.late, self.late_most);
        if late > most {
            return Err(Usage(format!(
                "--late {late} is more than --late-most {most}, which holds for every timer"
            )));
        }
        Ok(Bounds { usual: late.duration(), most: most.duration() })
    }
}

/// Measures how late the loop of a TCP is.
#[derive(Debug)]
pub(crate) struct Punctuality {
    bounds: Bounds,
    timings: Arc<Timings>,
    real_time: bool,
}

impl Punctuality {
    /// Requests real-time priority for the calling thread, which has to run the loop.
    pub(crate) fn hurry(bounds: Bounds) -> Self {
        Self { bounds, timings: Arc::new(Timings::new()), real_time: rt::hurry() }
    }

    /// Where the loop records its lateness.
    pub(crate) fn timings(&self) -> Arc<Timings> {
        Arc::clone(&self.timings)
    }

    /// The account so far.
    pub(crate) fn account(&self) -> Account {
        let lateness = self.timings.so_far();
        let excesses = self.bounds.excesses(&lateness);
        let doubts = excesses.map(|excess| excess.to_string()).collect();
        Account { lateness, real_time: self.real_time, doubts }
    }
}

/// Lateness of the loop of a TCP, and reasons to distrust its results.
#[derive(Debug)]
pub(crate) struct Account {
    lateness: Lateness,
    real_time: bool,
    /// Reasons why the results are not trusted.
    pub(crate) doubts: Vec<String>,
}

impl Account {
    /// Text for people: a line on lateness, and the doubts.
    pub(crate) fn text(&self) -> String {
        let [half, usual, most] = self.quantiles();
        let mut text = format!(
            "lateness: median {half:.0} us, 99th percentile {usual:.0} us, maximum {most:.0} us"
        );
        let remedy = if self.real_time {
            "stop other programs, or use a machine with more processors"
        } else {
            "run it as root or with CAP_SYS_NICE for real-time priority"
        };
        if let Some(lines) = doubts::lines(&self.doubts, remedy) {
            text += &format!("\n{lines}");
        }
        text
    }

    /// JSON for programs; times are in microseconds.
    pub(crate) fn value(&self) -> Value {
        let [half, usual, most] = self.quantiles();
        json!({
            "trusted": self.doubts.is_empty(),
            "doubts": self.doubts,
            "real_time": self.real_time,
            "late_half_us": half,
            "late_99_us": usual,
            "late_most_us": most,
        })
    }

    fn quantiles(&self) -> [f64; 3] {
        let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
        let lateness = &self.lateness;
        [lateness.quantile(0.5), lateness.quantile(0.99), lateness.most()].map(micros)
    }
}
