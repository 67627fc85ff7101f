//! Random bundles, encoded, protected and decoded by the crate hardy-bpv7 and by slowlight.
//!
//! `hardy-check COUNT SEED`: Hardy decodes each of our bundles to the same content, and we encode
//! the content of each bundle of Hardy to the same bytes. As many bundles are signed and encrypted
//! (RFC 9173) by each and checked by the other; neither accepts one with a changed bit. Bundles
//! that Hardy protects and refuses itself (some with several targets) are counted. Exit code 1,
//! with the difference, at the first failure.

use std::collections::BTreeMap;
use std::time::Duration;

use bp::agent::Pattern;
use bp::codec::bp7::{Bounds, Bundle, Head};
use bp::codec::bpsec::{AesVariant, Scope, ShaVariant};
use bp::security::{self as ours};
use bp::security::{OnFault, Opened, Policy, Role, Rule, Vectors};
use bp7_check::{Kinds, Numbers, made};
use engine::Rng;
use hardy_bpv7::block::{self, Type};
use hardy_bpv7::bpsec::key::{EncAlgorithm, Key, KeyAlgorithm, KeySource, Operation};
use hardy_bpv7::bpsec::rfc9173::ScopeFlags;
use hardy_bpv7::bpsec::{encryptor, key, no_keys, signer};
use hardy_bpv7::builder::Builder;
use hardy_bpv7::bundle::{self, ParsedBundle};
use hardy_bpv7::crc::CrcType;
use hardy_bpv7::creation_timestamp::CreationTimestamp;
use hardy_bpv7::dtn_time::DtnTime;
use hardy_bpv7::eid::Eid;

const CRCS: [CrcType; 3] = [CrcType::None, CrcType::CRC16_X25, CrcType::CRC32_CASTAGNOLI];
/// A block type that neither implementation knows.
const UNKNOWN: u64 = 192;

/// Decodes a bundle of ours; compares it with what we decode.
fn read_by_hardy(bytes: &[u8]) -> Result<(), String> {
    let expected = Bundle::decode(bytes, &Bounds::default()).expect("it is ours");
    let found = ParsedBundle::parse(bytes, no_keys);
    // A node that does not know such a block deletes the bundle.
    if expected.head.blocks().iter().any(|b| b.kind() == UNKNOWN && b.flags().0 & 4 != 0) {
        return match found {
            Ok(_) => Err("Hardy accepts an unknown block that deletes the bundle".to_owned()),
            Err(_) => Ok(()),
        };
    }
    let found = found.map_err(|error| format!("Hardy: {error}"))?;
    if found.non_canonical {
        return Err("Hardy finds our encoding not canonical".to_owned());
    }
    compare(&expected, &found.bundle, bytes)
}

/// Compares what both decoded.
fn compare(ours: &Bundle<'_>, theirs: &bundle::Bundle, bytes: &[u8]) -> Result<(), String> {
    let primary = ours.head.primary();
    let (time, sequence) = theirs.id.timestamp.clone().into_parts();
    let time = time.map_or(0, |time| time.millisecs());
    let fragment = theirs.id.fragment_info.as_ref();
    let texts = [
        ("source", primary.source.to_string(), theirs.id.source.to_string()),
        ("destination", primary.destination.to_string(), theirs.destination.to_string()),
        ("report-to", primary.report_to.to_string(), theirs.report_to.to_string()),
    ];
    for (what, one, other) in texts {
        // Hardy writes the allocator 0 of an `ipn` number, too.
        if one != other && one != other.replace("ipn:0.", "ipn:") {
            return Err(format!("{what}: {one} by us, {other} by Hardy"));
        }
    }
    let of_fragment = |at: fn(&bundle::FragmentInfo) -> u64| fragment.map(at);
    let numbers = [
        ("flags", Some(primary.flags.0), Some(u64::from(&theirs.flags))),
        ("CRC", Some(primary.crc as u64), Some(u64::from(theirs.crc_type))),
        ("time", Some(primary.creation.time_ms), Some(time)),
        ("sequence", Some(primary.creation.sequence), Some(sequence)),
        ("lifetime", Some(primary.lifetime_ms), u64::try_from(theirs.lifetime.as_millis()).ok()),
        ("offset", primary.fragment.map(|part| part.offset), of_fragment(|part| part.offset)),
        (
            "length",
            primary.fragment.map(|part| part.total),
            of_fragment(|part| part.total_adu_length),
        ),
        ("blocks", Some(ours.head.blocks().len() as u64 + 2), Some(theirs.blocks.len() as u64)),
    ];
    for (what, one, other) in numbers {
        if one != other {
            return Err(format!("{what}: {one:?} by us, {other:?} by Hardy"));
        }
    }
    for block in ours.head.blocks() {
        let found = theirs.blocks.get(&block.number()).ok_or("Hardy lacks a block")?;
        let is_same = u64::from(found.block_type) == block.kind()
            && u64::from(&found.flags) == block.flags().0
            && found.payload(bytes) == Some(block.data());
        if !is_same {
            return Err(format!("block {}: {found:?}", block.number()));
        }
    }
    match theirs.blocks.get(&1).and_then(|block| block.payload(bytes)) {
        Some(payload) if payload == ours.payload => Ok(()),
        _ => Err("another payload".to_owned()),
    }
}

