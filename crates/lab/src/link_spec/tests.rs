use super::*;

#[test]
fn a_table_becomes_a_link() {
    let spec: LinkSpec = transport::text::parse(
        r#"
        rate = "1.024 Mbit/s"
        delay = "1250 ms"
        framing = "ethernet"
        per_packet = "60 us"
        release = "first-bit"
        queue = "64 KiB"
        outages = [{ at = "10 s", for = "30 s" }]
        per = "1e-4"
        drop = [3, 17]
        on_error = "damage"
        "#,
        "test",
    )
    .unwrap();
    let config = spec.config().unwrap();
    assert_eq!(config.rate, link::Rate::Constant(1_024_000));
    assert_eq!(config.release, link::Release::FirstBit);
    assert_eq!(config.queue, link::Queue { packets: None, bytes: Some(65_536) });
    assert_eq!(config.errors.len(), 2);
    assert!(config.errors.iter().all(|e| e.on_error == link::OnError::Damage));
    assert!(!config.outages.is_up(Time::from_secs(39)));
    assert!(config.outages.is_up(Time::from_secs(40)));
    assert_eq!(spec.payload_max(), 1472);
}

#[test]
fn a_datagram_may_fill_the_mtu() {
    table("mtu = \"1280 B\"\ndatagram = \"1252 B\"").config().unwrap();
}

#[test]
fn resolved_tables_read_back() {
    let spec = LinkSpec {
        rate: Some(Rate(8_000_000)),
        errors: Errors {
            burst: Some(Burst {
                to_bad: Probability(0.01),
                to_good: Probability(0.3),
                good_per: Probability(0.0),
                good_ber: Probability(1e-9),
                bad_per: Probability(0.5),
                bad_ber: Probability(0.0),
            }),
            ..Errors::default()
        },
        ..LinkSpec::default()
    }
    .resolved();
    let text = toml::to_string(&spec).unwrap();
    assert!(text.contains("mtu = \"1500 B\""), "{text}");
    assert_eq!(transport::text::parse::<LinkSpec>(&text, "resolved").unwrap(), spec);
}

#[test]
fn return_link_overrides_only_its_own_keys() {
    let spec: LinkSpec = transport::text::parse(
        "rate = \"4 Mbit/s\"\ndelay = \"182 s\"\nreturn = { rate = \"64 kbit/s\" }",
        "test",
    )
    .unwrap();
    let back = spec.way_back();
    assert_eq!((back.rate, back.delay), (Some(Rate(64_000)), spec.delay));
    assert_eq!(back.back, None);
}

#[test]
fn times_of_one_type_replace_another() {
    let [list, contacts]: [LinkSpec; 2] = ["outages", "contacts"].map(|key| {
        let text = format!("{key} = [{{ at = \"10 s\", for = \"30 s\" }}]");
        transport::text::parse(&text, "test").unwrap()
    });
    let layered = list.clone().over(&contacts);
    assert_eq!((&layered.outages, &layered.contacts), (&list.outages, &None));
    layered.config().unwrap();
    let kept = LinkSpec {
        errors: Errors { per: Some(Probability(0.1)), ..Errors::default() },
        ..LinkSpec::default()
    }
    .over(&contacts);
    assert_eq!(kept.contacts, contacts.contacts);
}

#[test]
fn listed_losses_are_of_one_direction() {
    let spec: LinkSpec = transport::text::parse(
        r#"
        drop = [3]
        loss_times = [{ at = "0 s", for = "2 s" }]
        error_vector = { bits = 100, errors = [5] }
        trace = { fates = "..x" }
        per = "1e-4"
        return = { drop = [7] }
        "#,
        "test",
    )
    .unwrap();
    assert_eq!(spec.config().unwrap().errors.len(), 5);
    let back = spec.way_back();
    assert_eq!((back.errors.per, &back.errors.drop), (spec.errors.per, &Some(vec![7])));
    assert_eq!(back.config().unwrap().errors.len(), 2);
}

