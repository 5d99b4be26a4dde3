//! The transport that sends requests over HTTP.

use crate::{ApiRequest, ApiResponse, Chunks, Error, StreamResponse, Transport, TransportFuture};
use bytes::Bytes;
use http::StatusCode;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// Address and credentials of a server.
#[derive(Clone)]
pub struct HttpOptions {
    /// Server address: `http://host:port` or `https://host`.
    pub server: String,
    /// Bearer token, if the server requires one.
    pub token: Option<String>,
    /// PEM certificates to trust in addition to the system's and the bundled certificate authorities.
    pub authorities: Vec<u8>,
}

/// Returns the bundled certificate authorities. Without them, a client of the HTTP library cannot be built on a system
/// that has no certificates, such as an empty container.
pub fn bundled_authorities() -> Result<Vec<reqwest::Certificate>, Error> {
    let certificates =
        webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|der| reqwest::Certificate::from_der(der));
    let certificates: Result<Vec<_>, _> = certificates.collect();
    certificates
        .map_err(|error| Error::InvalidConfig(format!("cannot read the bundled certificates: {error}")))
}

/// Reads the current token of a server. The error is a message for the user.
pub type TokenSource = Box<dyn Fn() -> Result<Option<String>, String> + Send + Sync>;

/// Number of new tokens with which one request is sent again.
const TOKENS_MAX: u32 = 3;

/// Proxies between a client and its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proxies {
    /// Those of variables such as `HTTP_PROXY`.
    OfEnvironment,
    None,
}

/// Transport that sends requests over the network on pooled connections.
pub struct HttpTransport {
    client: reqwest::Client,
    base: String,
    /// Address for messages, without user and password.
    display_address: String,
    token: RwLock<Option<String>>,
    source: Option<TokenSource>,
}

impl HttpTransport {
    /// Creates a transport. It connects on the first request.
    pub fn new(options: HttpOptions) -> Result<Self, Error> {
        Self::build(options, None, Proxies::OfEnvironment)
    }

    /// Creates a transport whose token comes from `source`. After a 401 response the token is read again, because it
    /// may have been replaced.
    pub fn with_token_source(options: HttpOptions, source: TokenSource) -> Result<Self, Error> {
        let token = source().map_err(Error::InvalidConfig)?;
        Self::build(HttpOptions { token, ..options }, Some(source), Proxies::OfEnvironment)
    }

    /// Like [`Self::with_token_source`], to a server of this machine. A proxy would see the token, so none is used.
    pub fn local(options: HttpOptions, source: TokenSource) -> Result<Self, Error> {
        let token = source().map_err(Error::InvalidConfig)?;
        Self::build(HttpOptions { token, ..options }, Some(source), Proxies::None)
    }

    fn build(options: HttpOptions, source: Option<TokenSource>, proxies: Proxies) -> Result<Self, Error> {
        let base = options.server.trim_end_matches('/').to_owned();
        if !base.starts_with("http://") && !base.starts_with("https://") {
            return Err(Error::InvalidConfig(format!(
                "invalid server address `{}`: it must start with http:// or https://",
                strip_user(&base)
            )));
        }
        // Returns an error if a provider is already installed; that one is used then.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .pool_idle_timeout(Duration::from_mins(1))
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("tidemill/", env!("CARGO_PKG_VERSION")));
        if proxies == Proxies::None {
            builder = builder.no_proxy();
        }
        builder = builder.tls_certs_merge(bundled_authorities()?);
        if !options.authorities.is_empty() {
            let certificates = reqwest::Certificate::from_pem_bundle(&options.authorities);
            let certificates = certificates
                .map_err(|error| Error::InvalidConfig(format!("cannot read the CA certificates: {error}")))?;
            for certificate in certificates {
                builder = builder.add_root_certificate(certificate);
            }
        }
        let client = builder.build().map_err(|error| Error::InvalidConfig(error.to_string()))?;
        let display_address = display_address(&base)?;
        Ok(Self { client, base, display_address, token: RwLock::new(options.token), source })
    }

    fn token(&self) -> Option<String> {
        self.token.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a request with the token. After a 401 response, sends it again if there is a new token: a refused request
    /// was not executed. A server that restarts often has another token at each start.
    async fn send_authorized(
        &self,
        build: impl Fn() -> reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, Error> {
        let (mut used, mut left) = (self.token(), TOKENS_MAX);
        loop {
            let request = match &used {
                Some(token) => build().bearer_auth(token),
                None => build(),
            };
            let response = request.send().await.map_err(|error| self.unreachable(error))?;
            let is_refused = response.status() == StatusCode::UNAUTHORIZED;
            let Some(source) = self.source.as_ref().filter(|_| is_refused && left > 0) else {
                return Ok(response);
            };
            let fresh = source().map_err(Error::InvalidConfig)?;
            if fresh.is_none() || fresh == used {
                return Ok(response);
            }
            self.token.write().unwrap_or_else(PoisonError::into_inner).clone_from(&fresh);
            (used, left) = (fresh, left - 1);
        }
    }

    /// Turns an error of the HTTP library into ours, without its URL, which may contain a password.
    fn unreachable(&self, error: reqwest::Error) -> Error {
        unreachable(&self.display_address, error)
    }
}

impl Transport for HttpTransport {
    fn send(&self, request: ApiRequest) -> TransportFuture<'_, ApiResponse> {
        Box::pin(async move {
            let url = format!("{}{}", self.base, request.path);
            let build = || {
                let mut http = self.client.request(request.method.clone(), &url).timeout(request.timeout);
                if let Some(key) = &request.idempotency_key {
                    http = http.header("idempotency-key", key);
                }
                if let Some(body) = &request.body {
                    http = http.header("content-type", "application/json").body(body.clone());
                }
                http
            };
            let response = self.send_authorized(build).await?;
            let status = response.status();
            let retry_after = retry_after(response.headers());
            let body = response.bytes().await.map_err(|error| self.unreachable(error))?;
            Ok(ApiResponse { status, body, retry_after })
        })
    }

    fn open(
        &self,
        request: ApiRequest,
        last_event_id: Option<String>,
    ) -> TransportFuture<'_, StreamResponse> {
        Box::pin(async move {
            let url = format!("{}{}", self.base, request.path);
            let build = || {
                let http = self.client.request(request.method.clone(), &url);
                let http = http.header("accept", "text/event-stream");
                match &last_event_id {
                    Some(id) => http.header("last-event-id", id),
                    None => http,
                }
            };
            // The timeout covers only the response headers: the body of an event stream does not end.
            let late =
                |_| Error::unreachable(Some(&self.display_address), "the event stream did not start in time");
            let sent = tokio::time::timeout(request.timeout, self.send_authorized(build));
            let response = sent.await.map_err(late)??;
            let (status, server) = (response.status(), self.display_address.clone());
            Ok(StreamResponse { status, body: Box::new(Body { response, server }) })
        })
    }

    fn address(&self) -> Option<&str> {
        Some(&self.display_address)
    }
}

