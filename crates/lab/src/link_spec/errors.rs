//! Error models of a link, one key each.

use std::fmt;

use engine::Rng;
use link::ErrorKind;
use serde::{Deserialize, Serialize};
use transport::quantity::{Probability, Window};
use transport::text::SpecError;

use super::window;

/// Declares the keys of all error models, each with its conversion.
macro_rules! models {
    ($($(#[$doc:meta])* $key:ident: $type:ty = $kind:expr;)*) => {
        keys! {
            /// Error models of one direction, evaluated in this order.
            pub struct Errors {
                $($(#[$doc])* $key: $type,)*
                /// Effect of an error on its packet.
                on_error: OnError,
            }
        }

        impl Errors {
            /// Returns the configured models.
            fn kinds(&self) -> Vec<Result<ErrorKind, SpecError>> {
                let mut kinds = Vec::new();
                $(if let Some(value) = &self.$key {
                    let kind: fn(&$type) -> Result<ErrorKind, SpecError> = $kind;
                    kinds.push(kind(value));
                })*
                kinds
            }

            /// Returns the models that also apply to the return path: those without positions.
            pub(super) fn without_positional(&self) -> Self {
                let mut kept = Self { on_error: self.on_error, ..Self::default() };
                $(if let Some(value) = &self.$key {
                    let only = Self { $key: Some(value.clone()), ..Self::default() };
                    if !only.has_positional() {
                        kept.$key = only.$key;
                    }
                })*
                kept
            }
        }
    };
}

models! {
    /// Probability of losing a packet of any length.
    per: Probability = |per| Ok(ErrorKind::PerPacket(per.value()));
    /// Bit error rate.
    ber: Probability = |ber| Ok(ErrorKind::BitErrorRate(ber.value()));
    /// Errors in bursts (Gilbert-Elliott).
    burst: Burst = |burst| Ok(burst.kind());
    /// Lost packets by number, from 0.
    drop: Vec<u64> = |packets| Ok(ErrorKind::DropList(packets.clone()));
    /// Time windows in which every packet sent is lost.
    loss_times: Vec<Window> = |times| Ok(ErrorKind::LossTimes(times.iter().map(window).collect()));
    /// A stored pattern of bit errors, applied to the bits cyclically.
    error_vector: Vector = |vector| Ok(vector.kind());
    /// Recorded fates of successive packets.
    trace: Trace = Trace::kind;
}

impl Errors {
    /// Returns the link's models.
    ///
    /// # Errors
    ///
    /// [`SpecError::Invalid`] for a trace with an unknown fate.
    pub(super) fn models(&self) -> Result<Vec<link::ErrorModel>, SpecError> {
        let on_error = match self.on_error.unwrap_or_default() {
            OnError::Drop => link::OnError::Drop,
            OnError::Damage => link::OnError::Damage,
        };
        let mut models = Vec::new();
        for kind in self.kinds() {
            let kind = kind?;
            if !kind.is_idle() {
                models.push(link::ErrorModel { kind, on_error });
            }
        }
        Ok(models)
    }

    /// Whether a model has positions of packets, bits or times.
    pub(crate) fn has_positional(&self) -> bool {
        self.kinds().iter().any(|kind| kind.as_ref().map_or(true, ErrorKind::is_positional))
    }

    /// Draws the error vector with `rng` if it is random.
    pub(crate) fn draw(&mut self, rng: impl FnOnce() -> Rng) -> Result<(), SpecError> {
        self.error_vector.as_mut().map_or(Ok(()), |vector| vector.draw(rng()))
    }

    /// Returns a summary for users: the values of models that have an option, and the keys of the
    /// others.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let Self { per, ber, burst, drop, loss_times, error_vector, trace, on_error } = self;
        let others = [
            ("drop", drop.is_some()),
            ("loss_times", loss_times.is_some()),
            ("error_vector", error_vector.is_some()),
            ("trace", trace.is_some()),
        ];
        let others = others.iter().filter(|(_, is_given)| *is_given);
        let damages = *on_error == Some(OnError::Damage) && !self.kinds().is_empty();
        let mut parts: Vec<String> = Vec::new();
        parts.extend(per.map(|per| format!("packet errors {per}")));
        parts.extend(ber.map(|ber| format!("bit errors {ber}")));
        parts.extend(burst.map(|burst| format!("burst {burst}")));
        parts.extend(others.map(|(key, _)| format!("errors by `{key}`")));
        parts.extend(damages.then(|| "errors damage packets".to_owned()));
        parts
    }
}

/// Errors in bursts: two states, left with the given probabilities after each packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Probability of changing from the good to the bad state.
    pub to_bad: Probability,
    /// Probability of changing from the bad to the good state.
    pub to_good: Probability,
    /// Probability of losing a packet in the good state.
    #[serde(default)]
    pub good_per: Probability,
    /// Bit error rate in the good state.
    #[serde(default)]
    pub good_ber: Probability,
    /// Probability of losing a packet in the bad state.
    #[serde(default)]
    pub bad_per: Probability,
    /// Bit error rate in the bad state.
    #[serde(default)]
    pub bad_ber: Probability,
}

/// A stored pattern of bit errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vector {
    /// Length in bits.
    pub bits: u64,
    /// Positions of bit errors, from 0, ascending.
    #[serde(default)]
    pub errors: Vec<u64>,
    /// Number of errors to draw with the scenario's seed, in place of `errors`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<u64>,
}

/// Maximum number of drawn errors.
const DRAWN_MAX: u64 = 1_000_000;

impl Vector {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Vector(link::ErrorVector { period: self.bits, errors: self.errors.clone() })
    }

    /// Draws the errors at random positions, which also makes the start of the pattern random.
    fn draw(&mut self, mut rng: Rng) -> Result<(), SpecError> {
        let Some(count) = self.drawn.take() else { return Ok(()) };
        if !self.errors.is_empty() {
            let message = "error_vector: give `errors` or `drawn`, not both";
            return Err(SpecError::invalid(message));
        }
        // At most half of the bits: more would be drawn twice too often.
        let most = DRAWN_MAX.min(self.bits / 2);
        if count > most {
            let message = format!("error_vector.drawn: {count}; at most {most} here");
            return Err(SpecError::invalid(message));
        }
        let mut bits = std::collections::BTreeSet::new();
        while (bits.len() as u64) < count {
            bits.insert(rng.below(self.bits));
        }
        self.errors = bits.into_iter().collect();
        Ok(())
    }
}

