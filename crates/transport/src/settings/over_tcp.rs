//! The settings of what runs over TCP: FTP (see [`ftp::Config`]), SCPS-FP and programs that are
//! modelled.

use proto::{ftp, programs, stack, tcp};
use serde::{Deserialize, Serialize};

use super::form::{Form, Switch};
use super::tcp::TcpSettings;
use super::{Changes, at_least};
use crate::over_tcp::OverTcpConfig;
use crate::quantity::{Size, Span};
use crate::text::SpecError;

/// Changes of the best-effort service of SCPS-TP.
pub type BetsSettings = Changes<tcp::scps::Bets>;

/// What a user says about a node over TCP; what is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OverTcpSettings {
    /// Who opens the data connection: `pasv`, `epsv` or `port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
    /// Whether data connections may lead to, and come from, other hosts than control connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub third_party: Option<bool>,
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
    /// Whether a client compares the CRC of what it sent with the server's (SCPS-FP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<bool>,
    /// Whether data connections go on without what does not come, and how long they try; or `off`
    /// (SCPS-FP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bets: Option<Switch<BetsSettings>>,
    /// What a program does that is modelled in place of FTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramSettings>,
    /// TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpSettings>,
    /// What of TCP is the host's, not a connection's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostSettings>,
}

/// What a user says about the TCP of a host; what is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSettings {
    /// The checks of RFC 5961 on resets, SYNs and acknowledgments within a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robust: Option<bool>,
    /// Connections that may wait to be established.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_open: Option<usize>,
    /// When connections are made of SYN cookies (RFC 4987 §3.6).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookies: Option<Cookies>,
    /// How long a closed connection is remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_wait: Option<Span>,
}

impl HostSettings {
    fn apply(&self, streams: &mut stack::Config) -> Result<(), SpecError> {
        if self.half_open == Some(0) {
            return Err(SpecError::invalid("host.half_open is 0; it must be at least 1"));
        }
        let backlog = &mut streams.backlog;
        backlog.half_open = self.half_open.unwrap_or(backlog.half_open);
        backlog.cookies = self.cookies.as_ref().map_or(backlog.cookies, Form::value);
        let tcp = &mut streams.tcp;
        tcp.robust = self.robust.unwrap_or(tcp.robust);
        tcp.time_wait = self.time_wait.map_or(tcp.time_wait, Span::duration);
        Ok(())
    }

    fn of(streams: &stack::Config) -> Self {
        Self {
            robust: Some(streams.tcp.robust),
            half_open: Some(streams.backlog.half_open),
            cookies: Cookies::of(&streams.backlog.cookies),
            time_wait: Some(Span(streams.tcp.time_wait)),
        }
    }
}

/// When connections are made of SYN cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cookies {
    /// Never: a SYN beyond `half_open` is dropped.
    Never,
    /// For a SYN beyond `half_open`.
    WhenFull,
    /// For each.
    Always,
}

impl Form<tcp::Cookies> for Cookies {
    fn of(value: &tcp::Cookies) -> Option<Self> {
        Some(match value {
            tcp::Cookies::Never => Self::Never,
            tcp::Cookies::WhenFull => Self::WhenFull,
            tcp::Cookies::Always => Self::Always,
        })
    }

    fn value(&self) -> tcp::Cookies {
        match self {
            Self::Never => tcp::Cookies::Never,
            Self::WhenFull => tcp::Cookies::WhenFull,
            Self::Always => tcp::Cookies::Always,
        }
    }
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

/// The least window of a channel: two messages' worth.
const WINDOW_MIN: u64 = 64 << 10;

impl OverTcpSettings {
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
    pub fn apply(&self, config: &mut OverTcpConfig) -> Result<(), SpecError> {
        for (key, given) in
            [("timeout", self.timeout), ("idle", self.idle), ("data_timeout", self.data_timeout)]
        {
            super::not_often(key, given)?;
        }
        self.apply_program(config)?;
        if let Some(host) = &self.host {
            host.apply(&mut config.streams)?;
        }
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
        if let Some(third_party) = self.third_party {
            (ftp.client.third_party, ftp.server.third_party) = (third_party, third_party);
        }
        self.apply_scps(ftp)?;
        if let Some(Switch::On(bets)) = &self.bets {
            let applied = bets.apply(&mut config.streams.best_effort);
            applied.map_err(|error| error.below("bets"))?;
        }
        self.tcp.as_ref().map_or(Ok(()), |tcp| tcp.apply_at("tcp", &mut config.streams.options))
    }

