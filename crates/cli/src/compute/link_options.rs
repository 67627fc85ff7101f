//! A link as options of the command line.

use lab::link_spec::{
    Bucket, Burst, Errors, Framing, LinkSpec, OnError, Periodic, Queue, Reorder, WhileDown,
};
use lab::preset::Preset;
use transport::quantity::Window;
use transport::quantity::{Probability, Rate, Size, Span};

use crate::Usage;
use crate::switch::Switch;

/// A link that has a name, and changes to it. As options, this comes last: its headings hold for
/// every option after them.
#[derive(Debug, clap::Args)]
pub(crate) struct LinkOptions {
    /// Link to start from: a name (see `slowlight links`) or a file like theirs
    #[arg(long, value_name = "NAME|FILE", default_value = "terrestrial")]
    link: String,

    #[command(flatten)]
    forward: Forward,

    #[command(flatten)]
    back: Back,
}

/// Changes to the link; with several hops they hold for each of them.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Link")]
struct Forward {
    /// Line rate, like "10 Mbit/s"; 0 is without limit
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<Rate>,

    /// One-way delay, like "250 ms"
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    delay: Option<Span>,

    /// Probability to lose a packet, whatever its length
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    per: Option<Probability>,

    /// Bit error rate
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    ber: Option<Probability>,

    /// Losses in bursts: probabilities to enter and to leave a bad state after a packet, and to lose a
    /// packet in it (default 1), like "0.001+0.2"
    #[arg(long, value_name = "P+P[+P]", allow_hyphen_values = true)]
    burst: Option<Burst>,

    /// Effect of an error on a packet: drop, or damage where the link layer has no checksum
    #[arg(long, value_name = "DROP|DAMAGE")]
    on_error: Option<OnError>,

    #[arg(long, hide = true, allow_hyphen_values = true, value_parser = no_loss)]
    loss: Option<Probability>,

    /// Largest IP packet, like "1500B"
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    mtu: Option<Size>,

    /// Most bytes of protocol data in a datagram, like "1024B" [default: what the MTU holds]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    datagram: Option<Size>,

    /// How much may wait, like "1000 packets" or "64 KiB"
    #[arg(long, value_name = "LENGTH", allow_hyphen_values = true)]
    queue: Option<Queue>,

    /// Token bucket in front of the line: sustained rate and burst, like "8 Mbit/s+64 KiB"
    #[arg(long, value_name = "RATE+SIZE", allow_hyphen_values = true)]
    bucket: Option<Bucket>,

    /// Packets that others overtake: a probability, and how much longer they take, like "0.01+20 ms"
    #[arg(long, value_name = "P+TIME", allow_hyphen_values = true)]
    reorder: Option<Reorder>,

    /// The frame around each IP packet, both ways: raw, ethernet, ethernet-fcs, ethernet-wire, ppp,
    /// ppp-compressed, ppp-async or hdlc
    #[arg(long, value_name = "NAME")]
    framing: Option<Framing>,

    /// Van Jacobson's compression of TCP's headers, both ways; needs a framing of PPP
    #[arg(long, value_name = "ON|OFF")]
    header_compression: Option<Switch>,

    /// An outage of both directions: begin and length, like "10 s+30 s"; may be repeated
    #[arg(long, value_name = "WINDOW", allow_hyphen_values = true)]
    outage: Vec<Window>,

    /// Periodic outages of both directions: period, length and begin of the first (default 0 s), like
    /// "60 s+5 s"
    #[arg(
        long,
        value_name = "TIME+TIME[+TIME]",
        allow_hyphen_values = true,
        conflicts_with = "outage"
    )]
    outage_every: Option<Periodic>,

    /// Policy for packets during outages: hold them in the queue, or drop them
    #[arg(long, value_name = "HOLD|DROP")]
    while_down: Option<WhileDown>,
}

/// What the way back does differently.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Way back, like the way there if left out")]
struct Back {
    /// Line rate
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    return_rate: Option<Rate>,

    /// One-way delay
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    return_delay: Option<Span>,

    /// Probability to lose a packet
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    return_per: Option<Probability>,

    /// Bit error rate
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    return_ber: Option<Probability>,

    /// Losses in bursts
    #[arg(long, value_name = "P+P[+P]", allow_hyphen_values = true)]
    return_burst: Option<Burst>,

    /// Largest IP packet
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    return_mtu: Option<Size>,

    /// Length of the queue
    #[arg(long, value_name = "LENGTH", allow_hyphen_values = true)]
    return_queue: Option<Queue>,

    /// Token bucket in front of the line
    #[arg(long, value_name = "RATE+SIZE", allow_hyphen_values = true)]
    return_bucket: Option<Bucket>,

    /// Packets that others overtake
    #[arg(long, value_name = "P+TIME", allow_hyphen_values = true)]
    return_reorder: Option<Reorder>,
}

/// Refuses `--loss`, which other programs have, with the option to use.
fn no_loss(text: &str) -> Result<Probability, Usage> {
    let unit = "the probability to lose a packet";
    Err(Usage(format!("the option is `--per {text}`, {unit}; 0.01 and 1% are the same")))
}

impl LinkOptions {
    /// What it starts from.
    pub(crate) fn name(&self) -> &str {
        &self.link
    }

    /// The link that the options describe.
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
            outages: self.outages()?,
            outage_every: self.forward.outage_every,
            while_down: self.forward.while_down,
            errors: Errors {
                per: self.forward.per,
                ber: self.forward.ber,
                burst: self.forward.burst,
                on_error: self.forward.on_error,
                ..Errors::default()
            },
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
        let mut preset = Preset::find(&self.link)?;
        for hop in &mut preset.hops {
            let way_back = back.clone().over(&hop.back.take().map(|b| *b).unwrap_or_default());
            *hop = LinkSpec { back: Some(Box::new(way_back)), ..forward.clone().over(hop) };
        }
        Ok(preset)
    }

    /// The outages in the order of time.
    fn outages(&self) -> anyhow::Result<Option<Vec<Window>>> {
        let mut outages = self.forward.outage.clone();
        outages.sort_by_key(|outage| outage.at);
        for pair in outages.windows(2) {
            let &[before, after] = pair else { continue };
            if before.at.duration() + before.lasts.duration() > after.at.duration() {
                let message = format!("--outage \"{before}\" and \"{after}\" overlap");
                return Err(Usage(message).into());
            }
        }
        Ok(Some(outages).filter(|outages| !outages.is_empty()))
    }
}
