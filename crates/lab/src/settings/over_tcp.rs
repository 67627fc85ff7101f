//! The settings of what runs over TCP: FTP (see [`ftp::Config`]), SCPS-FP and programs that are
//! modelled.

use proto::{ftp, programs};
use serde::{Deserialize, Serialize};

use super::at_least;
use super::form::{Form, Switch};
use super::scps::BetsSettings;
use super::tcp::TcpSettings;
use crate::over_tcp::OverTcpConfig;
use crate::quantity::{Size, Span};
use crate::text::SpecError;

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
            bets.apply("bets", &mut config.streams.best_effort)?;
        }
        self.tcp.as_ref().map_or(Ok(()), |tcp| tcp.apply(&mut config.streams.options))
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
        }
    }
}
