//! A link as options of the command line.

use std::path::Path;
use std::time::{Duration, SystemTime};

use engine::Time;
use lab::link_spec::{
    Bucket, Burst, Erasure, Errors, Framing, LinkSpec, OnError, Queue, Reorder, WhileDown,
};
use lab::preset::Preset;
use transport::quantity::Window;
use transport::quantity::{Probability, Rate, Size, Span};

use crate::Usage;
use crate::contacts::{Contacts, Listed, since_1970};
use crate::known;
use crate::show::quoted;
use crate::switch::Switch;

/// Number of the sender in a contact plan, unless given: that of its entity.
const ENTITY: u64 = 1;
/// Length of the contact of a direction that a contact plan does not mention: a hundred years.
const ALWAYS: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Link of commands that name none.
const DEFAULT: &str = "terrestrial";

/// A named link and changes to it. Flatten it last: its headings hold for every option after them.
#[derive(Debug, clap::Args)]
pub(crate) struct LinkOptions {
    /// Link: a name of `slowlight links`, or a TOML file like theirs [default: terrestrial]
    #[arg(long, value_name = "NAME|FILE", value_parser = known::link(), hide_possible_values = true)]
    link: Option<String>,

    #[command(flatten)]
    forward: Forward,

    #[command(flatten)]
    back: Back,

    #[command(flatten)]
    contacts: Contacts,
}

/// Changes to the link, applied to each of its hops.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Link")]
struct Forward {
    /// Line rate, e.g. "10 Mbit/s"; 0: unlimited
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<Rate>,

    /// One-way delay, e.g. "250 ms"
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    delay: Option<Span>,

    /// Packet error rate: probability of losing a packet of any length, e.g. 0.01 or 1%
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    per: Option<Probability>,

    /// Bit error rate, e.g. 1e-7
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    ber: Option<Probability>,

    /// Burst losses (Gilbert-Elliott), e.g. "0.001+0.2"
    ///
    /// Per-packet probabilities of entering the bad state, of leaving it, and of losing a packet in
    /// it [default of the third: 1].
    #[arg(long, value_name = "P+P[+P]", allow_hyphen_values = true)]
    burst: Option<Burst>,

    /// Erasure code over frames: data and parity frames of a matrix, e.g. "512+128"
    ///
    /// A third value closes a matrix after that time without a frame [default of the third: four
    /// frames with their parity, at least 10 ms].
    #[arg(long, value_name = "K+P[+DURATION]|off", allow_hyphen_values = true)]
    erasure: Option<Erasure>,

    /// Effect of an error: drop the packet, or damage it, as without a link-layer checksum
    #[arg(long, value_name = "DROP|DAMAGE")]
    on_error: Option<OnError>,

    #[arg(long, hide = true, allow_hyphen_values = true, value_parser = no_loss)]
    loss: Option<Probability>,

    /// MTU: largest IP packet, e.g. "1500 B"
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    mtu: Option<Size>,

    /// Largest UDP payload, e.g. "1024 B" [default: as the MTU allows]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    datagram: Option<Size>,

    /// Queue limit in packets or bytes, e.g. "1000 packets" or "64 KiB"
    #[arg(long, value_name = "LENGTH", allow_hyphen_values = true)]
    queue: Option<Queue>,

    /// Token bucket before the line: sustained rate and burst, e.g. "8 Mbit/s+64 KiB"
    #[arg(long, value_name = "RATE+SIZE", allow_hyphen_values = true)]
    bucket: Option<Bucket>,

    /// Reordering: probability and extra delay of a packet, e.g. "0.01+20 ms"
    #[arg(long, value_name = "P+DURATION", allow_hyphen_values = true)]
    reorder: Option<Reorder>,

    /// Link-layer framing in both directions
    ///
    /// One of raw, ethernet, ethernet-fcs, ethernet-wire, ppp, ppp-compressed, ppp-async, hdlc.
    #[arg(long, value_name = "NAME")]
    framing: Option<Framing>,

    /// Van Jacobson header compression of TCP in both directions; needs a PPP framing
    #[arg(long, value_name = "ON|OFF")]
    header_compression: Option<Switch>,

    /// Packets during outages: hold them in the queue, or drop them
    #[arg(long, value_name = "HOLD|DROP")]
    while_down: Option<WhileDown>,
}

/// Changes to the return link.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Return link")]
struct Back {
    /// Line rate [default: as --rate]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    return_rate: Option<Rate>,

    /// One-way delay [default: as --delay]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    return_delay: Option<Span>,

    /// Packet error rate [default: as --per]
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    return_per: Option<Probability>,

    /// Bit error rate, e.g. 1e-7
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    return_ber: Option<Probability>,

    /// Burst losses [default: as --burst]
    #[arg(long, value_name = "P+P[+P]", allow_hyphen_values = true)]
    return_burst: Option<Burst>,

    /// Erasure code [default: as --erasure]
    #[arg(long, value_name = "K+P[+DURATION]|off", allow_hyphen_values = true)]
    return_erasure: Option<Erasure>,

