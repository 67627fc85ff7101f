//! The settings of a gateway that splits TCP connections (see [`proto::pep`]).

use std::time::Duration;

use proto::tcp;
use serde::{Deserialize, Serialize};

use super::at_least;
use super::form::Switch;
use super::tcp::{TcpBuffers, TcpSettings};

use crate::over_tcp::OverTcpConfig;
use crate::quantity::{Rate, Size, Span};
use crate::text::{self, SpecError};

/// What a user says about a gateway; what is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PepSettings {
    /// Whether clients are answered before their servers have answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_accept: Option<bool>,
    /// What is held for each direction of a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Size>,
    /// What is held for all connections together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_total: Option<Size>,
    /// Connections at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<usize>,
    /// How long a server may take to accept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_timeout: Option<Span>,
    /// Silence after which a connection is reset, or `off`: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Switch<Span>>,
    /// Connections on the satellite's side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wan: Option<WanSettings>,
    /// Connections on the other side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lan: Option<SideSettings>,
}

/// What a user says about the connections on the satellite's side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WanSettings {
    /// The neighbour to which the satellite's side leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub towards: Option<String>,
    /// A profile of TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The rate that all connections over the link share, of IP packets; for profiles that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The size of the send buffer and of the receive buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Size>,
    /// What differs from the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpSettings>,
}

/// What a user says about the connections on the side of the hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SideSettings {
    /// A profile of TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The size of the send buffer and of the receive buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Size>,
    /// What differs from the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpSettings>,
}

/// A gateway holds one piece of a stream for each direction at least.
const PIECE: u64 = engine::Receive::PIECE_MAX as u64;

impl PepSettings {
    /// Changes `config` to what is said here of the proxy.
    ///
    /// # Errors
    ///
    /// When a value is out of its range.
    pub fn apply(&self, config: &mut proto::pep::Config) -> Result<(), SpecError> {
        at_least("buffer", self.buffer, PIECE)?;
        super::some("connections", self.connections)?;
        super::not_often("connect_timeout", self.connect_timeout)?;
        super::not_often("idle", self.idle.and_then(Switch::on))?;
        let octets = |size: Size| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
        config.buffer = self.buffer.map_or(config.buffer, octets);
        config.buffer_total = self.buffer_total.map_or(config.buffer_total, octets);
        config.connections = self.connections.unwrap_or(config.connections);
        config.connect_timeout =
            self.connect_timeout.map_or(config.connect_timeout, Span::duration);
        if let Some(idle) = self.idle {
            config.idle = idle.on().map(Span::duration);
        }
        Ok(())
    }

    /// Limits the growth of the buffers of both sides, in place of what the settings said.
    pub fn limit_tcp_buffers(&mut self, buffers: TcpBuffers) {
        let wan = self.wan.get_or_insert_default();
        let lan = self.lan.get_or_insert_default();
        for (buffer, tcp) in [(&mut wan.buffer, &mut wan.tcp), (&mut lan.buffer, &mut lan.tcp)] {
            *buffer = None;
            tcp.get_or_insert_default().limit_buffers(buffers);
        }
    }

    /// What is said of either side with all that is left out: the satellite's side first.
    ///
    /// # Errors
    ///
    /// When there is no such profile, or a value is out of its range.
    pub fn sides(&self) -> Result<[tcp::Options; 2], SpecError> {
        let wan = self.wan.clone().unwrap_or_default();
        let rate = wan.rate;
        let wan = SideSettings { profile: wan.profile, buffer: wan.buffer, tcp: wan.tcp };
        let mut wan = wan.options("wan")?;
        if let Some(rate) = rate {
            let control = wan.scps.as_mut().and_then(|scps| scps.rate.as_mut());
            let control = control.ok_or_else(|| {
                SpecError::invalid("wan.rate: the profile has no rate; scps-rate has one")
            })?;
            control.bps = Some(rate.bps());
        }
        let lan = self.lan.clone().unwrap_or_default();
        Ok([wan, lan.options("lan")?])
    }

    /// All settings written out, with a buffer on the satellite's side of `buffer` unless something
    /// else is said.
    ///
    /// # Errors
    ///
    /// When there is no such profile, or a value is out of its range.
    pub fn written_out(&self, towards: &str, buffer: Option<Size>) -> Result<Self, SpecError> {
        let mut config = proto::pep::Config::default();
        self.apply(&mut config)?;
        let given = self.wan.clone().unwrap_or_default();
        let wan = WanSettings {
            towards: Some(towards.to_owned()),
            buffer: given.buffer.or(buffer),
            ..given
        };
        let mut all = Self { wan: Some(wan), ..self.clone() };
        let [wan_options, lan_options] = all.sides()?;
        let plain = || Some("default".to_owned());
        let wan = all.wan.get_or_insert_default();
        wan.profile = wan.profile.take().or_else(plain);
        wan.tcp = Some(TcpSettings::of(&wan_options));
        let lan = all.lan.get_or_insert_default();
        lan.profile = lan.profile.take().or_else(plain);
        lan.tcp = Some(TcpSettings::of(&lan_options));
        all.early_accept.get_or_insert(true);
        all.buffer.get_or_insert(Size(config.buffer as u64));
        all.buffer_total.get_or_insert(Size(config.buffer_total as u64));
        all.connections.get_or_insert(config.connections);
        all.connect_timeout.get_or_insert(Span(config.connect_timeout));
        all.idle.get_or_insert(config.idle.map_or(Switch::Off, |idle| Switch::On(Span(idle))));
        Ok(all)
    }
}

impl SideSettings {
    /// The settings of a connection.
    fn options(&self, side: &str) -> Result<tcp::Options, SpecError> {
        let of_side = |error: SpecError| SpecError::invalid(format!("{side}.{error}"));
        at_least("buffer", self.buffer, PIECE / 8).map_err(of_side)?;
        let name = self.profile.as_deref();
        let mut options = OverTcpConfig::of_host(name)
            .ok_or_else(|| {
                let (name, known) = (name.unwrap_or_default(), OverTcpConfig::profiles());
                let near = text::did_you_mean(name, known.iter().copied());
                let known = known.join(", ");
                of_side(SpecError::invalid(format!(
                    "profile: TCP has no profile {name:?}{near} (profiles: {known})"
                )))
            })?
            .streams
            .options;
        if let Some(size) = self.buffer {
            let buffer = tcp::Buffer::Fixed(size.bytes());
            (options.send_buffer, options.receive_buffer) = (buffer, buffer);
        }
        if let Some(tcp) = &self.tcp {
            tcp.apply(&mut options).map_err(|error| of_side(error.below("tcp")))?;
        }
        Ok(options)
    }
}

/// The buffer for a link of this rate and round trip: twice what it holds, so that a loss that is
/// repaired in the second round trip does not stop the sender, and 256 kB at least.
pub fn buffer_for(rate_bps: u64, round_trip: Duration) -> Size {
    // 8 Mbit/s and 600 ms: 2 * 8e6 / 8 * 0.6 = 1,200,000 octets.
    let octets = u128::from(rate_bps) * round_trip.as_nanos() * 2 / 8_000_000_000;
    Size(u64::try_from(octets).unwrap_or(u64::MAX).max(256_000))
}
