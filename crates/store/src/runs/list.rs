//! Lists of runs: one statement for each kind of filter, each served by an index.
//!
//! A single statement with `$1 IS NULL OR …` for all filters would have one generic plan. So the most selective part
//! of the filter selects the statement, which checks the rest of the filter for each run that it finds.

use crate::catalog::Statement;
use crate::codec::{SqlTextList, SqlTime};
use crate::tx::{Conn, EitherDatabase, Rows, on};
use crate::{Error, Store, Tx, catalog};
use sqlx::Row as _;
use std::collections::BTreeSet;
use tidemill_core::run::{Lane, Run, RunCursor, RunFilter, RunState};
use tidemill_core::{EnvId, RunId, time};

/// Maximum number of values of one column that are looked up one by one. With more, runs are read by age.
const VALUES_MAX: usize = 256;
/// Maximum number of queued runs that are read and sorted. With more, a scan by age finds enough of them.
const QUEUED_MAX: i64 = 2_000;
/// Maximum number of runs with a prefix of ids that are read and sorted. With more, runs are read by age.
const ID_RUNS_MAX: i64 = 2_000;
/// Maximum number of runs of a kind that are searched for failed or cancelled ones.
const KIND_RUNS_MAX: i64 = 2_000;

/// Prefix of the concurrency key of a sync's run, before the name of the feed.
const FEED: &str = "feed:";

/// Returns the exclusive upper bound of the texts that start with `prefix`.
///
/// Both databases compare these texts byte by byte, which is the order of code points. So the last character that has
/// a successor is replaced by it, and the rest is dropped.
fn after_prefix(prefix: &str) -> String {
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        let next = u32::from(last) + 1;
        // Surrogates are no characters.
        let next = if next == 0xD800 { 0xE000 } else { next };
        if let Some(next) = char::from_u32(next) {
            characters.push(next);
            return characters.into_iter().collect();
        }
    }
    // The largest possible text has no successor.
    last_text()
}

/// Returns a text above all ids and names.
fn last_text() -> String {
    char::MAX.to_string().repeat(300)
}

/// A half-open range of texts.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    from: String,
    to: String,
}

impl Range {
    fn of_prefix(prefix: &str) -> Self {
        Self { from: prefix.to_owned(), to: after_prefix(prefix) }
    }
}

/// The part of the list, which is ordered by creation time and id, that a filter accepts.
///
/// The time never comes from an id, because a caller may choose it.
#[derive(Debug, PartialEq)]
pub(super) struct Window {
    /// Earliest creation time, inclusive.
    pub(super) since: Option<SqlTime>,
    /// Latest creation time, exclusive.
    until: Option<SqlTime>,
    /// Time and id before which the list begins. The statement reads the time of a run that exists from its row.
    pub(super) end: (Option<SqlTime>, String),
}

impl Window {
    pub(super) fn of(filter: &RunFilter) -> Self {
        let (since, until) = (filter.since.map(SqlTime), filter.until.map(SqlTime));
        let end = match (&filter.before, until) {
            // An unknown run without a time is no position, so the page is empty.
            (Some(cursor), _) => (
                Some(SqlTime(cursor.created_at.unwrap_or(time::from_micros(i64::MIN)))),
                cursor.run_id.to_string(),
            ),
            (None, Some(until)) => (Some(until), String::new()),
            (None, None) => (None, last_text()),
        };
        Self { since, until, end }
    }
}

/// The kinds of entries in `run_lookup`.
#[derive(Debug, Clone, Copy)]
enum Mark {
    Lane,
    Feed,
    Kind,
    Sha,
    Ref,
}

impl Mark {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Lane => "lane",
            Self::Feed => "feed",
            Self::Kind => "kind",
            Self::Sha => "sha",
            Self::Ref => "ref",
        }
    }
}

/// The statement for a filter, with the values that it looks up.
struct Shape {
    statement: Statement,
    values: Vec<String>,
    /// Kind of the values, if the statement needs it.
    mark: Option<Mark>,
    /// The only lane that can match, if the statement must read no other.
    lane: Option<Lane>,
}