    /// MTU [default: as --mtu]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    return_mtu: Option<Size>,

    /// Queue limit [default: as --queue]
    #[arg(long, value_name = "LENGTH", allow_hyphen_values = true)]
    return_queue: Option<Queue>,

    /// Token bucket before the line [default: as --bucket]
    #[arg(long, value_name = "RATE+SIZE", allow_hyphen_values = true)]
    return_bucket: Option<Bucket>,

    /// Reordering [default: as --reorder]
    #[arg(long, value_name = "P+DURATION", allow_hyphen_values = true)]
    return_reorder: Option<Reorder>,
}

/// Options of both ends of a transfer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    pub(crate) sender: String,
    pub(crate) receiver: String,
    /// Whether times of the file count from the start of each command.
    pub(crate) is_relative: bool,
}

/// The part of a contact that is left at a time, counted from then on.
fn after(window: &link::Window, zero: Duration) -> Option<Window> {
    let zero = Time::ZERO + zero;
    let (start, end) = (window.start.max(zero), window.end.max(zero));
    (start < end).then(|| Window { at: Span(start.since(zero)), lasts: Span(end.since(start)) })
}

/// Rejects `--loss`, an option of other programs, and names the one to use.
fn no_loss(text: &str) -> Result<Probability, Usage> {
    let unit = "the probability of losing a packet";
    Err(Usage(format!("the option is `--per {text}`, {unit}; 0.01 and 1% are the same")))
}

impl LinkOptions {
    /// Name or file of the link that the options change.
    pub(crate) fn name(&self) -> &str {
        self.link.as_deref().unwrap_or(DEFAULT)
    }

    /// Whether no link was named, so that the default is assumed.
    pub(crate) fn is_assumed(&self) -> bool {
        self.link.is_none()
    }

    /// Link with the options applied.
    pub(crate) fn preset(&self) -> anyhow::Result<Preset> {
        let forward = LinkSpec {
            rate: self.forward.rate,
            delay: self.forward.delay,
            mtu: self.forward.mtu,
            datagram: self.forward.datagram,
            queue: self.forward.queue,
            reorder: self.forward.reorder,
            framing: self.forward.framing,
            header_compression: self.forward.header_compression.map(bool::from),
            outages: Some(self.contacts.outages()?).filter(|outages| !outages.is_empty()),
            outage_every: self.contacts.outage_every,
            while_down: self.forward.while_down,
            errors: Errors {
                per: self.forward.per,
                ber: self.forward.ber,
                burst: self.forward.burst,
                on_error: self.forward.on_error,
                ..Errors::default()
            },
            erasure: self.forward.erasure,
            bucket: self.forward.bucket,
            ..LinkSpec::default()
        };
        let back = LinkSpec {
            rate: self.back.return_rate,
            delay: self.back.return_delay,
            errors: Errors {
                per: self.back.return_per,
                ber: self.back.return_ber,
                burst: self.back.return_burst,
                ..Errors::default()
            },
            erasure: self.back.return_erasure,
            mtu: self.back.return_mtu,
            queue: self.back.return_queue,
            bucket: self.back.return_bucket,
            reorder: self.back.return_reorder,
            framing: forward.framing,
            header_compression: forward.header_compression,
            outages: forward.outages.clone(),
            outage_every: forward.outage_every,
            ..LinkSpec::default()
        };
        let mut preset = Preset::find(self.name())?;
        for hop in &mut preset.hops {
            let way_back = back.clone().over(&hop.back.take().map(|b| *b).unwrap_or_default());
            *hop = LinkSpec { back: Some(Box::new(way_back)), ..forward.clone().over(hop) };
        }
        self.apply_contacts(&mut preset)?;
        Ok(preset)
    }

    /// Contacts of --contacts; `None` if there is no file. Transfers begin at the epoch.
    fn listed(&self) -> anyhow::Result<Option<(Listed, SystemTime)>> {
        if self.contacts.file.is_none() {
            if self.contacts.epoch.is_some() {
                let message =
                    "--epoch needs --contacts: outages of a simulated link count from its start";
                return Err(Usage(message.to_owned()).into());
            }
            return Ok(None);
        }
        let start = self.contacts.epoch()?.unwrap_or_else(SystemTime::now);
        let listed = self.contacts.read(ENTITY, None, start)?;
        Ok(listed.map(|listed| (listed, start)))
    }

    /// Applies the file of contacts to both directions of a link.
    fn apply_contacts(&self, preset: &mut Preset) -> anyhow::Result<()> {
        let Some((listed, start)) = self.listed()? else { return Ok(()) };
        let [hop] = preset.hops.as_mut_slice() else {
            let message = "--contacts is for links of one hop; write those of several hops in a \
                           link's file (docs/links.md)";
            return Err(Usage(message.to_owned()).into());
        };
        let zero = if listed.is_relative { Duration::ZERO } else { since_1970(start) };
        let gates = |windows: Option<&Vec<link::Window>>| match windows {
            Some(windows) => windows.iter().filter_map(|window| after(window, zero)).collect(),
            None => vec![Window { at: Span(Duration::ZERO), lasts: Span(ALWAYS) }],
        };
        let light = listed.light.filter(|_| self.forward.delay.is_none()).map(Span);
        let direction = |windows, delay| LinkSpec {
            contacts: Some(gates(windows)),
            delay,
            ..LinkSpec::default()
        };
        let back_delay = light.filter(|_| self.back.return_delay.is_none());
        let back = direction(listed.back.as_ref(), back_delay).over(&hop.way_back());
        let there = direction(listed.there.as_ref(), light).over(hop);
        *hop = LinkSpec { back: Some(Box::new(back)), ..there };
        Ok(())
    }

