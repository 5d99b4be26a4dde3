//! Commands of feeds and syncs, with real processes and a simulated supplier.

use rustix::process::Signal;
use serde_json::Value;

use crate::commands::text;
use crate::fixture::{Fixture, TIMEOUT, on_both, wait_until};
use crate::process::{Output, Process, run};

on_both!(feed_commands_cover_the_whole_lifecycle, sync_roles_log_their_work_once);

mod sqlite_only {
    use crate::fixture::{Fixture, Kind};

    #[test]
    fn failed_sync_can_be_inspected_and_repaired() {
        super::failed_sync_can_be_inspected_and_repaired(&Fixture::new(Kind::Sqlite));
    }

    #[test]
    fn invalid_feed_commands_are_refused() {
        super::invalid_feed_commands_are_refused(&Fixture::new(Kind::Sqlite));
    }
}

/// Starts a supplier, and returns its address.
pub(crate) fn supplier(fixture: &Fixture, options: &[&str]) -> (Process, String) {
    let args = [&["--json", "supplier", "--listen", "127.0.0.1:0", "--seed", "7"], options].concat();
    let mut command = fixture.command(&args);
    command.env("SUPPLIER_PASSWORD", "open sesame");
    let process = Process::start(fixture, "supplier", &mut command);
    let endpoint = wait_until("the supplier listens", || {
        let message: Value = serde_json::from_str(process.stdout().lines().next()?).ok()?;
        Some(text(&message, "endpoint").to_owned())
    });
    (process, endpoint)
}

/// A command with the password of the feed in its environment.
pub(crate) fn tidemill(fixture: &Fixture, args: &[&str]) -> Output {
    run(fixture.command(args).env("FEED_PASSWORD", "open sesame"))
}

fn json(fixture: &Fixture, args: &[&str]) -> Value {
    let text = tidemill(fixture, &[&["--json"], args].concat()).ok();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
}

fn role(fixture: &Fixture, name: &str) -> Process {
    Process::start(fixture, name, fixture.command(&[name]).env("FEED_PASSWORD", "open sesame"))
}

/// Stops a role, which must succeed.
pub(crate) fn stop(role: &mut Process) {
    role.signal(Signal::TERM);
    assert_eq!(role.wait_for_exit(TIMEOUT), Some(0), "{}", role.stderr());
}

pub(crate) fn add(fixture: &Fixture, endpoint: &str) -> Value {
    let of_account = ["--username", "ann", "--password-env", "FEED_PASSWORD", "--rate", "0"];
    json(fixture, &[&["feed", "add", "nivoda-natural", "--endpoint", endpoint], &of_account[..]].concat())
}

fn add_with_every_flag(fixture: &Fixture, endpoint: &str, copy: &str) {
    let of_account = ["--username", "ann", "--password-env", "FEED_PASSWORD", "--project", "shop"];
    let of_time = ["--schedule", "0 2 * * *", "--time-zone", "Europe/Berlin", "--rate", "500"];
    let of_endpoint =
        ["--kind", "nivoda", "--endpoint", endpoint, "--watermark-copy", copy, "--settings", "{}"];
    let words = [&["feed", "add", "nivoda-natural"], &of_account[..], &of_time, &of_endpoint].concat();
    let message = tidemill(fixture, &words).ok();
    assert!(
        message.contains("feed nivoda-natural reads ") && message.contains("schedule feed-nivoda-natural")
    );
    let schedules = fixture.json(&["schedule", "list"]);
    assert_eq!(text(&schedules, "0.schedule_id"), "feed-nivoda-natural");
    let feeds = fixture.json(&["feed", "list"]);
    assert_eq!((text(&feeds, "0.feed"), text(&feeds, "0.project_id")), ("nivoda-natural", "shop"));
    assert_eq!(feeds[0]["rate"], 500);
    assert!(!fixture.dump().join("\n").contains("open sesame"), "the password is not stored");
}