fn eid(numbers: &mut Numbers) -> Eid {
    let text = match numbers.below(3) {
        0 => format!("ipn:{}.{}", 1 + numbers.below(1 << 31), numbers.number() & 0xffff_ffff),
        1 => format!("dtn://n{}/{}", numbers.number(), numbers.number()),
        _ => format!("dtn://n{}/", numbers.number()),
    };
    text.parse().expect("Hardy reads its text")
}

/// A random bundle by Hardy.
fn made_by_hardy(numbers: &mut Numbers) -> Result<(bundle::Bundle, Box<[u8]>), String> {
    let flags: u64 = numbers.one_of(&[0, 4, 0x20, 0x40, 0x4000, 0x7_4060]);
    let mut builder = Builder::new(eid(numbers), eid(numbers))
        .with_flags(bundle::Flags::from(flags))
        .with_crc_type(numbers.one_of(&CRCS))
        .with_lifetime(Duration::from_millis(numbers.number()));
    if numbers.below(2) == 0 {
        builder = builder.with_report_to(eid(numbers));
    }
    let kinds = [
        (Type::BundleAge, cbor(numbers.number())),
        (Type::HopCount, [&[0x82][..], &cbor(1 + numbers.below(255)), &cbor(7)].concat()),
        (Type::Unrecognised(UNKNOWN), {
            let len = numbers.below(300);
            numbers.bytes(len)
        }),
    ];
    for (kind, data) in kinds {
        if numbers.below(2) == 0 {
            let block = builder.add_extension_block(kind).map_err(|error| error.to_string())?;
            builder = block
                .with_flags(block::Flags::from(numbers.one_of(&[0, 1, 2, 0x10, 0x11])))
                .with_crc_type(numbers.one_of(&CRCS))
                .build(data.into());
        }
    }
    let len = numbers.one_of(&[0, 1, 23, 24, 255, 256, 5000, 70_000]);
    let payload = numbers.bytes(len);
    let block = builder.add_extension_block(Type::Payload).map_err(|error| error.to_string())?;
    let builder = block.with_crc_type(numbers.one_of(&CRCS)).build(payload.into());
    let time = DtnTime::new(1 + numbers.number());
    let timestamp = CreationTimestamp::from_parts(Some(time), numbers.number());
    builder.build(timestamp).map_err(|error| format!("Hardy builds nothing: {error}"))
}

/// Shortest encoding of an unsigned integer.
fn cbor(value: u64) -> Vec<u8> {
    match value {
        0..24 => vec![value as u8],
        24..0x100 => vec![0x18, value as u8],
        0x100..0x1_0000 => [&[0x19][..], &(value as u16).to_be_bytes()].concat(),
        0x1_0000..0x1_0000_0000 => [&[0x1a][..], &(value as u32).to_be_bytes()].concat(),
        _ => [&[0x1b][..], &value.to_be_bytes()].concat(),
    }
}

