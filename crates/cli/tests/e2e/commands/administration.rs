//! Migrations, projects, maintenance, statistics, backups, configuration, doctor, help and demos.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;
use tidemill_core::run::RunState;
use tidemill_testkit::cluster::{Cluster, Options};

use super::text;
use crate::fixture::{DEAD_AFTER, Fixture, Kind, TIDEMILL, TIMEOUT, on_both, wait_until};
use crate::process::{Process, run, run_within};

on_both!(
    second_migration_changes_nothing,
    migration_plan_changes_nothing,
    concurrent_migrations_wait_for_each_other,
    projects_are_created_once_and_listed,
    stats_count_queued_and_ended_runs,
    sweep_ends_lost_runs_once,
    doctor_reports_a_dead_worker,
    database_address_comes_from_option_environment_or_file,
);

fn second_migration_changes_nothing(fixture: &Fixture) {
    let message = fixture.ok(&["migrate"]);
    assert!(message.contains("is up to date"), "{message}");
    let before = fixture.dump();
    let answer = fixture.json(&["migrate"]);
    assert_eq!(
        (answer["applied"].as_array().map(Vec::len), &answer["code_replaced"]),
        (Some(0), &false.into())
    );
    assert_eq!(fixture.dump(), before);

    let fresh = Fixture::bare(fixture.kind);
    let answer = fresh.json(&["migrate"]);
    assert_eq!(text(&answer, "applied.0"), "0001_schema");
    assert_eq!(text(&fresh.json(&["project", "list"]), "0.project_id"), "default");
}

fn migration_plan_changes_nothing(fixture: &Fixture) {
    let bare = Fixture::bare(fixture.kind);
    let plan = bare.ok(&["migrate", "--plan"]);
    assert!(plan.contains("has no Tidemill tables"), "{plan}");
    bare.ok(&["migrate"]);
    let plan = bare.ok(&["migrate", "--plan"]);
    assert!(plan.contains("is at migration 1") && plan.contains("migrate changes nothing"), "{plan}");

    let schema = if fixture.kind == Kind::Postgres { "ops." } else { "" };
    let older = format!("UPDATE {schema}tidemill_settings SET value = 'older' WHERE setting = 'code'");
    bare.sql(&older).expect("the digest is replaced");
    let before = bare.dump();
    let plan = bare.ok(&["migrate", "--plan"]);
    assert!(plan.contains("migrate replaces the functions and triggers"), "{plan}");
    let lock = if fixture.kind == Kind::Postgres { "SHARE ROW EXCLUSIVE" } else { "for writers" };
    assert!(plan.contains(lock), "{plan}");
    let plan = bare.json(&["migrate", "--plan"]);
    assert_eq!(plan["replaces_code"], true, "{plan}");
    assert_eq!(plan["locks"].as_array().is_some_and(Vec::is_empty), fixture.kind == Kind::Sqlite, "{plan}");
    assert_eq!(bare.dump(), before);
    bare.ok(&["migrate"]);
    assert!(bare.ok(&["migrate", "--plan"]).contains("migrate changes nothing"));
}

fn concurrent_migrations_wait_for_each_other(fixture: &Fixture) {
    let fresh = Fixture::bare(fixture.kind);
    let start =
        |number| Process::start(&fresh, &format!("m{number}"), &mut fresh.command(&["--json", "migrate"]));
    let mut migrators: Vec<Process> = (0..4).map(start).collect();
    for migrator in &mut migrators {
        assert_eq!(migrator.wait_for_exit(TIMEOUT), Some(0), "{}", migrator.stderr());
    }
    let applied = migrators.iter().filter(|migrator| migrator.stdout().contains("0001_schema")).count();
    assert_eq!(applied, 1, "one process created the tables");
    assert_eq!(fresh.json(&["project", "list"]).as_array().map(Vec::len), Some(1));
}

/// A long command prints progress, but not with --json.
#[test]
fn long_migration_prints_progress() {
    let fixture = Fixture::new(Kind::Postgres);
    let mut other = fixture.block(PgConnection::connect(&fixture.url)).expect("the connection is accepted");
    let lock = "SELECT pg_advisory_lock(hashtext('tidemill migrate ops'))";
    fixture.block(sqlx::raw_sql(lock).execute(&mut other)).expect("the lock of migrators is taken");
    let start = |name, words: &[&str]| Process::start(&fixture, name, &mut fixture.command(words));
    let mut machine = start("machine", &["--json", "migrate"]);
    let mut person = start("person", &["migrate"]);
    person.wait_for_stderr(" in progress after 5 s", 1);
    person.wait_for_stderr(" in progress after 10 s", 1);
    fixture.block(other.close()).expect("the session ends");
    for process in [&mut machine, &mut person] {
        assert_eq!(process.wait_for_exit(TIMEOUT), Some(0), "{}", process.stderr());
    }
    assert_eq!(machine.stderr(), "");
}

