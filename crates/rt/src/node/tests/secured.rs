//! Nodes that use TLS, or refuse to.

use bp::tcpcl::{Proof, Tls as When};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};

use super::*;
use crate::streams::{Tls, TlsFiles};

/// `id-kp-bundleSecurity` (RFC 9174 §4.4.2.1).
const BUNDLE_SECURITY: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 3, 35];

/// A certificate authority.
struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// The alternative name of a node: an otherName of type bundleEID with an IA5 string (RFC 9174
/// §4.4.1).
fn alternative_name(eid: &str) -> CustomExtension {
    let with = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
    let kind = [0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x08, 0x0b];
    let value = with(0xa0, &with(0x16, eid.as_bytes()));
    let name = with(0xa0, &[&kind[..], &value].concat());
    CustomExtension::from_oid_content(&[2, 5, 29, 17], with(0x30, &name))
}

impl Authority {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("trusted.pem"), own.pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    /// A certificate for the node of this EID; `for_bundles` sets its key usage.
    fn files(&self, eid: &str, for_bundles: bool) -> TlsFiles {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.custom_extensions.push(alternative_name(eid));
        let usage = if for_bundles {
            ExtendedKeyUsagePurpose::Other(BUNDLE_SECURITY.to_vec())
        } else {
            ExtendedKeyUsagePurpose::EmailProtection
        };
        params.extended_key_usages.push(usage);
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let at = |name: &str| self.folder.path().join(format!("{}-{name}", eid.replace('/', "-")));
        std::fs::write(at("certificate.pem"), signed.pem()).unwrap();
        std::fs::write(at("key.pem"), key.serialize_pem()).unwrap();
        let trusted = self.folder.path().join("trusted.pem");
        TlsFiles {
            certificate: at("certificate.pem"),
            key: at("key.pem"),
            trusted,
            anonymous: false,
        }
    }
}

/// Settings of a node that has this certificate and requires one of peers.
fn with(files: &TlsFiles) -> impl FnOnce(&mut tcpcl::Config, &mut StreamConfig) + use<> {
    let tls = Tls::read(files).unwrap();
    move |layer, streams| {
        layer.tls = When::Always;
        let nodes = layer.peers.keys().map(|link| (*link, node_id(2))).collect();
        layer.proof = Proof::Node(nodes);
        layer.reconnect = Duration::from_millis(50);
        layer.reconnect_max = Duration::from_secs(1);
        streams.tls = Some(tls);
    }
}

/// Time limit for bundles that should arrive.
const SURELY: Duration = Duration::from_secs(20);
/// Time limit for bundles that should not arrive.
const NEVER: Duration = Duration::from_millis(1500);

/// Whether bundles of two nodes with these certificates are exchanged in time.
fn crosses_within(
    patience: Duration,
    first: impl FnOnce(&mut tcpcl::Config, &mut StreamConfig),
    second: impl FnOnce(&mut tcpcl::Config, &mut StreamConfig),
) -> bool {
    let second = place_as(2, None, None, second);
    let first = place_as(1, Some(second.address()), None, first);
    let id = first.send(2, bytes(300_000, 1));
    let got = second.delivered.recv_timeout(patience).ok();
    if let Some((other, content)) = &got {
        assert_eq!((other, content), (&id, &bytes(300_000, 1)));
    }
    for place in [first, second] {
        assert!(!place.node.has_failed());
        place.node.stop(Duration::from_secs(5));
    }
    got.is_some()
}

/// Requirements: V05a.
#[test]
fn nodes_with_valid_certificates_use_tls() {
    let authority = Authority::new();
    let (one, two) = (authority.files("ipn:1.0", true), authority.files("ipn:2.0", true));
    let second = place_as(2, None, None, with(&two));
    let first = place_as(1, Some(second.address()), None, with(&one));
    let mut expected = BTreeMap::new();
    for len in [0, 1, 16_384, 65_536, 3_000_000] {
        let content = bytes(len, 9);
        expected.insert(first.send(2, content.clone()), content);
    }
    for _ in 0..expected.len() {
        let (id, content) = second.delivered.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(expected.remove(&id), Some(content));
    }
    let back = second.send(1, bytes(100_000, 3));
    let got = first.delivered.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(got, (back, bytes(100_000, 3)));
    let started = Instant::now();
    for place in [first, second] {
        place.node.stop(Duration::from_secs(20));
    }
    assert!(started.elapsed() < SURELY, "sessions end in order");
}

