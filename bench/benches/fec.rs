//! Speed of encoding and decoding blocks: with the best path of this machine, the portable path,
//! and the crate `reed-solomon-erasure` with its vector instructions, which implements another
//! code.
//!
//! Throughput counts source data. Encoding computes all parity of a block, one segment at a time.
//! Decoding recovers a block that misses as many segments as it has parity, including the copy of
//! the received ones.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use engine::Rng;
use norm::fec::{Code, Decoder, Encoder, Field, Long, LongWork, Path, ReadColumns, SliceColumns};
use reed_solomon_erasure::galois_8::ReedSolomon;

/// Length of a segment, in bytes.
const SEGMENT: usize = 1_400;

type Group<'a> = BenchmarkGroup<'a, WallTime>;

fn segments(count: usize) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(1, "fec");
    let mut segments = vec![vec![0; SEGMENT]; count];
    for segment in &mut segments {
        rng.fill(segment);
    }
    segments
}

fn own(group: &mut Group<'_>, name: &str, code: &Code) {
    let source = segments(code.source());
    let Ok(mut encoder) = Encoder::new(code.clone(), SEGMENT) else { return };
    let Ok(mut decoder) = Decoder::new(code.clone(), SEGMENT) else { return };
    let mut encode = |to: &mut dyn FnMut(&[u8])| {
        encoder.reset();
        for (esi, segment) in (0..).zip(&source) {
            encoder.add(esi, segment);
        }
        (0..code.parity()).for_each(|row| to(encoder.parity(row)));
    };
    let mut parity = Vec::new();
    encode(&mut |symbol| parity.push(symbol.to_vec()));
    group.bench_function(format!("{name} encode"), |b| {
        b.iter(|| encode(&mut |symbol| _ = black_box(symbol)));
    });
    let all: Vec<&Vec<u8>> = source.iter().chain(&parity).collect();
    group.bench_function(format!("{name} decode"), |b| {
        b.iter(|| {
            decoder.start(code.source() as u16);
            for (esi, segment) in (0..).zip(&all).skip(code.parity()) {
                decoder.add(esi, segment);
            }
            black_box(decoder.recover())
        });
    });
}

/// The code of long blocks, with as many parity segments as are lost.
fn long(group: &mut Group<'_>, source: u16, lost: u16) {
    let positions = Long::positions(source, None);
    let Ok(code) = Long::new(source, positions, SEGMENT) else { return };
    let data = segments(source.into()).concat();
    let mut work = LongWork::default();
    let mut parity = vec![0; usize::from(lost) * SEGMENT];
    let mut encode = |parity: &mut [u8]| {
        let mut columns = ReadColumns::new(&data, SEGMENT);
        code.encode(&mut work, &mut columns, 0..lost, parity)
    };
    group.bench_function("long encode", |b| b.iter(|| black_box(encode(&mut parity))));
    let step = source / lost;
    let missing: Vec<u16> = (0..lost).map(|number| number * step).collect();
    let places: Vec<(u16, u16)> = (0..).zip(missing.iter().copied()).collect();
    let mut block = data.clone();
    let mut work = LongWork::default();
    group.bench_function("long decode", |b| {
        b.iter(|| {
            for (segment, place) in parity.chunks(SEGMENT).zip(&missing) {
                let at = usize::from(*place) * SEGMENT;
                block[at..at + SEGMENT].copy_from_slice(segment);
            }
            let mut columns = SliceColumns::new(&mut block, SEGMENT);
            black_box(code.recover(&mut work, &mut columns, &missing, &places))
        });
    });
}

/// Long blocks, of which a share is lost.
fn long_blocks(c: &mut Criterion) {
    for (source, lost) in [(689, 7), (6_888, 69), (6_888, 689), (23_109, 231)] {
        let mut group = c.benchmark_group(format!("{source} without {lost}"));
        group.throughput(Throughput::Bytes(u64::from(source) * SEGMENT as u64));
        group.sample_size(10).measurement_time(Duration::from_millis(500));
        group.warm_up_time(Duration::from_millis(200));
        long(&mut group, source, lost);
        group.finish();
    }
}

fn other(group: &mut Group<'_>, source: usize, parity: usize) {
    let Ok(code) = ReedSolomon::new(source, parity) else { return };
    let mut all = segments(source + parity);
    group.bench_function("reed-solomon-erasure encode", |b| {
        b.iter(|| black_box(code.encode(&mut all)));
    });
    let mut arrived: Vec<Option<Vec<u8>>> = all.into_iter().map(Some).collect();
    group.bench_function("reed-solomon-erasure decode", |b| {
        b.iter(|| {
            arrived[..parity].fill(None);
            black_box(code.reconstruct_data(&mut arrived))
        });
    });
}

fn blocks(c: &mut Criterion) {
    let sizes = [(Field::Gf8, 20, 4), (Field::Gf8, 64, 16), (Field::Gf8, 196, 59)];
    for (field, source, parity) in sizes.into_iter().chain([(Field::Gf16, 1_000, 200)]) {
        let mut group = c.benchmark_group(format!("{source}+{parity}"));
        group.throughput(Throughput::Bytes((source * SEGMENT) as u64));
        group.sample_size(10).measurement_time(Duration::from_millis(500));
        group.warm_up_time(Duration::from_millis(200));
        for (name, path) in [("best", Path::best()), ("portable", Path::Portable)] {
            if let Ok(code) = Code::with_path(field, source, parity, path) {
                own(&mut group, name, &code);
            }
        }
        if field == Field::Gf8 {
            other(&mut group, source, parity);
        }
        group.finish();
    }
}

criterion_group!(benches, blocks, long_blocks);
criterion_main!(benches);
