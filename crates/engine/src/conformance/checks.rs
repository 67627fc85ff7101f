//! The checks: the worlds they run and the outcomes they require.

use std::time::Duration;

use super::plan::{Fault, Faults, Interruption, Plan, corrupt};
use super::progress::Progress;
use super::world::{Outcome, Sent, World};
use super::{Broken, Check, Options, Role, Rule, Subject, Verdict, broken};
use crate::{PathKind, Rng};

/// State shared by all checks.
struct Suite<'a, S: Subject> {
    subject: &'a S,
    options: &'a Options,
    progress: &'a Progress,
}

/// Runs one check.
pub(super) fn run<S: Subject>(
    subject: &S,
    options: &Options,
    check: Check,
    progress: &Progress,
) -> Result<(), Broken> {
    let suite = Suite { subject, options, progress };
    match check {
        Check::Clean => suite.arrives(suite.clean()).map(|_| ()),
        Check::SameSeed => suite.same_seed(),
        Check::SpuriousTimeout => suite.spurious_timeout(),
        Check::LateTimeout => suite.late_timeout(),
        Check::Batches => suite.batches(),
        Check::SlowStore => suite.slow_store(),
        Check::EachDatagram => suite.each_datagram(),
        Check::ManyDatagrams => suite.many_datagrams(),
        Check::Interruptions => suite.interruptions(),
        Check::EachEffect => suite.each_effect(),
        Check::Restarts => suite.restarts(),
        Check::Mixtures => suite.mixtures(),
        Check::ArbitraryBytes => suite.arbitrary_bytes(),
        Check::Flood => suite.flood(),
    }
}

impl<'a, S: Subject> Suite<'a, S> {
    fn clean(&self) -> Plan {
        Plan::clean(self.options.seed)
    }

    fn seeds(&self) -> impl Iterator<Item = u64> + use<S> {
        let first = self.options.seed;
        (0..self.options.runs).map(move |run| first.wrapping_add(run))
    }

