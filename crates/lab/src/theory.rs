//! Analytical results: bounds, expected retransmission rounds, coded transfers, multicast, TCP,
//! relays.
//!
//! Shared symbols: a file of F bytes crosses in K = ceil(F / P) packets of P bytes of payload.
//! Each occupies the link for Tp and is lost with probability p, independently; D is the one-way
//! delay. Times are in seconds from the first packet sent.

use std::f64::consts::SQRT_2;

#[cfg(test)]
mod tests;

/// Bytes of an IPv4 header without options (RFC 791) and a UDP header (RFC 768).
pub const IP_UDP_BYTES: u64 = 28;

/// Packet loss of a link with independent losses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Probability of losing a packet of any length.
    pub per: f64,
    /// Bit error rate; one damaged bit loses the packet.
    pub ber: f64,
    /// Bytes above the payload that bit errors affect.
    pub overhead: u64,
}

impl Loss {
    /// Returns losses independent of the length.
    #[must_use]
    pub fn packet(per: f64) -> Self {
        Self { per, ..Self::default() }
    }

    /// Returns losses by bit errors in the payload and `overhead` bytes.
    #[must_use]
    pub fn bit(ber: f64, overhead: u64) -> Self {
        Self { ber, overhead, ..Self::default() }
    }

    /// Returns the probability of losing a packet with `payload` bytes: under bit errors p = 1 − (1
    /// − b)^n over its n bits.
    #[must_use]
    pub fn probability(self, payload: u64) -> f64 {
        let bits = 8.0 * (payload + self.overhead) as f64;
        let intact = if self.ber > 0.0 { (bits * (-self.ber).ln_1p()).exp() } else { 1.0 };
        1.0 - (1.0 - self.per) * intact
    }
}

/// A link with a constant rate and delay, independent losses and no outage: where the closed form
/// of the bound is exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Channel {
    /// Bits per second; infinite for a link that takes no time to send.
    pub rate_bps: f64,
    /// One-way delay, in seconds.
    pub delay: f64,
    /// Framing of an IP packet.
    pub framing: link::Framing,
    /// Additional seconds per packet for which the link is busy.
    pub per_packet: f64,
    /// Whether a packet arrives one delay after its first bit was sent, instead of its last (an
    /// emulator that delays packets before it clocks them out).
    pub first_bit: bool,
    /// Losses.
    pub loss: Loss,
}

/// Minimum time to delivery, and its payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Seconds from the first packet sent to the last byte delivered.
    pub seconds: f64,
    /// Payload of a packet, in bytes.
    pub payload: u64,
    /// Number of packets into which the file is divided.
    pub packets: u64,
}

impl Channel {
    /// Returns the seconds the link is busy with a packet of `payload` bytes.
    #[must_use]
    pub fn busy(&self, payload: u64) -> f64 {
        let packet = usize::try_from(payload + IP_UDP_BYTES).unwrap_or(usize::MAX);
        self.per_packet + 8.0 * self.framing.framed_len(packet) as f64 / self.rate_bps
    }

    /// Returns the expected time of a sender that detects each loss at once, with `payload` bytes
    /// per packet: D + K·Tp / (1 − p), the last packet being as short as possible.
    #[must_use]
    pub fn genie(&self, file: u64, payload: u64) -> f64 {
        let sends = |payload| {
            let p = self.loss.probability(payload);
            if p < 1.0 { 1.0 / (1.0 - p) } else { f64::INFINITY }
        };
        let full = file / payload;
        let rest = file % payload;
        let mut seconds = 0.0;
        if full > 0 {
            seconds += full as f64 * self.busy(payload) * sends(payload);
        }
        if rest > 0 || full == 0 {
            seconds += self.busy(rest) * sends(rest);
        }
        if self.first_bit {
            // There is no wait for the end of the last packet, which is at most a full one.
            seconds -= self.busy(if full > 0 { payload } else { rest });
        }
        self.delay + seconds.max(0.0)
    }

    /// Returns the bound: [`Channel::genie`] minimised over payloads from 1 byte to `payload_max`.
    #[must_use]
    pub fn bound(&self, file: u64, payload_max: u64) -> Bound {
        let best = (1..=payload_max.max(1))
            .map(|payload| (self.genie(file, payload), payload))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .expect("the range holds at least one payload");
        Bound { seconds: best.0, payload: best.1, packets: file.div_ceil(best.1).max(1) }
    }

