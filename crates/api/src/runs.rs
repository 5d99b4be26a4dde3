//! Runs.

mod reads;
mod verbs;

pub(crate) use reads::rows;

use crate::endpoint::{Allowed, Endpoint};
use http::Method;
use tidemill_core::artifact::Artifact;
use tidemill_core::event::Event;
use tidemill_core::run::{Queued, Retried, Run};
use tidemill_core::worker::Held;
use tidemill_wire::Page;
use tidemill_wire::runs::{
    Append, Appended, ArtifactAnswer, Cancel, CancelAnswer, Fail, FailAnswer, Finish, FinishMany, Hold,
    ListArtifacts, ListEvents, ListFailures, ListRuns, ListTail, ListWaiting, NewArtifact, NewRun, Outcome,
    Outcomes, RunDetail, Tail, Why,
};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = for_people();
    endpoints.extend(for_workers());
    endpoints
}

fn for_people() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/runs", Allowed::Operate, verbs::queue)
            .says("runs", "Queue a run")
            .body::<NewRun>()
            .keyed()
            .answers::<Queued>(201, "The run was queued")
            .answers::<Queued>(200, "The key was used before for the same request: that run"),
        Endpoint::new(Method::GET, "/v1/runs", Allowed::Look, reads::list)
            .says("runs", "List runs, the newest first")
            .query::<ListRuns>()
            .answers::<Page<Run>>(200, "One page of runs"),
        Endpoint::new(Method::GET, "/v1/failures", Allowed::Look, reads::failures)
            .says("runs", "List failed runs that nothing made good, neither another try nor a newer sync")
            .query::<ListFailures>()
            .answers::<Page<Run>>(200, "One page of runs; it may have few of them and go on all the same"),
        Endpoint::new(Method::GET, "/v1/waiting", Allowed::Look, reads::waiting)
            .says("runs", "List runs that wait, the oldest first")
            .query::<ListWaiting>()
            .answers::<Page<Run>>(200, "One page of runs"),
        Endpoint::new(Method::GET, "/v1/runs/{run}", Allowed::LookOrWork, reads::one)
            .says("runs", "Show a run")
            .answers::<Run>(200, "The run"),
        Endpoint::new(Method::GET, "/v1/runs/{run}/detail", Allowed::Look, reads::detail)
            .says("runs", "Show a run with its tries, its artifacts and why it is where it is")
            .answers::<RunDetail>(200, "The run and what belongs to it"),
        Endpoint::new(Method::GET, "/v1/runs/{run}/why", Allowed::Look, reads::why)
            .says("runs", "Say why a run is where it is")
            .answers::<Why>(200, "The one reason"),
        Endpoint::new(Method::GET, "/v1/runs/{run}/tries", Allowed::Look, reads::tries)
            .says("runs", "List every try of a run's request, the first one first")
            .answers::<Page<Run>>(200, "The tries"),
        Endpoint::new(Method::POST, "/v1/runs/{run}/cancel", Allowed::Operate, verbs::cancel)
            .says("runs", "Cancel a run that waits, or ask the worker of a held one to stop")
            .body::<Cancel>()
            .answers::<CancelAnswer>(200, "What was done"),
        Endpoint::new(Method::POST, "/v1/runs/{run}/fail", Allowed::Operate, verbs::fail)
            .says("runs", "Fail a stalled run, with or without a successor")
            .body::<Fail>()
            .answers::<FailAnswer>(200, "The run is failed, by this call or an earlier one"),
        Endpoint::new(Method::POST, "/v1/runs/{run}/retry", Allowed::Operate, verbs::retry)
            .says("runs", "Queue another try of a run that failed or was cancelled")
            .answers::<Retried>(200, "The next try; asked twice, it is one"),
        Endpoint::new(Method::GET, "/v1/runs/{run}/artifacts", Allowed::Look, reads::artifacts)
            .says("runs", "List what a run left, the oldest first")
            .query::<ListArtifacts>()
            .answers::<Page<Artifact>>(200, "One page of artifacts"),
        Endpoint::new(Method::GET, "/v1/runs/{run}/events", Allowed::LookOrWork, reads::events)
            .says("runs", "Read a run's record")
            .query::<ListEvents>()
            .answers::<Page<Event>>(200, "One page of events"),
        Endpoint::new(Method::GET, "/v1/runs/{run}/tail", Allowed::Look, reads::tail)
            .says("runs", "Read a run's record from its end, narrowed by level and text")
            .query::<ListTail>()
            .answers::<Tail>(200, "Events in their order, and where to read on towards the beginning"),
    ]
}

fn for_workers() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/runs/{run}/start", Allowed::Work, verbs::start)
            .says("work", "Start a claimed run")
            .body::<Hold>()
            .answers::<Outcome>(200, "It runs"),
        Endpoint::new(Method::POST, "/v1/runs/{run}/events", Allowed::Work, verbs::append)
            .says("work", "Append events to a run's record")
            .body::<Append>()
            .answers::<Appended>(200, "The id of each event"),
        Endpoint::new(Method::POST, "/v1/runs/{run}/heartbeat", Allowed::Work, verbs::heartbeat)
            .says("work", "Renew a run's lease")
            .body::<Hold>()
            .answers::<Held>(200, "Until when the lease lasts, and whether the run is to stop"),
        Endpoint::new(Method::POST, "/v1/runs/{run}/finish", Allowed::Work, verbs::finish)
            .says("work", "Finish a run")
            .body::<Finish>()
            .answers::<Outcome>(200, "It is finished, now or by this call before"),
        Endpoint::new(Method::POST, "/v1/finishes", Allowed::Work, verbs::finish_many)
            .says("work", "Finish several runs")
            .body::<FinishMany>()
            .answers::<Outcomes>(200, "What became of each"),
        Endpoint::new(Method::POST, "/v1/runs/{run}/artifacts", Allowed::Work, verbs::add_artifact)
            .says("work", "Record an artifact of a run")
            .body::<NewArtifact>()
            .answers::<ArtifactAnswer>(201, "It is recorded; the same one again gives the same id"),
    ]
}
