//! Projects, schedules, feeds, syncs, rules, queues, tokens, webhooks, alerts and statistics behave the same with a
//! server as with the database.

use serde_json::Value;

use crate::commands::text;
use crate::feed::supplier;
use crate::fixture::{Fixture, on_both};
use crate::process::Output;

use super::server::Server;

on_both!(other_commands_are_equal_locally_and_remotely, other_refusals_are_equal_locally_and_remotely,);

/// Fields that differ between two calls: times and new ids.
const VARYING: [&str; 16] = [
    "added",
    "changed_at",
    "created_at",
    "expires_at",
    "lastRunCompletedAt",
    "last_used_at",
    "next_fire_at",
    "queued_at",
    "revoked_at",
    "rule_id",
    "rules_version",
    "run_id",
    "secret",
    "since",
    "token_id",
    "until_at",
];

/// Replaces varying fields: a list by its length, another value by a constant.
fn masked(value: &Value) -> Value {
    if let Some(items) = value.as_array() {
        return items.iter().map(masked).collect();
    }
    let Some(fields) = value.as_object() else { return value.clone() };
    let masked_fields = fields.iter().map(|(name, value)| {
        let value = match value.as_array() {
            _ if value.is_null() || !VARYING.contains(&name.as_str()) => masked(value),
            Some(items) => items.len().into(),
            None => "present".into(),
        };
        (name.clone(), value)
    });
    masked_fields.collect::<serde_json::Map<_, _>>().into()
}

/// Runs commands of every kind, and returns their outputs without varying fields.
fn run_all(suffix: &str, endpoint: &str, execute: impl Fn(&[&str]) -> Output) -> Vec<String> {
    let outputs = std::cell::RefCell::new(Vec::new());
    let run = |args: &str| -> Value {
        let args = args.replace('@', suffix).replace("ENDPOINT", endpoint);
        let words: Vec<&str> = std::iter::once("--json").chain(args.split('|')).collect();
        let ran = execute(&words);
        let value: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        let printed = format!("{args} {:?} {} {}", ran.code, masked(&value), ran.stderr);
        outputs.borrow_mut().push(printed.replace(suffix, "@"));
        value
    };
    for args in [
        "project|create|bank@|--env|a|--env|b",
        "project|create|bank@|--env|b",
        "project|pause|bank@|--note|stock-taking|--until|2h",
        "project|resume|bank@",
        "project|resume|bank@",
        "schedule|add|nightly@|--cron|30 2 * * *|--project|shop|--env|staging|--label|gpu",
        "schedule|pause|nightly@|--note|holidays",
        "schedule|resume|nightly@",
        "feed|add|feed@|--endpoint|ENDPOINT|--username|u|--password-env|USER|--schedule|0 2 * * *|--rate|0",
        "feed|pause|feed@|--note|why not|--until|1h",
        "feed|resume|feed@",
        "feed|watermark|feed@|--set|2026-01-01T00:00:00Z|--note|why not",
        "feed|heatmap|feed@",
        "rule|apply|feed@",
        "rule|apply|feed@|--batch|1",
        "queue|replay|work-items|--all",
        "hook|add|hook@|--project|shop|--secret-env|SECRET|--rule|main=staging",
        "alert|test",
    ] {
        run(args);
    }
    let rule = run("rule|add|--markup|1.3|--feed|feed@|--shape|ROUND|--rating|7");
    run("rule|test|--feed|feed@|--price|100|--carats|1");
    run(&format!("rule|remove|{}", rule["rule_id"]));
    run("rule|import|rules.json");
    let token = run("token|create|reader@|--role|viewer|--project|shop|--expires|30d");
    assert!(text(&token, "secret").starts_with("tm_"), "the secret is printed");
    run(&format!("token|revoke|{}", text(&token, "token.token_id")));
    let queued = run("feed|sync|feed@|--full|--key|monday@");
    run("feed|sync|feed@|--full|--key|monday@");
    run(&format!("run|cancel|{}", text(&queued, "run_id")));
    run("schedule|remove|feed-feed@");
    let removed = format!("rule|remove|{}", rule["rule_id"]);
    let mut outputs = outputs.into_inner();
    for own in [&removed, text(&queued, "run_id"), text(&token, "token.token_id")] {
        outputs = outputs.into_iter().map(|printed| printed.replace(own, "OWN")).collect();
    }
    outputs
}

/// Syncs a feed once, and returns the id of the sync.
fn sync_feed(fixture: &Fixture, server: &Server, endpoint: &str) -> String {
    let add = ["feed", "add", "tide", "--endpoint", endpoint, "--username", "u", "--password-env", "USER"];
    super::remote(fixture, server, &[&add[..], &["--rate", "0"]].concat()).ok();
    super::remote(fixture, server, &["feed", "sync", "tide"]).ok();
    for role in ["scheduler", "worker", "consolidator"] {
        fixture.ok(&[role, "--once"]);
    }
    let listed = super::remote(fixture, server, &["--json", "sync", "list"]).value();
    assert_eq!(text(&listed, "0.state"), "completed", "{listed}");
    text(&listed, "0.run_id").to_owned()
}

