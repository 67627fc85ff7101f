//! Comparison of the code of long blocks with the library's, and recovery from losses.

use engine::Rng;
use proptest::prelude::*;
use reed_solomon_simd::engine::NoSimd;
use sha2::{Digest as _, Sha256};

use super::*;

fn random_bytes(rng: &mut Rng, length: usize) -> Vec<u8> {
    (0..length).map(|_| rng.below(256) as u8).collect()
}

/// Parity rows of a code of symbols that are one behind the other in `data`.
fn rows(code: Long, data: &[u8], rows: Range<u16>) -> Vec<u8> {
    let mut made = vec![0; rows.len() * code.symbol_len()];
    let mut source = ReadColumns::new(data, code.symbol_len());
    code.encode(&mut LongWork::default(), &mut source, rows, &mut made).expect("there are rows");
    made
}

/// Rows computed by the library, for the number of rows that it is to compute.
fn library(code: Long, data: &[u8], count: usize) -> Vec<u8> {
    let len = code.symbol_len();
    let source = usize::from(code.source);
    let encoder = HighRateEncoder::new(source, count, len, NoSimd::new(), None);
    let mut encoder = encoder.expect("there is such a code");
    let mut padded = data.to_vec();
    padded.resize(source * len, 0);
    padded.chunks(len).for_each(|it| encoder.add_original_shard(it).expect("it has the length"));
    let made = encoder.encode().expect("all symbols are there");
    made.recovery_iter().flatten().copied().collect()
}

#[test]
fn rows_are_those_of_the_library() {
    let mut rng = Rng::new(1, "long");
    for (source, len) in [(1, 2), (11, 300), (689, 64), (2_000, 130)] {
        let parity = Long::positions(source, None);
        let code = Long::new(source, parity, len).expect("there is such a code");
        let data = random_bytes(&mut rng, usize::from(source) * len - 1);
        let all = rows(code, &data, 0..parity);
        for count in [usize::from(parity) / 2 + 1, usize::from(parity)] {
            assert!(library(code, &data, count) == all[..count * len], "{source}, {count}");
        }
        let some = rows(code, &data, 3..9);
        assert!(some == all[3 * len..9 * len], "{source}");
    }
}

/// First bytes of the SHA-256 of parity. If they change, releases cannot read each other's parity.
#[test]
fn the_code_stays_the_same() {
    let known = [
        (1, 64, 2, "fd5efce7"),
        (11, 64, 30, "40ee4863"),
        (689, 1_024, 62, "15a11ac9"),
        (6_888, 8_192, 4, "dd369d07"),
        (23_109, 8_192, 2, "34d11b71"),
    ];
    let found = known.map(|(source, parity, len, _)| {
        let code = Long::new(source, parity, len).expect("there is such a code");
        let mut rng = Rng::new(source.into(), "golden");
        let data = random_bytes(&mut rng, usize::from(source) * len);
        let digest = Sha256::digest(rows(code, &data, 0..parity));
        digest[..4].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    });
    assert_eq!(known.map(|(_, _, _, digest)| digest.to_owned()), found);
}

#[test]
fn stripes_do_not_change_the_code() {
    let mut rng = Rng::new(2, "long");
    let whole = Long::new(300, 128, 402).expect("there is such a code");
    let data = random_bytes(&mut rng, 300 * 402);
    let parity = rows(whole, &data, 0..128);
    // 512 symbols are recovered together, 384 are encoded.
    for memory in [0, 64 * 512, 200 * 512] {
        let code = whole.with_stripe_memory(memory);
        assert!(rows(code, &data, 0..128) == parity, "{memory}");
        let mut block = data.clone();
        let missing: Vec<u16> = (0..300).filter(|at| at % 3 == 0).collect();
        let places: Vec<_> = (20..120).zip(missing.iter().rev().copied()).collect();
        for (row, place) in &places {
            let (row, place) = (usize::from(*row) * 402, usize::from(*place) * 402);
            block[place..place + 402].copy_from_slice(&parity[row..row + 402]);
        }
        let mut columns = SliceColumns::new(&mut block, 402);
        let recovered = code.recover(&mut LongWork::default(), &mut columns, &missing, &places);
        assert_eq!(recovered, Ok(()));
        assert!(block == data, "{memory}");
        assert!(code.memory() <= memory.max(64 * 512), "{memory}");
    }
}

