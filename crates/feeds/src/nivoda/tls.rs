//! Whose certificates are believed, and which library checks them.

use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// The authorities of the web. They are part of the program, so that it needs nothing of the machine.
pub(super) fn web() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

/// Believes these authorities. The provider is named, because nobody has installed one for the process.
pub(super) fn config(roots: RootCertStore) -> Result<ClientConfig, String> {
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
    use crate::nivoda::client::{Client, Fault, Nature};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A server that answers `{}` over TLS to everybody who believes its certificate, which is given.
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

    async fn ask(endpoint: &str, roots: RootCertStore) -> Result<Vec<u8>, Fault> {
        let tuning = Tuning { retries_max: 0, ..Tuning::default() };
        let client = Client::new(endpoint.parse().unwrap(), 0.0, config(roots).unwrap(), tuning).unwrap();
        client.ask(b"{}", 100, |reply| Ok(reply.body.clone())).await
    }

    #[tokio::test]
    async fn an_endpoint_is_asked_over_tls() {
        let (endpoint, certificate) = server().await;
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        assert_eq!(ask(&endpoint, roots).await.unwrap(), b"{}");
    }

    #[tokio::test]
    async fn a_certificate_that_nobody_vouches_for_is_refused() {
        let (endpoint, _) = server().await;
        let fault = ask(&endpoint, web()).await.unwrap_err();
        assert_eq!(fault.nature, Nature::Unreachable);
        assert!(fault.reason.contains("certificate"), "{}", fault.reason);
    }
}