    fn world(&self, plan: Plan) -> Result<World<'a, S>, Broken> {
        World::new(self.subject, self.options, self.progress, plan)
    }

    /// Runs a transfer that must end with a verdict at the sender.
    fn ends(&self, plan: Plan) -> Result<Outcome, Broken> {
        let mut world = self.world(plan)?;
        world.start()?;
        let outcome = world.finish()?;
        if outcome.verdicts[Role::Sender as usize].is_empty() {
            return broken(Rule::TransferEnds, "the sender is idle and gave no verdict");
        }
        Ok(outcome)
    }

    /// Runs a transfer that must succeed.
    fn arrives(&self, plan: Plan) -> Result<Outcome, Broken> {
        let outcome = self.ends(plan)?;
        if let Err(wrong) = &outcome.right {
            return broken(Rule::Arrives, format!("{wrong}; {:?}", outcome.verdicts));
        }
        for role in Role::BOTH {
            if !outcome.has(role, Verdict::Delivered) && !outcome.has(role, Verdict::Unconfirmed) {
                let verdicts = &outcome.verdicts[role as usize];
                return broken(Rule::Arrives, format!("but {role:?} reports {verdicts:?}"));
            }
        }
        Ok(outcome)
    }

    /// Runs a transfer that must end, and succeed if the protocol is reliable.
    fn arrives_if_reliable(&self, plan: Plan) -> Result<Outcome, Broken> {
        if self.subject.is_reliable() { self.arrives(plan) } else { self.ends(plan) }
    }

    /// Returns the positions of `count` at which a check acts.
    fn positions(&self, count: u64) -> Vec<u64> {
        let most = self.options.positions.max(4);
        if count <= most {
            return (0..count).collect();
        }
        // A quarter of the positions is at either end, where transfers begin and end; the rest is
        // spread evenly between.
        let edge = most / 4;
        let inner = most - 2 * edge;
        let between = (0..inner).map(|i| edge + i * (count - 2 * edge) / inner);
        (0..edge).chain(between).chain(count - edge..count).collect()
    }

    fn same_seed(&self) -> Result<(), Broken> {
        for seed in self.seeds().take(4) {
            let plan = Plan { faults: Faults::Random(0.1), ..Plan::clean(seed) };
            let (first, second) = (self.ends(plan.clone())?, self.ends(plan)?);
            same(Rule::SameSeed, &first, &second)?;
        }
        Ok(())
    }

    fn spurious_timeout(&self) -> Result<(), Broken> {
        let clean = self.clean();
        let lossy = Plan { faults: Faults::Random(0.1), ..self.clean() };
        let slow = Plan { store_latency: Duration::from_millis(30), ..self.clean() };
        for plan in [clean, lossy, slow] {
            let without = self.ends(plan.clone())?;
            let with = self.ends(Plan { spurious: true, ..plan })?;
            same(Rule::SpuriousTimeout, &without, &with)?;
        }
        Ok(())
    }

    fn late_timeout(&self) -> Result<(), Broken> {
        for seed in self.seeds() {
            let late = Duration::from_secs(2);
            self.arrives(Plan { late, ..Plan::clean(seed) })?;
            self.ends(Plan { late, faults: Faults::Random(0.1), ..Plan::clean(seed) })?;
        }
        Ok(())
    }

    fn batches(&self) -> Result<(), Broken> {
        let single = self.arrives(Plan { batch_tx: 1, batch_rx: 1, ..self.clean() })?;
        for (batch_tx, batch_rx) in [(64, 1), (1, 64), (64, 64), (3, 2)] {
            let outcome = self.arrives(Plan { batch_tx, batch_rx, ..self.clean() })?;
            for role in Role::BOTH {
                let verdicts = |outcome: &Outcome| -> Vec<_> {
                    outcome.verdicts[role as usize].iter().map(|(_, verdict)| *verdict).collect()
                };
                let (one, many) = (verdicts(&single), verdicts(&outcome));
                if one != many {
                    let detail = format!("{role:?}: one by one {one:?}, in batches {many:?}");
                    return broken(Rule::BatchOutcome, detail);
                }
                // Nothing was lost, so a batch must not cause retransmissions; 10 % is the margin
                // for timing differences.
                let (one, many) = (single.count(role), outcome.count(role));
                if many > one + one / 10 + 2 {
                    let detail = format!("{role:?}: one by one {one} datagrams, in batches {many}");
                    return broken(Rule::BatchOutcome, detail);
                }
            }
            for (batch_tx, batch_rx) in [(batch_tx, batch_rx), (1, 1)] {
                let faults = Faults::Random(0.1);
                self.ends(Plan { batch_tx, batch_rx, faults, ..self.clean() })?;
            }
        }
        Ok(())
    }

    fn slow_store(&self) -> Result<(), Broken> {
        for millis in [1, 45, 700] {
            let store_latency = Duration::from_millis(millis);
            self.arrives_if_reliable(Plan { store_latency, ..self.clean() })?;
            self.ends(Plan { store_latency, faults: Faults::Random(0.1), ..self.clean() })?;
        }
        Ok(())
    }

    fn each_datagram(&self) -> Result<(), Broken> {
        let clean = self.arrives(self.clean())?;
        for from in Role::BOTH {
            for index in self.positions(clean.count(from)) {
                for fault in Fault::EACH {
                    let faults = Faults::One { from, index, fault };
                    self.arrives_if_reliable(Plan { faults, ..self.clean() })?;
                }
                for seed in self.seeds().take(4) {
                    let faults = Faults::One { from, index, fault: Fault::Corrupt(seed) };
                    let plan = Plan { faults, batch_tx: 64, batch_rx: 64, ..Plan::clean(seed) };
                    self.arrives_if_reliable(plan)?;
                }
            }
        }
        Ok(())
    }

    fn many_datagrams(&self) -> Result<(), Broken> {
        for seed in self.seeds() {
            for p in [0.02, 0.1, 0.3, 0.7] {
                let faults = Faults::Random(p);
                let store_latency = Duration::from_millis(seed % 3 * 40);
                let batch_rx = if seed % 2 == 0 { 1 } else { 16 };
                self.ends(Plan { faults, store_latency, batch_rx, ..Plan::clean(seed) })?;
            }
        }
        // A link that lets nothing through: the user must be notified nevertheless.
        let faults = Faults::Random(1.0);
        self.ends(Plan { faults, ..self.clean() }).map(|_| ())
    }

    fn interruptions(&self) -> Result<(), Broken> {
        let clean = self.arrives(self.clean())?;
        for at in self.positions(clean.events + 1) {
            for outage in [Duration::from_millis(20), Duration::from_secs(3)] {
                let interruption = Some((at, Interruption::Outage(outage)));
                self.ends(Plan { interruption, ..self.clean() })?;
            }
            let interruption = Some((at, Interruption::Outage(Duration::from_secs(7_200))));
            self.ends(Plan { interruption, ..self.clean() })?;
            for role in Role::BOTH {
                for outage in [3, 7_200].map(Duration::from_secs) {
                    let interruption = Some((at, Interruption::ReturnOutage(role, outage)));
                    self.ends(Plan { interruption, ..self.clean() })?;
                }
                for block in [Duration::from_millis(20), Duration::from_secs(3)] {
                    let interruption = Some((at, Interruption::Block(role, block)));
                    self.arrives_if_reliable(Plan { interruption, ..self.clean() })?;
                }
            }
        }
        Ok(())
    }

    fn each_effect(&self) -> Result<(), Broken> {
        let clean = self.arrives(self.clean())?;
        for role in Role::BOTH {
            for index in self.positions(clean.effects[role as usize]) {
                let effect_fails = Some((role, index));
                self.ends(Plan { effect_fails, ..self.clean() })?;
                let store_latency = Duration::from_millis(30);
                self.ends(Plan { effect_fails, store_latency, ..self.clean() })?;
            }
        }
        Ok(())
    }

    fn restarts(&self) -> Result<(), Broken> {
        let clean = self.arrives(self.clean())?;
        for role in Role::BOTH {
            if !self.subject.survives_restart(role) {
                continue;
            }
            for at in self.positions(clean.events + 1) {
                let interruption = Some((at, Interruption::Restart(role)));
                for millis in [0, 30] {
                    let store_latency = Duration::from_millis(millis);
                    self.arrives(Plan { interruption, store_latency, ..self.clean() })?;
                }
            }
        }
        Ok(())
    }

    fn mixtures(&self) -> Result<(), Broken> {
        let clean = self.arrives(self.clean())?;
        for seed in self.seeds() {
            let mut rng = Rng::new(seed, "mixture");
            for _ in 0..4 {
                self.ends(self.mixture(seed, &mut rng, &clean))?;
            }
        }
        Ok(())
    }

    fn mixture(&self, seed: u64, rng: &mut Rng, clean: &Outcome) -> Plan {
        let role = Role::BOTH[rng.below(2) as usize];
        let time = Duration::from_nanos(rng.below(8_000_000_000));
        let interruption = match rng.below(5) {
            0 => Some(Interruption::Outage(time)),
            1 => Some(Interruption::Block(role, time)),
            2 if self.subject.survives_restart(role) => Some(Interruption::Restart(role)),
            3 => Some(Interruption::ReturnOutage(role, time)),
            _ => None,
        };
        // Faults make a run longer than the clean one, so some of them are placed after the clean
        // run's end.
        let interruption = interruption.map(|what| (rng.below(2 * clean.events + 1), what));
        let effect = rng.below(clean.effects[role as usize] + 1);
        Plan {
            faults: Faults::Random(rng.unit() * 0.3),
            interruption,
            effect_fails: rng.chance(0.2).then_some((role, effect)),
            batch_tx: 1 + rng.below(64) as usize,
            batch_rx: 1 + rng.below(64) as usize,
            store_latency: Duration::from_millis(rng.below(3) * rng.below(200)),
            late: Duration::from_millis(rng.below(2) * rng.below(1_000)),
            ..Plan::clean(seed)
        }
    }

    fn arbitrary_bytes(&self) -> Result<(), Broken> {
        let corpus = self.ends(self.clean())?.sent;
        for (run, seed) in self.seeds().enumerate() {
            let mut mutator = Mutator::new(self.subject.path().kind, &corpus, seed);
            let mut world = self.world(Plan { hostile: true, ..Plan::clean(seed) })?;
            // The bytes arrive before, during or after a transfer, in turn.
            if run % 3 == 0 {
                self.fuzz(&mut world, &mut mutator, self.options.fuzz)?;
            }
            world.start()?;
            let mut left = self.options.fuzz;
            while run % 3 == 1 && left > 0 && world.step()? {
                let now = left.min(8);
                self.fuzz(&mut world, &mut mutator, now)?;
                left -= now;
            }
            if run % 3 == 2 {
                world.pass(Duration::from_secs(60))?;
                self.fuzz(&mut world, &mut mutator, self.options.fuzz)?;
            }
            world.finish()?;
        }
        Ok(())
    }

    fn fuzz(
        &self,
        world: &mut World<'a, S>,
        mutator: &mut Mutator<'_>,
        count: u64,
    ) -> Result<(), Broken> {
        for _ in 0..count {
            for role in Role::BOTH {
                let bytes = mutator.next();
                let stride = mutator.stride(bytes.len());
                world.inject(role, stride, &bytes)?;
            }
        }
        world.pass(Duration::from_millis(10))
    }

    fn flood(&self) -> Result<(), Broken> {
        let corpus = self.ends(self.clean())?.sent;
        // The flood arrives without time in between, so that no timer expires; with time in
        // between; and while no reply can be sent.
        let cases =
            [(Duration::ZERO, false), (Duration::from_millis(1), false), (Duration::ZERO, true)];
        for (between, blocked) in cases {
            let mut mutator = Mutator::new(self.subject.path().kind, &corpus, self.options.seed);
            let mut world = self.world(Plan { hostile: true, ..self.clean() })?;
            if blocked {
                for role in Role::BOTH {
                    world.block(role, Duration::from_secs(60))?;
                }
            }
            for n in 0..self.options.flood {
                let mut datagrams = self.subject.opening(n);
                datagrams.push(mutator.next().into());
                for bytes in datagrams {
                    world.inject(Role::Receiver, bytes.len(), &bytes)?;
                }
                world.inject(Role::Sender, 0, &mutator.next())?;
                world.pass(between)?;
            }
            if world.sent().len() as u64 > self.options.flood.saturating_mul(64) {
                let sent = world.sent().len();
                return broken(Rule::BoundedMemory, format!("the flood made it send {sent}"));
            }
            // Transfers opened by the flood must end by themselves.
            world.finish()?;
        }
        Ok(())
    }
}

