//! The settings of SCPS-TP (see [`scps::Scps`]).

use proto::tcp::scps;
use serde::de::{self, IntoDeserializer as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::form::{Form, Switch, table};
use crate::quantity::{Rate, Span};
use crate::text::SpecError;

table! {
    /// What a user says about SCPS-TP; what is left out stays as it is.
    ScpsSettings: scps::Scps {
        /// What losses are put down to.
        assume: Assume,
        /// How long word of corruption holds.
        dwell: Span,
        /// Whether connections stand still while the link is away.
        suspends: bool,
        /// The protocol of connections that this node opens.
        protocol: Protocol,
        /// Compressed headers.
        header_compression: bool,
        /// Ends of records that are remembered.
        records: usize,
    }
    also {
        /// The form of selective negative acknowledgments, or `off`.
        #[serde(skip_serializing_if = "Option::is_none")]
        snack: Option<Switch<Snack>>,
        /// How long a hole stands before it is told of.
        #[serde(skip_serializing_if = "Option::is_none")]
        snack_delay: Option<Span>,
        /// How often the first hole is told of before the next ones.
        #[serde(skip_serializing_if = "Option::is_none")]
        snack_repeats: Option<u32>,
        /// The rate of the route, `interface` for that of the link it begins with, or `off`.
        #[serde(skip_serializing_if = "Option::is_none")]
        rate: Option<Switch<RouteRate>>,
        /// Credit for that rate comes in steps of so long.
        #[serde(skip_serializing_if = "Option::is_none")]
        rate_tick: Option<Span>,
        /// The best-effort service, or `off`.
        #[serde(skip_serializing_if = "Option::is_none")]
        bets: Option<Switch<BetsSettings>>,
    }
}

table! {
    /// What a user says about the best-effort service (see [`scps::Bets`]).
    BetsSettings: scps::Bets {
        /// A receiver goes on without a hole after so long.
        receive_timeout: Span,
        /// A sender gives a segment up that it has sent so often.
        transmissions: u32,
        /// Holes that wait to be asked for.
        holes: usize,
    }
}

/// The protocol of connections that a node opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// 6.
    Tcp,
    /// 106.
    Scps,
}

impl Form<scps::Carrier> for Protocol {
    fn of(value: &scps::Carrier) -> Option<Self> {
        Some(match value {
            scps::Carrier::Tcp => Self::Tcp,
            scps::Carrier::Scps => Self::Scps,
        })
    }

    fn value(&self) -> scps::Carrier {
        match self {
            Self::Tcp => scps::Carrier::Tcp,
            Self::Scps => scps::Carrier::Scps,
        }
    }
}

/// What losses are put down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Assume {
    /// Queues that are full.
    Congestion,
    /// Damage.
    Corruption,
}

impl Form<scps::LossCause> for Assume {
    fn of(value: &scps::LossCause) -> Option<Self> {
        Some(match value {
            scps::LossCause::Congestion => Self::Congestion,
            scps::LossCause::Corruption => Self::Corruption,
        })
    }

    fn value(&self) -> scps::LossCause {
        match self {
            Self::Congestion => scps::LossCause::Congestion,
            Self::Corruption => scps::LossCause::Corruption,
        }
    }
}

/// The form of selective negative acknowledgments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Snack {
    /// One hole each.
    Short,
    /// One hole, and bits for what follows it.
    Bits,
}

impl Form<scps::SnackForm> for Snack {
    fn of(value: &scps::SnackForm) -> Option<Self> {
        Some(match value {
            scps::SnackForm::Short => Self::Short,
            scps::SnackForm::Bits => Self::Bits,
        })
    }

    fn value(&self) -> scps::SnackForm {
        match self {
            Self::Short => scps::SnackForm::Short,
            Self::Bits => scps::SnackForm::Bits,
        }
    }
}

/// The rate of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteRate {
    /// That of the link that the route begins with.
    Interface,
    /// This one, of IP packets.
    Of(Rate),
}

const INTERFACE: &str = "interface";

impl Serialize for RouteRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Interface => serializer.serialize_str(INTERFACE),
            Self::Of(rate) => rate.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for RouteRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == INTERFACE {
            return Ok(Self::Interface);
        }
        let text = text.as_str().into_deserializer();
        Rate::deserialize(text).map(Self::Of).map_err(|error: de::value::Error| {
            de::Error::custom(format!("{error}; or say {INTERFACE:?}, or \"off\""))
        })
    }
}

