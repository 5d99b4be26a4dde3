//! `tidemill feed apply` and `rebuild`: stores a definition, creates its table, and fills it again.
//!
//! The statements that change the database are shown before anything changes. Without a terminal they need `--yes`.

use super::args::FeedApplyArgs;
use super::definition::{missing_secrets, read};
use crate::commands::definition_file;
use crate::failure::Failure;
use crate::out::Out;
use crate::requests;
use http::StatusCode;
use serde_json::json;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use tidemill_client::{Client, Error};
use tidemill_core::Json;
use tidemill_core::feed_definition::FeedDefinition;
use tidemill_core::feed_definition::target::ContractMode;
use tidemill_core::records::{FeedRecord, FeedTablePlan};
use tidemill_core::request;
use tidemill_core::shell::command;
use tidemill_engine::parse_cron;
use tidemill_feeds::rest::parse_definition;
use tidemill_wire::feeds::PutFeed;
use tidemill_wire::rules::Reprice;

const DEFAULT_PROJECT: &str = "default";

/// Difference between a file and the stored feed.
struct Changes {
    put: PutFeed,
    /// The stored feed of this name.
    before: Option<FeedRecord>,
    /// Whether the columns are inferred, and may be extended.
    may_grow: bool,
    /// Whether the stored feed differs from the file or the options.
    is_changed: bool,
    plan: FeedTablePlan,
}

