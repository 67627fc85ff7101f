//! FEC coding of blocks: the scheme named in messages, and its code.

use crate::fec::{BlockCode, Code, Encoder, Field, Long, LongWork, Partition, ReadColumns};
use bytes::Bytes;

use super::bits::Bits;
use super::config::{EndGame, SenderConfig};
use super::core::Room;
use crate::message::{Fti, PayloadId, Scheme};

/// Bytes of the header of NORM_DATA without payload id and extensions.
const DATA_HEADER: usize = 16;

/// First segment of an object if only the scheme is known.
pub(crate) fn first_id(scheme: Scheme) -> PayloadId {
    let tells = scheme == Scheme::SmallBlockSystematic;
    PayloadId { block: 0, symbol: 0, block_len: tells.then_some(0) }
}

/// First FEC instance ID of scheme 130 with our meaning: Leopard's code of high rate over
/// GF(2^16), polynomial 0x1002d, with 1 parity position. The next one has twice as many, and so
/// on.
const INSTANCE_FIRST: u16 = 0x5300;

/// Highest power of two of parity positions.
const INSTANCES: u16 = 15;

/// Al of scheme 6, as RFC 6330 §4.3 recommends: segments have a multiple of it.
const ALIGNMENT: u16 = 4;

/// Parity segments of scheme 6 that a block may need beyond the missing ones.
pub(crate) const SURPLUS_MAX: u16 = 16;

/// Whether blocks of a scheme are long, and their parity is sent until it suffices.
pub(crate) fn is_long(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::Compact | Scheme::RaptorQ)
}

/// FEC coding of an object's blocks.
#[derive(Clone, Debug)]
pub(crate) struct Coding {
    pub(crate) scheme: Scheme,
    kind: Kind,
    pub(crate) block_len: u16,
    pub(crate) parity: u16,
    pub(crate) auto_parity: u16,
}

/// Code of an object's blocks.
#[derive(Clone, Debug)]
enum Kind {
    /// Blocks have no parity.
    None,
    /// Rizzo's code. At a receiver it is built only when something must be recovered: the message
    /// that names it costs its sender nothing.
    Rizzo(Field, Option<Code>),
    /// Code of long blocks.
    Long,
}

impl Coding {
    /// Builds the coding from the settings. The error names the unusable setting.
    pub(crate) fn new(config: &SenderConfig) -> Result<Self, String> {
        if is_long(config.fec) {
            // An object's own code depends on its size.
            return Self::long(config.fec, config.block_len, config.parity, config.loss);
        }
        let (parity, auto_parity) =
            if config.fec == Scheme::NoCode { (0, 0) } else { (config.parity, config.auto_parity) };
        if auto_parity > parity {
            return Err(format!("auto_parity {auto_parity} is more than the parity, {parity}"));
        }
        let mut coding = Self::with_lens(config.fec, config.block_len, parity)?;
        coding.auto_parity = auto_parity;
        if let Kind::Rizzo(field, code) = &mut coding.kind {
            let (source, parity) = (usize::from(coding.block_len), usize::from(coding.parity));
            let built = Code::new(*field, source, parity);
            *code = Some(built.map_err(|error| error.to_string())?);
        }
        Ok(coding)
    }

    /// Code of long blocks with at least `parity` parity positions; 0 chooses their number by the
    /// loss, if known.
    fn long(
        scheme: Scheme,
        block_len: u16,
        parity: u16,
        loss: Option<f64>,
    ) -> Result<Self, String> {
        if block_len == 0 {
            return Err("a block has at least one segment".to_owned());
        }
        let free = u16::MAX - block_len;
        let parity = match parity {
            // Receivers do not learn the number of rows, and may request any.
            _ if scheme == Scheme::RaptorQ => free,
            0 => Long::positions(block_len, loss),
            parity => parity.checked_next_power_of_two().unwrap_or(u16::MAX),
        };
        let coding = Self { scheme, kind: Kind::Long, block_len, parity, auto_parity: 0 };
        coding.check_long(block_len)?;
        Ok(coding)
    }

    /// Checks whether long blocks of `block_len` segments can be coded.
    pub(crate) fn check_long(&self, block_len: u16) -> Result<(), String> {
        let checked = if self.scheme == Scheme::RaptorQ {
            BlockCode::raptorq(block_len, 1).map(drop)
        } else {
            Long::check(block_len, self.parity)
        };
        checked.map_err(|error| error.to_string())
    }