fn feed_commands_cover_the_whole_lifecycle(fixture: &Fixture) {
    let account = ["--stones", "1200", "--username", "ann", "--password-env", "SUPPLIER_PASSWORD"];
    let (mut supplier, endpoint) = supplier(fixture, &account);
    assert_eq!(fixture.json(&["feed", "list"]), Value::Array(Vec::new()));

    let copy = fixture.path("watermark.json");
    let copy = copy.to_str().unwrap();
    add_with_every_flag(fixture, &endpoint, copy);

    sync_once_per_role(fixture);
    let mut up = role(fixture, "up");
    let copied = follow_syncs(fixture, copy);
    restore_watermark(fixture, &copied);
    rules(fixture);
    assert!(fixture.ok(&["feed", "pause", "nivoda-natural", "--note", "stock-taking"]).contains("is paused"));
    assert_eq!(fixture.json(&["feed", "resume", "nivoda-natural"])["resumed"], true);
    assert!(fixture.ok(&["feed", "resume", "nivoda-natural"]).contains("was not paused"));
    stop(&mut up);
    stop(&mut supplier);
}

/// Plans, fetches and consolidates once, with one process per role.
fn sync_once_per_role(fixture: &Fixture) {
    let queued = json(fixture, &["feed", "sync", "nivoda-natural", "--key", "monday"]);
    assert_eq!(
        json(fixture, &["feed", "sync", "nivoda-natural", "--key", "monday"])["run_id"],
        queued["run_id"]
    );
    let id = text(&queued, "run_id").to_owned();
    assert!(fixture.ok(&["run", "why", &id]).contains("scheduler"));
    assert_eq!(json(fixture, &["scheduler", "--once"])["planned"], 1);
    let all = fixture.json(&["queue", "list"]);
    let items = all.as_array().unwrap().iter().find(|queue| text(queue, "settings.queue") == "work-items");
    assert!(items.is_some_and(|queue| queue["depth"]["waiting"].as_i64() >= Some(1)), "{all}");
    let peeked = fixture.json(&["queue", "peek", "work-items"]);
    assert_eq!(text(&peeked, "0.body.type"), "WORK_ITEM");
    assert!(fixture.ok(&["queue", "peek", "work-items"]).contains("partition-0"));
    assert!(
        json(fixture, &["worker", "--once", "--pages-min", "2", "--pages-max", "4"])["pages"].as_u64()
            >= Some(40)
    );
    assert_eq!(json(fixture, &["consolidator", "--once"])["completed"], 1);
    let shown = fixture.json(&["sync", "show", &id]);
    assert_eq!(text(&shown, "sync.state"), "completed");
    assert_eq!(
        shown["partitions"].as_array().map(Vec::len),
        shown["sync"]["expected_workers"].as_u64().map(to_usize)
    );
    assert!(fixture.ok(&["sync", "show", &id]).contains("PARTITION"));
    assert!(fixture.ok(&["sync", "list", "--feed", "nivoda-natural"]).contains("full completed"));
    assert_eq!(fixture.sql("SELECT CAST(count(*) AS text) FROM diamonds").unwrap(), ["1200"]);
    let heatmap = fixture.json(&["feed", "heatmap", "nivoda-natural"]);
    let counted: i64 =
        heatmap["cells"].as_array().unwrap().iter().filter_map(|cell| cell["count"].as_i64()).sum();
    assert_eq!(counted, 1_200);
    assert!(fixture.ok(&["feed", "heatmap", "nivoda-natural"]).contains('█'));
    assert_eq!(fixture.json(&["feed", "rejects", "nivoda-natural"]), Value::Array(Vec::new()));
    assert_eq!(fixture.json(&["feed", "gaps", "nivoda-natural", "--all"]), Value::Array(Vec::new()));
}

