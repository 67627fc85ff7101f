//! A link as options of the command line.

use lab::link_spec::{Framing, LinkSpec, Queue, Reorder, Window};
use lab::preset::Preset;
use lab::quantity::{Probability, Rate, Size, Span};

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

    /// Largest IP packet, like "1500B"
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    mtu: Option<Size>,

    /// Most bytes of protocol data in a datagram, like "1024B" [default: what the MTU holds]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    datagram: Option<Size>,

    /// How much may wait, like "1000 packets" or "64 KiB"
    #[arg(long, value_name = "LENGTH", allow_hyphen_values = true)]
    queue: Option<Queue>,

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
            per: self.forward.per,
            ber: self.forward.ber,
            mtu: self.forward.mtu,
            datagram: self.forward.datagram,
            queue: self.forward.queue,
            reorder: self.forward.reorder,
            framing: self.forward.framing,
            header_compression: self.forward.header_compression.map(bool::from),
            outages: self.outages()?,
            ..LinkSpec::default()
        };
        let back = LinkSpec {
            rate: self.back.return_rate,
            delay: self.back.return_delay,
            per: self.back.return_per,
            ber: self.back.return_ber,
            framing: forward.framing,
            header_compression: forward.header_compression,
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
