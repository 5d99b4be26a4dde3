//! One question over HTTP: the rate limit, the retries, the bounds, and what each kind of answer means.

use crate::bucket::Bucket;
use crate::{FeedError, Tuning};
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use std::time::Duration;
use tidemill_core::Timestamp;
use tidemill_core::limits::RETRY_AFTER_SECS_MAX;

/// Characters of the source's own words in a reason.
const WORDS_MAX: usize = 300;

/// Asks one address.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    url: Url,
    /// Host and path: who was asked, in messages.
    pub(super) at: String,
    pub(super) tuning: Tuning,
    pub(super) bucket: Bucket,
}

/// An answer with a good status.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) body: Vec<u8>,
    /// The source's time.
    pub(super) date: Option<Timestamp>,
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) nature: Nature,
    pub(super) reason: String,
    pub(super) retry_after: Option<Duration>,
}

/// What follows from a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nature {
    /// Nobody answers. Tried again; in the end an outage.
    Unreachable,
    /// The account asks too often. Tried again, and nobody else of this process asks meanwhile; in the end an outage:
    /// a limit is the feed's, and not of the question.
    Limited,
    /// Not now. Tried again; in the end transient.
    Busy,
    /// The body is not what was asked for. Tried again; in the end permanent.
    Garbled,
    /// The answer has too many bytes. Not tried again as it is.
    TooLarge,
    /// The token or the account is refused. Not tried again with the same token.
    Account,
    /// Another try would not change it.
    Final,
    /// The question was not sent.
    Query,
}

impl Fault {
    pub(super) fn new(nature: Nature, reason: impl Into<String>) -> Self {
        Self { nature, reason: reason.into(), retry_after: None }
    }

    pub(super) fn query(reason: String) -> Self {
        Self::new(Nature::Query, reason)
    }

    /// The error that a caller sees.
    pub(super) fn error(self, at: &str) -> FeedError {
        let Self { nature, reason, retry_after } = self;
        let at = at.to_owned();
        match nature {
            Nature::Unreachable | Nature::Limited => FeedError::Outage { at, reason, retry_after },
            Nature::Busy => FeedError::Transient { at, reason, retry_after },
            Nature::Account => FeedError::Auth { at, reason },
            Nature::Garbled | Nature::TooLarge | Nature::Final => FeedError::Permanent { at, reason },
            Nature::Query => FeedError::BadQuery { reason },
        }
    }
}

impl Client {
    /// `tls` says whose certificates are believed.
    pub(super) fn new(
        url: Url,
        per_second: f64,
        tls: rustls::ClientConfig,
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
            // A redirect would carry the password to wherever it points.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("tidemill/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| innermost(&error))?;
        Ok(Self { http, url, at, tuning, bucket: Bucket::new(per_second) })
    }