/// Decodes a bundle of Hardy, and encodes its content again.
fn read_by_us(theirs: &bundle::Bundle, bytes: &[u8]) -> Result<(), String> {
    let found = Bundle::decode(bytes, &Bounds::default()).map_err(|error| error.to_string())?;
    compare(&found, theirs, bytes)?;
    let (primary, blocks) = (found.head.primary().clone(), found.head.blocks().to_vec());
    let head = Head::new(primary, blocks, found.head.payload()).map_err(|e| e.to_string())?;
    let again = Bundle { head, payload: found.payload }.to_vec();
    if again.as_deref() == Ok(bytes) { Ok(()) } else { Err("we encode it otherwise".to_owned()) }
}

/// Keys and policy of one bundle, in both representations.
struct Protection {
    signs: Option<Key>,
    encrypts: Option<Key>,
    scopes: [u64; 2],
    targets: Vec<u64>,
    ours: BTreeMap<String, ours::Key>,
    integrity: ShaVariant,
    confidentiality: AesVariant,
}

impl KeySource for Protection {
    fn key<'a>(&'a self, _source: &Eid, operations: &[Operation]) -> Option<&'a Key> {
        if operations.iter().any(|of| matches!(of, Operation::Verify | Operation::Sign)) {
            self.signs.as_ref()
        } else {
            self.encrypts.as_ref()
        }
    }
}

fn oct(bytes: &[u8]) -> key::Type {
    key::Type::OctetSequence { key: bytes.into() }
}

impl Protection {
    /// Random keys and operations: at least one of a signature and an encryption.
    fn new(numbers: &mut Numbers, has_unknown: bool) -> Self {
        let which = 1 + numbers.below(3);
        let mut keys = BTreeMap::new();
        let mut name = |name: &str, wrapping: bool, bytes: &[u8]| {
            let key = if wrapping { ours::Key::wrapping(bytes) } else { ours::Key::new(bytes) };
            keys.insert(name.to_owned(), key);
        };
        let wrap = numbers.one_of(&[0_u64, 16, 32]);
        let hash = numbers.below(3) as usize;
        let integrity = [ShaVariant::Sha256, ShaVariant::Sha384, ShaVariant::Sha512][hash];
        let signs = (which & 1 != 0).then(|| {
            use KeyAlgorithm as A;
            let algorithm = match wrap {
                0 => [A::HS256, A::HS384, A::HS512],
                16 => [A::HS256_A128KW, A::HS384_A128KW, A::HS512_A128KW],
                _ => [A::HS256_A256KW, A::HS384_A256KW, A::HS512_A256KW],
            };
            let len = if wrap == 0 { 1 + numbers.below(80) } else { wrap };
            let bytes = numbers.bytes(len);
            name("signs", wrap != 0, &bytes);
            let key_algorithm = Some(algorithm[hash]);
            Key { key_type: oct(&bytes), key_algorithm, ..Key::default() }
        });
        let is_short = numbers.below(2) == 0;
        let wrap = numbers.one_of(&[0_u64, 16, 32]);
        let confidentiality = if is_short { AesVariant::Aes128 } else { AesVariant::Aes256 };
        let encrypts = (which & 2 != 0).then(|| {
            let (len, algorithm) = match wrap {
                0 => (if is_short { 16 } else { 32 }, KeyAlgorithm::Direct),
                16 => (16, KeyAlgorithm::A128KW),
                _ => (32, KeyAlgorithm::A256KW),
            };
            let bytes = numbers.bytes(len);
            name("encrypts", wrap != 0, &bytes);
            let cipher = if is_short { EncAlgorithm::A128GCM } else { EncAlgorithm::A256GCM };
            Key {
                key_type: oct(&bytes),
                key_algorithm: Some(algorithm),
                enc_algorithm: Some(cipher),
                ..Key::default()
            }
        });
        let mut targets = vec![bp::codec::bp7::PAYLOAD];
        if has_unknown && numbers.below(2) == 0 {
            targets.push(UNKNOWN);
        }
        if encrypts.is_none() && numbers.below(2) == 0 {
            targets.push(0);
        }
        let scopes = [numbers.below(8), numbers.below(8)];
        Self { signs, encrypts, scopes, targets, ours: keys, integrity, confidentiality }
    }