/// Compares two runs: they must send the same and reach the same verdicts, at the same times.
fn same(rule: Rule, one: &Outcome, other: &Outcome) -> Result<(), Broken> {
    let at = one.sent.iter().zip(&other.sent).position(|(a, b)| a != b);
    let at =
        at.or((one.sent.len() != other.sent.len()).then(|| one.sent.len().min(other.sent.len())));
    if let Some(at) = at {
        let show = |outcome: &Outcome| match outcome.sent.get(at) {
            Some(Sent { at, from, bytes }) => {
                format!("{from:?} at {at} s {} bytes {:02x?}", bytes.len(), head(bytes))
            }
            None => "nothing".to_owned(),
        };
        return broken(rule, format!("datagram {at}: {} against {}", show(one), show(other)));
    }
    if one.verdicts != other.verdicts {
        return broken(rule, format!("{:?} against {:?}", one.verdicts, other.verdicts));
    }
    Ok(())
}

fn head(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(24)]
}

/// Makes datagrams no peer would send: random ones, and modified real ones.
struct Mutator<'a> {
    rng: Rng,
    most: usize,
    corpus: &'a [Sent],
}

impl<'a> Mutator<'a> {
    fn new(kind: PathKind, corpus: &'a [Sent], seed: u64) -> Self {
        let most = match kind {
            PathKind::Datagram { mtu } => mtu,
            PathKind::Message { max } => max.min(65_535),
            PathKind::Stream => 4096,
        };
        Self { rng: Rng::new(seed, "mutator"), most, corpus }
    }

