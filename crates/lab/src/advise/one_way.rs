//! Coded transports without a return link: enough parity in advance, once or again and again.

use std::time::Duration;

use serde::Serialize;
use transport::protocol::Protocol;
use transport::quantity::Span;
use transport::settings::Settings;
use transport::text::SpecError;

use super::estimate::Facts;

/// Probability of delivery for which parity is sent, per round of a carousel.
const CONFIDENCE: f64 = 0.999;
/// Rounds of a carousel: a receiver that misses a whole one has another, and a part of a third.
const ROUNDS: f64 = 3.0;
/// Steps of the loss that a sender assumes: hundredths of a percent.
const LOSS_STEPS: f64 = 1e4;

/// Mode of a sender that receives no replies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OneWay {
    /// Probability of delivery that the parity is for.
    pub confidence: f64,
    /// Packet loss that it assumes.
    pub loss: f64,
    /// Time for which the file is sent again and again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carousel: Option<Span>,
}

impl OneWay {
    /// Returns the modes for a path; none if everything is lost.
    pub(super) fn modes(facts: &Facts) -> Vec<Self> {
        // Rounded up, but for the noise of the product.
        let steps = (facts.loss_there * LOSS_STEPS - 1e-6).ceil().max(1.0);
        let loss = steps / LOSS_STEPS;
        let Some(bound_s) = facts.bound_s.filter(|_| loss < 1.0) else { return Vec::new() };
        let once = Self { confidence: CONFIDENCE, loss, carousel: None };
        let rounds_s = (ROUNDS * (bound_s - facts.delay_s)).max(1.0);
        // Long times in whole minutes, which are easier to read.
        let step = if rounds_s > 120.0 { 60.0 } else { 1.0 };
        let rounds = Span(Duration::from_secs(((rounds_s / step).ceil() * step) as u64));
        vec![once, Self { carousel: Some(rounds), ..once }]
    }

    /// Settings of a sender in this mode.
    pub(super) fn settings(&self, protocol: &Protocol) -> Result<Settings, SpecError> {
        let Self { confidence, loss, carousel } = self;
        let carousel = carousel.map_or(String::new(), |time| format!("carousel = \"{time}\""));
        let text =
            format!("[sender]\nconfidence = \"{confidence}\"\nloss = \"{loss}\"\n{carousel}\n");
        Settings::parse(&text, "one way", &[], protocol.kind.adapter())
    }
}
