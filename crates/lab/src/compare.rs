//! The same file over the same link by every protocol, many times.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rayon::prelude::*;
use serde::Serialize;

use crate::link_spec::LinkSpec;
use crate::metrics::TransferMetrics;
use crate::preset::Preset;
use crate::protocol::Protocol;
use crate::quantity::{Size, Span};
use crate::run::{self, Recorders, RunError};
use crate::scenario::{Capture, Limits, Node, Scenario, Transfer};
use crate::stats::{Summary, mean};
use crate::text::SpecError;

/// What to compare.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The hops from the sender to the receiver; each one's way back is its `return`.
    pub link: Preset,
    /// The protocols.
    pub protocols: Vec<Protocol>,
    /// The file.
    pub content: Bytes,
    /// Its name.
    pub name: String,
    /// Runs of each protocol, with the seeds from `seed` on.
    pub runs: u32,
    /// The first seed.
    pub seed: u64,
    /// Silence after which an end gives up; each protocol's own if left out.
    pub inactivity: Option<Span>,
    /// Threads; `None` for one a core.
    pub jobs: Option<usize>,
}

/// What one protocol did. Times and rates are of the completed runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The protocol with its profile.
    pub protocol: String,
    /// Runs.
    pub runs: usize,
    /// Runs in which the file arrived whole and the ends knew.
    pub completed: usize,
    /// The file's size.
    pub file_bytes: u64,
    /// 8 × file bytes / delivered.
    pub goodput_bps: Option<Summary>,
    /// 8 × file bytes / (wire + round trip).
    pub goodput_grc_bps: Option<Summary>,
    /// Seconds until the receiver had the whole file.
    pub delivered_s: Option<Summary>,
    /// Seconds until the sender knew.
    pub confirmed_s: Option<Summary>,
    /// Seconds until the last packet.
    pub quiet_s: Option<Summary>,
    /// Seconds from the first to the last packet at the receiver.
    pub wire_s: Option<Summary>,
    /// The mean of the bounds of all runs.
    pub bound_s: Option<f64>,
    /// Mean bound / mean delivered, of the completed runs.
    pub efficiency: Option<f64>,
    /// Mean bits a second offered to the first link.
    pub throughput_bps: Option<f64>,
    /// Mean packets from the sender.
    pub packets_str: f64,
    /// Mean packets from the receiver.
    pub packets_rts: f64,
    /// Mean bytes of IP packets from the sender.
    pub bytes_str: f64,
    /// Mean bytes of IP packets from the receiver.
    pub bytes_rts: f64,
    /// Why runs failed: the seed and the reason.
    #[serde(skip)]
    pub failures: Vec<(u64, String)>,
}

/// The names of the ends of a compared link.
const ENDS: (&str, &str) = ("sender", "receiver");

impl Plan {
    /// The world of one run.
    ///
    /// # Errors
    ///
    /// When the link contradicts itself.
    pub fn scenario(&self, protocol: &Protocol, seed: u64) -> Result<Scenario, SpecError> {
        let count = self.link.hops.len();
        let node = |index: usize| match index {
            0 => ENDS.0.to_owned(),
            _ if index == count => ENDS.1.to_owned(),
            _ => format!("relay-{index}"),
        };
        let between = |spec: LinkSpec, from: usize, to: usize| LinkSpec {
            from: Some(node(from)),
            to: Some(node(to)),
            back: None,
            ..spec
        };
        let hops = self.link.hops.iter().enumerate();
        let links = hops.flat_map(|(index, hop)| {
            let back = between(hop.way_back(), index + 1, index);
            [between(hop.clone(), index, index + 1), back]
        });
        let ends = Node { inactivity: self.inactivity, ..Node::default() };
        Scenario {
            seed,
            about: self.link.about.clone(),
            limits: Limits::default(),
            capture: Capture::default(),
            nodes: [ENDS.0, ENDS.1].map(|end| (end.to_owned(), ends.clone())).into(),
            links: links.collect(),
            transfers: vec![Transfer {
                from: ENDS.0.to_owned(),
                to: ENDS.1.to_owned(),
                via: Vec::new(),
                overlay: None,
                protocol: Some(protocol.clone()),
                file: None,
                size: Some(Size(self.content.len() as u64)),
                content: None,
                name: Some(self.name.clone()),
                start: None,
            }],
        }
        .resolved()
    }