fn other_commands_are_equal_locally_and_remotely(fixture: &Fixture) {
    let server = Server::start(fixture);
    let (_supplier, endpoint) = supplier(fixture, &["--stones", "300"]);
    let sync = sync_feed(fixture, &server, &endpoint);
    fixture.write("rules.json", &fixture.json(&["rule", "list"]).to_string());

    let local = run_all("-one", &endpoint, |args| fixture.tidemill(args));
    let remote = run_all("-two", &endpoint, |args| super::remote(fixture, &server, args));
    let differences: Vec<_> = local.iter().zip(&remote).filter(|(local, remote)| local != remote).collect();
    assert!(differences.is_empty() && local.len() == remote.len(), "{differences:#?}");
    for good in ["project|create|bank@|--env|a", "feed|add|", "rule|apply|", "hook|add|", "token|revoke|"] {
        let printed = remote.iter().find(|printed| printed.starts_with(good));
        assert!(printed.is_some_and(|printed| printed.contains(" Some(0) ")), "{good}: {printed:?}");
    }

    for args in [
        &["project", "list"][..],
        &["schedule", "list"],
        &["feed", "list"],
        &["feed", "show", "tide"],
        &["feed", "watermark", "tide"],
        &["feed", "heatmap", "tide"],
        &["feed", "rejects"],
        &["feed", "gaps", "tide", "--all"],
        &["sync", "list", "--feed", "tide", "--limit", "1"],
        &["sync", "show", &sync],
        &["sync", "cancel", &sync],
        &["rule", "list"],
        &["queue", "list"],
        &["queue", "peek", "work-items", "--limit", "5000"],
        &["queue", "dead", "work-items"],
        &["token", "list"],
        &["audit", "list", "--limit", "1"],
        &["hook", "list"],
        &["alert", "list", "--all"],
        &["stats"],
    ] {
        let args = [&["--json"], args].concat();
        let (local, remote) = (fixture.tidemill(&args), super::remote(fixture, &server, &args));
        assert_eq!((remote.code, &remote.stdout), (Some(0), &local.stdout), "{args:?}: {local:?}");
        assert!(remote.stdout.len() > 2, "{args:?}: {remote:?}");
    }
    // A sync can be followed with a server, too.
    let mut up = crate::process::Process::start(fixture, "up", &mut fixture.command(&["up"]));
    let followed = super::remote(fixture, &server, &["--json", "feed", "sync", "tide", "--full", "--wait"]);
    assert_eq!(text(&followed.value(), "run.status"), "success", "{followed:?}");
    up.kill();

    // The audit log contains each change once, from the database and from the server.
    for action in ["tokens.create", "tokens.delete", "hooks.put", "feeds.put"] {
        let count = format!(
            "SELECT CAST(count(*) AS text) FROM ops.audit \
              WHERE action = '{action}' AND who = 'ann' AND outcome = 'applied'"
        );
        let expected = if action == "feeds.put" { "3" } else { "2" };
        assert_eq!(fixture.sql(&count).expect("the audit log is read"), [expected], "{action}");
    }
}

fn other_refusals_are_equal_locally_and_remotely(fixture: &Fixture) {
    let server = Server::start(fixture);
    let add = ["--endpoint", "http://127.0.0.1:9/", "--username", "u", "--password-env", "P"];
    fixture.ok(&[&["feed", "add", "tide"], &add[..]].concat());
    let cron = ["--cron", "61 * * * *", "--project", "shop", "--env", "staging"];
    let unknown = "00000000-0000-7000-8000-000000000000";
    for (args, sentence) in [
        (&["project", "create", "No Name", "--env", "a"][..], "project `No Name` must be lower-case letters"),
        (&["project", "pause", "nope"], "project `nope` does not exist"),
        (&["project", "resume", "No/Name"], "project `No/Name` does not exist"),
        (&[&["schedule", "add", "n"], &cron[..]].concat(), "the minute field `61`"),
        (&["schedule", "remove", "nope"], "schedule `nope` does not exist"),
        (&["schedule", "pause", ".."], "schedule `..` does not exist"),
        (&[&["feed", "add", "Other!"], &add[..]].concat(), "feed `Other!` must be lower-case letters"),
        (&[&["feed", "add", "n", "--kind", "fax"], &add[..]].concat(), "unknown feed kind `fax`"),
        (&["feed", "show", ""], "feed `` does not exist"),
        (&["feed", "sync", "nope"], "feed `nope` does not exist"),
        (&["feed", "sync", "tide", "--key", ""], "idempotency key must not be empty"),
        (&["feed", "gaps", "nope"], "feed `nope` does not exist"),
        (&["feed", "heatmap", "tide"], "feed tide has no completed scan"),
        (&["sync", "list", "--feed", "nope"], "feed `nope` does not exist"),
        (&["sync", "show", "no such"], "sync `no such` does not exist"),
        (&["sync", "retry", unknown], "does not exist"),
        (&["sync", "consolidate", unknown, "--force"], "does not exist"),
        (&["rule", "add", "--markup", "0"], "markup"),
        (&["rule", "add", "--markup", "1", "--carat-min", "2", "--carat-max", "1"], "carats"),
        (&["rule", "remove", "4711"], "rule 4711 does not exist"),
        (&["queue", "peek", "nope"], "queue `nope` does not exist"),
        (&["queue", "dead", "../x"], "queue `../x` does not exist"),
        (&["token", "create", " ", "--role", "viewer"], "name must not be empty"),
        (&["token", "revoke", unknown], "does not exist"),
        (&["hook", "add", "h", "--project", "nope", "--secret-env", "S"], "project `nope` does not exist"),
        (&["hook", "remove", "No Hook"], "hook `No Hook` does not exist"),
        (&["alert", "test"], "no alert targets are configured"),
    ] {
        let (local, remote) = (fixture.tidemill(args), super::remote(fixture, &server, args));
        assert_eq!((remote.code, &remote.stderr), (Some(3), &local.stderr), "{args:?}: {local:?}");
        assert!(remote.stderr.contains(sentence), "{args:?}: {remote:?}");
    }
}