fn projects_are_created_once_and_listed(fixture: &Fixture) {
    let create = ["project", "create", "bank", "--env", "staging", "--env", "live"];
    assert!(fixture.ok(&create).contains("project bank created with staging, live"));
    assert!(fixture.ok(&create).contains("already exists"));
    assert_eq!(fixture.json(&create)["created"], false);
    fixture.ok(&["project", "create", "bank", "--env", "more"]);
    let list = fixture.json(&["project", "list"]);
    let bank = list.as_array().unwrap().iter().find(|project| text(project, "project_id") == "bank").unwrap();
    assert_eq!(bank["environments"].as_array().map(Vec::len), Some(3), "{bank}");
    let table = fixture.ok(&["project", "list"]);
    assert!(table.starts_with("PROJECT") && table.contains("active"), "{table}");
}

fn stats_count_queued_and_ended_runs(fixture: &Fixture) {
    for _ in 0..3 {
        fixture.queue(&[]);
    }
    let script = r#"[ "$(cat "$0" 2>/dev/null)" ] || { echo x >"$0"; exit 1; }"#;
    let mark = fixture.path("failed").display().to_string();
    fixture.ok(&["work", "--drain", "--", "sh", "-c", script, &mark]);
    fixture.queue(&[]);
    let stats = fixture.json(&["stats"]);
    assert_eq!((&stats["success_count"], &stats["failed_count"]), (&2.into(), &1.into()), "{stats}");
    assert_eq!((&stats["queued_count"], &stats["ready_count"]), (&1.into(), &1.into()), "{stats}");
    let page = fixture.ok(&["stats"]);
    assert!(page.contains("2 succeeded, 1 failed, success rate 66.67 %"), "{page}");
    assert!(page.contains("1 claimable") && page.contains("MEAN TIME"), "{page}");
}

fn sweep_ends_lost_runs_once(fixture: &Fixture) {
    let id = fixture.queue(&[]);
    let mut worker = Process::worker(fixture, "builder", &["--no-upkeep"], "sleep 600");
    fixture.wait_for_state(&id, RunState::Running);
    worker.kill();
    let done = wait_until("the sweep detects the dead worker", || {
        let done = fixture.json(&["sweep"]);
        (!done["swept"].as_array().unwrap().is_empty()).then_some(done)
    });
    assert_eq!((text(&done, "swept.0.run_id"), text(&done, "swept.0.action")), (id.as_str(), "lost"));
    let next = text(&done, "swept.0.successor").parse().unwrap();
    assert_eq!(fixture.run(&next).status, RunState::Queued);
    let message = fixture.ok(&["sweep"]);
    assert_eq!(message.trim(), "0 ended, 0 scheduled, 0 pruned");
    let why = fixture.ok(&["run", "why", id.as_str()]);
    assert!(why.contains("worker lost") && why.contains(text(&done, "swept.0.successor")), "{why}");

    let mut sweeper = Process::start(fixture, "sweeper", &mut fixture.command(&["sweep", "--loop"]));
    wait_until("the loop has started", || {
        sweeper.stderr().contains("running maintenance until SIGTERM").then_some(())
    });
    sweeper.signal(Signal::TERM);
    assert_eq!(sweeper.wait_for_exit(TIMEOUT), Some(0));
}