pub(super) async fn apply(client: &Client, args: FeedApplyArgs, out: Out) -> Result<ExitCode, Failure> {
    let text = read(&args.file)?;
    let definition = parse_definition(&text)
        .map_err(|errors| definition_file::report(&args.file, &errors, "bad_feed", out))?;
    let name = definition.feed.as_str();
    for cron in args.schedule.iter().chain(&args.full_schedule) {
        parse_cron(cron, &args.time_zone)?;
    }
    let changes = changes(client, name, text, &args).await?;
    if args.plan {
        show_plan(&changes, out);
        return Ok(ExitCode::SUCCESS);
    }
    if !out.is_json() {
        print_statements(&changes.plan, out);
    }
    refuse_problems(&changes.plan, out)?;
    if !changes.plan.statements.is_empty() && !args.yes {
        confirm(&changes.plan, &args.file, out)?;
    }
    let record = if changes.is_changed || changes.may_grow {
        client.put_feed(name, &changes.put).await?
    } else {
        client.feed(name).await?.feed
    };
    let has_grown =
        changes.before.as_ref().is_some_and(|before| before.feed.settings != record.feed.settings);
    let mut plan = changes.plan;
    let has_statements = !plan.statements.is_empty();
    if has_statements || has_grown {
        let needed = client.feed_table(name).await?;
        if needed.statements != plan.statements {
            return Err(refuse_other_statements(&needed, &args.file));
        }
    }
    if has_statements {
        plan = client.create_feed_table(name).await?;
        refuse_problems(&plan, out)?;
    }
    let is_changed = changes.is_changed || has_statements || has_grown;
    if out.is_json() {
        out.print_json(&json!({"feed": record, "table": plan, "changed": is_changed}));
        return Ok(ExitCode::SUCCESS);
    }
    print_result(&record, &definition, is_changed, out);
    if changes.before.is_some() && is_changed {
        out.inform(format!("hint: tidemill feed rebuild {name}, if stored records have other columns now"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Compares the file with the stored feed, and plans the table.
async fn changes(
    client: &Client,
    name: &str,
    text: String,
    args: &FeedApplyArgs,
) -> Result<Changes, Failure> {
    let before = match client.feed(name).await {
        Ok(detail) => Some(detail.feed),
        Err(Error::Refused { status: StatusCode::NOT_FOUND, .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let own = before.as_ref().map(|before| before.feed.project_id.as_str());
    let project = args.project.as_deref().or(own).unwrap_or(DEFAULT_PROJECT).to_owned();
    request::check_name("project", &project).map_err(tidemill_store::Error::from)?;
    let copy_url = args.watermark_copy.clone();
    let put = PutFeed {
        copy_url: copy_url.or_else(|| before.as_ref().and_then(|before| before.copy_url.clone())),
        schedule: args.schedule.clone(),
        full_schedule: args.full_schedule.clone(),
        time_zone: args.time_zone.clone(),
        ..PutFeed::of_definition(project, text)
    };
    let is_same = |before: &FeedRecord| {
        before.feed.definition_text() == put.definition.as_deref()
            && before.feed.project_id == put.project_id
            && before.copy_url == put.copy_url
    };
    let has_schedules = put.schedule.is_some() || put.full_schedule.is_some();
    let is_stored = before.as_ref().is_some_and(is_same);
    let may_grow = before.as_ref().is_some_and(may_grow);
    let is_planned = is_stored && !may_grow;
    let plan = if is_planned { client.feed_table(name).await? } else { client.plan_feed(name, &put).await? };
    let has_columns = may_grow && !plan.statements.is_empty();
    Ok(Changes { put, is_changed: !is_stored || has_schedules || has_columns, may_grow, before, plan })
}

/// Whether the columns of a stored feed are inferred again when its definition is applied.
fn may_grow(stored: &FeedRecord) -> bool {
    let is_inferred = stored.feed.settings.get("columns_are_inferred").and_then(Json::as_bool);
    let may_evolve =
        |definition: FeedDefinition| definition.into.schema_contract.columns == ContractMode::Evolve;
    is_inferred == Some(true) && stored.feed.definition().and_then(Result::ok).is_some_and(may_evolve)
}

fn show_plan(changes: &Changes, out: Out) {
    let plan = &changes.plan;
    if out.is_json() {
        out.print_json(&json!({"table": plan, "changed": changes.is_changed}));
        return;
    }
    print_statements(plan, out);
    for problem in &plan.problems {
        out.inform(format!("problem: {problem}"));
    }
    if plan.statements.is_empty() && plan.problems.is_empty() {
        out.print(format!("the table {} needs no change", plan.table));
    }
    if !changes.is_changed {
        out.print(format!("feed {} is unchanged", plan.feed));
    }
}

fn print_statements(plan: &FeedTablePlan, out: Out) {
    for statement in &plan.statements {
        out.print_document(&format!("{};", statement.trim_end().trim_end_matches(';')));
    }
    for warning in &plan.warnings {
        out.inform(format!("warning: {warning}"));
    }
}

/// Refuses a table that the feed cannot fill.
fn refuse_problems(plan: &FeedTablePlan, out: Out) -> Result<(), Failure> {
    let Some(first) = plan.problems.first() else { return Ok(()) };
    let message = match plan.problems.len() {
        1 => format!("feed {} cannot fill the table {}: {first}", plan.feed, plan.table),
        count => {
            for problem in &plan.problems {
                out.inform(format!("problem: {problem}"));
            }
            format!("feed {} cannot fill the table {}: {count} problems", plan.feed, plan.table)
        }
    };
    Err(Failure::refused(message).with_code("bad_table").with_hint("change the table or the definition"))
}

/// Refuses to run statements that were not shown, because the source answered otherwise a moment later.
fn refuse_other_statements(plan: &FeedTablePlan, file: &Path) -> Failure {
    let message =
        format!("the table {} needs other statements than those shown; nothing was run", plan.table);
    Failure::refused(message).with_code("not_confirmed").with_hint(command([
        "feed",
        "apply",
        &file.display().to_string(),
    ]))
}

/// Asks whether the statements may run. Without a terminal the answer is no.
fn confirm(plan: &FeedTablePlan, file: &Path, out: Out) -> Result<(), Failure> {
    let refused = |reason: &str| {
        Failure::refused(format!("the feed was not applied: {reason}"))
            .with_code("not_confirmed")
            .with_hint(command(["feed", "apply", &file.display().to_string(), "--yes"]))
    };
    let is_interactive = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if out.is_json() || !is_interactive || file == Path::new("-") {
        let verb = if plan.exists { "changed" } else { "created" };
        return Err(refused(&format!("the table {} must be {verb}, which needs --yes", plan.table)));
    }
    let _ = write!(std::io::stderr().lock(), "Run these statements? [y/N] ");
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(refused("the statements were not confirmed")),
    }
}

fn print_result(record: &FeedRecord, definition: &FeedDefinition, is_changed: bool, out: Out) {
    let name = &record.feed.feed;
    if is_changed {
        let table = &definition.into.table;
        out.print(format!("feed {name} reads {} into {table}", record.feed.endpoint));
    } else {
        out.print(format!("feed {name} is unchanged"));
    }
    for variable in missing_secrets(definition) {
        out.inform(format!(
            "warning: the environment variable {variable} is not set here; the workers need it"
        ));
    }
    out.inform(format!("hint: tidemill feed sync {name} --wait"));
}

/// Builds the rows of a feed again from stored records, with its current definition.
pub(super) async fn rebuild(
    client: &Client,
    name: &str,
    batch: Option<u16>,
    out: Out,
) -> Result<ExitCode, Failure> {
    requests::check_feed(name)?;
    let (mut built, mut rejected) = (0, 0);
    let mut request = Reprice { after: None, limit: batch };
    loop {
        let done = client.reprice(name, &request).await?;
        built += done.stones;
        rejected += done.rejected;
        let Some(next) = done.next else { break };
        out.inform(format!("{built} records of {name} built again so far"));
        request.after = Some(next);
    }
    if out.is_json() {
        out.print_json(&json!({"feed": name, "records": built, "rejected": rejected}));
    } else {
        out.print(format!("{built} records of {name} built again; {rejected} rejected"));
    }
    Ok(ExitCode::SUCCESS)
}
