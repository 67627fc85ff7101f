//! Security blocks of a bundle in memory: adding, checking and removing them.

use std::collections::BTreeSet;

use crate::codec::bp7::{
    Block, BlockFlags, CrcType, Eid, Head, PAYLOAD, PAYLOAD_NUMBER, PRIMARY_NUMBER, Payload,
    Primary,
};
use crate::codec::bpsec::{
    AES_GCM, AesGcm, BlockHeader, Bounds, CONFIDENTIALITY, HMAC_SHA2, HmacSha2, INTEGRITY,
    SecurityBlock, Target, TargetResults, additional_data, integrity_input,
};

use super::cipher;
use super::{Fault, Key};

/// A bundle in memory during security processing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Blocks before the payload.
    pub head: Head,
    /// The payload.
    pub payload: Vec<u8>,
}

/// A security block to add.
#[derive(Clone, Debug)]
pub struct Added<'a> {
    /// Its block number.
    pub number: u64,
    /// Its flags.
    pub flags: BlockFlags,
    /// Numbers of the target blocks.
    pub targets: &'a [u64],
    /// Security source.
    pub source: &'a Eid,
}

impl Opened {
    /// Header of the block of a number, as security blocks use it.
    fn header(&self, number: u64) -> Option<BlockHeader> {
        if number == PAYLOAD_NUMBER {
            return Some(BlockHeader::of_payload(&self.head.payload()));
        }
        self.block(number).map(Into::into)
    }

    fn block(&self, number: u64) -> Option<&Block> {
        self.head.blocks().iter().find(|block| block.number() == number)
    }

    /// Decodable security blocks of a type, with their numbers.
    pub(super) fn security(&self, kind: u64) -> Vec<(u64, SecurityBlock)> {
        let of = self.head.blocks().iter().filter(|block| block.kind() == kind);
        let read = |block: &Block| {
            let content = SecurityBlock::decode(block.data(), &Bounds::default()).ok()?;
            Some((block.number(), content))
        };
        of.filter_map(read).collect()
    }

    /// Whether there is a block of a number.
    pub(super) fn has(&self, number: u64) -> bool {
        number == PRIMARY_NUMBER || self.header(number).is_some()
    }

    /// Numbers of the blocks of a type.
    #[must_use]
    pub fn numbers_of(&self, kind: u64) -> Vec<u64> {
        match kind {
            PAYLOAD => vec![PAYLOAD_NUMBER],
            kind => {
                let of = self.head.blocks().iter().filter(|block| block.kind() == kind);
                of.map(Block::number).collect()
            }
        }
    }

    /// Replaces the CRC of a block. A security block takes its place (RFC 9173 §3.8.1, §4.8.1).
    fn set_crc(&mut self, number: u64, crc: CrcType) -> Result<(), Fault> {
        match number {
            PRIMARY_NUMBER => self.set_primary(Primary { crc, ..self.head.primary().clone() }),
            PAYLOAD_NUMBER => {
                self.head.set_payload(Payload { crc, ..self.head.payload() });
                Ok(())
            }
            number => {
                let block = self.block(number).ok_or(Fault::Conflicting)?;
                let data = block.data().to_vec();
                self.set_data(number, crc, &data)
            }
        }
    }

    /// Numbers of the signed blocks, without the primary block.
    pub(crate) fn signed(&self) -> Vec<u64> {
        let targets = self.security(INTEGRITY).into_iter().flat_map(|(_, content)| content.targets);
        targets.map(|of| of.target).filter(|number| *number != PRIMARY_NUMBER).collect()
    }

    /// Gives blocks a CRC that have lost their last protection (RFC 9173 §3.8.2).
    pub(crate) fn restore_crcs(&mut self, numbers: &[u64], crc: CrcType) -> Result<(), Fault> {
        for &number in numbers {
            let is_protected =
                self.protects(INTEGRITY, number) || self.protects(CONFIDENTIALITY, number);
            if !is_protected && self.has(number) {
                self.set_crc(number, crc)?;
            }
        }
        Ok(())
    }

    pub(crate) fn set_primary(&mut self, primary: Primary) -> Result<(), Fault> {
        let (blocks, payload) = (self.head.blocks().to_vec(), self.head.payload());
        self.head = Head::new(primary, blocks, payload).map_err(|_| Fault::Conflicting)?;
        Ok(())
    }

    /// Replaces the data of a block.
    fn set_data(&mut self, number: u64, crc: CrcType, data: &[u8]) -> Result<(), Fault> {
        if number == PAYLOAD_NUMBER {
            self.payload = data.to_vec();
            let len = data.len() as u64;
            self.head.set_payload(Payload { len, ..self.head.payload() });
            return Ok(());
        }
        let block = self.block(number).ok_or(Fault::Conflicting)?;
        let block = Block::new(block.kind(), number, block.flags(), crc, data);
        self.head.put_block(block.map_err(|_| Fault::Conflicting)?);
        Ok(())
    }

