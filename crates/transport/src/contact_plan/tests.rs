//! Three formats, one plan.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::Time;
use proto::bp::contacts::ContactPlan;

use super::{Format, read, write};

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

fn good(format: Format, text: &str) -> ContactPlan {
    read(format, text, "plan", epoch()).unwrap()
}

fn wrong(format: Format, text: &str) -> String {
    read(format, text, "plan", epoch()).unwrap_err().to_string()
}

#[test]
fn all_formats_describe_the_same_plan() {
    let plan = good(Format::Toml, TOML);
    assert_eq!(good(Format::Ion, ION), plan);
    assert_eq!(plan.contacts()[0].rate_bps, 115_200);
    for format in [Format::Toml, Format::Ion] {
        assert_eq!(good(format, &write(format, &plan)), plan, "{format:?}");
    }
    // HDTN has a light time with each contact, and no confidence.
    let back = good(Format::Hdtn, &write(Format::Hdtn, &plan));
    assert_eq!(back.contacts().len(), 2);
    assert_eq!(back.owlt(1, 2, Time::from_secs(5)), Duration::from_secs(2));
    assert_eq!(back.contacts()[1].start, Time::from_secs(600));
    let once = write(Format::Hdtn, &back);
    assert_eq!(write(Format::Hdtn, &good(Format::Hdtn, &once)), once);
}

#[test]
fn hdtn_s_older_rate_is_in_megabits() {
    let old = r#"{"contacts": [{"contact": 0, "source": 102, "dest": 10, "startTime": 0,
        "endTime": 2000, "rate": 1000, "owlt": 1, "finalDest": 2}]}"#;
    assert_eq!(good(Format::Hdtn, old).contacts()[0].rate_bps, 1_000_000_000);
    let none = old.replace("\"rate\": 1000, ", "");
    assert_eq!(wrong(Format::Hdtn, &none), "plan: contact 0 has no rate: add rateBitsPerSec");
}

#[test]
fn errors_name_the_line() {
    let errors = [
        (
            "a contact +0 +1 1 2",
            "plan: line 1: expected \"a contact START END FROM TO RATE [CONFIDENCE]\"",
        ),
        (
            "\na contact 0 +1 1 2 3",
            "plan: line 2: \"0\" is no time: +SECONDS or YYYY/MM/DD-HH:MM:SS",
        ),
        ("a contact +0 +1 one 2 3", "plan: line 1: \"one\" is not the number of a node"),
        ("a range +0 +1 1 2 x", "plan: line 1: \"x\" is not a light time in seconds"),
        ("a contact +0 +1 1 2 3 1.5", "plan: line 1: a confidence is from 0 to 1, not 1.5"),
        (
            "a contract +0 +1 1 2 3",
            "plan: line 1: \"a contract +0 +1 1 2 3\" is no command of a contact plan",
        ),
        (
            "a contact 2025/01/01-00:00:00 +1 1 2 3",
            "plan: line 1: 2025/01/01-00:00:00 is before 2026-11-20T00:00:00Z, from which this plan counts",
        ),
        ("a contact +5 +5 1 2 3", "plan: contact 0 ends before it begins"),
        (
            "a contact +0 +1 1 2 3000000000000000000",
            "plan: line 1: 3000000000000000000 is too high a rate",
        ),
    ];
    for (text, error) in errors {
        assert_eq!(wrong(Format::Ion, text), error);
    }
    let unknown = wrong(Format::Toml, &TOML.replace("rate =", "rates ="));
    assert!(unknown.contains("rates") && unknown.contains("rate"), "{unknown}");
    assert!(wrong(Format::Hdtn, "{").contains("line 1"));
}

#[test]
fn file_names_select_the_format() {
    assert_eq!(Format::of_name("lunar.ionrc"), Some(Format::Ion));
    assert_eq!(Format::of_name("a.b.json"), Some(Format::Hdtn));
    assert_eq!(Format::of_name("plan.toml"), Some(Format::Toml));
    assert_eq!(Format::of_name("plan"), None);
    assert!("xml".parse::<Format>().unwrap_err().contains("toml, ion, hdtn"));
}