#[test]
fn ppp_compresses_headers_where_configured() {
    let config = |text: &str| {
        let spec: LinkSpec = transport::text::parse(text, "test").unwrap();
        let again = toml::to_string(&spec).unwrap();
        assert_eq!(transport::text::parse::<LinkSpec>(&again, "again").unwrap(), spec);
        spec.config().map_err(|error| error.to_string())
    };
    let ppp = |stuffing, serial| link::Framing::Ppp {
        fcs: link::Fcs::Bits16,
        compressed: false,
        stuffing,
        serial,
    };
    let plain = config("framing = \"ppp\"").unwrap();
    assert_eq!(plain.framing, ppp(link::Stuffing::Random, false));
    assert_eq!(plain.header_compression, None);
    let compressed = config("framing = \"ppp\"\nheader_compression = true").unwrap();
    assert_eq!(compressed.framing, ppp(link::Stuffing::Exact, false));
    let slots = link::HeaderCompression { max: 15, may_omit: true };
    assert_eq!(compressed.header_compression, Some(slots));
    let serial = config("framing = \"ppp-async\"\nheader_compression = false").unwrap();
    assert_eq!(serial.framing, ppp(link::Stuffing::Exact, true));
    assert_eq!(serial.header_compression, None);
    let short = config("framing = \"ppp-async-compressed\"").unwrap();
    // Two flags, one byte of protocol, two of check sequence; ten bits per byte: 105 * 10 / 8.
    assert_eq!(short.framing.framed_len(100), 132);
}

#[test]
fn reordering_has_a_table_and_a_short_form() {
    let spec: LinkSpec =
        transport::text::parse("reorder = { probability = \"0.02\", by = \"20 ms\" }", "test")
            .unwrap();
    let by = Duration::from_millis(20);
    assert_eq!(spec.config().unwrap().reorder, Some(link::Reorder { probability: 0.02, by }));
    assert_eq!("0.02+20 ms".parse().ok(), spec.reorder);
    let never = LinkSpec { reorder: "0+20 ms".parse().ok(), ..LinkSpec::default() };
    assert_eq!(never.config().unwrap().reorder, None);
    for wrong in ["0.02", "0.02+", "2+20 ms", "+20 ms", "0.02+20"] {
        assert!(wrong.parse::<Reorder>().is_err(), "{wrong}");
    }
}

#[test]
fn an_erasure_code_has_a_table_and_a_short_form() {
    let parsed = |text: &str| transport::text::parse::<LinkSpec>(text, "test").unwrap();
    let code = |spec: &LinkSpec| spec.config().unwrap().erasure;
    let ms = Duration::from_millis;
    let spec = parsed("erasure = { k = 512, n = 640, close = \"50 ms\" }");
    assert_eq!(code(&spec), Some(link::Erasure { k: 512, n: 640, close: ms(50) }));
    assert_eq!("512 + 128 + 50 ms".parse().ok(), spec.erasure);
    assert_eq!(spec.erasure.unwrap().to_string(), "512+128+50 ms");
    let again = toml::to_string(&spec).unwrap();
    assert_eq!(parsed(&again), spec);
    // Four frames of 1,514 bytes at 1 Mbit/s, with a quarter of parity.
    let slow = parsed("rate = \"1 Mbit/s\"\nerasure = \"512+128\"");
    let close = code(&slow).unwrap().close;
    assert_eq!(close.as_micros(), 60_560);
    let fast = parsed("rate = \"1 Gbit/s\"\nerasure = \"512+128\"");
    assert_eq!(code(&fast).unwrap().close, ms(10));
    let one_way = parsed("erasure = \"4+2\"\nreturn = { erasure = \"off\" }");
    assert!(code(&one_way).is_some());
    assert_eq!(code(&one_way.way_back()), None);
    assert_eq!(parsed("erasure = \"off\"").config().unwrap().erasure, None);
}