    fn apply_scps(&self, ftp: &mut ftp::Config) -> Result<(), SpecError> {
        super::not_often("restart_wait", self.restart_wait)?;
        let Some(scps) = &mut ftp.client.scps else {
            let said = [
                ("auto_restart", self.auto_restart.is_some()),
                ("restarts", self.restarts.is_some()),
                ("restart_wait", self.restart_wait.is_some()),
                ("verify", self.verify.is_some()),
                ("bets", self.bets.is_some()),
            ];
            return match said.iter().find(|(_, given)| *given) {
                Some((key, _)) => Err(SpecError::invalid(format!("{key} is for scps-fp"))),
                None => Ok(()),
            };
        };
        scps.auto_restart = self.auto_restart.unwrap_or(scps.auto_restart);
        scps.verify = self.verify.unwrap_or(scps.verify);
        scps.restarts = self.restarts.unwrap_or(scps.restarts);
        scps.restart_wait = self.restart_wait.map_or(scps.restart_wait, Span::duration);
        if let Some(bets) = &self.bets {
            scps.best_effort = matches!(bets, Switch::On(_));
        }
        Ok(())
    }

    fn apply_program(&self, config: &mut OverTcpConfig) -> Result<(), SpecError> {
        let Some(program) = &mut config.program else {
            return match self.program {
                Some(_) => Err(SpecError::invalid("program is for scp, sftp, rsync and telnet")),
                None => Ok(()),
            };
        };
        let of_ftp = [
            ("data", self.data.is_some()),
            ("third_party", self.third_party.is_some()),
            ("idle", self.idle.is_some()),
            ("data_timeout", self.data_timeout.is_some()),
            ("auto_restart", self.auto_restart.is_some()),
            ("restarts", self.restarts.is_some()),
            ("restart_wait", self.restart_wait.is_some()),
            ("verify", self.verify.is_some()),
            ("bets", self.bets.is_some()),
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
    pub fn of(config: &OverTcpConfig) -> Self {
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
                host: Some(HostSettings::of(&config.streams)),
                ..Self::default()
            };
        }
        let scps = ftp.client.scps.as_ref();
        Self {
            auto_restart: scps.map(|scps| scps.auto_restart),
            verify: scps.map(|scps| scps.verify),
            restarts: scps.map(|scps| scps.restarts),
            restart_wait: scps.map(|scps| Span(scps.restart_wait)),
            bets: scps.map(|scps| match scps.best_effort {
                true => Switch::On(BetsSettings::of(&config.streams.best_effort)),
                false => Switch::Off,
            }),
            program: None,
            third_party: Some(ftp.server.third_party),
            data: Data::of(&ftp.client.data),
            timeout: Some(Span(ftp.client.timeout)),
            idle: Some(Span(ftp.server.idle)),
            data_timeout: Some(Span(ftp.server.data_timeout)),
            tcp: Some(TcpSettings::of(&config.streams.options)),
            host: Some(HostSettings::of(&config.streams)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_reaches_the_stack_and_is_told_again() {
        let text = "[tcp]\nkeep_alive = { idle = \"10 s\", probes = 3 }\n[host]\nrobust = false\n\
                    half_open = 7\ncookies = \"always\"\ntime_wait = \"5 s\"\n";
        let settings: OverTcpSettings = toml::from_str(text).unwrap();
        let mut config = OverTcpConfig::of_profile(None).unwrap();
        settings.apply(&mut config).unwrap();
        let streams = &config.streams;
        let backlog = tcp::Backlog { half_open: 7, cookies: tcp::Cookies::Always };
        assert_eq!(streams.backlog, backlog);
        assert!(!streams.tcp.robust);
        assert_eq!(streams.tcp.time_wait.as_secs(), 5);
        let keep_alive = streams.options.keep_alive.unwrap();
        assert_eq!((keep_alive.idle.as_secs(), keep_alive.interval.as_secs()), (10, 75));
        assert_eq!(keep_alive.probes, 3);
        let mut again = OverTcpConfig::of_profile(None).unwrap();
        OverTcpSettings::of(&config).apply(&mut again).unwrap();
        assert_eq!(again.streams.options, streams.options);
        assert_eq!(again.streams.backlog, streams.backlog);
        let off: OverTcpSettings = toml::from_str("[tcp]\nkeep_alive = \"off\"\n").unwrap();
        off.apply(&mut again).unwrap();
        assert_eq!(again.streams.options.keep_alive, None);
    }
}