struct Body {
    response: reqwest::Response,
    server: String,
}

impl Chunks for Body {
    fn next(&mut self) -> TransportFuture<'_, Option<Bytes>> {
        Box::pin(async move { self.response.chunk().await.map_err(|error| unreachable(&self.server, error)) })
    }
}

/// Parses `Retry-After`. Only the form in seconds is supported, which is the one our server sends.
fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    let secs = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(secs))
}

/// Returns an address without its user and password.
fn display_address(base: &str) -> Result<String, Error> {
    let bad = |_| Error::InvalidConfig(format!("invalid server address `{}`", strip_user(base)));
    let mut url = reqwest::Url::parse(base).map_err(bad)?;
    // Both fail only for URLs that cannot contain a user at all.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// Returns the part of an address after its user and password. For messages about addresses that do not parse.
fn strip_user(base: &str) -> &str {
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
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn unreachable_server_error_omits_password() {
        // No process listens on port 1: binding it needs a privilege that tests do not have.
        let options = HttpOptions {
            server: "http://ann:secret@127.0.0.1:1/".to_owned(),
            token: None,
            authorities: Vec::new(),
        };
        let http = HttpTransport::new(options).unwrap();
        let path = "/v1/info?a=secret".to_owned();
        let timeout = Duration::from_mins(1);
        let request = ApiRequest { method: Method::GET, path, idempotency_key: None, body: None, timeout };
        let error = http.send(request).await.unwrap_err().to_string();
        assert!(error.starts_with("the server at http://127.0.0.1:1 does not answer: "), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }

    /// Answers 200 to requests with this token, and 401 to all others.
    fn answer_to(token: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let is_known = head.iter().any(|line| line.ends_with(&format!("Bearer {token}")));
                let status = if is_known { "200 OK" } else { "401 Unauthorized" };
                write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                    .unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn request_survives_servers_that_restart_again_and_again() {
        let tokens = AtomicU32::new(0);
        let source = move || Ok(Some(format!("token-{}", tokens.fetch_add(1, Ordering::Relaxed))));
        let options = HttpOptions { server: answer_to("token-3"), token: None, authorities: Vec::new() };
        let http = HttpTransport::local(options, Box::new(source)).unwrap();
        let (path, timeout) = ("/v1/info".to_owned(), Duration::from_mins(1));
        let request = ApiRequest { method: Method::GET, path, idempotency_key: None, body: None, timeout };
        assert_eq!(http.send(request).await.unwrap().status, StatusCode::OK);
    }

    #[test]
    fn invalid_address_error_omits_password() {
        let options =
            |server: &str| HttpOptions { server: server.to_owned(), token: None, authorities: Vec::new() };
        for server in ["http://ann:secret@", "ftp://ann:secret@host", "http://ann:secret@host:port"] {
            let error = HttpTransport::new(options(server)).err().map(|error| error.to_string()).unwrap();
            assert!(error.contains("invalid server address") && !error.contains("secret"), "{error}");
        }
    }
}
