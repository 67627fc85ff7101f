//! Five formats, one plan.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::Time;
use routing::changes::Change;
use routing::contacts::{Contact, ContactPlan, Range};
use routing::routes::{Priority, Router, Wanted};
use routing::settings::Settings;

use super::{Base, Document, Format, read, read_changes, write};

const TOML: &str = r#"
[[contact]]
from = 1
to = 2
start = "0 s"
end = "1 h"
rate = "115.2 kbit/s"

[[contact]]
from = 2
to = 3
start = "10 min"
end = "20 min"
rate = "1 Mbit/s"
confidence = 0.5

[[range]]
from = 1
to = 2
start = "0 s"
end = "1 d"
owlt = "2 s"
"#;

const ION: &str = "
## begin ionadmin
1 1 ''
s
@ 2026/11/20-00:00:00
a contact +0 +3600 1 1 100000
a contact +0 +3600 1 2 14400
a contact 2026/11/20-00:10:00 2026/11/20-00:20:00 2 3 125000 0.5
# One way; the other way is the same.
a range +0 +86400 1 2 2
m production 1000000
";

fn epoch() -> SystemTime {
    // 2026-11-20, 00:00:00 UTC.
    UNIX_EPOCH + Duration::from_secs(1_795_132_800)
}

fn document(format: Format, text: &str) -> Document {
    read(format, text, "plan", Base::from_epoch(epoch())).unwrap()
}

fn good(format: Format, text: &str) -> ContactPlan {
    document(format, text).plan
}

fn wrong(format: Format, text: &str) -> String {
    read(format, text, "plan", Base::from_epoch(epoch())).unwrap_err().to_string()
}

#[test]
fn all_formats_describe_the_same_plan() {
    let plan = good(Format::Toml, TOML);
    assert_eq!(good(Format::Ion, ION), plan);
    assert_eq!(plan.contacts()[0].rate_bps, 115_200);
    for format in [Format::Toml, Format::Ion] {
        let written = write(format, &plan);
        assert_eq!(good(format, &written.text), plan, "{format:?}");
        assert_eq!(written.notes, [""; 0], "{format:?}");
    }
    // The others have a light time with each contact.
    for (format, notes) in [
        (Format::TvgUtil, vec![]),
        (Format::Asabr, vec!["confidences left out: 1"]),
        (Format::Hdtn, vec!["confidences left out: 1"]),
    ] {
        let written = write(format, &plan);
        assert_eq!(written.notes, notes, "{format:?}");
        let back = good(format, &written.text);
        let windows = |plan: &ContactPlan| -> Vec<_> {
            let contacts = plan.contacts().iter();
            contacts.map(|c| (c.from, c.to, c.start, c.end, c.rate_bps)).collect()
        };
        assert_eq!(windows(&back), windows(&plan), "{format:?}");
        for contact in plan.contacts() {
            assert_eq!(back.light_times(contact), plan.light_times(contact), "{format:?}");
        }
    }
    let back = good(Format::Hdtn, &write(Format::Hdtn, &plan).text);
    assert_eq!(back.contacts().len(), 2);
    assert_eq!(back.owlt(1, 2, Time::from_secs(5)), Duration::from_secs(2));
    assert_eq!(back.contacts()[1].start, Time::from_secs(600));
    let once = write(Format::Hdtn, &back);
    assert_eq!(write(Format::Hdtn, &good(Format::Hdtn, &once.text)), once);
}

#[test]
fn hdtn_s_older_rate_is_in_megabits() {
    let old = r#"{"contacts": [{"contact": 0, "source": 102, "dest": 10, "startTime": 0,
        "endTime": 2000, "rate": 1000, "owlt": 1, "finalDest": 2}]}"#;
    assert_eq!(good(Format::Hdtn, old).contacts()[0].rate_bps, 1_000_000_000);
    let none = document(Format::Hdtn, &old.replace("\"rate\": 1000, ", ""));
    assert_eq!(none.plan.contacts()[0].rate_bps, 1_000_000_000);
    assert_eq!(none.notes, ["contacts without a rate: 1 Gbit/s, as HDTN's router assumes: 1"]);
}

