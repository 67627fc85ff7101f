//! Options of SCPS-TP.

use clap::ValueEnum;
use tcp::scps::{Carrier, LossCause, RateControl, Scps, Snack, SnackForm};
use transport::quantity::{Rate, Span};

/// Form of selective negative acknowledgments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SnackOption {
    /// One gap per SNACK
    Short,
    /// One gap and a bit vector of further ones
    Bits,
    /// None
    Off,
}

/// Assumed cause of losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Assume {
    /// Full queues: the window is reduced
    Congestion,
    /// Damage: the window is kept
    Corruption,
}

/// IP protocol number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// IP protocol 6
    Tcp,
    /// IP protocol 106
    Scps,
}

/// Options of SCPS-TP.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "SCPS-TP")]
pub(crate) struct ScpsOptions {
    /// Offer SCPS-TP (CCSDS 714.0-B-2); falls back to TCP with other peers
    #[arg(long)]
    scps: bool,

    /// Selective negative acknowledgments [default: short]
    #[arg(long, value_name = "FORM", requires = "scps")]
    snack: Option<SnackOption>,

    /// Delay before a SNACK reports a gap, for paths that reorder packets [default: 0 s]
    #[arg(long, value_name = "DURATION", requires = "scps")]
    snack_delay: Option<Span>,

    /// Assumed cause of losses [default: congestion]
    #[arg(long, value_name = "CAUSE", requires = "scps")]
    assume: Option<Assume>,

    /// Fixed send rate, counted in IP packets [default: none]
    #[arg(long, value_name = "RATE", requires = "scps")]
    route_rate: Option<Rate>,

    /// IP protocol of connections that this side opens [default: tcp]
    #[arg(long, value_name = "PROTOCOL", requires = "scps")]
    scps_protocol: Option<Protocol>,

    /// Header compression, in packets of IP protocol 105
    #[arg(long, requires = "scps")]
    compress_headers: bool,
}

impl ScpsOptions {
    /// Settings of the stack.
    pub(crate) fn scps(&self) -> Option<Scps> {
        let base = self.scps.then(Scps::default)?;
        let snack = match self.snack {
            None | Some(SnackOption::Short) => Some(SnackForm::Short),
            Some(SnackOption::Bits) => Some(SnackForm::Bits),
            Some(SnackOption::Off) => None,
        };
        let snack = snack.map(|form| {
            let usual = Snack::default();
            Snack { form, delay: self.snack_delay.map_or(usual.delay, Span::duration), ..usual }
        });
        let assume = match self.assume {
            None => base.assume,
            Some(Assume::Congestion) => LossCause::Congestion,
            Some(Assume::Corruption) => LossCause::Corruption,
        };
        let rate = self
            .route_rate
            .map(|rate| RateControl { bps: Some(rate.bps()), ..RateControl::default() });
        let protocol = match self.scps_protocol {
            None => base.protocol,
            Some(Protocol::Tcp) => Carrier::Tcp,
            Some(Protocol::Scps) => Carrier::Scps,
        };
        let header_compression = self.compress_headers;
        Some(Scps { snack, assume, rate, protocol, header_compression, ..base })
    }
}
