use clap::Parser as _;
use lab::advise::Deployment;
use lab::link_spec::LinkSpec;
use lab::preset::Preset;
use transport::protocol::Protocol;

use super::commands;
use super::*;
use crate::{Cli, Command, sockets};

const PAGE: Page = Page { width: 100, has_colors: false, is_wide: false };

fn question(link: Preset) -> Question {
    Question {
        link,
        size: Size(1_000_000),
        has_return: true,
        receivers: 1,
        relay: false,
        deadline: None,
        thrifty: false,
        sharing: Some(Sharing::Dedicated),
        budget: Span(std::time::Duration::from_secs(1)),
        seed: 1,
        jobs: None,
    }
}

/// Questions with different needs.
fn questions() -> Vec<Question> {
    let geo = Preset::find("geo").expect("a preset");
    let relayed = Preset::find("moon-farside").expect("a preset");
    let mut two_relays = relayed.clone();
    two_relays.hops.push(LinkSpec::default());
    let plain = question(geo);
    let relay = Question { relay: true, ..question(relayed) };
    vec![
        Question { has_return: false, ..plain.clone() },
        Question { receivers: 3, ..plain.clone() },
        Question { sharing: Some(Sharing::Shared), ..plain.clone() },
        plain,
        Question { link: two_relays, ..relay.clone() },
        relay,
    ]
}

fn candidate(protocol: Protocol, basis: Basis) -> Candidate {
    Candidate {
        protocol,
        one_way: None,
        basis,
        runs: 1,
        success: Some(1.0),
        mean_s: Some(1.0),
        interval_s: None,
        bound_s: None,
        ready_s: None,
        packets_ratio: None,
        spent: Some(1.1),
        failures: BTreeMap::new(),
    }
}

fn advice(ranking: Vec<Candidate>) -> Advice {
    Advice {
        ranking,
        tied: 1,
        thrifty: None,
        fastest: None,
        dedicated: None,
        controlled: false,
        run_s: None,
        rate_bps: Some(10_000_000),
        return_bps: None,
        delay_s: 0.25,
        runs: 1,
        events: 1,
    }
}

/// Lines of the commands for a link without a file of contacts.
fn lines(question: &Question, advice: &Advice, best: &Candidate) -> Vec<String> {
    commands::lines(&Request { question, contacts: None }, advice, best)
}

fn printed(question: &Question, protocol: &Protocol) -> Vec<String> {
    let best = candidate(protocol.clone(), Basis::Simulated);
    lines(question, &advice(vec![best.clone()]), &best)
}

/// The words of a command as a shell splits them.
fn words(command: &str) -> Vec<String> {
    let unquoted = |part: &str| part.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let parts = command.split('"').enumerate();
    parts
        .flat_map(|(n, part)| if n % 2 == 1 { vec![part.to_owned()] } else { unquoted(part) })
        .collect()
}

/// The commands among the lines, each after the host that it is for.
fn parsed(lines: &[String]) -> Vec<(&str, Cli)> {
    let command = |line: &'_ String| line.starts_with("  ") && line.contains(" slowlight ");
    let parse = |line: &'_ String| {
        let host = line.trim_start().split(':').next().expect("a host");
        let typed = &line[line.find("slowlight ").expect("a command")..];
        let cli =
            Cli::try_parse_from(words(typed)).unwrap_or_else(|error| panic!("{line}\n{error}"));
        (host.len(), cli)
    };
    let commands = lines.iter().filter(|line| command(line));
    commands
        .map(|line| {
            let (len, cli) = parse(line);
            (&line.trim_start()[..len], cli)
        })
        .collect()
}

#[test]
fn every_printed_command_is_one_that_slowlight_takes() {
    let mut commands = 0;
    for question in questions() {
        for protocol in advise::candidates(&question).expect("candidates") {
            let deployment = advise::deployment(&protocol, question.relay);
            let lines = printed(&question, &protocol);
            let found = parsed(&lines);
            match deployment {
                Deployment::Commands | Deployment::Nodes => {
                    assert!(found.len() >= 2, "{protocol}: {lines:?}");
                    let begins = |what: &str| found.iter().any(|(host, _)| host.starts_with(what));
                    assert!(begins("sender") && begins("receiver"), "{protocol}: {lines:?}");
                }
                Deployment::Simulator => assert!(found.is_empty(), "{protocol}: {lines:?}"),
            }
            commands += found.len();
        }
    }
    assert!(commands > 100, "{commands}");
}

