//! From an order to a command: its words, its clean environment and its limits.

use crate::executor::PLACE_VARIABLE;
use crate::place::Place;
use std::path::PathBuf;
use std::time::Duration;
use tidemill_core::graph::definition::{Command, OnAgentLost};
use tidemill_core::limits;
use tidemill_supervisor::{LastingSpec, Limits};
use tidemill_wire::agents::Work;

/// Where programs are found if nobody says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Bytes of output that make one line at most.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// What is to be run for an order.
pub(crate) fn spec(place: &Place, job_id: &str, work: &Work, grace: Duration) -> LastingSpec {
    let command = match &work.run {
        Command::Shell(line) => vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
        Command::Words(words) => words.clone(),
    };
    LastingSpec {
        command,
        env: environment(place, job_id, work),
        dir: dir(place, work),
        limits: Limits {
            cpu_secs: work.limits.cpu_secs.map(u64::from),
            memory_bytes: work.limits.memory_bytes,
            file_bytes: work.limits.output_bytes,
            // What a crashed command had in its memory may be secret.
            core_bytes: Some(0),
        },
        timeout: work.timeout_secs.map(|secs| Duration::from_secs(secs.into())),
        grace,
        contact_max: contact_max(work.on_agent_lost),
        line_bytes_max: LINE_BYTES_MAX,
        log_bytes_max: limits::TASK_LOG_BYTES_MAX,
    }
}

fn dir(place: &Place, work: &Work) -> PathBuf {
    match &work.workdir {
        Some(workdir) => place.work().join(workdir),
        None => place.work(),
    }
}

/// How long the command may live without contact: shorter than what the server waits, by enough for the kill.
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

/// The whole environment but for the secrets: nothing of the agent's own, except where programs are.
fn environment(place: &Place, job_id: &str, work: &Work) -> Vec<(String, String)> {
    let shown = |path: PathBuf| path.to_string_lossy().into_owned();
    let path = std::env::var("PATH").unwrap_or_else(|_| PATH.to_owned());
    let mut env = vec![
        ("PATH".to_owned(), path),
        ("HOME".to_owned(), shown(place.work())),
        ("TMPDIR".to_owned(), shown(place.tmp())),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ];
    env.extend(work.env.iter().map(|(name, value)| (name.clone(), value.clone())));
    // These say what is so, whatever a definition says.
    let ours = [
        (PLACE_VARIABLE, shown(place.dir())),
        ("TIDEMILL_TASK_ID", place.task_id().to_owned()),
        ("TIDEMILL_JOB_ID", job_id.to_owned()),
        ("TIDEMILL_JOB", work.job.clone()),
        ("TIDEMILL_RUN_ID", work.run_id.to_string()),
        ("TIDEMILL_PROJECT", work.project_id.clone()),
        ("TIDEMILL_WORKSPACE", work.workspace.clone()),
        ("TIDEMILL_ATTEMPT", work.attempt.to_string()),
    ];
    env.extend(ours.map(|(name, value)| (name.to_owned(), value)));
    env.extend(work.traceparent.clone().map(|parent| ("TRACEPARENT".to_owned(), parent)));
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_dies_before_its_job_is_run_elsewhere() {
        assert_eq!(contact_max(OnAgentLost::Wait), None);
        for secs in [10_u32, 11, 60, 300, 86_400] {
            let lives = contact_max(OnAgentLost::RerunAfter(secs)).unwrap();
            let left = Duration::from_secs(secs.into()).checked_sub(lives).unwrap();
            assert!(left >= Duration::from_secs(2) && left <= Duration::from_secs(30), "{secs} {left:?}");
        }
    }
}
