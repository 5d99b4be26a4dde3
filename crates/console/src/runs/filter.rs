//! Filter of the run list: from the address, as a form, and as an API request.

use chrono::{NaiveDateTime, TimeDelta};
use http::Uri;
use maud::{Markup, html};
use tidemill_core::Timestamp;
use tidemill_core::project::Project;
use tidemill_core::run::{Lane, RunState};
use tidemill_wire::Problem;
use tidemill_wire::runs::ListRuns;

/// Time ranges: form value, label and hours.
const TIME_RANGES: [(&str, &str, i64); 4] = [
    ("1h", "last hour", 1),
    ("24h", "last 24 hours", 24),
    ("7d", "last 7 days", 168),
    ("30d", "last 30 days", 720),
];
/// Meanings of the search text: form value and label.
const SEARCH_FIELDS: [(&str, &str); 5] = [
    ("", "detect automatically"),
    ("id", "id"),
    ("sha", "commit"),
    ("ref", "branch or tag"),
    ("name", "graph or feed name"),
];
/// Maximum number of projects in a select; with more, the name is a text input.
const PROJECTS_MAX: usize = 100;
/// Minimum length of a commit prefix.
const SHA_CHARS_MIN: usize = 4;

/// Filter with its values as in the address, so that invalid ones are reported instead of dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    status: String,
    lane: String,
    kind: String,
    project: String,
    env: String,
    feed: String,
    within: String,
    since: String,
    until: String,
    find: String,
    by: String,
    after: String,
}

