//! A copy in a local file: written beside it, made durable, and renamed over it, so that whoever reads it
//! finds the old one or the new one, and never a part.
//!
//! Writers exclude each other by a lock on the folder, which ends with its holder. A file system whose
//! folders cannot be locked gets no copy.

use super::Fault;
use super::place::{Found, SIZE_MAX, Version, Written};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidemill_core::feed::Watermark;

/// How long a writer waits for the others.
const LOCK_WAIT: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// A file that holds a copy.
pub(super) struct LocalFile {
    url: String,
    path: PathBuf,
}

impl LocalFile {
    pub(super) fn new(url: &str, path: PathBuf) -> Self {
        Self { url: url.to_owned(), path }
    }

    /// Keeps other writers out, and reads the copy.
    pub(super) async fn read(&self) -> Result<Found, Fault> {
        let fault = |reason: String| Fault::Read { url: self.url.clone(), reason };
        let lock = self.lock().await.map_err(|error| fault(error.to_string()))?;
        let path = self.path.clone();
        let text = blocking(move || content(&path)).await.map_err(|error| fault(error.to_string()))?;
        let watermark = text.map(|text| serde_json::from_slice::<Watermark>(&text)).transpose();
        let watermark = watermark.map_err(|_| Fault::Foreign { url: self.url.clone() })?;
        Ok(Found { watermark, version: Version::Held(lock) })
    }

    /// Replaces the copy, and lets other writers in.
    pub(super) async fn write(&self, version: Version, text: Vec<u8>) -> Result<Written, Fault> {
        let Version::Held(lock) = version else { return Ok(Written::Lost) };
        let path = self.path.clone();
        let replaced = blocking(move || replace(&path, &text, &lock)).await;
        replaced
            .map(|()| Written::Done)
            .map_err(|error| Fault::Write { url: self.url.clone(), reason: error.to_string() })
    }

    async fn lock(&self) -> io::Result<File> {
        let folder = self.path.parent().unwrap_or(Path::new("/")).to_owned();
        let folder = blocking(move || File::open(folder)).await?;
        let began = tokio::time::Instant::now();
        loop {
            match folder.try_lock() {
                Ok(()) => return Ok(folder),
                Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_WAIT => {
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::other("another process has held the folder for too long"));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

/// What the file holds, as far as it may be a watermark; none where there is no file.
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

fn replace(path: &Path, text: &[u8], folder: &File) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.tidemill-new"));
    // One that is there was left by a writer that died: whoever lives holds the lock.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let written = write_new(&beside, text).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // What is left over does no harm: the next writer removes it.
        let _ = fs::remove_file(&beside);
    }
    written?;
    folder.sync_all()
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text)?;
    file.sync_all()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
