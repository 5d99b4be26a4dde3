//! The artifact store, which shares outputs between agents: a common directory or an object store.
//!
//! Credentials, regions and endpoints come from the environment variables that `object_store` reads: `AWS_…` and
//! `AZURE_…`. Error messages omit request URLs, which may contain signatures.

use crate::agent_dir::{escaped, make_dir};
use crate::authorities::BundledAuthorities;
use crate::confined_dir::{ConfinedDir, is_executable, make_executable, path_error};
use crate::executor::TaskError;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::buffered::BufReader;
use object_store::path::Path as Key;
use object_store::{
    Attribute, Attributes, GetOptions, ObjectStore, PutMultipartOptions, PutOptions, WriteMultipart,
};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_core::task::Output;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const READ_BYTES: usize = 256 * 1024;
/// Size of an uploaded part; an object has at most 10 000 parts.
const PART_BYTES: usize = 10 * 1024 * 1024;
/// Parts that are uploaded concurrently.
const CONCURRENT_PARTS: usize = 4;

/// Metadata key of an executable file, because objects have no file mode.
const EXECUTABLE: &str = "executable";

/// A store that all agents of a site can access.
#[derive(Clone)]
pub(crate) struct Store {
    /// URL without a trailing slash.
    url: String,
    backend: Backend,
}

#[derive(Clone)]
enum Backend {
    Folder(PathBuf),
    Objects { store: Arc<dyn ObjectStore>, prefix: String },
}

impl Store {
    /// Opens the store with the given URL. The error is a message for the user.
    pub(crate) fn open(url: &str) -> Result<Self, String> {
        let url = url.trim_end_matches('/');
        let (scheme, rest) =
            url.split_once("://").ok_or("the URL of a store must begin with file://, s3:// or az://")?;
        if rest.contains(['@', '?', '#', '%']) {
            return Err("the URL of a store must not contain credentials or any of @, ?, #, %".to_owned());
        }
        if scheme == "file" {
            let path = PathBuf::from(rest.strip_prefix("localhost").unwrap_or(rest));
            if !path.is_absolute() {
                return Err("the path of a file:// store must be absolute, for example file:///srv/outputs"
                    .to_owned());
            }
            make_dir(&path).map_err(|error| format!("could not create the store {url}: {error}"))?;
            return Ok(Self { url: url.to_owned(), backend: Backend::Folder(path) });
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(format!("the URL `{url}` has no bucket name"));
        }
        // The HTTP client uses the crypto provider of the process. An error means that one is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let store: Arc<dyn ObjectStore> = match scheme {
            "s3" => Arc::new(
                AmazonS3Builder::from_env()
                    .with_bucket_name(bucket)
                    .with_http_connector(BundledAuthorities)
                    .build()
                    .map_err(|error| root_cause(&error))?,
            ),
            "az" => Arc::new(
                MicrosoftAzureBuilder::from_env()
                    .with_container_name(bucket)
                    .with_http_connector(BundledAuthorities)
                    .build()
                    .map_err(|error| root_cause(&error))?,
            ),
            _ => return Err("the URL of a store must begin with file://, s3:// or az://".to_owned()),
        };
        Ok(Self { url: url.to_owned(), backend: Backend::Objects { store, prefix: prefix.to_owned() } })
    }

    /// Uploads an output; returns its URL.
    pub(crate) async fn put(
        &self,
        work: &Path,
        workspace: &str,
        task_id: &str,
        output: &Output,
    ) -> Result<String, TaskError> {
        let failed = |why: String| {
            TaskError::transient(format!("could not upload `{}` to the store: {why}", output.path))
        };
        // Each part is escaped, because the URL must not contain reserved characters.
        let path: Vec<String> = output.path.split('/').map(escaped).collect();
        let name = format!("{}/{task_id}/{}", escaped(workspace), path.join("/"));
        let file = ConfinedDir::open(work).and_then(|root| root.read(&output.path));
        let file = file.map_err(|error| failed(error.to_string()))?;
        match &self.backend {
            Backend::Folder(folder) => {
                let (folder, file_name) = (folder.clone(), name.clone());
                let guard = CancelOnDrop::default();
                let flag = guard.flag();
                let put = tokio::task::spawn_blocking(move || put_file(file, &folder, &file_name, &flag));
                put.await.map_err(io::Error::other).flatten().map_err(|error| failed(error.to_string()))?;
            }
            Backend::Objects { store, prefix } => {
                let key = key(prefix, &name).map_err(failed)?;
                put_object(file, store.as_ref(), &key).await.map_err(failed)?;
            }
        }
        Ok(format!("{}/{name}", self.url))
    }

    /// Downloads a file; returns its SHA-256 and its size. An executable file stays executable.
    pub(crate) async fn get(&self, url: &str, to: File) -> Result<(String, u64), TaskError> {
        // Other agents report the URLs, so only URLs of this store are accepted.
        let name = url.strip_prefix(&self.url).and_then(|rest| rest.strip_prefix('/'));
        let Some(name) = name.filter(|name| path_error(name).is_none()) else {
            return Err(TaskError::fatal("an input is not in the store of this agent".to_owned()));
        };
        let failed = |why: String| TaskError::transient(format!("could not download an input: {why}"));
        match &self.backend {
            Backend::Folder(folder) => {
                let (folder, name) = (folder.clone(), name.to_owned());
                let guard = CancelOnDrop::default();
                let flag = guard.flag();
                let got = tokio::task::spawn_blocking(move || {
                    copy_file(ConfinedDir::open(&folder)?.read(&name)?, &to, &flag)
                });
                got.await.map_err(io::Error::other).flatten().map_err(|error| failed(error.to_string()))
            }
            Backend::Objects { store, prefix } => {
                let key = key(prefix, name).map_err(failed)?;
                let head = GetOptions { head: true, ..GetOptions::default() };
                let found = store.get_opts(&key, head).await.map_err(|error| failed(root_cause(&error)))?;
                if found.attributes.get(&Attribute::Metadata(EXECUTABLE.into())).is_some() {
                    make_executable(&to).map_err(|error| failed(error.to_string()))?;
                }
                get_object(BufReader::new(Arc::clone(store), &found.meta), to).await.map_err(failed)
            }
        }
    }
}