    /// Asks until there is an answer that `read` accepts, or the retries are used up.
    pub(super) async fn ask<T>(
        &self,
        body: &[u8],
        bytes_max: usize,
        read: impl Fn(&Reply) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (mut retries, mut spent) = (0, Duration::ZERO);
        loop {
            self.bucket.take().await;
            let began = tokio::time::Instant::now();
            let fault = match self.post(body, bytes_max).await.and_then(|reply| read(&reply)) {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            let again = match fault.nature {
                Nature::Unreachable | Nature::Limited | Nature::Busy | Nature::Garbled => {
                    retries < self.tuning.retries_max
                }
                Nature::Account | Nature::TooLarge | Nature::Final | Nature::Query => false,
            };
            let asked = fault.retry_after.unwrap_or_default();
            if fault.nature == Nature::Limited {
                // The limit is the account's, so nobody else of this process need find it out again.
                let rest = asked.max(self.tuning.backoff_of(retries));
                self.bucket.rest(rest.min(self.tuning.retry_after_max));
            }
            if !again || asked > self.tuning.retry_after_max {
                return Err(fault);
            }
            let wait = asked.max(self.tuning.backoff_of(retries)) + jitter(self.tuning.jitter_max);
            spent += began.elapsed() + wait;
            if spent > self.tuning.question_timeout {
                return Err(fault);
            }
            // The reason is left out: it may repeat the token, and only the caller can tell.
            let (nature, wait_ms) = (fault.nature, wait.as_millis());
            tracing::debug!(feed.at = %self.at, ?nature, retries, wait_ms, "{} is asked again", self.at);
            tokio::time::sleep(wait).await;
            retries += 1;
        }
    }

    /// One try.
    async fn post(&self, body: &[u8], bytes_max: usize) -> Result<Reply, Fault> {
        let request =
            self.http.post(self.url.clone()).header(CONTENT_TYPE, "application/json").body(body.to_vec());
        let mut response = request.send().await.map_err(|error| self.broken(&error))?;
        let (status, date) = (response.status(), date(response.headers()));
        let retry_after = retry_after(response.headers(), date);
        let mut body = Vec::with_capacity(expected(response.content_length(), bytes_max));
        while let Some(chunk) = response.chunk().await.map_err(|error| self.broken(&error))? {
            if body.len() + chunk.len() > bytes_max {
                let reason = format!("answered more than {bytes_max} bytes; ask for fewer records at a time");
                return Err(Fault::new(Nature::TooLarge, reason));
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return Ok(Reply { body, date });
        }
        Err(refused(status, retry_after, &body))
    }

    /// What became of a connection.
    fn broken(&self, error: &reqwest::Error) -> Fault {
        let reason = if error.is_timeout() {
            format!("did not answer within {} s", self.tuning.answer_timeout.as_secs_f32())
        } else if error.is_connect() {
            format!("could not be reached ({})", innermost(error))
        } else {
            format!("broke the connection off ({})", innermost(error))
        };
        Fault::new(Nature::Unreachable, reason)
    }
}

/// What a status other than success means.
fn refused(status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> Fault {
    let said = super::envelope::errors(body);
    let words = said.as_ref().map(|fault| format!(": {}", fault.reason)).unwrap_or_default();
    let told_of_account = said.is_some_and(|fault| fault.nature == Nature::Account);
    let nature = match status {
        StatusCode::TOO_MANY_REQUESTS => Nature::Limited,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Nature::Account,
        _ if told_of_account => Nature::Account,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => Nature::Unreachable,
        _ if status.is_server_error() => Nature::Unreachable,
        _ => Nature::Final,
    };
    let hint = match status {
        _ if status.is_redirection() => "; give the feed the address that it points to",
        StatusCode::NOT_FOUND => "; check the path of the address",
        _ => "",
    };
    Fault { nature, reason: format!("answered {status}{words}{hint}"), retry_after }
}

/// Words of the source, fit for a sentence: one line, of bounded length.
pub(super) fn words(text: &str) -> String {
    let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    line.trim().chars().take(WORDS_MAX).collect()
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What the library below everything said, which names the cause and no address.
fn innermost(error: &reqwest::Error) -> String {
    let mut error: &dyn std::error::Error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    words(&error.to_string())
}

/// Room for an answer whose length was announced; no more than is accepted, and no trust in a large number.
fn expected(announced: Option<u64>, bytes_max: usize) -> usize {
    announced.and_then(|length| usize::try_from(length).ok()).unwrap_or(0).min(bytes_max).min(1024 * 1024)
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    http_date(headers.get(DATE)?.to_str().ok()?)
}

fn http_date(text: &str) -> Option<Timestamp> {
    chrono::DateTime::parse_from_rfc2822(text).ok().map(|time| time.to_utc())
}

/// The wait that the source asks for, up to the cap: in seconds, or until a time by its own clock.
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
    fn a_wait_is_read_in_seconds_or_as_a_time() {
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
    fn a_status_has_a_nature() {
        for (status, nature) in [
            (429, Nature::Limited),
            (401, Nature::Account),
            (403, Nature::Account),
            (408, Nature::Unreachable),
            (500, Nature::Unreachable),
            (503, Nature::Unreachable),
            (302, Nature::Final),
            (400, Nature::Final),
            (404, Nature::Final),
        ] {
            let fault = refused(StatusCode::from_u16(status).unwrap(), None, b"<html>");
            assert_eq!(fault.nature, nature, "{status}");
        }
        let told = refused(StatusCode::BAD_REQUEST, None, br#"{"errors":[{"message":"token expired"}]}"#);
        assert_eq!(told.nature, Nature::Account);
    }

    #[test]
    fn words_are_one_bounded_line() {
        assert_eq!(words(" a\nb\0 "), "a b");
        assert_eq!(words(&"x".repeat(1_000)).len(), WORDS_MAX);
    }
}