    fn data(&self, number: u64) -> Option<&[u8]> {
        match number {
            PAYLOAD_NUMBER => Some(&self.payload),
            number => self.block(number).map(Block::data),
        }
    }

    /// Bytes hashed for a target: those before its data, and its data.
    fn integrity_pieces(
        &self,
        parameters: &HmacSha2,
        security: BlockHeader,
        target: u64,
    ) -> Option<(Vec<u8>, &[u8])> {
        let primary = self.head.primary_bytes();
        let (what, data): (Target, &[u8]) = match target {
            PRIMARY_NUMBER => (Target::Primary, &[]),
            number => {
                let (header, data) = (self.header(number)?, self.data(number)?);
                (Target::Block { header, len: data.len() as u64 }, data)
            }
        };
        Some((integrity_input(parameters.scope, primary, what, security), data))
    }

    /// Adds a BIB before all other blocks (RFC 9173 §3.8.1). Targets lose their CRCs.
    ///
    /// # Errors
    ///
    /// A target is missing, is a security block, or already has the operation; the number is taken.
    pub fn add_integrity(
        &mut self,
        added: &Added<'_>,
        parameters: &HmacSha2,
        key: &[u8],
    ) -> Result<(), Fault> {
        let Added { number, flags, targets, source } = *added;
        for target in targets {
            let is_security = self
                .block(*target)
                .is_some_and(|block| matches!(block.kind(), INTEGRITY | CONFIDENTIALITY));
            if is_security || !self.has(*target) || self.protects(INTEGRITY, *target) {
                return Err(Fault::Conflicting);
            }
            self.set_crc(*target, CrcType::None)?;
        }
        let security = BlockHeader { kind: INTEGRITY, number, flags };
        let mut with_results = Vec::new();
        for target in targets {
            let (before, data) =
                self.integrity_pieces(parameters, security, *target).ok_or(Fault::Conflicting)?;
            let code = cipher::authenticate(parameters.variant, key, [&before, data]);
            let results = vec![HmacSha2::result(&code)];
            with_results.push(TargetResults { target: *target, results });
        }
        let content = SecurityBlock {
            targets: with_results,
            context: HMAC_SHA2,
            source: source.clone(),
            parameters: parameters.items(),
        };
        self.insert(INTEGRITY, number, flags, &content)
    }

    /// Adds a BCB before all other blocks, and encrypts its targets (RFC 9173 §4.8.1). The
    /// initialization vector must never be reused with this key.
    ///
    /// # Errors
    ///
    /// A target is missing, is the primary block or a BCB, or already has the operation; the key
    /// has a wrong length; the number is taken.
    pub fn add_confidentiality(
        &mut self,
        added: &Added<'_>,
        parameters: &AesGcm,
        key: &[u8],
    ) -> Result<(), Fault> {
        let Added { number, flags, targets, source } = *added;
        let iv = (*parameters.iv).try_into().map_err(|_| Fault::Conflicting)?;
        let security = BlockHeader { kind: CONFIDENTIALITY, number, flags };
        let mut with_results = Vec::new();
        for target in targets {
            let header = self.header(*target).ok_or(Fault::Conflicting)?;
            if header.kind == CONFIDENTIALITY || self.protects(CONFIDENTIALITY, *target) {
                return Err(Fault::Conflicting);
            }
            self.set_crc(*target, CrcType::None)?;
            let primary = self.head.primary_bytes();
            let additional = additional_data(parameters.scope, primary, header, security);
            let mut data = self.data(*target).ok_or(Fault::Conflicting)?.to_vec();
            let tag = cipher::encrypt(parameters.variant, key, &iv, &additional, &mut data);
            let tag = tag.ok_or(Fault::Unknown)?;
            self.set_data(*target, CrcType::None, &data)?;
            let results = vec![AesGcm::result(&tag)];
            with_results.push(TargetResults { target: *target, results });
        }
        let content = SecurityBlock {
            targets: with_results,
            context: AES_GCM,
            source: source.clone(),
            parameters: parameters.items().map_err(|_| Fault::Conflicting)?,
        };
        self.insert(CONFIDENTIALITY, number, flags, &content)
    }

    fn insert(
        &mut self,
        kind: u64,
        number: u64,
        flags: BlockFlags,
        content: &SecurityBlock,
    ) -> Result<(), Fault> {
        let data = content.to_vec().map_err(|_| Fault::Conflicting)?;
        let block = Block::new(kind, number, flags, CrcType::None, &data);
        let mut blocks = vec![block.map_err(|_| Fault::Conflicting)?];
        blocks.extend(self.head.blocks().iter().cloned());
        self.head.set_blocks(blocks).map_err(|_| Fault::Conflicting)
    }