#[test]
fn errors_name_the_line() {
    testing::snapshot!("refusals/plan_ion.txt", |text| wrong(Format::Ion, text));
    let unknown = wrong(Format::Toml, &TOML.replace("rate =", "rates ="));
    assert!(unknown.contains("rates") && unknown.contains("rate"), "{unknown}");
    assert!(wrong(Format::Hdtn, "{").contains("line 1"));
    let plan = "{\"contacts\":\n[{\"contact\": \"one\"}]}";
    assert!(wrong(Format::Hdtn, plan).contains("line 2"), "{}", wrong(Format::Hdtn, plan));
}

#[test]
fn file_names_select_the_format() {
    assert_eq!(Format::of_name("lunar.ionrc"), Some(Format::Ion));
    assert_eq!(Format::of_name("a.b.json"), Some(Format::Hdtn));
    assert_eq!(Format::of_name("plan.toml"), Some(Format::Toml));
    assert_eq!(Format::of_name("plan"), None);
    assert_eq!(Format::of_name("sample.cp"), Some(Format::Asabr));
    assert_eq!(Format::of_name("sample.ion"), Some(Format::Ion));
    assert_eq!(Format::of_name("sample.tvgutil"), Some(Format::TvgUtil));
    assert!("xml".parse::<Format>().unwrap_err().contains("toml, ion, hdtn"));
}

#[test]
fn dates_need_no_epoch_and_contacts_may_have_started() {
    let text = "a contact 2026/11/19-23:50:00 2026/11/20-00:10:00 1 2 1000
        a contact 2026/11/19-00:00:00 2026/11/19-01:00:00 1 2 1000
        a contact 2026/11/20-00:20:00.500 2026/11/20-00:30:00 1 2 1000
        a range 2026/11/19-00:00:00 2026/11/21-00:00:00 1 2 1.28";
    let found = document(Format::Ion, text);
    let windows: Vec<_> = found.plan.contacts().iter().map(|c| (c.start, c.end)).collect();
    let half = Time::from_nanos(1_200_500_000_000);
    assert_eq!(windows, [(Time::ZERO, Time::from_secs(600)), (half, Time::from_secs(1800))]);
    assert!(!found.is_relative);
    assert_eq!(found.notes, ["1 contacts are over", "1 contacts have started already"]);
    assert_eq!(found.plan.owlt(2, 1, Time::ZERO), Duration::from_millis(1280));
    // Relative times count from the epoch, which may be earlier than the start of the plan.
    let base = Base { epoch: epoch() - Duration::from_secs(60), zero: epoch() };
    let found = read(Format::Ion, "a contact +0 +90 1 2 1000", "plan", base).unwrap();
    assert_eq!(found.plan.contacts()[0].end, Time::from_secs(30));
    assert!(found.is_relative);
}

#[test]
fn ion_s_other_commands_change_the_plan() {
    let text = "^ 1
        a contact +0 +60 1 2 1000
        a contact +30 +90 1 2 1000
        a contact +60 +90 1 2 1000
        c contact +60 1 2 2000 0.5
        a contact +0 +60 2 1 1000
        d contact * 2 1
        d contact +5 1 2
        a contact -1 +9 1 1 100000
        a range +0 +90 1 2 1
        a range +0 +90 3 1 1
        d range +0 3 1
        a plan 2 stcp/127.0.0.1
        m horizon +0";
    let found = document(Format::Ion, text);
    let rates = found.plan.contacts().iter().map(|c| (c.start.as_secs_f64(), c.rate_bps));
    assert_eq!(rates.collect::<Vec<_>>(), [(0.0, 8000), (60.0, 16_000)]);
    assert_eq!(found.plan.contacts()[1].confidence, 0.5);
    assert_eq!(found.plan.ranges().count(), 1);
    assert_eq!(
        found.notes,
        [
            "line 3: contact 1 to 2 overlaps the one that begins at 0 s; ignored",
            "line 8: no contact of 1 with 2 to change; ignored",
            "line 9: a contact of a node with itself; ignored",
            "commands that are not about contacts or ranges, left out: 3; the first is line 1",
        ]
    );
}

