//! Outputs in an object store, tested against a real S3 server.

use crate::fixture::{Fixture, agent_id, inputs, kill, order, success, until};
use http::{Method, StatusCode};
use serde_json::json;
use std::sync::{Arc, Mutex};
use tidemill_core::task::TaskResult;
use tidemill_testkit::s3::{self, Middleware};

const BUCKET: &str = "outputs";
const STORE: &str = "s3://outputs/of/the-site";

/// Refuses a number of requests with a status.
#[derive(Default)]
struct RequestFailures(Mutex<(u32, StatusCode)>);

impl RequestFailures {
    fn refuse(&self, requests: u32, status: StatusCode) {
        *self.0.lock().unwrap() = (requests, status);
    }
}

impl Middleware for RequestFailures {
    async fn before(&self, _method: &Method, _path: &str) -> Option<StatusCode> {
        let (left, status) = &mut *self.0.lock().unwrap();
        *left = left.checked_sub(1)?;
        Some(*status)
    }
}

struct StoreFixture {
    folder: tempfile::TempDir,
    failures: Arc<RequestFailures>,
    environment: Vec<(&'static str, String)>,
}

impl StoreFixture {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let failures = Arc::new(RequestFailures::default());
        let environment = s3::serve(folder.path(), BUCKET, failures.clone()).await.unwrap();
        Self { folder, failures, environment }
    }

    /// Starts an agent that uses the store, with its own fake server.
    async fn agent(&self) -> (Fixture, tokio::process::Child) {
        let fixture = Fixture::new().await;
        let process = fixture.process_with(&[STORE], &self.environment);
        (fixture, process)
    }
}

/// Creates a small file, and one that is uploaded in parts.
const CREATE_OUTPUTS: &str =
    "echo hello > 'a b.txt' && head -c 12000000 /dev/zero > large && chmod +x large 'a b.txt'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_of_one_agent_reach_another() {
    let store = StoreFixture::open().await;
    let (one, process) = store.agent().await;
    let mut first = order(&one, "first", CREATE_OUTPUTS);
    first["work"]["outputs"] = json!({"text": "a b.txt", "large": "large"});
    one.server.order(first);
    assert_eq!(one.result("first-001").await, success());
    let left = one.server.result("first-001").unwrap().outputs;
    for output in &left {
        let url = output.url.as_ref().expect("the output is not in the store");
        let within = url.strip_prefix("s3://outputs/").expect("the output is not in the bucket");
        let object = std::fs::metadata(store.folder.path().join(BUCKET).join(within))
            .expect("the object does not exist");
        assert_eq!(i64::try_from(object.len()), Ok(output.size_bytes));
    }
    let maker = agent_id(&one);
    kill(process).await;

    let (other, process) = store.agent().await;
    let mut second =
        order(&other, "second", "cat 'a b.txt' && wc -c < large && test -x 'a b.txt' && test -x large");
    second["work"]["inputs"] = inputs("first", Some(maker), &left);
    other.server.order(second);
    assert_eq!(other.result("second-001").await, success(), "{:?}", other.server.log("second-001"));
    assert_eq!(other.server.log("second-001"), ["stdout: hello", "stdout: 12000000"]);
    kill(process).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn temporary_store_failure_is_retryable() {
    let store = StoreFixture::open().await;
    let (fixture, process) = store.agent().await;
    // The store recovers during the retries of the agent.
    store.failures.refuse(3, StatusCode::SERVICE_UNAVAILABLE);
    let mut first = order(&fixture, "first", "echo hello > file");
    first["work"]["outputs"] = json!({"all": "file"});
    fixture.server.order(first);
    assert_eq!(fixture.result("first-001").await, success());
    let left = fixture.server.result("first-001").unwrap().outputs;

    // It refuses all requests of the task, so the task fails with a retryable error.
    store.failures.refuse(1_000, StatusCode::FORBIDDEN);
    let mut second = order(&fixture, "second", "echo hello > file");
    second["work"]["outputs"] = json!({"all": "file"});
    fixture.server.order(second.clone());
    let TaskResult::Failed { fatal: false, message, .. } = fixture.result("second-001").await else {
        panic!("the failure is not retryable")
    };
    assert!(message.starts_with("could not upload `file` to the store"), "{message}");
    let mut third = order(&fixture, "third", "cat file");
    third["work"]["inputs"] = inputs("first", None, &left);
    fixture.server.order(third.clone());
    let TaskResult::Failed { fatal: false, message, .. } = fixture.result("third-001").await else {
        panic!("the failure is not retryable")
    };
    assert!(message.starts_with("could not download an input"), "{message}");
    assert!(!message.contains("127.0.0.1") && !message.contains("Signature"), "{message}");

    store.failures.refuse(0, StatusCode::OK);
    for mut again in [second, third] {
        let id = again["task_id"].as_str().unwrap().replace("-001", "-002");
        again["task_id"] = json!(id);
        fixture.server.order(again);
        assert_eq!(fixture.result(&id).await, success());
    }
    until("the log is shipped", || fixture.server.log("third-002") == ["stdout: hello"]).await;
    kill(process).await;
}
