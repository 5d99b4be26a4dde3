//! Tests of the parameters of a filter.

use super::*;
use crate::feed_definition::parse;
use crate::feed_definition::request::ParamTarget;

fn definition(extra: &str) -> FeedDefinition {
    let text = format!(
        "version: 1\nfeed: f\nclient: {{base_url: https://api.test}}\nresource: {{path: /x, primary_key: id}}\n\
         paginator: offset\ninto: {{table: shop.x}}\n{extra}"
    );
    parse(&text).unwrap()
}

fn params(definition: &FeedDefinition, query: &RecordQuery) -> Vec<(String, String)> {
    let name = |target: &ParamTarget| match target {
        ParamTarget::Query(name) => name.clone(),
        ParamTarget::Body(path) => path.to_string(),
    };
    let found = definition.filter_params(query).unwrap();
    found.iter().map(|(target, value)| (name(target), value.to_text())).collect()
}

fn range(from: i64, to: i64) -> RecordQuery {
    RecordQuery { range: Some(QueryRange { from, to }), ..RecordQuery::default() }
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn money(bound: &str) -> FeedDefinition {
    definition(&format!(
        "partition: {{type: heatmap, kind: money, from: 0, to: 1000, from_param: min, to_param: max, \
         to_bound: {bound}, count: {{header: X-Total-Count}}}}"
    ))
}

#[test]
fn money_range_is_written_with_decimals() {
    assert_eq!(
        params(&money("exclusive"), &range(1_050, 2_000)),
        pairs(&[("min", "10.50"), ("max", "20.00")])
    );
    assert_eq!(
        params(&money("inclusive"), &range(1_050, 2_000)),
        pairs(&[("min", "10.50"), ("max", "19.99")])
    );
}

/// The next partition begins at 20.00, so 19.99 must be in this one, for every granularity.
#[test]
fn inclusive_boundary_is_one_step_below_the_next_partition() {
    let partition = |keys: &str| {
        definition(&format!(
            "partition: {{type: heatmap, {keys}, from_param: min, to_param: max, to_bound: inclusive, \
             count: {{header: X-Total-Count}}}}"
        ))
    };
    let last = |keys: &str, to: i64| params(&partition(keys), &range(0, to));
    let coarse = "kind: money, from: 0, to: 1000, granularity: 1";
    assert_eq!(last(coarse, 2_000), pairs(&[("max", "19.99")]));
    assert_eq!(last("kind: number, from: 0, to: 1000, granularity: 10", 20), pairs(&[("max", "19")]));
    let time = |format: &str| format!("kind: time, from: 1970-01-01, granularity: 1d, format: {format}");
    for (format, expected) in [
        ("rfc3339", "1970-01-01T23:59:59.999999Z"),
        ("date", "1970-01-01"),
        ("unix", "86399"),
        ("unix_ms", "86399999"),
    ] {
        assert_eq!(last(&time(format), 86_400), pairs(&[("max", expected)]), "{format}");
    }
}

#[test]
fn first_and_last_range_are_open() {
    assert_eq!(params(&money("exclusive"), &range(0, 2_000)), pairs(&[("max", "20.00")]));
    assert_eq!(params(&money("exclusive"), &range(2_000, 100_000)), pairs(&[("min", "20.00")]));
    assert_eq!(params(&money("exclusive"), &range(0, 100_000)), []);
}

#[test]
fn query_that_does_not_fit_the_definition_is_an_error() {
    let plain = definition("");
    assert!(matches!(plain.filter_params(&range(0, 1)), Err(QueryError::NoRange { .. })));
    assert!(matches!(money("exclusive").filter_params(&range(5, 5)), Err(QueryError::EmptyRange { .. })));
    let value = RecordQuery { value: Some("de".into()), ..RecordQuery::default() };
    assert!(matches!(plain.filter_params(&value), Err(QueryError::NoValues { .. })));
    let since = RecordQuery { updated_from: Some(CursorValue::Number(1)), ..RecordQuery::default() };
    assert_eq!(plain.filter_params(&since), Err(QueryError::NoIncremental));
    let coarse = definition(
        "partition: {type: heatmap, kind: number, from: 0, to: 100, granularity: 10, from_param: a, to_param: b, \
         count: {total_path: total}}",
    );
    assert!(matches!(coarse.filter_params(&range(5, 100)), Err(QueryError::Granularity { .. })));
}

#[test]
fn incremental_start_is_written_in_its_format() {
    let time = |text: &str| CursorValue::Time(timestamp(text, None).unwrap());
    let since = |value| RecordQuery { updated_from: Some(value), ..RecordQuery::default() };
    let feed = |format: &str| {
        definition(&format!("incremental: {{cursor_path: updated, start_param: since, format: {format}}}"))
    };
    for (format, expected) in [
        ("rfc3339", "2026-01-31T12:00:00Z"),
        ("date", "2026-01-31"),
        ("unix", "1769860800"),
        ("unix_ms", "1769860800000"),
    ] {
        let found = params(&feed(format), &since(time("2026-01-31T12:00:00Z")));
        assert_eq!(found, pairs(&[("since", expected)]), "{format}");
    }
    assert_eq!(feed("date").filter_params(&since(CursorValue::Number(1))), Err(QueryError::CursorType));
    let number =
        definition("incremental: {cursor_path: rev, start_param: rev, kind: number, initial_value: 5}");
    assert_eq!(params(&number, &since(CursorValue::Number(9))), pairs(&[("rev", "9")]));
    assert_eq!(params(&number, &RecordQuery::default()), pairs(&[("rev", "5")]));
}

#[test]
fn initial_value_has_the_type_and_format_of_the_cursor() {
    let initial = |keys: &str| {
        let feed = definition(&format!("incremental: {{cursor_path: at, start_param: since, {keys}}}"));
        feed.filter_params(&RecordQuery::default()).unwrap().remove(0).1
    };
    let text = |text: &str| ParamValue::Text(text.to_owned());
    for (keys, expected) in [
        ("kind: number, initial_value: 5", ParamValue::Integer(5)),
        ("kind: number, initial_value: '-7'", ParamValue::Integer(-7)),
        ("initial_value: 2026-01-31", text("2026-01-31T00:00:00Z")),
        ("format: date, initial_value: '2026-01-31T12:00:00Z'", text("2026-01-31")),
        ("format: unix, initial_value: 1769860800", ParamValue::Integer(1_769_860_800)),
        ("format: unix_ms, initial_value: 2026-01-31", ParamValue::Integer(1_769_817_600_000)),
    ] {
        assert_eq!(initial(keys), expected, "{keys}");
    }
}

#[test]
fn overlap_moves_the_start_before_the_watermark() {
    let time = definition("incremental: {cursor_path: u, start_param: s, overlap: 1h}").incremental.unwrap();
    let at = |text: &str| CursorValue::Time(timestamp(text, None).unwrap());
    assert_eq!(time.start_after(at("2026-01-31T12:00:00Z")), at("2026-01-31T11:00:00Z"));
    let number = definition("incremental: {cursor_path: u, start_param: s, kind: number, overlap: 3}");
    assert_eq!(number.incremental.unwrap().start_after(CursorValue::Number(10)), CursorValue::Number(7));
}

#[test]
fn cursor_of_a_record_is_read_in_its_format() {
    let feed =
        definition("incremental: {cursor_path: meta.at, start_param: s, format: unix}").incremental.unwrap();
    let record = |text: &str| super::super::JsonValue::parse(text.as_bytes(), 8).unwrap();
    let expected = CursorValue::Time(timestamp("2023-11-14T22:13:20Z", None).unwrap());
    assert_eq!(feed.cursor_of(&record(r#"{"meta":{"at":1700000000}}"#)), Some(expected));
    assert_eq!(feed.cursor_of(&record(r#"{"meta":{"at":"soon"}}"#)), None);
    assert_eq!(feed.cursor_of(&record("{}")), None);
}

#[test]
fn time_windows_cover_the_range_without_gaps() {
    let feed = definition(
        "partition: {type: time_windows, from: 2026-01-01, window: 30d, from_param: a, to_param: b, format: date, \
         granularity: 1d}",
    );
    let now = timestamp("2026-03-15T10:00:00Z", None).unwrap();
    let queries = feed.partition.fixed_queries(now).unwrap();
    assert_eq!(queries.len(), 3);
    let ranges: Vec<QueryRange> = queries.iter().filter_map(|query| query.range).collect();
    assert!(ranges.windows(2).all(|pair| pair[0].to == pair[1].from));
    assert_eq!(params(&feed, &queries[0]), pairs(&[("b", "2026-01-31")]));
    assert_eq!(params(&feed, &queries[2]), pairs(&[("a", "2026-03-02")]));
}

#[test]
fn time_windows_are_merged_above_the_limit() {
    let feed = definition(
        "partition: {type: time_windows, from: 1990-01-01, window: 1m, from_param: a, to_param: b}",
    );
    let now = timestamp("2026-03-15T10:00:00Z", None).unwrap();
    let queries = feed.partition.fixed_queries(now).unwrap();
    assert!((900..=FEED_VALUES_MAX).contains(&queries.len()), "{}", queries.len());
}

#[test]
fn values_and_none_have_fixed_queries_and_a_heatmap_has_not() {
    let now = Timestamp::UNIX_EPOCH;
    let values = definition("partition: {type: values, param: country, values: [de, fr]}");
    let queries = values.partition.fixed_queries(now).unwrap();
    assert_eq!(queries.len(), 2);
    assert_eq!(params(&values, &queries[1]), pairs(&[("country", "fr")]));
    assert_eq!(definition("").partition.fixed_queries(now), Some(vec![RecordQuery::default()]));
    assert_eq!(money("exclusive").partition.fixed_queries(now), None);
}