#[test]
fn ion_s_configurations_of_several_programs_are_read() {
    let text = "## begin ionadmin host1
        1 1 ''
        s
        @ 0
        a contact +1 +3600 1 2 100000
        a range +1 +3600 1 2 1
        ## end ionadmin host1
        ## begin ionsecadmin
        a key 'k1' k1.bin
        a contact of another program
        2 no command of ionadmin
        ## end ionsecadmin
        a service 0 admin
        a ipn:2.0 300 1
        a bspbibrule * * 1 'BIB-HMAC-SHA256' k1
        ## begin bpadmin
        a scheme ipn 'ipnfw' 'ipnadminep'";
    let found = document(Format::Ion, text);
    let contact = found.plan.contacts()[0];
    assert_eq!((contact.from, contact.to, contact.rate_bps), (1, 2, 800_000));
    assert_eq!((found.plan.contacts().len(), found.plan.ranges().count()), (1, 1));
    let others = "commands that are not about contacts or ranges, left out: 9; the first is line 2";
    assert_eq!(found.notes, [others]);
    // The guard against misspelled objects is that of ionadmin's own commands.
    let wrong = wrong(Format::Ion, &text.replace("a range", "a ranges"));
    assert!(wrong.contains("line 6") && wrong.contains("did you mean \"a range\""), "{wrong}");
    assert!(
        read(Format::Ion, &text.replace("a key", "a ranges"), "", Base::from_epoch(epoch()))
            .is_ok()
    );
}

#[test]
fn hdtn_s_numbers_may_be_texts() {
    let plan = r#"{"contacts": [{"contact": 0, "source": 1, "dest": 3, "startTime": 10,
        "endTime": 20, "rateBitsPerSec": 1000000, "owlt": 1}]}"#;
    let quoted = r#"{"contacts": [{"contact": "0", "source": "1", "dest": " 3 ", "startTime": "10",
        "endTime": "20", "rateBitsPerSec": "1000000", "owlt": "1"}]}"#;
    assert_eq!(document(Format::Hdtn, quoted), document(Format::Hdtn, plan));
    let older = |rate| plan.replace("\"rateBitsPerSec\": 1000000", rate);
    assert_eq!(good(Format::Hdtn, &older("\"rate\": \"1\"")), good(Format::Hdtn, plan));
    for (from, to, reason) in [
        ("\"3\"", "\"three\"", "\"three\", expected a number"),
        ("\"3\"", "\"-3\"", "invalid number -3"),
        ("\"3\"", "3.5", "invalid number 3.5"),
        ("\"3\"", "true", "expected a number"),
    ] {
        let error = wrong(Format::Hdtn, &quoted.replace("\" 3 \"", "\"3\"").replace(from, to));
        assert!(error.contains(reason) && error.contains("line 1"), "{error}");
    }
}

#[test]
fn contacts_that_hdtn_takes_and_a_plan_cannot_hold_are_counted() {
    let contact = |number: u64, nodes: [u64; 2], window: [u64; 2]| {
        let ([from, to], [start, end]) = (nodes, window);
        format!(
            "{{\"contact\": {number}, \"source\": {from}, \"dest\": {to}, \"startTime\": {start}, \
             \"endTime\": {end}, \"rateBitsPerSec\": 8000, \"owlt\": 1}}"
        )
    };
    let contacts = [
        contact(4, [1, 2], [0, 60]),
        contact(5, [1, 2], [30, 90]),
        contact(6, [1, 2], [59, 61]),
        contact(7, [2, 1], [30, 90]),
        contact(8, [2, 2], [0, 60]),
        contact(9, [1, 3], [60, 10]),
    ];
    let found = document(Format::Hdtn, &format!("{{\"contacts\": [{}]}}", contacts.join(",")));
    let kept = found.plan.contacts().iter().map(|contact| (contact.from, contact.to));
    assert_eq!(kept.collect::<Vec<_>>(), [(1, 2), (2, 1)]);
    assert_eq!(found.plan.ranges().count(), 2);
    let overlaps =
        "contacts that overlap another of their pair, left out: 2; the first is contact 5";
    let empty =
        "contacts without a window, or of a node with itself, left out: 2; the first is contact 8";
    assert_eq!(found.notes, [overlaps, empty]);
}

