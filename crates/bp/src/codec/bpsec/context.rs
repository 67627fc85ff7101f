//! The contexts of RFC 9173: HMAC with SHA-2 for integrity, AES in GCM for confidentiality.
//!
//! | context | parameter | value |
//! |---|---|---|
//! | 1, BIB-HMAC-SHA2 | 1 | SHA variant: 5, 6 or 7; default 6 |
//! | | 2 | wrapped key |
//! | | 3 | integrity scope flags; default 7 |
//! | 2, BCB-AES-GCM | 1 | initialization vector of 8 to 16 bytes, usually 12 |
//! | | 2 | AES variant: 1 or 3; default 3 |
//! | | 3 | wrapped key |
//! | | 4 | AAD scope flags; default 7 |
//!
//! The result of either has the number 1: the authentication code, or the tag, which may also be
//! at the end of the ciphertext.

use wire::{DecodeError, EncodeError};

use super::{Item, SecurityBlock};

/// The context of HMAC with SHA-2 (§5.1).
pub const HMAC_SHA2: i64 = 1;
/// The context of AES in GCM (§5.1).
pub const AES_GCM: i64 = 2;
/// Length of the tag of AES in GCM, in bytes (§4.4.1).
pub const TAG_LEN: usize = 16;

const RESULT: u64 = 1;

/// Protected data in addition to the target (§3.3.3 and §4.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// Bit 0: the primary block.
    pub primary: bool,
    /// Bit 1: the target's type, number and flags.
    pub target_header: bool,
    /// Bit 2: the security block's type, number and flags.
    pub security_header: bool,
    /// Flags without a meaning yet, which are protected as they were sent.
    pub reserved: u64,
}

impl Scope {
    /// No other data.
    pub const NONE: Self =
        Self { primary: false, target_header: false, security_header: false, reserved: 0 };
    /// All of these are protected, the default.
    pub const ALL: Self =
        Self { primary: true, target_header: true, security_header: true, reserved: 0 };

    /// Decodes flags; keeps unknown ones.
    #[must_use]
    pub const fn from_flags(flags: u64) -> Self {
        Self {
            primary: flags & 1 != 0,
            target_header: flags & 2 != 0,
            security_header: flags & 4 != 0,
            reserved: flags & !7,
        }
    }

    /// Returns the flags.
    #[must_use]
    pub const fn flags(self) -> u64 {
        let known = self.primary as u64
            | (self.target_header as u64) << 1
            | (self.security_header as u64) << 2;
        known | self.reserved
    }

    /// Whether it protects everything that another scope does.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.flags() & other.flags() == other.flags()
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::ALL
    }
}

/// Hash of an HMAC (§3.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShaVariant {
    /// 5: HMAC 256/256.
    Sha256,
    /// 6: HMAC 384/384.
    #[default]
    Sha384,
    /// 7: HMAC 512/512.
    Sha512,
}

impl ShaVariant {
    /// Length of the code, in bytes.
    #[must_use]
    pub const fn mac_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    const fn code(self) -> u64 {
        match self {
            Self::Sha256 => 5,
            Self::Sha384 => 6,
            Self::Sha512 => 7,
        }
    }
}

/// The length of an AES key (§4.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AesVariant {
    /// 1: A128GCM.
    Aes128,
    /// 3: A256GCM.
    #[default]
    Aes256,
}

impl AesVariant {
    /// Length of the key, in bytes.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128 => 16,
            Self::Aes256 => 32,
        }
    }

    const fn code(self) -> u64 {
        match self {
            Self::Aes128 => 1,
            Self::Aes256 => 3,
        }
    }
}

/// Parameters of BIB-HMAC-SHA2 (§3.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HmacSha2 {
    /// Hash.
    pub variant: ShaVariant,
    /// Key, wrapped by another (RFC 3394).
    pub wrapped_key: Option<Box<[u8]>>,
    /// Protected data in addition to the target.
    pub scope: Scope,
}

impl HmacSha2 {
    /// Decodes the parameters of a block.
    ///
    /// # Errors
    /// The block has another context, or a parameter is unknown, duplicate or invalid.
    pub fn from_block(block: &SecurityBlock) -> Result<Self, DecodeError> {
        if block.context != HMAC_SHA2 {
            return Err(DecodeError::invalid(0, "the security context is not BIB-HMAC-SHA2"));
        }
        once_each(&block.parameters)?;
        let mut parameters = Self::default();
        for item in &block.parameters {
            match item.id {
                1 => {
                    parameters.variant = match item.to_uint()? {
                        5 => ShaVariant::Sha256,
                        6 => ShaVariant::Sha384,
                        7 => ShaVariant::Sha512,
                        _ => return Err(DecodeError::invalid(0, "the SHA variant is undefined")),
                    };
                }
                2 => parameters.wrapped_key = Some(item.to_bytes()?.into()),
                3 => parameters.scope = Scope::from_flags(item.to_uint()?),
                _ => return Err(DecodeError::invalid(0, "a parameter of the context is unknown")),
            }
        }
        Ok(parameters)
    }

