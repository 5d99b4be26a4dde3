//! Copies in S3 and in Azure, with real servers.
//!
//! Credentials and addresses come from the environment only. So each test starts a server, and then runs itself again
//! for each part, with the environment of a client of that server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt as _};
use tidemill_core::feed::Watermark;
use tidemill_testkit::azurite::Azurite;
use tidemill_testkit::interface::{Kind, at};
use tidemill_testkit::s3::{self, Middleware, SECRET};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{CopyFixture, foreign};

const PART: &str = "TIDEMILL_TEST_COPY_PART";
const ARRIVED: &str = "TIDEMILL_TEST_COPY_ARRIVED";
const RACED: &str = "raced.json";
const BUCKET: &str = "watermarks";

type Environment = Vec<(&'static str, String)>;

/// Runs this test again as a process with that environment.
fn again(test: &str, part: &str, environment: &Environment) {
    let mut command = Command::new(std::env::current_exe().expect("there is a program"));
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        if shown.starts_with("AWS_") || shown.starts_with("AZUR") {
            command.env_remove(name);
        }
    }
    command.args([test, "--exact", "--nocapture"]).env(PART, part).env("NO_PROXY", "127.0.0.1");
    let output = command.envs(environment.iter().cloned()).output().expect("the process starts");
    let message = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && message.contains("1 passed"), "{part}:\n{message}\n{errors}");
}

