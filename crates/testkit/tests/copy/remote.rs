//! Copies in S3 and in Azure, against servers that really speak them.
//!
//! Credentials and addresses come from the environment only. So each test starts a server, and then itself
//! once more for each part, with the environment of somebody who uses that server.

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
use tidemill_testkit::door::{Kind, at};
use tidemill_testkit::s3::{self, Around, SECRET};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{Desk, foreign};

const PART: &str = "TIDEMILL_TEST_COPY_PART";
const ARRIVED: &str = "TIDEMILL_TEST_COPY_ARRIVED";
const RACED: &str = "raced.json";
const BUCKET: &str = "watermarks";

type Environment = Vec<(&'static str, String)>;

/// Runs this test again, as a process with that environment.
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
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{part}:\n{told}\n{errors}");
}

/// The part that this process is to do, unless it is the one that starts the server.
fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// The same environment with other values.
fn with(environment: &Environment, values: &[(&'static str, &str)]) -> Environment {
    let kept = environment.iter().filter(|(name, _)| values.iter().all(|(other, _)| name != other)).cloned();
    kept.chain(values.iter().map(|(name, value)| (*name, (*value).to_owned()))).collect()
}

/// An address on which nobody listens.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    format!("http://{}", listener.local_addr().expect("it has an address"))
}

/// Two writes of one object: the first is held until the other is done, and so comes late for certain.
struct Race {
    /// Made when the first is here.
    arrived: PathBuf,
    writes: AtomicUsize,
    done: watch::Sender<usize>,
}

impl Race {
    /// Whether a request is one of them.
    fn is_of(method: &Method, path: &str) -> bool {
        method == Method::PUT && path.ends_with(RACED)
    }
}

impl Around for Race {
    async fn before(&self, method: &Method, path: &str) -> Option<StatusCode> {
        // The very first write makes the object, and races nobody.
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

/// An S3 server on a folder, for one account.
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
async fn a_copy_in_s3_holds_against_a_real_server() {
    let test = "remote::a_copy_in_s3_holds_against_a_real_server";
    if let Some(part) = part() {
        let store = || AmazonS3Builder::from_env().with_bucket_name(BUCKET).build();
        return play(&part, "s3", || Arc::new(store().expect("the bucket opens"))).await;
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
    // The server keeps objects as files: what the product wrote is there without anybody's client.
    let content = std::fs::read_to_string(copy).expect("the copy is in the server's folder");
    let copy: Watermark = serde_json::from_str(&content).expect("the copy is a watermark");
    assert_eq!(copy.last_updated_at, at(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_in_azure_holds_against_a_real_server() {
    let test = "remote::a_copy_in_azure_holds_against_a_real_server";
    if let Some(part) = part() {
        let store = || MicrosoftAzureBuilder::from_env().with_container_name(BUCKET).build();
        return play(&part, "az", || Arc::new(store().expect("the container opens"))).await;
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

/// One part, in a process with its environment.
async fn play(part: &str, scheme: &str, store: impl FnOnce() -> Arc<dyn ObjectStore>) {
    match part {
        "good" => {
            // For the test's own client; in the other parts the product has to do it.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let bucket = Bucket { scheme: scheme.to_owned(), store: store() };
            bucket.a_copy_follows_its_watermark().await;
            bucket.what_is_not_ours_is_left_alone().await;
            if scheme == "s3" {
                bucket.a_write_that_comes_late_is_lost().await;
            }
            // The S3 server of these tests makes a bucket that it does not have.
            if scheme == "az" {
                bucket.a_bucket_that_does_not_exist_is_reported().await;
            }
            bucket.no_reader_finds_an_older_copy_whoever_writes().await;
        }
        "refused" => not_copied(scheme, "the server answered 403").await,
        "gone" => not_copied(scheme, "the server could not be asked: ").await,
        other => panic!("there is no part `{other}`"),
    }
}

/// A copy that cannot be made is noted, in the same words each time and without a secret.
async fn not_copied(scheme: &str, words: &str) {
    let desk = Desk::open(Kind::Sqlite, &format!("{scheme}://{BUCKET}/x.json")).await;
    desk.set(10).await;
    assert_eq!(desk.copy().await, 0);
    let fault = desk.fault().await;
    assert!(fault.starts_with(&format!("could not read {scheme}://{BUCKET}/x.json: {words}")), "{fault}");
    assert!(
        !fault.contains("127.0.0.1") && !fault.contains(SECRET) && !fault.contains("Signature="),
        "{fault}"
    );
    desk.pass(5);
    assert_eq!(desk.copy().await, 0);
    assert_eq!(desk.fault().await, fault);
}

/// What the copies go to, and a client of the test's own.
struct Bucket {
    scheme: String,
    store: Arc<dyn ObjectStore>,
}

impl Bucket {
    async fn desk(&self, key: &str) -> Desk {
        Desk::open(Kind::Sqlite, &format!("{}://{BUCKET}/{key}", self.scheme)).await
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

    async fn a_copy_follows_its_watermark(&self) {
        let key = "plain/nivoda.json";
        let desk = self.desk(key).await;
        let first = desk.set(10).await;
        assert_eq!(desk.copy().await, 1);
        assert_eq!(self.copied(key).await, first);
        assert_eq!(desk.copy().await, 0);
        let second = desk.set(20).await;
        assert_eq!(desk.copy().await, 1);
        assert_eq!(self.copied(key).await, second);
        let back = desk.set(10).await;
        assert_eq!(desk.copy().await, 1);
        assert_eq!(self.copied(key).await, back);
        let record = desk.record().await;
        assert_eq!((record.copied_updated_at, record.copy_error), (Some(at(10)), None));
    }

    async fn what_is_not_ours_is_left_alone(&self) {
        for (key, text, words) in [
            ("newer.json", foreign(100), "newer than the watermark"),
            ("other.json", "no watermark".to_owned(), "is not a watermark"),
            ("large.json", " ".repeat(100_000), "is not a watermark"),
        ] {
            self.put(key, &text).await;
            let desk = self.desk(key).await;
            desk.set(10).await;
            assert_eq!(desk.copy().await, 0);
            assert_eq!(self.text(key).await, text);
            let fault = desk.fault().await;
            assert!(fault.contains(words), "{fault}");
        }
    }

    async fn a_bucket_that_does_not_exist_is_reported(&self) {
        let desk = Desk::open(Kind::Sqlite, &format!("{}://nowhere/x.json", self.scheme)).await;
        desk.set(10).await;
        assert_eq!(desk.copy().await, 0);
        let fault = desk.fault().await;
        assert!(fault.starts_with("could not write ") && fault.contains("answered 404"), "{fault}");
    }

    async fn a_write_that_comes_late_is_lost(&self) {
        let arrived = PathBuf::from(std::env::var(ARRIVED).expect("the sign has a place"));
        let desk = self.desk(RACED).await;
        desk.set(0).await;
        assert_eq!(desk.copy().await, 1);
        desk.set(10).await;
        let slow = desk.beside();
        let slow = tokio::spawn(async move { slow.copy_watermarks().await.expect("the database answers") });
        while !arrived.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let newest = desk.set(20).await;
        assert_eq!(desk.copy().await, 1);
        assert_eq!(slow.await.expect("the process lives"), 0, "it finds the newest there already");
        assert_eq!(self.copied(RACED).await, newest);
    }

    async fn no_reader_finds_an_older_copy_whoever_writes(&self) {
        let key = "busy.json";
        let desk = self.desk(key).await;
        desk.set(0).await;
        desk.copy().await;
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let (syncs, over) = (desk.beside(), over.clone());
            tasks.push(tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    syncs.copy_watermarks().await.expect("the database answers");
                }
                syncs.copy_watermarks().await.expect("the database answers");
            }));
        }
        let mut last = at(0);
        for secs in 1..=40 {
            desk.set(secs).await;
            desk.pass(300);
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
        desk.pass(300);
        desk.copy().await;
        assert!(last > at(0), "nothing was copied meanwhile");
        assert_eq!(self.copied(key).await.last_updated_at, at(40));
    }
}
