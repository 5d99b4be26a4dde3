//! How a single command asks: what passes is asked again for a while, whether the door is in this process or far away.

use http::{Method, StatusCode};
use std::time::Duration;
use tidemill_client::{Call, Client, Later, Transport};
use tokio::time::Instant;

/// How long a single command goes on trying.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// What can be asked twice without a key: its parts have ids and keys of their own, or recognise themselves.
const ASKED_TWICE: [&str; 11] = [
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

/// A client for a single command: what passes is asked again for a while, under the same ids.
pub(crate) fn client(way: impl Transport + 'static) -> Client {
    Client::new(Patient { way })
}

struct Patient<W> {
    way: W,
}

impl<W: Transport> Transport for Patient<W> {
    fn carry(&self, call: Call) -> Later<'_> {
        Box::pin(async move {
            let again = call.method != Method::POST
                || call.idempotency_key.is_some()
                || call.path.split('?').next().is_some_and(|path| path.ends_with("/reprice"))
                || ASKED_TWICE.iter().any(|path| call.path.starts_with(path));
            let (began, mut wait) = (Instant::now(), Duration::from_millis(50));
            loop {
                let answer = self.way.carry(call.clone()).await;
                let (passes, pause) = match &answer {
                    // Whoever is told to wait was let in nowhere: nothing was done, and asking again does it once.
                    Ok(answer) if answer.status == StatusCode::TOO_MANY_REQUESTS => {
                        (true, answer.retry_after.unwrap_or(wait))
                    }
                    Ok(answer) => (again && answer.status == StatusCode::SERVICE_UNAVAILABLE, wait),
                    Err(error) => (again && error.is_transient(), wait),
                };
                if !passes || began.elapsed() + pause > PATIENCE {
                    return answer;
                }
                tokio::time::sleep(pause).await;
                wait = (wait * 2).min(Duration::from_secs(2));
            }
        })
    }

    fn address(&self) -> Option<&str> {
        self.way.address()
    }
}

#[cfg(test)]
mod tests {
    use super::{PATIENCE, Patient, client};
    use http::{Method, StatusCode};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tidemill_client::{Answer, Call, Later, Transport};

    /// A way on which the database is away for the first request.
    struct Away(Arc<AtomicU32>);

    impl Transport for Away {
        fn carry(&self, _call: Call) -> Later<'_> {
            let is_first = self.0.fetch_add(1, Ordering::Relaxed) == 0;
            let status = if is_first { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
            let body = r#"{"items": [], "next": null}"#.into();
            Box::pin(async move { Ok(Answer { status, body, retry_after: None }) })
        }
    }

    #[tokio::test]
    async fn what_is_only_read_is_asked_again() {
        let asked = Arc::new(AtomicU32::new(0));
        let run = "run-01a1e557-a1e2-79ec-8eb5-8de4423f821f".parse().unwrap();
        let tries = client(Away(asked.clone())).tries(&run).await.unwrap();
        assert!(tries.items.is_empty());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    /// Whether it was done is not known, and a second token would be another one.
    #[tokio::test]
    async fn what_would_be_done_twice_is_not_asked_again() {
        let asked = Arc::new(AtomicU32::new(0));
        let (method, path) = (Method::POST, "/v1/tokens".to_owned());
        let call = Call { method, path, idempotency_key: None, body: None, patience: PATIENCE };
        let answer = Patient { way: Away(asked.clone()) }.carry(call).await.unwrap();
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