    /// Returns the expected bytes on the line, framing included, per byte of the file: of a sender
    /// that sends no packet more than [`Channel::genie`].
    #[must_use]
    pub fn spent(&self, file: u64, payload: u64) -> f64 {
        let sent = |payload: u64| {
            let packet = usize::try_from(payload + IP_UDP_BYTES).unwrap_or(usize::MAX);
            let p = self.loss.probability(payload).min(1.0);
            self.framing.framed_len(packet) as f64 / (1.0 - p)
        };
        let (full, rest) = (file / payload.max(1), file % payload.max(1));
        let rest = if rest > 0 { sent(rest) } else { 0.0 };
        (full as f64 * sent(payload) + rest) / file.max(1) as f64
    }

    /// Returns the bits per second of packets that arrive, R·(1 − p), with `payload` bytes per
    /// packet.
    #[must_use]
    pub fn capacity(&self, payload: u64) -> f64 {
        self.rate_bps * (1.0 - self.loss.probability(payload))
    }
}

/// Returns the most efficient payload, in bits, under a bit error rate `ber` with `overhead_bits`
/// per packet: the root of x² + h·x = h / b, near sqrt(h / b).
#[must_use]
pub fn best_payload_bits(overhead_bits: f64, ber: f64) -> f64 {
    // d/dx of (x + h) / x · (1 − b)^−(x + h) vanishes where x² + h·x = h / −ln(1 − b).
    let rate = -(-ber).ln_1p();
    (overhead_bits.powi(2) / 4.0 + overhead_bits / rate).sqrt() - overhead_bits / 2.0
}

/// Returns E(N), the expected rounds until `packets` independent packets have all arrived when
/// each round repeats the missing ones: Σ_{n≥0} [1 − (1 − p^n)^K].
#[must_use]
pub fn expected_rounds(packets: f64, p: f64) -> f64 {
    if packets <= 0.0 {
        return 0.0;
    }
    if p >= 1.0 {
        return f64::INFINITY;
    }
    let mut sum = 1.0;
    let mut power = p;
    // The remainder is below 1e-12 · p / (1 − p).
    while packets * power > 1e-12 {
        sum += -(packets * (-power).ln_1p()).exp_m1();
        power *= p;
    }
    sum
}

/// Returns P(N ≤ n) = (1 − p^n)^K: the probability that `rounds` rounds are enough.
#[must_use]
pub fn rounds_enough(packets: f64, p: f64, rounds: i32) -> f64 {
    (packets * (-p.powi(rounds)).ln_1p()).exp()
}

/// A file cut into packets, on a link: parameters of the retransmission formulas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Packets, K.
    pub packets: f64,
    /// Seconds the link is busy with one packet, Tp.
    pub busy: f64,
    /// One-way delay in seconds, D.
    pub delay: f64,
    /// Probability of losing one packet, p.
    pub p: f64,
}

impl Transfer {
    /// D + K·Tp / (1 − p).
    #[must_use]
    pub fn bound(&self) -> f64 {
        self.delay + self.packets * self.busy / (1.0 - self.p)
    }

    /// Returns the expected time with reports after the last packet of each round (deferred NAK): D
    /// + K·Tp / (1 − p) + 2D·(E(N) − 1).
    #[must_use]
    pub fn deferred_nak(&self) -> f64 {
        self.bound() + 2.0 * self.delay * (expected_rounds(self.packets, self.p) - 1.0)
    }

    /// Returns the expected time with a report as soon as a gap is detected (immediate NAK): only
    /// the packets of the last round trip, W = min(K, 2D / Tp), can need further rounds.
    #[must_use]
    pub fn immediate_nak(&self) -> f64 {
        let window = self.packets.min(2.0 * self.delay / self.busy);
        let rounds = expected_rounds(window, self.p).max(1.0);
        self.bound() + 2.0 * self.delay * (rounds - 1.0)
    }

    /// Returns the packets that an ideal erasure code sends to complete with `probability` without
    /// feedback: n = [K + z·sqrt(K·p)] / (1 − p).
    #[must_use]
    pub fn coded_packets(&self, probability: f64) -> f64 {
        let z = normal_quantile(probability);
        (self.packets + z * (self.packets * self.p).sqrt()) / (1.0 - self.p)
    }

