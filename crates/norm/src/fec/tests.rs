//! Comparison of the code with its definition, and recovery from every kind of loss.

use engine::Rng;
use proptest::prelude::*;

mod golden;

use super::field::Tables;
use super::*;

/// The generator matrix as L. Rizzo's codec makes it: a Vandermonde matrix whose upper square is
/// inverted, by elimination, and multiplied with its lower rows.
fn reference(field: Field, source: usize, parity: usize) -> Vec<Vec<u16>> {
    let tables = field.tables();
    let power = |row: usize, column: usize| match (row, column) {
        (0, column) => u16::from(column == 0),
        (row, column) => tables.exp((row as u64 - 1) * column as u64),
    };
    let mut rows: Vec<Vec<u16>> = (0..source)
        .map(|row| {
            let identity = (0..source).map(|column| u16::from(row == column));
            (0..source).map(|column| power(row, column)).chain(identity).collect()
        })
        .collect();
    for pivot in 0..source {
        let found = (pivot..source).find(|&row| rows[row][pivot] != 0).unwrap();
        rows.swap(pivot, found);
        let inverse = tables.order() - tables.log(rows[pivot][pivot]);
        let scaled: Vec<u16> =
            rows[pivot].iter().map(|&x| tables.mul(x, tables.exp(inverse))).collect();
        rows[pivot].clone_from(&scaled);
        for (_, row) in rows.iter_mut().enumerate().filter(|(row, _)| *row != pivot) {
            let factor = row[pivot];
            for (x, &y) in row.iter_mut().zip(&scaled) {
                *x ^= tables.mul(factor, y);
            }
        }
    }
    let product = |row: usize, column: usize| {
        (0..source).fold(0, |sum, inner| {
            sum ^ tables.mul(power(source + row, inner), rows[inner][source + column])
        })
    };
    (0..parity).map(|row| (0..source).map(|column| product(row, column)).collect()).collect()
}

fn random_bytes(rng: &mut Rng, length: usize) -> Vec<u8> {
    (0..length).map(|_| rng.below(256) as u8).collect()
}

/// The block's parity symbols, element by element.
fn slow_parity(code: &Code, segments: &[Vec<u8>], length: usize) -> Vec<Vec<u8>> {
    let (tables, step): (&Tables, usize) = (code.field().tables(), code.field().element_len());
    let element = |bytes: &[u8]| match bytes {
        [low, high] => u16::from_le_bytes([*low, *high]),
        [byte] => u16::from(*byte),
        other => panic!("{other:?}"),
    };
    (0..code.parity())
        .map(|row| {
            let mut sum = vec![0; length];
            for (esi, segment) in segments.iter().enumerate() {
                let mut padded = segment.clone();
                padded.resize(length, 0);
                for (to, from) in sum.chunks_mut(step).zip(padded.chunks(step)) {
                    let product = tables.mul(code.coefficient(esi, row), element(from));
                    for (to, from) in to.iter_mut().zip(product.to_le_bytes()) {
                        *to ^= from;
                    }
                }
            }
            sum
        })
        .collect()
}

#[test]
fn the_generator_is_the_vandermonde_matrix_made_systematic() {
    let sizes = [(1, 1), (1, 5), (2, 3), (3, 1), (4, 4), (20, 4), (64, 16), (196, 59), (10, 0)];
    for (source, parity) in sizes {
        for field in [Field::Gf8, Field::Gf16] {
            let code = Code::new(field, source, parity).unwrap();
            for (row, expected) in reference(field, source, parity).iter().enumerate() {
                for (esi, &expected) in expected.iter().enumerate() {
                    let found = code.coefficient(esi, row);
                    assert_eq!(found, expected, "{field:?} {source}+{parity} {row} {esi}");
                }
            }
        }
    }
}

#[test]
fn refuses_codes_with_too_few_points() {
    assert!(Code::new(Field::Gf8, 196, 59).is_ok());
    assert!(Code::new(Field::Gf8, 255, 0).is_ok());
    let too_long = CodeError::TooLong { source_symbols: 196, parity: 60, max: 255 };
    assert_eq!(Code::new(Field::Gf8, 196, 60).err(), Some(too_long));
    assert!(Code::new(Field::Gf16, 65_000, 535).is_ok());
    assert!(Code::new(Field::Gf16, 65_000, 536).is_err());
    assert!(Code::new(Field::Gf16, usize::MAX, 1).is_err());
    assert_eq!(Code::new(Field::Gf8, 0, 4).err(), Some(CodeError::NoSource));
    let code = Code::new(Field::Gf16, 4, 2).unwrap();
    assert_eq!(Encoder::new(code.clone(), 1_401).err(), Some(CodeError::SymbolLength(1_401)));
    assert_eq!(Decoder::new(code.clone(), 0).err(), Some(CodeError::SymbolLength(0)));
}

/// One block in a random code, of a random length, with random losses.
#[derive(Clone, Debug)]
struct Case {
    field: Field,
    path: Path,
    source: usize,
    parity: usize,
    block_len: usize,
    symbol_len: usize,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let field = prop_oneof![Just(Field::Gf8), Just(Field::Gf16)];
    let path = proptest::sample::select(Path::ALL.as_slice());
    (field, path, 1_usize..40, 0_usize..20, 1_usize..=40, 1_usize..300, any::<u64>()).prop_map(
        |(field, path, source, parity, block_len, symbol_len, seed)| Case {
            field,
            path,
            source,
            parity,
            block_len: block_len.min(source),
            symbol_len: symbol_len * field.element_len(),
            seed,
        },
    )
}

