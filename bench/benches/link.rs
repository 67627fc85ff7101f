//! Cost of a packet at several error rates: an error-free packet must cost no more at a bit error
//! rate of 1e-9 than at 0.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use engine::{Rng, Time};
use link::{Config, Delay, ErrorKind, ErrorModel, Fate, Framing, Link, Rate};

const PACKETS: u64 = 10_000;

/// 10 Mbit/s, 25 ms, Ethernet without FCS, as in the papers.
fn config(kind: ErrorKind) -> Config {
    Config {
        rate: Rate::Constant(10_000_000),
        framing: Framing::Ethernet { fcs: false, preamble: false, ifg: false },
        delay: Delay::Constant(Duration::from_millis(25)),
        errors: vec![ErrorModel::dropping(kind)],
        ..Config::default()
    }
}

/// A paced sender and a punctual driver: pushes every packet when the line is free, and pops it
/// when it is due. Returns how many arrived.
fn carry(link: &mut Link<u64>, start: Time) -> (u64, Time) {
    let mut delivered = 0;
    let mut now = start;
    for packet in 0..PACKETS {
        while let Some(at) = link.next().filter(|at| *at <= now) {
            delivered += u64::from(link.pop(at).is_some_and(|d| d.fate == Fate::Delivered));
        }
        if link.push(now, 1_052, packet).is_err() {
            return (delivered, now);
        }
        // 1,066 bytes at 10 Mbit/s.
        now += Duration::from_nanos(852_800);
    }
    (delivered, now)
}

fn packets(c: &mut Criterion) {
    let mut group = c.benchmark_group("packet");
    group.throughput(Throughput::Elements(PACKETS));
    group.sample_size(30).measurement_time(Duration::from_secs(1));
    group.warm_up_time(Duration::from_millis(300));
    for (name, kind) in [
        ("ber 0", ErrorKind::BitErrorRate(0.0)),
        ("ber 1e-9", ErrorKind::BitErrorRate(1e-9)),
        ("ber 1e-5", ErrorKind::BitErrorRate(1e-5)),
        ("per packet 1e-3", ErrorKind::PerPacket(1e-3)),
    ] {
        let Ok(mut link) = Link::new(config(kind), Rng::new(1, "link")) else { continue };
        let mut now = Time::ZERO;
        group.bench_function(name, |b| {
            b.iter(|| {
                let (delivered, end) = carry(&mut link, now);
                now = end;
                black_box(delivered)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, packets);
criterion_main!(benches);
