//! The settings of a connection, as options.

use std::str::FromStr;

use clap::ValueEnum;
use proto::tcp::cc::IdleRule;
use proto::tcp::{
    AckPolicy, Buffer, InitialWindow, KeepAlive, LossRecovery, Options, Profile, Timeouts,
};
use transport::quantity::{Size, Span};
use transport::settings::tcp::{Congestion, TcpBuffers};

use super::scps::ScpsOptions;
use crate::Usage;
use crate::switch::{self, Switch};

/// What is sent after a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Recovery {
    /// One segment a round trip (RFC 6582)
    Newreno,
    /// By the scoreboard (RFC 6675)
    Sack,
    /// With the reduction spread over the round trip (RFC 6937)
    Prr,
    /// One segment for every two that arrive
    RateHalving,
}

/// What a window is worth after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AfterPause {
    /// What it was
    Keep,
    /// The initial window (RFC 5681)
    Restart,
    /// Half for each time-out that passed (RFC 2861)
    Decay,
}

/// A buffer: a size, `auto`, or `auto:` and the most that it may grow to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Fixed(u64),
    Auto(Option<u64>),
}

impl FromStr for Room {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = |text: &str| match text.parse::<Size>() {
            Ok(size) if size.bytes() > 0 => Ok(size.bytes()),
            Ok(_) => Err("a buffer has one byte at least".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto(None)),
            Some(("auto", most)) => Ok(Self::Auto(Some(size(most)?))),
            Some(_) | None => Ok(Self::Fixed(size(text)?)),
        }
    }
}

impl Room {
    fn of(self, buffer: Buffer) -> Buffer {
        match self {
            Self::Fixed(size) => Buffer::Fixed(size),
            Self::Auto(None) => buffer,
            Self::Auto(Some(max)) => Buffer::Auto { initial: buffer.initial().min(max), max },
        }
    }
}

/// The window before anything is acknowledged: a number of segments, or `rfc3390`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Initial(InitialWindow);

impl FromStr for Initial {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "rfc3390" {
            return Ok(Self(InitialWindow::Rfc3390));
        }
        match text.parse() {
            Ok(0) => Err("a connection sends one segment at least".to_owned()),
            Ok(count) => Ok(Self(InitialWindow::Segments(count))),
            Err(_) => Err("a number of segments, or rfc3390".to_owned()),
        }
    }
}

/// Options of a connection. Options that are left out are as in a Linux of today.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "TCP")]
pub(crate) struct TcpOptions {
    #[command(flatten)]
    send: SendOptions,

    #[command(flatten)]
    loss: LossOptions,

    #[command(flatten)]
    header: HeaderOptions,

    #[command(flatten)]
    acks: AckOptions,

    #[command(flatten)]
    buffers: BufferOptions,

    #[command(flatten)]
    timeouts: TimeoutOptions,

    #[command(flatten)]
    scps: ScpsOptions,
}

/// Options of the pace at which segments are sent.
#[derive(Clone, Debug, clap::Args)]
struct SendOptions {
    /// Congestion control
    #[arg(long, value_name = "NAME", default_value = "cubic", value_parser = switch::congestion())]
    congestion: Congestion,

    /// Segments before anything is acknowledged, or rfc3390
    #[arg(long, value_name = "N", default_value = "10")]
    initial_window: Initial,

    /// The window after a pause
    #[arg(long, value_name = "HOW", default_value = "decay")]
    after_pause: AfterPause,

    /// Congestion marks (RFC 3168)
    #[arg(long, value_name = "ON|OFF", default_value = "off")]
    ecn: Switch,

    /// Short segments wait for acknowledgments
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    nagle: Switch,

    /// Short segments wait for other short ones only, as in Linux
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    minshall: Switch,

    /// Segments spread over the round trip, whatever the congestion control
    #[arg(long, value_name = "ON|OFF", default_value = "off")]
    pacing: Switch,
}

/// Options of loss detection and recovery.
#[derive(Clone, Debug, clap::Args)]
struct LossOptions {
    /// What is sent after a loss
    #[arg(long, value_name = "HOW", default_value = "prr")]
    recovery: Recovery,

    /// Selective acknowledgments (RFC 2018)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    sack: Switch,

    /// Reports of what arrived twice (RFC 2883)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    duplicate_sack: Switch,

    /// Losses by time (RFC 8985)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    rack: Switch,

    /// Tail loss probes (RFC 8985)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    tail_loss_probe: Switch,

    /// New data for the first duplicates (RFC 3042)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    limited_transmit: Switch,

    /// Taking back what was done for a loss that was none
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    undo: Switch,

    /// Smaller segments after repeated timeouts of a full one, and a probe of the full size later
    /// (RFC 4821)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    mtu_probing: Switch,
}

/// Options of segments' headers.
#[derive(Clone, Debug, clap::Args)]
struct HeaderOptions {
    /// Windows of more than 65,535 bytes (RFC 7323)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    window_scale: Switch,

    /// Time stamps, and protection against wrapped numbers (RFC 7323)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    timestamps: Switch,

    /// The longest segment to announce, in bytes [default: what the MTU takes]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..))]
    mss: Option<u16>,