    /// Returns the time to complete with `probability` under an ideal erasure code: D + n·Tp.
    #[must_use]
    pub fn coded(&self, probability: f64) -> f64 {
        self.delay + self.coded_packets(probability) * self.busy
    }
}

/// Returns z with Φ(z) = `probability`.
#[must_use]
pub fn normal_quantile(probability: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    // 80 / 2^64 is below the spacing of floats near any result of interest.
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if libm::erfc(-middle / SQRT_2) / 2.0 < probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// Returns the expected transmissions of one packet until `receivers` independent receivers all
/// have it, with unicast repair: Σ_{n≥0} [1 − (1 − p^n)^M].
#[must_use]
pub fn multicast_transmissions(receivers: f64, p: f64) -> f64 {
    expected_rounds(receivers, p)
}

/// Returns the expected losses of the worst of `receivers` receivers in a block of `packets`
/// packets, which parity repair must cover: E[max of M Binomial(n, p)] = Σ_{j≥0} [1 − P(X ≤ j)^M].
#[must_use]
pub fn multicast_worst_losses(receivers: f64, packets: u32, p: f64) -> f64 {
    if p <= 0.0 {
        return 0.0;
    }
    if p >= 1.0 {
        return f64::from(packets);
    }
    let n = f64::from(packets);
    let mut log_mass = n * (-p).ln_1p();
    let mut at_most = log_mass.exp();
    let mut sum = 0.0;
    for lost in 0..packets {
        sum += 1.0 - at_most.min(1.0).powf(receivers);
        let j = f64::from(lost);
        log_mass += ((n - j) / (j + 1.0)).ln() + p.ln() - (-p).ln_1p();
        at_most += log_mass.exp();
    }
    sum
}

/// Random backoff of receivers before a repair request (RFC 5401 §4.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Maximum wait in seconds.
    pub most: f64,
    /// Size of the group as announced to receivers.
    pub group: f64,
    /// Seconds until a receiver receives another's request.
    pub delay: f64,
}

impl Backoff {
    /// Returns F(t), the probability that a wait has ended by t: (e^(λt/T) − 1) / (e^λ − 1) with λ
    /// = ln(group) + 1.
    #[must_use]
    pub fn over_by(&self, t: f64) -> f64 {
        let lambda = self.group.max(1.0).ln() + 1.0;
        ((lambda * t / self.most).exp_m1() / lambda.exp_m1()).clamp(0.0, 1.0)
    }

    /// Returns the wait with F(t) = `probability`.
    #[must_use]
    pub fn wait(&self, probability: f64) -> f64 {
        let lambda = self.group.max(1.0).ln() + 1.0;
        self.most / lambda * (probability * lambda.exp_m1()).ln_1p()
    }

    /// Returns the expected repair requests for a block of `packets` packets, of which each of
    /// `receivers` receivers independently loses each with probability p. A receiver that lacks n
    /// packets sends a request unless it received an equal request of another receiver before its
    /// wait ended: M · Σ_n P(X = n) · ∫ f(t) · [1 − P(X ≥ n) · F(t − c)]^(M − 1) dt. For a loss
    /// shared by all, where P(X ≥ 1) is 1, it is the count of Nonnenmacher and Biersack.
    #[must_use]
    pub fn requests(&self, receivers: f64, packets: u32, p: f64) -> f64 {
        const STEPS: u32 = 2000;
        let masses = binomial(packets, p);
        let mut at_least = 1.0 - masses.first().copied().unwrap_or(1.0);
        let mut sum = 0.0;
        for mass in masses.into_iter().skip(1) {
            let alone = (0..STEPS).map(|step| {
                let wait = self.wait((f64::from(step) + 0.5) / f64::from(STEPS));
                (1.0 - at_least * self.over_by(wait - self.delay)).powf(receivers - 1.0)
            });
            sum += mass * alone.sum::<f64>() / f64::from(STEPS);
            at_least = (at_least - mass).max(0.0);
        }
        receivers * sum
    }
}

