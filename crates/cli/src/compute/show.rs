//! Numbers and progress of comparisons, as people read them.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use transport::contract::BufferLimits;

use crate::show::{MINUTE, SECOND, step};
pub(crate) use crate::show::{bytes, duration, rate, seconds};

/// A count, or a mean of counts.
pub(crate) fn count(count: f64) -> String {
    if count.fract() == 0.0 { format!("{count:.0}") } else { format!("{count:.1}") }
}

/// A share of one.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A multiple: `1.13×`.
pub(crate) fn factor(factor: f64) -> String {
    format!("{factor:.2}×")
}

/// Error of a time to the time's last digit, like `± 0.10 s`; `None` if it is below that.
pub(crate) fn error(time_s: f64, error_s: f64) -> Option<String> {
    let step_s = step(time_s);
    let text = if step_s >= SECOND {
        let rounded = (error_s / step_s).round() * step_s;
        if rounded < MINUTE { format!("{rounded:.0} s") } else { duration(rounded) }
    } else {
        let shown = duration(time_s);
        let (number, unit) = shown.split_once(' ')?;
        let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let scale = match unit {
            "s" => 1.0,
            "ms" => 1e3,
            _ => 1e6,
        };
        format!("{:.decimals$} {unit}", error_s * scale)
    };
    let is_seen = text.bytes().any(|c| (b'1'..=b'9').contains(&c));
    is_seen.then(|| format!("± {text}"))
}

/// An interval of times, like `8.69 to 9.19 s`; `None` if both ends print as the same.
pub(crate) fn range(from_s: f64, to_s: f64) -> Option<String> {
    let (from, to) = (duration(from_s), duration(to_s));
    if from == to {
        return None;
    }
    let unit = |text: &str| text.matches(' ').count() == 1 && text.ends_with(" s");
    let from = if unit(&from) && unit(&to) { from.trim_end_matches(" s") } else { &from };
    Some(format!("{from} to {to}"))
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
    fn counts_and_shares_have_few_digits() {
        assert_eq!(count(7.0), "7");
        assert_eq!(count(7.25), "7.2");
        assert_eq!(percent(0.9861), "98.6 %");
    }

    #[test]
    fn times_have_the_units_of_people() {
        let shown = [0.0251, 8.8821, 59.996, 83.2, 300.0, 3_599.7, 37_396.0, 86_399.0, 836_469.0];
        let expected = [
            "25.10 ms",
            "8.88 s",
            "1 min",
            "1 min 23 s",
            "5 min",
            "1 h",
            "10 h 23 min",
            "1 d",
            "9 d 16 h",
        ];
        assert_eq!(shown.map(duration), expected);
    }

    #[test]
    fn errors_and_ranges_that_cannot_be_seen_are_none() {
        assert_eq!(error(8.93, 0.1).as_deref(), Some("± 0.10 s"));
        assert_eq!(error(8.93, 0.004), None);
        assert_eq!(error(83.0, 1.6).as_deref(), Some("± 2 s"));
        assert_eq!(error(37_396.0, 250.0).as_deref(), Some("± 4 min"));
        assert_eq!(error(37_396.0, 20.0), None);
        assert_eq!(error(0.5253, 0.0012).as_deref(), Some("± 1.2 ms"));
        assert_eq!(range(8.69, 9.19).as_deref(), Some("8.69 to 9.19 s"));
        assert_eq!(range(59.0, 61.0).as_deref(), Some("59.00 s to 1 min 1 s"));
        assert_eq!(range(37_396.0, 37_397.0), None);
    }
}