#[test]
fn printed_settings_of_nodes_are_valid() {
    for question in questions() {
        for protocol in advise::candidates(&question).expect("candidates") {
            let lines = printed(&question, &protocol);
            let Some(line) = lines.iter().find(|line| line.contains("[[layer]]")) else { continue };
            let (_, keys) = line.split_once("[[layer]] ").expect("a layer");
            let (keys, _) = keys.split_once(';').expect("a reference");
            let layer = keys.replace(", ", "\n");
            let listen = if layer.contains("tcp") || layer.contains("\"stcp") {
                "listen = [\"127.0.0.1:4556\"]"
            } else {
                "listen = \"127.0.0.1:4556\""
            };
            let toml = format!(
                "id = \"ipn:1.0\"\nsocket = \"a.sock\"\nstore.directory = \"a\"\n[[layer]]\n{layer}\n{listen}\n"
            );
            let read = service::node::NodeSpec::parse(&toml, "NODE.toml");
            assert!(read.is_ok(), "{toml}\n{read:?}");
        }
    }
}

#[test]
fn ltp_t_has_commands_for_each_relay() {
    let ltp_t = "ltp-t".parse::<Protocol>().unwrap();
    let questions = questions();
    let [two, one] = &questions[questions.len() - 2..] else { panic!("two questions") };
    assert_eq!(
        printed(one, &ltp_t),
        [
            "  receiver: slowlight recv --protocol ltp-t --entity 2 --listen :2500 --root inbox \
             --delay \"1.5 s\"",
            "  relay: slowlight recv --protocol ltp-t --entity 3 --listen :2500 --root spool \
             --peer 2=RECEIVER:2500 --rate \"10 Mbit/s\" --delay \"1.5 s\"",
            "  sender:   slowlight send --protocol ltp-t FILE RELAY:2500 --via 3 --remote-entity 2 \
             --rate \"10 Mbit/s\" --delay \"230 ms\"",
        ]
    );
    let lines = printed(two, &ltp_t);
    assert!(lines[1].contains("relay2: ") && lines[1].contains("--entity 4"), "{lines:?}");
    assert!(lines[2].contains("--peer 4=RELAY2:2500 --route 2=4"), "{lines:?}");
    assert!(lines[3].contains("RELAY1:2500 --via 3"), "{lines:?}");
    let commands = parsed(&lines);
    let transports = |at: usize| match &commands[at].1.command {
        Command::Sockets(command) => &**command,
        other => panic!("{other:?}"),
    };
    assert!(matches!(transports(2), sockets::Command::Recv(_)));
    assert!(matches!(transports(3), sockets::Command::Send(_)));
}

#[test]
fn both_ends_are_told_of_a_thin_return_link() {
    let geo = question(Preset::find("geo").expect("a preset"));
    let best = candidate(Protocol::default(), Basis::Simulated);
    let thin = Advice { return_bps: Some(2_000), ..advice(vec![best.clone()]) };
    assert_eq!(
        lines(&geo, &thin, &best),
        [
            "  receiver: slowlight recv --protocol cfdp --listen :2500 --root inbox \
             --rate \"2 kbit/s\" --delay \"250 ms\"",
            "  sender:   slowlight send --protocol cfdp FILE RECEIVER:2500 --rate \"10 Mbit/s\" \
             --return-rate \"2 kbit/s\" --delay \"250 ms\"",
        ]
    );
}

#[test]
fn both_ends_get_the_outages_of_the_link() {
    let options = |keys: &str| {
        let link = format!("rate = \"2 Mbit/s\"\ndelay = \"6 ms\"\n{keys}");
        let hop: LinkSpec = transport::text::parse(&link, "link").expect("a link");
        let question = question(Preset::single(hop));
        let best = candidate(Protocol::default(), Basis::Simulated);
        let lines = lines(&question, &advice(vec![best.clone()]), &best);
        let ends: Vec<_> = lines[..2]
            .iter()
            .map(|line| line.split_once(" --delay \"250 ms\"").expect("a light time").1.to_owned())
            .collect();
        assert_eq!(ends[0], ends[1]);
        (ends[0].clone(), lines[2..].to_vec())
    };
    let (leo, notes) =
        options("outage_every = { period = \"95 min\", down = \"87 min\", first = \"8 min\" }");
    assert_eq!(leo, " --outage-every \"95 min+87 min+8 min\" --inactivity \"174 min\"");
    assert!(notes[0].contains("--epoch"), "{notes:?}");
    let short = "outages = [{ at = \"10 s\", for = \"30 s\" }, { at = \"2 min\", for = \"1 s\" }]";
    assert_eq!(options(short).0, " --outage \"10 s+30 s\" --outage \"2 min+1 s\"");
    let (contacts, notes) = options(
        "contacts = [{ at = \"10 s\", for = \"30 s\" }, { at = \"3 h\", for = \"1 min\" }]",
    );
    assert!(contacts.starts_with(" --contacts contacts.txt --inactivity "), "{contacts}");
    assert_eq!(notes[0], "  contacts.txt: 10 s, 40 s");
    assert_eq!(options(""), (String::new(), Vec::new()));
}