#[test]
fn changes_of_a_plan_in_use_are_read_and_others_are_skipped() {
    let text = "# changes
        d contact * 1 2
        a range +5 +9 1 2 3
        m production 1000000
        m horizon +0
        a plan 2 stcp/127.0.0.1
        a contact 2026/01/01-00:00:00 2026/01/02-00:00:00 1 2 1000
        a contact +0 +0 1 1 100000
        s";
    let base = Base::from_epoch(epoch());
    let read = read_changes(text, "plan", base).unwrap();
    let start = Time::from_secs(5);
    let range =
        Range { from: 1, to: 2, start, end: Time::from_secs(9), owlt: Duration::from_secs(3) };
    let delete = Change::DeleteContacts { from: 1, to: 2, start: None };
    assert_eq!(read.changes, [(2, delete), (3, Change::AddRange(range))]);
    let skipped = [
        (4, "\"m production\" does not change a plan; skipped"),
        (5, "\"m horizon\" does not change a plan; skipped"),
        (6, "\"a plan\" does not change a plan; skipped"),
        (7, "it is over; ignored"),
        (8, "a contact of a node with itself; ignored"),
        (9, "\"s\" does not change a plan; skipped"),
    ];
    assert_eq!(read.skipped, skipped.map(|(line, why)| (line, why.to_owned())));
    let wrong = read_changes("\n\nd contact 1 2", "plan", base).unwrap_err().to_string();
    assert!(wrong.contains("line 3") && wrong.contains("START|* FROM TO"), "{wrong}");
}

#[test]
fn a_date_before_the_zero_names_only_what_began_then() {
    let plan = "a contact 2026/01/01-00:00:00 +60 1 2 1000
        a contact +0 +60 1 3 1000
        a range 2026/01/01-00:00:00 +60 1 2 7";
    let changed = |commands: &str| document(Format::Ion, &format!("{plan}\n{commands}"));
    let receivers = |commands: &str| {
        let found = changed(commands);
        found.plan.contacts().iter().map(|contact| contact.to).collect::<Vec<_>>()
    };
    for other in ["2025/12/31-23:59:59", "2026/01/01-00:00:01", "+0"] {
        assert_eq!(receivers(&format!("d contact {other} 1 2")), [2, 3], "{other}");
        let found = changed(&format!("c contact {other} 1 2 7\nd range {other} 1 2"));
        assert_eq!(found.plan.contacts()[0].rate_bps, 8000, "{other}");
        assert_eq!(found.plan.ranges().count(), 1, "{other}");
    }
    assert_eq!(receivers("d contact 2026/01/01-00:00:00 1 3"), [2, 3]);
    assert_eq!(receivers("d contact 2026/01/01-00:00:00 1 2"), [3]);
    assert_eq!(receivers("d contact +0 1 3"), [2]);
    let found = changed("c contact 2026/01/01-00:00:00 1 2 7\nd range 2026/01/01-00:00:00 1 2");
    assert_eq!((found.plan.contacts()[0].rate_bps, found.plan.ranges().count()), (56, 0));
}

#[test]
fn writers_report_what_they_round() {
    let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
    let contact = |from, to, start, end, rate_bps| Contact {
        from,
        to,
        start: at(start),
        end: at(end),
        rate_bps,
        confidence: 0.9,
    };
    let owlt = Duration::from_millis(1280);
    let range = |start, end, owlt| Range { from: 2, to: 1, start: at(start), end: at(end), owlt };
    let contacts = vec![contact(1, 2, 500, 9500, 8005), contact(2, 1, 100, 900, 8000)];
    let ranges = [range(0, 5000, owlt), range(5000, 10_000, 2 * owlt)];
    let plan = ContactPlan::new(contacts, &ranges).unwrap();
    let ion = write(Format::Ion, &plan);
    assert_eq!(
        ion.text,
        "a range +0 +5 1 2 2\na range +5 +10 1 2 3\na contact +1 +9 1 2 1000 0.9\n"
    );
    assert_eq!(
        ion.notes,
        [
            "contacts left out: nothing remained of them: 1",
            "ends of contacts rounded down to whole seconds: 2",
            "light times rounded up to whole seconds: 2",
            "rates rounded down to whole bytes a second: 1",
            "starts of contacts rounded up to whole seconds: 2",
        ]
    );
    let hdtn = write(Format::Hdtn, &plan);
    assert!(hdtn.text.contains("\"owlt\": 3") && !hdtn.text.contains('.'), "{}", hdtn.text);
    let longest = "light times that change within a contact: the longest kept: 1";
    assert!(hdtn.notes.contains(&longest.to_owned()), "{:?}", hdtn.notes);
    let asabr = write(Format::Asabr, &plan);
    assert!(asabr.text.contains("contact 0 1 0.5 9.5 8005 2.56\n"), "{}", asabr.text);
    assert_eq!(asabr.notes, ["confidences left out: 2", longest]);
    let tvg = write(Format::TvgUtil, &plan);
    assert_eq!(tvg.notes, [""; 0]);
    let back = good(Format::TvgUtil, &tvg.text);
    assert_eq!(back.light_times(&plan.contacts()[1]), plan.light_times(&plan.contacts()[1]));
    assert_eq!(back.contacts()[0].confidence, 0.9);
}