/// Follows syncs until they end, and returns the copy of the watermark.
fn follow_syncs(fixture: &Fixture, copy: &str) -> Value {
    let message = tidemill(fixture, &["feed", "sync", "nivoda-natural", "--full", "--wait"]).ok();
    assert!(message.contains("success: 1200 records listed: 1200 unchanged"), "{message}");
    let answer = json(fixture, &["feed", "sync", "nivoda-natural", "--wait"]);
    assert_eq!((text(&answer, "run.status"), text(&answer, "sync.run_type")), ("success", "incremental"));
    let copied = wait_until("the watermark is copied", || {
        let copied: Value = serde_json::from_str(&std::fs::read_to_string(copy).ok()?).ok()?;
        let mark = fixture.json(&["feed", "watermark", "nivoda-natural"]);
        (copied["lastUpdatedAt"] == mark["lastUpdatedAt"]).then_some(copied)
    });
    assert!(fixture.ok(&["feed", "show", "nivoda-natural"]).contains("watermark  20"));
    copied
}

/// Sets the watermark, and restores it from its copy.
fn restore_watermark(fixture: &Fixture, copied: &Value) {
    let set = json(
        fixture,
        &["feed", "watermark", "nivoda-natural", "--set", "2026-01-01T00:00:00Z", "--note", "why not"],
    );
    assert!(text(&set, "lastUpdatedAt").starts_with("2026-01-01T00:00:00"));
    let saved = fixture.write("saved.json", &copied.to_string());
    let back = json(fixture, &["feed", "watermark", "nivoda-natural", "--import", saved.to_str().unwrap()]);
    assert_eq!(back["lastUpdatedAt"], copied["lastUpdatedAt"]);
    let changes = fixture.ok(&["feed", "watermark", "nivoda-natural"]);
    assert!(changes.contains("why not") && changes.contains("ann"), "{changes}");
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Tests, applies, exports, imports and removes a rule.
fn rules(fixture: &Fixture) {
    let before = fixture.json(&["rule", "list"]);
    assert_eq!(before.as_array().map(Vec::len), Some(1));
    let add = [
        "rule",
        "add",
        "--priority",
        "10",
        "--markup",
        "2",
        "--rating",
        "8",
        "--feed",
        "nivoda-natural",
        "--shape",
        "ROUND",
        "--carat-min",
        "0.5",
        "--carat-max",
        "9",
        "--price-min",
        "100",
        "--price-max",
        "1000000",
    ];
    let rule = fixture.json(&add)["rule_id"].to_string();
    let probe = ["rule", "test", "--feed", "nivoda-natural", "--price", "123.45", "--carats", "1.01"];
    assert_eq!(fixture.json(&probe)["retail_price"], 24_690);
    assert!(fixture.ok(&probe).contains("applies: 246.90 dollars (× 2.0000), rating 8"));
    let other = [&probe[..], &["--shape", "PEAR"]].concat();
    assert_eq!(fixture.json(&other)["retail_price"], 14_197, "$141.9675, rounded half up");
    let listed = fixture.ok(&["rule", "list"]);
    assert!(listed.contains("2.0000") && listed.contains("1.1500"), "{listed}");
    let applied = tidemill(fixture, &["rule", "apply", "nivoda-natural", "--batch", "500"]);
    assert!(
        applied.stdout.starts_with("1200 stones of nivoda-natural repriced with version "),
        "{applied:?}"
    );
    let progress =
        ["500 stones", "1000 stones"].map(|so_far| format!("{so_far} of nivoda-natural repriced so far"));
    assert_eq!(applied.stderr.lines().collect::<Vec<_>>(), progress, "{applied:?}");
    let applied = json(fixture, &["rule", "apply", "nivoda-natural"]);
    assert!(
        applied["stones"] == 0 && applied["rejected"] == 0,
        "all stones have the current rules: {applied}"
    );
    let doubled =
        "SELECT CAST(count(*) AS text) FROM diamonds WHERE retail_price_cents = 2 * feed_price_cents";
    let by_rule = format!("SELECT CAST(count(*) AS text) FROM diamonds WHERE rule_id = {rule}");
    assert_eq!(fixture.sql(doubled).unwrap(), fixture.sql(&by_rule).unwrap());
    assert_ne!(fixture.sql(&by_rule).unwrap(), ["0"]);
    let file = fixture.write("rules.json", &fixture.json(&["rule", "list"]).to_string());
    let file = file.to_str().unwrap();
    assert_eq!(
        fixture.json(&["rule", "import", file, "--replace"])["added"].as_array().map(Vec::len),
        Some(2)
    );
    assert!(fixture.ok(&["rule", "import", file]).contains("2 rules added"));
    let all = fixture.json(&["rule", "list"]);
    assert_eq!(all.as_array().map(Vec::len), Some(4));
    let number = all[0]["rule_id"].to_string();
    assert!(fixture.ok(&["rule", "remove", &number]).contains("removed"));
    let again = fixture.tidemill(&["rule", "remove", &number]);
    assert_eq!(again.code, Some(3), "{again:?}");
}

/// A failed partition, and all ways to repair it.
fn failed_sync_can_be_inspected_and_repaired(fixture: &Fixture) {
    let behaviour = r#"{"without_ids_next": 1}"#;
    let (mut supplier, endpoint) = supplier(fixture, &["--stones", "4000", "--behaviour", behaviour]);
    add(fixture, &endpoint);
    let mut up = role(fixture, "up");
    let failed = tidemill(fixture, &["feed", "sync", "nivoda-natural", "--wait"]);
    assert_eq!(failed.code, Some(3), "{failed:?}");
    assert!(failed.stdout.contains("partitions failed"), "{failed:?}");
    assert!(
        failed.stdout.contains("first cause: ") && failed.stdout.contains("none has an id"),
        "{failed:?}"
    );
    let list = fixture.json(&["sync", "list"]);
    assert_eq!((text(&list, "0.state"), &list[0]["failed_workers"]), ("failed", &1.into()));
    let id = text(&list, "0.run_id").to_owned();
    up.wait_for_stderr(&format!(" of sync {id} failed: "), 1);
    assert!(fixture.ok(&["sync", "show", &id]).contains("none has an id"));
    let run = text(&list, "0.ops_run_id").to_owned();
    let why = fixture.ok(&["run", "why", &run]);
    assert!(why.contains("partitions failed") && why.contains("none has an id"), "{why}");

    let refused = fixture.tidemill(&["sync", "consolidate", &id]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("hint: ") && refused.stderr.contains("--force"), "{refused:?}");
    assert!(fixture.ok(&["sync", "consolidate", &id, "--force"]).contains(&id));
    wait_until("the forced consolidation ends", || {
        let shown = fixture.json(&["sync", "show", &id]);
        (shown["sync"]["error"].as_str()?.contains("by force")).then_some(())
    });
    assert_eq!(fixture.json(&["feed", "watermark", "nivoda-natural"]), Value::Null);

    let retried = fixture.json(&["sync", "retry", &id]);
    assert_eq!(retried["created"], true);
    wait_until("the retry ends", || {
        (text(&fixture.json(&["sync", "show", &id]), "sync.state") == "completed").then_some(())
    });
    assert_eq!(fixture.sql("SELECT CAST(count(*) AS text) FROM diamonds").unwrap(), ["4000"]);
    let completed = fixture.tidemill(&["sync", "retry", &id]);
    assert_eq!(completed.code, Some(3), "{completed:?}");
    stop(&mut up);

    // Cancelled while it waits for a worker, and restarted.
    json(fixture, &["feed", "sync", "nivoda-natural", "--full"]);
    json(fixture, &["scheduler", "--once"]);
    let id = text(&fixture.json(&["sync", "list", "--limit", "1"]), "0.run_id").to_owned();
    assert!(fixture.ok(&["sync", "cancel", &id, "--reason", "wrong day"]).contains("is cancelled"));
    assert_eq!(fixture.json(&["sync", "cancel", &id])["cancelled"], false);
    let wrong = fixture.tidemill(&["sync", "retry", &id, "--restart", "--partition", "partition-77"]);
    assert_eq!(wrong.code, Some(3), "{wrong:?}");
    assert!(wrong.stderr.contains("partition-77"), "{wrong:?}");
    assert!(fixture.ok(&["sync", "retry", &id, "--restart"]).contains("continues as run-"));
    assert!(fixture.ok(&["sync", "retry", &id]).contains("is already running"));
    let mut roles = [role(fixture, "scheduler"), role(fixture, "worker"), role(fixture, "consolidator")];
    wait_until("the retry ends", || {
        (text(&fixture.json(&["sync", "show", &id]), "sync.state") == "completed").then_some(())
    });
    roles.iter_mut().for_each(stop);

    // An invalid message becomes a dead letter, is listed, and is sent again.
    let dead = "UPDATE messages SET state = 'dead', dead_reason = 'deliveries', body = '{}', \
                ended_at = enqueued_at WHERE rowid = (SELECT min(rowid) FROM messages \
                WHERE queue = 'work-items') RETURNING message_id";
    let message = fixture.sql(dead).unwrap().remove(0);
    assert!(fixture.ok(&["queue", "dead", "work-items"]).contains(&message));
    assert_eq!(text(&fixture.json(&["queue", "dead", "work-items"]), "0.message_id"), message);
    assert_eq!(fixture.json(&["queue", "replay", "work-items", &message])["replayed"], 1);
    assert_eq!(fixture.json(&["queue", "replay", "work-items", "--all"])["replayed"], 0);
    stop(&mut supplier);
}

/// Roles log their start and each sync once, but not each page. Standard output contains only data.
fn sync_roles_log_their_work_once(fixture: &Fixture) {
    let (mut supplier, endpoint) = supplier(fixture, &["--stones", "3000"]);
    add(fixture, &endpoint);
    let mut scheduler = role(fixture, "scheduler");
    let mut worker = role(fixture, "worker");
    let mut command = fixture.command(&["--json", "consolidator"]);
    let mut consolidator =
        Process::start(fixture, "consolidator", command.env("FEED_PASSWORD", "open sesame"));
    scheduler.wait_for_stderr("the scheduler is running on ", 1);
    worker.wait_for_stderr("the worker is running on ", 1);
    assert!(worker.stderr().contains(", with 1 to "), "{}", worker.stderr());
    json(fixture, &["feed", "sync", "nivoda-natural", "--wait"]);
    let id = text(&fixture.json(&["sync", "list", "--limit", "1"]), "0.run_id").to_owned();
    let named = format!("sync {id} of feed nivoda-natural");
    scheduler.wait_for_stderr(&format!("{named} started: "), 1);
    consolidator.wait_for_stderr(&format!("consolidating {named}"), 1);
    consolidator.wait_for_stderr(&format!("{named} is completed: "), 1);
    let printed = consolidator.stderr();
    assert!(printed.contains(" partitions, 3000 records listed: 3000 stored"), "{printed}");
    for role in [&mut scheduler, &mut worker, &mut consolidator] {
        stop(role);
        assert!(role.stderr().lines().count() < 10, "pages are not logged: {}", role.stderr());
    }
    let message: Value =
        serde_json::from_str(&consolidator.stdout()).expect("standard output is one document");
    assert_eq!(message["completed"], 1);
    assert_eq!(worker.stdout(), "");
    stop(&mut supplier);
}

/// Invalid input: one message, the documented exit code, and no write.
fn invalid_feed_commands_are_refused(fixture: &Fixture) {
    add(fixture, "http://127.0.0.1:9/api/diamonds");
    let before = fixture.dump();
    let good = "http://127.0.0.1:9/api/diamonds";
    for (args, code, words) in [
        (&["feed", "sync", "nowhere"][..], 3, "feed `nowhere` does not exist"),
        (&["feed", "show", "nowhere"], 3, "feed `nowhere` does not exist"),
        (&["feed", "pause", "nowhere"], 3, "feed `nowhere` does not exist"),
        (&["feed", "resume", "nowhere"], 3, "feed `nowhere` does not exist"),
        (&["feed", "watermark", "nowhere"], 3, "feed `nowhere` does not exist"),
        (&["feed", "heatmap", "nowhere"], 3, "feed `nowhere` does not exist"),
        (&["feed", "rejects", "nowhere"], 3, "feed `nowhere` does not exist"),
        (&["feed", "gaps", "nowhere"], 3, "feed `nowhere` does not exist"),
        (&["sync", "list", "--feed", "nowhere"], 3, "feed `nowhere` does not exist"),
        (&["rule", "apply", "nowhere"], 3, "feed `nowhere` does not exist"),
        (&["feed", "heatmap", "nivoda-natural"], 3, "has no completed scan"),
        (&["feed", "add", "other", "--endpoint", "nonsense"], 3, "not a URL"),
        (&["feed", "add", "other", "--endpoint", good, "--kind", "fax"], 3, "unknown feed kind `fax`"),
        (&["feed", "add", "other", "--endpoint", good], 3, "requires a user name"),
        (
            &[
                "feed",
                "add",
                "o",
                "--endpoint",
                good,
                "--username",
                "u",
                "--password-env",
                "P",
                "--schedule",
                "soon",
            ],
            3,
            "soon",
        ),
        (&["feed", "add", "Other!", "--endpoint", good], 3, "feed"),
        (&["feed", "add", "other"], 2, "--endpoint"),
        (&["feed", "watermark", "nivoda-natural", "--import", "/nowhere.json"], 3, "could not read"),
        (&["sync", "show", "nonsense"], 3, "sync `nonsense` does not exist"),
        (&["sync", "retry", "nonsense"], 3, "sync `nonsense` does not exist"),
        (&["sync", "cancel", "nonsense"], 3, "sync `nonsense` does not exist"),
        (&["sync", "consolidate", "nonsense", "--force"], 3, "sync `nonsense` does not exist"),
        (&["sync", "consolidate", "nonsense", "--advance"], 2, "--force"),
        (&["sync", "retry", "nonsense", "--partition", "p"], 2, "--restart"),
        (&["rule", "add", "--markup", "0"], 3, "markup"),
        (&["rule", "add", "--markup", "much"], 2, "much"),
        (&["rule", "add", "--markup", "1.1", "--rating", "11"], 3, "rating"),
        (&["rule", "import", "/nowhere.json"], 3, "could not read"),
        (&["queue", "peek", "nowhere"], 3, "nowhere"),
        (&["queue", "dead", "nowhere"], 3, "nowhere"),
        (&["queue", "replay", "nowhere", "--all"], 3, "nowhere"),
        (&["queue", "replay", "work-items"], 2, "ID"),
    ] {
        let ran = fixture.tidemill(args);
        assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(words), "{args:?}: {ran:?}");
        assert_eq!(
            ran.stderr.lines().filter(|line| line.starts_with("error: ")).count(),
            1,
            "{args:?}: {ran:?}"
        );
    }
    assert_eq!(fixture.dump(), before, "the database was changed");
    refuse_wrong_password(fixture);
}

/// The scan detects a wrong password, and the exit code reports it.
fn refuse_wrong_password(fixture: &Fixture) {
    let (mut supplier, endpoint) =
        supplier(fixture, &["--stones", "10", "--username", "ann", "--password-env", "SUPPLIER_PASSWORD"]);
    add(fixture, &endpoint);
    let mut up = Process::start(fixture, "up", fixture.command(&["up"]).env("FEED_PASSWORD", "wrong"));
    let failed = tidemill(fixture, &["feed", "sync", "nivoda-natural", "--wait"]);
    assert_eq!(failed.code, Some(3), "{failed:?}");
    assert!(failed.stdout.contains("check the user name"), "{failed:?}");
    assert!(!fixture.dump().join("\n").contains("wrong\""), "the password is not stored");
    stop(&mut up);
    stop(&mut supplier);
}