/// Returns the part for this process, or `None` in the process that starts the server.
fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// Returns the environment with changed values.
fn with(environment: &Environment, values: &[(&'static str, &str)]) -> Environment {
    let kept = environment.iter().filter(|(name, _)| values.iter().all(|(other, _)| name != other)).cloned();
    kept.chain(values.iter().map(|(name, value)| (*name, (*value).to_owned()))).collect()
}

/// Returns an address on which no server listens.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    format!("http://{}", listener.local_addr().expect("it has an address"))
}

/// Two writes of one object: the first is held until the other is done, so it is always late.
struct Race {
    /// Created when the first write arrives.
    arrived: PathBuf,
    writes: AtomicUsize,
    done: watch::Sender<usize>,
}

impl Race {
    /// Returns whether a request is one of the two writes.
    fn is_of(method: &Method, path: &str) -> bool {
        method == Method::PUT && path.ends_with(RACED)
    }
}

impl Middleware for Race {
    async fn before(&self, method: &Method, path: &str) -> Option<StatusCode> {
        // The first write creates the object and is not part of the race.
        if Self::is_of(method, path) && self.writes.fetch_add(1, Ordering::SeqCst) == 1 {
            std::fs::write(&self.arrived, "").expect("the sign is made");
            let mut done = self.done.subscribe();
            done.wait_for(|done| *done > 2).await.expect("the server lives");
        }
        None
    }

    fn after(&self, method: &Method, path: &str) {
        if Self::is_of(method, path) {
            self.done.send_modify(|done| *done = self.writes.load(Ordering::SeqCst));
        }
    }
}

/// Starts an S3 server on a directory, for one account.
async fn serve_s3(folder: &Path) -> Environment {
    let race = Arc::new(Race {
        arrived: folder.join("arrived"),
        writes: AtomicUsize::new(0),
        done: watch::Sender::new(0),
    });
    let mut environment = s3::serve(folder, BUCKET, race).await.expect("the folder is served");
    environment.push((ARRIVED, folder.join("arrived").display().to_string()));
    environment
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_to_s3_works_with_a_real_server() {
    let test = "remote::copy_to_s3_works_with_a_real_server";
    if let Some(part) = part() {
        let store = || AmazonS3Builder::from_env().with_bucket_name(BUCKET).build();
        return run_part(&part, "s3", || Arc::new(store().expect("the bucket opens"))).await;
    }
    let folder = tempfile::tempdir().expect("a folder is made");
    let good = serve_s3(folder.path()).await;
    let wrong = with(&good, &[("AWS_SECRET_ACCESS_KEY", "d3Jvbmc=")]);
    let gone = with(&good, &[("AWS_ENDPOINT", &nobody().await)]);
    let copy = folder.path().join(BUCKET).join("plain/nivoda.json");
    tokio::task::spawn_blocking(move || {
        again(test, "good", &good);
        again(test, "refused", &wrong);
        again(test, "gone", &gone);
    })
    .await
    .expect("all parts hold");
    // The server stores objects as files, so the copy can be read without a client.
    let content = std::fs::read_to_string(copy).expect("the copy is in the server's folder");
    let copy: Watermark = serde_json::from_str(&content).expect("the copy is a watermark");
    assert_eq!(copy.last_updated_at, at(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_to_azure_works_with_a_real_server() {
    let test = "remote::copy_to_azure_works_with_a_real_server";
    if let Some(part) = part() {
        let store = || MicrosoftAzureBuilder::from_env().with_container_name(BUCKET).build();
        return run_part(&part, "az", || Arc::new(store().expect("the container opens"))).await;
    }
    let nobody = nobody().await;
    tokio::task::spawn_blocking(move || {
        let azurite = Azurite::start(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("Azurite starts");
        azurite.create_container(BUCKET).expect("the container is made");
        let good = azurite.environment();
        again(test, "good", &good);
        again(test, "refused", &with(&good, &[("AZURE_STORAGE_ACCOUNT_KEY", SECRET)]));
        again(test, "gone", &with(&good, &[("AZURITE_BLOB_STORAGE_URL", &nobody)]));
    })
    .await
    .expect("all parts hold");
}

/// Runs one part, in a process with its environment.
async fn run_part(part: &str, scheme: &str, store: impl FnOnce() -> Arc<dyn ObjectStore>) {
    match part {
        "good" => {
            // For the test's own client; in the other parts the product must do it.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let bucket = Bucket { scheme: scheme.to_owned(), store: store() };
            bucket.copy_follows_the_watermark().await;
            bucket.foreign_object_is_not_overwritten().await;
            if scheme == "s3" {
                bucket.late_write_is_rejected().await;
            }
            // The S3 server of these tests creates missing buckets.
            if scheme == "az" {
                bucket.missing_bucket_is_reported().await;
            }
            bucket.concurrent_writers_never_publish_an_older_copy().await;
        }
        "refused" => not_copied(scheme, "the server answered 403").await,
        "gone" => not_copied(scheme, "the request failed: ").await,
        other => panic!("there is no part `{other}`"),
    }
}

/// Checks that a failed copy is recorded with the same message each time, without a secret.
async fn not_copied(scheme: &str, words: &str) {
    let fixture = CopyFixture::open(Kind::Sqlite, &format!("{scheme}://{BUCKET}/x.json")).await;
    fixture.set(10).await;
    assert_eq!(fixture.copy().await, 0);
    let fault = fixture.fault().await;
    assert!(fault.starts_with(&format!("could not read {scheme}://{BUCKET}/x.json: {words}")), "{fault}");
    assert!(
        !fault.contains("127.0.0.1") && !fault.contains(SECRET) && !fault.contains("Signature="),
        "{fault}"
    );
    fixture.advance(5);
    assert_eq!(fixture.copy().await, 0);
    assert_eq!(fixture.fault().await, fault);
}

/// The target of the copies, and the test's own client.
struct Bucket {
    scheme: String,
    store: Arc<dyn ObjectStore>,
}

impl Bucket {
    async fn fixture(&self, key: &str) -> CopyFixture {
        CopyFixture::open(Kind::Sqlite, &format!("{}://{BUCKET}/{key}", self.scheme)).await
    }

    async fn text(&self, key: &str) -> String {
        let found = self.store.get(&Key::from(key)).await.expect("the copy is there");
        String::from_utf8(found.bytes().await.expect("the copy is read").to_vec()).expect("the copy is text")
    }

    async fn copied(&self, key: &str) -> Watermark {
        serde_json::from_str(&self.text(key).await).expect("the copy is a watermark")
    }

    async fn put(&self, key: &str, text: &str) {
        self.store.put(&Key::from(key), text.to_owned().into()).await.expect("the object is written");
    }

    async fn copy_follows_the_watermark(&self) {
        let key = "plain/nivoda.json";
        let fixture = self.fixture(key).await;
        let first = fixture.set(10).await;
        assert_eq!(fixture.copy().await, 1);
        assert_eq!(self.copied(key).await, first);
        assert_eq!(fixture.copy().await, 0);
        let second = fixture.set(20).await;
        assert_eq!(fixture.copy().await, 1);
        assert_eq!(self.copied(key).await, second);
        let back = fixture.set(10).await;
        assert_eq!(fixture.copy().await, 1);
        assert_eq!(self.copied(key).await, back);
        let record = fixture.record().await;
        assert_eq!((record.copied_updated_at, record.copy_error), (Some(at(10)), None));
    }

    async fn foreign_object_is_not_overwritten(&self) {
        for (key, text, words) in [
            ("newer.json", foreign(100), "newer than the watermark"),
            ("other.json", "no watermark".to_owned(), "is not a watermark"),
            ("large.json", " ".repeat(100_000), "is not a watermark"),
        ] {
            self.put(key, &text).await;
            let fixture = self.fixture(key).await;
            fixture.set(10).await;
            assert_eq!(fixture.copy().await, 0);
            assert_eq!(self.text(key).await, text);
            let fault = fixture.fault().await;
            assert!(fault.contains(words), "{fault}");
        }
    }

    async fn missing_bucket_is_reported(&self) {
        let fixture = CopyFixture::open(Kind::Sqlite, &format!("{}://nowhere/x.json", self.scheme)).await;
        fixture.set(10).await;
        assert_eq!(fixture.copy().await, 0);
        let fault = fixture.fault().await;
        assert!(fault.starts_with("could not write ") && fault.contains("answered 404"), "{fault}");
    }

    async fn late_write_is_rejected(&self) {
        let arrived = PathBuf::from(std::env::var(ARRIVED).expect("the character has a position"));
        let fixture = self.fixture(RACED).await;
        fixture.set(0).await;
        assert_eq!(fixture.copy().await, 1);
        fixture.set(10).await;
        let slow = fixture.second_process();
        let slow = tokio::spawn(async move { slow.copy_watermarks().await.expect("the database answers") });
        while !arrived.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let newest = fixture.set(20).await;
        assert_eq!(fixture.copy().await, 1);
        assert_eq!(slow.await.expect("the process lives"), 0, "it finds the newest there already");
        assert_eq!(self.copied(RACED).await, newest);
    }

    async fn concurrent_writers_never_publish_an_older_copy(&self) {
        let key = "busy.json";
        let fixture = self.fixture(key).await;
        fixture.set(0).await;
        fixture.copy().await;
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let (syncs, over) = (fixture.second_process(), over.clone());
            tasks.push(tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    syncs.copy_watermarks().await.expect("the database answers");
                }
                syncs.copy_watermarks().await.expect("the database answers");
            }));
        }
        let mut last = at(0);
        for secs in 1..=40 {
            fixture.set(secs).await;
            fixture.advance(300);
            for _ in 0..3 {
                let copy = self.copied(key).await;
                assert!(copy.last_updated_at >= last, "{} after {last}", copy.last_updated_at);
                last = copy.last_updated_at;
            }
        }
        over.store(true, Ordering::SeqCst);
        for task in tasks {
            task.await.expect("the process lives");
        }
        fixture.advance(300);
        fixture.copy().await;
        assert!(last > at(0), "no copy was made meanwhile");
        assert_eq!(self.copied(key).await.last_updated_at, at(40));
    }
}
