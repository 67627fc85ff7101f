//! Options of a connection.

use std::str::FromStr;

use clap::ValueEnum;
use tcp::cc::IdleRule;
use tcp::{AckPolicy, Buffer, InitialWindow, KeepAlive, LossRecovery, Options, Profile, Timeouts};
use transport::quantity::{Size, Span};
use transport::settings::tcp::{Congestion, TcpBuffers};

use super::scps::ScpsOptions;
use crate::Usage;
use crate::switch::{self, Switch};

/// Loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Recovery {
    /// One segment per round trip (RFC 6582)
    Newreno,
    /// By the scoreboard (RFC 6675)
    Sack,
    /// Proportional rate reduction (RFC 6937)
    Prr,
    /// One segment for every two that arrive
    RateHalving,
}

/// Congestion window after an idle period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AfterPause {
    /// Unchanged
    Keep,
    /// Initial window (RFC 5681)
    Restart,
    /// Halved for each retransmission timeout that passed (RFC 2861)
    Decay,
}

/// Buffer: a size, `auto`, or `auto:` and its limit.
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
    fn apply_to(self, buffer: Buffer) -> Buffer {
        match self {
            Self::Fixed(size) => Buffer::Fixed(size),
            Self::Auto(None) => buffer,
            Self::Auto(Some(max)) => Buffer::Auto { initial: buffer.initial().min(max), max },
        }
    }
}

/// Initial window: a number of segments, or `rfc3390`.
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

/// Options of a connection. Defaults are those of current Linux.
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

    /// Initial window in segments, or rfc3390
    #[arg(long, value_name = "N", default_value = "10")]
    initial_window: Initial,

    /// Congestion window after an idle period
    #[arg(long, value_name = "HOW", default_value = "decay")]
    after_pause: AfterPause,

    /// Explicit congestion notification (RFC 3168)
    #[arg(long, value_name = "ON|OFF", default_value = "off")]
    ecn: Switch,

    /// Nagle's algorithm: short segments wait for acknowledgments (RFC 896)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    nagle: Switch,

    /// Minshall's variant of Nagle's algorithm: wait for unacknowledged short segments only, as in
    /// Linux
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    minshall: Switch,

    /// Pacing of segments over the round trip, for any congestion control
    #[arg(long, value_name = "ON|OFF", default_value = "off")]
    pacing: Switch,
}

/// Options of loss detection and recovery.
#[derive(Clone, Debug, clap::Args)]
struct LossOptions {
    /// Loss recovery
    #[arg(long, value_name = "HOW", default_value = "prr")]
    recovery: Recovery,

    /// Selective acknowledgments (RFC 2018)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    sack: Switch,

    /// Duplicate SACK (RFC 2883)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    duplicate_sack: Switch,

    /// RACK: loss detection by time (RFC 8985)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    rack: Switch,

    /// Tail loss probes (RFC 8985)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    tail_loss_probe: Switch,

    /// Limited transmit: new data for the first duplicate acknowledgments (RFC 3042)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    limited_transmit: Switch,

    /// Undo of window reductions after spurious retransmissions
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    undo: Switch,

    /// Packetization-layer path MTU discovery (RFC 4821)
    ///
    /// Uses smaller segments after repeated timeouts of a full one, and probes the full size later.
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    mtu_probing: Switch,
}

/// Options of segments' headers.
#[derive(Clone, Debug, clap::Args)]
struct HeaderOptions {
    /// Window scale option (RFC 7323)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    window_scale: Switch,

    /// Timestamps option and PAWS (RFC 7323)
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    timestamps: Switch,

    /// Announced maximum segment size, e.g. "1460 B" [default: by the MTU]
    #[arg(long, value_name = "SIZE", value_parser = crate::whole::bytes_within(64_u16..=u16::MAX))]
    mss: Option<u16>,

    /// TTL or hop limit of packets
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = crate::whole::within(1_u8..=u8::MAX))]
    hop_limit: u8,

    /// Differentiated services code point (DSCP)
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = crate::whole::within(0_u8..=63))]
    dscp: u8,
}

/// Options of acknowledgments.
#[derive(Clone, Debug, clap::Args)]
struct AckOptions {
    /// Full segments per acknowledgment; 1: at once; 0: after --ack-delay only
    #[arg(long, value_name = "N", default_value_t = 2)]
    ack_every: u32,

    /// Longest delay of an acknowledgment
    #[arg(long, value_name = "DURATION", default_value = "40 ms")]
    ack_delay: Span,

    /// Initial segments that are acknowledged at once
    #[arg(long, value_name = "N", default_value_t = 16)]
    quick_acks: u32,
}

/// Options of buffers.
#[derive(Clone, Debug, clap::Args)]
struct BufferOptions {
    /// Limit of `auto` buffers
    #[arg(long, value_name = "SIZE", default_value = "unlimited", value_parser = switch::buffers())]
    tcp_buffers: TcpBuffers,

    /// Send buffer, e.g. 64KiB, auto or auto:16MiB
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    send_buffer: Room,

    /// Receive buffer, e.g. 64KiB, auto or auto:16MiB
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    receive_buffer: Room,
}

/// Options of timeouts.
#[derive(Clone, Debug, clap::Args)]
struct TimeoutOptions {
    /// Minimum retransmission timeout
    #[arg(long, value_name = "DURATION", default_value = "200 ms")]
    rto_min: Span,

    /// Maximum retransmission timeout
    #[arg(long, value_name = "DURATION", default_value = "120 s")]
    rto_max: Span,

    /// Retransmission timeout before the first round-trip sample
    #[arg(long, value_name = "DURATION", default_value = "1 s")]
    rto_initial: Span,

    /// Retransmissions of a SYN
    #[arg(long, value_name = "N", default_value_t = 6)]
    syn_retries: u32,

    /// Timeouts of the same data before the connection is aborted
    #[arg(long, value_name = "N", default_value_t = 15)]
    retries: u32,

    /// Keep-alive probe after this idle time [default: off]
    #[arg(long, value_name = "DURATION")]
    keep_alive: Option<Span>,
}

impl TcpOptions {
    /// Options of the stack.
    ///
    /// # Errors
    ///
    /// The minimum timeout is above the maximum.
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
            send_buffer: self.buffers.send_buffer.apply_to(base.send_buffer),
            any_room: base.any_room,
            receive_buffer: self.buffers.receive_buffer.apply_to(base.receive_buffer),
            congestion: self.send.congestion.algorithm(),
            pacing: self.send.pacing.into(),
            hop_limit: self.header.hop_limit,
            dscp: self.header.dscp,
            scps: self.scps.scps(),
        }
    }
}
