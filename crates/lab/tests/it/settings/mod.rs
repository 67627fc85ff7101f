//! Effects of LTP's and Saratoga's settings on traffic and its timing: each group of keys in a
//! world of two nodes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ltp;
mod saratoga;
mod scenarios;

use lab::run::Run;
use slowlight_lab as lab;

/// A world in which `a` sends a file to `b`: 1 Mbit/s, 100 ms, captured at `a`.
struct World {
    protocol: &'static str,
    size: &'static str,
    /// Additional keys of the link from `a`.
    there: &'static str,
    /// Additional keys of the link back.
    back: &'static str,
    /// More lines.
    more: &'static str,
}

/// Loses everything on a link.
const DEAF: &str = "loss_times = [{ at = \"0 s\", for = \"1000 h\" }]";

/// A datagram that left a node.
struct Sent {
    at: f64,
    by_a: bool,
    data: Vec<u8>,
}

/// Results of a world.
struct Observations {
    run: Run,
    sent: Vec<Sent>,
}

impl World {
    const fn of(protocol: &'static str) -> Self {
        Self { protocol, size: "20 kB", there: "", back: "", more: "" }
    }

    /// Runs it with these settings of both nodes.
    fn play(&self, a: &str, b: &str) -> Observations {
        let Self { protocol, size, there, back, more } = self;
        let toml = format!(
            "seed = 5
            capture = {{ at = \"a\" }}
            nodes.a.mib = {{ {a} }}
            nodes.b.mib = {{ {b} }}
            {more}
            [[links]]
            from = \"a\"
            to = \"b\"
            rate = \"1 Mbit/s\"
            delay = \"100 ms\"
            {there}
            [[links]]
            from = \"b\"
            to = \"a\"
            rate = \"1 Mbit/s\"
            delay = \"100 ms\"
            {back}
            [[transfers]]
            from = \"a\"
            to = \"b\"
            protocol = \"{protocol}\"
            size = \"{size}\""
        );
        let capture = crate::runs::Shared::default();
        let run = crate::runs::run_once(&toml, capture.recorders());
        let records = capture.records();
        let sent = records.iter().map(|record| {
            let datagram = record.udp().unwrap();
            Sent {
                at: record.at.as_secs_f64(),
                by_a: datagram.udp.source == 2501,
                data: datagram.data.to_vec(),
            }
        });
        Observations { run, sent: sent.collect() }
    }
}

impl Observations {
    /// Asserts that the file arrived.
    #[track_caller]
    fn whole(self) -> Self {
        assert!(self.run.succeeded(), "{:?}", self.run);
        self
    }

    /// Asserts that it did not arrive.
    #[track_caller]
    fn failed(self) -> Self {
        assert!(!self.run.succeeded(), "{:?}", self.run);
        self
    }

    fn largest(&self) -> usize {
        self.sent.iter().filter(|sent| sent.by_a).map(|sent| sent.data.len()).max().unwrap()
    }

    /// Time from the first packet to the last, in seconds.
    fn lasted(&self) -> f64 {
        self.sent.last().unwrap().at - self.sent[0].at
    }
}

/// Whether consecutive times differ by `gap` seconds, to a percent.
fn evenly(times: &[f64], gap: f64) -> bool {
    times.len() > 1 && times.windows(2).all(|pair| ((pair[1] - pair[0]) / gap - 1.0).abs() < 0.01)
}
