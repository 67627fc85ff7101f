//! Units of client data that share a block (CCSDS 734.1-B, service data aggregation).
//!
//! | bytes | field |
//! |---|---|
//! | SDNV | client service that receives the unit |
//! | SDNV | bytes of the unit |
//! | … | the unit |
//!
//! CCSDS 734.1-B lets the client service define where a unit ends. Here all units start with their
//! length; a receiver whose client service defines the length takes it as part of the unit.

use wire::cursor::{Reader, Writer};
use wire::sdnv;
use wire::{DecodeError, EncodeError};

/// Client service of aggregated blocks (SANA registry of LTP client services).
pub const AGGREGATION_SERVICE: u64 = 2;

/// A unit of client data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// Client service that receives it.
    pub service: u64,
    /// Data.
    pub data: &'a [u8],
}

impl<'a> Unit<'a> {
    /// Decodes the units of a block.
    ///
    /// # Errors
    /// The block does not consist of complete units.
    pub fn decode_all(block: &'a [u8]) -> Result<Vec<Self>, DecodeError> {
        let mut reader = Reader::new(block);
        let mut units = Vec::new();
        while !reader.is_empty() {
            let service = sdnv::read(&mut reader)?;
            let len = sdnv::read(&mut reader)?;
            let data = reader.take(usize::try_from(len).unwrap_or(usize::MAX))?;
            units.push(Self { service, data });
        }
        Ok(units)
    }

    /// Length in the block, in bytes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        sdnv::len(self.service) + sdnv::len(self.data.len() as u64) + self.data.len()
    }

    /// Writes the unit to exactly `out`.
    ///
    /// # Errors
    /// `out` has another length.
    pub fn encode(&self, out: &mut [u8]) -> Result<(), EncodeError> {
        let mut writer = Writer::new(out);
        sdnv::write(&mut writer, self.service)?;
        sdnv::write(&mut writer, self.data.len() as u64)?;
        writer.put(self.data)?;
        writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn consecutive_units_are_decoded() {
        let block = b"\x01\x02hi\x81\x00\x00";
        let units = Unit::decode_all(block).expect("two units");
        assert_eq!(units, [Unit { service: 1, data: b"hi" }, Unit { service: 128, data: b"" }]);
        assert_eq!(Unit::decode_all(b"\x01\x02hi\x01\x03hi").map_err(|e| e.offset), Err(6));
        assert_eq!(Unit::decode_all(b""), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn units_round_trip(
            units in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..200)), 0..20),
        ) {
            let units: Vec<_> =
                units.iter().map(|(service, data)| Unit { service: *service, data }).collect();
            let mut block = Vec::new();
            for unit in &units {
                let at = block.len();
                block.resize(at + unit.encoded_len(), 0xa5);
                unit.encode(&mut block[at..]).unwrap();
            }
            prop_assert_eq!(Unit::decode_all(&block).unwrap(), units);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(units) = Unit::decode_all(&bytes) {
                prop_assert!(units.iter().map(|unit| unit.data.len()).sum::<usize>() <= bytes.len());
            }
        }
    }
}
