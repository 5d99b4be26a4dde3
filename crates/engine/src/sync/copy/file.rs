//! A copy in a local file. It is written to a temporary file, synced, and renamed, so that readers see the old or the
//! new content, but never a part.
//!
//! Writers exclude each other with a lock on the directory, which ends with its holder. A file system that cannot lock
//! directories is not supported.

use super::CopyError;
use super::target::{ReplaceOutcome, SIZE_MAX, StoredCopy, Version};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidemill_core::feed::Watermark;

/// How long a writer waits for the lock.
const LOCK_WAIT: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// A local file that contains a copy.
pub(super) struct LocalFile {
    url: String,
    path: PathBuf,
}

impl LocalFile {
    pub(super) fn new(url: &str, path: PathBuf) -> Self {
        Self { url: url.to_owned(), path }
    }

    /// Locks the directory and reads the copy.
    pub(super) async fn read(&self) -> Result<StoredCopy, CopyError> {
        let copy_error = |reason: String| CopyError::Read { url: self.url.clone(), reason };
        let lock = self.lock().await.map_err(|error| copy_error(error.to_string()))?;
        let path = self.path.clone();
        let text = blocking(move || content(&path)).await.map_err(|error| copy_error(error.to_string()))?;
        let watermark = text.map(|text| serde_json::from_slice::<Watermark>(&text)).transpose();
        let watermark = watermark.map_err(|_| CopyError::Foreign { url: self.url.clone() })?;
        Ok(StoredCopy { watermark, version: Version::Locked(lock) })
    }

    /// Replaces the copy and releases the lock.
    pub(super) async fn write(&self, version: Version, text: Vec<u8>) -> Result<ReplaceOutcome, CopyError> {
        let Version::Locked(lock) = version else { return Ok(ReplaceOutcome::Conflict) };
        let path = self.path.clone();
        let replaced = blocking(move || replace(&path, &text, &lock)).await;
        replaced
            .map(|()| ReplaceOutcome::Done)
            .map_err(|error| CopyError::Write { url: self.url.clone(), reason: error.to_string() })
    }

    async fn lock(&self) -> io::Result<File> {
        let directory = self.path.parent().unwrap_or(Path::new("/")).to_owned();
        let directory = blocking(move || File::open(directory)).await?;
        let began = tokio::time::Instant::now();
        loop {
            match directory.try_lock() {
                Ok(()) => return Ok(directory),
                Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_WAIT => {
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::other("another process has locked the directory for too long"));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

/// Reads the file up to the size limit of a watermark; `None` if it does not exist.
fn content(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    file.take(SIZE_MAX).read_to_end(&mut text)?;
    Ok(Some(text))
}

fn replace(path: &Path, text: &[u8], directory: &File) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.tidemill-new"));
    // An existing one was left by a writer that died, because a live writer would hold the lock.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let written = write_new(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // A leftover is harmless: the next writer removes it.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    directory.sync_all()
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text)?;
    file.sync_all()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
