//! The settings of an FTP node and of the TCP that it runs over (see [`ftp::Config`] and
//! [`tcp::Options`]).

use proto::tcp::cc::{Algorithm, Bic, Counting, Cubic, IdleRule, Vegas};
use proto::{ftp, programs, tcp};
use serde::{Deserialize, Serialize};

use super::at_least;
use super::form::{Form, Switch, table};
use super::scps::ScpsSettings;
use crate::ftp::FtpConfig;
use crate::quantity::{Size, Span};
use crate::text::SpecError;

/// What a user says about an FTP node; what is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FtpSettings {
    /// Who opens the data connection: `pasv`, `epsv` or `port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
    /// How long a client waits while nothing comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How long a server lets a control connection be silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Span>,
    /// How long a server waits for a data connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_timeout: Option<Span>,
    /// Whether a client goes on where a transfer broke off (SCPS-FP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_restart: Option<bool>,
    /// How often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u32>,
    /// How long it waits before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_wait: Option<Span>,
    /// What a program does that is modelled in place of FTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramSettings>,
    /// TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpSettings>,
}

/// What a user says about a program that is modelled; what is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProgramSettings {
    /// The window of an SSH channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Size>,
    /// How long a server waits for a login.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
    /// The mean time between two keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_interval: Option<Span>,
    /// Whether programs take time for themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<bool>,
}

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
        /// Segments that are sent before anything is acknowledged, or `off`: as many as RFC 3390
        /// says.
        initial_window: Switch<u32>,
        /// What the window is worth after a pause, or `off`: as much as before.
        idle: Switch<Idle>,
        /// Whether windows are spread over the round trip.
        pacing: bool,
    }
    also {
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

/// Who opens a data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Data {
    /// The client, where PASV's reply says.
    Pasv,
    /// The client, where EPSV's reply says.
    Epsv,
    /// The server, where PORT says.
    Port,
}

impl Form<ftp::DataConnection> for Data {
    fn of(value: &ftp::DataConnection) -> Option<Self> {
        Some(match value {
            ftp::DataConnection::Pasv => Self::Pasv,
            ftp::DataConnection::Epsv => Self::Epsv,
            ftp::DataConnection::Port => Self::Port,
        })
    }

    fn value(&self) -> ftp::DataConnection {
        match self {
            Self::Pasv => ftp::DataConnection::Pasv,
            Self::Epsv => ftp::DataConnection::Epsv,
            Self::Port => ftp::DataConnection::Port,
        }
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

/// The least window of a channel: two messages' worth.
const WINDOW_MIN: u64 = 64 << 10;

/// The least buffer: one with less than a few segments is of no use.
const BUFFER_MIN: u64 = 1000;

impl FtpSettings {
    /// Settings of TCP alone.
    #[must_use]
    pub fn of_tcp(tcp: TcpSettings) -> Self {
        Self { tcp: Some(tcp), ..Self::default() }
    }

    /// Changes `config` to what is said here.
    ///
    /// # Errors
    ///
    /// When a value is out of its range.
    pub fn apply(&self, config: &mut FtpConfig) -> Result<(), SpecError> {
        for (key, given) in
            [("timeout", self.timeout), ("idle", self.idle), ("data_timeout", self.data_timeout)]
        {
            super::not_often(key, given)?;
        }
        self.apply_program(config)?;
        let ftp = &mut config.ftp;
        if let Some(data) = &self.data {
            ftp.client.data = data.value();
        }
        for (to, given) in [
            (&mut ftp.client.timeout, self.timeout),
            (&mut ftp.server.idle, self.idle),
            (&mut ftp.server.data_timeout, self.data_timeout),
        ] {
            *to = given.map_or(*to, Span::duration);
        }
        self.apply_scps(ftp)?;
        self.tcp.as_ref().map_or(Ok(()), |tcp| tcp.apply(&mut config.streams.options))
    }

    fn apply_scps(&self, ftp: &mut ftp::Config) -> Result<(), SpecError> {
        super::not_often("restart_wait", self.restart_wait)?;
        let Some(scps) = &mut ftp.client.scps else {
            let said = self.auto_restart.is_some()
                || self.restarts.is_some()
                || self.restart_wait.is_some();
            let message = "auto_restart, restarts and restart_wait are for scps-fp";
            return if said { Err(SpecError::invalid(message)) } else { Ok(()) };
        };
        scps.auto_restart = self.auto_restart.unwrap_or(scps.auto_restart);
        scps.restarts = self.restarts.unwrap_or(scps.restarts);
        scps.restart_wait = self.restart_wait.map_or(scps.restart_wait, Span::duration);
        Ok(())
    }

    fn apply_program(&self, config: &mut FtpConfig) -> Result<(), SpecError> {
        let Some(program) = &mut config.program else {
            return match self.program {
                Some(_) => Err(SpecError::invalid("program is for scp, sftp, rsync and telnet")),
                None => Ok(()),
            };
        };
        let of_ftp = [
            ("data", self.data.is_some()),
            ("idle", self.idle.is_some()),
            ("data_timeout", self.data_timeout.is_some()),
        ];
        if let Some((key, _)) = of_ftp.iter().find(|(_, given)| *given) {
            return Err(SpecError::invalid(format!("{key} is for ftp")));
        }
        program.timeout = self.timeout.map_or(program.timeout, Span::duration);
        let Some(said) = &self.program else { return Ok(()) };
        super::not_often("program.grace", said.grace)?;
        super::not_often("program.key_interval", said.key_interval)?;
        at_least("program.window", said.window, WINDOW_MIN)?;
        if let Some(window) = said.window {
            program.window = u32::try_from(window.bytes()).map_err(|_| {
                SpecError::invalid(format!("program.window is {window}; it is at most 4 GiB"))
            })?;
        }
        program.grace = said.grace.map_or(program.grace, Span::duration);
        program.key_interval = said.key_interval.map_or(program.key_interval, Span::duration);
        match said.costs {
            Some(true) => program.costs = programs::Costs::default(),
            Some(false) => program.costs = programs::Costs::none(),
            None => {}
        }
        Ok(())
    }

    /// Everything that `config` says.
    #[must_use]
    pub fn of(config: &FtpConfig) -> Self {
        let ftp = &config.ftp;
        if let Some(program) = &config.program {
            return Self {
                timeout: Some(Span(program.timeout)),
                program: Some(ProgramSettings {
                    window: Some(Size(program.window.into())),
                    grace: Some(Span(program.grace)),
                    key_interval: Some(Span(program.key_interval)),
                    costs: Some(program.costs != programs::Costs::none()),
                }),
                tcp: Some(TcpSettings::of(&config.streams.options)),
                ..Self::default()
            };
        }
        let scps = ftp.client.scps.as_ref();
        Self {
            auto_restart: scps.map(|scps| scps.auto_restart),
            restarts: scps.map(|scps| scps.restarts),
            restart_wait: scps.map(|scps| Span(scps.restart_wait)),
            program: None,
            data: Data::of(&ftp.client.data),
            timeout: Some(Span(ftp.client.timeout)),
            idle: Some(Span(ftp.server.idle)),
            data_timeout: Some(Span(ftp.server.data_timeout)),
            tcp: Some(TcpSettings::of(&config.streams.options)),
        }
    }
}

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
        }
        match &self.scps {
            None => {}
            Some(Switch::Off) => options.scps = None,
            Some(Switch::On(scps)) => options.scps = Some(scps.apply(options.scps)?),
        }
        if options.mss.is_some_and(|mss| mss < 64) {
            return Err(SpecError::invalid("tcp.mss is less than 64"));
        }
        Ok(())
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
