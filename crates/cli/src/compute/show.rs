//! Numbers and progress of comparisons, as people read them.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use transport::contract::BufferLimits;

pub(crate) use crate::show::{bytes, rate, seconds};

use crate::show::digits;

/// A count, or a mean of counts.
pub(crate) fn count(count: f64) -> String {
    if count.fract() == 0.0 { format!("{count:.0}") } else { format!("{count:.1}") }
}

/// A share of one.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Share of a transfer's time from which on a limit by buffers is reported.
const LIMITED_SHARE: f64 = 0.05;

/// Note that buffers limited a transfer that took so many seconds, if they did.
pub(crate) fn buffer_limits(limits: Option<BufferLimits>, took: Option<f64>) -> Option<String> {
    let (limits, took) = (limits?, took?);
    if limits.seconds() < LIMITED_SHARE * took {
        return None;
    }
    Some(format!(
        "buffers of TCP were the limit for {} of {} (receive window of the peer {}, send buffer {})",
        seconds(limits.seconds()),
        seconds(took),
        seconds(limits.peer_window_limited_s),
        seconds(limits.send_buffer_limited_s)
    ))
}

/// One unit for all rates of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateUnit {
    /// Its name, like `Mbit/s`.
    pub(crate) name: &'static str,
    scale: f64,
}

impl RateUnit {
    /// The unit in which `bps` has one to three digits before the point.
    pub(crate) fn for_rate(bps: f64) -> Self {
        let (scale, name) = match bps {
            v if v >= 1e9 => (1e9, "Gbit/s"),
            v if v >= 1e6 => (1e6, "Mbit/s"),
            v if v >= 1e3 => (1e3, "kbit/s"),
            _ => (1.0, "bit/s"),
        };
        Self { name, scale }
    }

    /// A rate in this unit, with four significant digits.
    pub(crate) fn digits(self, bps: f64) -> String {
        digits(bps / self.scale)
    }

    /// A rate and how much it varies, with the same digits after the point.
    pub(crate) fn with_deviation(self, bps: f64, deviation_bps: f64) -> (String, String) {
        let rate = self.digits(bps);
        let decimals = rate.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        (rate, format!("{:.decimals$}", deviation_bps / self.scale))
    }
}

/// A bar that says how many of `len` are done and how long the rest takes; hidden where standard
/// error is no terminal.
pub(crate) fn progress(len: u64, what: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr());
    let style =
        ProgressStyle::with_template(&format!("{{bar:40}} {{pos}}/{{len}} {what}, {{eta}} left"));
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_rates_of_a_column_have_few_digits() {
        assert_eq!(count(7.0), "7");
        assert_eq!(count(7.25), "7.2");
        let unit = RateUnit::for_rate(8_346_123.0);
        assert_eq!((unit.name, unit.digits(346_123.0).as_str()), ("Mbit/s", "0.346"));
        let (rate, sem) = unit.with_deviation(8_346_123.0, 12_345.0);
        assert_eq!((rate.as_str(), sem.as_str()), ("8.346", "0.012"));
        assert_eq!(percent(0.9861), "98.6 %");
    }
}