#[test]
fn impossible_codes_are_refused() {
    assert_eq!(Long::check(0, 1), Err(CodeError::NoSource));
    for (source, parity) in [(1, 0), (1, 3), (65_535, 1), (32_768, 32_768), (65_000, 1_024)] {
        assert!(matches!(Long::check(source, parity), Err(CodeError::TooLong { .. })));
    }
    assert_eq!(Long::check(65_534, 1), Ok(()));
    for len in [0, 1, 1_451] {
        assert_eq!(Long::new(1, 1, len), Err(CodeError::SymbolLength(len)));
    }
    for source in 1..=u16::MAX - 1 {
        for loss in [None, Some(0.0), Some(0.01), Some(0.5), Some(1.0)] {
            let parity = Long::positions(source, loss);
            assert_eq!(Long::check(source, parity), Ok(()), "{source} {parity}");
        }
    }
    let of = |source| Long::positions(source, None);
    let some = [1, 11, 689, 5_000, 6_888, 10_000, 13_775, 23_109, 24_576, 60_000].map(of);
    assert_eq!(some, [64, 64, 1_024, 8_192, 8_192, 16_384, 16_384, 32_768, 32_768, 4_096]);
    assert_eq!([0.01, 0.2].map(|loss| Long::positions(23_109, Some(loss))), [8_192, 32_768]);
}

#[test]
fn wrong_symbols_are_refused() {
    let code = Long::new(4, 4, 2).expect("there is such a code");
    let mut block = [0; 8];
    let mut recover = |missing: &[u16], parity: &[(u16, u16)]| {
        let mut columns = SliceColumns::new(&mut block, 2);
        code.recover(&mut LongWork::default(), &mut columns, missing, parity)
    };
    assert_eq!(recover(&[], &[]), Ok(()));
    assert_eq!(recover(&[1], &[]), Err(RecoverError { missing: 1, parity: 0 }.into()));
    assert_eq!(recover(&[4], &[(0, 1)]), Err(LongError::NoSymbol));
    assert_eq!(recover(&[1], &[(4, 1)]), Err(LongError::NoSymbol));
    assert_eq!(recover(&[1, 2], &[(3, 1), (3, 2)]), Err(LongError::NoSymbol));
    let mut source = ReadColumns::new(&[], 2);
    let mut out = [0; 2];
    for rows in [4..5, 0..2] {
        let made = code.encode(&mut LongWork::default(), &mut source, rows, &mut out);
        assert_eq!(made, Err(LongError::NoSymbol));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any `k` of the symbols recover a block, and fewer do not.
    #[test]
    fn as_many_symbols_as_the_block_has_recover_it(
        source in 1_u16..200,
        half in 1_usize..150,
        short in 0_usize..300,
        lost in 0.0..1.0,
        seed in any::<u64>(),
    ) {
        let len = 2 * half;
        let parity = Long::positions(source, None);
        let code = Long::new(source, parity, len).expect("there is such a code");
        let mut rng = Rng::new(seed, "long");
        let mut data = random_bytes(&mut rng, usize::from(source) * len);
        let end = data.len() - short.min(len - 1);
        data[end..].fill(0);
        let made = rows(code, &data[..end], 0..parity);
        let missing: Vec<u16> =
            (0..source).filter(|_| rng.below(1_000_000) as f64 / 1e6 < lost).collect();
        let mut order: Vec<u16> = (0..parity).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at as u64 + 1) as usize);
        }
        let mut block = data.clone();
        missing.iter().for_each(|it| block[usize::from(*it) * len..][..len].fill(0xa5));
        let places: Vec<_> = order.into_iter().zip(missing.iter().copied()).collect();
        for (row, place) in &places {
            let (from, to) = (usize::from(*row) * len, usize::from(*place) * len);
            block[to..to + len].copy_from_slice(&made[from..from + len]);
        }
        let mut work = LongWork::default();
        if let Some((_, fewer)) = places.split_last() {
            let mut columns = SliceColumns::new(&mut block, len);
            let result = code.recover(&mut work, &mut columns, &missing, fewer);
            prop_assert!(matches!(result, Err(LongError::TooFew(_))));
        }
        let mut columns = SliceColumns::new(&mut block, len);
        prop_assert_eq!(code.recover(&mut work, &mut columns, &missing, &places), Ok(()));
        prop_assert!(block == data);
    }
}
