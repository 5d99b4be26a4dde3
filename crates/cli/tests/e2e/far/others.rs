//! Everything besides runs: projects, schedules, feeds, syncs, rules, queues, tokens, webhooks, alerts and figures
//! are the same through a server as beside the database.

use serde_json::Value;

use crate::feed::supplier;
use crate::process::Ran;
use crate::stage::{Stage, on_both};
use crate::walkthrough::text;

use super::server::Server;

on_both!(
    what_is_said_of_everything_else_is_the_same_from_far_away,
    what_is_refused_of_everything_else_is_the_same_from_far_away,
);

/// What differs from one time to the next: times, and the ids of what is made.
const OWN: [&str; 16] = [
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

/// The same without what is its own: of a list its length is left, of everything else whether it is there.
fn masked(value: &Value) -> Value {
    if let Some(items) = value.as_array() {
        return items.iter().map(masked).collect();
    }
    let Some(fields) = value.as_object() else { return value.clone() };
    let told = fields.iter().map(|(name, value)| {
        let shown = match value.as_array() {
            _ if value.is_null() || !OWN.contains(&name.as_str()) => masked(value),
            Some(items) => items.len().into(),
            None => "is there".into(),
        };
        (name.clone(), shown)
    });
    told.collect::<serde_json::Map<_, _>>().into()
}

/// The life of everything, told by one door; what each command said, without what is its own.
fn story(suffix: &str, endpoint: &str, door: impl Fn(&[&str]) -> Ran) -> Vec<String> {
    let told = std::cell::RefCell::new(Vec::new());
    let tell = |args: &str| -> Value {
        let args = args.replace('@', suffix).replace("ENDPOINT", endpoint);
        let words: Vec<&str> = std::iter::once("--json").chain(args.split('|')).collect();
        let ran = door(&words);
        let value: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        let said = format!("{args} {:?} {} {}", ran.code, masked(&value), ran.stderr);
        told.borrow_mut().push(said.replace(suffix, "@"));
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
        tell(args);
    }
    let rule = tell("rule|add|--markup|1.3|--feed|feed@|--shape|ROUND|--rating|7");
    tell("rule|test|--feed|feed@|--price|100|--carats|1");
    tell(&format!("rule|remove|{}", rule["rule_id"]));
    tell("rule|import|rules.json");
    let token = tell("token|create|reader@|--role|viewer|--project|shop|--expires|30d");
    assert!(text(&token, "secret").starts_with("tm_"), "a secret is shown once");
    tell(&format!("token|revoke|{}", text(&token, "token.token_id")));
    let run = tell("feed|sync|feed@|--full|--key|monday@");
    tell("feed|sync|feed@|--full|--key|monday@");
    tell(&format!("run|cancel|{}", text(&run, "run_id")));
    tell("schedule|remove|feed-feed@");
    let removed = format!("rule|remove|{}", rule["rule_id"]);
    let mut told = told.into_inner();
    for own in [&removed, text(&run, "run_id"), text(&token, "token.token_id")] {
        told = told.into_iter().map(|said| said.replace(own, "OWN")).collect();
    }
    told
}

/// Brings a feed in once, so that there is something to look at; the id of its sync.
fn bring_in(stage: &Stage, server: &Server, endpoint: &str) -> String {
    let add = ["feed", "add", "tide", "--endpoint", endpoint, "--username", "u", "--password-env", "USER"];
    super::far(stage, server, &[&add[..], &["--rate", "0"]].concat()).ok();
    super::far(stage, server, &["feed", "sync", "tide"]).ok();
    for role in ["scheduler", "worker", "consolidator"] {
        stage.ok(&[role, "--once"]);
    }
    let listed = super::far(stage, server, &["--json", "sync", "list"]).value();
    assert_eq!(text(&listed, "0.state"), "completed", "{listed}");
    text(&listed, "0.run_id").to_owned()
}

fn what_is_said_of_everything_else_is_the_same_from_far_away(stage: &Stage) {
    let server = Server::start(stage);
    let (_supplier, endpoint) = supplier(stage, &["--stones", "300"]);
    let sync = bring_in(stage, &server, &endpoint);
    stage.write("rules.json", &stage.json(&["rule", "list"]).to_string());

    let near = story("-one", &endpoint, |args| stage.tidemill(args));
    let far = story("-two", &endpoint, |args| super::far(stage, &server, args));
    let other: Vec<_> = near.iter().zip(&far).filter(|(near, far)| near != far).collect();
    assert!(other.is_empty() && near.len() == far.len(), "{other:#?}");
    for good in ["project|create|bank@|--env|a", "feed|add|", "rule|apply|", "hook|add|", "token|revoke|"] {
        let said = far.iter().find(|said| said.starts_with(good));
        assert!(said.is_some_and(|said| said.contains(" Some(0) ")), "{good}: {said:?}");
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
        &["hook", "list"],
        &["alert", "list", "--all"],
        &["stats"],
    ] {
        let args = [&["--json"], args].concat();
        let (near, far) = (stage.tidemill(&args), super::far(stage, &server, &args));
        assert_eq!((far.code, &far.stdout), (Some(0), &near.stdout), "{args:?}: {near:?}");
        assert!(far.stdout.len() > 2, "{args:?}: {far:?}");
    }
    // What is followed to its end is followed from far away as well.
    let mut up = crate::process::Process::start(stage, "up", &mut stage.command(&["up"]));
    let followed = super::far(stage, &server, &["--json", "feed", "sync", "tide", "--full", "--wait"]);
    assert_eq!(text(&followed.value(), "run.status"), "success", "{followed:?}");
    up.kill();

    // Who did it is on record, from here and from there, once each.
    for action in ["tokens.create", "tokens.delete", "hooks.put", "feeds.put"] {
        let count =
            format!("SELECT CAST(count(*) AS text) FROM ops.audit WHERE action = '{action}' AND who = 'ann'");
        let expected = if action == "feeds.put" { "3" } else { "2" };
        assert_eq!(stage.sql(&count).expect("the record is read"), [expected], "{action}");
    }
}

fn what_is_refused_of_everything_else_is_the_same_from_far_away(stage: &Stage) {
    let server = Server::start(stage);
    let add = ["--endpoint", "http://127.0.0.1:9/", "--username", "u", "--password-env", "P"];
    stage.ok(&[&["feed", "add", "tide"], &add[..]].concat());
    let cron = ["--cron", "61 * * * *", "--project", "shop", "--env", "staging"];
    let nobody = "00000000-0000-7000-8000-000000000000";
    for (args, sentence) in [
        (&["project", "create", "No Name", "--env", "a"][..], "project `No Name` must be lower-case letters"),
        (&["project", "pause", "nope"], "project `nope` does not exist"),
        (&["project", "resume", "No/Name"], "project `No/Name` does not exist"),
        (&[&["schedule", "add", "n"], &cron[..]].concat(), "the minute field `61`"),
        (&["schedule", "remove", "nope"], "schedule `nope` does not exist"),
        (&["schedule", "pause", ".."], "schedule `..` does not exist"),
        (&[&["feed", "add", "Other!"], &add[..]].concat(), "feed `Other!` must be lower-case letters"),
        (&[&["feed", "add", "n", "--kind", "fax"], &add[..]].concat(), "`fax` is not a kind of feed"),
        (&["feed", "show", ""], "feed `` does not exist"),
        (&["feed", "sync", "nope"], "feed `nope` does not exist"),
        (&["feed", "sync", "tide", "--key", ""], "idempotency key must not be empty"),
        (&["feed", "gaps", "nope"], "feed `nope` does not exist"),
        (&["feed", "heatmap", "tide"], "nothing of feed tide was ever brought in"),
        (&["sync", "list", "--feed", "nope"], "feed `nope` does not exist"),
        (&["sync", "show", "no such"], "sync `no such` does not exist"),
        (&["sync", "retry", nobody], "does not exist"),
        (&["sync", "consolidate", nobody, "--force"], "does not exist"),
        (&["rule", "add", "--markup", "0"], "markup"),
        (&["rule", "add", "--markup", "1", "--carat-min", "2", "--carat-max", "1"], "carats"),
        (&["rule", "remove", "4711"], "there is no rule 4711"),
        (&["queue", "peek", "nope"], "queue `nope` does not exist"),
        (&["queue", "dead", "../x"], "queue `../x` does not exist"),
        (&["token", "create", " ", "--role", "viewer"], "name must not be empty"),
        (&["token", "revoke", nobody], "does not exist"),
        (&["hook", "add", "h", "--project", "nope", "--secret-env", "S"], "project `nope` does not exist"),
        (&["hook", "remove", "No Hook"], "hook `No Hook` does not exist"),
        (&["alert", "test"], "the configuration names nobody to tell"),
    ] {
        let (near, far) = (stage.tidemill(args), super::far(stage, &server, args));
        assert_eq!((far.code, &far.stderr), (Some(3), &near.stderr), "{args:?}: {near:?}");
        assert!(far.stderr.contains(sentence), "{args:?}: {far:?}");
    }
}