impl Shape {
    const fn plain(statement: Statement) -> Self {
        Self { statement, values: Vec::new(), mark: None, lane: None }
    }

    /// Selects the runs with an entry of this kind.
    fn marked(mark: Mark, value: String) -> Self {
        Self { values: vec![value], mark: Some(mark), ..Self::plain(catalog::RUN_LIST_LOOKUP) }
    }
}

/// The parameters of a list statement.
struct Asked {
    window: Window,
    ids: Option<Range>,
    sha: Option<Range>,
    git_ref: Option<Range>,
    /// Set unless the statement looks up the runs of each name.
    name: Option<Range>,
    feed: Option<String>,
    /// The requested lane, or the only one that has such a name.
    lane: Option<Lane>,
    /// Project and environment, unless the statement looks up their runs: a repeated condition would make the planner
    /// underestimate the number of rows.
    place: (Option<String>, Option<String>),
    shape: Shape,
}

/// Binds the common parameters of all lists, and the looked-up values if there are any.
macro_rules! bound {
    ($query:expr, $filter:ident, $asked:ident) => {{
        let query = $query
            .bind($asked.ids.as_ref().map(|range| range.from.as_str()))
            .bind($asked.ids.as_ref().map(|range| range.to.as_str()))
            .bind(i64::try_from($filter.limit).unwrap_or(i64::MAX))
            .bind($asked.place.0.as_deref())
            .bind($asked.place.1.as_deref())
            .bind($filter.status.map(RunState::as_str))
            .bind($asked.lane.map(Lane::as_str))
            .bind($asked.feed.as_deref())
            .bind($asked.sha.as_ref().map(|range| range.from.as_str()))
            .bind($asked.sha.as_ref().map(|range| range.to.as_str()))
            .bind($asked.git_ref.as_ref().map(|range| range.from.as_str()))
            .bind($asked.git_ref.as_ref().map(|range| range.to.as_str()))
            .bind($asked.name.as_ref().map(|range| range.from.as_str()))
            .bind($asked.name.as_ref().map(|range| range.to.as_str()))
            .bind($filter.kind.as_deref())
            .bind($asked.window.since)
            .bind($asked.window.until)
            .bind($asked.window.end.0)
            .bind($asked.window.end.1.as_str());
        match ($asked.shape.values.is_empty(), $asked.shape.mark) {
            (true, _) => query,
            (false, None) => query.bind(SqlTextList($asked.shape.values.clone())),
            (false, Some(mark)) => query.bind(SqlTextList($asked.shape.values.clone())).bind(mark.as_str()),
        }
    }};
}

