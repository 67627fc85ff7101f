mod running;

use bp::codec::bp7::CrcType;
use engine::Time;
use rt::node::{WallClock, dtn_ms};
use testing::snapshot::changed;

use super::*;

const WHOLE: &str = r#"
id = "ipn:2.0"
aliases = ["dtn://two/"]
socket = "/tmp/two.sock"
echo = "7"
drain = "3 s"
store.directory = "/var/lib/slowlight"
limits.bundles = 500
limits.bytes = "2 GB"
limits.lifetime = "7 d"
reports.forwarding = true

[[layer]]
kind = "tcpcl4"
listen = ["0.0.0.0:4556", "[::]:4556"]
keepalive = "15 s"
segment = "1 MiB"

[[neighbour]]
node = "ipn:1.0"
from = ["192.0.2.0/28"]

[[neighbour]]
node = "ipn:3.0"
layer = "tcp"
address = "192.0.2.3:4556"

[[route]]
to = "dtn://far/mail"
via = "ipn:1.0"

[[route]]
to = "*"
via = "ipn:3.0"
"#;

/// Blocks of TOML in a page.
fn examples(page: &str) -> Vec<toml::Table> {
    let parts = page.split("```toml\n").skip(1);
    let text = |part: &str| part.split("```").next().unwrap().to_owned();
    parts.map(|part| toml::from_str(&text(part)).unwrap()).collect()
}

/// A node with the settings of an example, and those that every node needs.
fn completed(mut example: toml::Table) -> NodeSpec {
    let needed: toml::Table = toml::from_str(
        "id = \"ipn:1.0\"\nstore.memory = \"1 MB\"\n[[layer]]\nkind = \"tcpcl4\"\nlisten = [\"0.0.0.0:4556\"]",
    )
    .unwrap();
    for (key, value) in needed {
        example.entry(key).or_insert(value);
    }
    NodeSpec::parse(&toml::to_string(&example).unwrap(), "node.toml").unwrap()
}

#[test]
fn examples_of_the_pages_are_settings_without_warnings() {
    let pages = [
        include_str!("../../../../docs/node.md"),
        include_str!("../../../../docs/guides/run-a-node.md"),
    ];
    let mut count = 0;
    for example in pages.into_iter().flat_map(examples) {
        let spec = completed(example);
        assert_eq!(spec.limits.shadows(), [""; 0]);
        count += 1;
    }
    assert!(count >= 8, "{count}");
}

#[test]
fn the_admission_example_refuses_the_node_from_all_neighbours() {
    let examples = examples(include_str!("../../../../docs/node.md"));
    let has_rules = |example: &&toml::Table| {
        example.get("limits").is_some_and(|limits| limits.get("accept").is_some())
    };
    let spec = completed(examples.iter().find(has_rules).unwrap().clone());
    let rules = spec.limits.rules().unwrap();
    let source: Eid = "ipn:13.7".parse().unwrap();
    for by in [agent::By::Strangers, agent::By::Neighbour("ipn:2.0".parse().unwrap())] {
        let applies = |rule: &&agent::Acceptance| {
            (rule.by == agent::By::Any || rule.by == by) && rule.from.matches(&source)
        };
        assert!(rules.iter().find(applies).unwrap().refuse, "{by:?}");
    }
}

#[test]
fn rules_that_earlier_ones_shadow_cause_a_warning() {
    let strangers = "neighbour = \"strangers\"\nbundles = 9";
    let node = "from = \"ipn:13.0\"\nrefuse = true";
    let all = "refuse = true";
    let friend = "neighbour = \"ipn:2.0\"";
    let endpoint = "from = \"ipn:13.5\"";
    for (first, second, warns) in [
        (strangers, node, true),
        (node, strangers, false),
        (all, friend, true),
        (friend, all, false),
        (node, endpoint, true),
        (endpoint, node, false),
        (friend, strangers, false),
        (strangers, strangers, true),
    ] {
        let text = format!("{WHOLE}\n[[limits.accept]]\n{first}\n[[limits.accept]]\n{second}");
        let warnings = NodeSpec::parse(&text, "node.toml").unwrap().limits.shadows();
        assert_eq!(warnings.len(), usize::from(warns), "{first:?} {second:?} {warnings:?}");
        assert!(warnings.iter().all(|it| it.contains("rule 2") && it.contains("rule 1")));
    }
}