impl Filter {
    /// Reads the filter from the address.
    pub(super) fn from_uri(uri: &Uri) -> Self {
        let mut filter = Self::default();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            if let Some(field) = filter.field(&name) {
                value.trim().clone_into(field);
            }
        }
        filter
    }

    fn field(&mut self, name: &str) -> Option<&mut String> {
        Some(match name {
            "status" => &mut self.status,
            "lane" => &mut self.lane,
            "kind" => &mut self.kind,
            "project" => &mut self.project,
            "env" => &mut self.env,
            "feed" => &mut self.feed,
            "within" => &mut self.within,
            "since" => &mut self.since,
            "until" => &mut self.until,
            "find" => &mut self.find,
            "by" => &mut self.by,
            "after" => &mut self.after,
            _ => return None,
        })
    }

    fn fields(&self) -> [(&'static str, &str); 12] {
        [
            ("status", &self.status),
            ("lane", &self.lane),
            ("kind", &self.kind),
            ("project", &self.project),
            ("env", &self.env),
            ("feed", &self.feed),
            ("within", &self.within),
            ("since", &self.since),
            ("until", &self.until),
            ("find", &self.find),
            ("by", &self.by),
            ("after", &self.after),
        ]
    }

    fn link(&self, after: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let fields = self.fields().into_iter().filter(|(name, value)| *name != "after" && !value.is_empty());
        for (name, value) in fields {
            query.append_pair(name, value);
        }
        if !after.is_empty() {
            query.append_pair("after", after);
        }
        let query = query.finish();
        if query.is_empty() { "/runs".to_owned() } else { format!("/runs?{query}") }
    }

    /// Address of the first page.
    pub(super) fn first(&self) -> String {
        self.link("")
    }

    /// Address of the next page.
    pub(super) fn older(&self, next: &str) -> String {
        self.link(next)
    }

    /// Whether this is not the first page.
    pub(super) fn is_further(&self) -> bool {
        !self.after.is_empty()
    }

    /// Whether any filter is set.
    pub(super) fn is_narrow(&self) -> bool {
        self.fields().iter().any(|(name, value)| *name != "by" && !value.is_empty())
    }

    /// Converts the filter to an API request.
    pub(super) fn to_request(&self, now: Timestamp, limit: u16) -> Result<ListRuns, Problem> {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let hours = TIME_RANGES.iter().find(|(name, ..)| *name == self.within).map(|(.., hours)| *hours);
        let since = read(&self.since, "since", moment)?;
        let mut request = ListRuns {
            status: read(&self.status, "state", |text| text.parse().ok())?,
            lane: read(&self.lane, "lane", |text| text.parse().ok())?,
            kind: given(&self.kind),
            project: given(&self.project),
            env: given(&self.env),
            feed: given(&self.feed),
            since: since.or_else(|| hours.map(|hours| now - TimeDelta::hours(hours))),
            until: read(&self.until, "until", moment)?,
            after: read(&self.after, "after", |text| text.parse().ok())?,
            limit: Some(limit),
            ..ListRuns::default()
        };
        let found = given(&self.find);
        match self.by() {
            "id" => {
                let full = |id: String| if id.starts_with("run-") { id } else { format!("run-{id}") };
                request.id_prefix = found.map(full);
            }
            "sha" => request.sha_prefix = found,
            "name" => request.name_prefix = found,
            _ => request.ref_prefix = found,
        }
        Ok(request)
    }

    /// Meaning of the search text: the selected one, or detected from the text.
    fn by(&self) -> &str {
        let is_hex = self.find.bytes().all(|byte| byte.is_ascii_hexdigit());
        match self.by.as_str() {
            by @ ("id" | "sha" | "ref" | "name") => by,
            _ if self.find.starts_with("run-") => "id",
            _ if is_hex && self.find.len() >= SHA_CHARS_MIN => "sha",
            _ => "ref",
        }
    }

    pub(super) fn form(&self, projects: &[Project]) -> Markup {
        let states: Vec<(&str, &str)> =
            RunState::ALL.iter().map(|state| (state.as_str(), state.as_str())).collect();
        let lanes: Vec<(&str, &str)> = Lane::ALL.iter().map(|lane| (lane.as_str(), lane.as_str())).collect();
        let names: Vec<(&str, &str)> = projects
            .iter()
            .map(|project| (project.project_id.as_str(), project.project_id.as_str()))
            .collect();
        let within: Vec<(&str, &str)> = TIME_RANGES.iter().map(|(name, label, _)| (*name, *label)).collect();
        let more =
            [&self.kind, &self.env, &self.feed, &self.since, &self.until].iter().any(|text| !text.is_empty());
        html! {
            form.filters method="get" action="/runs" role="search" {
                (select("State", "status", &self.status, &states))
                (select("Lane", "lane", &self.lane, &lanes))
                @if names.len() > PROJECTS_MAX { (input("Project", "project", &self.project, "all")) }
                @else { (select("Project", "project", &self.project, &names)) }
                (select("Queued", "within", &self.within, &within))
                (input("Starts with", "find", &self.find, "id, commit, branch, name"))
                label.field { "Search in"
                    select name="by" {
                        @for (value, label) in SEARCH_FIELDS { option value=(value) selected[value == self.by] { (label)
                            } }
                    }
                }
                button.main type="submit" { "Filter" }
                @if self.is_narrow() { a.button href="/runs" { "Clear" } }
                details open[more] {
                    summary { "More" }
                    div.filters {
                        (input("Kind", "kind", &self.kind, "email"))
                        (input("Environment", "env", &self.env, "staging"))
                        (input("Feed", "feed", &self.feed, ""))
                        (input("Queued since (UTC)", "since", &self.since, "2026-02-14 10:30"))
                        (input("Queued before (UTC)", "until", &self.until, "2026-02-15"))
                    }
                }
            }
        }
    }
}

fn select(label: &str, name: &str, chosen: &str, options: &[(&str, &str)]) -> Markup {
    let known = chosen.is_empty() || options.iter().any(|(value, _)| *value == chosen);
    html! {
        label.field { (label)
            select name=(name) {
                option value="" { "any" }
                @for (value, label) in options { option value=(value) selected[*value == chosen] { (label) } }
                @if !known { option value=(chosen) selected { (chosen) } }
            }
        }
    }
}

fn input(label: &str, name: &str, value: &str, example: &str) -> Markup {
    html! {
        label.field { (label)
            input type="text" name=(name) value=(value) placeholder=(example) maxlength="1024"
                autocomplete="off"; }
    }
}

/// Parses a filter value, if there is one.
fn read<T>(text: &str, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    let unknown = || Problem::new("bad_filter", format!("invalid value `{text}` for the filter `{name}`"));
    parse(text).map(Some).ok_or_else(unknown)
}

