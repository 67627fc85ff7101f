//! Recovery, short symbols, failures, and constant code words.

use engine::Rng;
use proptest::prelude::*;

use super::*;
use crate::fec::{ReadColumns, SliceColumns};

/// Encoded block.
struct Block {
    code: RaptorQ,
    source: Vec<u8>,
    parity: Vec<u8>,
}

impl Block {
    fn new(seed: u64, source: u16, len: usize, parity: u16) -> Self {
        let code = RaptorQ::new(source, len).expect("there is such a code");
        let mut bytes = vec![0; usize::from(source) * len];
        Rng::new(seed, "raptorq").fill(&mut bytes);
        let mut made = vec![0; usize::from(parity) * len];
        let mut columns = ReadColumns::new(&bytes, len);
        code.encode(&mut columns, 0..parity, &mut made).expect("it can be encoded");
        Self { code, source: bytes, parity: made }
    }

    fn row(&self, row: u16) -> &[u8] {
        let len = self.code.symbol_len();
        &self.parity[usize::from(row) * len..][..len]
    }

    /// Recovers the block without `missing`, with these rows in their places and the rest behind.
    fn recover(&self, missing: &[u16], rows: &[u16]) -> Result<bool, LongError> {
        let len = self.code.symbol_len();
        let mut bytes = self.source.clone();
        let mut parity = Vec::new();
        for place in missing {
            bytes[usize::from(*place) * len..][..len].fill(0xa5);
        }
        for (row, place) in rows.iter().zip(missing) {
            bytes[usize::from(*place) * len..][..len].copy_from_slice(self.row(*row));
            parity.push((*row, *place));
        }
        let behind = rows.iter().skip(missing.len());
        let extra: Vec<_> =
            behind.map(|row| (*row, Bytes::copy_from_slice(self.row(*row)))).collect();
        let before = bytes.clone();
        let mut columns = SliceColumns::new(&mut bytes, len);
        let received = Received { missing, parity: &parity, extra: &extra };
        let recovered = self.code.recover(&mut columns, &received);
        if recovered.is_err() {
            assert_eq!(bytes, before, "a failure changes nothing");
        }
        recovered.map(|()| bytes == self.source)
    }
}

#[test]
fn a_few_symbols_more_recover_what_exactly_enough_do_not() {
    let block = Block::new(1, 10, 16, 400);
    let missing: Vec<u16> = (0..10).collect();
    let mut failures = 0;
    for first in 0..390 {
        let rows: Vec<u16> = (first..first + 10).collect();
        match block.recover(&missing, &rows) {
            Ok(is_same) => assert!(is_same, "{rows:?}"),
            Err(error) => {
                assert_eq!(error, LongError::Dependent);
                failures += 1;
                let enough = (1..=3).any(|more| {
                    let rows: Vec<u16> = (first..(first + 10 + more).min(400)).collect();
                    block.recover(&missing, &rows) == Ok(true)
                });
                assert!(enough || first > 386, "{rows:?}");
            }
        }
    }
    // One in 100 random sets at most fails (§5.8). These overlap, so failures come in groups.
    assert!((1..=16).contains(&failures), "{failures}");
}

#[test]
fn code_words_are_constant() {
    // Source symbols are bytes counted from 0. A version of the crate with other code words would
    // not understand senders with this one.
    let source: Vec<u8> = (0..=255).cycle().take(26 * 8).collect();
    let code = RaptorQ::new(26, 8).expect("there is such a code");
    let mut made = vec![0; 3 * 8];
    let mut columns = ReadColumns::new(&source, 8);
    code.encode(&mut columns, 0..3, &mut made).expect("it can be encoded");
    let hex: String = made.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "af12c87561dc06bb445c746c243c140c0d317549fdc185b9");
}

#[test]
fn impossible_codes_are_refused() {
    let max = usize::from(RaptorQ::SOURCE_MAX);
    assert_eq!(RaptorQ::new(0, 4), Err(CodeError::NoSource));
    let error = CodeError::TooLong { source_symbols: max + 1, parity: 0, max };
    assert_eq!(RaptorQ::new(RaptorQ::SOURCE_MAX + 1, 4), Err(error));
    assert_eq!(RaptorQ::new(1, 0), Err(CodeError::SymbolLength(0)));
    assert_eq!(RaptorQ::new(1, 1 << 16), Err(CodeError::SymbolLength(1 << 16)));
    let block = Block::new(1, 4, 8, 2);
    let error = RecoverError { missing: 3, parity: 2 };
    assert_eq!(block.recover(&[0, 1, 2], &[0, 1]), Err(LongError::TooFew(error)));
    assert_eq!(block.recover(&[], &[0, 1]), Ok(true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Three symbols more than the block has recover any losses.
    #[test]
    fn any_losses_are_recovered(
        seed: u64, source in 1_u16..150, len in 1_usize..40, lost in 0.0..1.0_f64, skip in 0_u16..50,
    ) {
        let lost = (f64::from(source) * lost).ceil() as u16;
        let block = Block::new(seed, source, len, skip + lost + 3);
        let mut rng = Rng::new(seed, "losses");
        let mut places: Vec<u16> = (0..source).collect();
        for at in 0..usize::from(lost) {
            let other = at + rng.below((places.len() - at) as u64) as usize;
            places.swap(at, other);
        }
        let mut missing = places[..usize::from(lost)].to_vec();
        missing.sort_unstable();
        let rows: Vec<u16> = (skip..skip + lost + 3).collect();
        prop_assert_eq!(block.recover(&missing, &rows), Ok(true));
    }

    /// A symbol of which only the first bytes are used is coded like a whole one.
    #[test]
    fn columns_are_independent(seed: u64, source in 1_u16..40, len in 2_usize..20) {
        let whole = Block::new(seed, source, len, 3);
        let cut = |bytes: &[u8]| -> Vec<u8> {
            bytes.chunks(len).flat_map(|symbol| &symbol[..len - 1]).copied().collect()
        };
        let code = RaptorQ::new(source, len - 1).expect("there is such a code");
        let bytes = cut(&whole.source);
        let mut made = vec![0; 3 * (len - 1)];
        let mut columns = ReadColumns::new(&bytes, len - 1);
        code.encode(&mut columns, 0..3, &mut made).expect("it can be encoded");
        prop_assert_eq!(made, cut(&whole.parity));
    }
}
