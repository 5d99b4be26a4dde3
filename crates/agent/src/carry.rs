//! One task from its order to its end, step by step.
//!
//! Before each step it is derived anew from the disk and the process table how far the task is. A step may be
//! broken off anywhere, by a kill or by a wish to stop: the next one finds out what is left to do.

use crate::executor::{Executor, Fault, Launch};
use crate::order::{self, Asked, Order};
use crate::panics::{self, Panicked, caught};
use crate::place::{Manifest, Place, Stop};
use crate::run::{Agent, directory_gone};
use crate::stage::{Reached, reached};
use crate::wait::Backoff;
use crate::{disk, inputs, launch, logs};
use serde_json::Value;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::task::{Stage, TaskResult};
use tidemill_supervisor::{Moment, Seen};
use tidemill_wire::agents::Work;
use tokio::sync::watch;
use tracing::{error, warn};

/// How often a step may fail for reasons of this machine before the task does.
const FAILURES_MAX: u32 = 5;
/// How long it counts that the server said that the task is ours.
const FRESH: Duration = Duration::from_secs(5);
/// How long a command may run before the server hears that it does: of one that is over sooner it hears the end, and a
/// call that is broken off costs it more than one that is answered.
const NEWS: Duration = Duration::from_millis(100);
/// How long a supervisor may take to begin, between two looks at it.
const BEGIN: Duration = Duration::from_millis(10);
/// How long a signal may have stopped a supervisor before its command is ended, and again before it is killed. Shorter
/// than the shortest time after which a job may run elsewhere.
const STOPPED_MAX: Duration = Duration::from_secs(2);
/// How often to look whether a signal has stopped a supervisor.
const LOOK_STOPPED: Duration = Duration::from_millis(500);
/// How much longer than its grace a command may take to end before its supervisor is done away with.
const STUCK: Duration = Duration::from_secs(10);

/// What follows a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another step.
    Again,
    /// Nothing: the task is gone.
    Gone,
}

/// Why a step came to nothing.
#[derive(Debug, thiserror::Error)]
enum Hindrance {
    /// Something is wrong with this machine: the disk is full, perhaps.
    #[error("{0}")]
    Machine(#[from] io::Error),
    /// Something is wrong with us.
    #[error("{0}")]
    Agent(#[from] Panicked),
}

/// A task that is carried out.
pub(crate) struct Task<'a, E> {
    pub(crate) agent: &'a Agent<E>,
    pub(crate) place: Place,
    pub(crate) order: Order,
    /// The order as it came, if it did.
    raw: Option<Value>,
    /// What came of the task, once that is known. The disk may not have taken it.
    pub(crate) manifest: Option<Manifest>,
    /// The secrets that this process gave to the command.
    pub(crate) given: Vec<(String, String)>,
    wish: watch::Receiver<Option<Stop>>,
    /// When this process last heard that the task is ours, taken before it asked.
    accepted: Option<Moment>,
    /// Whether this process started the command.
    is_launched: bool,
}

/// Carries a task to its end.
pub(crate) async fn carry<E: Executor>(
    agent: Arc<Agent<E>>,
    id: String,
    order: Result<Value, Fault>,
    wish: watch::Receiver<Option<Stop>>,
) {
    let place = agent.home.place(&id);
    let (order, raw) = match order {
        Ok(raw) => {
            let read = panics::call(|| order::read(&raw));
            (read.unwrap_or_else(|panicked| order::unread(&raw, &panicked)), Some(raw))
        }
        Err(fault) => {
            warn!(task.id = %id, "task {id} cannot be carried out: {fault}");
            (order::unfit(&Value::Null, fault), None)
        }
    };
    let mut task = Task {
        agent: &agent,
        place,
        order,
        raw,
        manifest: None,
        given: Vec::new(),
        wish,
        accepted: None,
        is_launched: false,
    };
    let mut backoff = Backoff::new();
    let mut failures = 0;
    loop {
        match task.guarded_step().await {
            Ok(Next::Again) => {
                failures = 0;
                backoff.reset();
            }
            Ok(Next::Gone) => break,
            Err(hindrance) => {
                failures += 1;
                if failures >= FAILURES_MAX || task.ends_with(&hindrance) {
                    task.give_up(&hindrance).await;
                }
                tokio::time::sleep(backoff.next()).await;
            }
        }
    }
    agent.let_go(&id);
}

impl<E: Executor> Task<'_, E> {
    /// A step; where it came to nothing, the log says so.
    async fn guarded_step(&mut self) -> Result<Next, Hindrance> {
        let stepped = caught(self.step()).await;
        let id = self.place.task_id();
        match stepped {
            Ok(Ok(next)) => Ok(next),
            Ok(Err(failed)) => {
                let shown = self.mask().unwrap_or_default().hide(&failed.to_string());
                warn!(task.id = %id, "a step of task {id} failed: {shown}");
                Err(failed.into())
            }
            Err(panicked) => {
                error!(task.id = %id, "a step of task {id} broke off: {panicked}");
                Err(panicked.into())
            }
        }
    }

