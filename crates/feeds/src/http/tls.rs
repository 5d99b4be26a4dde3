//! TLS configuration: trusted certificate authorities and the crypto provider.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::sync::{Arc, LazyLock};

/// Certificate authorities that feeds trust in addition to those of the system and the bundled ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authorities(Arc<[CertificateDer<'static>]>);

impl Authorities {
    /// Reads certificates in PEM format.
    pub fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let found = found.map_err(|error| format!("the certificates cannot be read: {error}"))?;
        if found.is_empty() {
            return Err("it contains no certificate in PEM format".to_owned());
        }
        let mut roots = RootCertStore::empty();
        for certificate in &found {
            let added = roots.add(certificate.clone());
            added.map_err(|error| format!("a certificate cannot be used: {error}"))?;
        }
        Ok(Self(found.into()))
    }
}

/// Certificate authorities of the system, read once. `SSL_CERT_FILE` and `SSL_CERT_DIR` name other ones.
static SYSTEM: LazyLock<Vec<CertificateDer<'static>>> = LazyLock::new(|| {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!("could not read the system's certificate authorities: {error}");
    }
    found.certs
});

/// The bundled authorities of the web, those of the system, and further ones. The bundled ones are compiled in, so the
/// program works on a system without certificates.
pub(crate) fn roots(further: &Authorities) -> RootCertStore {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    roots.add_parsable_certificates(SYSTEM.iter().cloned());
    roots.add_parsable_certificates(further.0.iter().cloned());
    roots
}

/// Builds a configuration that trusts these authorities. The provider is explicit, because the process has no default.
pub(crate) fn config(roots: RootCertStore) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tuning;
    use crate::http::client::{Client, ErrorKind, RequestError};
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::pki_types::PrivateKeyDer;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A TLS server that answers `{}`. Returns its endpoint, and in PEM format the authority of its certificate.
    async fn server() -> (String, String) {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = certificate.signed_by(&key, &authority).unwrap().der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("localhost:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut buffer = [0; 4_096];
                let _ = stream.read(&mut buffer).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
            }
        });
        (format!("https://localhost:{port}/api/diamonds"), authority.as_ref().pem())
    }

    async fn request(endpoint: &str, authorities: &Authorities) -> Result<Vec<u8>, RequestError> {
        let tuning = Tuning { retries_max: 0, ..Tuning::default() };
        let client = Client::new(
            endpoint.parse().unwrap(),
            0.0,
            config(roots(authorities)).unwrap(),
            &crate::Network::Unrestricted,
            tuning,
        )
        .unwrap();
        client.send(b"{}", 100, |reply| Ok(reply.body.clone())).await
    }

    #[tokio::test]
    async fn server_of_a_private_authority_is_trusted_if_it_is_named() {
        let (endpoint, authority) = server().await;
        let authorities = Authorities::from_pem(authority.as_bytes()).unwrap();
        assert_eq!(request(&endpoint, &authorities).await.unwrap(), b"{}");
    }

    #[tokio::test]
    async fn untrusted_certificate_is_refused() {
        let (endpoint, _) = server().await;
        let error = request(&endpoint, &Authorities::default()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unreachable);
        assert!(error.reason.contains("certificate"), "{}", error.reason);
    }

    #[test]
    fn file_without_a_certificate_is_refused() {
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (pem, words) in [("", "no certificate"), ("hello", "no certificate"), (broken, "cannot be used")]
        {
            let error = Authorities::from_pem(pem.as_bytes()).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
