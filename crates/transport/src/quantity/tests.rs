use proptest::prelude::*;

use super::*;

#[test]
fn common_spellings_parse() {
    let rate = |text: &str| text.parse::<Rate>().unwrap().bps();
    assert_eq!(rate("10 Mbit/s"), 10_000_000);
    assert_eq!(rate("10Mbit/s"), 10_000_000);
    assert_eq!(rate("1.024 Mbit/s"), 1_024_000);
    assert_eq!(rate(" 115.2kbit/s "), 115_200);
    assert_eq!(rate("1e9 bit/s"), 1_000_000_000);
    assert_eq!(rate("2.5 Gbps"), 2_500_000_000);
    assert_eq!(rate("0"), 0);
    let span = |text: &str| text.parse::<Span>().unwrap().duration();
    assert_eq!(span("1.28 s"), Duration::from_millis(1280));
    assert_eq!(span("300 ms"), Duration::from_millis(300));
    assert_eq!(span("20 min"), Duration::from_secs(1200));
    assert_eq!(span("2h"), Duration::from_secs(7200));
    assert_eq!(span("60 µs"), Duration::from_micros(60));
    let size = |text: &str| text.parse::<Size>().unwrap().bytes();
    assert_eq!(size("10 MB"), 10_000_000);
    assert_eq!(size("10MB"), 10_000_000);
    assert_eq!((size("1 KiB"), size("1 KB"), size("1 kB")), (1024, 1000, 1000));
    assert_eq!(size("997 B"), 997);
    let probability = |text: &str| text.parse::<Probability>().unwrap().value();
    assert_eq!((probability("1e-5"), probability("1 %"), probability("0")), (1e-5, 0.01, 0.0));
}

fn refused<T: FromStr<Err = QuantityError> + fmt::Debug>(text: &str) -> String {
    text.parse::<T>().unwrap_err().to_string()
}

#[test]
fn mistakes_name_the_remedy() {
    testing::snapshot!("refusals/quantities.txt", |case| {
        let (kind, text) = case.split_once(' ').unwrap_or((case, ""));
        match kind {
            "rate" => refused::<Rate>(text),
            "time" => refused::<Span>(text),
            "size" => refused::<Size>(text),
            "probability" => refused::<Probability>(text),
            _ => refused::<Periodic>(text),
        }
    });
}

#[derive(Debug, Deserialize)]
struct Spec {
    rate: Rate,
    per: Probability,
}

#[test]
fn toml_requires_strings_and_shows_the_line() {
    let good: Spec = toml::from_str("rate = \"10 Mbit/s\"\nper = 1e-5").unwrap();
    assert_eq!((good.rate.bps(), good.per.value()), (10_000_000, 1e-5));
    let error = toml::from_str::<Spec>("per = \"0\"\nrate = 10").unwrap_err().to_string();
    assert!(error.contains("line 2") && error.contains("rate = 10"), "{error}");
    assert!(error.contains("10 has no unit; write it with one"), "{error}");
}

#[test]
fn printing_is_short() {
    let shown = |text: &dyn fmt::Display| text.to_string();
    assert_eq!(shown(&Rate(1_024_000)), "1.024 Mbit/s");
    assert_eq!(shown(&Rate(2_400)), "2.4 kbit/s");
    assert_eq!(shown(&Span(Duration::from_secs(1200))), "20 min");
    assert_eq!(shown(&Span(Duration::from_millis(1280))), "1.28 s");
    assert_eq!(shown(&Size(10_000_000)), "10 MB");
    assert_eq!(shown(&Size(1024)), "1 KiB");
    assert_eq!(shown(&Size(1500)), "1500 B");
    assert_eq!(shown(&Size(1 << 40)), "1 TiB");
    assert_eq!(shown(&Size(1_000_000_000_000)), "1 TB");
    assert_eq!(shown(&Probability(1e-5)), "1e-5");
}

proptest! {
    #[test]
    fn printed_quantities_parse(value: u64, p in 0.0..=1.0_f64) {
        for value in [value, value % 100_000, value % 1_000_000 * 1_000, value >> 20 << 20] {
            prop_assert_eq!(Rate(value).to_string().parse(), Ok(Rate(value)));
            prop_assert_eq!(Size(value).to_string().parse(), Ok(Size(value)));
            let span = Span(Duration::from_nanos(value));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }
        prop_assert_eq!(Probability(p).to_string().parse(), Ok(Probability(p)));
        let span = |nanos| Span(Duration::from_nanos(nanos));
        let outages =
            Periodic { period: span(value.max(3)), down: span(value / 2 + 1), first: span(value / 3) };
        prop_assert_eq!(outages.to_string().parse(), Ok(outages));
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,20}") {
        let _ = text.parse::<Rate>().map(|rate| rate.to_string());
        let _ = text.parse::<Span>().map(|span| span.to_string());
        let _ = text.parse::<Size>().map(|size| size.to_string());
        let _ = text.parse::<Probability>().map(|p| p.to_string());
    }
}
