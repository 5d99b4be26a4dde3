//! Floor of the jobs of graphs: the same supervisor and command in a loop without a server.
//!
//! The minimal cost of a job: a directory, a supervisor, a launch step, a shell without a command, the record of its
//! exit, and the removal of the directory.

use crate::Plan;
use crate::report::{Line, Report};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_supervisor::{BootInstant, CommandState, DetachedCommand, DetachedSpec, End, Isolation, Limits};

/// Concurrent commands, as many as the capacity of the measured agent.
pub(crate) const CONCURRENCY: usize = 8;
/// Arguments that start this program as a supervisor.
const SUPERVISOR: [&str; 2] = ["supervise", "lasting"];

/// Measures the floor alone.
pub(crate) async fn all(plan: &Plan, report: &mut Report) -> Result<()> {
    let mut rates = Vec::new();
    for _ in 0..plan.pairs {
        rates.push(rate(CONCURRENCY, plan.time()).await?);
    }
    rates.sort_unstable_by(f64::total_cmp);
    let (min, middle, max) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
    report.add(Line {
        what: format!("commands under supervisors, {CONCURRENCY} at once, without a server"),
        ours: format!("{middle:.0}/s"),
        figure: format!("{min:.0} to {max:.0}/s"),
        values: [middle, min, max],
        ..Line::default()
    });
    Ok(())
}

/// Measures how many empty commands are executed per second.
pub(crate) async fn rate(concurrency: usize, time: Duration) -> Result<f64> {
    let dir = tempfile::tempdir().context("could not create a directory")?;
    let number = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut loops = tokio::task::JoinSet::new();
    for _ in 0..concurrency {
        let (dir, number) = (dir.path().to_owned(), Arc::clone(&number));
        loops.spawn(async move {
            let mut done = 0_u32;
            while started.elapsed() < time {
                execute(&dir.join(number.fetch_add(1, Ordering::Relaxed).to_string())).await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(ended) = loops.join_next().await {
        done += ended??;
    }
    Ok(f64::from(done) / started.elapsed().as_secs_f64())
}

async fn execute(dir: &Path) -> Result<()> {
    let work = dir.join("work");
    fs::create_dir_all(&work)?;
    let spec = DetachedSpec {
        command: ["sh", "-c", ":"].map(str::to_owned).into(),
        env: vec![("PATH".to_owned(), std::env::var("PATH").unwrap_or_default())],
        dir: work,
        limits: Limits::default(),
        timeout: None,
        grace: Duration::from_secs(10),
        contact_max: None,
        line_bytes_max: 8 * 1024,
        log_bytes_max: 1024 * 1024,
        isolation: Isolation::default(),
    };
    let command = DetachedCommand::new(dir);
    let own = Path::new("/proc/self/exe");
    let mut supervisor = command.start(own, &SUPERVISOR, &spec, Vec::new(), BootInstant::now()).await?;
    supervisor.wait().await?;
    let CommandState::Exited(exit) = command.state()? else {
        anyhow::bail!("the supervisor recorded no exit: {}", command.supervisor_log(500));
    };
    ensure!(exit.end == End::Code(0), "the command ended with {}", exit.end);
    fs::remove_dir_all(dir)?;
    Ok(())
}
