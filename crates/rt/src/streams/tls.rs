//! TLS on streams, for peers whose certificates prove their node IDs (RFC 9174 §4.4).

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, ServerConfig, ServerConnection, SignatureScheme,
};
use thiserror::Error;
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::asn1_rs::{FromDer as _, Ia5String, TaggedExplicit};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use super::Got;

/// `id-kp-bundleSecurity`, as encoded in a certificate's extended key usage: 1.3.6.1.5.5.7.3.35
/// (RFC 9174 §4.4.2.1).
const BUNDLE_SECURITY: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x23];
/// `id-on-bundleEID`: 1.3.6.1.5.5.7.8.11 (RFC 9174 §4.4.2.1).
const BUNDLE_EID: &str = "1.3.6.1.5.5.7.8.11";
/// Bytes of TLS output made before they are passed to the kernel.
const MADE: usize = 256 << 10;

/// Paths of certificates and keys, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// This node's certificate and the chain to an authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the trusted authorities.
    pub trusted: PathBuf,
    /// Whether peers that connect may have no certificate.
    pub anonymous: bool,
}

/// Reason why streams cannot be secured.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read or has unexpected content.
    #[error("{}: {what}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error.
        what: String,
    },
    /// The key does not fit the certificate, or is of an unknown type.
    #[error("the key and the certificate cannot be used: {0}")]
    Key(rustls::Error),
}

/// TLS configuration of streams: both sides have a certificate.
#[derive(Clone)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

fn unreadable(path: &Path, what: &impl ToString) -> TlsError {
    TlsError::File { path: path.to_owned(), what: what.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(path, &error))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|error| unreadable(path, &error))?;
    if all.is_empty() {
        return Err(unreadable(path, &"there is no certificate in it; it must be PEM"));
    }
    Ok(all)
}

impl Tls {
    /// Reads certificates and the key.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(&files.certificate)?;
        crate::warn_of_readers(&files.key);
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| unreadable(&files.key, &error))?;
        let mut anchors = Vec::new();
        for authority in certificates(&files.trusted)? {
            let anchor = webpki::anchor_from_trusted_cert(&authority)
                .map_err(|error| unreadable(&files.trusted, &error))?;
            anchors.push(anchor.to_owned());
        }
        let (anonymous, verifies) = (files.anonymous, Arc::clone(&provider));
        let verifier = Arc::new(Verifier { anchors, provider: verifies, anonymous });
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Key)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier) as _)
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(TlsError::Key)?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Key)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(TlsError::Key)?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// Returns a configuration that sends no certificate to peers that it connects to.
    #[cfg(test)]
    pub(crate) fn without_certificate(&self) -> Self {
        let mut client = ClientConfig::clone(&self.client);
        client.client_auth_cert_resolver = Arc::new(NoCertificate);
        Self { client: Arc::new(client), server: Arc::clone(&self.server) }
    }

    /// Creates the TLS state of one stream: a client if `server` is given, by name or, where that
    /// is empty, by its address.
    pub(super) fn stream(
        &self,
        server: Option<&str>,
        peer: IpAddr,
    ) -> Result<TlsStream, rustls::Error> {
        let connection: Connection = match server {
            Some(name) => {
                let name = match name {
                    "" => ServerName::IpAddress(peer.into()),
                    name => ServerName::try_from(name.to_owned())
                        .map_err(|error| rustls::Error::General(error.to_string()))?,
                };
                ClientConnection::new(Arc::clone(&self.client), name)?.into()
            }
            None => ServerConnection::new(Arc::clone(&self.server))?.into(),
        };
        let mut stream = TlsStream { connection, is_reported: false };
        // The caller bounds its writes.
        stream.connection.set_buffer_limit(None);
        Ok(stream)
    }
}

#[cfg(test)]
#[derive(Debug)]
struct NoCertificate;

#[cfg(test)]
impl rustls::client::ResolvesClientCert for NoCertificate {
    fn resolve(
        &self,
        _hints: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// TLS of one stream.
pub(super) struct TlsStream {
    connection: Connection,
    /// Whether the handshake was reported.
    is_reported: bool,
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("is_told", &self.is_reported).finish_non_exhaustive()
    }
}

impl TlsStream {
    /// Takes bytes that arrived before TLS started.
    pub(super) fn early(&mut self, mut bytes: &[u8]) -> Result<(), rustls::Error> {
        while !bytes.is_empty() {
            match self.connection.read_tls(&mut bytes) {
                Ok(0) | Err(_) => {
                    return Err(rustls::Error::General("more came than is read".to_owned()));
                }
                Ok(_) => _ = self.connection.process_new_packets()?,
            }
        }
        Ok(())
    }

