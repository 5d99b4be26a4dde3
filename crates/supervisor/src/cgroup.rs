//! Control groups (version 2): one group per command, whose `cgroup.kill` ends all its processes.
//!
//! A process cannot leave its group without write access to another one. So a group also finds processes that changed
//! their session, their environment and their parent. Groups are created below the group of the calling process. On a
//! hybrid system the version 2 hierarchy is not mounted at `/sys/fs/cgroup` and has few controllers.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::record::Limits;

/// Processes of the supervision inside the group of a command: the launch step, and init with its two threads.
pub(crate) const OWN_PROCESSES: u32 = 3;

/// Period of the CPU limit in microseconds.
const CPU_PERIOD_MICROS: u64 = 100_000;
/// Time limit for the removal of a group whose processes are ending.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// The control group of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandGroup {
    dir: PathBuf,
}

impl CommandGroup {
    /// Creates the handle of a group, which may not exist.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Creates the group, unless it exists.
    pub fn create(&self) -> io::Result<()> {
        match fs::create_dir(&self.dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Sets the limits that the group can enforce; returns the others.
    pub(crate) fn set_limits(&self, limits: Limits) -> io::Result<Limits> {
        let controllers = fs::read_to_string(self.dir.join("cgroup.controllers")).unwrap_or_default();
        let (files, left) = limit_files(&controllers, limits);
        for LimitFile { name, value, need } in files {
            match self.write(name, &value) {
                Err(error) if need == Need::IfPresent && error.kind() == ErrorKind::NotFound => {}
                written => written?,
            }
        }
        Ok(left)
    }

    /// Moves the calling process into the group.
    pub(crate) fn join(&self) -> io::Result<()> {
        self.write("cgroup.procs", "0")
    }

    /// Moves another process into the group.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Kills all processes of the group. A group that does not exist has none.
    pub fn kill(&self) -> io::Result<()> {
        match self.kill_existing() {
            Err(error) if is_gone(&error) => Ok(()),
            killed => killed,
        }
    }

    /// Like [`Self::kill`], but fails if the group does not exist or the kernel is older than 5.14.
    pub fn kill_existing(&self) -> io::Result<()> {
        self.write("cgroup.kill", "1")
    }

    /// Whether a process of the group, or of a group below it, is alive.
    pub fn is_populated(&self) -> io::Result<bool> {
        match fs::read_to_string(self.dir.join("cgroup.events")) {
            Ok(events) => Ok(events.lines().any(|line| line == "populated 1")),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the group, whose processes must have been killed. Waits for their end, for a limited time.
    pub fn remove(&self) -> io::Result<()> {
        let started = Instant::now();
        loop {
            match fs::remove_dir(&self.dir) {
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error) if is_busy(&error) && started.elapsed() < REMOVE_TIMEOUT => {
                    thread::sleep(RETRY_INTERVAL);
                }
                removed => return removed,
            }
        }
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        // Unlike `fs::write`, never creates the file.
        let mut options = fs::OpenOptions::new();
        io::Write::write_all(&mut options.write(true).open(self.dir.join(file))?, text.as_bytes())
    }
}

/// A file of a group, and the limit to write to it.
#[derive(Debug, PartialEq, Eq)]
struct LimitFile {
    name: &'static str,
    value: String,
    need: Need,
}

/// Whether a limit holds without a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Always,
    IfPresent,
}

/// Decides which limits the controllers of a group enforce; returns their files, and the other limits.
fn limit_files(controllers: &str, limits: Limits) -> (Vec<LimitFile>, Limits) {
    let has = |name: &str| controllers.split_ascii_whitespace().any(|found| found == name);
    let (mut files, mut left) = (Vec::new(), limits);
    if has("memory")
        && let Some(bytes) = left.memory_bytes.take()
    {
        files.push(LimitFile { name: "memory.max", value: bytes.to_string(), need: Need::Always });
        // Without this, a full group swaps instead of being stopped. The file is missing without swap accounting.
        files.push(LimitFile { name: "memory.swap.max", value: "0".to_owned(), need: Need::IfPresent });
    }
    if has("pids")
        && let Some(processes) = left.processes.take()
    {
        let value = processes.saturating_add(OWN_PROCESSES).to_string();
        files.push(LimitFile { name: "pids.max", value, need: Need::Always });
    }
    if has("cpu")
        && let Some(percent) = left.cpu_percent.take()
    {
        let quota = (u64::from(percent) * CPU_PERIOD_MICROS / 100).max(1_000);
        let value = format!("{quota} {CPU_PERIOD_MICROS}");
        files.push(LimitFile { name: "cpu.max", value, need: Need::Always });
    }
    (files, left)
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::BUSY.raw_os_error())
}

/// Finds the group below which this process can create groups: a group that the service manager delegated to it,
/// otherwise its own group. The error is a sentence part for people.
pub fn parent_group() -> Result<PathBuf, String> {
    let read =
        |path: &str| fs::read_to_string(path).map_err(|error| format!("could not read {path}: {error}"));
    let own = own_group(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)?;
    // A delegated group has the processes of the service in a group below it, so its controllers can be enabled.
    Ok(own.ancestors().find(|dir| is_delegated(dir)).unwrap_or(&own).to_owned())
}

/// Mount points of the version 2 hierarchy.
pub(crate) fn mount_points(mountinfo: &str) -> Vec<PathBuf> {
    version_2_mounts(mountinfo).map(|(point, _)| PathBuf::from(unescaped(point))).collect()
}

/// Whether systemd has delegated this group to its service.
pub(crate) fn is_delegated(dir: &Path) -> bool {
    ["trusted.delegate", "user.delegate"].iter().any(|name| {
        let mut value = [0; 8];
        matches!(rustix::fs::getxattr(dir, *name, &mut value), Ok(length) if value[..length] == *b"1")
    })
}

/// Directory of the group of a process, from the contents of its `mountinfo` and `cgroup` files.
fn own_group(mountinfo: &str, cgroup: &str) -> Result<PathBuf, String> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"));
    let path = path.ok_or("this process is in no cgroup v2 hierarchy")?;
    for (point, root) in version_2_mounts(mountinfo) {
        let below = Path::new(path).strip_prefix(Path::new(&unescaped(root)).components().as_path());
        if let Ok(below) = below
            && !below.components().any(|part| part == std::path::Component::ParentDir)
        {
            return Ok(Path::new(&unescaped(point)).join(below));
        }
    }
    Err("no cgroup v2 hierarchy is mounted that contains this process".to_owned())
}

