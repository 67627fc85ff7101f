//! Algorithms of the contexts of RFC 9173, by the RustCrypto crates.

use aes_gcm::aead::consts::{U8, U9, U10, U11, U12, U13, U14, U15, U16};
use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::aead::{self, AeadInOut, KeyInit};
use aes_gcm::aes::{Aes128, Aes256};
use aes_gcm::{Aes128Gcm, Aes256Gcm, AesGcm, Nonce};
use aes_kw::{KwAes128, KwAes256};
use hmac::{Hmac, Mac as _};
use sha2::{Sha256, Sha384, Sha512};

use crate::codec::bpsec::{AesVariant, ShaVariant, TAG_LEN};

/// Length of initialization vectors of blocks from here, in bytes (RFC 9173 §4.3.1 recommends it).
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

/// Chooses the cipher for an initialization vector of 8 to 16 bytes (RFC 9173 §4.3.1).
macro_rules! by_length {
    ($aes:ty, $iv:expr, $($argument:expr),+) => {
        match $iv.len() {
            8 => opens::<AesGcm<$aes, U8>>($iv, $($argument),+),
            9 => opens::<AesGcm<$aes, U9>>($iv, $($argument),+),
            10 => opens::<AesGcm<$aes, U10>>($iv, $($argument),+),
            11 => opens::<AesGcm<$aes, U11>>($iv, $($argument),+),
            12 => opens::<AesGcm<$aes, U12>>($iv, $($argument),+),
            13 => opens::<AesGcm<$aes, U13>>($iv, $($argument),+),
            14 => opens::<AesGcm<$aes, U14>>($iv, $($argument),+),
            15 => opens::<AesGcm<$aes, U15>>($iv, $($argument),+),
            16 => opens::<AesGcm<$aes, U16>>($iv, $($argument),+),
            _ => false,
        }
    };
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
    match variant {
        AesVariant::Aes128 => by_length!(Aes128, iv, key, additional, bytes, tag),
        AesVariant::Aes256 => by_length!(Aes256, iv, key, additional, bytes, tag),
    }
}

fn opens<C: AeadInOut + KeyInit>(
    iv: &[u8],
    key: &[u8],
    additional: &[u8],
    bytes: &mut [u8],
    tag: &[u8],
) -> bool {
    let (Ok(cipher), Ok(nonce), Ok(tag)) =
        (C::new_from_slice(key), aead::Nonce::<C>::try_from(iv), aead::Tag::<C>::try_from(tag))
    else {
        return false;
    };
    let buffer = InOutBuf::from(bytes);
    cipher.decrypt_inout_detached(&nonce, additional, buffer, &tag).is_ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let pair = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(pair).collect()
    }

    fn decrypted(variant: AesVariant, key: &[u8], iv: &[u8], aad: &[u8], sealed: &[u8]) -> Vec<u8> {
        let (bytes, tag) = sealed.split_at(sealed.len() - TAG_LEN);
        let mut bytes = bytes.to_vec();
        let tag: [u8; TAG_LEN] = tag.try_into().unwrap();
        assert!(decrypt(variant, key, iv, aad, &mut bytes, &tag));
        assert!(!decrypt(variant, key, iv, b"other", &mut bytes.clone(), &tag));
        bytes
    }

    /// Test case 5 of McGrew and Viega, "The Galois/Counter Mode of Operation".
    ///
    /// Requirements: D05.
    #[test]
    fn a_vector_of_8_bytes_is_read() {
        let key = hex("feffe9928665731c6d6a8f9467308308");
        let aad = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let plain = hex(concat!(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72",
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        ));
        let sealed = hex(concat!(
            "61353b4c2806934a777ff51fa22a4755699b2a714fcdc6f83766e5f97b6c7423",
            "73806900e49f24b22b097544d4896b424989b5e1ebac0f07c23f4598",
            "3612d2e79e3b0785561be14aaca2fccb",
        ));
        let iv = hex("cafebabefacedbad");
        assert_eq!(decrypted(AesVariant::Aes128, &key, &iv, &aad, &sealed), plain);
    }

    /// Sealed by OpenSSL, through the Python package cryptography.
    ///
    /// Requirements: D05.
    #[test]
    fn vectors_of_9_13_and_16_bytes_are_read() {
        let key = hex(&"feffe9928665731c6d6a8f9467308308".repeat(2));
        let iv: Vec<u8> = (0..17).collect();
        for (len, sealed) in [
            (9, "cf8b66a77bd78e76bd0fdd9626ce1ed5046721de71959c4993"),
            (13, "3641394a45f20bb57a0019ac44a71f3b97c2952d1cb4bb509b"),
            (16, "0456fe743fbf6ac348bb1a1357baaefdd6e39cc057ae65da34"),
        ] {
            let plain = decrypted(AesVariant::Aes256, &key, &iv[..len], b"aad", &hex(sealed));
            assert_eq!(plain, b"plaintext", "{len}");
        }
        for len in [0, 7, 17] {
            let mut bytes = [0; 9];
            assert!(!decrypt(AesVariant::Aes256, &key, &iv[..len], b"", &mut bytes, &[0; TAG_LEN]));
        }
    }
}
