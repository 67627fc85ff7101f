//! Gateways that split connections, in scenarios and comparisons.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use slowlight_lab::compare::{self, Between, Plan, Row};
use slowlight_lab::content;
use slowlight_lab::link_spec::{Errors, LinkSpec};
use slowlight_lab::preset::Preset;
use slowlight_lab::run::{self, Recorders};
use slowlight_lab::scenario::Scenario;
use transport::quantity::{Probability, Rate, Span};

use std::time::Duration;

/// 8 Mbit/s, as in the study of 2012, with this round trip and loss.
fn link(round_trip_ms: u64, per: f64) -> Preset {
    let hop = LinkSpec {
        rate: Some(Rate(8_000_000)),
        delay: Some(Span(Duration::from_millis(round_trip_ms / 2))),
        errors: Errors { per: (per > 0.0).then_some(Probability(per)), ..Errors::default() },
        mtu: Some(transport::quantity::Size(1500)),
        ..LinkSpec::default()
    };
    Preset { hops: vec![hop], ..Preset::find("geo").unwrap() }
}

fn row(pep: Option<Between>, protocol: &str, link: Preset, bytes: u64) -> Row {
    let plan = Plan {
        pep,
        ..Plan::new(link, vec![protocol.parse().unwrap()], content::made_up(1, 0, bytes).unwrap())
    };
    let mut rows = compare::compare(&plan, &false.into(), &|| ()).unwrap().unwrap();
    let row = rows.remove(0);
    assert_eq!((row.completed, row.runs), (1, 1), "{protocol} {pep:?}: {:?}", row.failures);
    row
}

fn delivered_s(row: &Row) -> f64 {
    row.delivered_s.unwrap().mean
}

#[test]
fn without_delay_a_gateway_does_not_help_and_over_a_satellite_it_does() {
    for per in [0.0, 0.001] {
        let near = |pep| delivered_s(&row(Some(pep), "ftp/linux-2.6.18", link(0, per), 4_000_000));
        let (routed, split) = (near(Between::None), near(Between::Tcp));
        // The cost here is each connection's handshake: computing takes no time.
        assert!(split > routed && split < 1.01 * routed, "{per}: {split} {routed}");
        let far = |pep| delivered_s(&row(Some(pep), "ftp/linux-2.4.18", link(600, per), 4_000_000));
        let (routed, split) = (far(Between::None), far(Between::Tcp));
        // The hosts' windows of 128 KiB limit it to 1.7 Mbit/s; the gateways' windows fill the
        // link.
        assert!(split < 0.7 * routed, "{per}: {split} {routed}");
    }
}

#[test]
fn traffic_other_than_tcp_passes() {
    let direct = row(Some(Between::None), "cfdp", link(600, 0.001), 500_000);
    let cfdp = row(Some(Between::Tcp), "cfdp", link(600, 0.001), 500_000);
    assert_eq!(delivered_s(&direct).to_bits(), delivered_s(&cfdp).to_bits());
    assert_eq!(direct.traffic.packets_str, cfdp.traffic.packets_str);
}

#[test]
fn repairs_cross_the_link_alone_and_windows_of_the_hosts_stay_small() {
    let text = r#"
        seed = 1
        [nodes.a.pep]
        lan.buffer = "32 kB"
        [nodes.b.pep.wan]
        towards = "a"
        buffer = "1.2 MB"
        [[links]]
        from = "client"
        to = "a"
        rate = "100 Mbit/s"
        [[links]]
        from = "a"
        to = "client"
        rate = "100 Mbit/s"
        [[links]]
        from = "a"
        to = "b"
        rate = "8 Mbit/s"
        delay = "300 ms"
        drop = [300, 301, 400]
        [[links]]
        from = "b"
        to = "a"
        rate = "8 Mbit/s"
        delay = "300 ms"
        [[links]]
        from = "b"
        to = "server"
        rate = "100 Mbit/s"
        [[links]]
        from = "server"
        to = "b"
        rate = "100 Mbit/s"
        [[transfers]]
        from = "client"
        to = "server"
        size = "3 MB"
        protocol = "ftp"
    "#;
    let scenario = Scenario::parse(text, "test").unwrap().resolved().unwrap();
    let resolved = scenario.to_toml().unwrap();
    // The gateway faces its only neighbour that is a gateway, too.
    assert!(resolved.contains("towards = \"b\""), "{resolved}");
    let again = Scenario::parse(&resolved, "again").unwrap().resolved().unwrap();
    assert_eq!(again, scenario, "what is written out says the same");
    let contents = run::contents(&scenario).unwrap();
    let run = run::run(&scenario, &contents, Recorders::default()).unwrap();
    assert!(run.succeeded(), "{run:?}");
    let [a, b] = ["a", "b"].map(|name| run.gateways[name]);
    // The control connection and the data connection.
    assert_eq!((a.accepted, a.completed, a.open_peak), (2, 2, 2));
    assert_eq!((b.accepted, b.completed), (2, 2));
    assert_eq!((a.wan.retransmissions, a.lan.retransmissions), (3, 0));
    assert_eq!((b.wan.retransmissions, b.lan.retransmissions), (0, 0));
    assert!(a.bytes_to_servers > 3_000_000 && a.bytes_to_clients > 100);
    // 256 KiB per direction.
    assert!(a.buffered_peak <= 2 * 262_144, "{a:?}");
    assert_eq!(run.transfers[0].traffic.repairs_str, Some(0), "the client itself repairs nothing");
}