/// Mount points of the version 2 hierarchy, each with the group that is mounted there.
fn version_2_mounts(mountinfo: &str) -> impl Iterator<Item = (&str, &str)> {
    mountinfo.lines().filter_map(|line| {
        let (fields, rest) = line.split_once(" - ")?;
        let mut fields = fields.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (rest.split(' ').next() == Some("cgroup2")).then_some((point, root))
    })
}

/// Decodes the octal escapes of `mountinfo`.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:5 - cgroup2 cgroup2 rw\n";

    #[test]
    fn own_group_is_found_on_hybrid_and_plain_systems() {
        let cgroup = "4:memory:/other\n0::/system.slice/agent.service\n";
        let found = own_group(HYBRID, cgroup).unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/unified/system.slice/agent.service"));
        assert_eq!(own_group(HYBRID, "0::/\n").unwrap(), Path::new("/sys/fs/cgroup/unified/"));
        let plain = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(own_group(plain, "0::/a\n").unwrap(), Path::new("/sys/fs/cgroup/a"));
    }

    #[test]
    fn own_group_below_a_mounted_group_is_relative_to_it() {
        let container = "31 23 0:28 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(own_group(container, "0::/docker/1/app\n").unwrap(), Path::new("/sys/fs/cgroup/app"));
        assert!(own_group(container, "0::/elsewhere\n").is_err());
        assert!(own_group(HYBRID, "0::/../outside\n").is_err());
        assert!(own_group("", "0::/\n").is_err());
        assert!(own_group(HYBRID, "4:memory:/\n").is_err());
    }

    const ALL: Limits = Limits {
        cpu_secs: Some(60),
        memory_bytes: Some(104_857_600),
        processes: Some(64),
        cpu_percent: Some(150),
        file_bytes: Some(1_000),
        core_bytes: Some(0),
        shared_memory_bytes: Some(104_857_600),
    };

    /// The directory of a group with these controllers and these files, which the kernel would create.
    fn group(controllers: &str, files: &[&str]) -> (tempfile::TempDir, CommandGroup) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), controllers).unwrap();
        for file in files {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let group = CommandGroup::new(dir.path());
        (dir, group)
    }

    #[test]
    fn limits_are_written_where_controllers_exist() {
        let memory = [("memory.max", "104857600"), ("memory.swap.max", "0")];
        let (pids, cpu) = (("pids.max", "67"), ("cpu.max", "150000 100000"));
        let (no_memory, no_pids, no_cpu) = (
            Limits { memory_bytes: None, ..ALL },
            Limits { processes: None, ..ALL },
            Limits { cpu_percent: None, ..ALL },
        );
        let neither = Limits { memory_bytes: None, processes: None, cpu_percent: None, ..ALL };
        for (controllers, written, left) in [
            ("cpuset cpu io memory hugetlb pids\n", [&memory[..], &[pids, cpu]].concat(), neither),
            ("memory\n", memory.to_vec(), no_memory),
            ("pids\n", vec![pids], no_pids),
            ("cpu\n", vec![cpu], no_cpu),
            // Names that contain the name of a controller.
            ("cpuset memory.high hugetlb\n", Vec::new(), ALL),
            ("", Vec::new(), ALL),
        ] {
            let (files, rest) = limit_files(controllers, ALL);
            let decided: Vec<(&str, &str)> =
                files.iter().map(|file| (file.name, file.value.as_str())).collect();
            assert_eq!((decided, rest), (written.clone(), left), "{controllers}");
            let names = ["memory.max", "memory.swap.max", "pids.max", "cpu.max"];
            let (dir, group) = group(controllers, &names);
            assert_eq!(group.set_limits(ALL).unwrap(), left, "{controllers}");
            for name in names {
                let value = written.iter().find(|(file, _)| *file == name).map_or("", |(_, value)| value);
                assert_eq!(
                    fs::read_to_string(dir.path().join(name)).unwrap(),
                    value,
                    "{controllers}: {name}"
                );
            }
        }
        assert_eq!(limit_files("memory pids cpu", Limits::default()), (Vec::new(), Limits::default()));
    }

    #[test]
    fn missing_file_of_a_limit_is_an_error_except_for_swap() {
        let (dir, memory) = group("memory pids", &["memory.max"]);
        let limits = Limits { memory_bytes: Some(1_000_000), ..Limits::default() };
        assert_eq!(memory.set_limits(limits).unwrap(), Limits::default());
        assert!(!dir.path().join("memory.swap.max").exists());
        let processes = Limits { processes: Some(5), ..Limits::default() };
        assert_eq!(memory.set_limits(processes).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!dir.path().join("pids.max").exists());
    }

    #[test]
    fn small_cpu_share_is_the_shortest_time_that_the_kernel_accepts() {
        let (files, _) = limit_files("cpu", Limits { cpu_percent: Some(0), ..Limits::default() });
        assert_eq!(files[0].value, "1000 100000");
    }
}
