//! Certificate authorities of the HTTP client for object stores.

use object_store::client::{HttpClient, HttpConnector, ReqwestConnector};
use object_store::{Certificate, ClientOptions, Result};
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

/// Adds the bundled authorities to those of the system. Without any, the client cannot be built, for example in an
/// empty container. The other options keep their values from the environment.
#[derive(Debug)]
pub(crate) struct BundledAuthorities;

impl HttpConnector for BundledAuthorities {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let mut options = options.clone();
        for certificate in TLS_SERVER_ROOT_CERTS {
            options = options.with_root_certificate(Certificate::from_der(certificate)?);
        }
        ReqwestConnector::default().connect(&options)
    }
}