fn key(prefix: &str, name: &str) -> Result<Key, String> {
    let key = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
    Key::parse(key).map_err(|error| error.to_string())
}

/// Copies a file to a temporary name and renames it when it is complete.
fn put_file(from: File, folder: &Path, name: &str, cancelled: &AtomicBool) -> io::Result<()> {
    let root = ConfinedDir::open(folder)?;
    let temporary = format!("{name}.{:016x}.new", fastrand::u64(..));
    let to = root.create(&temporary)?;
    let copied = copy_file(from, &to, cancelled).and_then(|_| to.sync_all());
    let named = copied.and_then(|()| std::fs::rename(folder.join(&temporary), folder.join(name)));
    if named.is_err() {
        let _ = std::fs::remove_file(folder.join(&temporary));
    }
    named
}

/// Uploads a file, a large one in parts. A failed upload leaves no parts behind.
async fn put_object(from: File, store: &dyn ObjectStore, key: &Key) -> Result<(), String> {
    let mut attributes = Attributes::new();
    if is_executable(&from).map_err(|error| error.to_string())? {
        attributes.insert(Attribute::Metadata(EXECUTABLE.into()), "yes".into());
    }
    let mut from = tokio::fs::File::from_std(from);
    let first = read_part(&mut from).await.map_err(|error| error.to_string())?;
    if first.len() < PART_BYTES {
        let options = PutOptions { attributes, ..PutOptions::default() };
        return store
            .put_opts(key, first.into(), options)
            .await
            .map(drop)
            .map_err(|error| root_cause(&error));
    }
    let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
    let upload = store.put_multipart_opts(key, options).await.map_err(|error| root_cause(&error))?;
    let mut writer = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
    writer.put(first.into());
    loop {
        let next = match writer.wait_for_capacity(CONCURRENT_PARTS).await {
            Ok(()) => read_part(&mut from).await.map_err(|error| error.to_string()),
            Err(error) => Err(root_cause(&error)),
        };
        match next {
            Ok(part) if part.is_empty() => break,
            Ok(part) => writer.put(part.into()),
            Err(why) => {
                // Otherwise the store would keep, and bill, the uploaded parts.
                let _ = writer.abort().await;
                return Err(why);
            }
        }
    }
    writer.finish().await.map(drop).map_err(|error| root_cause(&error))
}

