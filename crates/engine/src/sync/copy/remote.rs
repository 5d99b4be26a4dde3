//! A copy in an object store. It is replaced only if it has not changed since it was read; the store checks its ETag.
//!
//! Credentials, regions and endpoints come from the environment variables that `object_store` reads: `AWS_…` and
//! `AZURE_…`. Errors of the server are shortened, because URLs of requests may contain signatures.

use super::CopyError;
use super::authorities::BundledAuthorities;
use super::target::{ReplaceOutcome, SIZE_MAX, StoredCopy, Version};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::HttpError;
use object_store::path::Path as Key;
use object_store::{
    Attribute, Attributes, Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, RetryConfig,
    UpdateVersion,
};
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::feed::Watermark;

/// Time limit of one operation with its retries.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(40);
/// Retries of one request. The next call retries anyway.
const RETRIES: usize = 2;

/// An object that contains a copy.
pub(super) struct Remote {
    url: String,
    store: Arc<dyn ObjectStore>,
    key: Key,
}

impl Remote {
    /// Creates an object in a bucket of S3 or a compatible service.
    pub(super) fn s3(url: &str, bucket: &str, key: Key) -> Result<Self, CopyError> {
        install_crypto();
        let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retries());
        let store = builder
            .with_http_connector(BundledAuthorities)
            .build()
            .map_err(|error| CopyError::Read { url: url.to_owned(), reason: describe(&error) })?;
        Ok(Self { url: url.to_owned(), store: Arc::new(store), key })
    }

    /// Creates a blob in an Azure container. The account comes from the environment too.
    pub(super) fn azure(url: &str, container: &str, key: Key) -> Result<Self, CopyError> {
        install_crypto();
        let builder = MicrosoftAzureBuilder::from_env().with_container_name(container).with_retry(retries());
        let store = builder
            .with_http_connector(BundledAuthorities)
            .build()
            .map_err(|error| CopyError::Read { url: url.to_owned(), reason: describe(&error) })?;
        Ok(Self { url: url.to_owned(), store: Arc::new(store), key })
    }

    /// Reads the copy and its ETag.
    pub(super) async fn read(&self) -> Result<StoredCopy, CopyError> {
        let copy_error = |reason: String| CopyError::Read { url: self.url.clone(), reason };
        let foreign = || CopyError::Foreign { url: self.url.clone() };
        let reading = async {
            let found = self.store.get(&self.key).await?;
            if found.meta.size > SIZE_MAX {
                return Ok(None);
            }
            let meta = found.meta.clone();
            Ok(Some((found.bytes().await?, UpdateVersion { e_tag: meta.e_tag, version: meta.version })))
        };
        let (text, version) = match tokio::time::timeout(OPERATION_TIMEOUT, reading).await {
            Err(_) => return Err(copy_error(late())),
            // The write reports a bucket that does not exist.
            Ok(Err(Error::NotFound { .. })) => {
                return Ok(StoredCopy { watermark: None, version: Version::Absent });
            }
            Ok(Err(error)) => return Err(copy_error(describe(&error))),
            Ok(Ok(None)) => return Err(foreign()),
            Ok(Ok(Some(read))) => read,
        };
        if version.e_tag.is_none() {
            return Err(copy_error("the server returned no ETag".to_owned()));
        }
        let watermark: Watermark = serde_json::from_slice(&text).map_err(|_| foreign())?;
        Ok(StoredCopy { watermark: Some(watermark), version: Version::Tag(version) })
    }

    /// Replaces the copy unless it has changed.
    pub(super) async fn write(&self, version: Version, text: Vec<u8>) -> Result<ReplaceOutcome, CopyError> {
        let mode = match version {
            Version::Absent => PutMode::Create,
            Version::Tag(version) => PutMode::Update(version),
            Version::Locked(_) => return Ok(ReplaceOutcome::Conflict),
        };
        let attributes = Attributes::from_iter([(Attribute::ContentType, "application/json")]);
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        let copy_error = |reason: String| CopyError::Write { url: self.url.clone(), reason };
        match tokio::time::timeout(OPERATION_TIMEOUT, self.store.put_opts(&self.key, text.into(), options))
            .await
        {
            Err(_) => Err(copy_error(late())),
            Ok(Ok(_)) => Ok(ReplaceOutcome::Done),
            Ok(Err(Error::AlreadyExists { .. } | Error::Precondition { .. })) => Ok(ReplaceOutcome::Conflict),
            Ok(Err(error)) => Err(copy_error(describe(&error))),
        }
    }
}

