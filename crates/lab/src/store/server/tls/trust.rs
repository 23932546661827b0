//! Whom TLS trusts: the authorities, and how a server's certificate is verified.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::{Authorities, Identity};

/// What libpq says to a server that takes several protocols on one port.
const PROTOCOL: &[u8] = b"postgresql";

/// TLS's side of a session, or what is wrong with the files and what to do.
pub(super) fn client(
    authorities: &Authorities,
    by_name: bool,
    identity: Option<&Identity>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let verifier =
        Verifier { trusted: trusted(authorities)?, by_name, provider: Arc::clone(&provider) };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut client = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let chain = certificates(certificate)?;
            let private = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| unread(key, &error, "private key without a passphrase"))?;
            builder.with_client_auth_cert(chain, private).map_err(|error| {
                let (certificate, key) = (certificate.display(), key.display());
                format!("{certificate} and {key} are no certificate and its key: {error}")
            })?
        }
    };
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(client)
}

/// Those who may sign, and what was read as such.
#[derive(Debug)]
struct Trusted {
    roots: RootCertStore,
    read: Vec<CertificateDer<'static>>,
}

fn trusted(authorities: &Authorities) -> Result<Option<Trusted>, String> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Authorities::None => Ok(None),
        Authorities::System => {
            let found = rustls_native_certs::load_native_certs();
            let (usable, _) = roots.add_parsable_certificates(found.certs);
            if usable == 0 {
                return Err("this machine has no certificates of authorities: install them \
                            (Debian: ca-certificates), or add sslrootcert=FILE"
                    .to_owned());
            }
            Ok(Some(Trusted { roots, read: Vec::new() }))
        }
        Authorities::File(path) => {
            let read = certificates(path)?;
            for one in &read {
                roots.add(one.clone()).map_err(|error| {
                    format!("{}: a certificate in it cannot be used: {error}", path.display())
                })?;
            }
            Ok(Some(Trusted { roots, read }))
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let read: Vec<_> = read.map_err(|error| unread(path, &error, "certificate"))?;
    if read.is_empty() {
        return Err(unread(path, &pem::Error::NoItemsFound, "certificate"));
    }
    Ok(read)
}

fn unread(path: &Path, error: &pem::Error, what: &str) -> String {
    let path = path.display();
    match error {
        pem::Error::Io(error) => format!("{path}: {error}; name a PEM file with the {what}"),
        pem::Error::NoItemsFound => format!("{path}: no {what} in it; name a PEM file with one"),
        error => format!("{path}: {error}; name a PEM file with the {what}"),
    }
}

/// Verifies as much of a server as was asked for.
#[derive(Debug)]
struct Verifier {
    trusted: Option<Trusted>,
    by_name: bool,
    provider: Arc<CryptoProvider>,
}

impl Trusted {
    fn verify(
        &self,
        presented: &CertificateDer<'_>,
        certificate: &ParsedCertificate<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
        provider: &CryptoProvider,
    ) -> Result<(), Error> {
        let algorithms = provider.signature_verification_algorithms.all;
        match verify_server_cert_signed_by_trust_anchor(
            certificate,
            &self.roots,
            between,
            now,
            algorithms,
        ) {
            // A certificate that signs itself is often marked as an authority's, which may be no server's. Where it is
            // itself what the user trusts, nobody else has to. Its time was looked at before the mark.
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if self.read.contains(presented) =>
            {
                Ok(())
            }
            verified => verified,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        presented: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(trusted) = &self.trusted {
            let certificate = ParsedCertificate::try_from(presented)?;
            trusted.verify(presented, &certificate, between, now, &self.provider)?;
            if self.by_name {
                verify_server_name(&certificate, name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    // Who is there has the certificate's key in any case: a password's exchange is bound to the certificate.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
