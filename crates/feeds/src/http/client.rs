//! HTTP client of the feed: rate limit, retries, size limits, and the classification of responses.

use crate::network::AddressError;
use crate::rate_limiter::RateLimiter;
use crate::{FeedError, Network, Tuning};
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, StatusCode, Url};
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::Timestamp;
use tidemill_core::limits::RETRY_AFTER_SECS_MAX;

/// Longest quotation of the source's own message in an error, in characters.
const QUOTE_CHARS_MAX: usize = 300;
/// Longest quotation of a body in an error, in bytes.
const EXCERPT_BYTES: usize = 120;

/// HTTP client of one endpoint.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: Url,
    /// Host and path, for messages.
    pub(crate) at: String,
    pub(crate) tuning: Tuning,
    pub(crate) rate_limiter: Arc<RateLimiter>,
    quotation: Quotation,
}

/// A request to the client's host.
#[derive(Debug, Clone)]
pub(crate) struct HttpRequest {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Error statuses that count as answers.
    pub(crate) accepted: Vec<u16>,
}

/// The quotation of an error response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quotation {
    /// Messages of GraphQL errors.
    Graphql,
    /// Messages of GraphQL errors, otherwise the beginning of the body.
    Body,
}

/// A response with a success status, or with one that the request accepts.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Time by the source's clock.
    pub(crate) date: Option<Timestamp>,
}

/// Why a request has no usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestError {
    pub(crate) kind: ErrorKind,
    pub(crate) reason: String,
    pub(crate) retry_after: Option<Duration>,
}

/// Classification of a failed request. It decides about retries and the error that the caller sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// No connection or no answer. Retried; then an outage.
    Unreachable,
    /// The account exceeded its rate limit. Retried while the whole process pauses; then an outage, because the limit
    /// applies to the feed and not to this request.
    RateLimited,
    /// A temporary error. Retried; then transient.
    Busy,
    /// The body is not the expected JSON. Retried; then permanent.
    Malformed,
    /// The response is too large. Not retried unchanged.
    TooLarge,
    /// The token or the account is refused. Not retried with the same token.
    Unauthorized,
    /// The server rejects the request for good. Not retried.
    Rejected,
    /// The query is invalid and was not sent.
    InvalidQuery,
    /// The list of hosts refused the address, and nothing was sent. Not retried.
    OutOfReach,
}

impl RequestError {
    pub(crate) fn new(kind: ErrorKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), retry_after: None }
    }

    pub(crate) fn query(reason: String) -> Self {
        Self::new(ErrorKind::InvalidQuery, reason)
    }

    /// Converts this to the error that the caller sees.
    pub(crate) fn into_feed_error(self, at: &str) -> FeedError {
        let Self { kind, reason, retry_after } = self;
        let at = at.to_owned();
        match kind {
            ErrorKind::Unreachable | ErrorKind::RateLimited => FeedError::Outage { at, reason, retry_after },
            ErrorKind::Busy => FeedError::Transient { at, reason, retry_after },
            ErrorKind::Unauthorized => FeedError::Auth { at, reason },
            ErrorKind::Malformed | ErrorKind::TooLarge | ErrorKind::Rejected => {
                FeedError::Permanent { at, reason }
            }
            ErrorKind::InvalidQuery => FeedError::InvalidQuery { reason },
            ErrorKind::OutOfReach => FeedError::OutOfReach { at, reason },
        }
    }
}

