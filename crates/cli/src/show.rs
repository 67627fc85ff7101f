//! Numbers with units, for people.

/// A rate with four significant digits.
pub(crate) fn rate(bps: f64) -> String {
    scaled(bps, "bit/s")
}

/// Bytes with four significant digits.
pub(crate) fn bytes(bytes: f64) -> String {
    scaled(bytes, "B")
}

/// A time with four significant digits.
pub(crate) fn seconds(seconds: f64) -> String {
    let (scale, unit) = match seconds {
        v if v >= 1.0 || v == 0.0 => (1.0, "s"),
        v if v >= 1e-3 => (1e-3, "ms"),
        _ => (1e-6, "us"),
    };
    format!("{} {unit}", digits(seconds / scale))
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

/// A number with four significant digits.
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
        assert_eq!(seconds(0.0251), "25.10 ms");
        assert_eq!(seconds(0.000_4), "400.0 us");
        assert_eq!(seconds(0.0), "0 s");
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(10_000_000.0), "10.00 MB");
    }
}