    /// Coding of an object of `size` bytes in segments of `segment` bytes: the lengths of long
    /// blocks and their parity depend on the object.
    pub(crate) fn for_object(
        &self,
        config: &SenderConfig,
        size: u64,
        segment: u16,
        loss: Option<f64>,
    ) -> Result<Self, String> {
        if !self.is_long() {
            return Ok(self.clone());
        }
        let fitting = config.block_bytes / usize::from(segment.max(1));
        let most = usize::from(self.block_len).min(fitting).max(1) as u16;
        let partition = Partition::new(size, segment, most).map_err(|error| error.to_string())?;
        let block_len = partition.block_len(0).max(1);
        let coding = Self::long(self.scheme, block_len, config.parity, loss)?;
        // The partition follows from the length that is announced.
        Ok(Self { block_len: most, ..coding })
    }

    /// Coding announced by a sender; `None` if it is not supported.
    pub(crate) fn from_fti(scheme: Scheme, fti: &Fti) -> Option<Self> {
        if scheme == Scheme::ReedSolomonM && fti.field_bits != 16 {
            return None;
        }
        if scheme == Scheme::RaptorQ {
            return Self::from_raptorq(fti);
        }
        if scheme == Scheme::Compact {
            let positions = fti.instance.checked_sub(INSTANCE_FIRST)?;
            let has_blocks = fti.block_len > 0 && fti.segment_size.is_multiple_of(2);
            return (positions <= INSTANCES && has_blocks).then(|| Self {
                scheme,
                kind: Kind::Long,
                block_len: fti.block_len,
                parity: 1 << positions,
                auto_parity: 0,
            });
        }
        // With an odd segment length, other implementations send parity that lacks half an element:
        // such objects are received as if they had no parity.
        let is_cut = scheme == Scheme::ReedSolomonM && fti.segment_size % 2 == 1;
        Self::with_lens(scheme, fti.block_len, if is_cut { 0 } else { fti.parity }).ok()
    }

    /// Coding announced for scheme 6. With sub-blocks, symbols are no contiguous segments.
    fn from_raptorq(fti: &Fti) -> Option<Self> {
        let is_whole = fti.segment_size.checked_rem(fti.alignment.into()) == Some(0);
        let partition = Partition::new(fti.object_size, fti.segment_size, fti.block_len).ok()?;
        let is_even = partition.blocks().max(1) == u32::from(fti.blocks);
        let is_known = fti.sub_blocks == 1 && is_whole && is_even;
        Self::long(Scheme::RaptorQ, fti.block_len, 0, None).ok().filter(|_| is_known)
    }

    /// Coding of blocks with this number of segments, without proactive parity.
    fn with_lens(scheme: Scheme, block_len: u16, parity: u16) -> Result<Self, String> {
        let field = match scheme {
            Scheme::NoCode => None,
            Scheme::ReedSolomon8 | Scheme::SmallBlockSystematic => Some(Field::Gf8),
            Scheme::ReedSolomonM => Some(Field::Gf16),
            Scheme::RaptorQ | Scheme::Compact => {
                return Self::long(scheme, block_len, parity, None);
            }
            Scheme::Other(code) => return Err(format!("FEC scheme {code} is not known")),
        };
        if block_len == 0 {
            return Err("a block has at least one segment".to_owned());
        }
        let most = if scheme == Scheme::ReedSolomon8 { 255 } else { u16::MAX };
        if block_len > most {
            return Err(format!("a block has at most {most} segments"));
        }
        let field = field.filter(|_| parity > 0);
        if let Some(field) = field {
            let (source, parity) = (usize::from(block_len), usize::from(parity));
            Code::check(field, source, parity).map_err(|error| error.to_string())?;
        }
        let kind = field.map_or(Kind::None, |field| Kind::Rizzo(field, None));
        Ok(Self { scheme, kind, block_len, parity, auto_parity: 0 })
    }

    /// Whether blocks are long, and their parity is sent until it suffices.
    pub(crate) fn is_long(&self) -> bool {
        matches!(self.kind, Kind::Long)
    }

    /// Whether blocks are recovered in pieces, so that memory need not hold one.
    pub(crate) fn is_in_pieces(&self) -> bool {
        self.scheme == Scheme::Compact
    }

    /// Parity segments of a long block that are almost certainly enough beyond the missing ones.
    pub(crate) fn surplus(&self) -> u32 {
        if self.scheme == Scheme::RaptorQ { 2 } else { 0 }
    }

