//! Error models of a link as a user writes them: a key each.

use engine::Rng;
use link::ErrorKind;
use serde::{Deserialize, Serialize};
use transport::quantity::{Probability, Window};
use transport::text::SpecError;

use super::window;

/// Declares the keys of all error models, each with the model that its value stands for.
macro_rules! models {
    ($($(#[$doc:meta])* $key:ident: $type:ty = $kind:expr;)*) => {
        keys! {
            /// Error models of one direction, evaluated in this order.
            pub struct Errors {
                $($(#[$doc])* $key: $type,)*
                /// Effect of an error on the packet that it strikes.
                on_error: OnError,
            }
        }

        impl Errors {
            /// The models that are given.
            fn kinds(&self) -> Vec<Result<ErrorKind, SpecError>> {
                let mut kinds = Vec::new();
                $(if let Some(value) = &self.$key {
                    let kind: fn(&$type) -> Result<ErrorKind, SpecError> = $kind;
                    kinds.push(kind(value));
                })*
                kinds
            }

            /// The models that hold for the way back as well: those without positions.
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
    /// Probability to lose a packet, whatever its length.
    per: Probability = |per| Ok(ErrorKind::PerPacket(per.value()));
    /// Bit error rate.
    ber: Probability = |ber| Ok(ErrorKind::BitErrorRate(ber.value()));
    /// Errors in bursts (Gilbert-Elliott).
    burst: Burst = |burst| Ok(burst.kind());
    /// Exactly these packets are lost, counted from 0.
    drop: Vec<u64> = |packets| Ok(ErrorKind::DropList(packets.clone()));
    /// Every packet sent within these windows is lost.
    loss_times: Vec<Window> = |times| Ok(ErrorKind::LossTimes(times.iter().map(window).collect()));
    /// A stored pattern of bit errors, laid over the bits round and round.
    error_vector: Vector = |vector| Ok(vector.kind());
    /// The fates of successive packets, as they were recorded.
    trace: Trace = Trace::kind;
}

impl Errors {
    /// The link's models.
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

    /// Whether a model names packets, bits or times.
    pub(crate) fn has_positional(&self) -> bool {
        self.kinds().iter().any(|kind| kind.as_ref().map_or(true, ErrorKind::is_positional))
    }

    /// Draws the error vector with `rng` if it is to be drawn.
    pub(crate) fn draw(&mut self, rng: impl FnOnce() -> Rng) -> Result<(), SpecError> {
        self.error_vector.as_mut().map_or(Ok(()), |vector| vector.draw(rng()))
    }

    /// A summary for people: the rates, and whether there are other models.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let per = self.per.map(|per| format!("packet errors {per}"));
        let ber = self.ber.map(|ber| format!("bit errors {ber}"));
        let others = Self { per: None, ber: None, ..self.clone() };
        let others = (!others.kinds().is_empty()).then(|| "other errors".to_owned());
        [per, ber, others].into_iter().flatten().collect()
    }
}

/// Errors in bursts: two states, left with the given probabilities after each packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// From the good to the bad state.
    pub to_bad: Probability,
    /// From the bad to the good state.
    pub to_good: Probability,
    /// Probability to lose a packet in the good state.
    #[serde(default)]
    pub good_per: Probability,
    /// Bit error rate in the good state.
    #[serde(default)]
    pub good_ber: Probability,
    /// Probability to lose a packet in the bad state.
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
    /// Its length in bits.
    pub bits: u64,
    /// The bits in error, counted from 0, ascending.
    #[serde(default)]
    pub errors: Vec<u64>,
    /// Number of errors to draw with the scenario's seed, in place of `errors`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<u64>,
}

/// Most errors that are drawn.
const DRAWN_MAX: u64 = 1_000_000;

impl Vector {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Vector(link::ErrorVector { period: self.bits, errors: self.errors.clone() })
    }

    /// Draws the errors that are to be drawn, anywhere; where in the pattern a run begins is as good
    /// as random then.
    fn draw(&mut self, mut rng: Rng) -> Result<(), SpecError> {
        let Some(count) = self.drawn.take() else { return Ok(()) };
        if !self.errors.is_empty() {
            let message = "error_vector: give `errors` or `drawn`, not both";
            return Err(SpecError::invalid(message));
        }
        // Half of the bits at most: more are drawn twice too often.
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

/// The fates of successive packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// One character a packet: `x` for one that is struck, `.` for one that is not. White space
    /// is left out.
    pub fates: String,
    /// Whether it begins again at its end; otherwise nothing is struck after it.
    #[serde(default)]
    pub repeat: bool,
}

/// Effect of an error on the packet that it strikes (see [`link::OnError`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// It is lost: the link layer has a checksum.
    #[default]
    Drop,
    /// It arrives damaged: the link layer has none.
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
