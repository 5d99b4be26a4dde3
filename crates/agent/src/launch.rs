//! Derives the command of a task order: its arguments, its environment and its limits.

use crate::executor::TASK_DIR_VARIABLE;
use crate::task_dir::TaskDir;
use std::path::PathBuf;
use std::time::Duration;
use tidemill_core::graph::definition::{Command, OnAgentLost};
use tidemill_core::limits;
use tidemill_supervisor::{DetachedSpec, Isolation, Limits};
use tidemill_wire::agents::Work;

/// Default `PATH` if the agent has none.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Longer lines of output are split.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// Specification of the command of a task.
pub(crate) fn spec(
    task_dir: &TaskDir,
    job_id: &str,
    work: &Work,
    grace: Duration,
    isolation: Isolation,
) -> DetachedSpec {
    let command = match &work.run {
        Command::Shell(line) => vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
        Command::Words(words) => words.clone(),
    };
    DetachedSpec {
        command,
        env: environment(task_dir, job_id, work),
        dir: dir(task_dir, work),
        limits: Limits {
            cpu_secs: work.limits.cpu_secs.map(u64::from),
            memory_bytes: work.limits.memory_bytes,
            file_bytes: work.limits.output_bytes,
            // A core dump may contain secrets.
            core_bytes: Some(0),
            // The default stops a fork bomb before it stops the machine.
            processes: work.limits.processes.or(Some(limits::TASK_PROCESSES_MAX)),
            cpu_percent: work.limits.cpu_percent,
            // The memory limit also bounds `/dev/shm` on machines without a memory controller.
            shared_memory_bytes: work.limits.memory_bytes.or(Some(limits::TASK_SHARED_MEMORY_BYTES_MAX)),
        },
        timeout: work.timeout_secs.map(|secs| Duration::from_secs(secs.into())),
        grace,
        contact_max: contact_max(work.on_agent_lost),
        line_bytes_max: LINE_BYTES_MAX,
        log_bytes_max: limits::TASK_LOG_BYTES_MAX,
        isolation,
    }
}

fn dir(task_dir: &TaskDir, work: &Work) -> PathBuf {
    match &work.workdir {
        Some(workdir) => task_dir.work().join(workdir),
        None => task_dir.work(),
    }
}

/// Time that the command may run without contact: shorter than the time after which the server reruns the job, so that
/// it is killed before.
pub(crate) fn contact_max(lost: OnAgentLost) -> Option<Duration> {
    match lost {
        OnAgentLost::Wait => None,
        OnAgentLost::RerunAfter(secs) => {
            let after = Duration::from_secs(secs.into());
            let margin = (after / 4).clamp(Duration::from_secs(2), Duration::from_secs(30));
            Some(after.saturating_sub(margin))
        }
    }
}

/// The complete environment except the secrets. Of the agent's own environment it has `PATH` only.
fn environment(task_dir: &TaskDir, job_id: &str, work: &Work) -> Vec<(String, String)> {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let path = std::env::var("PATH").unwrap_or_else(|_| PATH.to_owned());
    let mut env = vec![
        ("PATH".to_owned(), path),
        ("HOME".to_owned(), text(task_dir.work())),
        ("TMPDIR".to_owned(), text(task_dir.tmp())),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ];
    env.extend(work.env.iter().map(|(name, value)| (name.clone(), value.clone())));
    // Last, so that a job definition cannot override them.
    let reserved = [
        (TASK_DIR_VARIABLE, text(task_dir.path())),
        ("TIDEMILL_TASK_ID", task_dir.task_id().to_owned()),
        ("TIDEMILL_JOB_ID", job_id.to_owned()),
        ("TIDEMILL_JOB", work.job.clone()),
        ("TIDEMILL_RUN_ID", work.run_id.to_string()),
        ("TIDEMILL_PROJECT", work.project_id.clone()),
        ("TIDEMILL_WORKSPACE", work.workspace.clone()),
        ("TIDEMILL_ATTEMPT", work.attempt.to_string()),
    ];
    env.extend(reserved.map(|(name, value)| (name.to_owned(), value)));
    env.extend(work.traceparent.clone().map(|parent| ("TRACEPARENT".to_owned(), parent)));
    env
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn limits_of(job: serde_json::Value) -> Limits {
        let mut work = serde_json::json!({
            "run_id": "run-0192f5a0-0000-7000-8000-000000000000", "project_id": "p", "workspace": "main",
            "job": "job", "attempt": 1, "run": "true",
        });
        work["limits"] = job;
        let work: Work = serde_json::from_value(work).unwrap();
        let task_dir = TaskDir::new(Path::new("/agent/tasks").to_owned(), "job-001");
        spec(&task_dir, "job", &work, Duration::from_secs(5), Isolation::default()).limits
    }

    #[test]
    fn command_without_limits_has_the_default_ones() {
        let limits = limits_of(serde_json::json!({}));
        assert_eq!(limits.processes, Some(4096));
        assert_eq!(limits.shared_memory_bytes, Some(1_073_741_824));
        assert_eq!(limits.core_bytes, Some(0));
        let rest = Limits { processes: None, shared_memory_bytes: None, core_bytes: None, ..limits };
        assert_eq!(rest, Limits::default());
    }

    #[test]
    fn limits_of_a_job_replace_the_default_ones() {
        let limits = limits_of(serde_json::json!({"processes": 40, "memory_bytes": 5_000_000_000_u64}));
        assert_eq!(limits.processes, Some(40));
        assert_eq!(limits.memory_bytes, Some(5_000_000_000));
        assert_eq!(limits.shared_memory_bytes, limits.memory_bytes);
    }

    #[test]
    fn contact_limit_is_shorter_than_the_rerun_delay() {
        assert_eq!(contact_max(OnAgentLost::Wait), None);
        for secs in [10_u32, 11, 60, 300, 86_400] {
            let lives = contact_max(OnAgentLost::RerunAfter(secs)).unwrap();
            let left = Duration::from_secs(secs.into()).checked_sub(lives).unwrap();
            assert!(left >= Duration::from_secs(2) && left <= Duration::from_secs(30), "{secs} {left:?}");
        }
    }
}
