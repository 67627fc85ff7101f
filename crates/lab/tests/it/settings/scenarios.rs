//! Settings in the tables of scenarios: which node has them, which are written, and the limit of
//! TCP's buffers.

use lab::scenario::Scenario;
use slowlight_lab as lab;
use transport::protocol::{ContentKind, Kind, Protocol};
use transport::settings::Settings;
use transport::settings::tcp::TcpBuffers;
use transport::text::{self, SpecError};

const WORLD: &str = "seed = 1
links = [
{ from = \"a\", to = \"b\", rate = \"1 Mbit/s\", delay = \"10 ms\" },
{ from = \"b\", to = \"a\", rate = \"1 Mbit/s\", delay = \"10 ms\" },
]
transfers = [{ from = \"a\", to = \"b\", protocol = \"PROTOCOL\", size = \"5 kB\" }]
";

fn world(protocol: &str, settings: &str) -> Result<Scenario, SpecError> {
    Scenario::parse(&(WORLD.replace("PROTOCOL", protocol) + settings), "world.toml")?.resolved()
}

#[test]
fn buffers_of_all_protocols_over_tcp_have_one_default_and_one_limit() {
    let mut count = 0;
    for kind in Kind::all().filter(|kind| kind.top().carries == ContentKind::File) {
        let name = Protocol::plain(kind).to_string();
        let parsed = || {
            let text = format!(
                "seed = 1
                links = [{{ from = \"a\", to = \"b\" }}, {{ from = \"b\", to = \"a\" }}]
                transfers = [{{ from = \"a\", to = \"b\", protocol = \"{name}\" }}]"
            );
            Scenario::parse(&text, "test").unwrap()
        };
        let most = |scenario: &Scenario| {
            let mib = scenario.nodes["a"].mib.as_ref();
            mib.and_then(Settings::tcp)?.most_buffers()
        };
        let Some(before) = most(&parsed().resolved().unwrap()) else { continue };
        assert_eq!(before, TcpBuffers::Unlimited.most(), "{name}");
        let limited = parsed().resolved_with(Some(TcpBuffers::Linux)).unwrap();
        assert_eq!(most(&limited), Some(TcpBuffers::Linux.most()), "{name}");
        count += 1;
    }
    assert!(count > 5, "FTP, programs and bundles over TCP: {count}");
}

#[test]
fn buffer_limits_replace_sizes_and_former_kernel_defaults() {
    let most = |settings: &str, protocol: &str, limit: Option<TcpBuffers>| {
        let text = format!(
            "seed = 1
            links = [{{ from = \"a\", to = \"b\" }}, {{ from = \"b\", to = \"a\" }}]
            transfers = [{{ from = \"a\", to = \"b\", protocol = \"{protocol}\" }}]
            [nodes.a.mib]
            {settings}"
        );
        let scenario = Scenario::parse(&text, "test").unwrap().resolved_with(limit).unwrap();
        scenario.nodes["a"].mib.as_ref().and_then(Settings::tcp).unwrap().most_buffers().unwrap()
    };
    let linux = TcpBuffers::Linux.most();
    let limit = Some(TcpBuffers::Linux);
    assert_eq!(most("tcp.send_buffer = \"100 MB\"", "ftp", limit), linux);
    assert_eq!(most("tcp.buffers = \"unlimited\"", "bp-tcpcl", limit), linux);
    assert_eq!(most("", "ftp/linux-2.4.18", limit), linux);
    assert!(most("", "ftp/linux-2.4.18", None).1 < linux.1, "what that kernel had");
}

#[test]
fn a_scenarios_settings_are_those_of_the_protocol() {
    testing::snapshot!("refusals/settings.txt", |case| {
        let (protocol, settings) = case.split_once('\n').unwrap_or((case, ""));
        world(protocol, settings).unwrap_err().to_string()
    });
    // Without the text the lines are lost, but not the keys.
    let text = WORLD.replace("PROTOCOL", "ltp") + "nodes.a.mib.cookie = true";
    let unread: Scenario = text::parse(&text, "world.toml").unwrap();
    let text = unread.resolved().unwrap_err().to_string();
    assert!(text.contains("nodes.a.mib: ") && text.contains("did you mean `cookies`?"), "{text}");
    // Settings read for one protocol are invalid for another.
    let mut other = Scenario::parse(&WORLD.replace("PROTOCOL", "ltp"), "world.toml").unwrap();
    other.nodes.entry("a".to_owned()).or_default().mib =
        Settings::parse("", "test", &[], Protocol::default().kind.adapter()).ok();
    let text = other.resolved().unwrap_err().to_string();
    assert!(text.contains("nodes.a.mib: these settings are for CFDP"), "{text}");
}

fn run(world: &Scenario) -> lab::run::Run {
    let contents = lab::run::contents(world).unwrap();
    lab::run::run(world, &contents, lab::run::Recorders::default()).unwrap()
}

#[test]
fn exported_scenarios_run_identically() {
    let cases = [
        ("ltp", "nodes.a.mib = { cookies = true, default = { checkpoint_every = \"1 kB\" } }"),
        ("ltp/ltplib-2011", "nodes.a.mib.remotes.2.interval = \"1 s\""),
        (
            "saratoga",
            "nodes.a.mib = { checksum = \"md5\", remotes.2 = { payload_max = \"99 B\" } }",
        ),
        ("saratoga/deferred", "nodes.b.mib.default.voluntary_interval = \"1 ms\""),
        ("cfdp", "nodes.a.mib.remotes.2.segment_max = \"99 B\""),
        ("bp-ltp", "nodes.a.mib.ltp.default.segment_max = \"99 B\""),
        ("bp-saratoga", "nodes.a.mib.saratoga.remotes.2.payload_max = \"99 B\""),
        ("bp-norm", "nodes.a.mib.norm.sender.segment_size = 99"),
        ("cfdp-ltp", "nodes.a.mib = { ut = { pdu = \"1 kB\", window = 3 } }"),
        ("cfdp-ltp/checkpoints", "nodes.a.mib = { color = \"green-data\", ltp.engine = 9 }"),
        ("cfdp-ltp", "nodes.a.mib.cfdp.default.class = 2"),
        ("cfdp-bp-tcpcl", "nodes.a.mib.ut = { pdu = \"1 kB\" }"),
        ("cfdp-bp-ltp", "nodes.a.mib.cfdp.default.class = 2"),
        ("bp-ltp/checkpoints", "nodes.a.mib.ltpcl = { color = { mixed = \"99 B\" }, window = 3 }"),
    ];
    for (protocol, settings) in cases {
        let resolved = world(protocol, settings).unwrap();
        let text = resolved.to_toml().unwrap();
        let again = Scenario::parse(&text, "resolved.toml").unwrap().resolved().unwrap();
        assert_eq!(again, resolved, "{text}");
        let (one, other) = (run(&resolved), run(&again));
        assert!(one.succeeded(), "{one:?}");
        let json = |run: &lab::run::Run| serde_json::to_string(run).unwrap();
        assert_eq!(json(&one), json(&other));
        let plain = run(&world(protocol, "").unwrap());
        assert_ne!(json(&plain), json(&one), "{settings} changes nothing");
    }
}