impl Client {
    /// Creates a client. `tls` contains the trusted certificate authorities.
    pub(crate) fn new(
        url: Url,
        per_second: f64,
        tls: rustls::ClientConfig,
        network: &Network,
        tuning: Tuning,
    ) -> Result<Self, String> {
        let host = url.host_str().unwrap_or_default();
        let at = match url.port() {
            Some(port) => format!("{host}:{port}{}", url.path()),
            None => format!("{host}{}", url.path()),
        };
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(tuning.connect_timeout)
            .timeout(tuning.answer_timeout)
            // Following a redirect would send the password to its target.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("tidemill/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        if let Network::Listed(hosts) = network {
            let port = url.port_or_known_default().unwrap_or_default();
            builder = builder.no_proxy().dns_resolver(hosts.resolver(port));
        }
        let http = builder.build().map_err(|error| innermost(&error))?;
        Ok(Self {
            http,
            url,
            at,
            tuning,
            rate_limiter: Arc::new(RateLimiter::new(per_second)),
            quotation: Quotation::Graphql,
        })
    }

    /// Changes the quotation of error responses.
    pub(crate) const fn with_quotation(mut self, quotation: Quotation) -> Self {
        self.quotation = quotation;
        self
    }

    /// Posts a JSON body until `read` accepts the response or the retries are exhausted.
    pub(crate) async fn send<T>(
        &self,
        body: &[u8],
        bytes_max: usize,
        read: impl Fn(&Reply) -> Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let url = self.url.clone();
        let request =
            HttpRequest { method: Method::POST, url, headers, body: body.to_vec(), accepted: Vec::new() };
        self.request(&request, bytes_max, read).await
    }

    /// Sends a request until `read` accepts the response or the retries are exhausted.
    pub(crate) async fn request<T>(
        &self,
        request: &HttpRequest,
        bytes_max: usize,
        read: impl Fn(&Reply) -> Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        let (mut retries, mut spent) = (0, Duration::ZERO);
        loop {
            self.rate_limiter.acquire().await;
            let began = tokio::time::Instant::now();
            let error = match self.send_once(request, bytes_max).await.and_then(|reply| read(&reply)) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let may_retry = match error.kind {
                ErrorKind::Unreachable | ErrorKind::RateLimited | ErrorKind::Busy | ErrorKind::Malformed => {
                    retries < self.tuning.retries_max
                }
                ErrorKind::Unauthorized
                | ErrorKind::TooLarge
                | ErrorKind::Rejected
                | ErrorKind::InvalidQuery
                | ErrorKind::OutOfReach => false,
            };
            let requested = error.retry_after.unwrap_or_default();
            if error.kind == ErrorKind::RateLimited {
                // The limit applies to the account, so all other requests of this process pause too.
                let pause = requested.max(self.tuning.backoff_of(retries));
                self.rate_limiter.pause(pause.min(self.tuning.retry_after_max));
            }
            if !may_retry || requested > self.tuning.retry_after_max {
                return Err(error);
            }
            let wait = requested.max(self.tuning.backoff_of(retries)) + jitter(self.tuning.jitter_max);
            spent += began.elapsed() + wait;
            if spent > self.tuning.question_timeout {
                return Err(error);
            }
            // The reason is not logged: it may quote the token, and only the caller can mask that.
            let (kind, wait_ms) = (error.kind, wait.as_millis());
            tracing::debug!(feed.at = %self.at, ?kind, retries, wait_ms, "retrying the request to {}", self.at);
            tokio::time::sleep(wait).await;
            retries += 1;
        }
    }

    /// Sends the request once.
    async fn send_once(&self, request: &HttpRequest, bytes_max: usize) -> Result<Reply, RequestError> {
        let builder = self.http.request(request.method.clone(), request.url.clone());
        let builder = builder.headers(request.headers.clone()).body(request.body.clone());
        let mut response = builder.send().await.map_err(|error| self.broken(&error))?;
        let (status, date) = (response.status(), date(response.headers()));
        let retry_after = retry_after(response.headers(), date);
        let mut body = Vec::with_capacity(expected(response.content_length(), bytes_max));
        while let Some(chunk) = response.chunk().await.map_err(|error| self.broken(&error))? {
            if body.len() + chunk.len() > bytes_max {
                let reason = format!("answered more than {bytes_max} bytes; request fewer records at a time");
                return Err(RequestError::new(ErrorKind::TooLarge, reason));
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() || request.accepted.contains(&status.as_u16()) {
            let headers = std::mem::take(response.headers_mut());
            return Ok(Reply { status, headers, body, date });
        }
        Err(refused(status, retry_after, &body, self.quotation))
    }

    /// Classifies a transport error.
    fn broken(&self, error: &reqwest::Error) -> RequestError {
        if let Some(refused) = refused_address(error) {
            return RequestError::new(ErrorKind::OutOfReach, refused.to_string());
        }
        let reason = if error.is_timeout() {
            format!("did not answer within {} s", self.tuning.answer_timeout.as_secs_f32())
        } else if error.is_connect() {
            format!("could not be reached ({})", innermost(error))
        } else {
            format!("closed the connection early ({})", innermost(error))
        };
        RequestError::new(ErrorKind::Unreachable, reason)
    }
}

/// Returns the error of the checked resolver, if it caused this one.
fn refused_address(error: &reqwest::Error) -> Option<&AddressError> {
    let mut error: &(dyn std::error::Error + 'static) = error;
    loop {
        if let Some(refused) = error.downcast_ref::<AddressError>() {
            return Some(refused);
        }
        error = error.source()?;
    }
}

/// Classifies a response with an error status.
fn refused(
    status: StatusCode,
    retry_after: Option<Duration>,
    body: &[u8],
    quotation: Quotation,
) -> RequestError {
    let quoted = super::envelope::find_error(body);
    let suffix = match (&quoted, quotation) {
        (Some(error), _) => format!(": {}", error.reason),
        (None, Quotation::Body) if !body.is_empty() => format!(" (`{}`)", excerpt(body)),
        (None, Quotation::Body | Quotation::Graphql) => String::new(),
    };
    let is_account_error = quoted.is_some_and(|error| error.kind == ErrorKind::Unauthorized);
    let kind = match status {
        StatusCode::TOO_MANY_REQUESTS => ErrorKind::RateLimited,
        // Some APIs answer so to an account that sends too much. An account without the right has nothing to wait for.
        StatusCode::FORBIDDEN if retry_after.is_some() => ErrorKind::RateLimited,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorKind::Unauthorized,
        _ if is_account_error => ErrorKind::Unauthorized,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => ErrorKind::Unreachable,
        _ if status.is_server_error() => ErrorKind::Unreachable,
        _ => ErrorKind::Rejected,
    };
    let hint = match status {
        _ if status.is_redirection() => "; set the endpoint of the feed to the redirect's target",
        StatusCode::NOT_FOUND => "; check the path of the endpoint",
        _ => "",
    };
    RequestError { kind, reason: format!("answered {status}{suffix}{hint}"), retry_after }
}

/// Shortens a message of the source to one line of bounded length.
pub(crate) fn quote(text: &str) -> String {
    let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    line.trim().chars().take(QUOTE_CHARS_MAX).collect()
}

/// Masks a secret in an error message, because the source may quote the request.
pub(crate) fn hide(mut error: RequestError, secret: &str) -> RequestError {
    if !secret.is_empty() && error.reason.contains(secret) {
        error.reason = error.reason.replace(secret, "***");
    }
    error
}

/// Returns the beginning of a body as one line.
pub(crate) fn excerpt(body: &[u8]) -> String {
    let start = &body[..body.len().min(EXCERPT_BYTES)];
    quote(&String::from_utf8_lossy(start))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns the message of the innermost error, which names the cause but not the URL.
fn innermost(error: &reqwest::Error) -> String {
    let mut error: &dyn std::error::Error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    quote(&error.to_string())
}

/// Initial capacity for a body of the announced length. It is capped, because the announcement is not trusted.
fn expected(announced: Option<u64>, bytes_max: usize) -> usize {
    announced.and_then(|length| usize::try_from(length).ok()).unwrap_or(0).min(bytes_max).min(1024 * 1024)
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    http_date(headers.get(DATE)?.to_str().ok()?)
}

fn http_date(text: &str) -> Option<Timestamp> {
    chrono::DateTime::parse_from_rfc2822(text).ok().map(|time| time.to_utc())
}

/// Parses `Retry-After`, which is in seconds or a time by the source's clock, and caps it.
fn retry_after(headers: &HeaderMap, date: Option<Timestamp>) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let wait = if is_number {
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        (http_date(text)? - date?).to_std().unwrap_or_default()
    };
    Some(wait.min(Duration::from_secs(RETRY_AFTER_SECS_MAX)))
}

fn jitter(max: Duration) -> Duration {
    max.mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_parsed_as_seconds_or_as_a_time() {
        let mut headers = HeaderMap::new();
        let now = http_date("Sun, 06 Nov 1994 08:49:37 GMT");
        for (text, expected) in [
            ("7", Some(7)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("soon", None),
            ("-7", None),
            ("", None),
            ("86400", Some(RETRY_AFTER_SECS_MAX)),
            ("10000000000000", Some(RETRY_AFTER_SECS_MAX)),
            ("18446744073709551615", Some(RETRY_AFTER_SECS_MAX)),
            ("99999999999999999999999999", Some(RETRY_AFTER_SECS_MAX)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(RETRY_AFTER_SECS_MAX)),
        ] {
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            assert_eq!(retry_after(&headers, now), expected.map(Duration::from_secs), "{text}");
        }
        headers.insert(RETRY_AFTER, "Sun, 06 Nov 1994 08:50:07 GMT".parse().unwrap());
        assert_eq!(retry_after(&headers, None), None);
    }

    #[test]
    fn http_statuses_are_classified() {
        for (status, kind) in [
            (429, ErrorKind::RateLimited),
            (401, ErrorKind::Unauthorized),
            (403, ErrorKind::Unauthorized),
            (408, ErrorKind::Unreachable),
            (500, ErrorKind::Unreachable),
            (503, ErrorKind::Unreachable),
            (302, ErrorKind::Rejected),
            (400, ErrorKind::Rejected),
            (404, ErrorKind::Rejected),
        ] {
            let error = refused(StatusCode::from_u16(status).unwrap(), None, b"<html>", Quotation::Graphql);
            assert_eq!(error.kind, kind, "{status}");
        }
        let forbidden = StatusCode::FORBIDDEN;
        let limited = refused(forbidden, Some(Duration::from_mins(1)), b"slow down", Quotation::Body);
        assert_eq!(limited.kind, ErrorKind::RateLimited);
        assert_eq!(limited.retry_after, Some(Duration::from_mins(1)));
        let body = br#"{"errors":[{"message":"token expired"}]}"#;
        let expired = refused(StatusCode::BAD_REQUEST, None, body, Quotation::Graphql);
        assert_eq!(expired.kind, ErrorKind::Unauthorized);
    }

    #[test]
    fn body_of_an_error_response_is_quoted() {
        let error = refused(StatusCode::BAD_REQUEST, None, b"no such\nfilter", Quotation::Body);
        assert_eq!(error.reason, "answered 400 Bad Request (`no such filter`)");
        let error = refused(StatusCode::BAD_REQUEST, None, b"no such\nfilter", Quotation::Graphql);
        assert_eq!(error.reason, "answered 400 Bad Request");
    }

    #[test]
    fn quoted_message_is_one_line_of_bounded_length() {
        assert_eq!(quote(" a\nb\0 "), "a b");
        assert_eq!(quote(&"x".repeat(1_000)).len(), QUOTE_CHARS_MAX);
    }
}