fn now() -> SystemTime {
    // 2000-01-01T00:16:40Z.
    SystemTime::UNIX_EPOCH + Duration::from_secs(946_684_800 + 1000)
}

fn config(spec: &NodeSpec) -> NodeConfig {
    spec.config(now(), 1, &PlanInForce::default()).unwrap()
}

#[test]
fn complete_configurations_are_applied() {
    let spec = NodeSpec::parse(WHOLE, "node.toml").unwrap();
    assert_eq!(spec.echo_endpoint().unwrap(), Some(Eid::ipn(2, 7)));
    assert_eq!(spec.drain, Span(Duration::from_secs(3)));
    let config = config(&spec);
    let agent = &config.agent;
    assert_eq!(agent.node, Eid::ipn(2, 0));
    // The node sets the agent's clock when it starts.
    assert_eq!((config.wall, agent.clock, dtn_ms(now())), (WallClock::Always, None, 1_000_000));
    assert!(agent.persistent && agent.aliases.contains(&"dtn://two/".parse().unwrap()));
    assert_eq!((agent.limits.bundles, agent.limits.bytes), (500, 2_000_000_000));
    assert_eq!(agent.limits.lifetime, Duration::from_secs(7 * 86_400));
    assert!(agent.reports.forwarding && agent.reports.delivery && !agent.reports.deletion);
    let at = LinkRef { layer: 0, link: LinkId(2) };
    assert_eq!(agent.links, BTreeMap::from([(at, Eid::ipn(3, 0))]));
    let Routing::Static(entries) = &agent.routing else { panic!("{:?}", agent.routing) };
    let via = |text: &str| {
        let eid: Eid = text.parse().unwrap();
        entries.iter().find(|entry| entry.to.matches(&eid)).map(|entry| entry.via.clone())
    };
    assert_eq!(via("dtn://far/mail"), Some(vec![Eid::ipn(1, 0)]));
    assert_eq!(via("dtn://far/else"), Some(vec![Eid::ipn(3, 0)]));
    let layer = &config.layers[0];
    assert_eq!((layer.name.as_str(), layer.open.len()), ("tcp", 1));
    let Carrier::Streams(streams) = &layer.carrier else { panic!("{:?}", layer.carrier) };
    assert_eq!(streams.listen.len(), 2);
    assert_eq!(streams.peers[&PathId(2)], "192.0.2.3:4556".parse().unwrap());
}

#[test]
fn addresses_of_neighbours_may_have_host_names() {
    let text = |neighbour: &str| {
        format!(
            "id = \"ipn:1.0\"\nstore.memory = \"1 MB\"\n[[layer]]\nkind = \"tcpcl4\"\n\
             listen = [\"127.0.0.1:0\"]\n[[neighbour]]\nnode = \"ipn:2.0\"\n{neighbour}"
        )
    };
    let spec = NodeSpec::parse(&text("address = \"earth.example:4556\""), "node.toml").unwrap();
    let way = spec.links().unwrap().into_values().next().unwrap();
    assert_eq!(way.address.to_string(), "earth.example:4556");
    // A name admits nobody, whatever strangers may do.
    for strangers in ["refuse", "receive", "both"] {
        let text = text("address = \"earth.example:4556\"");
        let text = format!("limits.strangers = \"{strangers}\"\n{text}");
        let admission = NodeSpec::parse(&text, "node.toml").unwrap().admission().unwrap();
        assert_eq!(admission.neighbours, [(Eid::ipn(2, 0), Vec::new())].into(), "{strangers}");
    }
    let written = toml::to_string(&spec.neighbours[0]).unwrap();
    assert!(written.contains("address = \"earth.example:4556\""), "{written}");
}

#[test]
fn neighbours_are_destinations_without_a_route() {
    let text = WHOLE.split("[[route]]").next().unwrap();
    let spec = NodeSpec::parse(text, "node.toml").unwrap();
    let Routing::Static(entries) = spec.agent(None).unwrap().routing else { panic!() };
    let to: Vec<_> = entries.iter().map(|entry| &entry.via).collect();
    assert_eq!(to, [&[Eid::ipn(1, 0)], &[Eid::ipn(3, 0)]]);
}

#[test]
fn service_names_belong_to_the_node() {
    let spec = NodeSpec::parse(&WHOLE.replace("ipn:2.0", "dtn://two/"), "node.toml").unwrap();
    assert_eq!(spec.endpoint("echo").unwrap().to_string(), "dtn://two/echo");
    assert_eq!(spec.endpoint("ipn:5.6").unwrap(), Eid::ipn(5, 6));
    let ten = NodeSpec::parse(&WHOLE.replace("\"ipn:2.0\"", "\"ipn:10.0\""), "node.toml").unwrap();
    assert_eq!(ten.endpoint("12").unwrap(), Eid::ipn(10, 12));
}