#[test]
fn a_file_of_contacts_reaches_both_commands() {
    let gap = "contacts = [{ at = \"0 s\", for = \"30 s\" }, { at = \"3 h\", for = \"1 min\" }]";
    let link = format!("rate = \"2 Mbit/s\"\ndelay = \"6 ms\"\n{gap}");
    let hop: LinkSpec = transport::text::parse(&link, "link").expect("a link");
    let question = question(Preset::single(hop));
    let ends = crate::compute::link_options::Ends {
        sender: " --contacts plan.toml --own-node 7 --remote-node 9".to_owned(),
        receiver: " --contacts plan.toml --own-node 9 --remote-node 7".to_owned(),
        is_relative: true,
    };
    let request = Request { question: &question, contacts: Some(ends.clone()) };
    let best = candidate(Protocol::default(), Basis::Simulated);
    let text = commands::lines(&request, &advice(vec![best.clone()]), &best);
    for (line, options) in text.iter().zip([ends.receiver, ends.sender]) {
        assert!(line.contains(&options) && line.contains(" --inactivity "), "{text:?}");
    }
    assert!(text[2].contains("--epoch") && text.len() == 3, "{text:?}");
    assert_eq!(parsed(&text).len(), 2);
}

#[test]
fn a_sender_without_replies_gets_its_parity_and_the_loss() {
    let geo = question(Preset::find("geo").expect("a preset"));
    let one_way = Question { has_return: false, ..geo };
    let best = |carousel| {
        let mode = advise::OneWay { confidence: 0.999, loss: 0.05, carousel };
        let protocol: Protocol = "norm/coded".parse().expect("a protocol");
        Candidate { one_way: Some(mode), ..candidate(protocol, Basis::Simulated) }
    };
    for (carousel, option) in [
        (None, "--confidence 0.999 --mib loss.toml"),
        (Some(Span(std::time::Duration::from_secs(60))), "--carousel \"1 min\" --mib loss.toml"),
    ] {
        let best = best(carousel);
        let text = lines(&one_way, &advice(vec![best.clone()]), &best);
        assert!(text[1].ends_with(option), "{text:?}");
        assert_eq!(text[2], "  loss.toml: sender.loss = \"0.05\"");
        assert_eq!(parsed(&text).len(), 2);
        let found = words::paragraph(&one_way, &advice(vec![best.clone()]), &best, false);
        assert!(found.starts_with("Take norm/coded "), "{found}");
    }
}