    /// Routers that a packet may cross
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u8).range(1..))]
    hop_limit: u8,

    /// Differentiated services code point
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..64))]
    dscp: u8,
}

/// Options of acknowledgments.
#[derive(Clone, Debug, clap::Args)]
struct AckOptions {
    /// Acknowledge every so many full segments; 1: at once; 0: after the delay alone
    #[arg(long, value_name = "N", default_value_t = 2)]
    ack_every: u32,

    /// And after so long at the latest
    #[arg(long, value_name = "TIME", default_value = "40 ms")]
    ack_delay: Span,

    /// Segments at the beginning that are acknowledged at once
    #[arg(long, value_name = "N", default_value_t = 16)]
    quick_acks: u32,
}

/// Options of buffers.
#[derive(Clone, Debug, clap::Args)]
struct BufferOptions {
    /// Growth limit of buffers that are `auto`
    #[arg(long, value_name = "SIZE", default_value = "unlimited", value_parser = switch::buffers())]
    tcp_buffers: TcpBuffers,

    /// Send buffer, as 64KiB, auto or auto:16MiB
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    send_buffer: Room,

    /// Receive buffer, as 64KiB, auto or auto:16MiB
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    receive_buffer: Room,
}

/// Options of timeouts.
#[derive(Clone, Debug, clap::Args)]
struct TimeoutOptions {
    /// The least retransmission time-out
    #[arg(long, value_name = "TIME", default_value = "200 ms")]
    rto_min: Span,

    /// The most
    #[arg(long, value_name = "TIME", default_value = "120 s")]
    rto_max: Span,

    /// That before the round trip is known
    #[arg(long, value_name = "TIME", default_value = "1 s")]
    rto_initial: Span,

    /// SYNs that are sent again
    #[arg(long, value_name = "N", default_value_t = 6)]
    syn_retries: u32,

    /// Time-outs of the same data before the connection is given up
    #[arg(long, value_name = "N", default_value_t = 15)]
    retries: u32,

    /// Ask an idle peer after so long whether it is there
    #[arg(long, value_name = "TIME")]
    keep_alive: Option<Span>,
}

impl TcpOptions {
    /// As the stack has them.
    ///
    /// # Errors
    ///
    /// When the least time-out is above the most.
    pub(crate) fn options(&self) -> Result<Options, Usage> {
        let (min, max) = (self.timeouts.rto_min, self.timeouts.rto_max);
        if min > max {
            let message = format!(
                "--rto-min {min} is above --rto-max {max}: lower the one or raise the other"
            );
            return Err(Usage(message));
        }
        Ok(self.unchecked())
    }

    fn unchecked(&self) -> Options {
        let mut base = Profile::Modern.options();
        self.buffers.tcp_buffers.apply(&mut base);
        let recovery = match self.loss.recovery {
            Recovery::Newreno => LossRecovery::NewReno,
            Recovery::Sack => LossRecovery::Sack6675,
            Recovery::Prr => LossRecovery::Prr,
            Recovery::RateHalving => LossRecovery::RateHalving,
        };
        let idle = match self.send.after_pause {
            AfterPause::Keep => None,
            AfterPause::Restart => Some(IdleRule::Restart),
            AfterPause::Decay => Some(IdleRule::Decay),
        };
        let keep_alive = self
            .timeouts
            .keep_alive
            .map(|idle| KeepAlive { idle: idle.duration(), ..KeepAlive::default() });
        Options {
            mss: self.header.mss,
            window_scale: self.header.window_scale.into(),
            timestamps: self.header.timestamps.into(),
            sack: self.loss.sack.into(),
            duplicate_sack: self.loss.duplicate_sack.into(),
            recovery,
            rack: self.loss.rack.into(),
            tail_loss_probe: self.loss.tail_loss_probe.into(),
            limited_transmit: self.loss.limited_transmit.into(),
            undo: self.loss.undo.into(),
            ecn: self.send.ecn.into(),
            nagle: self.send.nagle.into(),
            minshall: self.send.minshall.into(),
            acks: AckPolicy {
                every: self.acks.ack_every,
                max_delay: self.acks.ack_delay.duration(),
                quick: self.acks.quick_acks,
            },
            timeouts: Timeouts {
                initial: self.timeouts.rto_initial.duration(),
                min: self.timeouts.rto_min.duration(),
                max: self.timeouts.rto_max.duration(),
                margin: base.timeouts.margin,
            },
            syn_retries: self.timeouts.syn_retries,
            retries: self.timeouts.retries,
            keep_alive,
            mtu_probing: self.loss.mtu_probing.into(),
            initial_window: self.send.initial_window.0,
            idle,
            send_buffer: self.buffers.send_buffer.of(base.send_buffer),
            any_room: base.any_room,
            receive_buffer: self.buffers.receive_buffer.of(base.receive_buffer),
            congestion: self.send.congestion.algorithm(),
            pacing: self.send.pacing.into(),
            hop_limit: self.header.hop_limit,
            dscp: self.header.dscp,
            scps: self.scps.scps(),
        }
    }
}