/// Reads the next part of a file; a short part is the last one.
async fn read_part(from: &mut tokio::fs::File) -> io::Result<Vec<u8>> {
    let mut part = Vec::with_capacity(READ_BYTES);
    from.take(PART_BYTES as u64).read_to_end(&mut part).await?;
    Ok(part)
}

async fn get_object(mut from: BufReader, to: File) -> Result<(String, u64), String> {
    let mut to = tokio::fs::File::from_std(to);
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = from.read(&mut buffer).await.map_err(|error| root_cause(&error))?;
        if count == 0 {
            to.flush().await.map_err(|error| error.to_string())?;
            return Ok((hex(hash), bytes));
        }
        hash.update(&buffer[..count]);
        bytes += count as u64;
        to.write_all(&buffer[..count]).await.map_err(|error| error.to_string())?;
    }
}

/// Cancels file operations on another thread when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// Flag that the other thread checks.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Copies a file; returns its SHA-256 and its size. Fails when `cancelled` is set.
pub(crate) fn copy(
    mut from: File,
    mut to: impl io::Write,
    cancelled: &AtomicBool,
) -> io::Result<(String, u64)> {
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        if cancelled.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "cancelled"));
        }
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok((hex(hash), bytes)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(&buffer[..count]);
        bytes += count as u64;
        to.write_all(&buffer[..count])?;
    }
}

/// Like [`copy`], from file to file. An executable file stays executable.
pub(crate) fn copy_file(from: File, to: &File, cancelled: &AtomicBool) -> io::Result<(String, u64)> {
    let executable = is_executable(&from)?;
    let copied = copy(from, to, cancelled)?;
    if executable {
        make_executable(to)?;
    }
    Ok(copied)
}

