//! The bound of a path: in closed form where that is exact, otherwise by simulating a fluid
//! through the links.
//!
//! The ideal sender ("genie") has no headers above IPv4 and UDP, detects each loss at once and
//! uses the best packet size. Where no closed form exists it may do more than any real sender, so
//! that its result is still a bound:
//!
//! - An outage cuts none of its packets: an interrupted packet resumes after the outage.
//! - Relays forward each bit as it arrives, and retransmit losses of later hops.
//! - It waits for shorter delays where waiting pays.
//! - Losses by position (packet, bit, trace or time) do not affect it: it may send an empty packet
//!   in that place. For the same reason a loss in a burst costs it an empty packet.
//!
//! Random losses make the bound a mean: over many runs no protocol is faster, but one lucky run
//! may be.
//!
//! Several receivers have a separate bound, [`bound_of_all`].

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::{Rng, Time};
use link::{Delay, Fate, Framing, Link, OnError, Outages, Rate, Release, TokenBucket};
use transport::text::SpecError;

use crate::link_spec::LinkSpec;
use crate::theory::{self, Bound, Channel, IP_UDP_BYTES, Loss};

/// One hop as the bound models it. Copies are cheap, however many contacts it has.
#[derive(Clone, Debug)]
pub struct Hop {
    /// Name of the link, from which its random numbers are derived.
    name: Arc<str>,
    config: Arc<link::Config>,
    /// Digest of name and link, by which cached bounds are found.
    digest: u64,
    /// Largest UDP payload.
    pub payload_max: u64,
}

impl Hop {
    /// Returns the hop of `spec`.
    ///
    /// # Errors
    ///
    /// `spec` contradicts itself.
    pub fn new(name: impl Into<Arc<str>>, spec: &LinkSpec) -> Result<Self, SpecError> {
        Ok(Self::from_config(name.into(), spec.config()?, spec.payload_max()))
    }

    fn from_config(name: Arc<str>, config: link::Config, payload_max: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        format!("{name} {config:?}").hash(&mut hasher);
        Self { name, config: Arc::new(config), digest: hasher.finish(), payload_max }
    }

    /// Returns the link.
    #[must_use]
    pub fn config(&self) -> &link::Config {
        &self.config
    }

    /// Returns the hop without errors.
    #[must_use]
    pub fn without_errors(&self) -> Self {
        let config = link::Config { errors: Vec::new(), ..link::Config::clone(&self.config) };
        Self::from_config(Arc::clone(&self.name), config, self.payload_max)
    }

    /// Returns the hop as a channel with a closed form; `None` if it has none.
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

    /// Returns the losses, if they are independent of each other.
    fn loss(&self) -> Option<Loss> {
        let mut loss = Loss::default();
        for model in &self.config.errors {
            let frame = match model.on_error {
                OnError::Drop => errors_reach(self.config.framing),
                OnError::Damage => 0,
            };
            let errors = model.kind.independent()?;
            if errors.loss > 0.0 {
                loss.per = 1.0 - (1.0 - loss.per) * (1.0 - errors.loss);
            }
            if errors.ber > 0.0 {
                // The two rates apply to different parts of the frame.
                if loss.ber > 0.0 {
                    return None;
                }
                loss.ber = errors.ber;
                loss.overhead = IP_UDP_BYTES + frame;
            }
        }
        Some(loss)
    }

    /// Whether losses are random, which makes the bound a mean.
    #[must_use]
    pub fn is_random(&self) -> bool {
        self.config.errors.iter().any(|model| model.kind.is_drawn())
    }

    /// Whether smaller packets are lost less often.
    fn length_matters(&self) -> bool {
        self.config.errors.iter().any(|model| model.kind.depends_on_length())
    }
}

/// Bytes of a frame around the packet where an error counts: not preamble and gap.
fn errors_reach(framing: Framing) -> u64 {
    let idle = match framing {
        Framing::Ethernet { preamble, ifg, .. } => u64::from(preamble) * 8 + u64::from(ifg) * 12,
        Framing::Raw | Framing::Ppp { .. } | Framing::Hdlc { .. } | Framing::Custom(_) => 0,
    };
    framing.overhead() as u64 - idle
}

