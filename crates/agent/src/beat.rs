//! Signs of life: what the agent holds, and what it may forget.

use crate::door::Trouble;
use crate::executor::Executor;
use crate::order;
use crate::panics;
use crate::place::Stop;
use crate::run::{Agent, End, Error};
use crate::settings::Ending;
use crate::stage::reached;
use crate::wait::Backoff;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemill_core::limits;
use tidemill_core::task::Stage;
use tidemill_supervisor::Moment;
use tidemill_wire::agents::Holding;
use tracing::{error, info, warn};

/// Beats for ever.
pub(crate) async fn beat<E: Executor>(agent: Arc<Agent<E>>, every: Duration) {
    let mut backoff = Backoff::up_to(every);
    let mut is_away = false;
    loop {
        let holding = agent.holding();
        match agent.door.beat(holding, agent.settings.ending == Ending::Drained).await {
            Ok((beaten, at)) => {
                if std::mem::take(&mut is_away) {
                    info!("the server answers again");
                }
                backoff.reset();
                agent.is_draining.store(beaten.draining, Ordering::Relaxed);
                agent.touch(at, &beaten.over);
                for task in &beaten.over {
                    apart(task, || agent.forget(task));
                }
                agent.answered.send_modify(|count| *count += 1);
                if let Err(error) = agent.home.restore() {
                    warn!("the directory of the agent is gone, and cannot be made again: {error}");
                }
                agent.end_if_drained();
                tokio::time::sleep(every).await;
            }
            Err(Trouble::Unknown(words)) => {
                // The server forgot us, or never knew: say again who we are.
                warn!("the server does not know this agent: {words}");
                match agent.register().await {
                    Ok(_) => {}
                    Err(Error::Superseded(words)) => agent.end(End::Superseded(words)),
                    Err(error) => warn!("{error}"),
                }
                tokio::time::sleep(backoff.next()).await;
            }
            Err(trouble) => {
                if agent.heed(&trouble) {
                    return;
                }
                if !std::mem::replace(&mut is_away, true) {
                    warn!("the server does not answer; commands go on: {}", trouble.words());
                }
                tokio::time::sleep(backoff.next()).await;
            }
        }
    }
}

/// Looks at one task: what breaks off there must not cost the others the sign of life.
fn apart<T>(task: &str, look: impl FnOnce() -> T) -> Option<T> {
    let looked = panics::call(look);
    if let Err(panicked) = &looked {
        error!(task.id = %task, "a look at task {task} broke off: {panicked}");
    }
    looked.ok()
}

impl<E: Executor> Agent<E> {
    /// Everything that is on the disk, and how far it is.
    fn holding(&self) -> Vec<Holding> {
        let mut tasks: BTreeSet<String> = self.have().into_iter().collect();
        match self.home.tasks() {
            Ok(kept) => tasks.extend(kept),
            Err(error) => warn!("the directory of the agent cannot be read: {error}"),
        }
        let tasks = tasks.into_iter().take(limits::AGENT_TASKS_MAX);
        tasks
            .map(|task_id| {
                let facts = apart(&task_id, || self.home.place(&task_id).facts(&self.executor).ok());
                let stage = match self.is_concluded(&task_id) {
                    Some(true) => Some(Stage::Finalized),
                    Some(false) | None => facts.flatten().and_then(|facts| reached(&facts).stage()),
                };
                Holding { task_id, stage: stage.map(Stage::as_str).map(str::to_owned) }
            })
            .collect()
    }

    /// Tells the commands that the server still counts on them.
    fn touch(&self, at: Moment, over: &[String]) {
        for task in self.have().iter().filter(|task| !over.contains(task)) {
            let told = apart(task, || self.executor.contact(&self.home.place(task).dir(), at));
            if let Some(Err(error)) = told {
                warn!(task.id = %task, "the command of task {task} could not be told of contact: {error}");
            }
        }
    }

    /// Forgets a task that is over for the server; a command that still runs is stopped first.
    fn forget(self: &Arc<Self>, task: &str) {
        if !order::is_id(task) {
            return;
        }
        let place = self.home.place(task);
        if let Some(is_cancel) = self.is_cancel(task) {
            // A directory that is gone is not made again for this; the task knows it without the disk.
            if !is_cancel
                && place.is_intact()
                && let Err(error) = place.note_stop(Stop::Over)
            {
                warn!(task.id = %task, "the stop of task {task} could not be noted on the disk: {error}");
            }
            self.want_stop(task, Stop::Over);
        } else if place.exists()
            && let Err(error) = place.remove()
        {
            warn!(task.id = %task, "what is left of task {task} could not be removed: {error}");
        }
    }

    /// Ends an agent that was to end when it holds nothing.
    fn end_if_drained(&self) {
        let is_empty = self.home.tasks().is_ok_and(|tasks| tasks.is_empty());
        if self.settings.ending == Ending::Drained && is_empty && *self.polled.borrow() {
            self.end(End::Done);
        }
    }
}