fn doctor_reports_a_dead_worker(fixture: &Fixture) {
    let healthy = fixture.tidemill(&["doctor"]);
    // The server of the tests has fsync off, which doctor reports.
    let found = fixture.tidemill(&["--json", "doctor"]).value();
    let finding = |what: &str| {
        let all = found["findings"].as_array().unwrap();
        all.iter().find(|finding| text(finding, "what") == what).unwrap()["ok"].clone()
    };
    for what in ["database", "schema", "workers", "queue", "old rows"] {
        assert_eq!(finding(what), true, "{what}: {healthy:?}");
    }
    if fixture.kind == Kind::Sqlite {
        assert_eq!(healthy.code, Some(0), "{healthy:?}");
    }
    let mut worker = Process::worker(fixture, "silent", &["--no-upkeep"], "true");
    wait_until("the worker is registered", || worker.stderr().contains("waits for runs").then_some(()));
    wait_until("it is in the table", || {
        (fixture.sql("SELECT name FROM ops.workers").unwrap() == ["silent"]).then_some(())
    });
    worker.kill();
    std::thread::sleep(DEAD_AFTER);
    let failing = wait_until("doctor reports the worker", || {
        let failing = fixture.tidemill(&["doctor"]);
        failing.stdout.contains("no sweeper runs").then_some(failing)
    });
    assert_eq!(failing.code, Some(3), "{failing:?}");
    assert!(failing.stdout.contains("worker silent on "), "{failing:?}");
}

/// Doctor names an open transaction that prevents the removal of old rows, and checks the clock and the disk.
///
/// Uses its own server, so that there are no transactions of other tests.
#[test]
fn doctor_names_the_session_that_pins_old_rows() {
    let durable = ["fsync", "synchronous_commit"].map(|name| (name.to_owned(), "on".to_owned()));
    let options = Options { settings: durable.to_vec(), ..Options::default() };
    let cluster = Cluster::start(&options).expect("a server starts");
    let fixture = Fixture::on_server(&cluster.url("postgres"));
    let find = |found: &Value, what: &str| -> (bool, String) {
        let all = found["findings"].as_array().unwrap();
        let finding = all.iter().find(|finding| text(finding, "what") == what).unwrap();
        (finding["ok"] == true, text(finding, "told").to_owned())
    };
    let healthy = fixture.tidemill(&["--json", "doctor"]).value();
    assert_eq!(healthy["ok"], true, "{healthy}");
    assert_eq!(find(&healthy, "durability"), (true, "a commit waits for the disk".to_owned()));
    let (is_close, message) = find(&healthy, "clock");
    assert!(is_close && message.starts_with("this host and the database differ by "), "{message}");

    let url = format!("{}?application_name=forgotten", fixture.url);
    let mut pin = fixture.block(PgConnection::connect(&url)).expect("the connection is accepted");
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ops.runs";
    fixture.block(sqlx::raw_sql(begin).execute(&mut pin)).expect("a transaction begins");
    let pid: i32 = fixture.block(sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut pin)).unwrap();
    let failing = wait_until("doctor reports the session", || {
        let failing = fixture.tidemill(&["--json", "doctor"]);
        (failing.value()["ok"] == false).then_some(failing)
    });
    assert_eq!(failing.code, Some(3), "{failing:?}");
    let (is_well, message) = find(&failing.value(), "old rows");
    assert!(
        !is_well && message.starts_with(&format!("session {pid} (forgotten, user postgres, idle in tr")),
        "{message}"
    );
    assert!(message.ends_with(&format!("SELECT pg_terminate_backend({pid})")), "{message}");
    assert_eq!(failing.value()["pinning"][0]["pid"], pid);
    fixture.block(pin.close()).expect("the session ends");
    assert_eq!(fixture.tidemill(&["doctor"]).code, Some(0), "all checks pass again");
}

fn database_address_comes_from_option_environment_or_file(fixture: &Fixture) {
    let nowhere = fixture.path("nowhere.db").display().to_string();
    let mut command = fixture.command(&["--database", &fixture.url, "project", "list"]);
    assert_eq!(
        run(command.env("TIDEMILL_DATABASE", &nowhere)).code,
        Some(0),
        "the option overrides the environment"
    );
    fixture.write("tidemill.toml", &format!("[database]\nurl = {nowhere:?}\n"));
    assert_eq!(
        run(&mut fixture.command(&["project", "list"])).code,
        Some(0),
        "the environment overrides the file"
    );
    fixture.write("tidemill.toml", &format!("[database]\nurl = {:?}\n", fixture.url));
    let mut command = fixture.command(&["project", "list"]);
    assert_eq!(run(command.env_remove("TIDEMILL_DATABASE")).code, Some(0), "the file overrides the default");
    let address = fixture.write("address", &format!("{}\n", fixture.url));
    let mut command = fixture.command(&["--database", &format!("@{}", address.display()), "project", "list"]);
    assert_eq!(run(command.env_remove("TIDEMILL_DATABASE")).code, Some(0), "the address is read from a file");
    if fixture.kind == Kind::Sqlite {
        let mut command =
            fixture.command(&["--database", &format!("sqlite://{}", fixture.url), "project", "list"]);
        assert_eq!(run(&mut command).code, Some(0));
    }
}