/// Returns the minimum time in which `file` bytes can cross `hops` from `start` on. The seed sets
/// random losses where there is no closed form. Infinite if the file never arrives.
#[must_use]
pub fn bound(hops: &[Hop], file: u64, start: Time, seed: u64) -> Bound {
    let payload_max = hops.iter().map(|hop| hop.payload_max).min().unwrap_or(u64::MAX).max(1);
    if let [hop] = hops
        && let Some(channel) = hop.channel()
    {
        return channel.bound(file, payload_max);
    }
    // Without random losses all seeds are equal.
    let seed = if hops.iter().any(Hop::is_random) { seed } else { 0 };
    let path = hops.iter().map(|hop| (hop.digest, hop.payload_max)).collect();
    known((path, file, start, seed), || {
        let length_matters = hops.iter().any(Hop::length_matters);
        payloads(payload_max, length_matters)
            .map(|payload| simulate(hops, file, payload, start, seed))
            .min_by(|a, b| a.seconds.total_cmp(&b.seconds))
            .expect("the largest payload is among those tried")
    })
}

/// Maximum number of cached bounds: a study needs the same one for each protocol, and simulating
/// 100 MB takes longer than some transfers.
const KNOWN_MAX: usize = 4096;

/// A cached bound's hops by digest and payload, file, start and seed.
type Question = (Vec<(u64, u64)>, u64, Time, u64);

/// Returns the cached bound, or computes it.
fn known(question: Question, find: impl FnOnce() -> Bound) -> Bound {
    static KNOWN: Mutex<BTreeMap<Question, Bound>> = Mutex::new(BTreeMap::new());
    let all = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bound) = all().get(&question) {
        return *bound;
    }
    // The cache is not locked meanwhile: two threads may compute the same value.
    let bound = find();
    let mut all = all();
    if all.len() >= KNOWN_MAX {
        all.clear();
    }
    all.insert(question, bound);
    bound
}

/// Returns the minimum time in which `file` bytes can cross from one sender to all receivers,
/// including the last. Each receiver has a path in `ways`; these share their first hops. With one
/// path it is [`bound`].
///
/// The ideal sender uses an ideal erasure code and detects each loss at once. Every packet that
/// arrives repairs any loss of its receiver, so it sends until the slowest receiver has enough,
/// and no scheme that retransmits or codes for all needs fewer packets. All packets have one
/// length, of its choice. Relays neither store nor retransmit, and receivers do not repair each
/// other; a scheme with such relays could be faster. Where there is no closed form (changing rates
/// and delays, buckets, outages, bursts, or paths that branch more than once), it is only the
/// bound of the slowest receiver.
#[must_use]
pub fn bound_of_all(ways: &[Vec<Hop>], file: u64, start: Time, seed: u64) -> Bound {
    let branched = (ways.len() > 1).then(|| branches(ways)).flatten();
    let Some((shared, classes)) = branched else {
        let alone = ways.iter().map(|way| bound(way, file, start, seed));
        let slowest = alone.max_by(|a, b| a.seconds.total_cmp(&b.seconds));
        return slowest.unwrap_or(Bound { seconds: 0.0, payload: 1, packets: 1 });
    };
    let hops = || ways.iter().flatten();
    let payload_max = hops().map(|hop| hop.payload_max).min().unwrap_or(u64::MAX).max(1);
    payloads(payload_max, hops().any(Hop::length_matters))
        .map(|payload| {
            // All packets are equal; the last one is not shorter.
            let packets = file.div_ceil(payload).max(1);
            let payload = file.div_ceil(packets);
            let seconds = coded(&shared, &classes, packets, payload);
            Bound { seconds, payload, packets }
        })
        .min_by(|a, b| a.seconds.total_cmp(&b.seconds))
        .expect("the largest payload is among those tried")
}

