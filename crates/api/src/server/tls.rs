//! TLS certificates from files.

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// An error in the TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {what} in `{}`: {problem}", path.display())]
    File { what: &'static str, path: PathBuf, problem: String },
    /// The certificate and the key do not match.
    #[error("the certificate and the key cannot be used together: {0}")]
    Pair(String),
}

/// TLS certificate and key of a server. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
}

impl Tls {
    /// Loads the certificate chain and its private key from PEM files.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let bad = |what: &'static str, path: &Path, problem: String| TlsError::File {
            what,
            path: path.to_owned(),
            problem,
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| bad("the certificate", certificate, error.to_string()))?;
        if chain.is_empty() {
            return Err(bad("the certificate", certificate, "the file contains no certificate".to_owned()));
        }
        let key =
            PrivateKeyDer::from_pem_file(key).map_err(|error| bad("the key", key, error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let pair = |error: rustls::Error| TlsError::Pair(error.to_string());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(pair)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    pub(super) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.acceptor.accept(stream).await
    }
}