/// Error of the settings after a change.
fn refused(settings: &str, change: &str) -> String {
    NodeSpec::parse(&changed(settings, change), "node.toml").unwrap_err().to_string()
}

/// Errors name the location and a remedy.
#[test]
fn invalid_settings_are_refused() {
    testing::snapshot!("refusals/node.txt", |change| refused(WHOLE, change));
}

#[test]
fn settings_of_the_agent_have_the_keys_of_scenarios() {
    let given = |more: &str| {
        let text = WHOLE.replacen("limits.bundles", &format!("{more}\nlimits.bundles"), 1);
        NodeSpec::parse(&text, "node.toml").unwrap()
    };
    let hops = |more: &str| config(&given(more)).agent.hop_limit;
    assert_eq!(hops(""), Some(30));
    assert_eq!(hops("hop_limit = 7"), Some(7));
    assert_eq!(hops("hop_limit = \"off\""), None);
    for (more, primary) in [("", CrcType::Crc32c), ("crc = \"crc-16\"", CrcType::Crc16)] {
        let crc = config(&given(more)).agent.crc;
        assert_eq!(crc, agent::Checks { primary, ..agent::Checks::default() });
    }
    let agent = |more: &str| given(more).agent(None).unwrap();
    assert_eq!(agent("contact_timeout = \"9 s\"").contact_timeout, Duration::from_secs(9));
    let limits = agent("limits.inline_total = \"1 MB\"").limits;
    assert_eq!((limits.inline, limits.inline_total), (1 << 20, 1_000_000));
    let text = WHOLE.split("[[route]]").next().unwrap();
    let plan = |plan: &str| NodeSpec::parse(&format!("{plan}\n{text}"), "node.toml").unwrap();
    let file = plan("contact_plan = \"a.toml\"").contact_plan.unwrap();
    let (path, routing) = ("a.toml".into(), transport::settings::RouterSettings::default());
    assert_eq!(file, Plan { file: path, format: None, epoch: None, routing, timeout: None });
    assert_eq!(plan("contact_plan = { file = \"a.toml\" }").contact_plan, Some(file));
}

#[test]
fn a_plan_counts_from_when_the_node_begins() {
    let folder = tempfile::tempdir().unwrap();
    // A contact of nodes 2 and 3 from 100 s to 200 s of the plan, and an ended one.
    let plan = "a contact +0 +50 2 3 1000\na contact +100 +200 2 3 1000\na range +0 +1000 2 3 7\n";
    std::fs::write(folder.path().join("plan.ionrc"), plan).unwrap();
    let text = WHOLE.split("[[route]]").next().unwrap();
    let text = format!(
        "{text}\n[contact_plan]\nfile = \"plan.ionrc\"\nepoch = \"2000-01-01T00:15:30Z\"\n"
    );
    let path = folder.path().join("node.toml");
    std::fs::write(&path, text).unwrap();
    let spec = NodeSpec::read(&path).unwrap();
    let config = config(&spec);
    assert!(config.layers[0].open.is_empty(), "the plan opens it");
    let Routing::ContactGraph(router, _) = config.agent.routing else { panic!() };
    // The epoch is 70 s before the node starts.
    let contact = router.next_contact(Time::ZERO, 3).unwrap();
    assert_eq!((contact.start, contact.end), (Time::from_secs(30), Time::from_secs(130)));
    assert_eq!(router.plan().contacts().len(), 1);
    assert_eq!(router.plan().owlt(2, 3, Time::from_secs(40)), Duration::from_secs(7));
    let wrong =
        spec.contact_plan.map(|plan| Plan { epoch: Some("soon".to_owned()), ..plan }).unwrap();
    let error = wrong.parse("", now()).unwrap_err().to_string();
    assert!(error.contains("contact_plan.epoch"), "{error}");
}

