//! Access to files below one directory only: paths with `..` are rejected, and symbolic links are not followed.
//!
//! Each component of a path is opened relative to the directory before it. So a command cannot redirect the agent by
//! replacing parts of its directory, even at the same time.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, linkat, mkdirat, open, openat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// A directory whose operations never leave it.
#[derive(Debug)]
pub(crate) struct ConfinedDir(OwnedFd);

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// File name, which may not be valid UTF-8.
    pub(crate) name: OsString,
    pub(crate) kind: EntryKind,
}

/// Type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Dir,
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// Handling of missing parent directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingDirs {
    Create,
    Fail,
}

/// Returns why a path is not allowed, as a predicate for a message; `None` if it is allowed.
pub(crate) fn path_error(path: &str) -> Option<&'static str> {
    if path.is_empty() || path.len() > 4096 {
        return Some("is empty or too long");
    }
    if path.starts_with('/') {
        return Some("is not relative");
    }
    if path.contains('\0') {
        return Some("contains a NUL");
    }
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Some("contains `..`, `.` or an empty component");
    }
    None
}

/// Whether the owner of a file may execute it.
pub(crate) fn is_executable(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.permissions().mode() & 0o100 != 0)
}

/// Adds execute permission for everyone who has read permission.
pub(crate) fn make_executable(file: &File) -> io::Result<()> {
    let mode = file.metadata()?.permissions().mode();
    file.set_permissions(Permissions::from_mode(mode | ((mode & 0o444) >> 2)))
}

fn check(path: &str) -> io::Result<&str> {
    match path_error(path) {
        None => Ok(path),
        Some(reason) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the path {path:?} {reason}")))
        }
    }
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl ConfinedDir {
    /// Opens a directory by its trusted path.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        Ok(Self(open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    pub(crate) fn dir(&self, path: &str, missing: MissingDirs) -> io::Result<OwnedFd> {
        let mut at = self.0.try_clone()?;
        if path.is_empty() {
            return Ok(at);
        }
        for part in check(path)?.split('/') {
            if missing == MissingDirs::Create {
                match mkdirat(&at, part, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            at = openat(&at, part, DIRECTORY, Mode::empty())?;
        }
        Ok(at)
    }

    /// Opens the parent directory of a file; returns it with the file name.
    fn parent<'p>(&self, path: &'p str, missing: MissingDirs) -> io::Result<(OwnedFd, &'p str)> {
        let (parent, name) = check(path)?.rsplit_once('/').unwrap_or(("", path));
        Ok((self.dir(parent, missing)?, name))
    }

    /// Opens a regular file for reading.
    pub(crate) fn read(&self, path: &str) -> io::Result<File> {
        let (parent, name) = self.parent(path, MissingDirs::Fail)?;
        // Without NONBLOCK, opening a named pipe would block until there is a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(&parent, name, flags, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{path:?} is not a regular file"),
            ));
        }
        Ok(File::from(file))
    }

    /// Creates a new file and its parent directories.
    pub(crate) fn create(&self, path: &str) -> io::Result<File> {
        let (parent, name) = self.parent(path, MissingDirs::Create)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        Ok(File::from(openat(&parent, name, flags, mode)?))
    }

    /// Creates a hard link at the same path below `to`; returns false if the file systems do not support it.
    pub(crate) fn link(&self, path: &str, to: &Self) -> io::Result<bool> {
        let (from_parent, name) = self.parent(path, MissingDirs::Fail)?;
        let (to_parent, _) = to.parent(path, MissingDirs::Create)?;
        match linkat(&from_parent, name, &to_parent, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::ACCESS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Lists a subdirectory. Its path must consist of names that earlier calls returned.
    pub(crate) fn entries(&self, path: &OsStr) -> io::Result<Vec<Entry>> {
        let mut dir = self.0.try_clone()?;
        for part in path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            if part == b".." {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path contains `..`"));
            }
            dir = openat(&dir, part, DIRECTORY, Mode::empty())?;
        }
        let mut entries = Vec::new();
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                kind = FileType::from_raw_mode(stat.st_mode);
            }
            let kind = match kind {
                FileType::RegularFile => EntryKind::File,
                FileType::Directory => EntryKind::Dir,
                FileType::Symlink => EntryKind::Link,
                FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => EntryKind::Other,
            };
            entries.push(Entry { name: OsStr::from_bytes(name.to_bytes()).to_owned(), kind });
        }
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_that_leave_the_directory_are_rejected() {
        for bad in ["", "/etc/passwd", "..", "a/../b", "a//b", "./a", "a/", "a\0b", "a/.."] {
            assert!(path_error(bad).is_some(), "{bad:?}");
        }
        for good in ["a", "a b/ü", "..a", "a../b", "-rf", "~"] {
            assert!(path_error(good).is_none(), "{good:?}");
        }
    }

    #[test]
    fn symbolic_links_are_not_followed() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("secret"), "x").unwrap();
        symlink(outside.path(), inside.path().join("way")).unwrap();
        symlink(outside.path().join("secret"), inside.path().join("file")).unwrap();
        symlink(outside.path().join("new"), inside.path().join("new")).unwrap();
        let root = ConfinedDir::open(inside.path()).unwrap();
        assert!(root.read("way/secret").is_err());
        assert!(root.read("file").is_err());
        assert!(root.create("way/made").is_err());
        assert!(root.create("new").is_err());
        assert!(root.dir("way/sub", MissingDirs::Create).is_err());
        assert!(root.entries(OsStr::new("way")).is_err());
        assert!(root.entries(OsStr::new("..")).is_err());
        let there: Vec<String> = fs::read_dir(outside.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(there, ["secret"]);
    }

    #[test]
    fn files_are_created_read_and_linked() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, other) = (ConfinedDir::open(one.path()).unwrap(), ConfinedDir::open(other.path()).unwrap());
        one.create("a b/ü/x").unwrap().write_all(b"text").unwrap();
        assert!(one.create("a b/ü/x").is_err(), "a file must be created only once");
        assert!(one.link("a b/ü/x", &other).unwrap());
        assert_eq!(io::read_to_string(other.read("a b/ü/x").unwrap()).unwrap(), "text");
        let found = other.entries(OsStr::new("a b")).unwrap();
        assert_eq!(found, [Entry { name: OsString::from("ü"), kind: EntryKind::Dir }]);
    }

    #[test]
    fn opening_a_pipe_fails_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("pipe"), Mode::RUSR).unwrap();
        assert!(ConfinedDir::open(dir.path()).unwrap().read("pipe").is_err());
    }
}
