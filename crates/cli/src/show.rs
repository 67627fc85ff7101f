//! Numbers as people read them.

/// A rate with four significant digits.
pub(crate) fn rate(bps: f64) -> String {
    scaled(bps, "bit/s")
}

/// Bytes with four significant digits.
pub(crate) fn bytes(bytes: f64) -> String {
    scaled(bytes, "B")
}

/// Seconds with four significant digits and no more than microseconds.
pub(crate) fn seconds(seconds: f64) -> String {
    format!("{} s", digits(seconds))
}

/// A count, or a mean of counts.
pub(crate) fn count(count: f64) -> String {
    if count.fract() == 0.0 { format!("{count:.0}") } else { format!("{count:.1}") }
}

/// A share of one.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn scaled(value: f64, unit: &str) -> String {
    let (scale, prefix) = match value {
        v if v >= 1e9 => (1e9, "G"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    format!("{} {prefix}{unit}", digits(value / scale))
}

fn digits(value: f64) -> String {
    let whole = if value >= 1.0 { value.log10().floor() as usize + 1 } else { 1 };
    let decimals = if value == 0.0 { 0 } else { 4_usize.saturating_sub(whole).min(6) };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits() {
        assert_eq!(rate(8_346_123.0), "8.346 Mbit/s");
        assert_eq!(rate(115_200.0), "115.2 kbit/s");
        assert_eq!(seconds(12_345.6), "12346 s");
        assert_eq!(seconds(0.0251), "0.025 s");
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(10_000_000.0), "10.00 MB");
        assert_eq!(count(7.0), "7");
        assert_eq!(count(7.25), "7.2");
        assert_eq!(percent(0.9861), "98.6 %");
    }
}
