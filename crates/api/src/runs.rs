//! Runs: endpoints for people and for workers.

mod changes;
mod leases;
mod reads;

pub(crate) use leases::{ClaimCache, stored_request_id};
pub(crate) use reads::rows;

use crate::endpoint::{Endpoint, Permission};
use http::Method;
use tidemill_core::artifact::Artifact;
use tidemill_core::event::Event;
use tidemill_core::run::{QueueOutcome, RetryOutcome, Run};
use tidemill_core::worker::RunLease;
use tidemill_wire::Page;
use tidemill_wire::runs::{
    Append, AppendResponse, ArtifactResponse, Cancel, CancelResponse, Fail, FailResponse, Finish, FinishMany,
    Hold, ListArtifacts, ListEvents, ListFailures, ListRuns, ListTail, ListWaiting, NewArtifact, NewRun,
    NewRuns, Outcome, Outcomes, QueuedRuns, RunDetail, Tail, Why,
};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = for_people();
    endpoints.extend(for_workers());
    endpoints
}

fn for_people() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/runs", Permission::Operate, changes::queue)
            .describe("runs", "Queue a run")
            .body::<NewRun>()
            .keyed()
            .responds::<QueueOutcome>(201, "The run was queued")
            .responds::<QueueOutcome>(200, "The existing run of a repeated request with the same key"),
        Endpoint::new(Method::POST, "/v1/runs/batch", Permission::Operate, changes::queue_many)
            .describe("runs", "Queue up to 1,000 runs: all of them, or none if one request is refused")
            .body::<NewRuns>()
            .responds::<QueuedRuns>(
                201,
                "At least one run was queued; one outcome for each request, in order",
            )
            .responds::<QueuedRuns>(200, "The existing runs, if all requests are repeated"),
        Endpoint::new(Method::GET, "/v1/runs", Permission::Read, reads::list)
            .describe("runs", "List runs, newest first")
            .query::<ListRuns>()
            .responds::<Page<Run>>(200, "One page of runs"),
        Endpoint::new(Method::GET, "/v1/failures", Permission::Read, reads::failures)
            .describe("runs", "List failed runs that neither a retry nor a newer sync has superseded")
            .query::<ListFailures>()
            .responds::<Page<Run>>(200, "One page of runs; it may be short although more pages follow"),
        Endpoint::new(Method::GET, "/v1/waiting", Permission::Read, reads::waiting)
            .describe("runs", "List waiting runs, oldest first")
            .query::<ListWaiting>()
            .responds::<Page<Run>>(200, "One page of runs"),
        Endpoint::new(Method::GET, "/v1/runs/{run}", Permission::ReadOrWork, reads::one)
            .describe("runs", "Show a run")
            .responds::<Run>(200, "The run"),
        Endpoint::new(Method::GET, "/v1/runs/{run}/detail", Permission::Read, reads::detail)
            .describe("runs", "Show a run with its tries, its artifacts and the reason for its state")
            .responds::<RunDetail>(200, "The run with its details"),
        Endpoint::new(Method::GET, "/v1/runs/{run}/why", Permission::Read, reads::why)
            .describe("runs", "Explain why a run is in its current state")
            .responds::<Why>(200, "The reason"),
        Endpoint::new(Method::GET, "/v1/runs/{run}/tries", Permission::Read, reads::tries)
            .describe("runs", "List all tries of a run's request, first one first")
            .responds::<Page<Run>>(200, "The tries"),
        Endpoint::new(Method::POST, "/v1/runs/{run}/cancel", Permission::Operate, changes::cancel)
            .describe("runs", "Cancel a waiting run, or ask the worker of a held run to stop")
            .body::<Cancel>()
            .responds::<CancelResponse>(200, "The outcome of the cancellation"),
        Endpoint::new(Method::POST, "/v1/runs/{run}/fail", Permission::Operate, changes::fail)
            .describe("runs", "Fail a stalled run, with or without a retry")
            .body::<Fail>()
            .responds::<FailResponse>(200, "The run is failed, by this request or an earlier one"),
        Endpoint::new(Method::POST, "/v1/runs/{run}/retry", Permission::Operate, changes::retry)
            .describe("runs", "Queue a retry of a failed or cancelled run")
            .responds::<RetryOutcome>(200, "The retry; a repeated request returns the same one"),
        Endpoint::new(Method::GET, "/v1/runs/{run}/artifacts", Permission::Read, reads::artifacts)
            .describe("runs", "List the artifacts of a run, oldest first")
            .query::<ListArtifacts>()
            .responds::<Page<Artifact>>(200, "One page of artifacts"),
        Endpoint::new(Method::GET, "/v1/runs/{run}/events", Permission::ReadOrWork, reads::events)
            .describe("runs", "List the events of a run, oldest first")
            .query::<ListEvents>()
            .responds::<Page<Event>>(200, "One page of events"),
        Endpoint::new(Method::GET, "/v1/runs/{run}/tail", Permission::Read, reads::tail)
            .describe("runs", "List the last events of a run, filtered by level and text")
            .query::<ListTail>()
            .responds::<Tail>(200, "Events in order, and the position to continue at towards the beginning"),
    ]
}

fn for_workers() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/runs/{run}/start", Permission::Work, changes::start)
            .describe("work", "Start a claimed run")
            .body::<Hold>()
            .responds::<Outcome>(200, "The run is running"),
        Endpoint::new(Method::POST, "/v1/runs/{run}/events", Permission::Work, changes::append)
            .describe("work", "Append events to a run")
            .body::<Append>()
            .responds::<AppendResponse>(200, "The id of each event"),
        Endpoint::new(Method::POST, "/v1/runs/{run}/heartbeat", Permission::Work, changes::heartbeat)
            .describe("work", "Renew a run's lease")
            .body::<Hold>()
            .responds::<RunLease>(200, "The end of the lease, and whether the run must stop"),
        Endpoint::new(Method::POST, changes::FINISH_PATH, Permission::Work, changes::finish)
            .describe("work", "Finish a run")
            .body::<Finish>()
            .responds::<Outcome>(200, "The run is finished, by this request or an earlier identical one"),
        Endpoint::new(Method::POST, changes::FINISHES_PATH, Permission::Work, changes::finish_many)
            .describe("work", "Finish several runs")
            .body::<FinishMany>()
            .responds::<Outcomes>(200, "The outcome for each run"),
        Endpoint::new(Method::POST, "/v1/runs/{run}/artifacts", Permission::Work, changes::add_artifact)
            .describe("work", "Record an artifact of a run")
            .body::<NewArtifact>()
            .responds::<ArtifactResponse>(201, "The artifact; recording it again returns the same id"),
    ]
}