#[test]
fn graphs_of_dtn_tvg_util_are_read() {
    // Generations and steps of one contact, a name that is no number, Unix time.
    let text = r#"{"vertices": {"gs 1": ["sat"], "sat": []}, "edges": [{"vertices": ["gs 1",
        "sat"], "contacts": [["gs 1", "sat", 1795132810.5, 1795132830, [[0, 0.5, []], [9, 0.8,
        [[1795132800, 9600, 0.01], [1795132820, 4800, 0.02]]]]]]}],
        "contact_type": "PredictedContact_v2"}"#;
    let found = document(Format::Hdtn, text);
    let rates = found.plan.contacts().iter().map(|c| (c.start.as_secs_f64(), c.rate_bps));
    assert_eq!(rates.collect::<Vec<_>>(), [(10.5, 9600), (20.0, 4800)]);
    assert_eq!(found.plan.contacts()[0].confidence, 0.8);
    assert_eq!(found.plan.owlt(1, 2, Time::from_secs(25)), Duration::from_millis(20));
    assert_eq!(found.notes, ["nodes by the order of their names: 1 = gs 1, 2 = sat"]);
    assert!(!found.is_relative);
    let other = text.replace("PredictedContact_v2", "PredictedContact");
    assert!(wrong(Format::TvgUtil, &other).contains("PredictedContact_v2 and Contact_v2"));
    let factual = r#"{"vertices": {"7": ["9"], "9": []}, "edges": [{"vertices": ["7", "9"],
        "contacts": [["7", "9", 0, 10, [[0, 9600, 1e-6, 1.5]]]]}], "contact_type": "Contact_v2"}"#;
    let found = document(Format::TvgUtil, factual);
    assert_eq!(found.plan.owlt(7, 9, Time::ZERO), Duration::from_millis(1500));
}

#[test]
fn plans_of_a_sabr_are_read() {
    // From A-SABR's examples (MIT), with other times.
    let text = "# comment
        node 0 node1  node 1 node2
        node 2 node3
        contact 0 1 60 7260 eto 10000 10
        contact 1 2 60 7260 10 15 1000 1000 1000
        contact 2 0 60 7260 seg delay [60 3660 10 , 3660 7260 15.5] rate [60 7260 10000,]";
    let found = document(Format::Asabr, text);
    let rates: Vec<_> = found.plan.contacts().iter().map(|c| (c.from, c.to, c.rate_bps)).collect();
    assert_eq!(rates, [(0, 1, 10_000), (1, 2, 10), (2, 0, 10_000)]);
    assert_eq!(found.plan.owlt(2, 0, Time::from_secs(4000)), Duration::from_millis(15_500));
    let budgets =
        "words of resource managers and budgets, left out: 1; the first is \"1000\" of entry 5";
    let ids = "nodes by their ids: 0 = node1, 1 = node2, 2 = node3";
    assert_eq!(found.notes, [ids, budgets]);
    let error = wrong(Format::Asabr, "node 0 a contact 0 1 5 fast 1 1");
    assert_eq!(error, "plan: entry 2: \"fast\" is not an end in seconds");
}

