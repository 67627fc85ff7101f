//! The settings of TCP's connections (see [`tcp::Options`]).

use proto::tcp;
use proto::tcp::cc::{Algorithm, Bic, Counting, Cubic, IdleRule, Vegas};
use serde::{Deserialize, Serialize};

use super::at_least;
use super::form::{Form, Switch, table};
use super::scps::ScpsSettings;
use crate::quantity::{Size, Span};
use crate::text::SpecError;

table! {
    /// What a user says about TCP's connections; what is left out stays as it is.
    TcpSettings: tcp::Options {
        /// Congestion control.
        congestion: Congestion,
        /// The longest segment to be announced, in octets, or `off`: what fits into the MTU.
        mss: Switch<u16>,
        /// Window scale (RFC 7323).
        window_scale: bool,
        /// Time stamps (RFC 7323).
        timestamps: bool,
        /// Selective acknowledgment (RFC 2018).
        sack: bool,
        /// Reports of what arrived twice (RFC 2883).
        duplicate_sack: bool,
        /// What is sent after a loss.
        recovery: Recovery,
        /// Losses by the time of what arrived (RFC 8985).
        rack: bool,
        /// Probes of the tail (RFC 8985).
        tail_loss_probe: bool,
        /// New data for the first duplicate acknowledgments (RFC 3042).
        limited_transmit: bool,
        /// Taking back what was done for losses that were none.
        undo: bool,
        /// Explicit congestion notification (RFC 3168).
        ecn: bool,
        /// Nagle's algorithm.
        nagle: bool,
        /// Short segments wait for other short ones only.
        minshall: bool,
        /// How often a SYN is sent again.
        syn_retries: u32,
        /// How often data is sent again before the connection is given up.
        retries: u32,
        /// Whether repeated timeouts of a full segment lower the segment size (RFC 4821).
        mtu_probing: bool,
        /// Segments that are sent before anything is acknowledged, or `off`: as many as RFC 3390
        /// says.
        initial_window: Switch<u32>,
        /// What the window is worth after a pause, or `off`: as much as before.
        idle: Switch<Idle>,
        /// Whether windows are spread over the round trip.
        pacing: bool,
        /// Whether a program hears of any room in the send buffer, or of a third of it.
        any_room: bool,
    }
    also {
        /// Growth limit of the buffers; `send_buffer` and `receive_buffer` take precedence.
        #[serde(skip_serializing_if = "Option::is_none")]
        buffers: Option<TcpBuffers>,
        /// The send buffer, or the most that it grows to.
        #[serde(skip_serializing_if = "Option::is_none")]
        send_buffer: Option<Size>,
        /// The send buffer at the beginning, or `off`: it does not grow.
        #[serde(skip_serializing_if = "Option::is_none")]
        send_buffer_initial: Option<Switch<Size>>,
        /// The receive buffer, which is the window offered, or the most that it grows to.
        #[serde(skip_serializing_if = "Option::is_none")]
        receive_buffer: Option<Size>,
        /// The receive buffer at the beginning, or `off`: it does not grow.
        #[serde(skip_serializing_if = "Option::is_none")]
        receive_buffer_initial: Option<Switch<Size>>,
        /// When what arrives is acknowledged.
        #[serde(skip_serializing_if = "Option::is_none")]
        ack: Option<Ack>,
        /// The retransmission time-out.
        #[serde(skip_serializing_if = "Option::is_none")]
        rto: Option<Rto>,
        /// Asking an idle peer whether it is still there, or `off`.
        #[serde(skip_serializing_if = "Option::is_none")]
        keep_alive: Option<Switch<KeepAlive>>,
        /// SCPS-TP, or `off`.
        #[serde(skip_serializing_if = "Option::is_none")]
        scps: Option<Switch<ScpsSettings>>,
    }
}

table! {
    /// When what arrives is acknowledged (see [`tcp::AckPolicy`]).
    Ack: tcp::AckPolicy {
        /// At each so many full segments, or `off`: after the delay alone.
        every: Switch<u32>,
        /// After so long at the latest.
        max_delay: Span,
        /// At once for so many segments at the beginning.
        quick: u32,
    }
}

table! {
    /// The bounds of the retransmission time-out (see [`tcp::Timeouts`]).
    Rto: tcp::Timeouts {
        /// Before anything is known of the round trip.
        initial: Span,
        /// The least.
        min: Span,
        /// The most.
        max: Span,
        /// The least allowance beyond the smoothed round trip.
        margin: Span,
    }
}