fn retries() -> RetryConfig {
    RetryConfig { max_retries: RETRIES, retry_timeout: OPERATION_TIMEOUT / 4, ..RetryConfig::default() }
}

fn late() -> String {
    format!("the server did not answer within {} seconds", OPERATION_TIMEOUT.as_secs())
}

/// The HTTP client uses the process-wide crypto provider. An already installed one is fine.
fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Describes an error without URLs, and identically on each attempt.
fn describe(error: &Error) -> String {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    let mut is_http = false;
    while let Some(inner) = cause.source() {
        cause = inner;
        is_http |= cause.is::<HttpError>();
    }
    let text = cause.to_string();
    match text.split_once("Server returned ") {
        // The response body follows, which contains the request id.
        Some((_, answer)) => {
            let code =
                between(answer, "<Code>", "</Code>").map(|code| format!(" ({code})")).unwrap_or_default();
            let status = answer.split(": ").nth(1).filter(|status| !status.starts_with('<'));
            let status = status.filter(|status| status.len() < 60).unwrap_or("with an error");
            format!("the server answered {status}{code}")
        }
        None if is_http => format!("the request failed: {text}"),
        None => text,
    }
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(from)?;
    rest.split_once(to).map(|(inner, _)| inner).filter(|inner| inner.len() < 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;
    use tidemill_core::Timestamp;

    fn text(secs: i64) -> Vec<u8> {
        let last_updated_at = Timestamp::from_timestamp(secs, 0).unwrap();
        let watermark = Watermark { last_updated_at, last_run_id: None, last_run_completed_at: None };
        serde_json::to_vec(&watermark).unwrap()
    }

    /// Runs this test again in a process without certificates of the system, such as a container without any.
    #[test]
    fn object_stores_open_without_certificates_of_the_system() {
        const BARE: &str = "TIDEMILL_TEST_BARE";
        if std::env::var_os(BARE).is_some() {
            Remote::s3("s3://bucket/key", "bucket", Key::from("key")).map(|_| ()).unwrap();
            Remote::azure("az://container/key", "container", Key::from("key")).map(|_| ()).unwrap();
            return;
        }
        let name = "sync::copy::remote::tests::object_stores_open_without_certificates_of_the_system";
        let mut bare = std::process::Command::new(std::env::current_exe().unwrap());
        bare.args(["--exact", name]).env(BARE, "1");
        bare.env("AZURE_STORAGE_ACCOUNT_NAME", "account").env("AZURE_STORAGE_ACCOUNT_KEY", "a2V5");
        bare.env("SSL_CERT_FILE", "/nonexistent").env("SSL_CERT_DIR", "/nonexistent");
        let output = bare.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    #[tokio::test]
    async fn write_after_a_concurrent_change_is_refused() {
        let url = "s3://bucket/key".to_owned();
        let remote = Remote { url, store: Arc::new(InMemory::new()), key: Key::from("key") };
        let (first, late) = (remote.read().await.unwrap(), remote.read().await.unwrap());
        assert!(first.watermark.is_none());
        assert_eq!(remote.write(first.version, text(1)).await.unwrap(), ReplaceOutcome::Done);
        assert_eq!(remote.write(late.version, text(2)).await.unwrap(), ReplaceOutcome::Conflict);
        let (first, late) = (remote.read().await.unwrap(), remote.read().await.unwrap());
        assert_eq!(remote.write(first.version, text(3)).await.unwrap(), ReplaceOutcome::Done);
        assert_eq!(remote.write(late.version, text(4)).await.unwrap(), ReplaceOutcome::Conflict);
        let there = remote.read().await.unwrap().watermark.unwrap();
        assert_eq!(there.last_updated_at.timestamp(), 3);
    }

    #[test]
    fn server_errors_are_shortened() {
        let tell = |text: &'static str| describe(&Error::Generic { store: "S3", source: text.into() });
        let answer = "Server returned non-2xx status code: 404 Not Found: <Error><Code>NoSuchBucket</Code>\
                      <RequestId>17</RequestId></Error>";
        assert_eq!(tell(answer), "the server answered 404 Not Found (NoSuchBucket)");
        let answer = "Server returned error response: <Error><RequestId>17</RequestId></Error>";
        assert!(!tell(answer).contains("17"), "{}", tell(answer));
        assert_eq!(tell("no account"), "no account");
    }
}
