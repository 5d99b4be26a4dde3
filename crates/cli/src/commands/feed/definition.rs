//! `tidemill feed try`, `check`, `preview` and `schema`: definition files, without a database.

use super::args::DefinitionCommand;
use super::confirm::{Confirmation, confirm};
use crate::commands::definition_file::{self, display_name};
use crate::config::Config;
use crate::environment;
use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use serde_json::json;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidemill_core::Json;
use tidemill_core::feed_definition::infer::column_name;
use tidemill_core::feed_definition::{
    ClientKeys, ColumnSource, ColumnValue, FeedDefinition, Paginator, Place, Recognition, RecordQuery, schema,
};
use tidemill_core::limits::FEED_DEFINITION_BYTES_MAX;
use tidemill_feeds::rest::{
    Exploration, MappedRow, RestError, RestPage, RestSource, explore_with, parse_definition,
};
use tidemill_feeds::{ErrorClass, Network, Secret, Tuning};

/// Retries of an interactive command: a person who waits would rather see the error.
const RETRIES_MAX: u32 = 1;
/// Rows of the sample that `feed try` prints.
const SAMPLE_ROWS: usize = 5;

pub(in crate::commands) async fn command(
    command: DefinitionCommand,
    config: &Config,
    out: Out,
) -> Result<ExitCode, Failure> {
    let tuning = Tuning { retries_max: RETRIES_MAX, ..config.feed_tuning() };
    match command {
        DefinitionCommand::Try { url, output, table, client } => {
            try_url(&url, TryOptions { output, table, client: client.into(), tuning }, out).await
        }
        DefinitionCommand::Check { file } => check(&file, out),
        DefinitionCommand::Preview { file, limit } => preview(&file, limit, tuning, out).await,
        DefinitionCommand::Schema => {
            out.print_document(&format!("{:#}", schema::schema()));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Command-line options of `feed try`, and the settings of its client.
struct TryOptions {
    output: Option<PathBuf>,
    table: Option<String>,
    client: ClientKeys,
    tuning: Tuning,
}

/// Returns the value of an environment variable.
pub(super) fn secret(name: &str) -> Option<Secret> {
    environment::secret(name).map(Secret::new)
}

pub(super) fn read(file: &Path) -> Result<String, Failure> {
    definition_file::read(file, FEED_DEFINITION_BYTES_MAX, "write one with `tidemill feed try URL`")
}

fn check(file: &Path, out: Out) -> Result<ExitCode, Failure> {
    match parse_definition(&read(file)?) {
        Ok(definition) if out.is_json() => {
            out.print_json(&json!({"is_valid": true, "definition": definition, "errors": []}));
            Ok(ExitCode::SUCCESS)
        }
        Ok(definition) => {
            let columns = match definition.into.columns.len() {
                0 => "columns as in the records".to_owned(),
                1 => "1 column".to_owned(),
                count => format!("{count} columns"),
            };
            let table = &definition.into.table;
            let word = definition.paginator.word();
            out.print(format!(
                "{} is valid: feed {} fills {table}, {columns}, paginator {word}",
                display_name(file),
                definition.feed
            ));
            for name in missing_secrets(&definition) {
                out.inform(format!("warning: the environment variable {name} is not set"));
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(errors) if out.is_json() => {
            out.print_json(&json!({"is_valid": false, "definition": null, "errors": errors}));
            Ok(ExitCode::from(3))
        }
        Err(errors) => Err(definition_file::report(file, &errors, "bad_feed", out)),
    }
}

pub(super) fn missing_secrets(definition: &FeedDefinition) -> Vec<&str> {
    let names = definition.secret_names().into_iter();
    names.filter(|name| environment::secret(name).is_none()).collect()
}

/// The first page of a feed, mapped to the columns of its table.
struct Preview {
    page: RestPage,
    rows: Vec<MappedRow>,
}

async fn preview(file: &Path, limit: u32, tuning: Tuning, out: Out) -> Result<ExitCode, Failure> {
    let definition = parse_definition(&read(file)?)
        .map_err(|errors| definition_file::report(file, &errors, "bad_feed", out))?;
    let source = RestSource::new(definition, &secret, &Network::Unrestricted, tuning)
        .map_err(|error| failure(&error))?;
    let fetched = async {
        let page = source.page(&RecordQuery::default(), &Place::default(), limit).await?;
        let rows = page.items.iter().take(limit as usize).map(|item| source.map(&item.payload));
        let rows = rows.collect::<Result<_, RestError>>()?;
        Ok(Preview { page, rows })
    };
    let waiting = || format!("waiting for {}", source.at());
    let preview = out.wait_with_progress(waiting, fetched).await.map_err(|error| failure(&error))?;
    if out.is_json() {
        out.print_json(&preview_json(&preview));
    } else {
        print_preview(&preview, &source, out);
    }
    Ok(ExitCode::SUCCESS)
}

fn preview_json(preview: &Preview) -> Json {
    let rows = preview.rows.iter().map(|row| {
        let values = row.values.iter().map(|(name, value)| (name.clone(), value_json(value)));
        let errors: Vec<String> = row.errors.iter().map(ToString::to_string).collect();
        json!({
            "values": values.collect::<serde_json::Map<_, _>>(),
            "errors": errors,
            "unused_keys": row.unused_keys,
        })
    });
    let rejected = preview.page.rejected.iter();
    let rejected =
        rejected.map(|bad| json!({"record_id": bad.record_id, "place": bad.place, "reason": bad.reason}));
    json!({
        "rows": rows.collect::<Vec<_>>(),
        "rejected": rejected.collect::<Vec<_>>(),
        "total": preview.page.total,
        "is_last": preview.page.is_last,
    })
}

fn print_preview(preview: &Preview, source: &RestSource, out: Out) {
    let names = column_names(preview, source.definition());
    let rows = preview.rows.iter().map(|row| names.iter().map(|name| cell_of(row, name)).collect());
    out.print_table(&names, &rows.collect::<Vec<Vec<Cell>>>());
    for (place, row) in preview.rows.iter().enumerate() {
        for error in &row.errors {
            out.inform(format!("warning: record {}: {error}", place + 1));
        }
    }
    for bad in &preview.page.rejected {
        out.inform(format!("warning: record {} is rejected: {}", bad.place + 1, bad.reason));
    }
    let total = preview.page.total.map_or_else(String::new, |total| format!(" of {total}"));
    let more = if preview.page.is_last { "the list ends here" } else { "more pages follow" };
    let records = preview.page.items.len() + preview.page.rejected.len();
    out.inform(format!("{records} records{total} from {}; {more}", source.at()));
}

/// Returns the columns of the definition, or those of all rows if they are inferred.
fn column_names<'a>(preview: &'a Preview, definition: &'a FeedDefinition) -> Vec<&'a str> {
    let mut names: Vec<&str> = definition.into.columns.iter().map(|column| column.name.as_str()).collect();
    if names.is_empty() {
        for (name, _) in preview.rows.iter().flat_map(|row| &row.values) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    names
}

fn cell_of(row: &MappedRow, name: &str) -> Cell {
    let value = row.values.iter().find(|(column, _)| column == name).map(|(_, value)| value);
    match value {
        None if row.errors.is_empty() => "".into(),
        None => Cell::new("error".to_owned(), Style::Error),
        Some(ColumnValue::Null) => Cell::new("NULL".to_owned(), Style::Dim),
        Some(value) => value_text(value).into(),
    }
}

fn value_text(value: &ColumnValue) -> String {
    match value {
        ColumnValue::Null => "NULL".to_owned(),
        ColumnValue::Text(text)
        | ColumnValue::Integer(text)
        | ColumnValue::Decimal(text)
        | ColumnValue::Json(text) => text.clone(),
        ColumnValue::Boolean(value) => value.to_string(),
        ColumnValue::Timestamp(time) => time.to_rfc3339(),
        ColumnValue::Date(date) => date.to_string(),
    }
}

/// Returns a value as JSON. Numbers are texts, because many JSON parsers round long ones.
fn value_json(value: &ColumnValue) -> Json {
    match value {
        ColumnValue::Null => Json::Null,
        ColumnValue::Boolean(value) => Json::Bool(*value),
        ColumnValue::Json(text) => serde_json::from_str(text).unwrap_or_else(|_| Json::String(text.clone())),
        ColumnValue::Text(_)
        | ColumnValue::Integer(_)
        | ColumnValue::Decimal(_)
        | ColumnValue::Timestamp(_)
        | ColumnValue::Date(_) => Json::String(value_text(value)),
    }
}

async fn try_url(url: &str, options: TryOptions, out: Out) -> Result<ExitCode, Failure> {
    let TryOptions { output, table, client, tuning } = options;
    let name = name_of(url);
    let file = output.unwrap_or_else(|| PathBuf::from(format!("{name}.feed.yaml")));
    let is_file = !out.is_json() && file != Path::new("-");
    if is_file && file.exists() {
        return Err(exists(&file));
    }
    let found = explore_with(url, client, &secret, &Network::Unrestricted, tuning.clone());
    let found = out
        .wait_with_progress(|| "waiting for the answer".to_owned(), found)
        .await
        .map_err(|error| failure(&error))?;
    let table = table.unwrap_or_else(|| format!("public.{}", column_name(&name)));
    let mut definition = found.to_yaml(&name, &table);
    let confirmation = if found.recognition.paginator.is_some() {
        let confirmed = confirm(&definition, tuning);
        out.wait_with_progress(|| "waiting for the second page".to_owned(), confirmed).await
    } else {
        None
    };
    if let Some(question) = confirmation.as_ref().and_then(Confirmation::question) {
        definition.insert_str(0, &format!("# undecided: {question}\n"));
    }
    if out.is_json() {
        out.print_json(&exploration_json(&found, confirmation.as_ref(), &definition));
        return Ok(ExitCode::SUCCESS);
    }
    print_exploration(&found, confirmation.as_ref(), out);
    if !is_file {
        out.print_document(&definition);
        return Ok(ExitCode::SUCCESS);
    }
    let mut created = std::fs::File::create_new(&file).map_err(|error| {
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            return exists(&file);
        }
        Failure::usage(format!("could not create {}: {error}", file.display()))
    })?;
    created
        .write_all(definition.as_bytes())
        .map_err(|error| Failure::outage(format!("could not write {}: {error}", file.display())))?;
    out.print(format!("wrote {}", file.display()));
    out.inform(format!("hint: tidemill feed preview {}", file.display()));
    Ok(ExitCode::SUCCESS)
}

fn exists(file: &Path) -> Failure {
    Failure::refused(format!("{} exists already", file.display()))
        .with_hint("give another file with --output")
}

/// Returns the name of a feed: the last part of the path, or the host.
fn name_of(url: &str) -> String {
    let without_query = url.split(['?', '#']).next().unwrap_or_default();
    let last = without_query.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default();
    let stem = last.strip_suffix(".json").unwrap_or(last);
    let name: String = column_name(stem).replace('_', "-").trim_matches('-').chars().take(40).collect();
    if name.is_empty() { "feed".to_owned() } else { name }
}

fn exploration_json(found: &Exploration, confirmation: Option<&Confirmation>, definition: &str) -> Json {
    let Recognition { data_selector, records, primary_key, paginator, total, time_field, columns, undecided } =
        &found.recognition;
    json!({
        "data_selector": data_selector.as_ref().map(ToString::to_string),
        "records": records,
        "primary_key": primary_key.as_ref().map(ToString::to_string),
        "paginator": paginator.as_ref().map(Paginator::word),
        "confirmation": confirmation.map(Confirmation::json),
        "total": total.as_ref().map(ToString::to_string),
        "time_field": time_field.as_ref().map(ToString::to_string),
        "columns": columns,
        "undecided": undecided,
        "definition": definition,
    })
}

fn print_exploration(found: &Exploration, confirmation: Option<&Confirmation>, out: Out) {
    let unknown = || "not recognised".to_owned();
    let recognition = &found.recognition;
    let list = recognition
        .data_selector
        .as_ref()
        .map_or_else(unknown, |path| format!("{} in the answer, at `{path}`", recognition.records));
    out.print(format!("records    {list}"));
    let path = |path: &Option<_>| path.as_ref().map_or_else(unknown, ToString::to_string);
    out.print(format!("id         {}", path(&recognition.primary_key)));
    let paginator = recognition.paginator.as_ref().map_or_else(unknown, |found| found.word().to_owned());
    out.print(format!("paginator  {paginator}"));
    if let Some(confirmation) = confirmation {
        out.print(format!("page 2     {}", confirmation.line()));
    }
    out.print(format!("total      {}", recognition.total.as_ref().map_or_else(unknown, ToString::to_string)));
    out.print(format!("changed    {}", path(&recognition.time_field)));
    out.print("");
    let samples = found.sample.iter().take(SAMPLE_ROWS);
    let columns = &recognition.columns;
    let rows = columns.iter().map(|column| {
        let mut cells = vec![column.name.as_str().into(), column.column_type.as_str().into()];
        cells.extend(samples.clone().map(|record| {
            let value = match &column.source {
                ColumnSource::Path(path) => column.value_of(path.select(record)),
                ColumnSource::Cel(_) | ColumnSource::Constant(_) => Ok(ColumnValue::Null),
            };
            value.map_or_else(
                |_| Cell::new("error".to_owned(), Style::Error),
                |value| value_text(&value).into(),
            )
        }));
        cells
    });
    let mut header = vec!["COLUMN", "TYPE"];
    header.extend(["FIRST", "SECOND", "THIRD", "FOURTH", "FIFTH"].into_iter().take(samples.len()));
    out.print_table(&header, &rows.collect::<Vec<_>>());
    let unconfirmed = confirmation.and_then(Confirmation::question);
    for question in unconfirmed.iter().chain(&recognition.undecided) {
        out.inform(format!("undecided: {question}"));
    }
}

fn failure(error: &RestError) -> Failure {
    match error.class() {
        ErrorClass::Transient | ErrorClass::Outage => Failure::outage(error.to_string()).with_code("feed"),
        ErrorClass::Permanent | ErrorClass::Auth => Failure::refused(error.to_string()).with_code("feed"),
    }
}