table! {
    /// Asking an idle peer whether it is still there (see [`tcp::KeepAlive`]).
    KeepAlive: tcp::KeepAlive {
        /// After so long without a segment of it.
        idle: Span,
        /// Again after so long.
        interval: Span,
        /// And so often, before the connection is given up.
        probes: u32,
    }
}

impl KeepAlive {
    fn apply(&self, before: Option<tcp::KeepAlive>) -> Result<tcp::KeepAlive, SpecError> {
        super::not_often("tcp.keep_alive.idle", self.idle)?;
        super::not_often("tcp.keep_alive.interval", self.interval)?;
        if self.probes == Some(0) {
            return Err(SpecError::invalid("tcp.keep_alive.probes is 0; it must be at least 1"));
        }
        let mut keep_alive = before.unwrap_or_default();
        self.apply_fields(&mut keep_alive);
        Ok(keep_alive)
    }
}

/// Congestion control by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Congestion {
    /// Jacobson's of 1988.
    Tahoe,
    /// That of 1990: the first new acknowledgment ends a recovery (RFC 2001).
    Reno,
    /// RFC 5681 with RFC 6582: what Linux calls reno.
    Newreno,
    /// Vegas, as Linux has it.
    Vegas,
    /// Vegas, as its authors had it.
    VegasPaper,
    /// Vegas, as the SCPS reference implementation has it.
    VegasScps,
    /// BIC.
    Bic,
    /// CUBIC, as Linux has it.
    Cubic,
    /// CUBIC, as RFC 9438 has it.
    CubicRfc9438,
    /// BBR, version 1.
    Bbr,
    /// None: what the peer's window takes.
    None,
}

impl Congestion {
    /// All, in the order in which they are listed.
    pub const ALL: &[Self] = &[
        Self::Tahoe,
        Self::Reno,
        Self::Newreno,
        Self::Vegas,
        Self::VegasPaper,
        Self::VegasScps,
        Self::Bic,
        Self::Cubic,
        Self::CubicRfc9438,
        Self::Bbr,
        Self::None,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tahoe => "tahoe",
            Self::Reno => "reno",
            Self::Newreno => "newreno",
            Self::Vegas => "vegas",
            Self::VegasPaper => "vegas-paper",
            Self::VegasScps => "vegas-scps",
            Self::Bic => "bic",
            Self::Cubic => "cubic",
            Self::CubicRfc9438 => "cubic-rfc9438",
            Self::Bbr => "bbr",
            Self::None => "none",
        }
    }

    /// What it is, in a few words.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            Self::Tahoe => "Slow start again after each loss (1988)",
            Self::Reno => "Fast recovery that the first new acknowledgment ends (1990)",
            Self::Newreno => "Fast recovery for a window (RFC 6582); Linux calls it reno",
            Self::Vegas => "By the round trip, as Linux has it",
            Self::VegasPaper => "The same by the paper's parameters",
            Self::VegasScps => "The same as SCPS's reference implementation has it",
            Self::Bic => "As Linux 2.6.18 had it",
            Self::Cubic => "As Linux has it",
            Self::CubicRfc9438 => "By RFC 9438, with HyStart++",
            Self::Bbr => "Version 1, as Linux has it",
            Self::None => "Whatever the peer's window takes",
        }
    }

    /// The control of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|congestion| congestion.name() == name)
    }

    /// What TCP takes for it.
    #[must_use]
    pub fn algorithm(self) -> Algorithm {
        // Linux counts all that an acknowledgment covers, RFC 5681 no more than two segments.
        let counting = Counting::Octets { limit: u64::MAX };
        match self {
            Self::Tahoe => Algorithm::Tahoe(counting),
            Self::Reno => Algorithm::Reno(counting),
            Self::Newreno => Algorithm::NewReno(counting),
            Self::Vegas => Algorithm::Vegas(Vegas::LINUX),
            Self::VegasPaper => Algorithm::Vegas(Vegas::PAPER),
            Self::VegasScps => Algorithm::Vegas(Vegas::SCPS),
            Self::Bic => Algorithm::Bic(Bic::default()),
            Self::Cubic => Algorithm::Cubic(Cubic::LINUX),
            Self::CubicRfc9438 => Algorithm::Cubic(Cubic::RFC9438),
            Self::Bbr => Algorithm::Bbr,
            Self::None => Algorithm::None { window: None },
        }
    }
}

impl Form<Algorithm> for Congestion {
    /// Those with parameters of their own have no name, and are left to the profile.
    fn of(value: &Algorithm) -> Option<Self> {
        Self::ALL.iter().copied().find(|congestion| congestion.algorithm() == *value)
    }

    fn value(&self) -> Algorithm {
        self.algorithm()
    }
}

