//! Retries of requests that a command sends, in this process or to a server.

use http::{Method, StatusCode};
use std::time::Duration;
use tidemill_client::{ApiRequest, ApiResponse, Client, Transport, TransportFuture};
use tokio::time::Instant;

/// Time after which a command gives up.
pub(crate) const RETRY_FOR: Duration = Duration::from_secs(10);
/// Endpoints that are idempotent without an idempotency key, because their requests contain ids or are safe to repeat.
const IDEMPOTENT_PATHS: [&str; 11] = [
    "/v1/runs",
    "/v1/claims",
    "/v1/finishes",
    "/v1/workers",
    "/v1/projects",
    "/v1/schedules",
    "/v1/rules/test",
    "/v1/graphs",
    "/v1/jobs",
    "/v1/agents",
    "/v1/reboot",
];

/// Returns whether the last part of a path names a call that may be repeated.
fn is_idempotent_call(path: &str) -> bool {
    ["/reprice", "/plan", "/table"].iter().any(|call| path.ends_with(call))
}

/// Creates a client that retries transient errors with the same ids.
pub(crate) fn client(transport: impl Transport + 'static) -> Client {
    Client::new(RetryingTransport { transport })
}

struct RetryingTransport<T> {
    transport: T,
}

impl<T: Transport> Transport for RetryingTransport<T> {
    fn send(&self, call: ApiRequest) -> TransportFuture<'_, ApiResponse> {
        Box::pin(async move {
            let is_idempotent = call.method != Method::POST
                || call.idempotency_key.is_some()
                || call.path.split('?').next().is_some_and(is_idempotent_call)
                || IDEMPOTENT_PATHS.iter().any(|path| call.path.starts_with(path));
            let (started, mut wait) = (Instant::now(), Duration::from_millis(50));
            loop {
                let answer = self.transport.send(call.clone()).await;
                let (is_transient, pause) = match &answer {
                    // A 429 response means the request was not executed, so retrying is safe.
                    Ok(answer) if answer.status == StatusCode::TOO_MANY_REQUESTS => {
                        (true, answer.retry_after.unwrap_or(wait))
                    }
                    Ok(answer) => (is_idempotent && answer.status == StatusCode::SERVICE_UNAVAILABLE, wait),
                    Err(error) => (is_idempotent && error.is_transient(), wait),
                };
                if !is_transient || started.elapsed() + pause > RETRY_FOR {
                    return answer;
                }
                tokio::time::sleep(pause).await;
                wait = (wait * 2).min(Duration::from_secs(2));
            }
        })
    }

    fn address(&self) -> Option<&str> {
        self.transport.address()
    }
}

#[cfg(test)]
mod tests {
    use super::{RETRY_FOR, RetryingTransport, client};
    use http::{Method, StatusCode};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tidemill_client::{ApiRequest, ApiResponse, Transport, TransportFuture};

    /// Transport that answers the first request with 503.
    struct FailsOnce(Arc<AtomicU32>);

    impl Transport for FailsOnce {
        fn send(&self, _call: ApiRequest) -> TransportFuture<'_, ApiResponse> {
            let is_first = self.0.fetch_add(1, Ordering::Relaxed) == 0;
            let status = if is_first { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
            let body = r#"{"items": [], "next": null}"#.into();
            Box::pin(async move { Ok(ApiResponse { status, body, retry_after: None }) })
        }
    }

    #[tokio::test]
    async fn read_request_is_retried() {
        let requests = Arc::new(AtomicU32::new(0));
        let run = "run-01a1e557-a1e2-79ec-8eb5-8de4423f821f".parse().unwrap();
        let tries = client(FailsOnce(requests.clone())).tries(&run).await.unwrap();
        assert!(tries.items.is_empty());
        assert_eq!(requests.load(Ordering::Relaxed), 2);
    }

    /// The request may have been executed, and a retry could create a second token.
    #[tokio::test]
    async fn request_that_is_not_idempotent_is_not_retried() {
        let requests = Arc::new(AtomicU32::new(0));
        let (method, path) = (Method::POST, "/v1/tokens".to_owned());
        let call = ApiRequest { method, path, idempotency_key: None, body: None, timeout: RETRY_FOR };
        let answer = RetryingTransport { transport: FailsOnce(requests.clone()) }.send(call).await.unwrap();
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(requests.load(Ordering::Relaxed), 1);
    }
}
