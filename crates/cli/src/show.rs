//! Numbers with units, and arguments of commands, for people.

/// A rate with four significant digits.
pub(crate) fn rate(bps: f64) -> String {
    let (value, prefix) = scaled(bps);
    format!("{} {prefix}bit/s", digits(value, 4))
}

/// Bytes: whole below 1 kB, with three significant digits above.
pub(crate) fn bytes(bytes: f64) -> String {
    if bytes.round() < 1e3 {
        return format!("{bytes:.0} B");
    }
    // 999.6 kB is 1.00 MB.
    let step = 10_f64.powf(bytes.log10().floor() - 2.0);
    let (value, prefix) = scaled((bytes / step).round() * step);
    format!("{} {prefix}B", digits(value, 3))
}

/// An argument as a shell takes it.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:@%+,=[]".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    // A shell replaces these between double quotes.
    if text.contains(['"', '$', '`', '\\', '!']) {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    format!("\"{text}\"")
}

/// A time with four significant digits.
pub(crate) fn seconds(seconds: f64) -> String {
    let (scale, unit) = match seconds {
        v if v >= 1.0 || v == 0.0 => (1.0, "s"),
        v if v >= 1e-3 => (1e-3, "ms"),
        _ => (1e-6, "us"),
    };
    format!("{} {unit}", digits(seconds / scale, 4))
}

/// A time in the units that people use: `8.88 s`, `1 min 23 s`, `10 h 23 min`, `9 d 16 h`.
pub(crate) fn duration(time_s: f64) -> String {
    let step_s = step(time_s);
    let two = |count: f64, of: f64, large: &str, small: &str| {
        let (most, rest) = ((count / of).floor(), count % of);
        let parts = [(most, large), (rest, small)];
        let parts = parts.iter().filter(|(count, _)| *count > 0.0);
        parts.map(|(count, unit)| format!("{count} {unit}")).collect::<Vec<_>>().join(" ")
    };
    let count = (time_s / step_s).round();
    match step_s {
        HOUR => two(count, 24.0, "d", "h"),
        MINUTE => two(count, 60.0, "h", "min"),
        SECOND => two(count, 60.0, "min", "s"),
        _ if time_s >= 1.0 => format!("{time_s:.2} s"),
        _ => seconds(time_s),
    }
}

pub(crate) const SECOND: f64 = 1.0;
pub(crate) const MINUTE: f64 = 60.0;
const HOUR: f64 = 3_600.0;

/// Last digit of a printed time, in seconds.
pub(crate) fn step(time_s: f64) -> f64 {
    match time_s {
        // 59.995 s is 60.00 s.
        v if v < 1.0 => 0.0,
        v if v < MINUTE - 0.005 => 0.01,
        v if v < HOUR - 0.5 * SECOND => SECOND,
        v if v < 24.0 * HOUR - 0.5 * MINUTE => MINUTE,
        _ => HOUR,
    }
}

/// A value in its prefix's units, and the prefix.
fn scaled(value: f64) -> (f64, &'static str) {
    let (scale, prefix) = match value {
        v if v >= 1e9 => (1e9, "G"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    (value / scale, prefix)
}

/// A number with so many significant digits.
fn digits(value: f64, significant: usize) -> String {
    let whole = if value >= 1.0 { value.log10().floor() as usize + 1 } else { 1 };
    let decimals = if value == 0.0 { 0 } else { significant.saturating_sub(whole).min(6) };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_where_a_shell_needs_it() {
        let cases = [
            ("plan.toml", "plan.toml"),
            ("my plan.toml", "\"my plan.toml\""),
            ("", "\"\""),
            ("it's $5", r"'it'\''s $5'"),
        ];
        for (text, argument) in cases {
            assert_eq!(quoted(text), argument);
        }
    }

    #[test]
    fn rates_and_times_have_four_digits_and_bytes_three() {
        assert_eq!(rate(8_346_123.0), "8.346 Mbit/s");
        assert_eq!(rate(115_200.0), "115.2 kbit/s");
        assert_eq!(seconds(12_345.6), "12346 s");
        assert_eq!(seconds(0.0251), "25.10 ms");
        assert_eq!(seconds(0.000_4), "400.0 us");
        assert_eq!(seconds(0.0), "0 s");
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(77.0), "77 B");
        assert_eq!(bytes(999.6), "1.00 kB");
        assert_eq!(bytes(1_896.0), "1.90 kB");
        assert_eq!(bytes(999_600.0), "1.00 MB");
        assert_eq!(bytes(10_000_000.0), "10.0 MB");
    }
}