/// Growth limit of TCP's buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcpBuffers {
    /// As far as Linux lets them unless it is configured (`net.ipv4.tcp_wmem` and `tcp_rmem`): 4 MiB
    /// to send and 6 MiB to receive; from 6.16 on a receiver has 32 MiB.
    Linux,
    /// To 256 MiB, which is more than any window here needs.
    #[default]
    Unlimited,
}

impl TcpBuffers {
    /// All, in the order in which they are listed.
    pub const ALL: &[Self] = &[Self::Linux, Self::Unlimited];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Unlimited => "unlimited",
        }
    }

    /// Most bytes of the send buffer and of the receive buffer.
    #[must_use]
    pub fn most(self) -> (u64, u64) {
        match self {
            Self::Linux => (4 << 20, 6 << 20),
            Self::Unlimited => (256 << 20, 256 << 20),
        }
    }

    /// Changes the most that the buffers of a connection grow to. Fixed ones stay as they are.
    pub fn apply(self, options: &mut tcp::Options) {
        let (send, receive) = self.most();
        for (buffer, most) in
            [(&mut options.send_buffer, send), (&mut options.receive_buffer, receive)]
        {
            if let tcp::Buffer::Auto { max, .. } = buffer {
                *max = most;
            }
        }
    }
}

/// What is sent after a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// One segment a round trip (RFC 6582).
    Newreno,
    /// By the scoreboard (RFC 6675).
    Sack,
    /// Proportional rate reduction (RFC 6937).
    Prr,
    /// One segment for every two that arrive.
    RateHalving,
}

impl Form<tcp::LossRecovery> for Recovery {
    fn of(value: &tcp::LossRecovery) -> Option<Self> {
        Some(match value {
            tcp::LossRecovery::NewReno => Self::Newreno,
            tcp::LossRecovery::Sack6675 => Self::Sack,
            tcp::LossRecovery::Prr => Self::Prr,
            tcp::LossRecovery::RateHalving => Self::RateHalving,
        })
    }

    fn value(&self) -> tcp::LossRecovery {
        match self {
            Self::Newreno => tcp::LossRecovery::NewReno,
            Self::Sack => tcp::LossRecovery::Sack6675,
            Self::Prr => tcp::LossRecovery::Prr,
            Self::RateHalving => tcp::LossRecovery::RateHalving,
        }
    }
}

/// What a window is worth after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// The initial window (RFC 5681).
    Restart,
    /// Half for each time-out that passed (RFC 2861).
    Decay,
}

impl Form<IdleRule> for Idle {
    fn of(value: &IdleRule) -> Option<Self> {
        Some(match value {
            IdleRule::Restart => Self::Restart,
            IdleRule::Decay => Self::Decay,
        })
    }

    fn value(&self) -> IdleRule {
        match self {
            Self::Restart => IdleRule::Restart,
            Self::Decay => IdleRule::Decay,
        }
    }
}

/// Segments, or what RFC 3390 says.
impl Form<tcp::InitialWindow> for Switch<u32> {
    fn of(value: &tcp::InitialWindow) -> Option<Self> {
        Some(match value {
            tcp::InitialWindow::Rfc3390 => Self::Off,
            tcp::InitialWindow::Segments(count) => Self::On(*count),
        })
    }

    fn value(&self) -> tcp::InitialWindow {
        match self {
            Self::Off => tcp::InitialWindow::Rfc3390,
            Self::On(count) => tcp::InitialWindow::Segments(*count),
        }
    }
}

/// A number of segments, or none: the delay alone counts.
impl Form<u32> for Switch<u32> {
    fn of(value: &u32) -> Option<Self> {
        Some(if *value == 0 { Self::Off } else { Self::On(*value) })
    }

    fn value(&self) -> u32 {
        self.on().unwrap_or(0)
    }
}

/// The least buffer: one with less than a few segments is of no use.
const BUFFER_MIN: u64 = 1000;

