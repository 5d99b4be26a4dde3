//! Outputs in an object store, against a server that really speaks S3.

use crate::stage::{Ground, agent_id, inputs, kill, order, until, well};
use http::{Method, StatusCode};
use serde_json::json;
use std::sync::{Arc, Mutex};
use tidemill_core::task::TaskResult;
use tidemill_testkit::s3::{self, Around};

const BUCKET: &str = "outputs";
const STORE: &str = "s3://outputs/of/the-site";

/// Refuses so many of the next requests with this status.
#[derive(Default)]
struct Weather(Mutex<(u32, StatusCode)>);

impl Weather {
    fn refuse(&self, requests: u32, status: StatusCode) {
        *self.0.lock().unwrap() = (requests, status);
    }
}

impl Around for Weather {
    async fn before(&self, _method: &Method, _path: &str) -> Option<StatusCode> {
        let (left, status) = &mut *self.0.lock().unwrap();
        *left = left.checked_sub(1)?;
        Some(*status)
    }
}

struct Site {
    folder: tempfile::TempDir,
    weather: Arc<Weather>,
    environment: Vec<(&'static str, String)>,
}

impl Site {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let weather = Arc::new(Weather::default());
        let environment = s3::serve(folder.path(), BUCKET, weather.clone()).await.unwrap();
        Self { folder, weather, environment }
    }

    /// An agent of the site, with a server of its own.
    async fn agent(&self) -> (Ground, tokio::process::Child) {
        let ground = Ground::new().await;
        let process = ground.process_with(&[STORE], &self.environment);
        (ground, process)
    }
}

/// A small file, and one that is sent in parts.
const LEAVE: &str =
    "echo hello > 'a b.txt' && head -c 12000000 /dev/zero > large && chmod +x large 'a b.txt'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_agent_left_is_brought_to_another() {
    let site = Site::open().await;
    let (one, process) = site.agent().await;
    let mut first = order(&one, "first", LEAVE);
    first["work"]["outputs"] = json!({"text": "a b.txt", "large": "large"});
    one.server.order(first);
    assert_eq!(one.result("first-001").await, well());
    let left = one.server.result("first-001").unwrap().outputs;
    for output in &left {
        let url = output.url.as_ref().expect("it is in the store");
        let within = url.strip_prefix("s3://outputs/").expect("it is in the bucket");
        let object = std::fs::metadata(site.folder.path().join(BUCKET).join(within)).expect("it is there");
        assert_eq!(i64::try_from(object.len()), Ok(output.size_bytes));
    }
    let maker = agent_id(&one);
    kill(process).await;

    let (other, process) = site.agent().await;
    let mut second =
        order(&other, "second", "cat 'a b.txt' && wc -c < large && test -x 'a b.txt' && test -x large");
    second["work"]["inputs"] = inputs("first", Some(maker), &left);
    other.server.order(second);
    assert_eq!(other.result("second-001").await, well(), "{:?}", other.server.log("second-001"));
    assert_eq!(other.server.log("second-001"), ["stdout: hello", "stdout: 12000000"]);
    kill(process).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_for_a_while_is_nobodys_fault() {
    let site = Site::open().await;
    let (ground, process) = site.agent().await;
    // It comes back while the agent asks again.
    site.weather.refuse(3, StatusCode::SERVICE_UNAVAILABLE);
    let mut first = order(&ground, "first", "echo hello > file");
    first["work"]["outputs"] = json!({"all": "file"});
    ground.server.order(first);
    assert_eq!(ground.result("first-001").await, well());
    let left = ground.server.result("first-001").unwrap().outputs;

    // It refuses for as long as the task lasts: the job is tried again, and does not fail for it.
    site.weather.refuse(1_000, StatusCode::FORBIDDEN);
    let mut second = order(&ground, "second", "echo hello > file");
    second["work"]["outputs"] = json!({"all": "file"});
    ground.server.order(second.clone());
    let TaskResult::Failed { fatal: false, message, .. } = ground.result("second-001").await else {
        panic!("it may be tried again")
    };
    assert!(message.starts_with("`file` could not be put into the store"), "{message}");
    let mut third = order(&ground, "third", "cat file");
    third["work"]["inputs"] = inputs("first", None, &left);
    ground.server.order(third.clone());
    let TaskResult::Failed { fatal: false, message, .. } = ground.result("third-001").await else {
        panic!("it may be tried again")
    };
    assert!(message.starts_with("an input could not be brought"), "{message}");
    assert!(!message.contains("127.0.0.1") && !message.contains("Signature"), "{message}");

    site.weather.refuse(0, StatusCode::OK);
    for mut again in [second, third] {
        let id = again["task_id"].as_str().unwrap().replace("-001", "-002");
        again["task_id"] = json!(id);
        ground.server.order(again);
        assert_eq!(ground.result(&id).await, well());
    }
    until("the log is there", || ground.server.log("third-002") == ["stdout: hello"]).await;
    kill(process).await;
}
