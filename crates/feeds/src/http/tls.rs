//! TLS configuration: trusted certificate authorities and the crypto provider.

use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// The web's certificate authorities. They are compiled in, so the program does not depend on the machine's
/// certificates.
pub(crate) fn web() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
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
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A TLS server that answers `{}`. Returns its endpoint and its self-signed certificate.
    async fn server() -> (String, CertificateDer<'static>) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
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
        (format!("https://localhost:{port}/api/diamonds"), certificate)
    }

    async fn request(endpoint: &str, roots: RootCertStore) -> Result<Vec<u8>, RequestError> {
        let tuning = Tuning { retries_max: 0, ..Tuning::default() };
        let client = Client::new(
            endpoint.parse().unwrap(),
            0.0,
            config(roots).unwrap(),
            &crate::Network::Unrestricted,
            tuning,
        )
        .unwrap();
        client.send(b"{}", 100, |reply| Ok(reply.body.clone())).await
    }

    #[tokio::test]
    async fn request_over_tls_with_trusted_certificate_succeeds() {
        let (endpoint, certificate) = server().await;
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        assert_eq!(request(&endpoint, roots).await.unwrap(), b"{}");
    }

    #[tokio::test]
    async fn untrusted_certificate_is_refused() {
        let (endpoint, _) = server().await;
        let error = request(&endpoint, web()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unreachable);
        assert!(error.reason.contains("certificate"), "{}", error.reason);
    }
}