impl BetsSettings {
    /// Everything that is set.
    pub(super) fn of(bets: &scps::Bets) -> Self {
        Self::of_fields(bets)
    }

    /// Changes the service to what is said here under `key`.
    pub(super) fn apply(&self, key: &str, bets: &mut scps::Bets) -> Result<(), SpecError> {
        if self.transmissions == Some(0) {
            let text = format!("{key}.transmissions is 0; it must be at least 1");
            return Err(SpecError::invalid(text));
        }
        super::not_often(&format!("{key}.receive_timeout"), self.receive_timeout)?;
        self.apply_fields(bets);
        Ok(())
    }
}

impl ScpsSettings {
    /// Changes SCPS-TP, which is switched on if it was off, to what is said here.
    pub(super) fn apply(&self, before: Option<scps::Scps>) -> Result<scps::Scps, SpecError> {
        let mut scps = before.unwrap_or_default();
        self.apply_fields(&mut scps);
        match &self.bets {
            None => {}
            Some(Switch::Off) => scps.bets = None,
            Some(Switch::On(bets)) => {
                bets.apply("tcp.scps.bets", scps.bets.get_or_insert_default())?;
            }
        }
        self.apply_snack(&mut scps)?;
        self.apply_rate(&mut scps)?;
        Ok(scps)
    }

    fn apply_snack(&self, scps: &mut scps::Scps) -> Result<(), SpecError> {
        match self.snack {
            None => {}
            Some(Switch::Off) => scps.snack = None,
            Some(Switch::On(form)) => scps.snack.get_or_insert_default().form = form.value(),
        }
        for (key, given) in [
            ("snack_delay", self.snack_delay.is_some()),
            ("snack_repeats", self.snack_repeats.is_some()),
        ] {
            if given && scps.snack.is_none() {
                let text = format!("tcp.scps.{key} is given, but tcp.scps.snack is off");
                return Err(SpecError::invalid(text));
            }
        }
        if let Some(snack) = &mut scps.snack {
            snack.delay = self.snack_delay.map_or(snack.delay, Span::duration);
            snack.repeats = self.snack_repeats.unwrap_or(snack.repeats);
            if snack.repeats == 0 {
                return Err(SpecError::invalid(
                    "tcp.scps.snack_repeats is 0; it must be at least 1",
                ));
            }
        }
        Ok(())
    }

    fn apply_rate(&self, scps: &mut scps::Scps) -> Result<(), SpecError> {
        match self.rate {
            None => {}
            Some(Switch::Off) => scps.rate = None,
            Some(Switch::On(rate)) => {
                scps.rate.get_or_insert_default().bps = match rate {
                    RouteRate::Interface => None,
                    RouteRate::Of(Rate(0)) => {
                        return Err(SpecError::invalid("tcp.scps.rate is 0; \"off\" is no rate"));
                    }
                    RouteRate::Of(rate) => Some(rate.bps()),
                };
            }
        }
        match (self.rate_tick, &mut scps.rate) {
            (None, _) => {}
            (Some(tick), Some(rate)) => rate.tick = tick.duration(),
            (Some(_), None) => {
                let text = "tcp.scps.rate_tick is given, but tcp.scps.rate is off";
                return Err(SpecError::invalid(text));
            }
        }
        Ok(())
    }

    /// Everything that is set.
    pub(super) fn of(scps: &scps::Scps) -> Self {
        let snack = scps.snack;
        let rate = scps.rate.map(|rate| match rate.bps {
            None => RouteRate::Interface,
            Some(bps) => RouteRate::Of(Rate(bps)),
        });
        Self {
            snack: Some(
                snack.and_then(|snack| Snack::of(&snack.form)).map_or(Switch::Off, Switch::On),
            ),
            snack_delay: snack.map(|snack| Span(snack.delay)),
            snack_repeats: snack.map(|snack| snack.repeats),
            rate: Some(rate.map_or(Switch::Off, Switch::On)),
            rate_tick: scps.rate.map(|rate| Span(rate.tick)),
            bets: Some(
                scps.bets
                    .as_ref()
                    .map_or(Switch::Off, |bets| Switch::On(BetsSettings::of_fields(bets))),
            ),
            ..Self::of_fields(scps)
        }
    }
}