#[test]
fn the_size_of_datagrams_reaches_the_commands() {
    let mut preset = Preset::find("geo").expect("a preset");
    preset.hops[0].datagram = Some(Size(256));
    let question = question(preset);
    for name in ["norm/coded", "cfdp", "bp-ltp"] {
        let text = printed(&question, &name.parse().expect("a protocol")).join("\n");
        let expected =
            if name == "bp-ltp" { "datagram = \"256 B\"" } else { "--datagram \"256 B\"" };
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn what_never_arrived_is_not_the_fastest() {
    let question = Question {
        deadline: Some(Span(std::time::Duration::from_secs(1))),
        ..question(Preset::find("geo").expect("a preset"))
    };
    let of = |name: &str, success: f64, mean_s| Candidate {
        success: Some(success),
        mean_s,
        runs: 100,
        ..candidate(name.parse().expect("a protocol"), Basis::Simulated)
    };
    let never = of("bp-saratoga", 0.0, None);
    let text = words::paragraph(&question, &advice(vec![never.clone()]), &never, false);
    assert!(text.starts_with("No transport delivers the file over this link."), "{text}");
    assert!(lines(&question, &advice(vec![never.clone()]), &never).is_empty());
    let late = of("cfdp", 0.0, Some(9.0));
    let text = words::paragraph(&question, &advice(vec![late.clone(), never]), &late, false);
    assert!(
        text.starts_with("No transport meets the deadline of 1 s. The fastest is cfdp."),
        "{text}"
    );
    let seldom = of("norm/coded", 0.06, Some(1.1));
    let text = words::paragraph(&question, &advice(vec![seldom.clone()]), &seldom, false);
    let begin =
        "No transport meets the deadline of 1 s in 95 % of its runs. The best is norm/coded.";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("in 6.0 % of 100 runs"), "{text}");
    assert!(!serves(&question, &seldom) && serves(&question, &of("norm/coded", 0.95, Some(0.9))));
}

#[test]
fn the_simulator_alone_is_named_with_the_best_that_has_commands() {
    let question = question(Preset::find("geo").expect("a preset"));
    let of = |name: &str, basis| candidate(name.parse().expect("a protocol"), basis);
    let best = of("ftp/bbr", Basis::Simulated);
    let ranking =
        vec![best.clone(), of("ftp/cubic", Basis::Simulated), of("norm/cc", Basis::Estimated)];
    let text = lines(&question, &advice(ranking), &best);
    assert!(text[0].starts_with("ftp/bbr runs in the simulator only."), "{text:?}");
    assert!(text[0].contains("tcp_congestion_control=bbr"), "{text:?}");
    let next = "The best that slowlight runs between hosts is norm/cc, an estimated 1.00 s:";
    assert_eq!(text[1], next);
    assert_eq!(parsed(&text).len(), 2);
    let failed = Candidate { success: Some(0.0), mean_s: None, ..of("norm/cc", Basis::Simulated) };
    let text = lines(&question, &advice(vec![best.clone(), failed]), &best);
    assert_eq!(text[1], "No other transport delivers the file.");
    let scp = of("scp", Basis::Simulated);
    let text = lines(&question, &advice(vec![scp.clone()]), &scp);
    assert_eq!(text[0], "scp is simulated as a model of the program: scp FILE RECEIVER:");
}

#[test]
fn capacity_is_stated_where_it_decides() {
    let question = Question { thrifty: true, ..question(Preset::find("geo").expect("a preset")) };
    let of = |name: &str| candidate(name.parse().expect("a protocol"), Basis::Simulated);
    let fastest = Candidate { spent: Some(1.3), mean_s: Some(2.0), ..of("norm-fec") };
    let best = Candidate { mean_s: Some(2.1), ..of("saratoga") };
    let found = Advice {
        thrifty: Some(2),
        fastest: Some(fastest.clone()),
        ..advice(vec![best.clone(), fastest])
    };
    let text = words::paragraph(&question, &found, &best, false);
    let part = "saratoga takes the least capacity of 2 transports within 10 % of the best time, \
                1.10× the file's size on the link. The fastest is norm-fec: 2.00 s and 1.30×.";
    assert!(text.contains(part), "{text}");
    assert!(table(&found, 2).drawn(PAGE).contains("1.30×"));
}

#[test]
fn what_was_not_simulated_is_neither_recommended_nor_certain() {
    let question = question(Preset::find("geo").expect("a preset"));
    let unknown = Candidate {
        success: None,
        mean_s: None,
        interval_s: Some((30.0, None)),
        ..candidate("ltp".parse().unwrap(), Basis::Unknown)
    };
    let found = advice(vec![unknown.clone()]);
    let text = words::paragraph(&question, &found, &unknown, false);
    assert!(text.starts_with("It is not known which transport is best."), "{text}");
    assert!(text.contains("by shorter files, is ltp"), "{text}");
    assert!(!serves(&question, &unknown));

    let cut = Candidate {
        success: Some(0.0),
        mean_s: None,
        failures: [(advise::CUT.to_owned(), 2)].into(),
        ..candidate("cfdp".parse().unwrap(), Basis::Simulated)
    };
    let text = words::paragraph(&question, &advice(vec![cut.clone()]), &cut, false);
    assert!(text.starts_with("It is not known whether a transport delivers the file."), "{text}");
    assert!(text.contains("give a larger --budget"), "{text}");

    let estimated = Candidate { success: None, ..candidate(unknown.protocol, Basis::Estimated) };
    assert!(serves(&question, &estimated));
    let next = Candidate { mean_s: Some(2.0), ..estimated.clone() };
    let found = advice(vec![estimated.clone(), next]);
    let text = words::paragraph(&question, &found, &estimated, false);
    assert!(text.contains("ltp is next, with an estimated 2.00 s (2.0 times as long)"), "{text}");
    let printed = table(&found, 1).drawn(PAGE);
    assert!(printed.contains("~1.00 s") && !printed.contains("100.0 %"), "{printed}");

    let late = Question { deadline: Some(Span(std::time::Duration::from_secs(1))), ..question };
    assert!(!serves(&late, &estimated), "nothing shows that it meets the deadline");
    let in_time = Candidate { success: Some(1.0), ..estimated };
    assert!(serves(&late, &in_time));
    assert!(table(&advice(vec![in_time]), 1).drawn(PAGE).contains("~100.0 %"));
}