impl Tx<'_> {
    /// Lists runs, newest first.
    pub async fn runs(&mut self, filter: &RunFilter) -> Result<Vec<Run>, Error> {
        let mut filter = filter.clone();
        let mut runs: Vec<Run> = Vec::new();
        loop {
            let rows = self.run_rows(&filter).await?;
            let (count, last) = (rows.len(), rows.last("run_id", "created_at"));
            let found: Vec<Run> = rows.readable("runs", "run_id");
            let (is_full, skipped) = (count == filter.limit, count - found.len());
            runs.extend(found);
            // A page that is not full counts as the last one, so skipped rows are replaced by further ones.
            let (true, 1.., Some(last)) = (is_full, skipped, last) else { return Ok(runs) };
            filter.limit = skipped;
            let (run_id, created_at) = last;
            filter.before = Some(RunCursor { created_at, run_id: RunId::from_database(run_id) });
        }
    }

    async fn run_rows(&mut self, filter: &RunFilter) -> Result<Rows, Error> {
        let Some(asked) = self.asked(filter).await? else { return Ok(EitherDatabase::Sqlite(Vec::new())) };
        let sql = self.sql(asked.shape.statement);
        let named = self.context.named;
        let rows = match &mut self.conn {
            Conn::Postgres(conn) => {
                let query = bound!(sqlx::query(sql), filter, asked).persistent(named);
                query.fetch_all(&mut **conn).await.map(EitherDatabase::Postgres)
            }
            Conn::Sqlite(conn) => bound!(sqlx::query(sql), filter, asked)
                .fetch_all(&mut **conn)
                .await
                .map(EitherDatabase::Sqlite),
        };
        rows.map_err(|source| Error::database("list runs", source))
    }

    /// Returns the query plan of the database for a filter, for diagnosis and tests.
    pub async fn explain_runs(&mut self, filter: &RunFilter) -> Result<Vec<String>, Error> {
        let Some(asked) = self.asked(filter).await? else { return Ok(Vec::new()) };
        let text = self.context.catalog.text(asked.shape.statement);
        let lines = match &mut self.conn {
            Conn::Postgres(conn) => {
                let query = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("EXPLAIN {text}")));
                bound!(query, filter, asked).persistent(false).fetch_all(&mut **conn).await
            }
            Conn::Sqlite(conn) => {
                let query = sqlx::query(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}")));
                let rows = bound!(query, filter, asked).fetch_all(&mut **conn).await;
                rows.and_then(|rows| rows.iter().map(|row| row.try_get("detail")).collect())
            }
        };
        lines.map_err(|source| Error::database("list runs", source))
    }

    /// Returns the parameters for a filter, or `None` if no run can match.
    async fn asked(&mut self, filter: &RunFilter) -> Result<Option<Asked>, Error> {
        let window = Window::of(filter);
        // All ids begin with `run-`.
        let prefix = filter.id_prefix.as_deref().filter(|prefix| !"run-".starts_with(prefix));
        let ids = prefix.map(Range::of_prefix);
        let sha = filter.sha_prefix.as_deref().map(Range::of_prefix);
        let git_ref = filter.ref_prefix.as_deref().map(Range::of_prefix);
        let name = filter.name_prefix.as_deref().map(Range::of_prefix);
        let shape = match &ids {
            Some(ids) if self.runs_with_id_at_most(ids).await? <= ID_RUNS_MAX => {
                Some(Shape::plain(catalog::RUN_LIST_ID))
            }
            Some(_) | None => self.shape(filter, [sha.as_ref(), git_ref.as_ref(), name.as_ref()]).await?,
        };
        let feed = filter.feed.as_ref().map(|feed| format!("{FEED}{feed}"));
        Ok(shape.map(|shape| {
            let looked_up = shape.statement == catalog::RUN_LIST_ENV;
            let place = if looked_up { (None, None) } else { (filter.project.clone(), filter.env.clone()) };
            let name = name.filter(|_| shape.statement != catalog::RUN_LIST_NAME);
            let lane = filter.lane.or(shape.lane);
            Asked { window, ids, sha, git_ref, name, feed, lane, place, shape }
        }))
    }

    /// Returns the statement for a filter, or `None` if no run can match.
    async fn shape(
        &mut self,
        filter: &RunFilter,
        [sha, git_ref, name]: [Option<&Range>; 3],
    ) -> Result<Option<Shape>, Error> {
        if let Some(feed) = &filter.feed {
            return Ok(Some(Shape::marked(Mark::Feed, format!("{FEED}{feed}"))));
        }
        for (range, mark) in [(sha, Mark::Sha), (git_ref, Mark::Ref)] {
            let Some(range) = range else { continue };
            let found = self.marks(mark, range).await?;
            // If there are too many values, a name is more selective: it excludes runs without a name.
            if found.len() <= VALUES_MAX || name.is_none() {
                let shape = by_values(catalog::RUN_LIST_LOOKUP, found);
                return Ok(shape.map(|shape| Shape { mark: Some(mark), ..shape }));
            }
        }
        if let Some(range) = name {
            return self.named(filter.lane, range).await;
        }
        self.unspelled(filter).await
    }

    /// Returns the statement for runs whose names are in a range: names of graphs, and feeds of syncs.
    async fn named(&mut self, lane: Option<Lane>, range: &Range) -> Result<Option<Shape>, Error> {
        let graphs = match lane {
            Some(Lane::Graph) | None => self.graph_names(range).await?,
            Some(Lane::Ops | Lane::Sync) => Vec::new(),
        };
        let feeds = match lane {
            Some(Lane::Sync) | None => {
                let keys = Range { from: format!("{FEED}{}", range.from), to: format!("{FEED}{}", range.to) };
                self.marks(Mark::Feed, &keys).await?
            }
            Some(Lane::Ops | Lane::Graph) => Vec::new(),
        };
        let lane = match (graphs.is_empty(), feeds.is_empty()) {
            (true, true) => return Ok(None),
            (false, true) => Some(Lane::Graph),
            (true, false) => Some(Lane::Sync),
            (false, false) => None,
        };
        let feeds = feeds.iter().filter_map(|key| key.strip_prefix(FEED)).map(str::to_owned);
        // A graph may have the name of a feed; then one value finds both.
        let names: BTreeSet<String> = graphs.into_iter().chain(feeds).collect();
        let shape = if names.len() > VALUES_MAX {
            // Too many to look up one by one: reads graphs and syncs by age, and checks their names.
            let lanes =
                [Lane::Graph, Lane::Sync].into_iter().filter(|one| lane.is_none_or(|lane| lane == *one));
            let values = lanes.map(|lane| lane.as_str().to_owned()).collect();
            Shape { values, mark: Some(Mark::Lane), ..Shape::plain(catalog::RUN_LIST_LOOKUP) }
        } else {
            Shape { values: names.into_iter().collect(), ..Shape::plain(catalog::RUN_LIST_NAME) }
        };
        Ok(Some(Shape { lane, ..shape }))
    }

    /// Returns the statement for a filter without a prefix.
    async fn unspelled(&mut self, filter: &RunFilter) -> Result<Option<Shape>, Error> {
        match filter.lane {
            Some(lane @ (Lane::Graph | Lane::Sync)) if filter.kind.is_none() => {
                return Ok(Some(Shape::marked(Mark::Lane, lane.as_str().to_owned())));
            }
            Some(Lane::Graph | Lane::Sync | Lane::Ops) | None => {}
        }
        // Of a kind with more runs, the failed or cancelled runs are read instead: usually they are fewer.
        if let Some(kind) = &filter.kind
            && matches!(filter.status, Some(RunState::Failed | RunState::Cancelled))
            && self.runs_of_kind_at_most(kind).await? <= KIND_RUNS_MAX
        {
            return Ok(Some(Shape::marked(Mark::Kind, kind.clone())));
        }
        match filter.status {
            Some(RunState::Failed | RunState::Cancelled) => {
                return Ok(Some(Shape::plain(catalog::RUN_LIST_ENDED)));
            }
            Some(RunState::Claimed | RunState::Running) => {
                return Ok(Some(Shape::plain(catalog::RUN_LIST_HELD)));
            }
            Some(RunState::Queued) if self.queued_at_most().await? <= QUEUED_MAX => {
                return Ok(Some(Shape::plain(catalog::RUN_LIST_QUEUED)));
            }
            Some(RunState::Queued | RunState::Success) | None => {}
        }
        if let Some(kind) = &filter.kind {
            return Ok(Some(Shape::marked(Mark::Kind, kind.clone())));
        }
        let places = match (&filter.project, &filter.env) {
            (None, None) => return Ok(Some(Shape::plain(catalog::RUN_LIST))),
            (Some(project), Some(env)) => vec![EnvId::new(project, env).to_string()],
            (project, env) => self.environment_ids(project.as_deref(), env.as_deref()).await?,
        };
        Ok(by_values(catalog::RUN_LIST_ENV, places))
    }

    /// Returns the values of a kind in a range, up to the maximum number of looked-up values plus one.
    async fn marks(&mut self, mark: Mark, range: &Range) -> Result<Vec<String>, Error> {
        let limit = i64::try_from(VALUES_MAX + 1).unwrap_or(i64::MAX);
        let (from, to, kind) = (range.from.as_str(), range.to.as_str(), mark.as_str());
        on!(self, catalog::RUN_LOOKUP_VALUES, [from, to, limit, kind], fetch_all, "list runs")?
            .records("list runs")
    }

    /// Returns the graph names in a range, up to the maximum number of looked-up values plus one.
    async fn graph_names(&mut self, range: &Range) -> Result<Vec<String>, Error> {
        let limit = i64::try_from(VALUES_MAX + 1).unwrap_or(i64::MAX);
        let (from, to) = (range.from.as_str(), range.to.as_str());
        on!(self, catalog::RUN_GRAPHS, [from, to, limit], fetch_all, "list runs")?.records("list runs")
    }

    async fn environment_ids(
        &mut self,
        project: Option<&str>,
        env: Option<&str>,
    ) -> Result<Vec<String>, Error> {
        let limit = i64::try_from(VALUES_MAX + 1).unwrap_or(i64::MAX);
        on!(self, catalog::ENVIRONMENT_IDS, [project, env, limit], fetch_all, "list runs")?
            .records("list runs")
    }

    /// Counts the runs of a kind, up to one more than [`KIND_RUNS_MAX`].
    async fn runs_of_kind_at_most(&mut self, kind: &str) -> Result<i64, Error> {
        let (mark, limit) = (Mark::Kind.as_str(), KIND_RUNS_MAX + 1);
        let found: Option<i64> =
            on!(self, catalog::RUN_LOOKUP_COUNT, [mark, kind, limit], fetch_optional, "list runs")?
                .record("list runs")?;
        Ok(found.unwrap_or(0))
    }

    /// Counts the runs with ids in a range, up to one more than [`ID_RUNS_MAX`].
    async fn runs_with_id_at_most(&mut self, ids: &Range) -> Result<i64, Error> {
        let (from, to) = (ids.from.as_str(), ids.to.as_str());
        let found: Option<i64> =
            on!(self, catalog::RUN_ID_COUNT, [from, to, ID_RUNS_MAX + 1], fetch_optional, "list runs")?
                .record("list runs")?;
        Ok(found.unwrap_or(0))
    }

    async fn queued_at_most(&mut self) -> Result<i64, Error> {
        let found: Option<i64> =
            on!(self, catalog::RUN_QUEUED_COUNT, [QUEUED_MAX + 1], fetch_optional, "list runs")?
                .record("list runs")?;
        Ok(found.unwrap_or(0))
    }
}

