//! A copy in an object store, replaced only while it is the one that was read, which the store checks by its
//! ETag.
//!
//! Credentials, regions and endpoints come from the environment, under the names that `object_store` reads:
//! `AWS_…` and `AZURE_…`. What a server says is told in few words, the same each time: addresses of requests
//! may be signed.

use super::Fault;
use super::place::{Found, SIZE_MAX, Version, Written};
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

/// How long one question to the store may take, with its retries.
const PATIENCE: Duration = Duration::from_secs(40);
/// Retries of one request. The next call tries again anyway.
const RETRIES: usize = 2;

/// An object that holds a copy.
pub(super) struct Remote {
    url: String,
    store: Arc<dyn ObjectStore>,
    key: Key,
}

impl Remote {
    /// An object in a bucket of S3, or of what speaks like it.
    pub(super) fn s3(url: &str, bucket: &str, key: Key) -> Result<Self, Fault> {
        install_crypto();
        let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retries());
        let store =
            builder.build().map_err(|error| Fault::Read { url: url.to_owned(), reason: told(&error) })?;
        Ok(Self { url: url.to_owned(), store: Arc::new(store), key })
    }

    /// A blob in a container of Azure. The account is in the environment too.
    pub(super) fn azure(url: &str, container: &str, key: Key) -> Result<Self, Fault> {
        install_crypto();
        let builder = MicrosoftAzureBuilder::from_env().with_container_name(container).with_retry(retries());
        let store =
            builder.build().map_err(|error| Fault::Read { url: url.to_owned(), reason: told(&error) })?;
        Ok(Self { url: url.to_owned(), store: Arc::new(store), key })
    }

    /// Reads the copy and its ETag.
    pub(super) async fn read(&self) -> Result<Found, Fault> {
        let fault = |reason: String| Fault::Read { url: self.url.clone(), reason };
        let foreign = || Fault::Foreign { url: self.url.clone() };
        let reading = async {
            let found = self.store.get(&self.key).await?;
            if found.meta.size > SIZE_MAX {
                return Ok(None);
            }
            let meta = found.meta.clone();
            Ok(Some((found.bytes().await?, UpdateVersion { e_tag: meta.e_tag, version: meta.version })))
        };
        let (text, version) = match tokio::time::timeout(PATIENCE, reading).await {
            Err(_) => return Err(fault(late())),
            // A bucket that does not exist is found out by the write.
            Ok(Err(Error::NotFound { .. })) => {
                return Ok(Found { watermark: None, version: Version::Absent });
            }
            Ok(Err(error)) => return Err(fault(told(&error))),
            Ok(Ok(None)) => return Err(foreign()),
            Ok(Ok(Some(read))) => read,
        };
        if version.e_tag.is_none() {
            return Err(fault("the server gives no ETag".to_owned()));
        }
        let watermark: Watermark = serde_json::from_slice(&text).map_err(|_| foreign())?;
        Ok(Found { watermark: Some(watermark), version: Version::Tag(version) })
    }

    /// Replaces the copy, unless another one is there by now.
    pub(super) async fn write(&self, version: Version, text: Vec<u8>) -> Result<Written, Fault> {
        let mode = match version {
            Version::Absent => PutMode::Create,
            Version::Tag(version) => PutMode::Update(version),
            Version::Held(_) => return Ok(Written::Lost),
        };
        let attributes = Attributes::from_iter([(Attribute::ContentType, "application/json")]);
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        let fault = |reason: String| Fault::Write { url: self.url.clone(), reason };
        match tokio::time::timeout(PATIENCE, self.store.put_opts(&self.key, text.into(), options)).await {
            Err(_) => Err(fault(late())),
            Ok(Ok(_)) => Ok(Written::Done),
            Ok(Err(Error::AlreadyExists { .. } | Error::Precondition { .. })) => Ok(Written::Lost),
            Ok(Err(error)) => Err(fault(told(&error))),
        }
    }
}

fn retries() -> RetryConfig {
    RetryConfig { max_retries: RETRIES, retry_timeout: PATIENCE / 4, ..RetryConfig::default() }
}

fn late() -> String {
    format!("the server did not answer within {} seconds", PATIENCE.as_secs())
}

/// The HTTP client asks for a provider of the whole process; one that somebody else installed is as good.
fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// What went wrong, in words that name no address and are the same each time.
fn told(error: &Error) -> String {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    let mut is_http = false;
    while let Some(inner) = cause.source() {
        cause = inner;
        is_http |= cause.is::<HttpError>();
    }
    let text = cause.to_string();
    match text.split_once("Server returned ") {
        // Here the body follows, which names the request.
        Some((_, answer)) => {
            let code =
                between(answer, "<Code>", "</Code>").map(|code| format!(" ({code})")).unwrap_or_default();
            let status = answer.split(": ").nth(1).filter(|status| !status.starts_with('<'));
            let status = status.filter(|status| status.len() < 60).unwrap_or("with an error");
            format!("the server answered {status}{code}")
        }
        None if is_http => format!("the server could not be asked: {text}"),
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

    #[tokio::test]
    async fn whoever_read_before_somebody_else_wrote_has_lost() {
        let url = "s3://bucket/key".to_owned();
        let remote = Remote { url, store: Arc::new(InMemory::new()), key: Key::from("key") };
        let (first, late) = (remote.read().await.unwrap(), remote.read().await.unwrap());
        assert!(first.watermark.is_none());
        assert_eq!(remote.write(first.version, text(1)).await.unwrap(), Written::Done);
        assert_eq!(remote.write(late.version, text(2)).await.unwrap(), Written::Lost);
        let (first, late) = (remote.read().await.unwrap(), remote.read().await.unwrap());
        assert_eq!(remote.write(first.version, text(3)).await.unwrap(), Written::Done);
        assert_eq!(remote.write(late.version, text(4)).await.unwrap(), Written::Lost);
        let there = remote.read().await.unwrap().watermark.unwrap();
        assert_eq!(there.last_updated_at.timestamp(), 3);
    }

    #[test]
    fn what_a_server_answers_is_told_in_few_words() {
        let tell = |text: &'static str| told(&Error::Generic { store: "S3", source: text.into() });
        let answer = "Server returned non-2xx status code: 404 Not Found: <Error><Code>NoSuchBucket</Code>\
                      <RequestId>17</RequestId></Error>";
        assert_eq!(tell(answer), "the server answered 404 Not Found (NoSuchBucket)");
        let answer = "Server returned error response: <Error><RequestId>17</RequestId></Error>";
        assert!(!tell(answer).contains("17"), "{}", tell(answer));
        assert_eq!(tell("no account"), "no account");
    }
}