    /// Options of `send` and of `recv` with the contacts of the link, if a file has them.
    pub(crate) fn contact_options(&self) -> anyhow::Result<Option<Ends>> {
        let Some((listed, _)) = self.listed()? else { return Ok(None) };
        let path = self.contacts.file.as_deref().unwrap_or(Path::new(""));
        let path = quoted(&path.display().to_string());
        let epoch = self.contacts.epoch.map_or(String::new(), |epoch| {
            format!(" --epoch {}", humantime::format_rfc3339_seconds(epoch))
        });
        let end = |ends: Option<(u64, u64)>| {
            let nodes = ends.map_or(String::new(), |(own, remote)| {
                format!(" --own-node {own} --remote-node {remote}")
            });
            format!(" --contacts {path}{nodes}{epoch}")
        };
        let (sender, receiver) = (end(listed.ends), end(listed.ends.map(|(own, it)| (it, own))));
        Ok(Some(Ends { sender, receiver, is_relative: listed.is_relative }))
    }
}

#[cfg(all(test, feature = "sockets"))]
mod tests {
    use std::fs;

    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        link: LinkOptions,
    }

    /// Options with a file of contacts.
    fn options(name: &str, text: &str, more: &[&str]) -> (tempfile::TempDir, LinkOptions) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        let words = ["line", "--contacts", path.to_str().expect("a path")];
        let line = Line::try_parse_from(words.iter().chain(more)).expect("options");
        (folder, line.link)
    }

    fn window(at: u64, lasts: u64) -> Window {
        let span = |seconds| Span(Duration::from_secs(seconds));
        Window { at: span(at), lasts: span(lasts) }
    }

    #[test]
    fn a_plan_gates_each_direction_of_the_link() {
        let plan = "contact = [
            { from = 7, to = 9, start = \"10 s\", end = \"20 s\", rate = \"1 Mbit/s\" },
            { from = 9, to = 7, start = \"12 s\", end = \"22 s\", rate = \"1 Mbit/s\" },
            ]
            range = [{ from = 7, to = 9, start = \"0 s\", end = \"1 h\", owlt = \"3 s\" }]";
        let (_folder, options) = options("plan.toml", plan, &["--own-node", "7"]);
        let hop = options.preset().expect("a link").hops.remove(0);
        let back = hop.way_back();
        assert_eq!(
            (hop.contacts, back.contacts),
            (Some(vec![window(10, 10)]), Some(vec![window(12, 10)]))
        );
        let light = Some(Span(Duration::from_secs(3)));
        assert_eq!((hop.delay, back.delay), (light, light));
        let ends = options.contact_options().expect("a file").expect("options");
        assert!(ends.sender.ends_with(" --own-node 7 --remote-node 9"), "{ends:?}");
        assert!(ends.receiver.ends_with(" --own-node 9 --remote-node 7"), "{ends:?}");
    }

    #[test]
    fn dates_count_from_the_epoch() {
        let list = "2026-12-01T08:00:00Z, 2026-12-01T08:00:30Z\n\
                    2026-12-01T09:00:00Z, 2026-12-01T09:10:00Z";
        let epoch = ["--epoch", "2026-12-01T08:00:20Z", "--delay", "1 s"];
        let (_folder, options) = options("passes.txt", list, &epoch);
        let hop = options.preset().expect("a link").hops.remove(0);
        let contacts = Some(vec![window(0, 10), window(3580, 600)]);
        assert_eq!(hop.way_back().contacts, contacts);
        assert_eq!((hop.contacts, hop.delay), (contacts, Some(Span(Duration::from_secs(1)))));
        let ends = options.contact_options().expect("a file").expect("options");
        assert!(ends.sender.ends_with(" --epoch 2026-12-01T08:00:20Z"), "{ends:?}");
    }

    #[test]
    fn an_epoch_without_contacts_is_refused() {
        let line = Line::try_parse_from(["line", "--epoch", "2026-12-01T08:00:20Z"]);
        let error = line.expect("options").link.preset().expect_err("no contacts").to_string();
        assert!(error.contains("--epoch") && error.contains("--contacts"), "{error}");
    }

    #[test]
    fn links_of_several_hops_are_refused() {
        let (_folder, options) = options("passes.txt", "0 s, 1 s", &["--link", "moon-farside"]);
        let error = options.preset().expect_err("several hops").to_string();
        assert!(error.contains("one hop"), "{error}");
    }
}
