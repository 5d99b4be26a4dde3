//! Feeds with a definition file: resolves the parts that the file leaves open, and creates their tables.

use super::Syncs;
use super::feeds::{FeedChange, check_uses, network};
use super::plan::PlanError;
use tidemill_core::definition::DefinitionError;
use tidemill_core::feed::{Feed, REST_KIND};
use tidemill_core::feed_definition::target::{ColumnType, ContractMode};
use tidemill_core::feed_definition::{Column, FeedDefinition, Paginator};
use tidemill_core::records::FeedTablePlan;
use tidemill_core::{Json, request};
use tidemill_feeds::Secret;
use tidemill_feeds::rest::{RestSource, parse_definition};
use tidemill_store::{Error, Refusal, RefusalCode, TablePlan};

impl Syncs {
    /// Returns a feed with the settings of its definition file. If the file leaves the paginator, the list of records
    /// or the columns open, one request resolves them, so that all syncs read and write alike. An unchanged file keeps
    /// the stored result. If its columns are inferred and may evolve, the columns of new fields are added.
    pub(super) async fn with_definition(&self, feed: Feed, text: &str) -> Result<Feed, Error> {
        let mut parsed = parse_definition(text).map_err(|errors| invalid(&errors))?;
        if parsed.feed != feed.feed {
            let named = &parsed.feed;
            return Err(refused(format!("the definition is of feed `{named}`, not of feed `{}`", feed.feed)));
        }
        let columns_are_inferred = parsed.into.columns.is_empty();
        let may_grow = columns_are_inferred && parsed.into.schema_contract.columns == ContractMode::Evolve;
        let known = self.engine.store().feeds().await?.into_iter().find(|known| known.feed.feed == feed.feed);
        let stored = known.as_ref().and_then(|known| known.feed.definition()).and_then(Result::ok);
        let mut columns = Vec::new();
        if let (Some(known), Some(stored)) = (known, stored) {
            let is_unchanged = known.feed.definition_text() == Some(text);
            if is_unchanged && !may_grow {
                let Feed { project_id, created_at, defined_by, .. } = feed;
                return Ok(Feed { project_id, created_at, defined_by, ..known.feed });
            }
            if may_grow && reads_alike(&parsed, &stored) {
                columns.clone_from(&stored.into.columns);
            }
            if is_unchanged {
                // The paginator and the list of records stay as they were recognised.
                parsed = stored;
                parsed.into.columns.clear();
            }
        }
        let feed = with_settings(feed, &parsed, text, columns_are_inferred);
        // Checks the reach before the first request, so that one error names all refused uses.
        check_uses(&feed, None, self.engine.reach())?;
        if !leaves_open(&parsed) {
            return Ok(feed);
        }
        let pinned = self.pin(&feed, parsed, &columns).await?;
        Ok(with_settings(feed, &pinned, text, columns_are_inferred))
    }

    /// Resolves the open parts of a definition with one request. The known columns stay.
    async fn pin(
        &self,
        feed: &Feed,
        definition: FeedDefinition,
        columns: &[Column],
    ) -> Result<FeedDefinition, Error> {
        let reach = self.engine.reach();
        let network = network(feed, reach).map_err(|error| refused(error.to_string()))?;
        let secrets = |name: &str| std::env::var(name).ok().map(Secret::new);
        let source = RestSource::new(definition, &secrets, &network, self.settings.tuning.clone());
        let pinned = match source {
            Ok(source) => source.pinned(columns).await,
            Err(error) => Err(error),
        };
        pinned.map_err(|error| {
            Error::Refused(Refusal {
                code: RefusalCode::BadValue,
                message: format!("could not recognise the open parts of the definition: {error}"),
                hint: Some("write `paginator`, `data_selector` and `columns` in the definition".to_owned()),
            })
        })
    }

    /// Returns the table that a feed would have with a definition. Changes nothing.
    pub async fn plan_feed(&self, change: FeedChange) -> Result<FeedTablePlan, Error> {
        request::check_name("feed", &change.feed.feed)?;
        request::check_name("project", &change.feed.project_id)?;
        let text = change.definition.unwrap_or_default();
        let feed = self.with_definition(change.feed, &text).await?;
        let definition = definition_in(&feed)?;
        self.plan_owned(&feed, &definition).await
    }

    /// Returns the changes that the table of a feed needs.
    pub async fn table_plan(&self, feed: &str) -> Result<FeedTablePlan, Error> {
        let feed = self.engine.store().feed(feed.to_owned()).await?.feed;
        let definition = definition_in(&feed)?;
        self.plan_owned(&feed, &definition).await
    }

    /// Plans the table of a definition. A table of another feed is a problem of the plan.
    async fn plan_owned(&self, feed: &Feed, definition: &FeedDefinition) -> Result<FeedTablePlan, Error> {
        let mut plan = self.engine.store().plan_table(&definition.into).await?;
        if let Some(refusal) = self.engine.store().table_conflict(feed, &definition.into).await? {
            plan.problems.insert(0, with_hint(refusal));
        }
        Ok(shown(&feed.feed, definition, plan))
    }

