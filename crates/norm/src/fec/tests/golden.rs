//! Datagrams sent by libnorm 1.5.9: the same source symbols must yield the same parity symbols,
//! and its parity symbols must recover its source symbols.

use std::collections::BTreeMap;

use super::*;

/// Capture, and the parameters of its sender.
struct Golden {
    datagrams: &'static str,
    field: Field,
    source: usize,
    parity: usize,
    segment_size: u16,
    /// `None` for a stream, whose blocks are full.
    object_size: Option<u64>,
}

macro_rules! golden {
    ($name:literal) => {
        include_str!(concat!("../../../testdata/", $name, ".hex"))
    };
}

fn all() -> [Golden; 8] {
    let golden = |datagrams, field, source, parity, segment_size, object_size| Golden {
        datagrams,
        field,
        source,
        parity,
        segment_size,
        object_size,
    };
    let (gf8, gf16) = (Field::Gf8, Field::Gf16);
    [
        golden(golden!("fec_5_20_4"), gf8, 20, 4, 16, Some(16 * 20 - 5)),
        golden(golden!("fec_5_shortened"), gf8, 8, 5, 16, Some(16 * 11 - 7)),
        golden(golden!("fec_5_stream"), gf8, 8, 3, 16, None),
        golden(golden!("fec_5_one_short_segment"), gf8, 8, 3, 16, Some(9)),
        golden(golden!("fec_129"), gf8, 8, 5, 16, Some(16 * 11 - 7)),
        golden(golden!("fec_2_m8"), gf8, 8, 3, 16, Some(16 * 5)),
        golden(golden!("fec_2_m16"), gf16, 250, 8, 4, Some(4 * 250)),
        golden(golden!("fec_2_m16_shortened"), gf16, 600, 9, 16, Some(16 * 12 - 3)),
    ]
}

/// Payloads of each block by encoding symbol id.
fn blocks(golden: &Golden) -> BTreeMap<u32, BTreeMap<u16, Vec<u8>>> {
    let mut blocks: BTreeMap<u32, BTreeMap<u16, Vec<u8>>> = BTreeMap::new();
    for line in golden.datagrams.lines().filter(|line| !line.starts_with('#')) {
        let bytes: Vec<u8> = (0..line.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap())
            .collect();
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let (sbn, esi) = match (bytes[13], golden.field) {
            (129, Field::Gf8) => (word(16), word(20) & 0xffff),
            (2 | 5, Field::Gf8) => (word(16) >> 8, word(16) & 0xff),
            (2, Field::Gf16) => (word(16) >> 16, word(16) & 0xffff),
            other => panic!("{other:?}"),
        };
        let header = usize::from(bytes[1]) * 4;
        blocks.entry(sbn).or_default().insert(esi as u16, bytes[header..].to_vec());
    }
    blocks
}

/// Length of each block, by the partition; in a stream, the length of a full one.
fn block_lens(golden: &Golden) -> Vec<u16> {
    let max = golden.source as u16;
    let Some(size) = golden.object_size else { return vec![max] };
    let partition = Partition::new(size, golden.segment_size, max).unwrap();
    (0..partition.blocks()).map(|sbn| partition.block_len(sbn)).collect()
}

#[test]
fn parity_matches_libnorm() {
    for golden in all() {
        let code = Code::new(golden.field, golden.source, golden.parity).unwrap();
        let blocks = blocks(&golden);
        let lens = block_lens(&golden);
        assert_eq!(blocks.len(), lens.len());
        for (symbols, &len) in blocks.values().zip(&lens) {
            assert_eq!(symbols.len(), usize::from(len) + golden.parity);
            let longest = symbols.values().map(Vec::len).max().unwrap();
            let mut encoder = Encoder::new(code.clone(), longest).unwrap();
            for (&esi, symbol) in symbols.range(..len) {
                encoder.add(esi, symbol);
            }
            for (row, (_, sent)) in symbols.range(len..).enumerate() {
                assert_eq!(encoder.parity(row), sent);
            }
        }
    }
}

#[test]
fn parity_of_libnorm_recovers() {
    for golden in all() {
        let code = Code::new(golden.field, golden.source, golden.parity).unwrap();
        // A stream's symbols have a header of 8 bytes.
        let mut decoder = Decoder::new(code, usize::from(golden.segment_size) + 8).unwrap();
        for (symbols, &len) in blocks(&golden).values().zip(&block_lens(&golden)) {
            decoder.start(len);
            let lost = len.min(golden.parity as u16);
            for (&esi, symbol) in symbols.range(lost..) {
                assert!(decoder.add(esi, symbol));
            }
            assert_eq!(decoder.recover(), Ok(usize::from(lost)));
            for (&esi, symbol) in symbols.range(..len) {
                assert_eq!(&decoder.symbol(esi).unwrap()[..symbol.len()], symbol.as_slice());
            }
        }
    }
}