#[test]
fn a_trace_is_replayed() {
    let spec: LinkSpec =
        transport::text::parse("trace = { fates = \"..x\\n .x\", repeat = true }", "test").unwrap();
    let struck = vec![false, false, true, false, true];
    let kind = link::ErrorKind::Trace { struck, repeat: true };
    assert_eq!(spec.config().unwrap().errors, [link::ErrorModel::dropping(kind)]);
    let text = toml::to_string(&spec).unwrap();
    assert_eq!(transport::text::parse::<LinkSpec>(&text, "again").unwrap(), spec);
}

fn table(text: &str) -> LinkSpec {
    transport::text::parse(text, "test").unwrap()
}

const STEPS: &str = "rate_steps = [{ at = \"0 s\", rate = \"1 Mbit/s\" }]\n";
const POINTS: &str = "delay_points = [{ at = \"0 s\", delay = \"2 s\" }]\n";

#[test]
fn keys_that_exclude_each_other_are_refused_in_one_table() {
    let window = "[{ at = \"1 s\", for = \"1 s\" }]";
    let (outages, contacts) = (format!("outages = {window}\n"), format!("contacts = {window}\n"));
    let every = "outage_every = { period = \"9 s\", down = \"1 s\" }\n";
    for (one, other, names) in [
        ("rate = \"10 Mbit/s\"\n", STEPS, "`rate` and `rate_steps`"),
        ("delay = \"1 s\"\n", POINTS, "`delay` and `delay_points`"),
        (outages.as_str(), every, "`outages` and `outage_every`"),
        (&outages[..], &contacts[..], "`outages` and `contacts`"),
        (every, &contacts[..], "`outage_every` and `contacts`"),
    ] {
        let parse = |text: &str| transport::text::parse::<LinkSpec>(text, "test");
        for text in [[one, other].concat(), [other, one].concat()] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(names) && error.contains("exclude each other"), "{error}");
            let inner =
                parse(&format!("mtu = \"1500 B\"\n[return]\n{text}")).unwrap_err().to_string();
            assert!(inner.contains(names), "{inner}");
        }
        // Between two tables, that of the base gives way, and the result can be read again.
        let (one, other) = (parse(one).unwrap(), parse(other).unwrap());
        for (above, below) in [(&one, &other), (&other, &one)] {
            let layered = above.clone().over(below).resolved();
            layered.config().unwrap();
            let text = toml::to_string(&layered).unwrap();
            assert_eq!(parse(&text).unwrap(), layered);
        }
    }
    // Also where no table was read.
    let both = LinkSpec { rate: Some(Rate(1)), ..table(STEPS) };
    assert!(both.config().unwrap_err().to_string().contains("`rate` and `rate_steps`"));
    // An interpolation has no effect without points, wherever the delay came from.
    let over = table("delay_between = \"linear\"").over(&table("delay = \"1 s\""));
    assert!(over.config().unwrap_err().to_string().contains("`delay_points`"));
}

#[test]
fn tables_replace_constants_of_the_base() {
    let base = table("rate = \"10 Mbit/s\"\ndelay = \"1 s\"");
    let over = table(&[STEPS, POINTS].concat()).over(&base);
    assert_eq!((over.rate, over.delay), (None, None));
    let config = over.config().unwrap();
    assert_eq!(config.rate.bps_at(Time::ZERO), Some(1_000_000));
    assert_eq!(config.delay.propagation_at(Time::ZERO), Duration::from_secs(2));
    let linear = table("delay_between = \"linear\"").over(&over);
    assert!(matches!(linear.config().unwrap().delay, link::Delay::Table { .. }));
    let constant = table("delay = \"3 s\"").over(&linear);
    assert_eq!((constant.delay_points, constant.delay_between), (None, None));
}

#[test]
fn contradictions_are_refused() {
    testing::snapshot!("refusals/links.txt", |text| {
        let spec = transport::text::parse::<LinkSpec>(text, "test");
        spec.and_then(|spec| spec.config()).unwrap_err().to_string()
    });
    assert!("10 s".parse::<Window>().is_err());
    let empty = "1 min+0 s".parse::<Window>().unwrap_err().to_string();
    assert!(empty.contains("\"1 min+0 s\" lasts no time"), "{empty}");
}