/// Receivers with equal paths: their own hops, and their number.
type Class = (Vec<Channel>, u32);

/// Returns the hops shared by all paths, and the classes of receivers behind them; `None` unless
/// all hops have a closed form and paths share none after the first branch.
fn branches(ways: &[Vec<Hop>]) -> Option<(Vec<Channel>, Vec<Class>)> {
    let first = ways.first()?;
    let is_shared =
        |at: &usize| ways.iter().all(|way| way.get(*at).is_some_and(|h| h.name == first[*at].name));
    let shared = (0..first.len()).take_while(is_shared).count();
    let mut own = BTreeSet::new();
    let mut classes: Vec<Class> = Vec::new();
    for way in ways {
        let way = &way[shared..];
        if !way.iter().all(|hop| own.insert(&*hop.name)) {
            return None;
        }
        let channels = way.iter().map(Hop::channel).collect::<Option<Vec<_>>>()?;
        match classes.iter_mut().find(|(known, _)| *known == channels) {
            Some((_, count)) => *count += 1,
            None => classes.push((channels, 1)),
        }
    }
    Some((first[..shared].iter().map(Hop::channel).collect::<Option<_>>()?, classes))
}

/// Expected time of the coded ideal sender with packets of one length.
fn coded(shared: &[Channel], classes: &[Class], packets: u64, payload: u64) -> f64 {
    let arrive = |hops: &[Channel]| {
        hops.iter().map(|hop| 1.0 - hop.loss.probability(payload)).product::<f64>()
    };
    let busiest = |hops: &[Channel]| hops.iter().map(|hop| hop.busy(payload)).fold(0.0, f64::max);
    let delay = |hops: &[Channel]| hops.iter().map(|hop| hop.delay).sum::<f64>();
    // A loss before the branch affects all: for n packets behind it, n / (1 − p) must be sent,
    // whatever happens to them later.
    let sends = 1.0 / arrive(shared);
    let mut steps = Vec::new();
    for (class, (own, count)) in classes.iter().enumerate() {
        let p = 1.0 - arrive(own);
        if p >= 1.0 || !sends.is_finite() {
            return f64::INFINITY;
        }
        let busy = busiest(shared).max(busiest(own)) * sends;
        // Links that release with the first bit do not wait for the end of the last packet.
        let unawaited = if shared.iter().chain(own).any(|hop| hop.first_bit) { busy } else { 0.0 };
        let begin = delay(shared) + delay(own) - unawaited;
        let completion = theory::coded_completion(packets as f64, p);
        steps.extend(
            completion.map(|(n, whole)| (begin + busy * n, class, whole.ln() * f64::from(*count))),
        );
    }
    mean_of_last(steps, classes.len())
}

/// Mean of the maximum of several random times: the integral of the probability that one is still
/// to come. Each step is a time, its distribution, and the logarithm of the cumulative probability
/// reached then.
fn mean_of_last(mut steps: Vec<(f64, usize, f64)>, distributions: usize) -> f64 {
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut reached = vec![f64::NEG_INFINITY; distributions];
    let (mut mean, mut before) = (0.0, 0.0);
    for (at, distribution, log) in steps {
        mean += (at - before) * -reached.iter().sum::<f64>().exp_m1();
        before = at;
        reached[distribution] = log;
    }
    mean
}

/// Payloads that a simulated ideal sender tries: the largest and, where length matters, ever
/// smaller ones.
fn payloads(payload_max: u64, length_matters: bool) -> impl Iterator<Item = u64> {
    let count = if length_matters { 16 } else { 1 };
    (0..count)
        .map(move |step| payload_max * 4_u64.pow(15 - step) / 5_u64.pow(15 - step).max(1))
        .map(move |payload| if length_matters { payload } else { payload_max })
        .filter(|payload| *payload > 0)
}