    /// Memory of the segments of a block beyond the missing ones.
    pub(crate) fn surplus_memory(&self, segment: usize) -> usize {
        if self.surplus() > 0 { usize::from(SURPLUS_MAX) * segment } else { 0 }
    }

    /// Code of a block of `block_len` segments, if blocks are long and it exists.
    pub(crate) fn long_code(&self, block_len: u16, segment: usize) -> Option<BlockCode> {
        if !self.is_long() {
            return None;
        }
        if self.scheme == Scheme::RaptorQ {
            return BlockCode::raptorq(block_len, segment).ok();
        }
        let code = Long::new(block_len, self.parity, segment.next_multiple_of(2));
        code.ok().map(BlockCode::Leopard)
    }

    /// Field of the code, and the number of source and parity segments of a block; `None` without
    /// parity, and of long blocks.
    pub(crate) fn kind(&self) -> Option<(Field, usize, usize)> {
        let Kind::Rizzo(field, _) = self.kind else { return None };
        Some((field, self.block_len.into(), self.parity.into()))
    }

    fn code(&self) -> Option<&Code> {
        let Kind::Rizzo(_, code) = &self.kind else { return None };
        code.as_ref()
    }

    /// Number of parity segments with which a block of `block_len` segments is recovered at most,
    /// if `work` coefficients may be computed.
    pub(crate) fn parity_most(&self, block_len: u16, work: usize) -> u16 {
        match &self.kind {
            Kind::Rizzo(..) => {
                let most = work / usize::from(self.block_len).max(1);
                self.parity.min(block_len).min(u16::try_from(most).unwrap_or(u16::MAX))
            }
            Kind::None => 0,
            Kind::Long if self.is_in_pieces() => self.parity.min(block_len),
            Kind::Long => self.parity.min(block_len.saturating_add(SURPLUS_MAX)),
        }
    }

    /// Memory needed to recover blocks of `block_len` segments of at most `longest` bytes.
    pub(crate) fn room(&self, block_len: u16, longest: usize, work: usize) -> Room {
        let usable = self.parity_most(block_len, work);
        let (element, parity) = match &self.kind {
            Kind::Rizzo(field, _) => (field.element_len(), usable),
            Kind::None => (1, 0),
            // Parity takes the places of missing segments.
            Kind::Long if self.is_in_pieces() => (2, 0),
            Kind::Long => (1, 0),
        };
        Room {
            source: block_len.into(),
            parity: parity.into(),
            usable,
            segment: longest.next_multiple_of(element),
        }
    }

    /// Number of proactive parity segments for a block of `block_len` segments.
    ///
    /// A share of a block is lost, and that share varies with the square root of the block's
    /// length. Half of the parity of a full block covers each. A short block gets at least three
    /// segments.
    ///
    /// If 206 segments have 49 parity segments, 104 have 30, 21 have 11, and one has 3.
    pub(crate) fn auto_parity_of(&self, block_len: u16) -> u16 {
        let share = f64::from(block_len) / f64::from(self.block_len);
        let parity = f64::from(self.auto_parity) * f64::midpoint(share, share.sqrt());
        (parity.ceil() as u16).max(AUTO_PARITY_LEAST).min(self.auto_parity)
    }

    /// Bytes of NORM_DATA before the segment.
    pub(crate) fn data_header(&self, has_fti: bool) -> usize {
        let fti = if has_fti { self.scheme.fti_len().unwrap_or(0) } else { 0 };
        DATA_HEADER + self.scheme.payload_id_len().unwrap_or(0) + fti
    }

    /// Bytes of the longest message that no transfer can do without: a NACK of one segment or an
    /// acknowledgement, each with EXT_CC and an extension of this implementation.
    pub(crate) fn least_message(&self) -> usize {
        const HEADER: usize = 40;
        const POSITION: usize = 4;
        const REQUEST: usize = 4;
        HEADER + REQUEST + POSITION + self.scheme.payload_id_len().unwrap_or(8)
    }

    /// Bytes of the smallest datagram with which objects can be sent under this end game.
    pub(crate) fn least_path(&self, end: EndGame, has_fti: bool) -> usize {
        // A segment of a code over GF(2^16) has at least two bytes.
        let least = if self.scheme == Scheme::RaptorQ { usize::from(ALIGNMENT) } else { 2 };
        let data = self.data_header(has_fti) + least;
        match end {
            EndGame::Acknowledged => data.max(self.least_message()),
            EndGame::Flush => data,
        }
    }

