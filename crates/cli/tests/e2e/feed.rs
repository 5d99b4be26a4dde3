//! The command line of feeds and syncs, from the first command to the last: real processes, a real supplier.

use rustix::process::Signal;
use serde_json::Value;

use crate::process::{Process, Ran, run};
use crate::stage::{PATIENCE, Stage, on_both, until};
use crate::walkthrough::text;

on_both!(a_feed_from_the_first_command_to_the_last, roles_say_what_they_serve_and_what_came_of_it);

mod sqlite_only {
    use crate::stage::{Kind, Stage};

    #[test]
    fn a_failed_sync_is_looked_at_and_mended() {
        super::a_failed_sync_is_looked_at_and_mended(&Stage::new(Kind::Sqlite));
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        super::what_cannot_be_done_is_said(&Stage::new(Kind::Sqlite));
    }
}

/// A supplier of so many stones, and where it listens.
pub(crate) fn supplier(stage: &Stage, options: &[&str]) -> (Process, String) {
    let args = [&["--json", "supplier", "--listen", "127.0.0.1:0", "--seed", "7"], options].concat();
    let mut command = stage.command(&args);
    command.env("SUPPLIER_PASSWORD", "open sesame");
    let process = Process::start(stage, "supplier", &mut command);
    let endpoint = until("the supplier listens", || {
        let told: Value = serde_json::from_str(process.wrote().lines().next()?).ok()?;
        Some(text(&told, "endpoint").to_owned())
    });
    (process, endpoint)
}

/// A command with the password of the feed in its environment.
pub(crate) fn tidemill(stage: &Stage, args: &[&str]) -> Ran {
    run(stage.command(args).env("FEED_PASSWORD", "open sesame"))
}

fn json(stage: &Stage, args: &[&str]) -> Value {
    let text = tidemill(stage, &[&["--json"], args].concat()).ok();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
}

/// A role that runs until it is told to stop.
fn role(stage: &Stage, name: &str) -> Process {
    Process::start(stage, name, stage.command(&[name]).env("FEED_PASSWORD", "open sesame"))
}

/// Tells a role to stop, which it does well.
fn stop(role: &mut Process) {
    role.signal(Signal::TERM);
    assert_eq!(role.ended_within(PATIENCE), Some(0), "{}", role.said());
}

pub(crate) fn add(stage: &Stage, endpoint: &str) -> Value {
    let of_account = ["--username", "ann", "--password-env", "FEED_PASSWORD", "--rate", "0"];
    json(stage, &[&["feed", "add", "nivoda-natural", "--endpoint", endpoint], &of_account[..]].concat())
}

fn add_with_every_flag(stage: &Stage, endpoint: &str, copy: &str) {
    let of_account = ["--username", "ann", "--password-env", "FEED_PASSWORD", "--project", "shop"];
    let of_time = ["--schedule", "0 2 * * *", "--time-zone", "Europe/Berlin", "--rate", "500"];
    let of_place = ["--kind", "nivoda", "--endpoint", endpoint, "--watermark-copy", copy, "--settings", "{}"];
    let words = [&["feed", "add", "nivoda-natural"], &of_account[..], &of_time, &of_place].concat();
    let told = tidemill(stage, &words).ok();
    assert!(
        told.contains("feed nivoda-natural is read from") && told.contains("schedule feed-nivoda-natural")
    );
    let schedules = stage.json(&["schedule", "list"]);
    assert_eq!(text(&schedules, "0.schedule_id"), "feed-nivoda-natural");
    let feeds = stage.json(&["feed", "list"]);
    assert_eq!((text(&feeds, "0.feed"), text(&feeds, "0.project_id")), ("nivoda-natural", "shop"));
    assert_eq!(feeds[0]["rate"], 500);
    assert!(!stage.dump().join("\n").contains("open sesame"), "the password is never kept");
}