/// Recorded fates of successive packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// One character per packet: `x` for an error, `.` for none. White space is ignored.
    pub fates: String,
    /// Whether it restarts at its end; otherwise no further packet has an error.
    #[serde(default)]
    pub repeat: bool,
}

/// Effect of an error on its packet (see [`link::OnError`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// The packet is lost: the link layer has a checksum.
    #[default]
    Drop,
    /// The packet arrives damaged: the link layer has no checksum.
    Damage,
}

impl Trace {
    fn kind(&self) -> Result<ErrorKind, SpecError> {
        let fate = |fate: char| match fate {
            'x' => Ok(true),
            '.' => Ok(false),
            other => Err(SpecError::invalid(format!(
                "link: {other:?} in `trace`; a fate is `x` (struck) or `.`"
            ))),
        };
        let fates = self.fates.chars().filter(|fate| !fate.is_whitespace());
        let struck = fates.map(fate).collect::<Result<_, _>>()?;
        Ok(ErrorKind::Trace { struck, repeat: self.repeat })
    }
}

impl fmt::Display for Burst {
    /// The form of the option, and the rates that it cannot give.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to_bad, to_good, good_per, good_ber, bad_per, bad_ber } = self;
        write!(f, "{to_bad}+{to_good}")?;
        if bad_per.value() < 1.0 {
            write!(f, "+{bad_per}")?;
        }
        let more = [("good_per", good_per), ("good_ber", good_ber), ("bad_ber", bad_ber)];
        more.iter()
            .filter(|(_, rate)| rate.value() > 0.0)
            .try_for_each(|(key, rate)| write!(f, " {key} {rate}"))
    }
}

impl Burst {
    fn kind(self) -> ErrorKind {
        let state = |loss: Probability, ber: Probability| link::StateErrors {
            loss: loss.value(),
            ber: ber.value(),
        };
        ErrorKind::GilbertElliott {
            p_gb: self.to_bad.value(),
            p_bg: self.to_good.value(),
            good: state(self.good_per, self.good_ber),
            bad: state(self.bad_per, self.bad_ber),
        }
    }
}