#[test]
fn backup_of_a_sqlite_file_is_complete_and_usable() {
    let fixture = Fixture::new(Kind::Sqlite);
    let id = fixture.queue(&[]);
    fixture.ok(&["work", "--drain", "--", "echo", "built"]);
    // A worker writes during the backup.
    let mut worker = Process::worker(&fixture, "builder", &[], "seq 200");
    (0..5).for_each(|_| drop(fixture.queue(&[])));
    let target = fixture.path("copy.db").display().to_string();
    let answer = fixture.json(&["backup", &target]);
    assert_eq!(text(&answer, "target"), target);
    assert!(answer["bytes"].as_u64() > Some(0));
    let on_copy = |args: &[&str]| fixture.ok(&[&["--database", &target], args].concat());
    assert!(on_copy(&["run", "events", id.as_str()]).contains("built"));
    on_copy(&["run", "queue", "--project", "shop", "--env", "staging"]);
    on_copy(&["work", "--drain", "--", "true"]);
    assert!(!on_copy(&["run", "list"]).contains("queued "), "the copy is usable");
    let again = fixture.tidemill(&["backup", &target]);
    assert_eq!(again.code, Some(3), "{again:?}");
    assert!(again.stderr.contains("already exists"), "{again:?}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));

    let postgres = Fixture::new(Kind::Postgres);
    let refused = postgres.tidemill(&["backup", &target]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("hint: pg_dump"), "{refused:?}");
}

#[test]
fn default_configuration_is_printed_and_valid() {
    let fixture = Fixture::new(Kind::Sqlite);
    let default = fixture.ok(&["config", "default"]);
    for key in
        ["[database]", "url = \"tidemill.db\"", "schema = \"ops\"", "[worker]", "beat = \"5s\"", "[upkeep]"]
    {
        assert!(default.contains(key), "{key}: {default}");
    }
    let file = fixture.write("default.toml", &default).display().to_string();
    let mut command = std::process::Command::new(TIDEMILL);
    fixture.prepare(&mut command);
    let message = run(command.args(["--config", &file, "config", "check"])).ok();
    assert!(message.contains("is valid"), "{message}");
    assert_eq!(fixture.json(&["config", "check"])["ok"], true);
}

#[test]
fn help_lists_every_command_and_the_exit_codes() {
    let fixture = Fixture::new(Kind::Sqlite);
    let help = fixture.ok(&["--help"]);
    for word in [
        "demo",
        "migrate",
        "roles",
        "project",
        "run",
        "schedule",
        "work",
        "sweep",
        "stats",
        "backup",
        "config",
        "doctor",
        "completions",
        "--database",
        "--json",
        "TIDEMILL_DATABASE",
        "Exit codes: 0 success · 1 ",
        " 2 ",
        "· 3",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    let run_help = fixture.ok(&["run", "--help"]);
    for word in ["queue", "list", "show", "events", "watch", "cancel", "retry", "why", "artifact"] {
        assert!(run_help.contains(word), "{word}: {run_help}");
    }
    assert!(fixture.ok(&["--version"]).starts_with("tidemill "));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(fixture.ok(&["completions", shell]).contains("schedule"), "{shell}");
    }
    let script = fixture.write("completions.bash", &fixture.ok(&["completions", "bash"]));
    let mut bash = std::process::Command::new("bash");
    fixture.prepare(&mut bash);
    assert_eq!(run(bash.arg("-n").arg(script)).code, Some(0), "the script is valid bash");
    let nothing = fixture.tidemill(&[]);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    let unknown = fixture.tidemill(&["runs"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("run"), "a similar command is suggested: {unknown:?}");
}

#[test]
fn roles_are_created_once_and_refused_on_sqlite() {
    let fixture = Fixture::new(Kind::Postgres);
    let prefix = format!("tm_{}", std::process::id());
    let roles = crate::worker_script::Roles::new(&fixture, &prefix);
    let answer = fixture.json(&["roles", "create", "--prefix", &prefix]);
    assert_eq!(text(&answer, "worker"), format!("{prefix}_worker"));
    let message = fixture.ok(&["roles", "create", "--prefix", &prefix]);
    assert!(message.contains(&format!("{prefix}_reader may read the tables")), "{message}");
    // A migration that replaces the functions grants them to the roles again.
    fixture.sql("UPDATE ops.tidemill_settings SET value = 'old' WHERE setting = 'code'").unwrap();
    assert!(fixture.ok(&["migrate"]).contains("functions updated"));
    let granted = format!(
        "SELECT has_function_privilege('{prefix}_worker', p.oid, 'EXECUTE')::text FROM pg_proc p \
         WHERE p.proname = 'finish_run' AND p.pronamespace = 'ops'::regnamespace"
    );
    assert_eq!(fixture.sql(&granted).unwrap(), ["true"]);
    drop((fixture, roles));

    let refused = Fixture::new(Kind::Sqlite).tidemill(&["roles", "create"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("SQLite has no roles"), "{refused:?}");
}

/// The demo of runs needs only the binary, and leaves no files.
#[test]
fn demo_ends_every_request_exactly_once() {
    let fixture = Fixture::bare(Kind::Sqlite);
    let database = fixture.path("demo.db").display().to_string();
    let mut command = std::process::Command::new(TIDEMILL);
    fixture.prepare(&mut command);
    command.args(["demo", "--runs", "--keep", &database]).env("TMPDIR", fixture.path(""));
    let ran = run_within(&mut command, Duration::from_secs(90));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for word in
        ["kill -9 ", "each exactly once, despite the kill", "queued again as attempt 2", "worker lost"]
    {
        assert!(ran.stdout.contains(word), "{word}: {ran:?}");
    }
    let runs = fixture.json(&["--database", &database, "run", "list", "--limit", "100"]);
    let successes = runs.as_array().unwrap().iter().filter(|run| text(run, "status") == "success").count();
    assert_eq!(successes, 12);
    let refused = run(command.env("TIDEMILL_LOG", "off"));
    assert_eq!(refused.code, Some(3), "an existing file is refused: {refused:?}");
}

/// The default demo with fewer stones: the table matches the supplier after each of three syncs.
#[test]
fn demo_syncs_a_feed_correctly() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let fixture = Fixture::bare(kind);
        let mut command = std::process::Command::new(TIDEMILL);
        fixture.prepare(&mut command);
        command.args(["demo", "--stones", "3000", "--json"]).env("TMPDIR", fixture.path(""));
        if kind == Kind::Postgres {
            command.args(["--database", &fixture.url]);
        }
        let ran = run_within(&mut command, Duration::from_mins(2));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let message: serde_json::Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
        assert_eq!((&message["equal"], &message["killed"]), (&true.into(), &"worker-1".into()), "{message}");
        assert_eq!(
            (&message["full"]["stones"], &message["deleted"]["deleted"]),
            (&3_000.into(), &30.into()),
            "{message}"
        );
        assert_eq!(message["deleted"]["stones"], 2_970, "{message}");
    }
}

/// The demo of a REST API: a table of items through a killed worker, changes and deletions, and the diamonds beside it.
#[test]
fn demo_syncs_a_rest_api_beside_the_diamonds() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let fixture = Fixture::bare(kind);
        let demo = |args: &[&str]| {
            let mut command = std::process::Command::new(TIDEMILL);
            fixture.prepare(&mut command);
            command.args(["demo", "--feed", "rest", "--stones", "3000"]).args(args);
            command.env("TMPDIR", fixture.path(""));
            if kind == Kind::Postgres {
                command.args(["--database", &fixture.url]);
            }
            command
        };
        let ran = run_within(&mut demo(&["--json"]), Duration::from_mins(2));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let message: serde_json::Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
        assert_eq!((&message["equal"], &message["killed"]), (&true.into(), &"worker-1".into()), "{message}");
        assert_eq!(
            (&message["full"]["items"], &message["deleted"]["items"]),
            (&3_000.into(), &2_970.into()),
            "{message}"
        );
        let beside = &message["beside"];
        assert_eq!(
            (&beside["diamonds"]["run_type"], &beside["items"]["run_type"]),
            (&"full".into(), &"incremental".into()),
            "{message}"
        );
        assert!(beside["diamonds"]["stones"].as_u64().unwrap() > 0, "{message}");
        assert_eq!(beside["items"]["items"], 2_970, "{message}");
        if kind == Kind::Sqlite {
            let ran = run_within(&mut demo(&[]), Duration::from_mins(2)).ok();
            for words in ["the table public.items", "the first partitions: ", "both tables matched"] {
                assert!(ran.contains(words), "{words}: {ran}");
            }
        }
    }
}
