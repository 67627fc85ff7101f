//! The bound of any path: in closed form where that is exact, else by sending a genie's packets
//! through the link model.
//!
//! The genie has no header of its own above IPv4 and UDP, learns of each loss at once and uses the
//! best packet size. Relays repeat what is lost after them.

use std::time::Duration;

use engine::{Rng, Time};
use link::{Delay, ErrorKind, Fate, Framing, Link, OnError, Outages, Queue, Rate, Release};

use crate::link_spec::LinkSpec;
use crate::text::SpecError;
use crate::theory::{Bound, Channel, IP_UDP_BYTES, Loss};

/// One hop as the bound sees it.
#[derive(Clone, Debug)]
pub struct Hop {
    /// The link's name, from which its randomness is derived.
    pub name: String,
    /// The link.
    pub config: link::Config,
    /// Largest UDP payload.
    pub payload_max: u64,
}

impl Hop {
    /// The hop `spec` describes.
    ///
    /// # Errors
    ///
    /// When `spec` contradicts itself.
    pub fn new(name: impl Into<String>, spec: &LinkSpec) -> Result<Self, SpecError> {
        Ok(Self { name: name.into(), config: spec.config()?, payload_max: spec.payload_max() })
    }

    /// The hop as a channel with a closed form; `None` if it has none.
    #[must_use]
    pub fn channel(&self) -> Option<Channel> {
        let config = &self.config;
        let rate_bps = match config.rate {
            Rate::Infinite => f64::INFINITY,
            Rate::Constant(bps) => bps as f64,
            Rate::Steps(_) => return None,
        };
        let Delay::Constant(delay) = config.delay else { return None };
        if config.shaper.is_some() || config.outages != Outages::Never {
            return None;
        }
        Some(Channel {
            rate_bps,
            delay: delay.as_secs_f64(),
            framing: config.framing,
            per_packet: config.per_packet.as_secs_f64(),
            first_bit: config.release == Release::FirstBit,
            loss: self.loss()?,
        })
    }

    /// The losses, if they are independent of each other.
    fn loss(&self) -> Option<Loss> {
        let mut loss = Loss::default();
        for model in &self.config.errors {
            let frame = match model.on_error {
                OnError::Drop => errors_reach(self.config.framing),
                OnError::Damage => 0,
            };
            match model.kind {
                ErrorKind::PerPacket(p) => loss.per = 1.0 - (1.0 - loss.per) * (1.0 - p),
                ErrorKind::BitErrorRate(b) if loss.ber == 0.0 => {
                    loss.ber = b;
                    loss.overhead = IP_UDP_BYTES + frame;
                }
                ErrorKind::BitErrorRate(_)
                | ErrorKind::Vector(_)
                | ErrorKind::GilbertElliott { .. }
                | ErrorKind::DropList(_)
                | ErrorKind::Trace { .. }
                | ErrorKind::LossTimes(_) => return None,
            }
        }
        Some(loss)
    }

    /// Whether smaller packets are lost less often.
    fn length_matters(&self) -> bool {
        self.config.errors.iter().any(|model| match &model.kind {
            ErrorKind::BitErrorRate(_) | ErrorKind::Vector(_) => true,
            ErrorKind::GilbertElliott { good, bad, .. } => good.ber > 0.0 || bad.ber > 0.0,
            ErrorKind::PerPacket(_)
            | ErrorKind::DropList(_)
            | ErrorKind::Trace { .. }
            | ErrorKind::LossTimes(_) => false,
        })
    }
}

/// Bytes of a frame around the packet that an error can strike: not preamble and gap.
fn errors_reach(framing: Framing) -> u64 {
    let idle = match framing {
        Framing::Ethernet { preamble, ifg, .. } => u64::from(preamble) * 8 + u64::from(ifg) * 12,
        Framing::Raw | Framing::Ppp { .. } | Framing::Hdlc { .. } | Framing::Custom(_) => 0,
    };
    framing.overhead() as u64 - idle
}

