use proptest::prelude::*;

use super::*;

const LEAST: &str = "[lan]\ninterfaces = [\"eth0\"]\n[wan]\ninterfaces = [\"sat0\"]\n";

fn refused(text: &str) -> String {
    Gateway::parse(text, "g.toml").unwrap_err().to_string()
}

#[test]
fn interfaces_are_the_only_required_settings() {
    let gateway = Gateway::parse(LEAST, "g.toml").unwrap();
    assert_eq!(gateway.intercept.taken(), Ports::default());
    assert_eq!(gateway.rules.ports(), [7430, 7431]);
    let pep = gateway.proxy();
    let default = pep::Config::default();
    assert_eq!((pep.connections, pep.buffer), (default.connections, default.buffer));
    for kernel in [&gateway.lan.kernel, &gateway.wan.kernel.clone().unwrap_or_default()] {
        assert_eq!(kernel.keep_alive, Some(Duration::from_secs(60)));
    }
    let own: Vec<_> = gateway.listening().collect();
    assert_eq!(pep, pep::Config { own, ..default });
}

#[test]
fn keep_alive_is_configurable_and_can_be_disabled() {
    let kernel = |error: &str| {
        let text = format!("{LEAST}[wan.kernel]\nkeep_alive = \"{error}\"");
        Gateway::parse(&text, "g.toml").unwrap().wan.kernel.unwrap().keep_alive
    };
    assert_eq!(kernel("5 s"), Some(Duration::from_secs(5)));
    assert_eq!(kernel("off"), None);
    let own = |error: &str| {
        let text = format!("{LEAST}[wan.own]\n{error}");
        Gateway::parse(&text, "g.toml").unwrap().own_options().unwrap().unwrap().keep_alive
    };
    assert_eq!(own(""), Some(KEEP_ALIVE));
    assert_eq!(own("tcp = { keep_alive = \"off\" }"), None);
    let idle = Duration::from_secs(5);
    let error = own("tcp = { keep_alive = { idle = \"5 s\" } }");
    assert_eq!(error, Some(tcp::KeepAlive { idle, ..KEEP_ALIVE }));
}

#[test]
fn all_settings_round_trip() {
    let text = r#"
        name = "gate_1"
        [lan]
        interfaces = ["eth0", "eth1.7"]
        [lan.kernel]
        congestion = "cubic"
        [wan]
        interfaces = ["sat0"]
        [wan.kernel]
        congestion = "bbr"
        send_buffer = "2MiB"
        receive_buffer = "4MiB"
        unsent = "64KiB"
        rate = "8 Mbit/s"
        mss = 1200
        keep_alive = "60 s"
        timeout = "90 s"
        [intercept]
        ports = [80, "8000-8999", 443]
        except = [8443]
        ipv6 = true
        [limits]
        connections = 500
        buffer = "128KiB"
        buffer_total = "64MiB"
        connect_timeout = "10 s"
        idle = "1 h"
        drain = "5 s"
        [rules]
        port = 9000
        mark = 7
        table = 70
        priority = 700
    "#;
    let gateway = Gateway::parse(text, "g.toml").unwrap();
    let taken = gateway.intercept.taken();
    assert_eq!(taken.to_string(), "{ 80, 443, 8000-8442, 8444-8999 }");
    let pep = gateway.proxy();
    assert_eq!((pep.connections, pep.buffer, pep.buffer_total), (500, 131_072, 67_108_864));
    assert_eq!(pep.connect_timeout, Duration::from_secs(10));
    assert_eq!(pep.idle, Some(Duration::from_secs(3600)));
    let written = toml::to_string(&gateway).unwrap();
    assert_eq!(Gateway::parse(&written, "g.toml").unwrap(), gateway);
}

#[test]
fn the_page_has_every_key_and_default() {
    let page = include_str!("../../../../docs/gateway.md");
    let table = page.lines().filter(|line| line.starts_with("| `")).collect::<String>();
    let gateway = Gateway::parse(&format!("{LEAST}[wan.own]"), "g.toml").unwrap();
    let Ok(toml::Value::Table(written)) = toml::Value::try_from(&gateway) else {
        panic!("it is a table")
    };
    for (section, keys) in written.into_iter().filter(|(section, _)| section != "wan") {
        assert!(table.contains(&format!("`{section}")), "{section}");
        let toml::Value::Table(keys) = keys else { continue };
        for key in keys.keys() {
            assert!(table.contains(&format!("{section}.{key}`")), "{section}.{key}");
        }
    }
    let kernel = ["congestion", "send_buffer", "receive_buffer", "unsent", "rate", "mss"];
    let more = [
        "keep_alive",
        "timeout",
        "profile",
        "rate",
        "tcp",
        "device",
        "wan.own",
        "intercept.except",
    ];
    for key in kernel.into_iter().chain(more) {
        assert!(table.contains(&format!("`{key}`")), "{key}");
    }
    let Limits { connections, buffer, buffer_total, connect_timeout, drain, .. } = gateway.limits;
    for default in [buffer.to_string(), buffer_total.to_string(), connect_timeout.to_string()] {
        assert!(table.contains(&format!("| {default} |")), "{default}");
    }
    assert!(
        table.contains(&format!("| {connections} |")) && table.contains(&format!("| {drain} |"))
    );
}

