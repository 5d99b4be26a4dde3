//! The floor of a graph's jobs: the same supervisor and the same command, in a loop without a server.
//!
//! A job cannot be cheaper than its command: a directory, a supervisor, a launch step, a shell that does
//! nothing, the record of its end, and the removal of the directory.

use crate::Plan;
use crate::report::{Line, Report};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_supervisor::{End, Lasting, LastingSpec, Limits, Moment, Seen};

/// Commands at once: the slots of the agent that is measured beside it.
pub(crate) const AT_ONCE: usize = 8;
/// The arguments with which this program is a supervisor.
const SUPERVISOR: [&str; 2] = ["supervise", "lasting"];

/// Measures the floor by itself.
pub(crate) async fn all(plan: &Plan, report: &mut Report) -> Result<()> {
    let mut rates = Vec::new();
    for _ in 0..plan.pairs {
        rates.push(rate(AT_ONCE, plan.time()).await?);
    }
    rates.sort_unstable_by(f64::total_cmp);
    let (least, middle, most) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
    report.add(Line {
        what: format!("commands under supervisors, {AT_ONCE} at once, no server"),
        ours: format!("{middle:.0}/s"),
        figure: format!("{least:.0} to {most:.0}/s"),
        values: [middle, least, most],
        ..Line::default()
    });
    Ok(())
}

/// How many commands that do nothing are carried out in a second, so many at once, for so long.
pub(crate) async fn rate(at_once: usize, time: Duration) -> Result<f64> {
    let dir = tempfile::tempdir().context("no directory for the commands")?;
    let number = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let mut loops = tokio::task::JoinSet::new();
    for _ in 0..at_once {
        let (dir, number) = (dir.path().to_owned(), Arc::clone(&number));
        loops.spawn(async move {
            let mut done = 0_u32;
            while begun.elapsed() < time {
                one(&dir.join(number.fetch_add(1, Ordering::Relaxed).to_string())).await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(ended) = loops.join_next().await {
        done += ended??;
    }
    Ok(f64::from(done) / begun.elapsed().as_secs_f64())
}

/// Carries one command out.
async fn one(dir: &Path) -> Result<()> {
    let work = dir.join("work");
    fs::create_dir_all(&work)?;
    let spec = LastingSpec {
        command: ["sh", "-c", ":"].map(str::to_owned).into(),
        env: vec![("PATH".to_owned(), std::env::var("PATH").unwrap_or_default())],
        dir: work,
        limits: Limits::default(),
        timeout: None,
        grace: Duration::from_secs(10),
        contact_max: None,
        line_bytes_max: 8 * 1024,
        log_bytes_max: 1024 * 1024,
    };
    let lasting = Lasting::new(dir);
    let own = Path::new("/proc/self/exe");
    let mut supervisor = lasting.start(own, &SUPERVISOR, &spec, Vec::new(), Moment::now()).await?;
    supervisor.wait().await?;
    let Seen::Exited(exit) = lasting.look()? else {
        anyhow::bail!("the supervisor told nothing: {}", lasting.complaints(500));
    };
    ensure!(exit.end == End::Code(0), "the command ended with {}", exit.end);
    fs::remove_dir_all(dir)?;
    Ok(())
}