/// The least time in which `file` bytes can cross `hops`, beginning at `start`; the seed fixes the
/// errors where the genie is simulated. Infinite if the file never arrives.
#[must_use]
pub fn bound(hops: &[Hop], file: u64, start: Time, seed: u64) -> Bound {
    let payload_max = hops.iter().map(|hop| hop.payload_max).min().unwrap_or(u64::MAX).max(1);
    if let [hop] = hops
        && let Some(channel) = hop.channel()
    {
        return channel.bound(file, payload_max);
    }
    let length_matters = hops.iter().any(Hop::length_matters);
    payloads(payload_max, length_matters)
        .map(|payload| simulate(hops, file, payload, start, seed))
        .min_by(|a, b| a.seconds.total_cmp(&b.seconds))
        .expect("the largest payload is among those tried")
}

/// The payloads a simulated genie tries: the largest and, where length matters, ever smaller ones.
fn payloads(payload_max: u64, length_matters: bool) -> impl Iterator<Item = u64> {
    let count = if length_matters { 16 } else { 1 };
    (0..count)
        .map(move |step| payload_max * 4_u64.pow(15 - step) / 5_u64.pow(15 - step).max(1))
        .map(move |payload| if length_matters { payload } else { payload_max })
        .filter(|payload| *payload > 0)
}

fn simulate(hops: &[Hop], file: u64, payload: u64, start: Time, seed: u64) -> Bound {
    let packets = file.div_ceil(payload).max(1);
    // Equal shares, so that the last packet is no longer than it need be.
    let len = usize::try_from(file.div_ceil(packets) + IP_UDP_BYTES).unwrap_or(usize::MAX);
    let mut at = vec![start; usize::try_from(packets).unwrap_or(usize::MAX)];
    for hop in hops {
        match cross(hop, &at, len, seed) {
            Some(arrivals) => at = arrivals,
            None => return Bound { seconds: f64::INFINITY, payload, packets },
        }
    }
    let end = at.last().copied().unwrap_or(start);
    Bound { seconds: end.since(start).as_secs_f64(), payload, packets }
}

