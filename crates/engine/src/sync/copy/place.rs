//! Where a copy goes, as it is written down and as it is reached.

use super::Fault;
use super::file::LocalFile;
use super::remote::Remote;
use object_store::UpdateVersion;
use object_store::path::Path as Key;
use std::fs::File;
use std::path::{Path, PathBuf};
use tidemill_core::feed::Watermark;

/// What is larger than this is no watermark.
pub(super) const SIZE_MAX: u64 = 64 * 1024;
/// Bytes of an address, at most.
const URL_MAX: usize = 2048;

/// An address of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// A file on this machine.
    File(PathBuf),
    /// An object in a bucket of S3.
    S3 { bucket: String, key: Key },
    /// A blob in a container of Azure.
    Azure { container: String, key: Key },
}

/// The copy that is there.
pub(super) struct Found {
    /// What it says; none where there is no copy.
    pub(super) watermark: Option<Watermark>,
    /// By what it is known when it is replaced.
    pub(super) version: Version,
}

/// What must still hold when a copy is replaced.
pub(super) enum Version {
    /// There is none.
    Absent,
    /// It is this one.
    Tag(UpdateVersion),
    /// Nobody else writes in its folder while this is held.
    Held(File),
}

/// What became of a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// The copy is there.
    Done,
    /// Somebody else wrote first.
    Lost,
}

/// A place that copies go to.
pub(super) enum Place {
    File(LocalFile),
    Remote(Remote),
}

impl Place {
    /// The place of an address, with credentials from the environment.
    pub(super) fn open(url: &str) -> Result<Self, Fault> {
        let address = Address::parse(url).map_err(Fault::Address)?;
        Ok(match address {
            Address::File(path) => Self::File(LocalFile::new(url, path)),
            Address::S3 { bucket, key } => Self::Remote(Remote::s3(url, &bucket, key)?),
            Address::Azure { container, key } => Self::Remote(Remote::azure(url, &container, key)?),
        })
    }

    /// The copy that is there.
    pub(super) async fn read(&self) -> Result<Found, Fault> {
        match self {
            Self::File(file) => file.read().await,
            Self::Remote(remote) => remote.read().await,
        }
    }

    /// Replaces the copy that was read, if it is still there.
    pub(super) async fn write(&self, version: Version, watermark: &Watermark) -> Result<Written, Fault> {
        let text = serde_json::to_vec(watermark).map_err(|error| Fault::Address(error.to_string()))?;
        match self {
            Self::File(file) => file.write(version, text).await,
            Self::Remote(remote) => remote.write(version, text).await,
        }
    }
}

/// Whether a copy of a watermark can go to an address; if not, the sentence that says why.
pub fn check_copy_url(url: &str) -> Result<(), String> {
    Address::parse(url).map(|_| ())
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        if url.is_empty() || url.len() > URL_MAX || url.chars().any(char::is_control) {
            return Err(format!("the address of a copy has 1 to {URL_MAX} bytes and no control characters"));
        }
        let Some((scheme, rest)) = url.split_once("://") else { return file(url) };
        match scheme {
            "file" if rest.contains(['%', '?', '#']) => {
                Err("a file:// address of a copy holds the path as it is, without %, ? and #".to_owned())
            }
            "file" => file(rest.strip_prefix("localhost").unwrap_or(rest)),
            "s3" => object(url, rest, "bucket").map(|(bucket, key)| Self::S3 { bucket, key }),
            "az" => object(url, rest, "container").map(|(container, key)| Self::Azure { container, key }),
            // The rest of an address may hold a password, and is not repeated.
            _ => {
                Err("a copy goes to a local path, file://, s3:// or az://, and to no other scheme".to_owned())
            }
        }
    }
}

fn file(text: &str) -> Result<Address, String> {
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(
            "the path of a copy is absolute: a relative one is another file to each process".to_owned()
        );
    }
    if text.ends_with('/') || path.file_name().is_none() {
        return Err(format!("the path of a copy names a file, and `{text}` names a folder"));
    }
    Ok(Address::File(path.to_owned()))
}

fn object(url: &str, rest: &str, what: &str) -> Result<(String, Key), String> {
    if rest.contains(['@', '?', '#']) {
        return Err(format!(
            "the address of a copy is a {what} and a key; credentials come from the environment"
        ));
    }
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    let is_plain =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_' | '$');
    if bucket.is_empty() || bucket.len() > 63 || !bucket.chars().all(is_plain) {
        return Err(format!(
            "`{url}` names no {what}: it has 1 to 63 lower-case letters, digits, `.`, `-` or `_`"
        ));
    }
    if key.is_empty() || key.ends_with('/') {
        return Err(format!("`{url}` names no object in the {what}; add a key, such as feed/watermark.json"));
    }
    let key = Key::parse(key).map_err(|error| format!("`{url}` has a key that cannot be used: {error}"))?;
    Ok((bucket.to_owned(), key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let path = Address::File(PathBuf::from("/var/lib/w.json"));
        assert_eq!(Address::parse("/var/lib/w.json"), Ok(path.clone()));
        assert_eq!(Address::parse("file:///var/lib/w.json"), Ok(path.clone()));
        assert_eq!(Address::parse("file://localhost/var/lib/w.json"), Ok(path));
        let key = Key::from("a/w.json");
        let bucket = "my-bucket".to_owned();
        assert_eq!(Address::parse("s3://my-bucket/a/w.json"), Ok(Address::S3 { bucket, key: key.clone() }));
        let container = "$web".to_owned();
        assert_eq!(Address::parse("az://$web/a/w.json"), Ok(Address::Azure { container, key }));
    }

    #[test]
    fn what_is_no_address_is_refused_with_a_sentence() {
        for (url, part) in [
            ("", "1 to 2048 bytes"),
            ("/a\nb", "no control characters"),
            ("w.json", "is absolute"),
            ("file://w.json", "is absolute"),
            ("file:///a%20b", "without %"),
            ("/var/lib/", "names a folder"),
            ("/", "names a folder"),
            ("gs://bucket/key", "no other scheme"),
            ("https://user:secret@host/w.json", "no other scheme"),
            ("s3://", "names no bucket"),
            ("s3://Bucket/key", "names no bucket"),
            ("s3://bucket", "names no object"),
            ("s3://bucket/", "names no object"),
            ("s3://bucket/a/", "names no object"),
            ("s3://bucket/a//b", "cannot be used"),
            ("s3://bucket/../b", "cannot be used"),
            ("s3://key:secret@bucket/a", "credentials come from the environment"),
            ("az://container/a?sig=secret", "credentials come from the environment"),
        ] {
            let told = check_copy_url(url).unwrap_err();
            assert!(told.contains(part), "{url}: {told}");
            assert!(!told.contains("secret"), "{told}");
        }
    }
}