    /// Whether a decodable block of a type has this target.
    pub(crate) fn protects(&self, kind: u64, target: u64) -> bool {
        self.security(kind).iter().any(|(_, content)| content.results(target).is_some())
    }

    /// Whether a block may have a signature that only its acceptor can read: BCBs of a known context
    /// cover the block and a BIB. A BIB that is readable, though claimed to be encrypted, must have
    /// this target.
    pub(super) fn hides_signature(&self, target: u64) -> bool {
        let known = self.security(CONFIDENTIALITY).into_iter();
        let known = known.filter(|(_, content)| AesGcm::from_block(content).is_ok());
        let hidden: BTreeSet<u64> =
            known.flat_map(|(_, content)| content.targets).map(|of| of.target).collect();
        let signs = |block: &Block| {
            let content = SecurityBlock::decode(block.data(), &Bounds::default());
            block.kind() == INTEGRITY
                && hidden.contains(&block.number())
                && content.map_or(true, |content| content.results(target).is_some())
        };
        target != PRIMARY_NUMBER && hidden.contains(&target) && self.head.blocks().iter().any(signs)
    }

    /// Checks a target of a BIB.
    ///
    /// # Errors
    ///
    /// The context is unknown, the key does not fit, or the target was changed.
    pub fn check_integrity(
        &self,
        number: u64,
        content: &SecurityBlock,
        target: u64,
        key: &Key,
    ) -> Result<(), Fault> {
        let parameters = HmacSha2::from_block(content).map_err(|_| Fault::Unknown)?;
        let key = key.open(parameters.wrapped_key.as_deref()).ok_or(Fault::Unknown)?;
        let code = parameters.mac(content, target).map_err(|_| Fault::Failed)?;
        let security = self.header(number).ok_or(Fault::Conflicting)?;
        let pieces = self.integrity_pieces(&parameters, security, target);
        let (before, data) = pieces.ok_or(Fault::Failed)?;
        if cipher::is_authentic(parameters.variant, &key, [&before, data], code) {
            Ok(())
        } else {
            Err(Fault::Failed)
        }
    }

    /// Decrypts a target of a BCB.
    ///
    /// # Errors
    ///
    /// The context is unknown, the key does not fit, or the target was changed; nothing is changed.
    pub fn decrypt(
        &mut self,
        number: u64,
        content: &SecurityBlock,
        target: u64,
        key: &Key,
    ) -> Result<(), Fault> {
        let data = self.decrypted(number, content, target, key)?;
        self.set_data(target, CrcType::None, &data)
    }

    /// Plaintext of a target of a BCB.
    pub(super) fn decrypted(
        &self,
        number: u64,
        content: &SecurityBlock,
        target: u64,
        key: &Key,
    ) -> Result<Vec<u8>, Fault> {
        let parameters = AesGcm::from_block(content).map_err(|_| Fault::Unknown)?;
        let key = key.open(parameters.wrapped_key.as_deref()).ok_or(Fault::Unknown)?;
        let (Some(security), Some(header)) = (self.header(number), self.header(target)) else {
            return Err(Fault::Failed);
        };
        let mut data = self.data(target).ok_or(Fault::Failed)?.to_vec();
        let tag = match AesGcm::tag(content, target).map_err(|_| Fault::Failed)? {
            Some(tag) => *tag,
            // The tag follows the ciphertext.
            None => {
                let at =
                    data.len().checked_sub(crate::codec::bpsec::TAG_LEN).ok_or(Fault::Failed)?;
                let tag = data.split_off(at);
                (*tag).try_into().map_err(|_| Fault::Failed)?
            }
        };
        let primary = self.head.primary_bytes();
        let additional = additional_data(parameters.scope, primary, header, security);
        let (variant, iv) = (parameters.variant, &parameters.iv);
        if cipher::decrypt(variant, &key, iv, &additional, &mut data, &tag) {
            Ok(data)
        } else {
            Err(Fault::Failed)
        }
    }

    /// Removes an operation from a security block, and the block with its last one.
    pub(super) fn take_off(&mut self, number: u64, target: u64) -> Result<(), Fault> {
        let block = self.block(number).ok_or(Fault::Conflicting)?;
        let content = SecurityBlock::decode(block.data(), &Bounds::default());
        let mut content = content.map_err(|_| Fault::Unknown)?;
        content.targets.retain(|of| of.target != target);
        if content.targets.is_empty() {
            self.head.remove_block(number);
            return Ok(());
        }
        let data = content.to_vec().map_err(|_| Fault::Conflicting)?;
        let crc = self.block(number).map_or(CrcType::None, Block::crc);
        self.set_data(number, crc, &data)
    }
}