fn hex(hash: Sha256) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns the innermost cause, truncated, because the outer errors may contain a signed URL.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let text = cause.to_string();
    let text = text.split("://").next().unwrap_or_default();
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    /// Runs this test again in a process without certificates of the system, such as a container without any.
    #[test]
    fn object_stores_open_without_certificates_of_the_system() {
        const BARE: &str = "TIDEMILL_TEST_BARE";
        if std::env::var_os(BARE).is_some() {
            for url in ["s3://bucket/prefix", "az://container"] {
                assert_eq!(Store::open(url).map(|store| store.url), Ok(url.to_owned()));
            }
            return;
        }
        let name = "artifacts::tests::object_stores_open_without_certificates_of_the_system";
        let mut bare = std::process::Command::new(std::env::current_exe().unwrap());
        bare.args(["--exact", name]).env(BARE, "1");
        bare.env("AZURE_STORAGE_ACCOUNT_NAME", "account").env("AZURE_STORAGE_ACCOUNT_KEY", "a2V5");
        bare.env("SSL_CERT_FILE", "/nonexistent").env("SSL_CERT_DIR", "/nonexistent");
        let output = bare.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    async fn put_and_get(store: &Store) -> (String, u64) {
        let (work, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(work.path().join("a b")).unwrap();
        fs::write(work.path().join("a b/ü%.csv"), vec![b'x'; 20_000_000]).unwrap();
        fs::write(work.path().join("go"), "#!/bin/sh").unwrap();
        fs::set_permissions(work.path().join("a b/ü%.csv"), fs::Permissions::from_mode(0o755)).unwrap();
        let path = "a b/ü%.csv".to_owned();
        let output = Output { name: "all".to_owned(), path, size_bytes: 0, sha256: String::new(), url: None };
        let url = store.put(work.path(), "main/2", "job-001", &output).await.unwrap();
        assert!(url.starts_with(&format!("{}/main%2F2/job-001/", store.url)), "{url}");
        let file = to.path().join("file");
        let (sha256, bytes) = store.get(&url, File::create(&file).unwrap()).await.unwrap();
        let found = fs::metadata(file).unwrap();
        assert_eq!(
            (found.len(), found.permissions().mode() & 0o100),
            (bytes, 0o100),
            "a large executable file"
        );
        for (mode, runs) in [(0o700, 0o100), (0o600, 0)] {
            fs::set_permissions(work.path().join("go"), fs::Permissions::from_mode(mode)).unwrap();
            let small = Output { path: "go".to_owned(), ..output.clone() };
            let url = store.put(work.path(), "main", &format!("job-{mode}"), &small).await.unwrap();
            let file = to.path().join(mode.to_string());
            store.get(&url, File::create(&file).unwrap()).await.unwrap();
            assert_eq!(
                fs::metadata(file).unwrap().permissions().mode() & 0o100,
                runs,
                "a small file: {mode:o}"
            );
        }
        let elsewhere = store.get("file:///etc/passwd", File::create(to.path().join("no")).unwrap()).await;
        assert!(elsewhere.unwrap_err().fatal);
        let up = format!("{}/../x", store.url);
        assert!(store.get(&up, File::create(to.path().join("up")).unwrap()).await.unwrap_err().fatal);
        (sha256, bytes)
    }

    #[tokio::test]
    async fn stored_file_is_returned_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Store::open(&format!("file://{}/store/", dir.path().display())).unwrap();
        let backend = Backend::Objects { store: Arc::new(InMemory::new()), prefix: "some/where".to_owned() };
        let objects = Store { url: "s3://bucket/some/where".to_owned(), backend };
        let (one, other) = (put_and_get(&folder).await, put_and_get(&objects).await);
        assert_eq!(one, other);
        assert_eq!(one.1, 20_000_000);
        let left = std::process::Command::new("find").arg(dir.path()).args(["-name", "*.new"]).output();
        assert!(left.unwrap().stdout.is_empty());
    }

    #[tokio::test]
    async fn cancelled_upload_stops_and_removes_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&format!("file://{}/store", dir.path().display())).unwrap();
        let file = File::create(dir.path().join("large")).unwrap();
        file.set_len(1 << 40).unwrap();
        let (name, path) = ("all".to_owned(), "large".to_owned());
        let output = Output { name, path, size_bytes: 1 << 40, sha256: String::new(), url: None };
        let folder = dir.path().join("store/main/job-001");
        let parts = || fs::read_dir(&folder).map_or(0, Iterator::count);
        let wait = || tokio::time::sleep(std::time::Duration::from_millis(1));
        tokio::select! {
            put = store.put(dir.path(), "main", "job-001", &output) => panic!("the upload was not cancelled: {put:?}"),
            () = async { while parts() == 0 { wait().await } } => {}
        }
        let waiting = async {
            while parts() > 0 {
                wait().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(10), waiting).await.unwrap();
    }

    #[test]
    fn invalid_store_urls_are_rejected() {
        for bad in
            ["/path", "ftp://x/y", "file://relative", "s3://", "s3://user:secret@bucket/x", "s3://b/x?y"]
        {
            let problem = Store::open(bad).map(|_| ()).unwrap_err();
            assert!(!problem.contains("secret"), "{problem}");
        }
    }
}
