//! A certificate authority for tests.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// Certificate files: one of a server on this machine, signed by a new authority.
#[derive(Debug, Clone)]
pub struct SignedCertificate {
    pub authority: PathBuf,
    /// Certificate of `localhost`, signed by the authority.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
}

impl SignedCertificate {
    /// Creates an authority and a signed certificate in `folder`. The file names begin with `name`.
    pub fn make(folder: &Path, name: &str) -> Result<Self> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let signed = CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, &authority)?;
        let file = |part: &str| folder.join(format!("{name}-{part}.pem"));
        let made = Self { authority: file("authority"), certificate: file("certificate"), key: file("key") };
        std::fs::write(&made.authority, authority.as_ref().pem())?;
        std::fs::write(&made.certificate, signed.pem())?;
        std::fs::write(&made.key, key.serialize_pem())?;
        Ok(made)
    }
}
