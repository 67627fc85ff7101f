//! Random bundles, as the crate bp7 and as slowlight encode them.

use std::time::Duration;

use bp::codec::bp7::{
    Block, BlockFlags, Bundle, BundleFlags, CrcType, Eid, Extension, Fragment, Head, HopCount,
    Payload, Primary,
};
use bp7::canonical::CanonicalBlockBuilder;
use bp7::crc::CrcValue;
use bp7::primary::PrimaryBlockBuilder;
use bp7::{CanonicalBlock, CanonicalData, CreationTimestamp, EndpointID};

const CHECKS: [CrcType; 3] = [CrcType::None, CrcType::Crc16, CrcType::Crc32c];

/// Numbers of the generator `SplitMix64`.
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Numbers of bundle `number` of a seed: each bundle can be reproduced by itself.
    #[must_use]
    pub const fn new(seed: u64, number: u64) -> Self {
        Self(seed ^ number << 32)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number of any length: the encodings of numbers differ by it.
    pub fn number(&mut self) -> u64 {
        let bits = self.below(64);
        self.next() >> bits
    }

    /// One of several values.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// This number of bytes.
    pub fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// One bundle, in both representations.
#[derive(Debug)]
pub struct Both {
    /// The bundle of the crate bp7.
    pub theirs: bp7::Bundle,
    /// Its encoding by slowlight.
    pub ours: Vec<u8>,
    /// Whether each block has a CRC.
    pub is_checked: bool,
}

/// Parts of bundles that a peer can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// All of RFC 9171, and unknown blocks.
    All,
    /// As `All`, with service numbers below 2^32 (RFC 9758 registers no others).
    Registered,
    /// No CRCs, fragments and unknown blocks; block numbers from 2 on, in the order of their types.
    Plain,
}

fn crc_of(kind: CrcType) -> CrcValue {
    match kind {
        CrcType::None => CrcValue::CrcNo,
        CrcType::Crc16 => CrcValue::Crc16Empty,
        CrcType::Crc32c => CrcValue::Crc32Empty,
    }
}

/// An endpoint; the null endpoint if `may_be_nobody`.
fn eid(numbers: &mut Numbers, kinds: Kinds, may_be_nobody: bool) -> (EndpointID, Eid) {
    let text = match numbers.below(if may_be_nobody { 5 } else { 4 }) {
        0 | 1 => {
            // Larger node numbers have an allocator, which bp7 encodes as a separate number.
            let node = numbers.number() & 0xffff_ffff;
            let service = match kinds {
                Kinds::All => numbers.number(),
                Kinds::Registered | Kinds::Plain => numbers.number() & 0xffff_ffff,
            };
            format!("ipn:{}.{service}", node.max(1))
        }
        2 => format!("dtn://n{}/", numbers.number()),
        3 => format!("dtn://n{}/~s/{}", numbers.number(), numbers.number()),
        _ => "dtn:none".to_owned(),
    };
    let theirs = EndpointID::try_from(text.as_str()).expect("bp7 reads its text");
    (theirs, text.parse().expect("we read its text"))
}

/// The extension blocks. Of all kinds: in the order in which bp7 encodes them, the highest number
/// first.
fn extensions(
    numbers: &mut Numbers,
    kinds: Kinds,
    has_age: bool,
    flags: &[u64],
    checks: &[CrcType],
) -> Vec<(CanonicalBlock, Block)> {
    let mut types = Vec::new();
    types.extend(has_age.then_some(bp::codec::bp7::BUNDLE_AGE));
    types.extend((numbers.below(2) == 0).then_some(bp::codec::bp7::PREVIOUS_NODE));
    types.extend((numbers.below(2) == 0).then_some(bp::codec::bp7::HOP_COUNT));
    match kinds {
        Kinds::All | Kinds::Registered => types.extend((0..numbers.below(3)).map(|_| 192)),
        Kinds::Plain => types.sort_unstable(),
    }
    let mut number = 1;
    let mut found = Vec::new();
    for kind in types {
        number += match kinds {
            Kinds::All | Kinds::Registered => 1 + numbers.below(300),
            Kinds::Plain => 1,
        };
        let (flags, crc) = (numbers.one_of(flags), numbers.one_of(checks));
        let (data, extension) = match kind {
            bp::codec::bp7::BUNDLE_AGE => {
                let age = numbers.number();
                (CanonicalData::BundleAge(age), Some(Extension::BundleAge { age_ms: age }))
            }
            bp::codec::bp7::PREVIOUS_NODE => {
                let (theirs, ours) = eid(numbers, kinds, false);
                (CanonicalData::PreviousNode(theirs), Some(Extension::PreviousNode(ours)))
            }
            bp::codec::bp7::HOP_COUNT => {
                let (limit, count) = (1 + numbers.below(255), numbers.below(256));
                let theirs = CanonicalData::HopCount(limit as u8, count as u8);
                (theirs, Some(Extension::HopCount(HopCount { limit, count })))
            }
            _ => {
                let len = numbers.below(300);
                (CanonicalData::Unknown(numbers.bytes(len)), None)
            }
        };
        let ours = match (&extension, &data) {
            (Some(extension), _) => extension.to_block(number, BlockFlags(flags), crc),
            (None, CanonicalData::Unknown(bytes)) => {
                Block::new(kind, number, BlockFlags(flags), crc, bytes)
            }
            (None, _) => unreachable!("all others have an extension of ours"),
        };
        let theirs = CanonicalBlockBuilder::new()
            .block_type(kind)
            .block_number(number)
            .block_control_flags(flags as u8)
            .crc(crc_of(crc))
            .data(data)
            .build();
        found.push((theirs.expect("it has data"), ours.expect("it has a form")));
    }
    if kinds != Kinds::Plain {
        found.reverse();
    }
    found
}