/// The block's segments, of which the last is short, and its parity symbols.
fn block(code: &Code, case: &Case, rng: &mut Rng) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let mut segments: Vec<Vec<u8>> =
        (0..case.block_len).map(|_| random_bytes(rng, case.symbol_len)).collect();
    segments[case.block_len - 1].truncate(1 + rng.below(case.symbol_len as u64) as usize);
    let parity = slow_parity(code, &segments, case.symbol_len);
    (segments, parity)
}

/// The numbers below `count` in a random order.
fn shuffled(count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, rng.below(last as u64 + 1) as usize);
    }
    order
}

proptest! {
    #[test]
    fn all_encoders_agree(case in cases()) {
        let rng = &mut Rng::new(case.seed, "fec");
        let code = Code::with_path(case.field, case.source, case.parity, case.path).unwrap();
        let (segments, expected) = block(&code, &case, rng);
        let mut encoder = Encoder::new(code.clone(), case.symbol_len).unwrap();
        encoder.add(0, &random_bytes(rng, case.symbol_len));
        encoder.reset();
        let looked_at = rng.below(case.block_len as u64) as usize;
        for (count, esi) in shuffled(case.block_len, rng).into_iter().enumerate() {
            encoder.add(esi as u16, &segments[esi]);
            if count == looked_at && case.parity > 0 {
                // More may be added after reading the parity so far.
                prop_assert_eq!(encoder.parity(0).len(), case.symbol_len);
            }
        }
        let mut run = Encoder::new(code.clone(), case.symbol_len).unwrap();
        let cut = rng.below(case.block_len as u64) as usize;
        run.add_run(cut as u16, &segments[cut..].concat());
        run.add_run(0, &segments[..cut].concat());
        let first = rng.below(case.parity as u64 + 1) as usize;
        let end = first + rng.below((case.parity - first) as u64 + 1) as usize;
        let mut some = Encoder::with_rows(code.clone(), case.symbol_len, end - first).unwrap();
        some.reset_rows(first..end);
        some.add_run(0, &segments.concat());
        for (row, expected) in expected.iter().enumerate() {
            prop_assert_eq!(encoder.parity(row), expected);
            prop_assert_eq!(run.parity(row), expected);
            if (first..end).contains(&row) {
                prop_assert_eq!(some.parity(row), expected);
            }
            let mut alone = Encoder::with_rows(code.clone(), case.symbol_len, 1).unwrap();
            alone.reset_rows(row..row + 1);
            segments.iter().enumerate().for_each(|(esi, data)| alone.add(esi as u16, data));
            prop_assert_eq!(alone.parity(row), expected);
        }
    }

    /// Any `block length` symbols are enough, one less is not.
    #[test]
    fn any_symbols_recover_the_others(case in cases()) {
        let rng = &mut Rng::new(case.seed, "fec");
        let code = Code::with_path(case.field, case.source, case.parity, case.path).unwrap();
        let (segments, parity) = block(&code, &case, rng);
        let mut decoder = Decoder::new(code, case.symbol_len).unwrap();
        // Data of an earlier block must not matter.
        prop_assert!(decoder.add(0, &random_bytes(rng, case.symbol_len)));
        decoder.start(case.block_len as u16);
        let all: Vec<&Vec<u8>> = segments.iter().chain(&parity).collect();
        let order = shuffled(all.len(), rng);
        let (last, most) = order[..case.block_len].split_last().unwrap();
        for &esi in most {
            prop_assert!(decoder.add(esi as u16, all[esi]));
            prop_assert!(!decoder.add(esi as u16, all[esi]));
        }
        let (missing, there) = (decoder.missing(), decoder.parity());
        prop_assert_eq!(missing, there + 1);
        prop_assert_eq!(decoder.recover(), Err(RecoverError { missing, parity: there }));
        prop_assert!(!decoder.is_sufficient());
        prop_assert!(!decoder.add(all.len() as u16, &[]));
        prop_assert!(!decoder.add(*last as u16, &vec![0; case.symbol_len + 1]));
        prop_assert!(decoder.add(*last as u16, all[*last]));
        prop_assert!(decoder.is_sufficient());
        let expected = decoder.missing();
        prop_assert_eq!(decoder.recover(), Ok(expected));
        prop_assert_eq!(decoder.missing(), 0);
        for (esi, segment) in segments.iter().enumerate() {
            let symbol = decoder.symbol(esi as u16).unwrap();
            prop_assert_eq!(&symbol[..segment.len()], segment.as_slice());
            prop_assert!(symbol[segment.len()..].iter().all(|&byte| byte == 0));
        }
    }
}

#[test]
fn large_codes_recover() {
    // The second one is too large for its coefficients to be kept.
    let sizes = [(Field::Gf8, 196, 59), (Field::Gf16, 5_000, 300), (Field::Gf16, 1_000, 200)];
    for (field, source, parity) in sizes {
        let rng = &mut Rng::new(1, "fec");
        let code = Code::new(field, source, parity).unwrap();
        let data = random_bytes(rng, source * 32);
        let mut encoder = Encoder::new(code.clone(), 32).unwrap();
        encoder.add_run(0, &data);
        let mut decoder = Decoder::new(code, 32).unwrap();
        for esi in (0..source).filter(|esi| esi % 17 != 0 || esi / 17 >= parity) {
            decoder.add(esi as u16, &data[esi * 32..][..32]);
        }
        for row in 0..parity {
            decoder.add((source + row) as u16, encoder.parity(row));
        }
        assert_eq!(decoder.recover(), Ok(source.div_ceil(17).min(parity)));
        for (esi, expected) in data.chunks(32).enumerate() {
            assert_eq!(decoder.symbol(esi as u16), Some(expected));
        }
    }
}
