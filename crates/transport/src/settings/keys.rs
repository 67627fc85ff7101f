//! The keys with which LTP segments are authenticated. Secrets are read, and never written.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::Value;

/// The keys shared with an engine (see [`ltp::Authentication`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authentication {
    /// Key for sent segments.
    pub key: Key,
    /// Other accepted keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<Key>,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Authentication of a segment with this key.
    pub suite: Suite,
    /// Id of the key, in hexadecimal digits.
    #[serde(default)]
    pub id: KeyId,
    /// The key itself, in hexadecimal digits.
    #[serde(default, skip_serializing)]
    pub secret: Option<Secret>,
    /// File with the key in hexadecimal digits; relative to the file that names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
}

/// A ciphersuite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// HMAC-SHA1-80.
    HmacSha1,
    /// HMAC-SHA-256, under a number for private use.
    HmacSha256,
    /// NULL, whose key is public.
    Null,
}

impl From<Suite> for ltp::Ciphersuite {
    fn from(suite: Suite) -> Self {
        match suite {
            Suite::HmacSha1 => Self::HmacSha1,
            Suite::HmacSha256 => Self::HmacSha256,
            Suite::Null => Self::Null,
        }
    }
}

/// The id of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyId(pub Vec<u8>);

impl Serialize for KeyId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&digits)
    }
}

impl<'de> Deserialize<'de> for KeyId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        bytes(&text).map(Self).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "invalid id of a key {:?}: expected its bytes in hexadecimal digits, such as \"01\"",
                wire::excerpt(&text)
            ))
        })
    }
}

/// A key's secret as given; it is checked when used, because a parser's errors show its input.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Secret in these hexadecimal digits.
    #[must_use]
    pub fn new(digits: &str) -> Self {
        Self(digits.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Bytes in hexadecimal digits, possibly separated by white space.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = digits
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The longest key file, in bytes.
const FILE_MAX: u64 = 4096;

fn contents(file: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("cannot read {}: {error}", file.display());
    if !std::fs::metadata(file).map_err(unreadable)?.is_file() {
        return Err(format!("{} is not a file", file.display()));
    }
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(unreadable)?;
    opened.take(FILE_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_MAX {
        return Err(format!("{} has more than {FILE_MAX} bytes", file.display()));
    }
    Ok(text)
}

/// Bytes of a key file in hexadecimal digits.
///
/// # Errors
///
/// Reason why the file cannot be read.
pub fn bytes_of(file: &Path) -> Result<Vec<u8>, String> {
    bytes(&contents(file)?)
        .ok_or_else(|| format!("{} does not hold pairs of hexadecimal digits", file.display()))
}

impl Key {
    fn value(&self) -> Result<ltp::Key, String> {
        let given = match (self.suite, &self.secret, &self.file) {
            (Suite::Null, None, None) => Vec::new(),
            (Suite::Null, ..) => {
                return Err("the suite null has a key that everybody knows; give none".to_owned());
            }
            (_, Some(secret), None) => {
                bytes(&secret.0).ok_or("`secret` is not of pairs of hexadecimal digits")?
            }
            (_, None, Some(file)) => bytes_of(file)?,
            (_, Some(_), Some(_)) => return Err("give `secret` or `file`, not both".to_owned()),
            (_, None, None) => {
                return Err("give `secret` or `file`; secrets are not written out".to_owned());
            }
        };
        if given.is_empty() && self.suite != Suite::Null {
            return Err("the key is empty".to_owned());
        }
        Ok(ltp::Key::new(self.suite.into(), &self.id.0, &given))
    }
}

impl Authentication {
    /// The keys themselves.
    ///
    /// # Errors
    ///
    /// The rest of a message that begins with the path to this table.
    pub(super) fn value(&self) -> Result<ltp::Authentication, String> {
        let read = |key: &Key, name: &str| key.value().map_err(|why| format!(".{name}: {why}"));
        for (index, one) in self.accepted.iter().enumerate() {
            let mut others = self.accepted[..index].iter().chain([&self.key]);
            if others.any(|other| (other.suite, &other.id) == (one.suite, &one.id)) {
                let why = "two keys have one suite and one id; give each an id of its own";
                return Err(format!(".accepted: {why}"));
            }
        }
        let accepted = self.accepted.iter().map(|key| read(key, "accepted"));
        Ok(ltp::Authentication {
            key: read(&self.key, "key")?,
            accepted: accepted.collect::<Result<_, _>>()?,
        })
    }
}

/// Finds the key files of a table relative to `folder`.
pub(super) fn place(keys: &mut toml::Table, folder: &Path) {
    for (_, value) in keys.iter_mut() {
        let one = std::slice::from_mut(value);
        let keys = match one {
            [Value::Array(keys)] => keys.as_mut_slice(),
            _ => one,
        };
        for key in keys.iter_mut().filter_map(Value::as_table_mut) {
            if let Some(Value::String(file)) = key.get_mut("file") {
                let placed = folder.join(&*file);
                let placed = std::path::absolute(&placed).unwrap_or(placed);
                *file = placed.to_string_lossy().into_owned();
            }
        }
    }
}