    /// Longest usable segment of at most `len` bytes.
    pub(crate) fn fitting(&self, len: u16) -> u16 {
        let is_even = matches!(self.scheme, Scheme::ReedSolomonM | Scheme::Compact);
        let multiple = if self.scheme == Scheme::RaptorQ { ALIGNMENT } else { 1 + is_even as u16 };
        len & !(multiple - 1)
    }

    /// Size of the segments of an object of `size` bytes. Symbols of scheme 6 have the announced
    /// size, except the last source symbol.
    pub(crate) fn segment_size(&self, size: u64, segment: u16) -> u16 {
        if self.scheme != Scheme::RaptorQ || size >= u64::from(segment) {
            return segment;
        }
        (size as u16).next_multiple_of(ALIGNMENT).max(ALIGNMENT)
    }

    /// Length of coded segments of an object whose longest segment has `longest` bytes.
    pub(crate) fn symbol_len(&self, longest: u16, segment: u16) -> u16 {
        // The code of long blocks depends on the length of its symbols.
        if self.scheme == Scheme::Compact { longest.next_multiple_of(2).max(2) } else { segment }
    }

    pub(crate) fn fti(&self, object_size: u64, segment_size: u16) -> Fti {
        let is_raptorq = self.scheme == Scheme::RaptorQ;
        let partition = Partition::new(object_size, segment_size, self.block_len);
        let blocks = partition.map_or(0, |partition| partition.blocks().clamp(1, 255));
        Fti {
            object_size,
            segment_size,
            block_len: self.block_len,
            parity: if self.is_long() { 0 } else { self.parity },
            field_bits: if self.scheme == Scheme::ReedSolomonM { 16 } else { 8 },
            instance: if self.scheme == Scheme::Compact {
                INSTANCE_FIRST + self.parity.trailing_zeros() as u16
            } else {
                0
            },
            blocks: if is_raptorq { blocks as u8 } else { 0 },
            sub_blocks: is_raptorq.into(),
            alignment: if is_raptorq { ALIGNMENT as u8 } else { 0 },
        }
    }

    /// Payload identifier of a segment.
    pub(crate) fn payload_id(&self, block_len: u16, block: u32, symbol: u16) -> PayloadId {
        let tells = self.scheme == Scheme::SmallBlockSystematic;
        PayloadId { block, symbol, block_len: tells.then_some(block_len) }
    }

    /// Largest number of blocks that can be numbered.
    pub(crate) fn blocks_max(&self) -> u64 {
        if self.scheme == Scheme::RaptorQ {
            // Their number is announced, too.
            return 255;
        }
        u64::from(self.scheme.block_mask(16)) + 1
    }

    /// Encoder for `parity` parity segments: while a block is sent, only its proactive parity is
    /// computed.
    pub(crate) fn encoder(&self, segment: u16, parity: u16) -> Option<Encoder> {
        let code = self.code()?.clone();
        Encoder::with_rows(code, usize::from(segment), usize::from(parity)).ok()
    }

    /// Parity segments `rows` of a block whose source segments are concatenated in `data`.
    ///
    /// All rows of a long block between the first and the last are computed.
    pub(crate) fn rows(
        &self,
        work: &mut LongWork,
        segment: u16,
        block_len: u16,
        data: &[u8],
        rows: &Bits,
    ) -> Vec<(u16, Bytes)> {
        if let Some(code) = self.long_code(block_len, segment.into()) {
            return long_rows(code, work, data, rows);
        }
        let mut made = Vec::new();
        // Consecutive rows are computed in one pass; rows between runs are not computed.
        for (first, last) in rows.runs(0) {
            let count = usize::from(last - first) + 1;
            let encoder =
                self.code().map(|code| Encoder::with_rows(code.clone(), segment.into(), count));
            let Some(Ok(mut encoder)) = encoder else { continue };
            encoder.reset_rows(first.into()..usize::from(first) + count);
            encoder.add_run(0, data);
            let each = first..=last;
            made.extend(each.map(|row| (row, Bytes::copy_from_slice(encoder.parity(row.into())))));
        }
        made
    }
}

/// Parity segments `rows` of a long block.
fn long_rows(code: BlockCode, work: &mut LongWork, data: &[u8], rows: &Bits) -> Vec<(u16, Bytes)> {
    let (Some(first), Some(last)) = (rows.iter().next(), rows.last()) else {
        return Vec::new();
    };
    let len = code.symbol_len();
    let mut made = vec![0; (usize::from(last - first) + 1) * len];
    let mut source = ReadColumns::new(data, len);
    if code.encode(work, &mut source, first..last + 1, &mut made).is_err() {
        return Vec::new();
    }
    let made = Bytes::from(made);
    let at = |row: u16| usize::from(row - first) * len;
    rows.iter().map(|row| (row, made.slice(at(row)..at(row) + len))).collect()
}