/// Time of an ideal sender with at most `payload` bytes per packet.
fn simulate(hops: &[Hop], file: u64, payload: u64, start: Time, seed: u64) -> Bound {
    let packets = file.div_ceil(payload).max(1);
    let never = Bound { seconds: f64::INFINITY, payload, packets };
    // The shorter packet goes first: a link that releases with the first bit does not wait for the
    // end of the last packet, so the last one should be full.
    let shorter = file - (packets - 1) * payload;
    let mut at = start.as_secs_f64();
    let Some(mut pipes) = hops
        .iter()
        .map(|hop| {
            let pipe = Pipe::new(hop, at, payload, seed);
            at = arrival(&hop.config.delay, at);
            pipe
        })
        .collect::<Option<Vec<_>>>()
    else {
        return never;
    };
    let mut end = at;
    for index in 0..packets {
        let len = if index == 0 { shorter } else { payload };
        let mut at = start.as_secs_f64();
        for pipe in &mut pipes {
            match pipe.carry(at, len) {
                Some(arrives) => at = arrives,
                None => return never,
            }
        }
        end = at;
    }
    Bound { seconds: end - start.as_secs_f64(), payload, packets }
}

/// A link that carries a fluid. Times are seconds of the scenario's clock: accurate to nanoseconds
/// over months.
struct Pipe<'a> {
    config: &'a link::Config,
    /// Link that draws the losses; has no other properties.
    errors: Link<()>,
    /// Arrival of the first bit, when the buckets are full.
    begin: f64,
    /// Framed bytes of the longest packet.
    longest: f64,
    /// End of service so far.
    busy: f64,
    /// Framed bytes so far.
    sent: f64,
}

impl<'a> Pipe<'a> {
    fn new(hop: &'a Hop, begin: f64, payload: u64, seed: u64) -> Option<Self> {
        let config = &hop.config;
        let drawn = config.errors.iter().filter(|model| model.kind.is_drawn());
        let errors = link::Config {
            framing: config.framing,
            errors: drawn.cloned().collect(),
            ..link::Config::default()
        };
        Some(Self {
            errors: Link::new(errors, Rng::new(seed, &hop.name)).ok()?,
            longest: config.framing.framed_len(packet(payload)) as f64,
            config,
            begin,
            busy: begin,
            sent: 0.0,
        })
    }

    /// Time when `payload` bytes that enter at `at` are at the far end; `None` if never.
    fn carry(&mut self, at: f64, payload: u64) -> Option<f64> {
        // At a probability of 0.99 a million losses in a row do not happen.
        for _ in 0..1_000_000 {
            match self.fate(payload) {
                Fate::Delivered => {
                    let released = self.serve(payload)?;
                    self.busy = self.busy.max(at);
                    return Some(arrival(&self.config.delay, released.max(at)));
                }
                Fate::Lost(cause) if cause.is_independent() => self.serve(payload)?,
                Fate::Lost(_) | Fate::Damaged(_) => self.serve(0)?,
            };
        }
        None
    }

    fn fate(&mut self, payload: u64) -> Fate {
        if self.errors.config().errors.is_empty() {
            return Fate::Delivered;
        }
        // A link without rate, delay and outages takes every packet and returns it at once.
        let taken = self.errors.push(Time::ZERO, packet(payload), ()).is_ok();
        let departure = self.errors.pop(Time::ZERO).filter(|_| taken);
        departure.map_or(Fate::Delivered, |departure| departure.fate)
    }

    /// Serves a packet. Returns its release time.
    fn serve(&mut self, payload: u64) -> Option<f64> {
        let bytes = self.config.framing.framed_len(packet(payload)) as f64;
        self.sent += bytes;
        let allowed = self.config.shaper.as_ref().map_or(self.begin, |bucket| self.tokens(bucket));
        let per_packet = self.config.per_packet.as_secs_f64();
        match self.config.release {
            Release::FirstBit => {
                let first_bit = up_from(&self.config.outages, self.busy.max(allowed))?;
                // A packet that has left is not cut.
                let (last_bit, _) = send(&self.config.rate, &Outages::Never, first_bit, bytes)?;
                self.busy = last_bit + per_packet;
                Some(first_bit)
            }
            Release::LastBit => {
                let (last_bit, cut) =
                    send(&self.config.rate, &self.config.outages, self.busy, bytes)?;
                // If an outage cut the packet, the pause after the packet lies within the outage.
                let pause = if cut { 0.0 } else { per_packet };
                self.busy = (last_bit + pause).max(allowed);
                Some(self.busy)
            }
        }
    }