impl TcpSettings {
    /// Changes `options` to what is said here.
    ///
    /// # Errors
    ///
    /// When a value is out of its range.
    pub fn apply(&self, options: &mut tcp::Options) -> Result<(), SpecError> {
        let buffers = [
            ("tcp.send_buffer", self.send_buffer),
            ("tcp.send_buffer_initial", self.send_buffer_initial.and_then(Switch::on)),
            ("tcp.receive_buffer", self.receive_buffer),
            ("tcp.receive_buffer_initial", self.receive_buffer_initial.and_then(Switch::on)),
        ];
        for (key, given) in buffers {
            at_least(key, given, BUFFER_MIN)?;
        }
        self.apply_fields(options);
        if let Some(buffers) = self.buffers {
            buffers.apply(options);
        }
        let buffer = |before, size, initial| changed(before, size, initial);
        options.send_buffer =
            buffer(options.send_buffer, self.send_buffer, self.send_buffer_initial);
        options.receive_buffer =
            buffer(options.receive_buffer, self.receive_buffer, self.receive_buffer_initial);
        if let Some(ack) = &self.ack {
            if ack.every == Some(Switch::On(0)) {
                return Err(SpecError::invalid("tcp.ack.every is 0; it must be at least 1"));
            }
            ack.apply_fields(&mut options.acks);
        }
        if let Some(rto) = &self.rto {
            for (key, given) in [
                ("tcp.rto.initial", rto.initial),
                ("tcp.rto.min", rto.min),
                ("tcp.rto.max", rto.max),
            ] {
                super::not_often(key, given)?;
            }
            rto.apply_fields(&mut options.timeouts);
            let (min, max) = (Span(options.timeouts.min), Span(options.timeouts.max));
            if min > max {
                return Err(SpecError::invalid(format!(
                    "tcp.rto.min is {min} and tcp.rto.max {max}; the least must not be above the \
                     most: set both"
                )));
            }
        }
        match &self.keep_alive {
            None => {}
            Some(Switch::Off) => options.keep_alive = None,
            Some(Switch::On(said)) => options.keep_alive = Some(said.apply(options.keep_alive)?),
        }
        match &self.scps {
            None => {}
            Some(Switch::Off) => options.scps = None,
            Some(Switch::On(scps)) => options.scps = Some(scps.apply(options.scps)?),
        }
        if options.mss.is_some_and(|mss| mss < 64) {
            return Err(SpecError::invalid("tcp.mss is less than 64"));
        }
        if options.initial_window == tcp::InitialWindow::Segments(0) {
            return Err(SpecError::invalid("tcp.initial_window is 0; it must be at least 1"));
        }
        Ok(())
    }

    /// Limits the growth of the buffers, in place of sizes given before.
    pub fn limit_buffers(&mut self, buffers: TcpBuffers) {
        self.buffers = Some(buffers);
        self.send_buffer = None;
        self.send_buffer_initial = None;
        self.receive_buffer = None;
        self.receive_buffer_initial = None;
    }

    /// Most bytes of the send buffer and of the receive buffer, if either is given.
    #[must_use]
    pub fn most_buffers(&self) -> Option<(u64, u64)> {
        let given = self.send_buffer.is_some() || self.receive_buffer.is_some();
        if !given && self.buffers.is_none() {
            return None;
        }
        let (send, receive) = self.buffers.unwrap_or_default().most();
        let send = self.send_buffer.map_or(send, Size::bytes);
        Some((send, self.receive_buffer.map_or(receive, Size::bytes)))
    }

    pub(super) fn of(options: &tcp::Options) -> Self {
        let (send_buffer, send_buffer_initial) = told(options.send_buffer);
        let (receive_buffer, receive_buffer_initial) = told(options.receive_buffer);
        Self {
            send_buffer,
            send_buffer_initial,
            receive_buffer,
            receive_buffer_initial,
            ack: Some(Ack::of_fields(&options.acks)),
            rto: Some(Rto::of_fields(&options.timeouts)),
            keep_alive: Some(match &options.keep_alive {
                None => Switch::Off,
                Some(keep_alive) => Switch::On(KeepAlive::of_fields(keep_alive)),
            }),
            scps: Some(
                options
                    .scps
                    .as_ref()
                    .map_or(Switch::Off, |scps| Switch::On(ScpsSettings::of(scps))),
            ),
            ..Self::of_fields(options)
        }
    }
}

/// A buffer of which only a size is said does not grow.
fn changed(before: tcp::Buffer, size: Option<Size>, initial: Option<Switch<Size>>) -> tcp::Buffer {
    let max = size.map_or(before.max(), Size::bytes);
    match initial {
        Some(Switch::On(initial)) => tcp::Buffer::Auto { initial: initial.bytes(), max },
        Some(Switch::Off) => tcp::Buffer::Fixed(max),
        None if size.is_some() => tcp::Buffer::Fixed(max),
        None => before,
    }
}

fn told(buffer: tcp::Buffer) -> (Option<Size>, Option<Switch<Size>>) {
    match buffer {
        tcp::Buffer::Fixed(size) => (Some(Size(size)), Some(Switch::Off)),
        tcp::Buffer::Auto { initial, max } => (Some(Size(max)), Some(Switch::On(Size(initial)))),
    }
}