    /// Reads from the socket until there is something to report.
    pub(super) fn read(&mut self, mut socket: &TcpStream, buffer: &mut [u8]) -> Got {
        loop {
            if !self.connection.is_handshaking() && !self.is_reported {
                self.is_reported = true;
                return Got::Secured(self.names());
            }
            match self.connection.reader().read(buffer) {
                Ok(0) if self.is_reported => return Got::End,
                Ok(0) => return Got::Lost,
                Ok(len) => return Got::Bytes(len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The stream ended without a close alert: data may be missing.
                Err(_) => return Got::Lost,
            }
            match self.connection.read_tls(&mut socket) {
                Ok(_) => {}
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::WouldBlock => return Got::Nothing,
                    _ => return Got::Lost,
                },
            }
            if let Err(error) = self.connection.process_new_packets() {
                tracing::warn!(%error, "TLS with a peer has failed");
                return Got::Lost;
            }
        }
    }

    /// Takes bytes to be sent.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        // The writer has no limit.
        let _ = self.connection.writer().write_all(bytes);
    }

    /// Returns the next bytes to pass to the kernel; empty if there are none.
    pub(super) fn made(&mut self) -> Vec<u8> {
        let mut made = Vec::new();
        while self.connection.wants_write() && made.len() < MADE {
            // A vector takes all bytes.
            if self.connection.write_tls(&mut made).is_err() {
                break;
            }
        }
        made
    }

    /// Sends a close alert; nothing is sent after it. Idempotent.
    pub(super) fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Returns the node IDs in the peer's certificate.
    fn names(&self) -> Vec<String> {
        let chain = self.connection.peer_certificates().unwrap_or_default();
        chain.first().map(|certificate| bundle_eids(certificate)).unwrap_or_default()
    }
}

/// Node IDs of a certificate: alternative names of type `bundleEID` (RFC 9174 §4.4.1).
fn bundle_eids(certificate: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let eid = |name: &GeneralName<'_>| match name {
        GeneralName::OtherName(kind, value) if kind.to_id_string() == BUNDLE_EID => {
            let (_, text) =
                TaggedExplicit::<Ia5String<'_>, x509_parser::asn1_rs::Error, 0>::from_der(value)
                    .ok()?;
            Some(text.into_inner().string())
        }
        _ => None,
    };
    names.value.general_names.iter().filter_map(eid).collect()
}

/// Verifier: certificates must be issued by a trusted authority and allow use for bundles. The
/// node ID is checked when the peer announces it; a DNS name must match if the peer was connected
/// by one.
#[derive(Debug)]
struct Verifier {
    anchors: Vec<TrustAnchor<'static>>,
    provider: Arc<CryptoProvider>,
    /// Whether peers that connect may have no certificate.
    anonymous: bool,
}

fn wrong(error: &webpki::Error) -> rustls::Error {
    use webpki::Error as E;

    match error {
        E::CertExpired { .. } => CertificateError::Expired.into(),
        E::CertNotValidYet { .. } => CertificateError::NotValidYet.into(),
        E::UnknownIssuer => CertificateError::UnknownIssuer.into(),
        E::CertNotValidForName(_) => CertificateError::NotValidForName.into(),
        E::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose.into(),
        other => rustls::Error::General(format!("the peer's certificate: {other}")),
    }
}

impl Verifier {
    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
        name: Option<&ServerName<'_>>,
    ) -> Result<(), rustls::Error> {
        let certificate = EndEntityCert::try_from(certificate).map_err(|error| wrong(&error))?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        // A certificate with an extended key usage must allow this one (RFC 9174 §4.4.1).
        let usage = KeyUsage::required_if_present(BUNDLE_SECURITY);
        certificate
            .verify_for_usage(algorithms, &self.anchors, between, now, usage, None, None)
            .map_err(|error| wrong(&error))?;
        if let Some(name @ ServerName::DnsName(_)) = name {
            certificate.verify_is_valid_for_subject_name(name).map_err(|error| wrong(&error))?;
        }
        Ok(())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify(certificate, between, now, Some(name))?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        !self.anonymous
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verify(certificate, between, now, None)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        ServerCertVerifier::verify_tls12_signature(self, message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        ServerCertVerifier::verify_tls13_signature(self, message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ServerCertVerifier::supported_verify_schemes(self)
    }
}
