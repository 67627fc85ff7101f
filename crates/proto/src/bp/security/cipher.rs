//! Algorithms of the contexts of RFC 9173, by the RustCrypto crates.

use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::{AeadInOut as _, Aes128Gcm, Aes256Gcm, KeyInit as _, Nonce, Tag};
use aes_kw::{KwAes128, KwAes256};
use hmac::{Hmac, Mac as _};
use sha2::{Sha256, Sha384, Sha512};
use wire::bpsec::{AesVariant, ShaVariant, TAG_LEN};

/// Length of initialization vectors in bytes; others are not accepted (RFC 9173 §4.3.1 recommends
/// it).
pub(super) const IV_LEN: usize = 12;

/// Computes the HMAC of concatenated pieces with the hash of a variant.
macro_rules! with_mac {
    ($variant:expr, $key:expr, $pieces:expr, $mac:ident => $then:expr) => {
        match $variant {
            ShaVariant::Sha256 => with_mac!(@ Sha256, $key, $pieces, $mac => $then),
            ShaVariant::Sha384 => with_mac!(@ Sha384, $key, $pieces, $mac => $then),
            ShaVariant::Sha512 => with_mac!(@ Sha512, $key, $pieces, $mac => $then),
        }
    };
    (@ $hash:ty, $key:expr, $pieces:expr, $mac:ident => $then:expr) => {{
        let mut $mac = Hmac::<$hash>::new_from_slice($key).expect("HMAC takes keys of any length");
        $pieces.iter().for_each(|piece| $mac.update(piece));
        $then
    }};
}

/// Authentication code of concatenated pieces. HMAC keys may have any length.
pub(super) fn authenticate(variant: ShaVariant, key: &[u8], pieces: [&[u8]; 2]) -> Vec<u8> {
    with_mac!(variant, key, pieces, mac => mac.finalize().into_bytes().to_vec())
}

/// Whether a code matches these pieces, compared in constant time.
pub(super) fn is_authentic(
    variant: ShaVariant,
    key: &[u8],
    pieces: [&[u8]; 2],
    code: &[u8],
) -> bool {
    with_mac!(variant, key, pieces, mac => mac.verify_slice(code).is_ok())
}

/// Encrypts bytes in place and returns the tag. `None` if the key does not have the variant's
/// length.
pub(super) fn encrypt(
    variant: AesVariant,
    key: &[u8],
    iv: &[u8; IV_LEN],
    additional: &[u8],
    bytes: &mut [u8],
) -> Option<[u8; TAG_LEN]> {
    let (nonce, buffer) = (Nonce::from(*iv), InOutBuf::from(bytes));
    let tag = match variant {
        AesVariant::Aes128 => {
            Aes128Gcm::new_from_slice(key).ok()?.encrypt_inout_detached(&nonce, additional, buffer)
        }
        AesVariant::Aes256 => {
            Aes256Gcm::new_from_slice(key).ok()?.encrypt_inout_detached(&nonce, additional, buffer)
        }
    };
    tag.ok().map(Into::into)
}

/// Decrypts bytes in place if they are authentic; returns whether they are.
pub(super) fn decrypt(
    variant: AesVariant,
    key: &[u8],
    iv: &[u8],
    additional: &[u8],
    bytes: &mut [u8],
    tag: &[u8; TAG_LEN],
) -> bool {
    let Ok(iv) = <[u8; IV_LEN]>::try_from(iv) else { return false };
    let (nonce, buffer, tag) = (Nonce::from(iv), InOutBuf::from(bytes), Tag::from(*tag));
    match variant {
        AesVariant::Aes128 => Aes128Gcm::new_from_slice(key).is_ok_and(|cipher| {
            cipher.decrypt_inout_detached(&nonce, additional, buffer, &tag).is_ok()
        }),
        AesVariant::Aes256 => Aes256Gcm::new_from_slice(key).is_ok_and(|cipher| {
            cipher.decrypt_inout_detached(&nonce, additional, buffer, &tag).is_ok()
        }),
    }
}

/// Wraps a key with another of 16 or 32 bytes (RFC 3394).
pub(super) fn wrap(by: &[u8], key: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0; key.len() + 8];
    match by.len() {
        16 => KwAes128::new_from_slice(by).ok()?.wrap_key(key, &mut out).ok()?,
        32 => KwAes256::new_from_slice(by).ok()?.wrap_key(key, &mut out).ok()?,
        _ => return None,
    };
    Some(out)
}

/// Unwraps a key; `None` if another key wrapped it.
pub(super) fn unwrap(by: &[u8], wrapped: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0; wrapped.len().checked_sub(8)?];
    match by.len() {
        16 => KwAes128::new_from_slice(by).ok()?.unwrap_key(wrapped, &mut out).ok()?,
        32 => KwAes256::new_from_slice(by).ok()?.unwrap_key(wrapped, &mut out).ok()?,
        _ => return None,
    };
    Some(out)
}
