//! The target of a copy: parsing of its URL, and access to it.

use super::CopyError;
use super::file::LocalFile;
use super::remote::Remote;
use object_store::UpdateVersion;
use object_store::path::Path as Key;
use std::fs::File;
use std::path::{Path, PathBuf};
use tidemill_core::feed::Watermark;

/// Largest size of a watermark in bytes.
pub(super) const SIZE_MAX: u64 = 64 * 1024;
/// Longest URL in bytes.
const URL_MAX: usize = 2048;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// A file on this machine.
    File(PathBuf),
    /// An object in an S3 bucket.
    S3 { bucket: String, key: Key },
    /// A blob in an Azure container.
    Azure { container: String, key: Key },
}

/// The existing copy, as read from its target.
pub(super) struct StoredCopy {
    /// `None` if there is no copy.
    pub(super) watermark: Option<Watermark>,
    /// Detects changes by other processes when the copy is replaced.
    pub(super) version: Version,
}

/// The state that a copy must still have when it is replaced.
pub(super) enum Version {
    Absent,
    Tag(UpdateVersion),
    /// The directory is locked, so no other process changes the copy.
    Locked(File),
}

/// Outcome of a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplaceOutcome {
    Done,
    /// Another process changed the copy first.
    Conflict,
}

/// A local or remote target of copies.
pub(super) enum CopyTarget {
    File(LocalFile),
    Remote(Remote),
}

impl CopyTarget {
    /// Opens the target of a URL, with credentials from the environment.
    pub(super) fn open(url: &str) -> Result<Self, CopyError> {
        let address = Address::parse(url).map_err(CopyError::Address)?;
        Ok(match address {
            Address::File(path) => Self::File(LocalFile::new(url, path)),
            Address::S3 { bucket, key } => Self::Remote(Remote::s3(url, &bucket, key)?),
            Address::Azure { container, key } => Self::Remote(Remote::azure(url, &container, key)?),
        })
    }

    /// Reads the existing copy.
    pub(super) async fn read(&self) -> Result<StoredCopy, CopyError> {
        match self {
            Self::File(file) => file.read().await,
            Self::Remote(remote) => remote.read().await,
        }
    }

    /// Replaces the copy if it has not changed since it was read.
    pub(super) async fn write(
        &self,
        version: Version,
        watermark: &Watermark,
    ) -> Result<ReplaceOutcome, CopyError> {
        let text = serde_json::to_vec(watermark).map_err(|error| CopyError::Address(error.to_string()))?;
        match self {
            Self::File(file) => file.write(version, text).await,
            Self::Remote(remote) => remote.write(version, text).await,
        }
    }
}

/// Checks whether a watermark can be copied to a URL. Returns the reason if not.
pub fn check_copy_url(url: &str) -> Result<(), String> {
    Address::parse(url).map(|_| ())
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        if url.is_empty() || url.len() > URL_MAX || url.chars().any(char::is_control) {
            return Err(format!(
                "the URL of a copy must have 1 to {URL_MAX} bytes and no control characters"
            ));
        }
        let Some((scheme, rest)) = url.split_once("://") else { return file(url) };
        match scheme {
            "file" if rest.contains(['%', '?', '#']) => {
                Err("the path in a file:// URL is used literally; it must not contain %, ? or #".to_owned())
            }
            "file" => file(rest.strip_prefix("localhost").unwrap_or(rest)),
            "s3" => object(url, rest, "bucket").map(|(bucket, key)| Self::S3 { bucket, key }),
            "az" => object(url, rest, "container").map(|(container, key)| Self::Azure { container, key }),
            // The URL may contain a password, so it is not quoted.
            _ => Err("unsupported scheme for a watermark copy; use a local path, file://, s3:// or az://"
                .to_owned()),
        }
    }
}

fn file(text: &str) -> Result<Address, String> {
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err("the path of a copy must be absolute".to_owned());
    }
    if text.ends_with('/') || path.file_name().is_none() {
        return Err(format!("the path of a copy must name a file, but `{text}` is a directory"));
    }
    Ok(Address::File(path.to_owned()))
}

fn object(url: &str, rest: &str, what: &str) -> Result<(String, Key), String> {
    if rest.contains(['@', '?', '#']) {
        return Err(format!(
            "the URL of a copy must consist of a {what} and a key; credentials come from the environment"
        ));
    }
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    let is_plain =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_' | '$');
    if bucket.is_empty() || bucket.len() > 63 || !bucket.chars().all(is_plain) {
        return Err(format!(
            "`{url}` has no valid {what}: it needs 1 to 63 lower-case letters, digits, `.`, `-` or `_`"
        ));
    }
    if key.is_empty() || key.ends_with('/') {
        return Err(format!("`{url}` names no object in the {what}; add a key such as feed/watermark.json"));
    }
    let key = Key::parse(key).map_err(|error| format!("`{url}` has an invalid key: {error}"))?;
    Ok((bucket.to_owned(), key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_urls_are_parsed() {
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
    fn invalid_copy_urls_are_refused_with_a_reason() {
        for (url, part) in [
            ("", "1 to 2048 bytes"),
            ("/a\nb", "no control characters"),
            ("w.json", "must be absolute"),
            ("file://w.json", "must be absolute"),
            ("file:///a%20b", "must not contain %"),
            ("/var/lib/", "is a directory"),
            ("/", "is a directory"),
            ("gs://bucket/key", "unsupported scheme"),
            ("https://user:secret@host/w.json", "unsupported scheme"),
            ("s3://", "no valid bucket"),
            ("s3://Bucket/key", "no valid bucket"),
            ("s3://bucket", "names no object"),
            ("s3://bucket/", "names no object"),
            ("s3://bucket/a/", "names no object"),
            ("s3://bucket/a//b", "invalid key"),
            ("s3://bucket/../b", "invalid key"),
            ("s3://key:secret@bucket/a", "credentials come from the environment"),
            ("az://container/a?sig=secret", "credentials come from the environment"),
        ] {
            let reason = check_copy_url(url).unwrap_err();
            assert!(reason.contains(part), "{url}: {reason}");
            assert!(!reason.contains("secret"), "{reason}");
        }
    }
}
