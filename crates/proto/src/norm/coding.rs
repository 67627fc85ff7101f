//! How blocks are coded: the scheme that messages name, and its code.

use bytes::Bytes;
use wire::norm::{Fti, PayloadId, Scheme};

use super::config::SenderConfig;
use crate::fec::{Code, Encoder, Field};

/// Octets of the header of NORM_DATA without payload id and extensions.
const DATA_HEADER: usize = 16;

/// The first segment of an object of which no more than its scheme is known.
pub(crate) fn first_id(scheme: Scheme) -> PayloadId {
    let tells = scheme == Scheme::SmallBlockSystematic;
    PayloadId { block: 0, symbol: 0, block_len: tells.then_some(0) }
}

/// How the blocks of an object are coded.
#[derive(Clone, Debug)]
pub(crate) struct Coding {
    scheme: Scheme,
    /// `None` if blocks have no parity.
    code: Option<Code>,
    block_len: u16,
    parity: u16,
    auto_parity: u16,
}

impl Coding {
    /// What the settings say; an error says what is wrong with them.
    pub(crate) fn new(config: &SenderConfig) -> Result<Self, String> {
        let parity = if config.fec == Scheme::NoCode { 0 } else { config.parity };
        let auto_parity = if config.fec == Scheme::NoCode { 0 } else { config.auto_parity };
        if auto_parity > parity {
            return Err(format!("auto_parity {auto_parity} is more than the parity, {parity}"));
        }
        let mut coding = Self::of(config.fec, config.block_len, parity)?;
        coding.auto_parity = auto_parity;
        Ok(coding)
    }

    /// What a sender says of its object; `None` if that is not understood.
    pub(crate) fn from_fti(scheme: Scheme, fti: &Fti) -> Option<Self> {
        if scheme == Scheme::ReedSolomonM && fti.field_bits != 16 {
            return None;
        }
        Self::of(scheme, fti.block_len, fti.parity).ok()
    }

    fn of(scheme: Scheme, block_len: u16, parity: u16) -> Result<Self, String> {
        let field = match scheme {
            Scheme::NoCode => None,
            Scheme::ReedSolomon8 | Scheme::SmallBlockSystematic => Some(Field::Gf8),
            Scheme::ReedSolomonM => Some(Field::Gf16),
            Scheme::Other(code) => return Err(format!("FEC scheme {code} is not known")),
        };
        if block_len == 0 {
            return Err("a block has at least one segment".to_owned());
        }
        let most = if scheme == Scheme::ReedSolomon8 { 255 } else { u16::MAX };
        if block_len > most {
            return Err(format!("a block has at most {most} segments"));
        }
        let code = match field.filter(|_| parity > 0) {
            Some(field) => {
                let code = Code::new(field, usize::from(block_len), usize::from(parity));
                Some(code.map_err(|error| error.to_string())?)
            }
            None => None,
        };
        Ok(Self { scheme, code, block_len, parity, auto_parity: 0 })
    }

    pub(crate) fn scheme(&self) -> Scheme {
        self.scheme
    }

    pub(crate) fn code(&self) -> Option<&Code> {
        self.code.as_ref()
    }

    pub(crate) fn block_len(&self) -> u16 {
        self.block_len
    }

    pub(crate) fn parity(&self) -> u16 {
        self.parity
    }

    pub(crate) fn auto_parity(&self) -> u16 {
        self.auto_parity
    }

    /// Octets of NORM_DATA before the segment.
    pub(crate) fn data_header(&self, has_fti: bool) -> usize {
        let fti = if has_fti { self.scheme.fti_len().unwrap_or(0) } else { 0 };
        DATA_HEADER + self.scheme.payload_id_len().unwrap_or(0) + fti
    }

    /// The longest segment of at most `len` octets.
    pub(crate) fn fitting(&self, len: u16) -> u16 {
        match self.scheme {
            Scheme::ReedSolomonM => len & !1,
            Scheme::NoCode
            | Scheme::ReedSolomon8
            | Scheme::SmallBlockSystematic
            | Scheme::Other(_) => len,
        }
    }

    pub(crate) fn fti(&self, object_size: u64, segment_size: u16) -> Fti {
        Fti {
            object_size,
            segment_size,
            block_len: self.block_len,
            parity: self.parity,
            field_bits: if self.scheme == Scheme::ReedSolomonM { 16 } else { 8 },
            instance: 0,
        }
    }

    /// How messages name a segment.
    pub(crate) fn payload_id(&self, block_len: u16, block: u32, symbol: u16) -> PayloadId {
        let tells = self.scheme == Scheme::SmallBlockSystematic;
        PayloadId { block, symbol, block_len: tells.then_some(block_len) }
    }

    /// Most blocks that can be numbered.
    pub(crate) fn blocks_max(&self) -> u64 {
        u64::from(self.scheme.block_mask(16)) + 1
    }

    /// An encoder of so many parity segments: only what is sent unasked is computed while a block
    /// goes out.
    pub(crate) fn encoder(&self, segment: u16, parity: u16) -> Option<Encoder> {
        let code = self.code.clone()?;
        Encoder::of_some(code, usize::from(segment), usize::from(parity)).ok()
    }

    /// Parity segments of a block whose source segments are `data`, one after the other.
    pub(crate) fn rows(&self, segment: u16, data: &[u8], rows: &[u16]) -> Vec<(u16, Bytes)> {
        let Some(code) = self.code.clone() else { return Vec::new() };
        let (Some(&first), Some(&last)) = (rows.iter().min(), rows.iter().max()) else {
            return Vec::new();
        };
        let all = usize::from(first)..usize::from(last) + 1;
        let Ok(mut encoder) = Encoder::of_some(code, usize::from(segment), all.len()) else {
            return Vec::new();
        };
        encoder.reset_rows(all);
        encoder.add_run(0, data);
        let made =
            rows.iter().map(|&row| (row, Bytes::copy_from_slice(encoder.parity(row.into()))));
        made.collect()
    }
}
