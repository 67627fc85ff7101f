//! Properties of the path of a question.

use engine::{PathInfo, Time};
use link::{ErrorKind, ErrorModel, StateErrors};
use transport::quantity::Size;
use transport::text::SpecError;

use super::estimate::Facts;
use crate::bound::{self, Hop};
use crate::link_spec::{LinkSpec, time};
use crate::scenario::Scenario;
use crate::stats::mean;
use crate::theory::{IP_UDP_BYTES, Loss};
use crate::topology::Topology;

/// File size below which the bound is averaged over several seeds if losses are random.
const MANY_BOUNDS_MAX: u64 = 20_000_000;
/// Step and least value of datagram sizes for links with bit errors: shorter ones are mostly
/// headers.
const DATAGRAM_STEP: u64 = 64;
const DATAGRAM_LEAST: u64 = 128;
/// Bytes of a file for which the size is searched, at most.
const SUITED_BYTES: u64 = 2_000_000;

/// Returns the bound of the whole file over the links of a world, and properties of its path.
pub(super) fn look(scenario: &Scenario, bytes: u64) -> Result<Facts, SpecError> {
    let topology = Topology::new(scenario)?;
    let node = |name: &str| topology.node(name).ok_or_else(|| crate::plan::unresolved(name));
    let mut facts = Facts { loss: Some(0.0), payload: 1, ..Facts::default() };
    let mut ways = Vec::new();
    for transfer in &scenario.transfers {
        for waypoints in transfer.ways() {
            let mut waypoints = waypoints.into_iter().map(node).collect::<Result<Vec<_>, _>>()?;
            let there = topology.route_by(&waypoints).unwrap_or_default();
            waypoints.reverse();
            let back = topology.route_by(&waypoints).unwrap_or_default();
            let light =
                |route: &[usize]| topology.path_info(route).owlt.unwrap_or_default().as_secs_f64();
            facts.delay_s = facts.delay_s.max(light(&there));
            facts.rtt_s = facts.rtt_s.max(light(&there) + light(&back));
            let hops = topology.hops_of_mtu(&there);
            facts.payload = hops.iter().map(|hop| hop.payload_max).min().unwrap_or(1);
            facts.rate_bps = sending_rate(&topology.path_info(&there), facts.payload);
            let (rate, back_bps) = (facts.rate_bps, topology.path_info(&back).rate_bps);
            facts.return_bps = back_bps.filter(|back| rate.is_some_and(|it| it / 100 >= *back));
            let mut survives = Some(1.0);
            for hop in hops.iter().chain(&topology.hops_of_mtu(&back)) {
                let loss = hop.channel().map(|channel| channel.loss.probability(facts.payload));
                survives = survives.zip(loss).map(|(survives, loss)| survives * (1.0 - loss));
            }
            let loss = survives.map(|survives: f64| 1.0 - survives);
            facts.loss = facts.loss.zip(loss).map(|(worst, loss)| worst.max(loss));
            let intact: f64 = hops.iter().map(|hop| 1.0 - mean_loss(hop, facts.payload)).product();
            facts.loss_there = facts.loss_there.max(1.0 - intact);
            ways.push(hops);
        }
    }
    let start = scenario.transfers.first().and_then(|transfer| transfer.start);
    let start = time(start.unwrap_or_default());
    let bound = |ways: &[Vec<Hop>], seed| {
        let seconds = bound::bound_of_all(ways, bytes, start, seed).seconds;
        Some(seconds).filter(|seconds| seconds.is_finite())
    };
    // Random losses differ between seeds where there is no closed form.
    let is_drawn = ways.len() == 1
        && ways[0].iter().any(Hop::is_random)
        && !(ways[0].len() == 1 && ways[0][0].channel().is_some());
    let seeds = if is_drawn && bytes < MANY_BOUNDS_MAX { 5 } else { 1 };
    let bounds: Vec<_> =
        (0..seeds).map(|seed| bound(&ways, scenario.seed.wrapping_add(seed))).collect();
    facts.is_possible = bounds.iter().any(Option::is_some);
    facts.bound_s = bounds.into_iter().collect::<Option<Vec<_>>>().map(|bounds| mean(&bounds));
    for hop in ways.iter_mut().flatten() {
        *hop = hop.without_errors();
    }
    facts.floor_s = bound(&ways, scenario.seed).unwrap_or_default();
    Ok(facts)
}

/// Mean share of lost packets, bursts included; losses at given positions are left out.
fn mean_loss(hop: &Hop, payload: u64) -> f64 {
    let lost = |errors: &StateErrors| {
        let overhead = hop.config().framing.overhead() as u64 + IP_UDP_BYTES;
        let bits = Loss { per: errors.loss, ber: errors.ber, overhead };
        bits.probability(payload)
    };
    let of_model = |model: &ErrorModel| match &model.kind {
        ErrorKind::GilbertElliott { p_gb, p_bg, good, bad } => {
            let share = if *p_gb > 0.0 { p_gb / (p_gb + p_bg) } else { 0.0 };
            share * lost(bad) + (1.0 - share) * lost(good)
        }
        kind => kind.independent().map_or(0.0, |errors| lost(&errors)),
    };
    1.0 - hop.config().errors.iter().map(|model| 1.0 - of_model(model)).product::<f64>()
}

/// Returns the largest datagram that suits a link with bit errors, for a file of this many bytes:
/// that of the ideal sender, and room for the headers of a transport. `None` if the largest that
/// fits is best.
pub(super) fn suited_datagram(hops: &[LinkSpec], bytes: u64) -> Result<Option<Size>, SpecError> {
    let named = hops.iter().enumerate().map(|(at, hop)| Hop::new(format!("hop {at}"), hop));
    let hops = named.collect::<Result<Vec<_>, _>>()?;
    let depends =
        |hop: &Hop| hop.config().errors.iter().any(|model| model.kind.depends_on_length());
    if !hops.iter().any(depends) {
        return Ok(None);
    }
    let largest = hops.iter().map(|hop| hop.payload_max).min().unwrap_or(0);
    // The best size hardly depends on the file, unless it is a few packets.
    let bytes = bytes.clamp(largest, largest.max(SUITED_BYTES));
    let best = bound::bound(&hops, bytes, Time::ZERO, 0).payload;
    let size = best.next_multiple_of(DATAGRAM_STEP).max(DATAGRAM_LEAST);
    Ok((size < largest).then_some(Size(size)))
}

/// Rate at which senders fill a path, with the headers that they count: IPv4, UDP and Ethernet
/// without FCS.
fn sending_rate(path: &PathInfo, payload: u64) -> Option<u64> {
    let packet = |overhead: u64| (payload + overhead) as f64;
    let share = packet(IP_UDP_BYTES + 14) / packet(path.overhead as u64);
    path.rate_bps.map(|rate| (rate as f64 * share) as u64)
}
