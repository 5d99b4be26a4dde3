//! Where outputs go for agents elsewhere: a folder that all of them see, or an object store.
//!
//! Credentials, regions and endpoints come from the environment, under the names that `object_store` reads:
//! `AWS_…` and `AZURE_…`. What went wrong is told without addresses of requests, which may be signed.

use crate::beneath::{Root, is_executable, make_executable, objection};
use crate::executor::Fault;
use crate::home::{escaped, make_dir};
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

/// How much is read at once.
const PORTION_BYTES: usize = 256 * 1024;
/// How much is sent at once: an object has at most 10 000 parts.
const PART_BYTES: usize = 10 * 1024 * 1024;
/// Parts that are on their way at once.
const PARTS_AT_ONCE: usize = 4;

/// What is noted beside an object that may be executed: in a store of objects, files have no modes.
const EXECUTABLE: &str = "executable";

/// A place that all agents of a site see.
#[derive(Clone)]
pub(crate) struct Store {
    /// Its address, without a slash at the end.
    url: String,
    reached: Reached,
}

#[derive(Clone)]
enum Reached {
    Folder(PathBuf),
    Objects { store: Arc<dyn ObjectStore>, prefix: String },
}

impl Store {
    /// The store of an address; what stands in the way is a sentence.
    pub(crate) fn open(url: &str) -> Result<Self, String> {
        let url = url.trim_end_matches('/');
        let (scheme, rest) = url.split_once("://").ok_or("a store is a file://, s3:// or az:// address")?;
        if rest.contains(['@', '?', '#', '%']) {
            return Err("the address of a store holds no credentials, and none of @, ?, # and %".to_owned());
        }
        if scheme == "file" {
            let path = PathBuf::from(rest.strip_prefix("localhost").unwrap_or(rest));
            if !path.is_absolute() {
                return Err("the path of a file:// store is absolute".to_owned());
            }
            make_dir(&path).map_err(|error| format!("the store {url} cannot be made: {error}"))?;
            return Ok(Self { url: url.to_owned(), reached: Reached::Folder(path) });
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(format!("`{url}` names no bucket"));
        }
        // The HTTP client asks for a provider of the whole process; one that is there already is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let store: Arc<dyn ObjectStore> = match scheme {
            "s3" => Arc::new(
                AmazonS3Builder::from_env().with_bucket_name(bucket).build().map_err(|error| told(&error))?,
            ),
            "az" => Arc::new(
                MicrosoftAzureBuilder::from_env()
                    .with_container_name(bucket)
                    .build()
                    .map_err(|error| told(&error))?,
            ),
            _ => return Err("a store is a file://, s3:// or az:// address".to_owned()),
        };
        Ok(Self { url: url.to_owned(), reached: Reached::Objects { store, prefix: prefix.to_owned() } })
    }

    /// Puts an output there; its address.
    pub(crate) async fn put(
        &self,
        work: &Path,
        workspace: &str,
        task_id: &str,
        output: &Output,
    ) -> Result<String, Fault> {
        let failed =
            |why: String| Fault::passing(format!("`{}` could not be put into the store: {why}", output.path));
        // Each part is escaped, so that the address holds nothing that means something in one.
        let path: Vec<String> = output.path.split('/').map(escaped).collect();
        let name = format!("{}/{task_id}/{}", escaped(workspace), path.join("/"));
        let file = Root::open(work).and_then(|root| root.read(&output.path));
        let file = file.map_err(|error| failed(error.to_string()))?;
        match &self.reached {
            Reached::Folder(folder) => {
                let (folder, beneath) = (folder.clone(), name.clone());
                let halt = Halt::default();
                let flag = halt.flag();
                let put = tokio::task::spawn_blocking(move || put_file(file, &folder, &beneath, &flag));
                put.await.map_err(io::Error::other).flatten().map_err(|error| failed(error.to_string()))?;
            }
            Reached::Objects { store, prefix } => {
                let key = key(prefix, &name).map_err(failed)?;
                put_object(file, store.as_ref(), &key).await.map_err(failed)?;
            }
        }
        Ok(format!("{}/{name}", self.url))
    }

    /// Brings what is at an address, and says what its SHA-256 is and how large it is. What could be executed still
    /// can.
    pub(crate) async fn get(&self, url: &str, to: File) -> Result<(String, u64), Fault> {
        // Only what is in this very store: an address is what somebody else reported.
        let name = url.strip_prefix(&self.url).and_then(|rest| rest.strip_prefix('/'));
        let Some(name) = name.filter(|name| objection(name).is_none()) else {
            return Err(Fault::fatal("an input is not in the store of this agent".to_owned()));
        };
        let failed = |why: String| Fault::passing(format!("an input could not be brought: {why}"));
        match &self.reached {
            Reached::Folder(folder) => {
                let (folder, name) = (folder.clone(), name.to_owned());
                let halt = Halt::default();
                let flag = halt.flag();
                let got = tokio::task::spawn_blocking(move || {
                    copy_file(Root::open(&folder)?.read(&name)?, &to, &flag)
                });
                got.await.map_err(io::Error::other).flatten().map_err(|error| failed(error.to_string()))
            }
            Reached::Objects { store, prefix } => {
                let key = key(prefix, name).map_err(failed)?;
                let head = GetOptions { head: true, ..GetOptions::default() };
                let found = store.get_opts(&key, head).await.map_err(|error| failed(told(&error)))?;
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

/// Copies a file under its name, which it gets when it is whole.
fn put_file(from: File, folder: &Path, name: &str, halt: &AtomicBool) -> io::Result<()> {
    let root = Root::open(folder)?;
    let beside = format!("{name}.{:016x}.new", fastrand::u64(..));
    let to = root.create(&beside)?;
    let copied = copy_file(from, &to, halt).and_then(|_| to.sync_all());
    let named = copied.and_then(|()| std::fs::rename(folder.join(&beside), folder.join(name)));
    if named.is_err() {
        let _ = std::fs::remove_file(folder.join(&beside));
    }
    named
}

/// Puts a file under its name: at once where it is small, and otherwise in parts, of which a failure leaves nothing.
async fn put_object(from: File, store: &dyn ObjectStore, key: &Key) -> Result<(), String> {
    let mut attributes = Attributes::new();
    if is_executable(&from).map_err(|error| error.to_string())? {
        attributes.insert(Attribute::Metadata(EXECUTABLE.into()), "yes".into());
    }
    let mut from = tokio::fs::File::from_std(from);
    let first = part(&mut from).await.map_err(|error| error.to_string())?;
    if first.len() < PART_BYTES {
        let options = PutOptions { attributes, ..PutOptions::default() };
        return store.put_opts(key, first.into(), options).await.map(drop).map_err(|error| told(&error));
    }
    let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
    let upload = store.put_multipart_opts(key, options).await.map_err(|error| told(&error))?;
    let mut writer = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
    writer.put(first.into());
    loop {
        let next = match writer.wait_for_capacity(PARTS_AT_ONCE).await {
            Ok(()) => part(&mut from).await.map_err(|error| error.to_string()),
            Err(error) => Err(told(&error)),
        };
        match next {
            Ok(part) if part.is_empty() => break,
            Ok(part) => writer.put(part.into()),
            Err(why) => {
                // Parts that were sent would be kept, and paid for.
                let _ = writer.abort().await;
                return Err(why);
            }
        }
    }
    writer.finish().await.map(drop).map_err(|error| told(&error))
}

/// The next part of a file; a short one is the last.
async fn part(from: &mut tokio::fs::File) -> io::Result<Vec<u8>> {
    let mut part = Vec::with_capacity(PORTION_BYTES);
    from.take(PART_BYTES as u64).read_to_end(&mut part).await?;
    Ok(part)
}

async fn get_object(mut from: BufReader, to: File) -> Result<(String, u64), String> {
    let mut to = tokio::fs::File::from_std(to);
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut portion = vec![0; PORTION_BYTES];
    loop {
        let count = from.read(&mut portion).await.map_err(|error| told(&error))?;
        if count == 0 {
            to.flush().await.map_err(|error| error.to_string())?;
            return Ok((hex(hash), bytes));
        }
        hash.update(&portion[..count]);
        bytes += count as u64;
        to.write_all(&portion[..count]).await.map_err(|error| error.to_string())?;
    }
}

/// Tells somebody who reads files in another thread to leave off, when it goes out of scope.
#[derive(Debug, Default)]
pub(crate) struct Halt(Arc<AtomicBool>);

impl Halt {
    /// What that one looks at.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for Halt {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Copies a file; its SHA-256 and its size. Ends early when it is told to halt.
pub(crate) fn copy(mut from: File, mut to: impl io::Write, halt: &AtomicBool) -> io::Result<(String, u64)> {
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut portion = vec![0; PORTION_BYTES];
    loop {
        if halt.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "told to halt"));
        }
        let count = match from.read(&mut portion) {
            Ok(0) => return Ok((hex(hash), bytes)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(&portion[..count]);
        bytes += count as u64;
        to.write_all(&portion[..count])?;
    }
}

/// The same from file to file: what could be executed still can.
pub(crate) fn copy_file(from: File, to: &File, halt: &AtomicBool) -> io::Result<(String, u64)> {
    let runs = is_executable(&from)?;
    let copied = copy(from, to, halt)?;
    if runs {
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

/// The innermost cause, cut short: what is around it may name a signed address.
fn told(error: &(dyn std::error::Error + 'static)) -> String {
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

    async fn there_and_back(store: &Store) -> (String, u64) {
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
            "a large file that runs"
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
    async fn what_is_put_comes_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Store::open(&format!("file://{}/store/", dir.path().display())).unwrap();
        let reached = Reached::Objects { store: Arc::new(InMemory::new()), prefix: "some/where".to_owned() };
        let objects = Store { url: "s3://bucket/some/where".to_owned(), reached };
        let (one, other) = (there_and_back(&folder).await, there_and_back(&objects).await);
        assert_eq!(one, other);
        assert_eq!(one.1, 20_000_000);
        let left = std::process::Command::new("find").arg(dir.path()).args(["-name", "*.new"]).output();
        assert!(left.unwrap().stdout.is_empty());
    }

    /// Whoever is cancelled while a large file is on its way does not go on with it behind everybody's back.
    #[tokio::test]
    async fn what_is_not_wanted_any_more_is_not_put() {
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
            put = store.put(dir.path(), "main", "job-001", &output) => panic!("so quickly: {put:?}"),
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
    fn addresses_that_cannot_be_used_are_refused() {
        for bad in
            ["/path", "ftp://x/y", "file://relative", "s3://", "s3://user:secret@bucket/x", "s3://b/x?y"]
        {
            let problem = Store::open(bad).map(|_| ()).unwrap_err();
            assert!(!problem.contains("secret"), "{problem}");
        }
    }
}
