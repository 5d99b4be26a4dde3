//! The mounts of a command's namespace: its own `/proc`, hidden files, and its own temporary directories.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags, openat, statvfs};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount};
use rustix::process::geteuid;

use crate::cgroup;
use crate::isolation::{CommandUser, Namespaces, SHARED_MEMORY, SHARED_TEMPORARY};

/// Action that failed, with its error.
type MountError = (String, io::Error);

/// Bytes of shared memory for each file: the kernel does not count the memory of an empty file as part of its size.
const BYTES_PER_FILE: u64 = 16 * 1024;
/// Files in the smallest shared memory.
const FILES_MIN: u64 = 1024;

/// Prepares the mounts. Must run in the namespaces, with the right to mount.
pub(super) fn prepare(namespaces: &Namespaces, shared_memory_bytes: Option<u64>) -> Result<(), MountError> {
    let groups = fs::read_to_string("/proc/self/mountinfo").map_err(failed("read the mounts"))?;
    let everything = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", everything).map_err(failed("make the mounts private"))?;
    let strict = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", strict, None).map_err(failed("mount /proc"))?;
    let own: Vec<(&PathBuf, File)> =
        namespaces.own.iter().map(|path| Ok((path, open_dir(path)?))).collect::<Result<_, MountError>>()?;
    let private_tmp = namespaces.private_tmp.as_deref().map(open_dir).transpose()?;
    cover(&namespaces.covered, &own)?;
    if let Some(tmp) = &private_tmp {
        replace_temporary_directories(tmp, &namespaces.covered)?;
    }
    replace_shared_memory(&namespaces.covered, shared_memory_bytes)?;
    for path in &namespaces.hidden {
        hide(path)?;
    }
    if namespaces.user == CommandUser::SameInNamespace {
        // Its sockets let a process of this user start others outside of the namespace.
        hide(Path::new(&format!("/run/user/{}", geteuid().as_raw())))?;
    }
    for point in cgroup::mount_points(&groups) {
        make_read_only(&point)?;
    }
    Ok(())
}

/// Replaces a directory by an empty, read-only one that contains only `own`, at the same paths.
fn cover(covered: &Path, own: &[(&PathBuf, File)]) -> Result<(), MountError> {
    mount_empty(covered, "mode=0755")?;
    for (path, dir) in own {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
        made.map_err(failed(&format!("create {}", path.display())))?;
        bind(dir, path)?;
    }
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount_remount(covered, flags, "").map_err(failed(&format!("protect {}", covered.display())))
}

/// Replaces the shared temporary directories, except one that contains the task itself.
///
/// Another command with the same user id could otherwise find files that this one left there.
fn replace_temporary_directories(tmp: &File, covered: &Path) -> Result<(), MountError> {
    for shared in SHARED_TEMPORARY.map(Path::new) {
        if is_real_dir(shared) && !covered.starts_with(shared) {
            bind(tmp, shared)?;
        }
    }
    Ok(())
}

/// Replaces the shared memory, except if it contains the task itself. Its files end with the namespace.
fn replace_shared_memory(covered: &Path, bytes: Option<u64>) -> Result<(), MountError> {
    let path = Path::new(SHARED_MEMORY);
    if !is_real_dir(path) || covered.starts_with(path) {
        return Ok(());
    }
    mount_empty(path, &shared_memory_options(bytes))
}

/// Mount options of the shared memory. Without a limit, the kernel allows half of the memory of the machine.
fn shared_memory_options(bytes: Option<u64>) -> String {
    let size = bytes.map(|bytes| {
        let files = (bytes / BYTES_PER_FILE).max(FILES_MIN);
        // Zero means no limit.
        format!(",size={},nr_inodes={files}", bytes.max(1))
    });
    format!("mode=1777{}", size.unwrap_or_default())
}

/// Hides a file or a directory, if it exists for this user.
fn hide(path: &Path) -> Result<(), MountError> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            mount_empty(path, "mode=0555")?;
            let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
            mount_remount(path, flags, "").map_err(failed(&format!("protect {}", path.display())))
        }
        Ok(_) => mount_bind("/dev/null", path).map_err(failed(&format!("hide {}", path.display()))),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err((format!("find {}", path.display()), error)),
    }
}

/// Whether a path leads nowhere, or to a place that this user, and thus the command, cannot reach.
fn is_missing(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory, io::ErrorKind::PermissionDenied];
    kinds.contains(&error.kind())
}

/// Makes a control group hierarchy read-only: its owner could otherwise move the command out of its group.
fn make_read_only(point: &Path) -> Result<(), MountError> {
    let action = format!("protect {}", point.display());
    let Ok(found) = statvfs(point) else { return Ok(()) };
    mount_bind(point, point).map_err(failed(&action))?;
    // A user namespace may not drop the flags of the original mount.
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
    ];
    let flags = kept.into_iter().filter(|(flag, _)| found.f_flag.contains(*flag));
    let flags = flags.fold(MountFlags::BIND | MountFlags::RDONLY, |flags, (_, flag)| flags | flag);
    mount_remount(point, flags, "").map_err(failed(&action))
}

fn mount_empty(path: &Path, mode: &str) -> Result<(), MountError> {
    let options = CString::new(mode).unwrap_or_default();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", path, "tmpfs", flags, options.as_c_str())
        .map_err(failed(&format!("cover {}", path.display())))
}

/// Binds an open directory, whose path may be covered, to a path.
fn bind(dir: &File, to: &Path) -> Result<(), MountError> {
    let from = format!("/proc/self/fd/{}", dir.as_raw_fd());
    mount_bind(from, to).map_err(failed(&format!("mount {}", to.display())))
}

fn open_dir(path: &(impl AsRef<Path> + ?Sized)) -> Result<File, MountError> {
    let path = path.as_ref();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, path, flags, Mode::empty());
    Ok(File::from(opened.map_err(failed(&format!("open {}", path.display())))?))
}

fn is_real_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

fn failed<E: Into<io::Error>>(action: &str) -> impl FnOnce(E) -> MountError {
    let action = action.to_owned();
    move |error| (action, error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_has_a_size_and_a_number_of_files() {
        let options = |bytes| shared_memory_options(Some(bytes));
        assert_eq!(options(100 << 20), "mode=1777,size=104857600,nr_inodes=6400");
        assert_eq!(options(1 << 20), "mode=1777,size=1048576,nr_inodes=1024");
        assert_eq!(options(0), "mode=1777,size=1,nr_inodes=1024");
        assert_eq!(shared_memory_options(None), "mode=1777");
    }
}