#[test]
fn scps_between_gateways_keeps_the_link_rate_despite_losses() {
    let through = |pep| {
        let row = row(Some(pep), "ftp/linux-2.6.18", link(600, 0.01), 3_000_000);
        8.0 * 3e6 / row.transfer_s.unwrap().mean
    };
    let (routed, tcp, scps) =
        (through(Between::None), through(Between::Tcp), through(Between::Scps));
    assert!(scps > 3.0 * tcp && tcp > routed, "{routed} {tcp} {scps}");
    assert!(scps < 8e6, "{scps}");
}

#[test]
fn all_connections_over_the_link_share_one_rate() {
    let side = "wan = { profile = \"scps-rate\", rate = \"2 Mbit/s\", buffer = \"1 MB\" }";
    let transfer = |number: usize| {
        format!(
            "[[transfers]]\nfrom = \"client\"\nto = \"server-{number}\"\nsize = \"1 MB\"\n\
             name = \"{number}\"\nprotocol = \"ftp\"\n"
        )
    };
    let ways = [("client", "a", 0), ("a", "b", 300), ("b", "server-1", 0), ("b", "server-2", 0)];
    let links: String = ways
        .iter()
        .flat_map(|(from, to, ms)| [(from, to, ms), (to, from, ms)])
        .map(|(from, to, ms)| format!(
            "[[links]]\nfrom = \"{from}\"\nto = \"{to}\"\ndelay = \"{ms} ms\"\nrate = \"50 Mbit/s\"\n"
        ))
        .collect();
    let text = format!(
        "seed = 1\n[nodes.a.pep]\n{side}\n[nodes.b.pep]\n{side}\n{links}{}{}",
        transfer(1),
        transfer(2)
    );
    let scenario = Scenario::parse(&text, "test").unwrap().resolved().unwrap();
    let contents = run::contents(&scenario).unwrap();
    let run = run::run(&scenario, &contents, Recorders::default()).unwrap();
    assert!(run.succeeded(), "{run:?}");
    // Two files of 1 MB take 8 s at 2 Mbit/s, and their headers 0.3 s.
    for transfer in &run.transfers {
        let took = transfer.transfer_s.unwrap();
        assert!((8.0..9.5).contains(&took), "{took}");
    }
    let without = text.replace("scps-rate", "modern");
    let error = Scenario::parse(&without, "test").and_then(Scenario::resolved).unwrap_err();
    assert!(error.to_string().contains("wan.rate: the profile has no rate"), "{error}");
}

#[test]
fn crashed_gateways_end_their_connections() {
    let far = "[[nodes.b.crashes]]\nat = \"10 s\"\nrestart = \"20 s\"\n";
    let text = format!(
        "seed = 1\n[nodes.a]\npep = {{}}\n[nodes.b]\npep = {{ early_accept = false }}\n{far}{}
        [[transfers]]\nfrom = \"client\"\nto = \"server\"\nsize = \"30 MB\"\nprotocol = \"ftp\"",
        [("client", "a", 0), ("a", "b", 300), ("b", "server", 0)]
            .iter()
            .flat_map(|(from, to, ms)| [(from, to, ms), (to, from, ms)])
            .map(|(from, to, ms)| format!(
                "[[links]]\nfrom = \"{from}\"\nto = \"{to}\"\ndelay = \"{ms} ms\"\nrate = \"8 Mbit/s\"\n"
            ))
            .collect::<String>()
    );
    let scenario = Scenario::parse(&text, "test").unwrap().resolved().unwrap();
    let contents = run::contents(&scenario).unwrap();
    let run = run::run(&scenario, &contents, Recorders::default()).unwrap();
    assert_eq!(run.ended, "idle");
    assert!(!run.transfers[0].completed && run.transfers[0].failure.is_some());
    assert!(run.under_way.is_empty(), "{:?}", run.under_way);
    assert!(run.gateways["a"].reset >= 1);
}

#[test]
fn mistakes_name_the_place_and_the_remedy() {
    let world = |pep: &str| {
        let links: String = [("client", "a"), ("a", "client"), ("a", "server"), ("server", "a")]
            .map(|(from, to)| format!("[[links]]\nfrom = \"{from}\"\nto = \"{to}\"\n"))
            .concat();
        format!(
            "seed = 1\n{pep}\n{links}[[transfers]]\nfrom = \"client\"\nto = \"server\"\nsize = \"1 kB\"\n\
             protocol = \"ftp\""
        )
    };
    testing::snapshot!("refusals/pep.txt", |pep| {
        let scenario = Scenario::parse(&world(pep), "test").and_then(Scenario::resolved);
        scenario.unwrap_err().to_string()
    });
}

#[test]
fn several_receivers_have_no_gateways() {
    let plan = Plan {
        receivers: 2,
        pep: Some(Between::Tcp),
        ..Plan::new(
            link(600, 0.0),
            vec!["ftp".parse().unwrap()],
            content::made_up(1, 0, 1000).unwrap(),
        )
    };
    let error = plan.scenario(&plan.protocols[0], 1).unwrap_err().to_string();
    assert!(error.contains("one receiver"), "{error}");
}