/// A random bundle.
///
/// # Panics
///
/// One of the two implementations has no form for it.
pub fn made(numbers: &mut Numbers, kinds: Kinds) -> Both {
    let is_checked = kinds != Kinds::Plain && numbers.below(2) == 0;
    let checks = match (kinds, is_checked) {
        (Kinds::All | Kinds::Registered, true) => &CHECKS[1..],
        (Kinds::All | Kinds::Registered, false) => &CHECKS[..],
        (Kinds::Plain, _) => &CHECKS[..1],
    };
    let (destination, source, report_to) =
        (eid(numbers, kinds, false), eid(numbers, kinds, false), eid(numbers, kinds, true));
    let time = if numbers.below(4) == 0 { 0 } else { numbers.number() };
    let sequence = numbers.number();
    let lifetime_ms = numbers.number();
    let payload_len = numbers.one_of(&[0, 1, 23, 24, 255, 256, 5000, 70_000]);
    let payload = numbers.bytes(payload_len);
    let fragment = (kinds != Kinds::Plain && numbers.below(4) == 0).then(|| {
        let offset = numbers.number() >> 1;
        Fragment { offset, total: offset + payload_len }
    });
    let mut flags = BundleFlags(numbers.one_of(&[0, 0x20, 0x40, 0x4000, 0x1_0000, 0x7_4060]));
    if fragment.is_some() {
        flags = flags.with(BundleFlags::FRAGMENT);
    }
    let crc = numbers.one_of(checks);
    let mut primary = PrimaryBlockBuilder::new()
        .bundle_control_flags(flags.0)
        .crc(crc_of(crc))
        .destination(destination.0)
        .source(source.0)
        .report_to(report_to.0)
        .creation_timestamp(CreationTimestamp::with_time_and_seq(time, sequence))
        .lifetime(Duration::from_millis(lifetime_ms));
    if let Some(Fragment { offset, total }) = fragment {
        primary = primary.fragmentation_offset(offset).total_data_length(total);
    }
    let primary = primary.build().expect("it has a destination");
    let block_flags = [0, 1, 4, 0x10, 0x11];
    let has_age = time == 0 || numbers.below(2) == 0;
    let blocks = extensions(numbers, kinds, has_age, &block_flags, checks);
    let (mut canonicals, blocks): (Vec<_>, Vec<_>) = blocks.into_iter().unzip();
    let payload_crc = numbers.one_of(checks);
    let payload_flags = numbers.one_of(&block_flags);
    let block = CanonicalBlockBuilder::new()
        .block_type(bp::codec::bp7::PAYLOAD)
        .block_number(bp::codec::bp7::PAYLOAD_NUMBER)
        .block_control_flags(payload_flags as u8)
        .crc(crc_of(payload_crc))
        .data(CanonicalData::Data(payload.clone()));
    canonicals.push(block.build().expect("it has data"));
    let theirs = bp7::Bundle::new(primary, canonicals);
    let primary = Primary {
        flags,
        crc,
        destination: destination.1,
        source: source.1,
        report_to: report_to.1,
        creation: bp::codec::bp7::CreationTimestamp { time_ms: time, sequence },
        lifetime_ms,
        fragment,
    };
    let plain =
        Payload { flags: BlockFlags(payload_flags), crc: payload_crc, len: payload.len() as u64 };
    let head = Head::new(primary, blocks, plain).expect("it has a form");
    let ours = Bundle { head, payload: &payload }.to_vec().expect("it has a form");
    Both { theirs, ours, is_checked }
}