    /// Time when the buckets have passed everything sent: at most burst + rate · t within t, or a
    /// packet longer than the burst.
    fn tokens(&self, bucket: &TokenBucket) -> f64 {
        let after = |rate: u64, burst: u64| {
            self.begin + 8.0 * (self.sent - self.longest.max(burst as f64)).max(0.0) / rate as f64
        };
        after(bucket.rate, bucket.burst).max(after(bucket.ceil, bucket.cburst))
    }
}

fn packet(payload: u64) -> usize {
    usize::try_from(payload + IP_UDP_BYTES).unwrap_or(usize::MAX)
}

fn moment(seconds: f64) -> Time {
    Time::ZERO + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// First time from `at` on at which the link is up.
fn up_from(outages: &Outages, at: f64) -> Option<f64> {
    let now = moment(at);
    if outages.is_up(now) {
        return Some(at);
    }
    outages.next_change(now).map(|up| up.as_secs_f64().max(at))
}

/// End of a transmission of `bytes` that starts at `from`, and whether an outage interrupted it.
fn send(rate: &Rate, outages: &Outages, from: f64, bytes: f64) -> Option<(f64, bool)> {
    let mut at = up_from(outages, from)?;
    let (mut bits, mut cut) = (8.0 * bytes, at > from);
    loop {
        let Some(bps) = rate.bps_at(moment(at)) else { return Some((at, cut)) };
        let end = at + bits / bps as f64;
        let step = match rate {
            Rate::Infinite | Rate::Constant(_) => None,
            Rate::Steps(steps) => {
                let later = steps.iter().map(|step| step.from.as_secs_f64());
                later.filter(|from| *from > at).reduce(f64::min)
            }
        };
        let down = outages.next_change(moment(at)).map(Time::as_secs_f64);
        let change = [step, down].into_iter().flatten().reduce(f64::min);
        let Some(change) = change.filter(|change| *change < end) else { return Some((end, cut)) };
        bits -= (change - at).max(0.0) * bps as f64;
        // A nanosecond later, so that rounding does not find the time before the change again.
        let on = change.max(at) + 1e-9;
        at = up_from(outages, on)?;
        cut |= at > on;
    }
}

/// Earliest arrival of a departure from `at` on.
fn arrival(delay: &Delay, at: f64) -> f64 {
    let now = at + delay.propagation_at(moment(at)).as_secs_f64();
    match delay {
        Delay::Constant(_) => now,
        Delay::Table { points, .. } => points
            .iter()
            .map(|(when, delay)| (when.as_secs_f64(), delay.as_secs_f64()))
            .filter(|(when, _)| *when > at)
            .map(|(when, delay)| when + delay)
            .fold(now, f64::min),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::link_spec::Errors;
    use transport::quantity::{Probability, Span};

    fn spec(text: &str) -> LinkSpec {
        transport::text::parse(text, "test").unwrap()
    }

    fn hop(text: &str) -> Hop {
        Hop::new("forward", &spec(text)).unwrap()
    }

    #[test]
    fn simulated_ideal_sender_agrees_with_the_closed_form() {
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
        // The packet cut by the outage is retransmitted.
        assert!((broken - clear - 30.0).abs() < 0.02, "{clear} {broken}");
        let closed = hop("contacts = [{ at = \"1 s\", for = \"1 ms\" }]\nrate = \"1 Mbit/s\"");
        assert!(bound(&[closed], 1_000_000, Time::ZERO, 1).seconds.is_infinite());
    }

    #[test]
    fn a_relay_costs_one_packet_and_the_slowest_hop() {
        let hops = [
            hop("rate = \"2 Mbit/s\"\ndelay = \"230 ms\"\ndatagram = \"1024 B\""),
            hop("rate = \"1 Mbit/s\"\ndelay = \"1.5 s\"\ndatagram = \"1024 B\""),
        ];
        let packets = 977.0;
        let tp = 8.0 * (1024.0 + 42.0) / 1e6;
        let expected = theory::relay_cut_through(packets, tp, 1.73) - tp / 2.0;
        let got = bound(&hops, 1_000_000, Time::ZERO, 1).seconds;
        assert!((got / expected - 1.0).abs() < 0.001, "{got} {expected}");
    }

    /// A link to a relay and the links from the relay, by their error rates.
    fn ways(up: &str, branches: &[&str]) -> Vec<Vec<Hop>> {
        let up = Hop::new("up", &spec(up)).unwrap();
        let way = |(index, branch): (usize, &&str)| {
            vec![up.clone(), Hop::new(format!("branch {index}"), &spec(branch)).unwrap()]
        };
        branches.iter().enumerate().map(way).collect()
    }

    fn all(up: &str, branches: &[&str], file: u64) -> f64 {
        bound_of_all(&ways(up, branches), file, Time::ZERO, 1).seconds
    }

    #[test]
    fn many_receivers_wait_for_the_slowest() {
        let up = "rate = \"10 Mbit/s\"\ndelay = \"100 ms\"\nper = 0.05\ndatagram = \"1000 B\"";
        let branch = "delay = \"150 ms\"\nper = 0.01";
        let busy = 8.0 * 1042.0 / 1e7;
        let got = all(up, &[branch; 100], 2_000_000);
        let sent = theory::multicast_coded_transmissions(100.0, 2_000.0, 0.01) / 0.95;
        assert!((got / (0.25 + sent * busy) - 1.0).abs() < 1e-6, "{got} {sent}");
        // Two thousand, the twenty that all lose, and about twelve more.
        assert!((2_030.0..2_036.0).contains(&(sent * 0.95)), "{sent}");
        // Different classes: greater delays and greater losses.
        let clear = "rate = \"10 Mbit/s\"\ndatagram = \"1000 B\"";
        let far = all(clear, &["delay = \"900 ms\"", branch], 2_000_000);
        assert!((far / (0.9 + 2_000.0 * busy) - 1.0).abs() < 1e-9, "{far}");
        let worse = all(up, &["delay = \"150 ms\"\nper = 0.3", branch], 2_000_000);
        let worst = 0.25 + busy * 2_000.0 / 0.7 / 0.95;
        assert!((worse / worst - 1.0).abs() < 1e-6, "{worse} {worst}");
    }

    #[test]
    fn without_a_closed_form_the_slowest_receiver_alone_is_a_bound() {
        let up = "rate = \"1 Mbit/s\"\noutages = [{ at = \"2 s\", for = \"30 s\" }]";
        let branches = ["delay = \"10 ms\"\nper = 0.1", "delay = \"500 ms\"\nper = 0.1"];
        let alone = bound(&ways(up, &branches)[1], 1_000_000, Time::ZERO, 1).seconds;
        assert_eq!(all(up, &branches, 1_000_000), alone);
        let dead = all("rate = \"1 Mbit/s\"", &["delay = \"1 s\"", "per = 1"], 1_000);
        assert!(dead.is_infinite());
    }

    #[test]
    fn coded_bound_matches_the_mean_of_its_simulation() {
        let branches = ["per = 0.1", "per = 0.1", "per = 0.02\ndelay = \"1 ms\""];
        let mut rng = engine::Rng::new(9, "coded genie");
        let mut once = || {
            let (mut sent, mut left) = (0_u32, [200_u32; 3]);
            while left.iter().any(|left| *left > 0) {
                sent += 1;
                let passes = !rng.chance(0.2);
                for (left, p) in left.iter_mut().zip([0.1, 0.1, 0.02]) {
                    *left -= u32::from(*left > 0 && passes && !rng.chance(p));
                }
            }
            f64::from(sent) * 8.0 * 1042.0 / 1e7
        };
        let runs = 4_000;
        let mean = (0..runs).map(|_| once()).sum::<f64>() / f64::from(runs);
        let up = "rate = \"10 Mbit/s\"\nper = 0.2\ndatagram = \"1000 B\"";
        let got = all(up, &branches, 200_000);
        assert!((got / mean - 1.0).abs() < 0.005, "{got} {mean}");
    }

    #[test]
    fn bursts_of_bit_errors_favour_short_packets() {
        let hop = hop(
            "rate = \"1 Mbit/s\"\nburst = { to_bad = 0.5, to_good = 0.5, bad_ber = 1e-3, good_ber = 1e-3 }",
        );
        assert!(bound(&[hop], 200_000, Time::ZERO, 1).payload < 200);
    }

    #[test]
    fn a_contact_too_short_for_a_full_packet_carries_a_shorter_one() {
        let hop = hop(
            "rate = \"1 kbit/s\"\noutage_every = { period = \"10 s\", down = \"5 s\", first = \"5 s\" }",
        );
        let bound = bound(&[hop], 500, Time::ZERO, 1).seconds;
        // 528 bytes and more take 4.3 s of the 5 s.
        assert!((4.2..4.4).contains(&bound), "{bound}");
    }

    #[test]
    fn listed_losses_do_not_affect_the_bound() {
        let clear = "rate = \"10 kbit/s\"\n";
        let clear_s = bound(&[hop(clear)], 10_000, Time::ZERO, 1).seconds;
        for losses in [
            "drop = [0, 3]",
            "error_vector = { bits = 1000000, errors = [5] }",
            "loss_times = [{ at = \"0 s\", for = \"2 s\" }]",
        ] {
            let hop = hop(&format!("{clear}{losses}"));
            assert!(!hop.is_random());
            assert_eq!(bound(&[hop], 10_000, Time::ZERO, 1).seconds, clear_s, "{losses}");
        }
    }

    #[test]
    fn a_bucket_lets_its_burst_pass_and_then_its_rate() {
        let hop = hop(
            "rate = \"10 Mbit/s\"\nframing = \"raw\"\ndatagram = \"1024 B\"\nbucket = { rate = \"1 Mbit/s\", ceil = \"10 Mbit/s\", burst = \"100 kB\" }",
        );
        let got = bound(&[hop], 1_024_000, Time::ZERO, 1).seconds;
        // 1,000 packets of 1,052 bytes, of which the burst is free.
        let expected = 8.0 * (1_052_000.0 - 100_000.0) / 1e6;
        assert!((got / expected - 1.0).abs() < 1e-9, "{got} {expected}");
    }

    #[test]
    fn bound_includes_waiting_for_a_shorter_delay() {
        let hop = hop(
            "delay_points = [{ at = \"0 s\", delay = \"10 s\" }, { at = \"2 s\", delay = \"1 s\" }]",
        );
        assert_eq!(bound(&[hop], 1, Time::ZERO, 1).seconds, 3.0);
    }

    proptest! {
        #[test]
        fn dropping_more_never_helps(per in 0.0..0.5_f64, delay in 0_u64..1000) {
            let with = |per| {
                let spec = LinkSpec {
                    rate: Some(transport::quantity::Rate(1_000_000)),
                    delay: Some(Span(Duration::from_millis(delay))),
                    errors: Errors { per: Some(Probability(per)), ..Errors::default() },
                    ..LinkSpec::default()
                };
                let hop = Hop::new("forward", &spec).unwrap();
                simulate(&[hop], 50_000, 1_000, Time::ZERO, 1).seconds
            };
            prop_assert!(with(0.0) <= with(per));
        }
    }
}