    /// Whether a hindrance is the end of the task at once: what broke off here would break off again, and another
    /// agent may do better. What is over already is still handed in, and what is to be stopped is still stopped.
    fn ends_with(&self, hindrance: &Hindrance) -> bool {
        let is_over = self.manifest.is_some() || matches!(self.place.manifest(), Ok(Some(_)));
        matches!(hindrance, Hindrance::Agent(_)) && !is_over && !matches!(self.order.asked, Asked::Cancel(_))
    }

    async fn step(&mut self) -> io::Result<Next> {
        self.place.reopen();
        let reached = self.reached()?;
        if reached == Reached::Finalized {
            return self.hand_in().await;
        }
        // A task that stops another is not stopped, but may be over.
        if let Asked::Cancel(target) = self.order.asked.clone() {
            return self.cancel(&target).await;
        }
        match self.wanted_stop() {
            // What has ended by itself is brought to its end.
            Some(Stop::Shutdown) if matches!(reached, Reached::Executed(_)) => {}
            Some(stop) => return self.stop(stop).await,
            None => {}
        }
        let work = match &self.order.asked {
            Asked::Run(work) => work.clone(),
            Asked::Impossible(fault) => {
                let fault = fault.clone();
                // An order that was good once may have been begun.
                self.end_command().await?;
                self.end_remains().await?;
                return Ok(self.fail(fault));
            }
            Asked::Cancel(_) => return Ok(Next::Again),
        };
        match reached {
            Reached::Ordered | Reached::Preparing => self.prepare(&work).await,
            Reached::Prepared => self.start(&work).await,
            Reached::Executing if !self.place.is_intact() => self.lose_directory().await,
            Reached::Executing => self.watch().await,
            Reached::Executed(exit) => self.finish(&work, &exit).await,
            Reached::Lost => self.lose().await,
            Reached::Finalized => Ok(Next::Again),
        }
    }

    fn reached(&self) -> io::Result<Reached> {
        if self.manifest.is_some() {
            return Ok(Reached::Finalized);
        }
        Ok(reached(&self.place.facts(&self.agent.executor)?))
    }

    /// Why the command is not to run, if it is not. That the server is done with it outweighs everything.
    pub(crate) fn wanted_stop(&self) -> Option<Stop> {
        let wish = *self.wish.borrow();
        match wish {
            Some(Stop::Over) => wish,
            // Where the disk cannot be read, the wish counts.
            Some(Stop::Cancelled | Stop::Shutdown) | None => self.place.stop().unwrap_or_default().or(wish),
        }
    }

    /// Wants the task to stop because the server has no use for it any more.
    pub(crate) fn note_over(&self) {
        let id = self.place.task_id();
        if let Err(error) = self.place.note_stop(Stop::Over) {
            warn!(task.id = %id, "the stop of task {id} could not be noted on the disk: {error}");
        }
        self.agent.want_stop(id, Stop::Over);
    }