/// P(X = j) of X Binomial(n, p), for j from 0 to n.
fn binomial(n: u32, p: f64) -> Vec<f64> {
    if p <= 0.0 || p >= 1.0 {
        let certain = if p > 0.0 { n } else { 0 };
        return (0..=n).map(|j| f64::from(u32::from(j == certain))).collect();
    }
    let mut log_mass = f64::from(n) * (-p).ln_1p();
    let mut masses = vec![log_mass.exp()];
    for j in 0..n {
        log_mass += (f64::from(n - j) / f64::from(j + 1)).ln() + p.ln() - (-p).ln_1p();
        masses.push(log_mass.exp());
    }
    masses
}

/// Returns the probability of having received `packets` packets after n were sent, each lost with
/// probability p < 1, for n = K, K + 1 and so on: an ideal erasure code then completes the file.
/// P(N ≤ n), where P(N = n) = C(n − 1, K − 1)·(1 − p)^K·p^(n − K). Ends where the remainder is
/// below 1e-12.
pub(crate) fn coded_completion(packets: f64, p: f64) -> impl Iterator<Item = (f64, f64)> {
    let mut n = packets;
    let mut log_mass = packets * (-p).ln_1p();
    let mut whole = log_mass.exp();
    let mut over = false;
    std::iter::from_fn(move || {
        if over {
            return None;
        }
        let sent = n;
        // Rounding may keep the sum from reaching 1: far above the mean of K / (1 − p) it is 1.
        let far = (n - packets / (1.0 - p)) * (1.0 - p) > 60.0 + 40.0 * (packets * p).sqrt();
        over = whole > 1.0 - 1e-12 || far;
        let now = if over { 1.0 } else { whole };
        log_mass += p.ln() + n.ln() - (n - packets + 1.0).ln();
        whole += log_mass.exp();
        n += 1.0;
        Some((sent, now))
    })
}

/// Returns the expected packets that a sender with an ideal erasure code sends until `receivers`
/// independent receivers have the file: E[max of M N], where N is the number until one receiver
/// has K. Every packet that arrives repairs any loss of its receiver, so no scheme that
/// retransmits or codes for all of them needs fewer.
#[must_use]
pub fn multicast_coded_transmissions(receivers: f64, packets: f64, p: f64) -> f64 {
    if p >= 1.0 {
        return f64::INFINITY;
    }
    packets
        + coded_completion(packets, p).map(|(_, whole)| 1.0 - whole.powf(receivers)).sum::<f64>()
}

/// Returns the bits per second of a window-limited TCP connection.
#[must_use]
pub fn tcp_window_limited(window_bytes: f64, rtt: f64) -> f64 {
    8.0 * window_bytes / rtt
}

/// Returns the bits per second of Reno under random loss: about 1.22·MSS / (RTT·sqrt p).
#[must_use]
pub fn tcp_reno(mss_bytes: f64, rtt: f64, p: f64) -> f64 {
    8.0 * 1.5_f64.sqrt() * mss_bytes / (rtt * p.sqrt())
}

/// Returns CUBIC's average window in segments: 1.054·(RTT / p)^0.75 (RFC 9438 §5.1, C = 0.4, β =
/// 0.7).
#[must_use]
pub fn tcp_cubic_window(rtt: f64, p: f64) -> f64 {
    const C: f64 = 0.4;
    const BETA: f64 = 0.7;
    (C * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25) * (rtt / p).powf(0.75)
}

/// Returns the round trips of slow start from an initial window to `window`, both in segments:
/// log2(W / IW).
#[must_use]
pub fn tcp_slow_start_rounds(initial_window: f64, window: f64) -> f64 {
    (window / initial_window).log2().max(0.0)
}

/// Returns the time over two equal hops if the relay stores the whole file first: 2·K·Tp and the
/// delays.
#[must_use]
pub fn relay_store_and_forward(packets: f64, busy: f64, delays: f64) -> f64 {
    2.0 * packets * busy + delays
}

/// Returns the time over two equal hops if the relay forwards each packet at once: (K + 1)·Tp and
/// the delays.
#[must_use]
pub fn relay_cut_through(packets: f64, busy: f64, delays: f64) -> f64 {
    (packets + 1.0) * busy + delays
}

/// Returns the duration of NORM's end of transmission: `robust_factor` flushes (20 by default, RFC
/// 5740 §5.1), 2·GRTT apart.
#[must_use]
pub fn norm_end_phase(robust_factor: u32, grtt: f64) -> f64 {
    f64::from(robust_factor) * 2.0 * grtt
}
