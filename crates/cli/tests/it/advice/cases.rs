//! Links for which commands are printed and run.

/// A link, a file, and the needs of its transfer.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Options of the link, for `advise` and for `slowlight link`.
    pub(super) link: &'static [&'static str],
    /// Other options of `advise`.
    pub(super) needs: &'static [&'static str],
    pub(super) size: &'static str,
    /// Names and contents of files that options name.
    pub(super) files: &'static [(&'static str, &'static str)],
}

/// An outage of a second, and the light time of the link.
const PLAN: &str = r#"
contact = [
  { from = 1, to = 2, start = "0 s", end = "700 ms", rate = "1 Mbit/s" },
  { from = 2, to = 1, start = "0 s", end = "700 ms", rate = "1 Mbit/s" },
  { from = 1, to = 2, start = "1700 ms", end = "1 h", rate = "1 Mbit/s" },
  { from = 2, to = 1, start = "1700 ms", end = "1 h", rate = "1 Mbit/s" },
]
range = [{ from = 1, to = 2, start = "0 s", end = "1 h", owlt = "200 ms" }]
"#;

/// Passes of 900 ms, in a file with the name that `advise` prints for the plan of a node.
const PASSES: &str = r#"
contact = [
  { from = 1, to = 2, start = "0 s", end = "900 ms", rate = "1 Mbit/s" },
  { from = 2, to = 1, start = "0 s", end = "900 ms", rate = "1 Mbit/s" },
  { from = 1, to = 2, start = "2 s", end = "2900 ms", rate = "1 Mbit/s" },
  { from = 2, to = 1, start = "2 s", end = "2900 ms", rate = "1 Mbit/s" },
  { from = 1, to = 2, start = "4 s", end = "4900 ms", rate = "1 Mbit/s" },
  { from = 2, to = 1, start = "4 s", end = "4900 ms", rate = "1 Mbit/s" },
  { from = 1, to = 2, start = "6 s", end = "6900 ms", rate = "1 Mbit/s" },
  { from = 2, to = 1, start = "6 s", end = "6900 ms", rate = "1 Mbit/s" },
  { from = 1, to = 2, start = "8 s", end = "8900 ms", rate = "1 Mbit/s" },
  { from = 2, to = 1, start = "8 s", end = "8900 ms", rate = "1 Mbit/s" },
]
range = [{ from = 1, to = 2, start = "0 s", end = "1 h", owlt = "50 ms" }]
"#;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "plain",
        link: &["--rate", "1 Mbit/s", "--delay", "500 ms"],
        needs: &["--dedicated"],
        size: "200 kB",
        files: &[],
    },
    Case {
        name: "shared",
        link: &["--rate", "1 Mbit/s", "--delay", "100 ms"],
        needs: &["--shared"],
        size: "200 kB",
        files: &[],
    },
    Case {
        name: "lossy",
        link: &["--rate", "1 Mbit/s", "--delay", "500 ms", "--per", "0.02"],
        needs: &["--dedicated"],
        size: "200 kB",
        files: &[],
    },
    Case {
        name: "thin return",
        link: &["--rate", "2 Mbit/s", "--delay", "500 ms", "--return-rate", "4 kbit/s"],
        needs: &["--dedicated"],
        size: "400 kB",
        files: &[],
    },
    Case {
        name: "bit errors",
        link: &["--rate", "1 Mbit/s", "--delay", "500 ms", "--ber", "2e-5"],
        needs: &["--dedicated"],
        size: "200 kB",
        files: &[],
    },
    Case {
        name: "outages",
        link: &[
            "--rate",
            "1 Mbit/s",
            "--delay",
            "200 ms",
            "--outage",
            "500 ms+1 s",
            "--outage",
            "2500 ms+1 s",
        ],
        needs: &["--dedicated"],
        size: "200 kB",
        files: &[],
    },
    Case {
        name: "periodic",
        link: &["--rate", "1 Mbit/s", "--delay", "200 ms", "--outage-every", "1 min+1 s+700 ms"],
        needs: &["--dedicated"],
        size: "200 kB",
        files: &[],
    },
    Case {
        name: "contact plan",
        link: &["--rate", "1 Mbit/s", "--delay", "200 ms", "--contacts", "plan.toml"],
        needs: &["--dedicated"],
        size: "200 kB",
        files: &[("plan.toml", PLAN)],
    },
    Case {
        name: "passes",
        link: &["--rate", "1 Mbit/s", "--delay", "50 ms", "--contacts", "PLAN.toml"],
        needs: &["--dedicated"],
        size: "250 kB",
        files: &[("PLAN.toml", PASSES)],
    },
    Case {
        name: "no return",
        link: &["--rate", "1 Mbit/s", "--delay", "500 ms"],
        needs: &["--no-return"],
        size: "200 kB",
        files: &[],
    },
    Case {
        name: "no return, losses",
        link: &["--rate", "1 Mbit/s", "--delay", "500 ms", "--per", "0.05"],
        needs: &["--no-return"],
        size: "200 kB",
        files: &[],
    },
    Case {
        name: "three",
        link: &["--rate", "1 Mbit/s", "--delay", "500 ms"],
        needs: &["--dedicated", "--receivers", "3"],
        size: "200 kB",
        files: &[],
    },
];

/// Transports whose commands run every day, by case.
pub(super) const DAILY: &[(&str, &str)] = &[
    ("plain", "cfdp-ltp"),
    ("plain", "ltp"),
    ("plain", "ltp-t"),
    ("plain", "saratoga-get"),
    ("plain", "norm-fec"),
    ("plain", "bp-ltp"),
    ("plain", "bp-saratoga"),
    ("plain", "bp-norm"),
    ("plain", "bp-tcpcl"),
    ("plain", "bp-tcpcl3"),
    ("plain", "bp-stcp"),
    ("plain", "bp-mtcp"),
    ("shared", "norm/cc"),
    ("shared", "norm/coded-cc"),
    ("shared", "saratoga/tfrc"),
    ("lossy", "norm/coded"),
    ("lossy", "norm/coded-eager"),
    ("thin return", "saratoga"),
    ("bit errors", "norm/coded"),
    ("bit errors", "norm"),
    ("outages", "cfdp"),
    ("outages", "norm/coded"),
    ("periodic", "ltp"),
    ("contact plan", "saratoga"),
    ("passes", "bp-ltp"),
    ("passes", "bp-norm"),
    ("passes", "bp-saratoga"),
    ("no return", "cfdp-1"),
    ("no return", "ltp-green"),
    ("no return", "saratoga-blind"),
    ("no return", "ltp-1k-red"),
    ("no return", "bp-udp"),
    ("no return, losses", "norm/coded one-way"),
    ("no return, losses", "norm/coded carousel"),
    ("three", "norm/coded"),
];
