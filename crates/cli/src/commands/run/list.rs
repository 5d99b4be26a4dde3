//! The command `tidemill run list` and its options.

use super::args::RunListArgs;
use super::show;
use crate::failure::Failure;
use crate::out::{Cell, Out};
use crate::requests;
use crate::times::{self, When};
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::Timestamp;
use tidemill_core::run::Run;
use tidemill_core::shell::quote;
use tidemill_wire::runs::ListRuns;

/// Column of the names, and of the kinds without names.
const NAME_COLUMN: usize = 2;

/// Converts the options into a request.
async fn list_request(client: &Client, args: RunListArgs) -> Result<ListRuns, Failure> {
    args.project.as_deref().map_or(Ok(()), requests::check_project)?;
    args.feed.as_deref().map_or(Ok(()), requests::check_feed)?;
    let is_relative = |when: &Option<When>| matches!(when, Some(When::In(_)));
    // A duration is relative to the clock of the server, which sets the queue times.
    let needs_now = is_relative(&args.since) || is_relative(&args.until);
    let now = if needs_now { client.info().await?.now } else { Timestamp::UNIX_EPOCH };
    Ok(ListRuns {
        project: args.project,
        env: args.env,
        status: args.status.or(args.state),
        lane: args.lane,
        kind: args.kind,
        feed: args.feed,
        since: args.since.map(|when| when.resolve_past(now)),
        until: args.until.map(|when| when.resolve_past(now)),
        id_prefix: args.id,
        sha_prefix: args.sha,
        ref_prefix: args.git_ref,
        name_prefix: args.name,
        after: args.before,
        limit: Some(args.limit),
    })
}

/// Builds the command that lists the next page with the same filters.
fn next_page_command(request: &ListRuns, last: &str) -> String {
    let time =
        |time: &Option<Timestamp>| time.map(|time| time.to_rfc3339_opts(chrono::SecondsFormat::Micros, true));
    let options = [
        ("--project", request.project.clone()),
        ("--env", request.env.clone()),
        ("--status", request.status.map(|status| status.to_string())),
        ("--lane", request.lane.map(|lane| lane.to_string())),
        ("--kind", request.kind.clone()),
        ("--feed", request.feed.clone()),
        ("--since", time(&request.since)),
        ("--until", time(&request.until)),
        ("--id", request.id_prefix.clone()),
        ("--sha", request.sha_prefix.clone()),
        ("--ref", request.ref_prefix.clone()),
        ("--name", request.name_prefix.clone()),
    ];
    let mut words = vec!["tidemill run list".to_owned()];
    words.extend(options.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", quote(&value?)))));
    words.push(format!("--before {}", quote(last)));
    words.join(" ")
}

pub(super) async fn list(client: &Client, args: RunListArgs, out: Out) -> Result<ExitCode, Failure> {
    let request = list_request(client, args).await?;
    let page = client.runs(&request).await?;
    let runs = page.items;
    if out.is_json() {
        out.print_json(&runs.iter().map(show::run_json).collect::<Vec<_>>());
        return Ok(ExitCode::SUCCESS);
    }
    if runs.is_empty() {
        out.inform("no runs match; queue one with `tidemill run queue --project PROJECT --env ENV`");
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let mut header = vec!["RUN", "STATE", "ENVIRONMENT", "TRY", "QUEUED", "TOOK", "WORKER", "REF"];
    let mut rows: Vec<Vec<Cell>> = runs.iter().map(|run| row(run, now)).collect();
    if runs.iter().any(|run| !run.kind.is_empty()) {
        header.insert(NAME_COLUMN, "KIND");
        for (run, row) in runs.iter().zip(&mut rows) {
            row.insert(NAME_COLUMN, if run.kind.is_empty() { "–" } else { &run.kind }.into());
        }
    }
    // Runs of lane `ops` have no name, so the column is omitted if there are no others.
    if runs.iter().any(|run| run.name().is_some()) {
        header.insert(NAME_COLUMN, "NAME");
        for (run, row) in runs.iter().zip(&mut rows) {
            row.insert(NAME_COLUMN, run.name().unwrap_or("–").into());
        }
    }
    out.print_table(&header, &rows);
    if let Some(last) = page.next {
        out.inform(format!("older runs: {}", next_page_command(&request, &last)));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(run: &Run, now: Timestamp) -> Vec<Cell> {
    let took = match (run.started_at, run.finished_at) {
        (Some(started), finished) => times::format_rough(finished.unwrap_or(now) - started),
        (None, _) => "–".to_owned(),
    };
    let sha: Option<String> = run.git_sha.as_ref().map(|sha| sha.chars().take(9).collect());
    let reference = [run.git_ref.as_deref(), sha.as_deref()];
    vec![
        run.run_id.as_str().into(),
        Cell::new(show::describe_state(run), show::style(run)),
        run.env_id.as_str().into(),
        run.attempt.to_string().into(),
        times::format_relative(run.queued_at, now).into(),
        took.into(),
        run.claimed_by.clone().unwrap_or_else(|| "–".to_owned()).into(),
        reference.into_iter().flatten().collect::<Vec<_>>().join(" ").into(),
    ]
}