    /// Policy of a node with this role.
    fn policy(&self, role: Role) -> Policy {
        let rule = |operation, key: &str, scope: u64| Rule {
            role,
            operation,
            source: Pattern::Any,
            destination: Pattern::Any,
            targets: self.targets.clone(),
            key: key.to_owned(),
            scope: Scope::from_flags(scope),
            on_fault: OnFault::Delete,
        };
        let mut rules = Vec::new();
        rules.extend(
            self.signs
                .as_ref()
                .map(|_| rule(ours::Operation::Integrity(self.integrity), "signs", self.scopes[0])),
        );
        rules.extend(self.encrypts.as_ref().map(|_| {
            let operation = ours::Operation::Confidentiality(self.confidentiality);
            rule(operation, "encrypts", self.scopes[1])
        }));
        Policy { rules, keys: self.ours.clone(), ..Policy::default() }
    }

    /// Protects a bundle by Hardy.
    fn protect(&self, plain: &bundle::Bundle, bytes: &[u8]) -> Result<Box<[u8]>, String> {
        let by: Eid = "ipn:977.0".parse().expect("an endpoint");
        let numbers: Vec<u64> =
            self.targets.iter().filter_map(|kind| number(plain, *kind)).collect();
        let mut signed = signer::Signer::new(plain, bytes);
        if let Some(key) = &self.signs {
            for number in &numbers {
                let context = signer::Context::HMAC_SHA2(scope(self.scopes[0]));
                signed = signed
                    .sign_block(*number, context, by.clone(), key)
                    .map_err(|(_, error)| format!("Hardy signs nothing: {error}"))?;
            }
        }
        let (signed, bytes) = signed.rebuild_bundle().map_err(|error| error.to_string())?;
        let mut encrypted = encryptor::Encryptor::new(&signed, &bytes);
        if let Some(key) = &self.encrypts {
            for number in &numbers {
                let context = encryptor::Context::AES_GCM(scope(self.scopes[1]));
                encrypted = encrypted
                    .encrypt_block(*number, context, by.clone(), key)
                    .map_err(|(_, error)| format!("Hardy encrypts nothing: {error}"))?;
            }
        }
        encrypted.rebuild().map_err(|error| error.to_string())
    }
}

fn number(of: &bundle::Bundle, kind: u64) -> Option<u64> {
    let mut found = of.blocks.iter().filter(|(_, block)| u64::from(block.block_type) == kind);
    found.next().map(|(number, _)| *number)
}

fn scope(flags: u64) -> ScopeFlags {
    ScopeFlags {
        include_primary_block: flags & 1 != 0,
        include_target_header: flags & 2 != 0,
        include_security_header: flags & 4 != 0,
        unrecognised: None,
    }
}

fn opened(bytes: &[u8]) -> Result<Opened, String> {
    let bundle = Bundle::decode(bytes, &Bounds::default()).map_err(|error| error.to_string())?;
    Ok(Opened { head: bundle.head, payload: bundle.payload.to_vec() })
}

/// Contents of the blocks that operations may have as targets.
fn contents(of: &Opened) -> Vec<Vec<u8>> {
    let unknown = of.head.block_of(UNKNOWN).map(|block| block.data().to_vec());
    unknown.into_iter().chain([of.payload.clone()]).collect()
}

/// Checks a bundle that Hardy protected, and one with a changed bit.
fn checked_by_us(
    protection: &Protection,
    plain: &[u8],
    protected: &[u8],
    numbers: &mut Numbers,
) -> Result<(), String> {
    let policy = protection.policy(Role::Acceptor);
    let mut found = opened(protected)?;
    policy.check(&mut found, false).map_err(|violation| format!("we refuse it: {violation:?}"))?;
    if contents(&found) != contents(&opened(plain)?) {
        return Err("we find another content".to_owned());
    }
    let mut damaged = opened(protected)?;
    if damaged.payload.is_empty() {
        return Ok(());
    }
    let at = numbers.below(damaged.payload.len() as u64) as usize;
    damaged.payload[at] ^= 1 << numbers.below(8);
    match policy.check(&mut damaged, false) {
        Ok(_) => Err(format!("we accept it with byte {at} of the payload changed")),
        Err(_) => Ok(()),
    }
}