/// Number of proactive parity segments for the shortest block, provided that a full block has at
/// least this number.
const AUTO_PARITY_LEAST: u16 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parity_is_in_proportion_to_the_block() {
        let mut config = crate::Config::default();
        config.use_proactive_parity();
        let coding = Coding::new(&config.sender).expect("there is such a code");
        let parity = [1, 5, 21, 69, 104, 204, 205, 206].map(|len| coding.auto_parity_of(len));
        assert_eq!(parity, [3, 5, 11, 23, 30, 49, 49, 49]);
        let coding = Coding::new(&SenderConfig { auto_parity: 2, ..SenderConfig::default() });
        let coding = coding.expect("there is such a code");
        assert_eq!([1, 64].map(|len| coding.auto_parity_of(len)), [2, 2]);
        let coding = Coding::new(&SenderConfig::default()).expect("there is such a code");
        assert_eq!(coding.auto_parity_of(64), 0);
    }

    #[test]
    fn parity_rows_are_independent_of_other_rows() {
        let coding = Coding::new(&SenderConfig::default()).expect("there is such a code");
        let data: Vec<u8> = (0..640_u16).map(|n| ((n * 7) >> 2) as u8).collect();
        let rows = |wanted: &[u16]| {
            let mut rows = Bits::new();
            wanted.iter().for_each(|row| _ = rows.insert(*row));
            coding.rows(&mut LongWork::default(), 10, 64, &data, &rows)
        };
        let all = rows(&(0..32).collect::<Vec<_>>());
        assert!(all.iter().map(|(row, _)| *row).eq(0..32));
        let some = rows(&[0, 5, 6, 31]);
        let same = [0, 5, 6, 31].map(|row| all[row].clone());
        assert_eq!(some, same);
    }

    #[test]
    fn raptorq_needs_its_feature() {
        let built = cfg!(feature = "raptorq");
        let sender = SenderConfig { fec: Scheme::RaptorQ, ..SenderConfig::default() };
        let config = crate::Config { sender, ..Default::default() };
        let missing = "this slowlight is built without the feature `raptorq`; add `--features \
                       raptorq` to the build";
        assert_eq!(config.check().err().as_deref(), (!built).then_some(missing));
        let plain = Fti { object_size: 10_000, segment_size: 100, block_len: 34, ..Fti::default() };
        let fti = Fti { blocks: 3, sub_blocks: 1, alignment: 4, ..plain };
        let read = |fti: Fti| Coding::from_fti(Scheme::RaptorQ, &fti);
        assert_eq!(
            read(fti).map(|coding| (coding.block_len, coding.parity)),
            built.then_some((34, 65_501))
        );
        for bad in [
            Fti { sub_blocks: 2, ..fti },
            Fti { sub_blocks: 0, ..fti },
            Fti { alignment: 0, ..fti },
            Fti { alignment: 8, ..fti },
            // Of 60 blocks, 50 would have a segment or two and the others none.
            Fti { block_len: 2, blocks: 60, ..fti },
            Fti { object_size: 60_000 * 100, block_len: 60_000, blocks: 1, ..fti },
        ] {
            assert!(read(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn announcements_do_not_build_a_code() {
        let fti = |segment_size, block_len, parity| Fti {
            object_size: 1,
            segment_size,
            block_len,
            parity,
            field_bits: 16,
            ..Fti::default()
        };
        let coding = Coding::from_fti(Scheme::ReedSolomonM, &fti(4, 1024, 1023));
        let coding = coding.expect("there is such a code");
        assert!(coding.code().is_none());
        assert_eq!(coding.kind(), Some((Field::Gf16, 1024, 1023)));
        assert_eq!([1 << 30, 10_240, 0].map(|work| coding.parity_most(1024, work)), [1023, 10, 0]);
        let odd = Coding::from_fti(Scheme::ReedSolomonM, &fti(5, 1024, 1023));
        assert_eq!(odd.map(|coding| (coding.kind(), coding.parity)), Some((None, 0)));
        assert!(Coding::from_fti(Scheme::ReedSolomonM, &fti(4, 65_000, 1000)).is_none());
    }
}
