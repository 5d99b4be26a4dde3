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
    /// The address for messages: without user and password.
    shown: String,
    token: Option<String>,
}

impl Http {
    /// A way to a server. Nothing is sent yet.
    pub fn new(options: HttpOptions) -> Result<Self, Error> {
        let base = options.server.trim_end_matches('/').to_owned();
        if !base.starts_with("http://") && !base.starts_with("https://") {
            return Err(Error::BadAddress(format!(
                "`{}` is no address of a server; it begins with http:// or https://",
                without_user(&base)
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
        let shown = shown(&base)?;
        Ok(Self { client, base, shown, token: options.token })
    }

    /// What went wrong on the way. The library's own text may hold the whole address, so it is left out.
    fn unreachable(&self, error: reqwest::Error) -> Error {
        unreachable(&self.shown, error)
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
            let answer = request.send().await.map_err(|error| self.unreachable(error))?;
            let status = answer.status();
            let retry_after = retry_after(answer.headers());
            let body = answer.bytes().await.map_err(|error| self.unreachable(error))?;
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
            let late = |_| Error::unreachable(Some(&self.shown), "the stream did not begin in time");
            let answer = tokio::time::timeout(call.patience, request.send()).await.map_err(late)?;
            let answer = answer.map_err(|error| self.unreachable(error))?;
            let (status, server) = (answer.status(), self.shown.clone());
            Ok(Opened { status, body: Box::new(Body { answer, server }) })
        })
    }

    fn address(&self) -> Option<&str> {
        Some(&self.shown)
    }
}

struct Body {
    answer: reqwest::Response,
    server: String,
}

impl Chunks for Body {
    fn next(&mut self) -> LaterOf<'_, Option<Bytes>> {
        Box::pin(async move { self.answer.chunk().await.map_err(|error| unreachable(&self.server, error)) })
    }
}

/// How long a server asks its caller to wait. Ours say it in seconds.
fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    let secs = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(secs))
}

/// An address without its user and password.
fn shown(base: &str) -> Result<String, Error> {
    let bad = |_| Error::BadAddress(format!("`{}` is no address of a server", without_user(base)));
    let mut url = reqwest::Url::parse(base).map_err(bad)?;
    // Both fail only for addresses that cannot have a user at all.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// The part of an address after its user and password, for one that is not understood.
fn without_user(base: &str) -> &str {
    base.rsplit_once('@').map_or(base, |(_, rest)| rest)
}

fn unreachable(server: &str, error: reqwest::Error) -> Error {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    Error::unreachable(Some(server), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    #[tokio::test]
    async fn unreachable_server_is_named_without_its_password() {
        // Nobody listens on port 1, which needs a privilege that no test has given away.
        let options = HttpOptions {
            server: "http://ann:secret@127.0.0.1:1/".to_owned(),
            token: None,
            authorities: Vec::new(),
        };
        let http = Http::new(options).unwrap();
        let path = "/v1/info?a=secret".to_owned();
        let patience = Duration::from_mins(1);
        let call = Call { method: Method::GET, path, idempotency_key: None, body: None, patience };
        let error = http.carry(call).await.unwrap_err().to_string();
        assert!(error.starts_with("the server at http://127.0.0.1:1 does not answer: "), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn bad_address_is_refused_without_its_password() {
        let options =
            |server: &str| HttpOptions { server: server.to_owned(), token: None, authorities: Vec::new() };
        for server in ["http://ann:secret@", "ftp://ann:secret@host", "http://ann:secret@host:port"] {
            let error = Http::new(options(server)).err().map(|error| error.to_string()).unwrap();
            assert!(error.contains("is no address of a server") && !error.contains("secret"), "{error}");
        }
    }
}
