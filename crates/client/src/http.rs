//! Requests over a network.

use crate::{Answer, Call, Chunks, Error, Later, LaterOf, Opened, Transport};
use bytes::Bytes;
use std::time::Duration;

/// A server, and how to reach it.
#[derive(Clone)]
pub struct HttpOptions {
    /// Its address: `http://host:port` or `https://host`.
    pub server: String,
    /// The token, where the server asks for one.
    pub token: Option<String>,
    /// Certificates in PEM form that are trusted beside the usual ones.
    pub authorities: Vec<u8>,
}

/// Requests over a network, on connections that are kept.
pub struct Http {
    client: reqwest::Client,
    base: String,
    token: Option<String>,
}

impl Http {
    /// A way to a server. Nothing is sent yet.
    pub fn new(options: HttpOptions) -> Result<Self, Error> {
        let base = options.server.trim_end_matches('/').to_owned();
        if !base.starts_with("http://") && !base.starts_with("https://") {
            return Err(Error::BadAddress(format!(
                "`{base}` is no address of a server; it begins with http:// or https://"
            )));
        }
        // Installed once per process; a second time changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .pool_idle_timeout(Duration::from_mins(1))
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("tidemill/", env!("CARGO_PKG_VERSION")));
        if !options.authorities.is_empty() {
            let certificates = reqwest::Certificate::from_pem_bundle(&options.authorities);
            let certificates = certificates
                .map_err(|error| Error::BadAddress(format!("the certificates cannot be read: {error}")))?;
            for certificate in certificates {
                builder = builder.add_root_certificate(certificate);
            }
        }
        let client = builder.build().map_err(|error| Error::BadAddress(error.to_string()))?;
        Ok(Self { client, base, token: options.token })
    }
}

impl Transport for Http {
    fn carry(&self, call: Call) -> Later<'_> {
        Box::pin(async move {
            let url = format!("{}{}", self.base, call.path);
            let mut request = self.client.request(call.method, url).timeout(call.patience);
            if let Some(token) = &self.token {
                request = request.bearer_auth(token);
            }
            if let Some(key) = call.idempotency_key {
                request = request.header("idempotency-key", key);
            }
            if let Some(body) = call.body {
                request = request.header("content-type", "application/json").body(body);
            }
            let answer = request.send().await.map_err(unreachable)?;
            let status = answer.status();
            let retry_after = retry_after(answer.headers());
            let body = answer.bytes().await.map_err(unreachable)?;
            Ok(Answer { status, body, retry_after })
        })
    }

    fn open(&self, call: Call, last_event_id: Option<String>) -> LaterOf<'_, Opened> {
        Box::pin(async move {
            let url = format!("{}{}", self.base, call.path);
            let mut request = self.client.request(call.method, url).header("accept", "text/event-stream");
            if let Some(token) = &self.token {
                request = request.bearer_auth(token);
            }
            if let Some(id) = last_event_id {
                request = request.header("last-event-id", id);
            }
            // Only the beginning has to come in time: the body has no end.
            let late = |_| Error::Unreachable("the stream did not begin in time".to_owned());
            let answer = tokio::time::timeout(call.patience, request.send()).await.map_err(late)?;
            let answer = answer.map_err(unreachable)?;
            Ok(Opened { status: answer.status(), body: Box::new(Body(answer)) })
        })
    }
}

struct Body(reqwest::Response);

impl Chunks for Body {
    fn next(&mut self) -> LaterOf<'_, Option<Bytes>> {
        Box::pin(async move { self.0.chunk().await.map_err(unreachable) })
    }
}

/// How long a server asks its caller to wait. Ours say it in seconds.
fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    let secs = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(secs))
}

/// What went wrong on the way, without the address: it may hold what is nobody's business.
fn unreachable(error: reqwest::Error) -> Error {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    Error::Unreachable(text)
}