#[test]
fn a_route_has_one_next_hop_or_several() {
    let text = WHOLE.split("[[route]]").next().unwrap();
    let given = |via: &str| {
        let text = format!("{text}\n[[route]]\nto = \"*\"\nvia = {via}\n");
        NodeSpec::parse(&text, "node.toml").map(|spec| config(&spec).agent.routing)
    };
    let hops = |via: &str| {
        let Routing::Static(entries) = given(via).unwrap() else { panic!() };
        entries[0].via.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(hops("\"ipn:3.0\""), ["ipn:3.0"]);
    assert_eq!(hops("[\"ipn:1.0\", \"ipn:3.0\"]"), ["ipn:1.0", "ipn:3.0"]);
}

#[test]
fn a_store_in_memory_has_no_files() {
    let text =
        WHOLE.replace("store.directory = \"/var/lib/slowlight\"", "store.memory = \"64 MB\"");
    let config = config(&NodeSpec::parse(&text, "node.toml").unwrap());
    assert!(!config.agent.persistent);
    assert_eq!((config.agent.limits.inline, config.agent.limits.bytes), (usize::MAX, 64_000_000));
}

const OVER_LTP: &str = r#"
id = "ipn:2.0"
store.memory = "64 MB"
[[layer]]
kind = "ltpcl"
listen = "127.0.0.1:0"
rate = "1 Gbit/s"
share = "5 ms"
settings = { limits.sessions = 9, default.segment_max = "1 kB" }
[[neighbour]]
node = "ipn:3.0"
address = "127.0.0.1:1113"
[[neighbour]]
node = "dtn://d/"
engine = 77
address = "127.0.0.1:1114"
"#;

#[test]
fn neighbours_over_ltp_are_engines() {
    let spec = NodeSpec::parse(OVER_LTP, "node.toml").unwrap();
    let engines = spec.links().unwrap().into_values().map(|way| way.engine);
    assert_eq!(engines.collect::<Vec<_>>(), [3, 77]);
    let config = config(&spec);
    let Carrier::Datagrams { peers, .. } = &config.layers[0].carrier else { panic!("no UDP") };
    assert_eq!(peers[&PathId(2)], "127.0.0.1:1114".parse().unwrap());
    let Layer::Ltpcl(layer) = &spec.layers[0] else { panic!("{:?}", spec.layers) };
    let ltp = layer.ltp(&Eid::ipn(2, 0), Size(64_000_000), Some(Size(64_000_000))).unwrap();
    // Without a disk there are no files.
    assert_eq!((ltp.engine, ltp.limits.sessions, ltp.limits.units), (2, 9, 64_000_000));
    assert_eq!(ltp.default_remote.segment_max, Some(1000));
    testing::snapshot!("refusals/node_over_ltp.txt", |change| refused(OVER_LTP, change));
}

#[test]
fn the_clock_may_be_used_when_it_is_synchronised() {
    for (clock, wall) in [
        ("", WallClock::Always),
        ("clock = true", WallClock::Always),
        ("clock = false", WallClock::Unused),
        ("clock = \"when-synchronised\"", WallClock::WhenSynchronised),
    ] {
        let spec = NodeSpec::parse(&format!("{clock}\n{OVER_LTP}"), "node.toml").unwrap();
        let config = config(&spec);
        // Only from WallClock::Always does a node have a clock from the start on.
        assert_eq!((config.agent.clock, config.wall), (None, wall), "{clock}");
        let value = toml::Value::try_from(spec.clock).unwrap();
        assert_eq!(value.try_into::<ClockUse>().unwrap(), spec.clock);
    }
}

#[test]
fn invalid_saratoga_and_norm_settings_are_refused() {
    let text = |more: &str| {
        format!(
            "id = \"dtn://a/\"\nstore.memory = \"1 MB\"\n[[layer]]\nkind = \"saratoga\"\n\
             listen = \"127.0.0.1:0\"\nrate = \"1 Mbit/s\"\n{more}\n"
        )
    };
    NodeSpec::parse(&text("settings.default.payload_max = \"500 B\""), "node.toml").unwrap();
    let refused = |more: &str| NodeSpec::parse(&text(more), "node.toml").unwrap_err().to_string();
    testing::snapshot!("refusals/node_over_saratoga.txt", refused);
    let norm = text("settings.sender.segment_sizes = \"1 kB\"").replace("saratoga", "norm");
    let error = NodeSpec::parse(&norm, "node.toml").unwrap_err().to_string();
    assert!(error.contains("did you mean `segment_size`?"), "{error}");
}

#[test]
fn each_kind_of_layer_has_its_sockets() {
    let streams = |kind| {
        format!("[[layer]]\nkind = \"{kind}\"\nname = \"{kind}\"\nlisten = [\"127.0.0.1:0\"]\n")
    };
    let mut text = "id = \"dtn://a/\"\nstore.memory = \"1 MB\"\n".to_owned();
    for kind in ["tcpcl4", "tcpcl3", "mtcp", "stcp"] {
        text += &streams(kind);
    }
    text +=
        "[[layer]]\nkind = \"ltpcl\"\nlisten = \"127.0.0.1:0\"\nrate = \"20 Mbit/s\"\nengine = 3\n";
    text += "[[layer]]\nkind = \"saratoga\"\nlisten = \"127.0.0.1:0\"\nrate = \"20 Mbit/s\"\n";
    text += "[[layer]]\nkind = \"norm\"\nlisten = \"127.0.0.1:0\"\nrate = \"20 Mbit/s\"\n";
    text += "[[layer]]\nkind = \"udpcl\"\nlisten = \"127.0.0.1:0\"\nrate = \"10 Mbit/s\"\n";
    text += "[[neighbour]]\nnode = \"dtn://b/\"\nlayer = \"udp\"\naddress = \"127.0.0.1:4556\"\n";
    let config = config(&NodeSpec::parse(&text, "test").unwrap());
    let names: Vec<_> = config.layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(names, ["tcpcl4", "tcpcl3", "mtcp", "stcp", "ltp", "saratoga", "norm", "udp"]);
    let ltp = &config.layers[4].carrier;
    let Carrier::Datagrams { peers: none, .. } = &config.layers[5].carrier else { panic!() };
    assert!(none.is_empty());
    let Carrier::Datagrams { config, peers } = &config.layers[7].carrier else { panic!("no UDP") };
    assert_eq!((config.path.rate_bps, peers.len()), (Some(10_000_000), 1));
    let Carrier::Datagrams { config, .. } = ltp else { panic!("no UDP") };
    assert_eq!(config.path.rate_bps, Some(20_000_000));
    let no_rate = text.replace("rate = \"10 Mbit/s\"\n", "");
    let error = NodeSpec::parse(&no_rate, "test").unwrap_err().to_string();
    assert!(error.contains("rate"), "{error}");
}

const SECURED: &str = r#"
id = "ipn:2.0"
store.memory = "1 GB"
spray = 4
custody.accept = false
custody.retransmit_after = "10 s"

[keys.sign]
file = "sign.key"

[keys.wrap]
file = "wrap.key"
wraps = true

[[security]]
role = "source"
operation = "integrity"
bits = 512
to = "ipn:3.0"
targets = [0, 1]
key = "sign"
scope = 3

[[security]]
role = "acceptor"
operation = "confidentiality"
from = "ipn:3.1"
key = "wrap"
fault = "strip"

[[layer]]
kind = "tcpcl4"
"#;

#[test]
fn security_custody_and_copies_are_configured() {
    use bp::codec::bpsec::{AesVariant, ShaVariant};
    use bp::security::{OnFault, Operation, Role};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.toml");
    std::fs::write(&path, SECURED).unwrap();
    let error = NodeSpec::read(&path).unwrap().agent(None).unwrap_err().to_string();
    assert!(error.contains("keys.sign: ") && error.contains("sign.key"), "{error}");
    std::fs::write(folder.path().join("sign.key"), "0102 03").unwrap();
    std::fs::write(folder.path().join("wrap.key"), "00".repeat(15)).unwrap();
    let error = NodeSpec::read(&path).unwrap().agent(None).unwrap_err().to_string();
    assert!(error.contains("keys.wrap: ") && error.contains("16 or 32 bytes"), "{error}");
    std::fs::write(folder.path().join("wrap.key"), "00".repeat(16)).unwrap();
    let agent = NodeSpec::read(&path).unwrap().agent(None).unwrap();
    assert!(matches!(agent.routing, Routing::Spray { copies: 4 }), "{:?}", agent.routing);
    assert!(!agent.custody.accept && agent.custody.aggregate_after.is_none());
    assert_eq!(agent.custody.retransmit_after, Duration::from_secs(10));
    let [first, second] = agent.security.rules.as_slice() else { panic!("two rules") };
    assert_eq!(first.operation, Operation::Integrity(ShaVariant::Sha512));
    assert_eq!((first.role, first.targets.as_slice()), (Role::Source, &[0, 1][..]));
    assert_eq!(first.destination, Pattern::Node(Eid::ipn(3, 0)));
    assert!(first.scope.primary && first.scope.target_header && !first.scope.security_header);
    assert_eq!(second.operation, Operation::Confidentiality(AesVariant::Aes256));
    assert_eq!((second.role, second.on_fault), (Role::Acceptor, OnFault::Strip));
    assert_eq!(second.source, Pattern::Endpoint(Eid::ipn(3, 1)));
    assert_eq!(agent.security.keys.len(), 2);
}

#[test]
fn invalid_security_settings_are_refused() {
    testing::snapshot!("refusals/node_security.txt", |change| refused(SECURED, change));
    let tls = "kind = \"tcpcl4\"\ntls = { certificate = \"a\", key = \"b\", trusted = \"c\", \
               anonymous = true, node_id = false }";
    NodeSpec::parse(&SECURED.replace("kind = \"tcpcl4\"", tls), "node.toml").unwrap();
}

#[test]
fn admission_is_configured() {
    use bp::admission::Strangers as Rights;
    use bp::agent::By;

    let spec = NodeSpec::parse(WHOLE, "node.toml").unwrap();
    let admission = spec.admission().unwrap();
    assert_eq!(admission.strangers, Rights::Receive);
    let networks = |node: u32| {
        let networks = admission.neighbours[&Eid::ipn(node, 0)].iter();
        networks.map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(networks(1), ["192.0.2.0/28"]);
    // By default the configured address.
    assert_eq!(networks(3), ["192.0.2.3/32"]);
    let limits = spec.agent(None).unwrap().limits;
    assert_eq!((limits.share, limits.strangers_share, limits.reserve), (100, 25, 5));
    let given = |more: &str| WHOLE.replacen("limits.bundles = 500", more, 1);
    let rules = given(
        "limits.strangers = \"both\"\nlimits.unrouted = false\nlimits.accept = [{ neighbour = \
         \"strangers\", bundles = 9, lifetime = \"1 d\" }, { from = \"ipn:9.0\", refuse = true }]",
    );
    let spec = NodeSpec::parse(&rules, "node.toml").unwrap();
    assert_eq!(spec.admission().unwrap().strangers, Rights::Both);
    let agent = spec.agent(None).unwrap();
    assert!(!agent.limits.unrouted);
    let [first, second] = &agent.accept[..] else { panic!("{:?}", agent.accept) };
    assert_eq!((&first.by, first.bundles, first.lifetime_ms), (&By::Strangers, 9, 86_400_000));
    assert!(second.refuse && second.bytes == u64::MAX);
}

#[test]
fn examples_for_other_implementations_are_settings() {
    let page = include_str!("../../../../docs/peers.md");
    let examples = page.split("```toml\n").skip(1).filter_map(|text| text.split("```").next());
    let mut count = 0;
    for example in examples {
        let text = format!("id = \"ipn:1.0\"\nstore.memory = \"1 GB\"\n{example}");
        NodeSpec::parse(&text, "docs/peers.md")
            .unwrap_or_else(|error| panic!("{error}\n{example}"));
        count += 1;
    }
    assert_eq!(count, 9);
}

const DISCOVERY: &str = r#"
id = "ipn:1.0"
store.memory = "1 MB"
[discovery]
interfaces = ["eth0"]
[[layer]]
kind = "tcpcl4"
listen = ["0.0.0.0:4556"]
"#;

#[test]
fn discovery_has_the_groups_of_dtn7() {
    let spec = NodeSpec::parse(DISCOVERY, "node.toml").unwrap();
    let discovery = spec.discovery.unwrap();
    let groups: Vec<String> = discovery.groups.iter().map(ToString::to_string).collect();
    assert_eq!(groups, ["224.0.0.26:3003", "[ff02::1]:3003"]);
    assert_eq!(discovery.period, Span(Duration::from_secs(10)));
    assert_eq!((discovery.announce, discovery.accept, discovery.nodes), (true, None, 64));
}

#[test]
fn discovery_that_cannot_work_is_refused() {
    testing::snapshot!("refusals/discovery.txt", |change| refused(DISCOVERY, change));
    let udp = "kind = \"udpcl\"\nrate = \"1 Mbit/s\"\nlisten = \"0.0.0.0:4556\"";
    let layer = "kind = \"tcpcl4\"\nlisten = [\"0.0.0.0:4556\"]";
    let text = DISCOVERY.replace(layer, udp);
    let error = NodeSpec::parse(&text, "node.toml").unwrap_err().to_string();
    assert!(error.contains("no layer may connect"), "{error}");
}