/// When each of the packets that are at the near end at the moments `supply` reaches the far end,
/// the sender learning of each loss at once. `None` if the link stops carrying anything.
fn cross(hop: &Hop, supply: &[Time], len: usize, seed: u64) -> Option<Vec<Time>> {
    // The delay is added afterwards, so that the link tells of a loss when it happens.
    let config = link::Config {
        delay: Delay::Constant(Duration::ZERO),
        queue: Queue { packets: None, bytes: None },
        ..hop.config.clone()
    };
    let mut link = Link::new(config, Rng::new(seed, &hop.name)).ok()?;
    let mut arrivals: Vec<Time> = Vec::with_capacity(supply.len());
    let (mut now, mut inside, mut lost_in_a_row) = (Time::ZERO, 0_usize, 0_u32);
    while arrivals.len() < supply.len() {
        // Two in the link keep the line busy; one that is lost is pushed again.
        while inside < 2 && arrivals.len() + inside < supply.len() {
            let at = supply[arrivals.len() + inside].max(now);
            if inside > 0 && at > now {
                break;
            }
            now = at;
            match link.push(now, len, ()) {
                Ok(()) => inside += 1,
                Err(_) => now = link.next_change(now)?,
            }
        }
        now = now.max(link.next()?);
        while let Some(departure) = link.pop(now) {
            inside -= 1;
            match departure.fate {
                Fate::Delivered => {
                    lost_in_a_row = 0;
                    let at = departure.at + hop.config.delay.at(departure.at);
                    let latest = arrivals.last().copied().unwrap_or(Time::ZERO);
                    arrivals.push(at.max(latest));
                }
                Fate::Lost(_) | Fate::Damaged(_) => lost_in_a_row += 1,
            }
        }
        // At a probability of 0.99 a million losses in a row do not happen.
        if lost_in_a_row > 1_000_000 {
            return None;
        }
    }
    Some(arrivals)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::quantity::{Probability, Rate, Span};

    fn spec(text: &str) -> LinkSpec {
        crate::text::parse(text, "test").unwrap()
    }

    fn hop(text: &str) -> Hop {
        Hop::new("forward", &spec(text)).unwrap()
    }

    #[test]
    fn the_simulated_genie_agrees_with_the_closed_form() {
        for text in [
            "rate = \"10 Mbit/s\"\ndelay = \"250 ms\"",
            "rate = \"10 Mbit/s\"\ndelay = \"25 ms\"\nper = 0.1",
            "rate = \"1 Mbit/s\"\ndelay = \"1 s\"\nber = 1e-5\nframing = \"ppp\"",
            "rate = \"1.024 Mbit/s\"\nper_packet = \"60 us\"\nrelease = \"first-bit\"",
        ] {
            let hop = hop(text);
            let channel = hop.channel().unwrap();
            let closed = channel.bound(3_000_000, 1024);
            let runs = 5;
            let simulated = (0..runs)
                .map(|seed| {
                    simulate(
                        std::slice::from_ref(&hop),
                        3_000_000,
                        closed.payload,
                        Time::ZERO,
                        seed,
                    )
                })
                .map(|bound| bound.seconds)
                .sum::<f64>()
                / f64::from(runs as u32);
            assert!((simulated / closed.seconds - 1.0).abs() < 0.01, "{simulated} {closed:?}");
        }
    }

    #[test]
    fn an_outage_is_waited_for() {
        let clear = hop("rate = \"1 Mbit/s\"\ndelay = \"1 s\"");
        let broken = hop(
            "rate = \"1 Mbit/s\"\ndelay = \"1 s\"\noutages = [{ at = \"2 s\", for = \"30 s\" }]",
        );
        let clear = bound(&[clear], 1_000_000, Time::ZERO, 1).seconds;
        let broken = bound(&[broken], 1_000_000, Time::ZERO, 1).seconds;
        // The packet cut by the outage is sent again.
        assert!((broken - clear - 30.0).abs() < 0.02, "{clear} {broken}");
        let closed = hop("contacts = [{ at = \"1 s\", for = \"1 ms\" }]\nrate = \"1 Mbit/s\"");
        assert!(bound(&[closed], 1_000_000, Time::ZERO, 1).seconds.is_infinite());
    }

    #[test]
    fn a_relay_costs_one_packet_and_the_slowest_hop() {
        let hops = [
            hop("rate = \"2 Mbit/s\"\ndelay = \"230 ms\""),
            hop("rate = \"1 Mbit/s\"\ndelay = \"1.5 s\""),
        ];
        let packets = 977.0;
        let tp = 8.0 * (1024.0 + 42.0) / 1e6;
        let expected = crate::theory::relay_cut_through(packets, tp, 1.73) - tp / 2.0;
        let got = bound(&hops, 1_000_000, Time::ZERO, 1).seconds;
        assert!((got / expected - 1.0).abs() < 0.001, "{got} {expected}");
    }

    #[test]
    fn bursts_of_bit_errors_favour_short_packets() {
        let hop = hop(
            "rate = \"1 Mbit/s\"\nburst = { to_bad = 0.5, to_good = 0.5, bad_ber = 1e-3, good_ber = 1e-3 }",
        );
        assert!(bound(&[hop], 200_000, Time::ZERO, 1).payload < 200);
    }

    proptest! {
        #[test]
        fn dropping_more_never_helps(per in 0.0..0.5_f64, delay in 0_u64..1000) {
            let with = |per| {
                let spec = LinkSpec {
                    rate: Some(Rate(1_000_000)),
                    delay: Some(Span(Duration::from_millis(delay))),
                    per: Some(Probability(per)),
                    ..LinkSpec::default()
                };
                let hop = Hop::new("forward", &spec).unwrap();
                let at = cross(&hop, &[Time::ZERO; 50], 1052, 1).unwrap();
                at.last().copied().unwrap()
            };
            prop_assert!(with(0.0) <= with(per));
        }
    }
}