#[test]
fn words_of_a_sabr_s_resource_managers_are_skipped() {
    let text = "node 0 source none
        node 1 first compress 1
        node 2 second noret 0.2
        node 3 sink none
        vnode 4 both [2, 3]
        contact 0 1 0 100 1 0
        contact 1 2 100 180 1 0 # C1
        contact 2 3 0 300 1 0 shared 3 contact 2 3 200 400 1 0";
    let found = document(Format::Asabr, text);
    let windows = found.plan.contacts().iter().map(|contact| (contact.from, contact.to));
    assert_eq!(windows.collect::<Vec<_>>(), [(0, 1), (2, 3), (1, 2)]);
    let notes = [
        "nodes by their ids: 0 = source, 1 = first, 2 = second, 3 = sink",
        "contacts that overlap another of their pair, left out: 1; the first is contact 3",
        "virtual nodes, left out: 1; the first is entry 5",
        "words of resource managers and budgets, left out: 5; the first is \"none\" of entry 1",
    ];
    assert_eq!(found.notes, notes);
    // An entry begins a line, so that a misspelled one is not taken for the words of a manager.
    let wrong = wrong(Format::Asabr, &text.replace("contact 1", "contct 1"));
    assert_eq!(wrong, "plan: entry 7: \"contct\" is neither node, enode, vnode nor contact");
}

#[test]
fn a_plan_of_another_format_is_named() {
    let toml = "[[contact]]\nfrom = 1";
    let hdtn = "{\"contacts\": []}";
    let tvg = "{\"vertices\": {}, \"edges\": []}";
    let asabr = "# plan\n\nnode 0 a";
    let ion = "# plan\na contact +0 +1 1 2 3";
    for (text, name) in
        [(toml, "toml"), (hdtn, "hdtn"), (tvg, "tvg-util"), (asabr, "a-sabr"), (ion, "ion")]
    {
        for (given, format) in super::FORMATS {
            // HDTN's names are those of graphs, too.
            if given == name || (given, name) == ("hdtn", "tvg-util") {
                continue;
            }
            let error = wrong(format, text);
            let remedy =
                format!("it was read as {given} and looks like {name}; the option --format");
            assert!(error.contains(&remedy), "{given}: {error}");
        }
    }
    assert!(!wrong(Format::Ion, "a contact +0").contains("looks like"));
}

#[test]
fn toml_may_have_its_own_epoch() {
    let text = format!("epoch = \"2026-11-19T23:55:00Z\"\n{TOML}");
    let found = document(Format::Toml, &text);
    assert_eq!(found.plan.contacts()[0].end, Time::from_secs(3300));
    assert!(!found.is_relative && document(Format::Toml, TOML).is_relative);
    assert!(wrong(Format::Toml, &text.replace("19T", "xx")).contains("epoch"));
}

#[test]
fn lines_without_effect_are_counted() {
    let base = Base::from_epoch(epoch());
    let read = read_changes(&"m horizon +0\n".repeat(5000), "plan", base).unwrap();
    assert_eq!((read.skipped.len(), read.more), (1000, 4000));
    let plan = super::read(Format::Ion, &"a contact +0 +9 1 1 5\n".repeat(5000), "plan", base);
    let notes = plan.unwrap().notes;
    assert_eq!((notes.len(), notes[1000].as_str()), (1001, "and 4000 such lines more"));
}

/// The benchmark of A-SABR: source 178, destination 159, 47,419,533 bytes at 8,000,000 bytes a
/// second. Contacts that begin later than 1,437 s are left out: the bundle has arrived by then.
#[test]
fn the_sample_of_a_sabr_has_its_expected_arrival() {
    const SAMPLE: &str = include_str!("../../testdata/a-sabr.ionrc");
    let base = Base { epoch: UNIX_EPOCH, zero: UNIX_EPOCH };
    let plan = read(Format::Ion, SAMPLE, "a-sabr.ionrc", base).unwrap().plan;
    let bare = Settings { overhead_ppm: 0, overhead_min: 0, ..Settings::default() };
    let mut router = Router::new(178, plan, bare);
    let nobody = BTreeSet::new();
    let mut best = |bytes| {
        let wanted = Wanted {
            destination: 159,
            bytes,
            priority: Priority::Bulk,
            expires: Time::from_secs(24_060),
            excluded: &nobody,
        };
        let route = router.best(Time::from_secs(60), &wanted).unwrap();
        let nodes = route.contacts().map(|id| router.contact(id).unwrap().to);
        (nodes.collect::<Vec<_>>(), route.arrives.as_nanos() / 1_000_000)
    };
    // By node 94 it has three contacts as well, of which one ends earlier.
    assert_eq!(best(47_419_533), (vec![93, 17, 159], 1_436_827));
    assert_eq!(best(0), (vec![93, 17, 159], 1_430_900));
}
