//! Keys shared with a peer (RFC 5327 §2.1).
//!
//! RSA-SHA256 (1) is left out: the one implementation in Rust alone leaks the key through its
//! timing (RUSTSEC-2023-0071).

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::Sha256;

/// The key of the NULL ciphersuite (RFC 5327 §2.1.3).
const NULL_KEY: [u8; 20] = [
    0xc3, 0x7b, 0x7e, 0x64, 0x92, 0x58, 0x43, 0x40, 0xbe, 0xd1, 0x22, 0x07, 0x80, 0x89, 0x41, 0x15,
    0x50, 0x68, 0xf7, 0x38,
];

/// Ciphersuite of a segment's authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ciphersuite {
    /// 0, HMAC-SHA1-80: 10 bytes.
    HmacSha1,
    /// 192, of the range for private use: HMAC-SHA-256, truncated to 16 bytes as in RFC 4868. No
    /// registered suite has it.
    HmacSha256,
    /// 255, NULL: HMAC-SHA1-80 with a public key, which detects damage only.
    Null,
}

impl Ciphersuite {
    /// Code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::HmacSha1 => 0,
            Self::HmacSha256 => 192,
            Self::Null => 255,
        }
    }

    /// Length of the authentication values in bytes.
    #[must_use]
    pub const fn value_len(self) -> usize {
        match self {
            Self::HmacSha1 | Self::Null => 10,
            Self::HmacSha256 => 16,
        }
    }
}

/// Key shared by two engines.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    suite: Ciphersuite,
    /// Content of the header extension: the suite, and the key id.
    pub label: Vec<u8>,
    secret: Vec<u8>,
}

impl Key {
    /// Builds a key. Its id is sent with each segment, and may be empty.
    ///
    /// The NULL suite has its own key; `secret` is not used with it.
    #[must_use]
    pub fn new(suite: Ciphersuite, id: &[u8], secret: &[u8]) -> Self {
        let secret = match suite {
            Ciphersuite::HmacSha1 | Ciphersuite::HmacSha256 => secret,
            Ciphersuite::Null => &NULL_KEY,
        };
        let label = [&[suite.code()], id].concat();
        Self { suite, label, secret: secret.to_vec() }
    }

    /// Ciphersuite.
    #[must_use]
    pub const fn suite(&self) -> Ciphersuite {
        self.suite
    }

    /// Key id.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        &self.label[1..]
    }

    fn mac<M: Mac + KeyInit>(&self, covered: &[u8]) -> M {
        let mac = <M as KeyInit>::new_from_slice(&self.secret);
        mac.expect("HMAC takes a key of any length").chain_update(covered)
    }

    /// Writes the value over `covered`.
    pub fn sign(&self, covered: &[u8], value: &mut [u8]) {
        let len = value.len();
        match self.suite {
            Ciphersuite::HmacSha1 | Ciphersuite::Null => {
                let sum = self.mac::<Hmac<Sha1>>(covered).finalize().into_bytes();
                value.copy_from_slice(&sum[..len]);
            }
            Ciphersuite::HmacSha256 => {
                let sum = self.mac::<Hmac<Sha256>>(covered).finalize().into_bytes();
                value.copy_from_slice(&sum[..len]);
            }
        }
    }

    /// Verifies the value over `covered` in constant time.
    #[must_use]
    pub fn verify(&self, covered: &[u8], value: &[u8]) -> bool {
        if value.len() != self.suite.value_len() {
            return false;
        }
        let verified = match self.suite {
            Ciphersuite::HmacSha1 | Ciphersuite::Null => {
                self.mac::<Hmac<Sha1>>(covered).verify_truncated_left(value)
            }
            Ciphersuite::HmacSha256 => {
                self.mac::<Hmac<Sha256>>(covered).verify_truncated_left(value)
            }
        };
        verified.is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("suite", &self.suite).field("id", &self.id()).finish()
    }
}

/// Keys shared with one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authentication {
    /// Key of sent segments; also accepted in received ones.
    pub key: Key,
    /// Other accepted keys, so that the two sides can change keys one after the other.
    pub accepted: Vec<Key>,
}

impl Authentication {
    /// One key for both directions.
    #[must_use]
    pub const fn new(key: Key) -> Self {
        Self { key, accepted: Vec::new() }
    }
}