#[test]
fn errors_name_the_fault_and_its_remedy() {
    testing::snapshot!("refusals/gateway.txt", |more| refused(&format!("{LEAST}{more}")));
    assert!(refused("[lan]\ninterfaces = [\"a\"]\n").contains("wan"));
    let same = LEAST.replace("sat0", "eth0");
    assert!(refused(&same).contains("eth0 is of both sides"));
    let quote = LEAST.replace("sat0", "x\\\" accept");
    assert!(refused(&quote).contains("invalid interface name"));
    let name = format!("name = \"a b\"\n{LEAST}");
    assert!(refused(&name).contains("letters"));
}

#[test]
fn wan_may_use_the_built_in_tcp() {
    let gateway = Gateway::parse(LEAST, "g.toml").unwrap();
    assert_eq!(gateway.own_options().unwrap(), None);
    let text =
        format!("{LEAST}[wan.own]\ntcp = {{ congestion = \"none\", send_buffer = \"2MB\" }}");
    let gateway = Gateway::parse(&text, "g.toml").unwrap();
    let options = gateway.own_options().unwrap().unwrap();
    assert_eq!(options.send_buffer, tcp::Buffer::Fixed(2_000_000));
    assert_eq!(options.congestion, tcp::cc::Algorithm::None { window: None });
    let host = OverTcpConfig::of_host(None).unwrap().streams.options;
    assert_eq!(options.receive_buffer, host.receive_buffer, "unlimited, as on a host");
    let written = toml::to_string(&gateway).unwrap();
    assert_eq!(Gateway::parse(&written, "g.toml").unwrap(), gateway);
    let text = format!("{LEAST}[wan.own]\nprofile = \"scps-rate\"\nrate = \"8 Mbit/s\"");
    let options = Gateway::parse(&text, "g.toml").unwrap().own_options().unwrap().unwrap();
    assert_eq!(options.scps.unwrap().rate.unwrap().bps, Some(8_000_000));
}

#[test]
fn wan_offers_the_simulator_profiles() {
    for name in OverTcpConfig::profiles() {
        let text = format!("{LEAST}[wan.own]\nprofile = \"{name}\"\n");
        let parsed = Gateway::parse(&text, "g.toml")
            .or_else(|_| Gateway::parse(&format!("{text}rate = \"8 Mbit/s\""), "g.toml"));
        let options = parsed.unwrap().own_options().unwrap().unwrap();
        let simulated = OverTcpConfig::of_host(Some(name)).unwrap().streams.options;
        assert_eq!(options.congestion, simulated.congestion, "{name}");
        assert_eq!(options.send_buffer, simulated.send_buffer, "{name}");
        assert_eq!(options.receive_buffer, simulated.receive_buffer, "{name}");
    }
}

proptest! {
    #[test]
    fn port_sets_contain_the_right_ports(
        some in prop::collection::vec((1..200u16, 0..30u16), 0..8),
        others in prop::collection::vec((1..200u16, 0..30u16), 0..8),
    ) {
        let ports = |ranges: &[(u16, u16)]| {
            Ports::new(ranges.iter().map(|(start, len)| *start..=start + len))
        };
        let holds = |ranges: &[(u16, u16)], port: u16| {
            ranges.iter().any(|(start, len)| (*start..=start + len).contains(&port))
        };
        let left = ports(&some).without(&ports(&others));
        for port in 1..=250 {
            prop_assert_eq!(ports(&some).contains(port), holds(&some, port));
            prop_assert_eq!(left.contains(port), holds(&some, port) && !holds(&others, port));
        }
        for pair in ports(&some).ranges().collect::<Vec<_>>().windows(2) {
            prop_assert!(*pair[0].end() + 1 < *pair[1].start());
        }
    }
}
