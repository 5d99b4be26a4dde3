//! The definitions of `examples/feeds`: each is applied against the supplier, and its table follows the source.

use std::fs;
use std::path::PathBuf;

use tidemill_core::run::RunState;

use crate::feed::{stop, supplier};
use crate::fixture::{Fixture, TIMEOUT, on_both, wait_until_within};
use crate::process::Process;
use crate::rest_items::{change, check_equal, rest_url};

on_both!(example_of_each_paginator_follows_its_source);

/// URL of the supplier in the examples.
const EXAMPLE_URL: &str = "http://127.0.0.1:8700/rest";
const ITEMS: usize = 320;

/// An example: the paginator that names the file, and the feed and table of the definition.
struct Example {
    paginator: String,
    text: String,
    feed: String,
    table: String,
}

fn examples() -> Vec<Example> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/feeds");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut examples: Vec<Example> = files
        .map(|file| {
            let text = fs::read_to_string(&file).unwrap();
            let value = |key: &str| {
                let (_, rest) =
                    text.split_once(key).unwrap_or_else(|| panic!("{} has no `{key}`", file.display()));
                rest.split([',', '}', '\n']).next().unwrap_or_default().trim().to_owned()
            };
            let paginator = file.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(
                text.contains(&format!("type: {paginator}")),
                "{} shows another paginator",
                file.display()
            );
            Example { paginator, feed: value("feed: "), table: value("table: "), text: text.clone() }
        })
        .collect();
    examples.sort_by(|one, other| one.paginator.cmp(&other.paginator));
    examples
}

/// Syncs all feeds at the same time; each sync must succeed.
fn sync(fixture: &Fixture, examples: &[Example], options: &[&str]) {
    for example in examples {
        fixture.ok(&[&["feed", "sync", &example.feed], options].concat());
    }
    wait_until_within("the syncs end", TIMEOUT, || {
        let runs = fixture.runs();
        let failed = runs.iter().find(|run| run.status.is_terminal() && run.status != RunState::Success);
        assert!(failed.is_none(), "{failed:?}");
        runs.iter().all(|run| run.status == RunState::Success).then_some(())
    });
}

fn example_of_each_paginator_follows_its_source(fixture: &Fixture) {
    let examples = examples();
    let (mut source, endpoint) = supplier(fixture, &["--stones", &ITEMS.to_string()]);
    let mut up = Process::start(fixture, "up", &mut fixture.command(&["up"]));
    for example in &examples {
        let text = example.text.replace(EXAMPLE_URL, &rest_url(&endpoint));
        assert_ne!(text, example.text, "{} reads another source", example.paginator);
        let file = fixture.write(&format!("{}.yaml", example.paginator), &text);
        fixture.ok(&["feed", "apply", &file.display().to_string(), "--yes"]);
    }
    sync(fixture, &examples, &[]);
    for example in &examples {
        assert_eq!(check_equal(fixture, &example.table, &endpoint), ITEMS, "{}", example.paginator);
    }
    let auto = fixture.ok(&["feed", "show", "items-auto"]);
    assert!(auto.contains("paginator  header_link"), "{auto}");

    change(&endpoint, "price", 40);
    change(&endpoint, "sell", 10);
    sync(fixture, &examples, &[]);
    // Without `incremental` and without a lookup, only the second full sync of a list that is declared complete deletes
    // a record.
    let incremental = examples.iter().filter(|example| example.paginator != "auto");
    for example in incremental {
        assert!(check_equal(fixture, &example.table, &endpoint) < ITEMS, "{}", example.paginator);
    }
    change(&endpoint, "remove", 10);
    change(&endpoint, "add", 5);
    for _ in 0..2 {
        sync(fixture, &examples, &["--full"]);
    }
    for example in &examples {
        check_equal(fixture, &example.table, &endpoint);
    }
    stop(&mut up);
    stop(&mut source);
}

/// Each kind that the schema knows has an example.
#[test]
fn every_paginator_has_an_example() {
    let fixture = Fixture::bare(crate::fixture::Kind::Sqlite);
    let schema = fixture.json(&["feed", "schema"]);
    let variants = schema["properties"]["paginator"]["oneOf"].as_array().unwrap().clone();
    let mut names: Vec<String> = variants
        .iter()
        .filter_map(|variant| variant["properties"]["type"]["const"].as_str().map(str::to_owned))
        .collect();
    names.sort();
    assert_eq!(examples().into_iter().map(|example| example.paginator).collect::<Vec<_>>(), names);
}