/// Parses a UTC time in RFC 3339, or to the minute or the day.
fn moment(text: &str) -> Option<Timestamp> {
    if let Ok(exact) = text.parse::<Timestamp>() {
        return Some(exact);
    }
    let text = text.replace('T', " ");
    let full = if text.contains(':') { text } else { format!("{text} 00:00") };
    let formats = ["%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S"];
    formats
        .iter()
        .find_map(|format| NaiveDateTime::parse_from_str(&full, format).ok())
        .map(|time| time.and_utc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{TimeZone as _, Utc};

    fn filter(query: &str) -> Filter {
        Filter::from_uri(&format!("/runs?{query}").parse().unwrap())
    }

    #[test]
    fn filter_round_trips_through_the_address() {
        let one = filter("status=failed&project=shop&find=refs%2Fheads%2Fa+b&after=run-1&junk=1");
        assert_eq!(
            one.older("run-2"),
            "/runs?status=failed&project=shop&find=refs%2Fheads%2Fa+b&after=run-2"
        );
        assert_eq!(filter(one.first().split_once('?').unwrap().1), Filter { after: String::new(), ..one });
        assert_eq!(filter("").first(), "/runs");
        assert!(!filter("by=id").is_narrow() && filter("find=x").is_narrow());
    }

    #[test]
    fn search_text_meaning_is_detected_or_selected() {
        let now = Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap();
        let request = |query: &str| filter(query).to_request(now, 50).unwrap();
        assert_eq!(request("find=run-0199").id_prefix.as_deref(), Some("run-0199"));
        assert_eq!(request("find=0199&by=id").id_prefix.as_deref(), Some("run-0199"));
        assert_eq!(request("find=c0ffee").sha_prefix.as_deref(), Some("c0ffee"));
        assert_eq!(request("find=c0f").ref_prefix.as_deref(), Some("c0f"));
        assert_eq!(request("find=c0ffee&by=ref").ref_prefix.as_deref(), Some("c0ffee"));
        assert_eq!(request("find=c0ffee&by=name").name_prefix.as_deref(), Some("c0ffee"));
        assert_eq!(request("find=run-up&by=name").id_prefix, None);
        assert_eq!(request("kind=send+mail").kind.as_deref(), Some("send mail"));
        assert_eq!(request("kind=").kind, None);
        assert_eq!(request("within=24h").since, Some(now - TimeDelta::hours(24)));
        assert_eq!(request("since=2026-02-14T10:30&within=1h").since, Some(now));
        assert_eq!(request("until=2026-02-14T10:30:00Z").until, Some(now));
        assert_eq!(request("until=2026-02-14").until, Some(now - TimeDelta::minutes(630)));
    }

    #[test]
    fn invalid_filter_value_is_reported() {
        let now = Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap();
        for query in ["status=lost", "lane=4", "since=yesterday", "after=7"] {
            let problem = filter(query).to_request(now, 50).unwrap_err();
            assert!(problem.message.contains("invalid value"), "{query}");
        }
    }

    #[test]
    fn many_projects_become_a_text_input() {
        let projects = |count: usize| -> Vec<Project> {
            let project = |number: usize| Project {
                project_id: format!("project-{number:03}"),
                environments: Vec::new(),
                paused: None,
                created_at: Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap(),
            };
            (0..count).map(project).collect()
        };
        let few = filter("project=project-007").form(&projects(PROJECTS_MAX)).into_string();
        assert!(few.contains("<option value=\"project-007\" selected>"), "{few}");
        let many = filter("project=project-007").form(&projects(PROJECTS_MAX + 1)).into_string();
        assert!(
            !many.contains("project-000") && many.contains("name=\"project\" value=\"project-007\""),
            "{many}"
        );
        assert!(many.len() < few.len(), "the form is bounded");
    }

    #[test]
    fn form_shows_the_filter_and_escapes_markup() {
        let shown = filter("status=%22%3E%3Cscript%3E&find=%3Cb%3E").form(&[]).into_string();
        assert!(!shown.contains("<script>") && !shown.contains("<b>"), "{shown}");
        assert!(filter("kind=email").form(&[]).into_string().contains("<details open>"));
        assert!(filter("env=staging").form(&[]).into_string().contains("<details open>"));
    }
}
