//! Files below a directory, and nowhere else: names that climb are refused, and symbolic links are not followed.
//!
//! Every part of a path is opened by itself, from the directory before it. So it does not matter what a command
//! made of its directory, nor whether somebody changes it meanwhile.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, linkat, mkdirat, open, openat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// A directory that nothing here leaves.
#[derive(Debug)]
pub(crate) struct Root(OwnedFd);

/// Something in a directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its name, which need not be text.
    pub(crate) name: OsString,
    /// What it is.
    pub(crate) kind: Kind,
}

/// What something in a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A plain file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link, wherever it leads.
    Link,
    /// Anything else: a pipe, a socket, a device.
    Other,
}

/// Whether directories on the way are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// They are made.
    Make,
    /// They are missing.
    Fail,
}

/// Why a path cannot be used, as the rest of a sentence; nothing where it can.
pub(crate) fn objection(path: &str) -> Option<&'static str> {
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
        return Some("climbs, or has an empty part");
    }
    None
}

/// Whether a file may be executed by whoever it belongs to.
pub(crate) fn is_executable(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.permissions().mode() & 0o100 != 0)
}

/// Lets those execute a file who may read it.
pub(crate) fn make_executable(file: &File) -> io::Result<()> {
    let mode = file.metadata()?.permissions().mode();
    file.set_permissions(Permissions::from_mode(mode | ((mode & 0o444) >> 2)))
}

fn checked(path: &str) -> io::Result<&str> {
    match objection(path) {
        None => Ok(path),
        Some(objection) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the path {path:?} {objection}")))
        }
    }
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Root {
    /// A directory that we know.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        Ok(Self(open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// A directory below.
    pub(crate) fn dir(&self, path: &str, missing: Missing) -> io::Result<OwnedFd> {
        let mut at = self.0.try_clone()?;
        if path.is_empty() {
            return Ok(at);
        }
        for part in checked(path)?.split('/') {
            if missing == Missing::Make {
                match mkdirat(&at, part, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            at = openat(&at, part, DIRECTORY, Mode::empty())?;
        }
        Ok(at)
    }

    /// The directory of a file, and the file's name in it.
    fn parent<'p>(&self, path: &'p str, missing: Missing) -> io::Result<(OwnedFd, &'p str)> {
        let (parent, name) = checked(path)?.rsplit_once('/').unwrap_or(("", path));
        Ok((self.dir(parent, missing)?, name))
    }

    /// A plain file below, to be read.
    pub(crate) fn read(&self, path: &str) -> io::Result<File> {
        let (parent, name) = self.parent(path, Missing::Fail)?;
        // Without NONBLOCK, opening a pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(&parent, name, flags, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{path:?} is no plain file")));
        }
        Ok(File::from(file))
    }

    /// A new file below, with the directories that lead to it.
    pub(crate) fn create(&self, path: &str) -> io::Result<File> {
        let (parent, name) = self.parent(path, Missing::Make)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        Ok(File::from(openat(&parent, name, flags, mode)?))
    }

    /// Gives a file below another name below another directory; false where the file systems cannot.
    pub(crate) fn link(&self, path: &str, to: &Self) -> io::Result<bool> {
        let (from_parent, name) = self.parent(path, Missing::Fail)?;
        let (to_parent, _) = to.parent(path, Missing::Make)?;
        match linkat(&from_parent, name, &to_parent, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::ACCESS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// What is in a directory below. Its path is made of names that were found here.
    pub(crate) fn entries(&self, path: &OsStr) -> io::Result<Vec<Entry>> {
        let mut dir = self.0.try_clone()?;
        for part in path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            if part == b".." {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path climbs"));
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
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Dir,
                FileType::Symlink => Kind::Link,
                FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => Kind::Other,
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
    fn names_that_climb_are_refused() {
        for bad in ["", "/etc/passwd", "..", "a/../b", "a//b", "./a", "a/", "a\0b", "a/.."] {
            assert!(objection(bad).is_some(), "{bad:?}");
        }
        for good in ["a", "a b/ü", "..a", "a../b", "-rf", "~"] {
            assert!(objection(good).is_none(), "{good:?}");
        }
    }

    #[test]
    fn links_lead_nowhere() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("secret"), "x").unwrap();
        symlink(outside.path(), inside.path().join("way")).unwrap();
        symlink(outside.path().join("secret"), inside.path().join("file")).unwrap();
        symlink(outside.path().join("new"), inside.path().join("new")).unwrap();
        let root = Root::open(inside.path()).unwrap();
        assert!(root.read("way/secret").is_err());
        assert!(root.read("file").is_err());
        assert!(root.create("way/made").is_err());
        assert!(root.create("new").is_err());
        assert!(root.dir("way/sub", Missing::Make).is_err());
        assert!(root.entries(OsStr::new("way")).is_err());
        assert!(root.entries(OsStr::new("..")).is_err());
        let there: Vec<String> = fs::read_dir(outside.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(there, ["secret"]);
    }

    #[test]
    fn files_below_are_made_read_and_linked() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, other) = (Root::open(one.path()).unwrap(), Root::open(other.path()).unwrap());
        one.create("a b/ü/x").unwrap().write_all(b"text").unwrap();
        assert!(one.create("a b/ü/x").is_err(), "a file is made once");
        assert!(one.link("a b/ü/x", &other).unwrap());
        assert_eq!(io::read_to_string(other.read("a b/ü/x").unwrap()).unwrap(), "text");
        let found = other.entries(OsStr::new("a b")).unwrap();
        assert_eq!(found, [Entry { name: OsString::from("ü"), kind: Kind::Dir }]);
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("pipe"), Mode::RUSR).unwrap();
        assert!(Root::open(dir.path()).unwrap().read("pipe").is_err());
    }
}