/// Requirements: V05a, V06.
#[test]
fn nodes_without_a_valid_certificate_are_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (one, two) = (authority.files("ipn:1.0", true), authority.files("ipn:2.0", true));
    assert!(crosses_within(SURELY, with(&one), with(&two)), "these do");
    let forged = stranger.files("ipn:2.0", true);
    assert!(!crosses_within(NEVER, with(&one), with(&forged)), "an authority that nobody trusts");
    let forged = TlsFiles { trusted: one.trusted.clone(), ..stranger.files("ipn:1.0", true) };
    assert!(!crosses_within(NEVER, with(&forged), with(&two)), "the same of who connects");
    let other = authority.files("ipn:9.0", true);
    assert!(!crosses_within(NEVER, with(&other), with(&two)), "another node's certificate");
    let other = authority.files("ipn:8.0", true);
    assert!(!crosses_within(NEVER, with(&one), with(&other)), "the same of who listens");
    let mail = authority.files("ipn:7.0", false);
    assert!(!crosses_within(NEVER, with(&mail), with(&two)), "a certificate for something else");
    assert!(!crosses_within(NEVER, |_, _| {}, with(&two)), "no TLS at all");
    assert!(!crosses_within(NEVER, with(&one), |_, _| {}), "the same of who listens");
}

/// Requirements: V05a.
#[test]
fn a_listener_may_accept_peers_without_certificates() {
    let authority = Authority::new();
    let (one, two) = (authority.files("ipn:1.0", true), authority.files("ipn:2.0", true));
    let nameless = |files: &TlsFiles| {
        let (with, tls) = (with(files), Tls::read(files).unwrap().without_certificate());
        move |layer: &mut tcpcl::Config, streams: &mut StreamConfig| {
            with(layer, streams);
            streams.tls = Some(tls);
        }
    };
    let open = |files: &TlsFiles| {
        let with = with(&TlsFiles { anonymous: true, ..files.clone() });
        move |layer: &mut tcpcl::Config, streams: &mut StreamConfig| {
            with(layer, streams);
            layer.proof = Proof::Authority;
        }
    };
    assert!(!crosses_within(NEVER, nameless(&one), with(&two)), "a certificate is required");
    assert!(crosses_within(SURELY, nameless(&one), open(&two)));
    // A certificate, if shown, must still be from a trusted authority.
    let stranger = Authority::new();
    let forged = TlsFiles { trusted: one.trusted, ..stranger.files("ipn:1.0", true) };
    assert!(!crosses_within(NEVER, with(&forged), open(&two)), "an authority that nobody trusts");
}

#[test]
fn faulty_certificate_files_are_reported() {
    let authority = Authority::new();
    let files = authority.files("ipn:1.0", true);
    let error = |files: &TlsFiles| Tls::read(files).unwrap_err().to_string();
    let none = TlsFiles { trusted: "/nowhere.pem".into(), ..files.clone() };
    assert!(error(&none).starts_with("/nowhere.pem: "), "{}", error(&none));
    let no_certificate = TlsFiles { certificate: files.key.clone(), ..files.clone() };
    assert!(error(&no_certificate).contains("there is no certificate in it"));
    let no_key = TlsFiles { key: files.certificate.clone(), ..files.clone() };
    assert!(error(&no_key).contains("certificate.pem: "), "{}", error(&no_key));
    let other = authority.files("ipn:2.0", true);
    let mixed = TlsFiles { key: other.key, ..files };
    assert!(error(&mixed).contains("cannot be used"), "{}", error(&mixed));
}