    /// One run; `None` if it was cancelled.
    fn once(
        &self,
        cancelled: &AtomicBool,
        protocol: &Protocol,
        seed: u64,
    ) -> Result<Option<TransferMetrics>, RunError> {
        let scenario = self.scenario(protocol, seed)?;
        let contents = std::slice::from_ref(&self.content);
        let run = run::run_unless(cancelled, &scenario, contents, Recorders::default())?;
        if cancelled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let ended = run.ended;
        let mut transfers = run.transfers.into_iter();
        let mut transfer = transfers
            .next()
            .ok_or_else(|| SpecError::invalid("a compared world has one transfer".to_owned()))?;
        if ended != "idle" {
            transfer.completed = false;
            transfer.failure.get_or_insert(ended);
        }
        Ok(Some(transfer))
    }
}

/// Runs everything and ranks the protocols: those that always complete first, then by goodput.
/// `None` if `cancelled` was set meanwhile. `done` is called after each run. The result does not
/// depend on the number of threads.
///
/// # Errors
///
/// When the plan cannot be run at all; failed transfers are part of the result.
pub fn compare(
    plan: &Plan,
    cancelled: &AtomicBool,
    done: &(dyn Fn() + Sync),
) -> Result<Option<Vec<Row>>, RunError> {
    let seeds = (0..u64::from(plan.runs)).map(|run| plan.seed.wrapping_add(run));
    let tasks: Vec<_> = plan
        .protocols
        .iter()
        .flat_map(|protocol| seeds.clone().map(move |seed| (protocol, seed)))
        .collect();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(plan.jobs.unwrap_or(0).min(tasks.len()))
        .build()
        .map_err(std::io::Error::other)?;
    let runs: Vec<Option<TransferMetrics>> = pool.install(|| {
        tasks
            .par_iter()
            .with_max_len(1)
            .map(|(protocol, seed)| {
                if cancelled.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                let metrics = plan.once(cancelled, protocol, *seed)?;
                done();
                Ok(metrics)
            })
            .collect::<Result<_, RunError>>()
    })?;
    let Some(runs) = runs.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
    let mut rows: Vec<_> = runs
        .chunks((plan.runs as usize).max(1))
        .zip(&plan.protocols)
        .map(|(runs, protocol)| Row::new(plan, protocol, runs))
        .collect();
    rows.sort_by(|a, b| {
        let goodput = |row: &Row| row.goodput_bps.map_or(0.0, |goodput| goodput.mean);
        b.completed.cmp(&a.completed).then(goodput(b).total_cmp(&goodput(a)))
    });
    Ok(Some(rows))
}

impl Row {
    fn new(plan: &Plan, protocol: &Protocol, runs: &[TransferMetrics]) -> Self {
        let completed: Vec<_> = runs.iter().filter(|run| run.completed).collect();
        let summary = |field: fn(&TransferMetrics) -> Option<f64>| {
            Summary::of(&completed.iter().filter_map(|run| field(run)).collect::<Vec<_>>())
        };
        let average = |field: fn(&TransferMetrics) -> Option<u64>| {
            let counts = runs.iter().filter_map(field).map(|count| count as f64);
            mean(&counts.collect::<Vec<_>>())
        };
        let bounds: Option<Vec<_>> = runs.iter().map(|run| run.bound_s).collect();
        let delivered_s = summary(|run| run.delivered_s);
        let reached = summary(|run| run.bound_s)
            .zip(delivered_s)
            .filter(|(_, delivered)| delivered.mean > 0.0);
        let failures = runs.iter().enumerate().filter_map(|(index, run)| {
            Some((plan.seed.wrapping_add(index as u64), run.failure.clone()?))
        });
        Self {
            protocol: protocol.to_string(),
            runs: runs.len(),
            completed: completed.len(),
            file_bytes: plan.content.len() as u64,
            goodput_bps: summary(|run| run.goodput_bps),
            goodput_grc_bps: summary(|run| run.goodput_grc_bps),
            delivered_s,
            confirmed_s: summary(|run| run.confirmed_s),
            quiet_s: summary(|run| run.quiet_s),
            wire_s: summary(|run| run.wire_s),
            bound_s: bounds.map(|bounds| mean(&bounds)),
            efficiency: reached.map(|(bound, delivered)| bound.mean / delivered.mean),
            throughput_bps: summary(|run| run.throughput_bps).map(|summary| summary.mean),
            packets_str: average(|run| run.packets_str),
            packets_rts: average(|run| run.packets_rts),
            bytes_str: average(|run| run.bytes_str),
            bytes_rts: average(|run| run.bytes_rts),
            failures: failures.collect(),
        }
    }
}