    /// Encodes the parameters that have a value.
    #[must_use]
    pub fn items(&self) -> Vec<Item> {
        let mut items = vec![Item::uint(1, self.variant.code())];
        items.extend(self.wrapped_key.as_deref().map(|key| Item::bytes(2, key)));
        items.push(Item::uint(3, self.scope.flags()));
        items
    }

    /// Returns the code of a target.
    ///
    /// # Errors
    /// The target has no code, or a code whose length is not the hash's.
    pub fn mac<'a>(&self, block: &'a SecurityBlock, target: u64) -> Result<&'a [u8], DecodeError> {
        let result = the_result(block, target)?;
        let mac = result.ok_or(DecodeError::invalid(0, "a target has no authentication code"))?;
        if mac.len() != self.variant.mac_len() {
            return Err(DecodeError::invalid(0, "an authentication code has a wrong length"));
        }
        Ok(mac)
    }

    /// Encodes a code as a result.
    #[must_use]
    pub fn result(mac: &[u8]) -> Item {
        Item::bytes(RESULT, mac)
    }
}

/// Parameters of BCB-AES-GCM (§4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AesGcm {
    /// Initialization vector, 8 to 16 bytes.
    pub iv: Box<[u8]>,
    /// Length of the key.
    pub variant: AesVariant,
    /// Key, wrapped by another (RFC 3394).
    pub wrapped_key: Option<Box<[u8]>>,
    /// Protected data in addition to the target.
    pub scope: Scope,
}

impl AesGcm {
    /// Decodes the parameters of a block.
    ///
    /// # Errors
    /// The block has another context, there is no initialization vector, or a parameter is unknown,
    /// duplicate or invalid.
    pub fn from_block(block: &SecurityBlock) -> Result<Self, DecodeError> {
        if block.context != AES_GCM {
            return Err(DecodeError::invalid(0, "the security context is not BCB-AES-GCM"));
        }
        once_each(&block.parameters)?;
        let mut parameters = Self {
            iv: Box::default(),
            variant: AesVariant::default(),
            wrapped_key: None,
            scope: Scope::default(),
        };
        for item in &block.parameters {
            match item.id {
                1 => parameters.iv = item.to_bytes()?.into(),
                2 => {
                    parameters.variant = match item.to_uint()? {
                        1 => AesVariant::Aes128,
                        3 => AesVariant::Aes256,
                        _ => return Err(DecodeError::invalid(0, "the AES variant is undefined")),
                    };
                }
                3 => parameters.wrapped_key = Some(item.to_bytes()?.into()),
                4 => parameters.scope = Scope::from_flags(item.to_uint()?),
                _ => return Err(DecodeError::invalid(0, "a parameter of the context is unknown")),
            }
        }
        if !matches!(parameters.iv.len(), 8..=16) {
            let what = "the initialization vector has not 8 to 16 bytes";
            return Err(DecodeError::invalid(0, what));
        }
        Ok(parameters)
    }

    /// Encodes the parameters that have a value.
    ///
    /// # Errors
    /// The initialization vector does not have 8 to 16 bytes.
    pub fn items(&self) -> Result<Vec<Item>, EncodeError> {
        if !matches!(self.iv.len(), 8..=16) {
            return Err(EncodeError::Conflict("an initialization vector has 8 to 16 bytes"));
        }
        let mut items = vec![Item::bytes(1, &self.iv), Item::uint(2, self.variant.code())];
        items.extend(self.wrapped_key.as_deref().map(|key| Item::bytes(3, key)));
        items.push(Item::uint(4, self.scope.flags()));
        Ok(items)
    }

    /// Returns the tag of a target; `None` if it is at the end of the ciphertext.
    ///
    /// # Errors
    /// The block does not have this target, or the tag's length is wrong.
    pub fn tag(block: &SecurityBlock, target: u64) -> Result<Option<&[u8; TAG_LEN]>, DecodeError> {
        let Some(tag) = the_result(block, target)? else { return Ok(None) };
        let tag = tag.try_into();
        tag.map(Some).map_err(|_| DecodeError::invalid(0, "a tag has not 16 bytes"))
    }

    /// Encodes a tag as a result.
    #[must_use]
    pub fn result(tag: &[u8; TAG_LEN]) -> Item {
        Item::bytes(RESULT, tag)
    }
}

fn once_each(items: &[Item]) -> Result<(), DecodeError> {
    let twice = |(i, item): (usize, &Item)| items[..i].iter().any(|other| other.id == item.id);
    if items.iter().enumerate().any(twice) {
        return Err(DecodeError::invalid(0, "duplicate parameter or result"));
    }
    Ok(())
}

/// Returns the only result of a target that the contexts define.
fn the_result(block: &SecurityBlock, target: u64) -> Result<Option<&[u8]>, DecodeError> {
    let Some(results) = block.results(target) else {
        return Err(DecodeError::invalid(0, "the security block has not this target"));
    };
    once_each(results)?;
    if results.iter().any(|result| result.id != RESULT) {
        return Err(DecodeError::invalid(0, "a result of the context is unknown"));
    }
    results.first().map(Item::to_bytes).transpose()
}