    fn real(&mut self) -> Vec<u8> {
        let at = self.rng.below(self.corpus.len() as u64) as usize;
        self.corpus.get(at).map(|sent| sent.bytes.to_vec()).unwrap_or_default()
    }

    fn next(&mut self) -> Vec<u8> {
        let mut bytes = match self.rng.below(8) {
            0 | 1 => {
                // Prefers short datagrams, which end within a header.
                let most = if self.rng.chance(0.5) { 32 } else { self.most as u64 + 1 };
                let mut bytes = vec![0; self.rng.below(most) as usize];
                self.rng.fill(&mut bytes);
                bytes
            }
            2..=6 => self.real(),
            _ => {
                let mut bytes = self.real();
                let cut = self.rng.below(bytes.len() as u64 + 1) as usize;
                bytes.truncate(cut);
                let other = self.real();
                bytes.extend(other.iter().skip(cut));
                bytes
            }
        };
        self.change(&mut bytes);
        bytes
    }

    /// Changes bytes within the first 64 more often than others, because the headers are there.
    fn change(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.rng.below(3) {
            let len = bytes.len() as u64;
            let reach = if self.rng.chance(0.7) { len.min(64) } else { len };
            let at = self.rng.below(reach) as usize;
            match self.rng.below(6) {
                0 => corrupt(bytes, &mut self.rng),
                1 if at < bytes.len() => bytes[at] = self.rng.next_u32() as u8,
                2 if at < bytes.len() => bytes[at] = if self.rng.chance(0.5) { 0xff } else { 0 },
                3 => bytes.truncate(at),
                4 if at < bytes.len() => {
                    let end = bytes.len().min(at + 8);
                    bytes[at..end].fill(0xff);
                }
                _ => {
                    let mut more = vec![0; self.rng.below(32) as usize];
                    self.rng.fill(&mut more);
                    bytes.extend(more);
                }
            }
        }
    }

    /// Returns a single datagram in most cases; sometimes a batch, with a stride that may not
    /// divide its length, or 0.
    fn stride(&mut self, len: usize) -> usize {
        if self.rng.chance(0.9) { len } else { self.rng.below(len as u64 + 8) as usize }
    }
}
