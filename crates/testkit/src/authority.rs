//! An authority of our own: certificates that nobody trusts who was not told to.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// A certificate of a server on this machine, and of the authority that signed it, as files.
#[derive(Debug, Clone)]
pub struct Signed {
    /// The certificate of the authority.
    pub authority: PathBuf,
    /// The certificate of `localhost`, which it signed.
    pub certificate: PathBuf,
    /// The key of that.
    pub key: PathBuf,
}

impl Signed {
    /// Makes an authority, and has it sign; the files are in this folder, and their names begin so.
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
