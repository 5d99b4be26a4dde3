//! The launch step that becomes the command.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{ABOUT_TO_EXECUTE, die_with_parent};
use crate::cgroup::{CommandGroup, OWN_PROCESSES};
use crate::protocol::Program;
use crate::record::Limits;

/// Executes the command; returns only on failure, with the reason.
pub(super) fn execute(
    parent: i32,
    cgroup: Option<PathBuf>,
    program: &Program,
    stdin: OwnedFd,
    reply: &mut UnixStream,
) -> String {
    if let Err(reason) = die_with_parent(parent) {
        return reason;
    }
    if let Some(cgroup) = cgroup
        && let Err(error) = CommandGroup::new(&cgroup).join()
    {
        return format!("the launch step could not join the control group `{}`: {error}", cgroup.display());
    }
    let Program { command, env, env_remove, dir, limits } = program;
    let Some((program, args)) = command.split_first() else {
        return "no command is given".to_owned();
    };
    let names = env.iter().map(|(name, _)| name).chain(env_remove);
    if let Some(name) = names.into_iter().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return format!("`{}` is not a valid name of an environment variable", name.escape_debug());
    }
    if let Some(dir) = dir
        && let Err(error) = std::env::set_current_dir(dir)
    {
        return format!("could not enter the directory `{}`: {error}", dir.display());
    }
    if let Err(error) = reply.write_all(&[ABOUT_TO_EXECUTE]) {
        return format!("the supervisor has ended: {error}");
    }
    let mut command = Command::new(program);
    for name in env_remove {
        command.env_remove(name);
    }
    command.args(args).envs(env.iter().cloned()).stdin(Stdio::from(stdin));
    if let Err(reason) = set_limits(limits) {
        return reason;
    }
    // `exec` also restores the default action of SIGPIPE, which the Rust runtime ignores.
    let error = command.exec();
    let path = env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    exec_error(program, &error, &path.or_else(|| std::env::var("PATH").ok()).unwrap_or_default())
}

/// Processor time between SIGXCPU and SIGKILL.
const CPU_GRACE_SECS: u64 = 5;

/// Sets the resource limits. Called last, because they apply to this process too.
fn set_limits(limits: &Limits) -> Result<(), String> {
    let wanted = [
        (Resource::Cpu, limits.cpu_secs, CPU_GRACE_SECS),
        (Resource::Fsize, limits.file_bytes, 0),
        (Resource::As, limits.memory_bytes, 0),
        (Resource::Core, limits.core_bytes, 0),
        (Resource::Nproc, limits.processes.map(|count| u64::from(count.saturating_add(OWN_PROCESSES))), 0),
    ];
    for (resource, limit, grace) in wanted {
        let Some(soft) = limit else { continue };
        // An unprivileged process cannot raise its hard limit.
        let hard = getrlimit(resource).maximum;
        let capped = |value: u64| hard.map_or(value, |hard| value.min(hard));
        let limit = Rlimit { current: Some(capped(soft)), maximum: Some(capped(soft.saturating_add(grace))) };
        if let Err(error) = setrlimit(resource, limit) {
            return Err(format!("could not set a resource limit: {error}"));
        }
    }
    Ok(())
}

fn exec_error(program: &str, error: &io::Error, path: &str) -> String {
    let kind = error.kind();
    // The lookup also reports a denied permission if it could not enter one of the directories.
    let is_found = program.contains('/') || path.split(':').any(|dir| Path::new(dir).join(program).exists());
    if kind == io::ErrorKind::PermissionDenied && is_found {
        format!("`{program}` is not executable, or permission is denied")
    } else if kind != io::ErrorKind::NotFound && kind != io::ErrorKind::PermissionDenied {
        format!("could not execute `{program}`: {error}")
    } else if program.contains('/') && Path::new(program).exists() {
        format!("the interpreter of `{program}` was not found")
    } else {
        format!("`{program}` was not found")
    }
}