impl Store {
    /// Returns the query plan of the database for a filter.
    pub async fn explain_runs(&self, filter: RunFilter) -> Result<Vec<String>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.explain_runs(&filter).await })).await
    }
}

/// Selects a page per value, all runs by age if there are too many values, or no run if there are none.
fn by_values(statement: Statement, values: Vec<String>) -> Option<Shape> {
    match values.len() {
        0 => None,
        count if count > VALUES_MAX => Some(Shape::plain(catalog::RUN_LIST)),
        _ => Some(Shape { values, ..Shape::plain(statement) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{TimeDelta, TimeZone as _, Utc};

    #[test]
    fn prefix_bound_is_the_smallest_text_above_all_matches() {
        for (prefix, after) in [("run-", "run."), ("a", "b"), ("\u{d7ff}", "\u{e000}"), ("a\u{10ffff}", "b")]
        {
            assert_eq!(after_prefix(prefix), after);
            assert!(after_prefix(prefix) > format!("{prefix}\u{10ffff}"));
        }
        assert!(after_prefix("\u{10ffff}").as_str() > "\u{10ffff}\u{10ffff}");
    }

    #[test]
    fn times_and_a_cursor_are_bounds_of_the_creation_time() {
        let at = Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap();
        let filter =
            RunFilter { since: Some(at), until: Some(at + TimeDelta::hours(1)), ..RunFilter::default() };
        let window = Window::of(&filter);
        assert_eq!(
            (window.since, window.until),
            (Some(SqlTime(at)), Some(SqlTime(at + TimeDelta::hours(1))))
        );
        assert_eq!(window.end, (window.until, String::new()));
        let cursor = RunCursor { created_at: Some(at), run_id: RunId::from_database("run-a".to_owned()) };
        let page = Window::of(&RunFilter { before: Some(cursor), ..filter });
        assert_eq!(page.end, (Some(SqlTime(at)), "run-a".to_owned()));
        assert_eq!(page.until, window.until);
    }
}