    /// Waits until something else is wanted of the task.
    pub(crate) async fn other_wish(&mut self) {
        if self.wish.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Makes the directory, once the server has said that the task is ours.
    async fn prepare(&mut self, work: &Work) -> io::Result<Next> {
        if !self.is_ours(Stage::Preparing).await? {
            return Ok(Next::Again);
        }
        // A command would fail on a full disk, and fill it again where it does not.
        let agent = self.agent;
        if disk::full(&agent.home.tasks_dir()).is_some() {
            tokio::select! {
                () = agent.make_room() => {}
                () = self.other_wish() => return Ok(Next::Again),
            }
            if disk::full(&agent.home.tasks_dir()).is_some() {
                return Ok(self.fail(Fault::passing("the command was not started")));
            }
        }
        // The directory may have gone since the order was kept: nothing was started, so it is made again.
        if let Some(raw) = self.raw.as_ref().filter(|_| !matches!(self.place.order(), Ok(Some(_)))) {
            self.place.write_order(raw)?;
        }
        self.place.note_taken()?;
        self.agent.executor.prepare(&self.place.dir())?;
        let (agent, place) = (self.agent, self.place.clone());
        let brought = tokio::select! {
            brought = inputs::bring(&agent.home, agent.store.as_ref(), &place, work) => brought,
            () = self.other_wish() => return Ok(Next::Again),
        };
        match brought {
            Ok(()) => self.place.note_prepared()?,
            Err(fault) => return Ok(self.fail(fault)),
        }
        Ok(Next::Again)
    }

    /// Starts the command, once this very process has heard that the task is ours.
    async fn start(&mut self, work: &Work) -> io::Result<Next> {
        let dir = self.place.dir();
        if self.agent.executor.look(&dir)? != Seen::Nothing {
            // Its supervisor is about to begin.
            tokio::time::sleep(BEGIN).await;
            return Ok(Next::Again);
        }
        if self.is_launched {
            return self.await_begin().await;
        }
        let is_fresh = self.accepted.is_some_and(|at| at.until(Moment::now()) < FRESH);
        if !is_fresh && !self.is_ours(Stage::Prepared).await? {
            return Ok(Next::Again);
        }
        let Some(contact) = self.accepted else { return Ok(Next::Again) };
        let secrets = match self.secrets(&work.secrets) {
            Ok(secrets) => secrets,
            Err(problem) => return Ok(self.fail(Fault::here(problem))),
        };
        self.given.clone_from(&secrets);
        let spec = launch::spec(&self.place, &self.order.job_id, work, self.agent.settings.grace);
        self.is_launched = true;
        match self.agent.executor.start(&dir, Launch { spec, secrets, contact }).await {
            Ok(()) => Ok(Next::Again),
            Err(fault) => {
                // Whatever came of it: it must not begin after we said that it did not.
                self.agent.executor.forbid(&dir)?;
                if self.agent.executor.look(&dir)? == Seen::Nothing {
                    Ok(self.fail(fault))
                } else {
                    Ok(Next::Again)
                }
            }
        }
    }

    /// Waits for a supervisor that was started to begin.
    async fn await_begin(&mut self) -> io::Result<Next> {
        let dir = self.place.dir();
        tokio::select! {
            () = self.agent.executor.news(&dir) => {}
            () = tokio::time::sleep(BEGIN) => return Ok(Next::Again),
            () = self.other_wish() => return Ok(Next::Again),
        }
        // It is gone: it began and is over, or it never will.
        self.agent.executor.forbid(&dir)?;
        if self.agent.executor.look(&dir)? == Seen::Nothing {
            let complaints = tidemill_supervisor::Lasting::new(&dir).complaints(500);
            return Ok(self.fail(Fault::passing(format!("the supervisor did not begin: {complaints}"))));
        }
        Ok(Next::Again)
    }

    /// Follows the command: its log is shipped, and the server is told that it runs.
    async fn watch(&mut self) -> io::Result<Next> {
        let (agent, place) = (self.agent, self.place.clone());
        let dir = place.dir();
        let ended = async {
            while matches!(agent.executor.look(&dir), Ok(Seen::Alive { .. })) && place.is_intact() {
                agent.executor.news(&dir).await;
                place.reopen();
            }
        };
        let stopped = until_stopped(agent, &dir);
        let unwanted = async {
            tokio::time::sleep(NEWS).await;
            until_unwanted(agent, &place, Stage::Executing).await;
        };
        tokio::select! {
            () = ended => {}
            () = self.other_wish() => {}
            () = logs::ship_on(agent, &place) => {}
            () = unwanted => self.note_over(),
            () = stopped => {
                self.end_command().await?;
                let message = "a signal (SIGSTOP) stopped the supervisor of the command, which was killed for it";
                return Ok(self.fail(Fault::passing(message)));
            }
        }
        Ok(Next::Again)
    }

    /// The directory went while the command runs: nothing that it leaves can be collected, so it is ended.
    async fn lose_directory(&mut self) -> io::Result<Next> {
        self.end_command().await?;
        let fault = directory_gone(&self.place);
        Ok(self.fail(fault))
    }

    /// The supervisor is gone and told nothing: what is left is killed before anything is said.
    async fn lose(&mut self) -> io::Result<Next> {
        self.end_remains().await?;
        if !self.place.is_intact() {
            let fault = directory_gone(&self.place);
            return Ok(self.fail(fault));
        }
        let message = "the supervisor of the command died, and with it what is known of its end";
        Ok(self.fail(Fault::passing(message)))
    }

    /// Stops the command, and says what came of it once nothing runs.
    async fn stop(&mut self, stop: Stop) -> io::Result<Next> {
        self.end_command().await?;
        match stop {
            Stop::Over => {
                self.remove();
                Ok(Next::Gone)
            }
            Stop::Cancelled => Ok(self.conclude(TaskResult::Stopped, Vec::new())),
            Stop::Shutdown if matches!(self.reached()?, Reached::Executed(_)) => Ok(Next::Again),
            Stop::Shutdown => Ok(self.fail(Fault::passing("its agent was told to end"))),
        }
    }

    /// Makes sure that nothing of the command runs, and that nothing ever will.
    async fn end_command(&mut self) -> io::Result<()> {
        let (executor, dir) = (&self.agent.executor, self.place.dir());
        if let Err(error) = executor.forbid(&dir) {
            // A supervisor that has not begun is known by its process, and is ended as well.
            warn!("no note could be left in {} that nothing starts there: {error}", dir.display());
        }
        let grace = self.agent.settings.grace;
        let asked = tokio::time::Instant::now();
        let mut is_asked = false;
        loop {
            match executor.look(&dir)? {
                Seen::Nothing | Seen::Exited(_) => return Ok(()),
                Seen::Lost => return self.end_remains().await,
                Seen::Alive { .. } if asked.elapsed() > grace + STUCK => executor.kill(&dir)?,
                // It was continued when it was asked, and has been stopped again.
                Seen::Alive { .. } if asked.elapsed() > STOPPED_MAX && executor.is_stopped(&dir) => {
                    executor.kill(&dir)?;
                }
                Seen::Alive { started } => {
                    // A supervisor that is about to begin may not listen yet; what is asked twice is asked once.
                    if !is_asked {
                        executor.stop(&dir, grace)?;
                        is_asked = started;
                    }
                }
            }
            tokio::select! {
                () = executor.news(&dir) => {}
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
    }

    async fn end_remains(&self) -> io::Result<()> {
        let mut backoff = Backoff::up_to(Duration::from_secs(1));
        while !self.agent.executor.clean(&self.place.dir())? {
            tokio::time::sleep(backoff.next()).await;
        }
        Ok(())
    }

    /// Gives a task up that cannot be carried on here.
    async fn give_up(&mut self, hindrance: &Hindrance) {
        let fault = Fault::passing(format!("the agent could not go on with it: {hindrance}"));
        let ending = async {
            // Nothing is said before it is sure that nothing runs.
            self.end_command().await?;
            io::Result::Ok(self.fail(fault))
        };
        let given_up = caught(ending).await.map_err(Hindrance::from);
        // Where not even this can be done, the next round tries again.
        if let Err(hindrance) = given_up.and_then(|ended| ended.map_err(Hindrance::from)) {
            let id = self.place.task_id();
            error!(task.id = %id, "task {id} could not be given up, which is tried again: {hindrance}");
        }
    }

    /// Whether the server says that the task is ours; where it is not, the task is to be stopped.
    async fn is_ours(&mut self, stage: Stage) -> io::Result<bool> {
        let (agent, place) = (self.agent, self.place.clone());
        let accepted = tokio::select! {
            accepted = crate::report::stage(agent, place.task_id(), stage) => accepted,
            () = self.other_wish() => return Ok(false),
        };
        match accepted {
            Some(at) => self.accepted = Some(at),
            None => self.note_over(),
        }
        Ok(accepted.is_some())
    }
}

/// Comes back when a signal has kept a supervisor stopped for too long.
async fn until_stopped<E: Executor>(agent: &Agent<E>, dir: &Path) {
    let mut since = None;
    loop {
        tokio::time::sleep(LOOK_STOPPED).await;
        if !agent.executor.is_stopped(dir) {
            since = None;
        } else if since.get_or_insert_with(tokio::time::Instant::now).elapsed() > STOPPED_MAX {
            return;
        }
    }
}

/// Says how far the task is, and comes back only if the server does not want it any more.
pub(crate) async fn until_unwanted<E: Executor>(agent: &Agent<E>, place: &Place, stage: Stage) {
    if crate::report::stage(agent, place.task_id(), stage).await.is_some() {
        std::future::pending::<()>().await;
    }
}