fn a_feed_from_the_first_command_to_the_last(stage: &Stage) {
    let account = ["--stones", "1200", "--username", "ann", "--password-env", "SUPPLIER_PASSWORD"];
    let (mut supplier, endpoint) = supplier(stage, &account);
    assert_eq!(stage.json(&["feed", "list"]), Value::Array(Vec::new()));

    let copy = stage.path("watermark.json");
    let copy = copy.to_str().unwrap();
    add_with_every_flag(stage, &endpoint, copy);

    // One step after the other: planned once, read once, consolidated once.
    let queued = json(stage, &["feed", "sync", "nivoda-natural", "--key", "monday"]);
    assert_eq!(
        json(stage, &["feed", "sync", "nivoda-natural", "--key", "monday"])["run_id"],
        queued["run_id"]
    );
    let id = text(&queued, "run_id").to_owned();
    assert!(stage.ok(&["run", "why", &id]).contains("scheduler"));
    assert_eq!(json(stage, &["scheduler", "--once"])["planned"], 1);
    let all = stage.json(&["queue", "list"]);
    let items = all.as_array().unwrap().iter().find(|queue| text(queue, "settings.queue") == "work-items");
    assert!(items.is_some_and(|queue| queue["depth"]["waiting"].as_i64() >= Some(1)), "{all}");
    let peeked = stage.json(&["queue", "peek", "work-items"]);
    assert_eq!(text(&peeked, "0.body.type"), "WORK_ITEM");
    assert!(stage.ok(&["queue", "peek", "work-items"]).contains("partition-0"));
    assert!(
        json(stage, &["worker", "--once", "--pages-min", "2", "--pages-max", "4"])["pages"].as_u64()
            >= Some(40)
    );
    assert_eq!(json(stage, &["consolidator", "--once"])["completed"], 1);
    let shown = stage.json(&["sync", "show", &id]);
    assert_eq!(text(&shown, "sync.state"), "completed");
    assert_eq!(
        shown["partitions"].as_array().map(Vec::len),
        shown["sync"]["expected_workers"].as_u64().map(to_usize)
    );
    assert!(stage.ok(&["sync", "show", &id]).contains("PARTITION"));
    assert!(stage.ok(&["sync", "list", "--feed", "nivoda-natural"]).contains("full completed"));
    assert_eq!(stage.sql("SELECT CAST(count(*) AS text) FROM diamonds").unwrap(), ["1200"]);
    let heatmap = stage.json(&["feed", "heatmap", "nivoda-natural"]);
    let counted: i64 =
        heatmap["cells"].as_array().unwrap().iter().filter_map(|cell| cell["count"].as_i64()).sum();
    assert_eq!(counted, 1_200);
    assert!(stage.ok(&["feed", "heatmap", "nivoda-natural"]).contains('█'));
    assert_eq!(stage.json(&["feed", "rejects", "nivoda-natural"]), Value::Array(Vec::new()));
    assert_eq!(stage.json(&["feed", "gaps", "nivoda-natural", "--all"]), Value::Array(Vec::new()));

    // Everything in one process, and a sync that is followed to its end.
    let mut up = role(stage, "up");
    let told = tidemill(stage, &["feed", "sync", "nivoda-natural", "--full", "--wait"]).ok();
    assert!(told.contains("success: 1200 records, 0 rejected, 0 deleted"), "{told}");
    let answer = json(stage, &["feed", "sync", "nivoda-natural", "--wait"]);
    assert_eq!((text(&answer, "run.status"), text(&answer, "sync.run_type")), ("success", "incremental"));
    let copied = until("the watermark is copied", || {
        let copied: Value = serde_json::from_str(&std::fs::read_to_string(copy).ok()?).ok()?;
        let mark = stage.json(&["feed", "watermark", "nivoda-natural"]);
        (copied["lastUpdatedAt"] == mark["lastUpdatedAt"]).then_some(copied)
    });
    assert!(stage.ok(&["feed", "show", "nivoda-natural"]).contains("watermark  20"));

    // The watermark by hand, and back from its copy.
    let set = json(
        stage,
        &["feed", "watermark", "nivoda-natural", "--set", "2026-01-01T00:00:00Z", "--note", "why not"],
    );
    assert!(text(&set, "lastUpdatedAt").starts_with("2026-01-01T00:00:00"));
    let saved = stage.write("saved.json", &copied.to_string());
    let back = json(stage, &["feed", "watermark", "nivoda-natural", "--import", saved.to_str().unwrap()]);
    assert_eq!(back["lastUpdatedAt"], copied["lastUpdatedAt"]);
    let changes = stage.ok(&["feed", "watermark", "nivoda-natural"]);
    assert!(changes.contains("why not") && changes.contains("ann"), "{changes}");

    rules(stage);
    assert!(stage.ok(&["feed", "pause", "nivoda-natural", "--note", "stock-taking"]).contains("is paused"));
    assert_eq!(stage.json(&["feed", "resume", "nivoda-natural"])["resumed"], true);
    assert!(stage.ok(&["feed", "resume", "nivoda-natural"]).contains("was not paused"));
    stop(&mut up);
    stop(&mut supplier);
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Rules: one for a third of the price range, tried, applied, exported, imported, removed.
fn rules(stage: &Stage) {
    let before = stage.json(&["rule", "list"]);
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
    let rule = stage.json(&add)["rule_id"].to_string();
    let probe = ["rule", "test", "--feed", "nivoda-natural", "--price", "123.45", "--carats", "1.01"];
    assert_eq!(stage.json(&probe)["retail_price"], 24_690);
    assert!(stage.ok(&probe).contains("at 246.90 dollars (× 2.0000), rating 8"));
    let other = [&probe[..], &["--shape", "PEAR"]].concat();
    assert_eq!(stage.json(&other)["retail_price"], 14_197, "$141.9675, halves up");
    let listed = stage.ok(&["rule", "list"]);
    assert!(listed.contains("2.0000") && listed.contains("1.1500"), "{listed}");
    let applied = tidemill(stage, &["rule", "apply", "nivoda-natural", "--batch", "500"]);
    assert!(applied.stdout.starts_with("1200 stones of nivoda-natural were priced again by "), "{applied:?}");
    let progress = ["500 stones", "1000 stones"]
        .map(|so_far| format!("{so_far} of nivoda-natural are priced again so far"));
    assert_eq!(applied.stderr.lines().collect::<Vec<_>>(), progress, "{applied:?}");
    let applied = json(stage, &["rule", "apply", "nivoda-natural"]);
    assert!(applied["stones"] == 0 && applied["rejected"] == 0, "nothing is left to do: {applied}");
    let doubled =
        "SELECT CAST(count(*) AS text) FROM diamonds WHERE retail_price_cents = 2 * feed_price_cents";
    let by_rule = format!("SELECT CAST(count(*) AS text) FROM diamonds WHERE rule_id = {rule}");
    assert_eq!(stage.sql(doubled).unwrap(), stage.sql(&by_rule).unwrap());
    assert_ne!(stage.sql(&by_rule).unwrap(), ["0"]);
    let kept = stage.write("rules.json", &stage.json(&["rule", "list"]).to_string());
    let kept = kept.to_str().unwrap();
    assert_eq!(stage.json(&["rule", "import", kept, "--replace"])["added"].as_array().map(Vec::len), Some(2));
    assert!(stage.ok(&["rule", "import", kept]).contains("2 rules are in place"));
    let all = stage.json(&["rule", "list"]);
    assert_eq!(all.as_array().map(Vec::len), Some(4));
    let number = all[0]["rule_id"].to_string();
    assert!(stage.ok(&["rule", "remove", &number]).contains("is removed"));
    let again = stage.tidemill(&["rule", "remove", &number]);
    assert_eq!(again.code, Some(3), "{again:?}");
}

/// A partition that fails, and everything that can be done about it.
fn a_failed_sync_is_looked_at_and_mended(stage: &Stage) {
    let behaviour = r#"{"without_ids_next": 1}"#;
    let (mut supplier, endpoint) = supplier(stage, &["--stones", "4000", "--behaviour", behaviour]);
    add(stage, &endpoint);
    let mut up = role(stage, "up");
    let failed = tidemill(stage, &["feed", "sync", "nivoda-natural", "--wait"]);
    assert_eq!(failed.code, Some(3), "{failed:?}");
    assert!(failed.stdout.contains("partitions failed"), "{failed:?}");
    assert!(
        failed.stdout.contains("first cause: ") && failed.stdout.contains("none has an id"),
        "{failed:?}"
    );
    let list = stage.json(&["sync", "list"]);
    assert_eq!((text(&list, "0.state"), &list[0]["failed_workers"]), ("failed", &1.into()));
    let id = text(&list, "0.run_id").to_owned();
    up.until_said(&format!(" of sync {id} failed: "), 1);
    assert!(stage.ok(&["sync", "show", &id]).contains("none has an id"));
    let run = text(&list, "0.ops_run_id").to_owned();
    let why = stage.ok(&["run", "why", &run]);
    assert!(why.contains("partitions failed") && why.contains("none has an id"), "{why}");

    let refused = stage.tidemill(&["sync", "consolidate", &id]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("hint: ") && refused.stderr.contains("--force"), "{refused:?}");
    assert!(stage.ok(&["sync", "consolidate", &id, "--force"]).contains(&id));
    until("the forced consolidation ends", || {
        let shown = stage.json(&["sync", "show", &id]);
        (shown["sync"]["error"].as_str()?.contains("by force")).then_some(())
    });
    assert_eq!(stage.json(&["feed", "watermark", "nivoda-natural"]), Value::Null);

    let retried = stage.json(&["sync", "retry", &id]);
    assert_eq!(retried["created"], true);
    until("the retry ends", || {
        (text(&stage.json(&["sync", "show", &id]), "sync.state") == "completed").then_some(())
    });
    assert_eq!(stage.sql("SELECT CAST(count(*) AS text) FROM diamonds").unwrap(), ["4000"]);
    let completed = stage.tidemill(&["sync", "retry", &id]);
    assert_eq!(completed.code, Some(3), "{completed:?}");
    stop(&mut up);

    // Cancelled while it waits for a worker, and taken up again from the beginning.
    json(stage, &["feed", "sync", "nivoda-natural", "--full"]);
    json(stage, &["scheduler", "--once"]);
    let id = text(&stage.json(&["sync", "list", "--limit", "1"]), "0.run_id").to_owned();
    assert!(stage.ok(&["sync", "cancel", &id, "--reason", "wrong day"]).contains("is cancelled"));
    assert_eq!(stage.json(&["sync", "cancel", &id])["cancelled"], false);
    let wrong = stage.tidemill(&["sync", "retry", &id, "--restart", "--partition", "partition-77"]);
    assert_eq!(wrong.code, Some(3), "{wrong:?}");
    assert!(wrong.stderr.contains("partition-77"), "{wrong:?}");
    assert!(stage.ok(&["sync", "retry", &id, "--restart"]).contains("goes on as run-"));
    assert!(stage.ok(&["sync", "retry", &id]).contains("goes on already"));
    let mut roles = [role(stage, "scheduler"), role(stage, "worker"), role(stage, "consolidator")];
    until("the retry ends", || {
        (text(&stage.json(&["sync", "show", &id]), "sync.state") == "completed").then_some(())
    });
    roles.iter_mut().for_each(stop);

    // A message that is no work item becomes a dead letter, is listed, and is sent again.
    let dead = "UPDATE messages SET state = 'dead', dead_reason = 'deliveries', body = '{}', \
                ended_at = enqueued_at WHERE rowid = (SELECT min(rowid) FROM messages \
                WHERE queue = 'work-items') RETURNING message_id";
    let message = stage.sql(dead).unwrap().remove(0);
    assert!(stage.ok(&["queue", "dead", "work-items"]).contains(&message));
    assert_eq!(text(&stage.json(&["queue", "dead", "work-items"]), "0.message_id"), message);
    assert_eq!(stage.json(&["queue", "replay", "work-items", &message])["replayed"], 1);
    assert_eq!(stage.json(&["queue", "replay", "work-items", "--all"])["replayed"], 0);
    stop(&mut supplier);
}

/// Shows what a person sees who starts the roles in a terminal: that they are up and what for, each thing of note once,
/// and nothing of every page. What machines read stays clean.
fn roles_say_what_they_serve_and_what_came_of_it(stage: &Stage) {
    let (mut supplier, endpoint) = supplier(stage, &["--stones", "3000"]);
    add(stage, &endpoint);
    let mut scheduler = role(stage, "scheduler");
    let mut worker = role(stage, "worker");
    let mut command = stage.command(&["--json", "consolidator"]);
    let mut consolidator = Process::start(stage, "consolidator", command.env("FEED_PASSWORD", "open sesame"));
    scheduler.until_said("the scheduler is running on ", 1);
    worker.until_said("the worker is running on ", 1);
    assert!(scheduler.said().contains(": it plans syncs\n"), "{}", scheduler.said());
    assert!(worker.said().contains(": it carries out pages of syncs, between 1 and "), "{}", worker.said());
    json(stage, &["feed", "sync", "nivoda-natural", "--wait"]);
    let id = text(&stage.json(&["sync", "list", "--limit", "1"]), "0.run_id").to_owned();
    let named = format!("sync {id} of feed nivoda-natural is");
    scheduler.until_said(&format!("{named} begun: "), 1);
    consolidator.until_said(&format!("{named} being consolidated"), 1);
    consolidator.until_said(&format!("{named} completed: "), 1);
    let said = consolidator.said();
    assert!(said.contains(" partitions, 3000 stones consolidated, 0 rejected, 0 deleted"), "{said}");
    for role in [&mut scheduler, &mut worker, &mut consolidator] {
        stop(role);
        assert!(role.said().lines().count() < 10, "nothing is said of every page: {}", role.said());
    }
    let told: Value = serde_json::from_str(&consolidator.wrote()).expect("one document, and nothing else");
    assert_eq!(told["completed"], 1);
    assert_eq!(worker.wrote(), "");
    stop(&mut supplier);
}

/// Bad input: one sentence, the documented exit code, and nothing is written.
fn what_cannot_be_done_is_said(stage: &Stage) {
    add(stage, "http://127.0.0.1:9/api/diamonds");
    let before = stage.dump();
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
        (&["feed", "heatmap", "nivoda-natural"], 3, "was ever brought in"),
        (&["feed", "add", "other", "--endpoint", "nonsense"], 3, "not a URL"),
        (&["feed", "add", "other", "--endpoint", good, "--kind", "fax"], 3, "`fax` is not a kind of feed"),
        (&["feed", "add", "other", "--endpoint", good], 3, "needs a user name"),
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
        let ran = stage.tidemill(args);
        assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(words), "{args:?}: {ran:?}");
        assert_eq!(
            ran.stderr.lines().filter(|line| line.starts_with("error: ")).count(),
            1,
            "{args:?}: {ran:?}"
        );
    }
    assert_eq!(stage.dump(), before, "something was written");

    // A wrong password is found out by the scan, and told by the exit code.
    let (mut supplier, endpoint) =
        supplier(stage, &["--stones", "10", "--username", "ann", "--password-env", "SUPPLIER_PASSWORD"]);
    add(stage, &endpoint);
    let mut up = Process::start(stage, "up", stage.command(&["up"]).env("FEED_PASSWORD", "wrong"));
    let failed = tidemill(stage, &["feed", "sync", "nivoda-natural", "--wait"]);
    assert_eq!(failed.code, Some(3), "{failed:?}");
    assert!(failed.stdout.contains("check the user name"), "{failed:?}");
    assert!(!stage.dump().join("\n").contains("wrong\""), "the password is never kept");
    stop(&mut up);
    stop(&mut supplier);
}