    /// Checks before a feed writes its table that it owns it, or makes it the owner: the feed may have been stored by
    /// a version that did not know owners.
    pub(super) async fn claim_table(&self, feed: &Feed) -> Result<(), Error> {
        let Some(Ok(definition)) = feed.definition() else { return Ok(()) };
        let feed = feed.clone();
        let claim = self.engine.store().write(move |mut tx| {
            Box::pin(async move {
                tx.skip_audit();
                tx.lock_feed(&feed.feed).await?;
                tx.claim_table(&feed, &definition.into).await
            })
        });
        claim.await
    }

    /// Claims the table of a feed before a sync. The table of another feed fails the sync.
    pub(super) async fn claim_table_for_sync(&self, feed: &Feed) -> Result<(), PlanError> {
        match self.claim_table(feed).await {
            Err(Error::Refused(refusal)) => Err(PlanError::Refused(with_hint(refusal))),
            other => Ok(other?),
        }
    }

    /// Creates the table of a feed, or adds columns to it. Returns the plan of the remaining changes.
    pub async fn create_table(&self, feed: &str) -> Result<FeedTablePlan, Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        check_uses(&record.feed, None, self.engine.reach())?;
        let definition = definition_in(&record.feed)?;
        let plan = self.engine.store().plan_table(&definition.into).await?;
        if plan.problems.is_empty() && !plan.statements.is_empty() {
            if !plan.exists {
                // A table that was dropped has lost its rows. The next full sync or `feed rebuild` writes all of them.
                self.forget_rows(feed).await?;
            }
            self.engine.store().create_target(&plan).await?;
        }
        self.table_plan(feed).await
    }

    /// Marks every row of a feed to be built again.
    pub(super) async fn forget_rows(&self, feed: &str) -> Result<(), Error> {
        let feed = feed.to_owned();
        let forget = self.engine.store().write(move |mut tx| {
            Box::pin(async move {
                tx.skip_audit();
                tx.forget_rows(&feed).await
            })
        });
        forget.await.map(|_| ())
    }
}

fn definition_in(feed: &Feed) -> Result<FeedDefinition, Error> {
    let (name, kind) = (&feed.feed, &feed.kind);
    let none = || refused(format!("feed `{name}` is of the kind `{kind}`, which has no table of its own"));
    feed.definition().ok_or_else(none)?.map_err(refused)
}

/// Whether two definitions read the same records into the same table.
fn reads_alike(one: &FeedDefinition, other: &FeedDefinition) -> bool {
    one.into.table == other.into.table
        && one.into.primary_key == other.into.primary_key
        && one.resource.request == other.resource.request
        && one.resource.primary_key == other.resource.primary_key
}

/// Returns the refusal of a text with errors.
fn invalid(errors: &[DefinitionError]) -> Error {
    let first = errors.first().map(ToString::to_string).unwrap_or_default();
    let more = match errors.len() {
        0 | 1 => String::new(),
        2 => " (and 1 more error)".to_owned(),
        count => format!(" (and {} more errors)", count - 1),
    };
    Error::Refused(Refusal {
        code: RefusalCode::BadValue,
        message: format!("the definition is invalid: {first}{more}"),
        hint: Some("tidemill feed check FILE".to_owned()),
    })
}

/// Whether a request must decide a part of the definition.
fn leaves_open(definition: &FeedDefinition) -> bool {
    matches!(definition.paginator, Paginator::Auto { .. })
        || definition.resource.data_selector.is_none()
        || definition.into.columns.is_empty()
}

fn with_settings(feed: Feed, definition: &FeedDefinition, text: &str, columns_are_inferred: bool) -> Feed {
    let settings = serde_json::json!({
        "text": text, "columns_are_inferred": columns_are_inferred,
        "definition": serde_json::to_value(definition).unwrap_or(Json::Null),
    });
    Feed {
        kind: REST_KIND.to_owned(),
        endpoint: definition.client.base_url.clone(),
        username: None,
        password_env: None,
        rate: definition.client.rate,
        settings,
        ..feed
    }
}

fn shown(feed: &str, definition: &FeedDefinition, plan: TablePlan) -> FeedTablePlan {
    FeedTablePlan {
        feed: feed.to_owned(),
        table: definition.into.table.to_string(),
        exists: plan.exists,
        warnings: decimal_warning(&definition.into.columns, &plan.statements).into_iter().collect(),
        statements: plan.statements,
        problems: plan.problems,
    }
}

/// Warns of new decimal columns that hold text: SQLite has no exact decimal type.
fn decimal_warning(columns: &[Column], statements: &[String]) -> Option<String> {
    let is_text = |name: &str| {
        let declaration = format!("\"{name}\" TEXT");
        statements.iter().any(|statement| statement.contains(&declaration))
    };
    let decimals = columns.iter().filter(|column| column.column_type == ColumnType::Decimal);
    let names: Vec<&str> = decimals.map(|column| column.name.as_str()).filter(|name| is_text(name)).collect();
    let first = names.first()?;
    Some(format!(
        "SQLite stores decimals as text to keep all digits ({}), so they compare and sort as text; \
         use CAST({first} AS REAL) in queries",
        names.join(", ")
    ))
}

/// Returns a refusal and what to do about it as one text.
fn with_hint(Refusal { message, hint, .. }: Refusal) -> String {
    hint.map_or(message.clone(), |hint| format!("{message}; {hint}"))
}

fn refused(message: String) -> Error {
    Error::refused(RefusalCode::BadValue, message)
}
