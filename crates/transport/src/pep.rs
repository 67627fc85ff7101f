//! Gateways that split TCP connections (see [`pep`]), as users configure them.

use std::time::Duration;

use engine::Receive;
use session::settings::form::{self, Leaf};
use session::settings::{Base, Kind, Settings, Value, Visited, Visitor};
use session::visit;

use crate::adapter::over_tcp::config::OverTcpConfig;
use crate::quantity::Size;
use crate::settings::Changes;
use crate::settings::tcp::TcpBuffers;
use crate::text::{self, SpecError};

session::settings! {
    /// Configuration of a gateway.
    #[derive(Clone, Debug)]
    pub struct PepConfig {
        /// The proxy.
        pub proxy: pep::Config as Inline = pep::Config::default(),
        /// Whether clients are accepted before their servers have accepted.
        pub early_accept: bool as Flag = true,
        /// Connections on the satellite's side.
        pub wan: Wan as Table = Wan::default(),
        /// Connections on the other side.
        pub lan: Connections as Table = Connections::default(),
    }
}

/// Connections on the satellite's side.
#[derive(Clone, Debug, Default)]
pub struct Wan {
    /// Neighbour on the satellite's side.
    pub towards: Option<String>,
    /// The connections.
    pub connections: Connections,
}

impl Settings for Wan {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        self.connections.visit(visitor)?;
        visit! { visitor;
            /// Neighbour on the satellite's side.
            "towards": self.towards as Maybe<Text>,
            /// Shared rate of IP packets of all connections over the link; for profiles with a
            /// rate.
            "rate": self.connections as SharedRate,
        }
        Ok(())
    }
}

/// Connections on one side.
#[derive(Clone, Debug)]
pub struct Connections {
    /// A profile of TCP.
    pub profile: String,
    /// Size of both the send buffer and the receive buffer, if one value is given.
    pub buffer: Option<u64>,
    /// Shared rate, in bit/s.
    pub rate_bps: Option<u64>,
    /// TCP of each.
    pub options: tcp::Options,
}

impl Default for Connections {
    fn default() -> Self {
        let options = OverTcpConfig::of_host(None).unwrap_or_default().streams.options;
        Self { profile: "default".to_owned(), buffer: None, rate_bps: None, options }
    }
}

/// The profile is first, and its changes are last.
impl Settings for Connections {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        visit! { visitor;
            /// Profile of TCP.
            "profile": (*self) as Profile,
            /// Bytes of the send buffer and of the receive buffer.
            "buffer": (*self) as BothBuffers [Least(BUFFER_MIN)],
            /// Settings of TCP that differ from the profile.
            "tcp": self.options as Table,
        }
        Ok(())
    }
}

/// Minimum bytes of a buffer of a connection.
const BUFFER_MIN: u64 = Receive::PIECE_MAX as u64 / 8;

/// Form of connections by a profile of TCP.
struct Profile;

impl Leaf<Connections> for Profile {
    fn kind() -> Kind {
        Base::Text.into()
    }

    fn get(connections: &Connections) -> Option<Value> {
        form::Text::get(&connections.profile)
    }

    fn set(connections: &mut Connections, value: Value) -> Result<(), String> {
        form::Text::set(&mut connections.profile, value)?;
        let name = connections.profile.as_str();
        let config = OverTcpConfig::of_host(Some(name)).ok_or_else(|| {
            let known = OverTcpConfig::profiles();
            let near = text::did_you_mean(name, known.iter().copied());
            let known = known.join(", ");
            format!(": TCP has no profile {:?}{near} (profiles: {known})", wire::excerpt(name))
        })?;
        connections.options = config.streams.options;
        Ok(())
    }
}

/// Form of connections by the size of both buffers.
struct BothBuffers;

impl Leaf<Connections> for BothBuffers {
    fn kind() -> Kind {
        Base::Size.into()
    }

    fn get(connections: &Connections) -> Option<Value> {
        connections.buffer.map(Value::Size)
    }

    fn set(connections: &mut Connections, value: Value) -> Result<(), String> {
        form::Maybe::<form::Size>::set(&mut connections.buffer, value)?;
        if let Some(size) = connections.buffer {
            let buffer = tcp::Buffer::Fixed(size);
            let options = &mut connections.options;
            (options.send_buffer, options.receive_buffer) = (buffer, buffer);
        }
        Ok(())
    }
}

/// Form of connections by their shared rate.
struct SharedRate;

impl Leaf<Connections> for SharedRate {
    fn kind() -> Kind {
        Base::Rate.into()
    }

    fn get(connections: &Connections) -> Option<Value> {
        connections.rate_bps.map(Value::Rate)
    }

    fn set(connections: &mut Connections, value: Value) -> Result<(), String> {
        form::Maybe::<form::Rate>::set(&mut connections.rate_bps, value)?;
        let control = connections.options.scps.as_mut().and_then(|scps| scps.rate.as_mut());
        let control = control.ok_or(": the profile has no rate; scps-rate has one")?;
        control.bps = connections.rate_bps;
        Ok(())
    }
}

/// Changes of a gateway that splits TCP connections.
pub type PepSettings = Changes<PepConfig>;

impl PepSettings {
    /// Limits the growth of the buffers of both sides, in place of sizes given before.
    pub fn limit_tcp_buffers(&mut self, buffers: TcpBuffers) {
        for side in ["wan", "lan"] {
            self.remove(&[side, "buffer"]);
            self.limit_buffers(&[side, "tcp"], buffers);
        }
    }

    /// All settings, with the neighbour on the satellite's side, and with a buffer of `buffer`
    /// there unless another one is set.
    ///
    /// # Errors
    ///
    /// There is no such profile, or a value is out of its range.
    pub fn written_out(&self, towards: &str, buffer: Option<Size>) -> Result<Self, SpecError> {
        let mut all = self.clone().with(&["wan", "towards"], towards);
        if let Some(buffer) = buffer.filter(|_| all.get(&["wan", "buffer"]).is_none()) {
            all.set(&["wan", "buffer"], buffer.to_string());
        }
        let mut config = PepConfig::default();
        all.apply(&mut config)?;
        Ok(Self::from_config(&config))
    }
}

/// Buffer for a link of this rate and round trip: twice its capacity, so that a loss repaired in
/// the second round trip does not stop the sender, and at least 256 kB.
#[must_use]
pub fn buffer_for(rate_bps: u64, round_trip: Duration) -> Size {
    // 8 Mbit/s and 600 ms: 2 * 8e6 / 8 * 0.6 = 1,200,000 bytes.
    let bytes = u128::from(rate_bps) * round_trip.as_nanos() * 2 / 8_000_000_000;
    Size(u64::try_from(bytes).unwrap_or(u64::MAX).max(256_000))
}