/// Checks a bundle that we protected, by Hardy.
fn checked_by_hardy(protection: &Protection, plain: &[u8], at: u64) -> Result<(), String> {
    let before = opened(plain)?;
    let mut made = before.clone();
    let mut vectors = Vectors::new(&mut Rng::new(at, "vectors"));
    let node = bp::codec::bp7::Eid::ipn(977, 0);
    let policy = protection.policy(Role::Source);
    policy.protect(&mut made, &node, &mut vectors).map_err(|fault| format!("{fault:?}"))?;
    let protected = Bundle { head: made.head, payload: &made.payload }.to_vec();
    let protected = protected.map_err(|error| error.to_string())?;
    let found = read_protected(protection, &protected)?;
    if found != contents(&before) {
        return Err("Hardy finds another content".to_owned());
    }
    let mut damaged = protected;
    if before.payload.is_empty() {
        return Ok(());
    }
    // The payload is the last block: this is a byte of it, or of its CRC.
    let last = damaged.len() - 2;
    damaged[last] ^= 1;
    match read_protected(protection, &damaged) {
        Ok(_) => Err("Hardy accepts it with a changed byte".to_owned()),
        Err(_) => Ok(()),
    }
}

/// Verifies and decrypts by Hardy.
fn read_protected(protection: &Protection, bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let parsed = ParsedBundle::parse_with_keys(bytes, protection);
    let found = parsed.map_err(|error| format!("Hardy: {error}"))?.bundle;
    let mut contents = Vec::new();
    for kind in [UNKNOWN, bp::codec::bp7::PAYLOAD] {
        let Some(number) = number(&found, kind) else { continue };
        let is_target = protection.targets.contains(&kind);
        if protection.signs.is_some() && is_target {
            match found.verify_block(number, bytes, protection) {
                Ok(true) => {}
                other => return Err(format!("Hardy: block {number}: {other:?}")),
            }
        }
        let data = found.block_data(number, bytes, protection);
        contents.push(data.map_err(|error| format!("Hardy: {error}"))?.as_ref().to_vec());
    }
    Ok(contents)
}

/// Compares the codecs on one bundle by each. Returns whether Hardy's was compared.
fn check(seed: u64, at: u64) -> Result<bool, String> {
    let numbers = &mut Numbers::new(seed, at);
    let both = made(numbers, Kinds::Registered);
    read_by_hardy(&both.ours).map_err(|error| format!("ours: {error}"))?;
    if both.is_checked {
        let mut damaged = both.ours;
        let byte = numbers.below(damaged.len() as u64) as usize;
        damaged[byte] ^= 1 << numbers.below(8);
        if Bundle::decode(&damaged, &Bounds::default()).is_ok() {
            return Err(format!("we take a bundle whose byte {byte} was changed"));
        }
    }
    let (theirs, bytes) = made_by_hardy(numbers)?;
    read_by_us(&theirs, &bytes).map_err(|error| format!("Hardy's: {error}"))?;
    Ok(true)
}

/// Compares the security contexts on one bundle by each. Returns whether Hardy's was compared.
fn check_security(seed: u64, at: u64) -> Result<bool, String> {
    let numbers = &mut Numbers::new(!seed, at);
    let (theirs, bytes) = made_by_hardy(numbers)?;
    let protection = Protection::new(numbers, number(&theirs, UNKNOWN).is_some());
    let protected = protection.protect(&theirs, &bytes)?;
    let is_sound = read_protected(&protection, &protected).is_ok();
    if is_sound {
        checked_by_us(&protection, &bytes, &protected, numbers)
            .map_err(|error| format!("protected by Hardy: {error}"))?;
    }
    checked_by_hardy(&protection, &bytes, at)
        .map_err(|error| format!("protected by us: {error}"))?;
    Ok(is_sound)
}

fn main() {
    let given: Vec<u64> = std::env::args().skip(1).map_while(|given| given.parse().ok()).collect();
    let [count, seed] = given[..] else {
        eprintln!("usage: hardy-check COUNT SEED");
        std::process::exit(2);
    };
    for (what, run) in [("", check as fn(u64, u64) -> _), ("protected ", check_security)] {
        let mut compared = 0;
        for at in 0..count {
            match run(seed, at) {
                Ok(is_compared) => compared += u64::from(is_compared),
                Err(error) => {
                    eprintln!("{what}bundle {at} of seed {seed}: {error}");
                    std::process::exit(1);
                }
            }
        }
        println!("{count} {what}bundles of ours and {compared} of Hardy alike");
    }
}
