//! Everything around runs: migrating, projects, upkeep, statistics, copies, configuration, health, help.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;
use tidemill_core::run::RunState;
use tidemill_testkit::cluster::{Cluster, Options};

use super::text;
use crate::process::{Process, run, run_within};
use crate::stage::{DEAD_AFTER, Kind, PATIENCE, Stage, TIDEMILL, on_both, until};

on_both!(
    migrating_twice_changes_nothing,
    migrators_at_once_wait_for_each_other,
    projects_are_made_once_and_listed,
    statistics_tell_what_happened,
    one_sweep_ends_what_is_lost_and_a_second_finds_nothing,
    the_doctor_finds_what_is_wrong,
    the_address_comes_from_the_flag_the_environment_or_a_file,
);

fn migrating_twice_changes_nothing(stage: &Stage) {
    let told = stage.ok(&["migrate"]);
    assert!(told.contains("is up to date"), "{told}");
    let before = stage.dump();
    let answer = stage.json(&["migrate"]);
    assert_eq!(
        (answer["applied"].as_array().map(Vec::len), &answer["code_renewed"]),
        (Some(0), &false.into())
    );
    assert_eq!(stage.dump(), before);

    let fresh = Stage::bare(stage.kind);
    let answer = fresh.json(&["migrate"]);
    assert_eq!(text(&answer, "applied.0"), "0001_kernel");
    assert_eq!(text(&fresh.json(&["project", "list"]), "0.project_id"), "default");
}

fn migrators_at_once_wait_for_each_other(stage: &Stage) {
    let fresh = Stage::bare(stage.kind);
    let start =
        |number| Process::start(&fresh, &format!("m{number}"), &mut fresh.command(&["--json", "migrate"]));
    let mut migrators: Vec<Process> = (0..4).map(start).collect();
    for migrator in &mut migrators {
        assert_eq!(migrator.ended_within(PATIENCE), Some(0), "{}", migrator.said());
    }
    let applied = migrators.iter().filter(|migrator| migrator.wrote().contains("0001_kernel")).count();
    assert_eq!(applied, 1, "one of them has made the tables");
    assert_eq!(fresh.json(&["project", "list"]).as_array().map(Vec::len), Some(1));
}

/// A command that takes long says so to people, and nothing to machines.
#[test]
fn a_migration_that_takes_long_says_that_it_goes_on() {
    let stage = Stage::new(Kind::Postgres);
    let mut other = stage.block(PgConnection::connect(&stage.url)).expect("the server lets us in");
    let lock = "SELECT pg_advisory_lock(hashtext('tidemill migrate ops'))";
    stage.block(sqlx::raw_sql(lock).execute(&mut other)).expect("the lock of migrators is taken");
    let start = |name, words: &[&str]| Process::start(&stage, name, &mut stage.command(words));
    let mut machine = start("machine", &["--json", "migrate"]);
    let mut person = start("person", &["migrate"]);
    person.until_said(" goes on after 5 s", 1);
    person.until_said(" goes on after 10 s", 1);
    stage.block(other.close()).expect("the session ends");
    for process in [&mut machine, &mut person] {
        assert_eq!(process.ended_within(PATIENCE), Some(0), "{}", process.said());
    }
    assert_eq!(machine.said(), "");
}

fn projects_are_made_once_and_listed(stage: &Stage) {
    let create = ["project", "create", "bank", "--env", "staging", "--env", "live"];
    assert!(stage.ok(&create).contains("project bank is there, with staging, live"));
    assert!(stage.ok(&create).contains("was there already"));
    assert_eq!(stage.json(&create)["created"], false);
    stage.ok(&["project", "create", "bank", "--env", "more"]);
    let list = stage.json(&["project", "list"]);
    let bank = list.as_array().unwrap().iter().find(|project| text(project, "project_id") == "bank").unwrap();
    assert_eq!(bank["environments"].as_array().map(Vec::len), Some(3), "{bank}");
    let table = stage.ok(&["project", "list"]);
    assert!(table.starts_with("PROJECT") && table.contains("active"), "{table}");
}

fn statistics_tell_what_happened(stage: &Stage) {
    for _ in 0..3 {
        stage.queue(&[]);
    }
    let script = r#"[ "$(cat "$0" 2>/dev/null)" ] || { echo x >"$0"; exit 1; }"#;
    let mark = stage.path("failed").display().to_string();
    stage.ok(&["work", "--drain", "--", "sh", "-c", script, &mark]);
    stage.queue(&[]);
    let stats = stage.json(&["stats"]);
    assert_eq!((&stats["success_count"], &stats["failed_count"]), (&2.into(), &1.into()), "{stats}");
    assert_eq!((&stats["queued_count"], &stats["ready_count"]), (&1.into(), &1.into()), "{stats}");
    let page = stage.ok(&["stats"]);
    assert!(page.contains("2 succeeded, 1 failed, success rate 66.67 %"), "{page}");
    assert!(page.contains("1 could be claimed now") && page.contains("MEAN TIME"), "{page}");
}

fn one_sweep_ends_what_is_lost_and_a_second_finds_nothing(stage: &Stage) {
    let id = stage.queue(&[]);
    let mut worker = Process::worker(stage, "mill", &["--no-upkeep"], "sleep 600");
    stage.until(&id, RunState::Running);
    worker.kill();
    let done = until("the sweep finds the dead worker", || {
        let done = stage.json(&["sweep"]);
        (!done["swept"].as_array().unwrap().is_empty()).then_some(done)
    });
    assert_eq!((text(&done, "swept.0.run_id"), text(&done, "swept.0.action")), (id.as_str(), "lost"));
    let next = text(&done, "swept.0.successor").parse().unwrap();
    assert_eq!(stage.run(&next).status, RunState::Queued);
    let told = stage.ok(&["sweep"]);
    assert_eq!(told.trim(), "0 ended, 0 scheduled, 0 pruned");
    let why = stage.ok(&["run", "why", id.as_str()]);
    assert!(why.contains("worker lost") && why.contains(text(&done, "swept.0.successor")), "{why}");

    let mut keeper = Process::start(stage, "keeper", &mut stage.command(&["sweep", "--loop"]));
    until("the loop says what it does", || {
        keeper.said().contains("until this process is stopped").then_some(())
    });
    keeper.signal(Signal::TERM);
    assert_eq!(keeper.ended_within(PATIENCE), Some(0));
}

fn the_doctor_finds_what_is_wrong(stage: &Stage) {
    let well = stage.tidemill(&["doctor"]);
    // The throwaway server of the tests does not wait for the disk, and the doctor says so.
    let found = stage.tidemill(&["--json", "doctor"]).value();
    let finding = |what: &str| {
        let all = found["findings"].as_array().unwrap();
        all.iter().find(|finding| text(finding, "what") == what).unwrap()["ok"].clone()
    };
    for what in ["database", "schema", "workers", "queue", "old rows"] {
        assert_eq!(finding(what), true, "{what}: {well:?}");
    }
    if stage.kind == Kind::Sqlite {
        assert_eq!(well.code, Some(0), "{well:?}");
    }
    let mut worker = Process::worker(stage, "silent", &["--no-upkeep"], "true");
    until("the worker is registered", || worker.said().contains("waits for runs").then_some(()));
    until("it is in the table", || {
        (stage.sql("SELECT name FROM ops.workers").unwrap() == ["silent"]).then_some(())
    });
    worker.kill();
    std::thread::sleep(DEAD_AFTER);
    let ill = until("the doctor misses the worker", || {
        let ill = stage.tidemill(&["doctor"]);
        ill.stdout.contains("nobody sweeps").then_some(ill)
    });
    assert_eq!(ill.code, Some(3), "{ill:?}");
    assert!(ill.stdout.contains("worker silent on "), "{ill:?}");
}

/// An open transaction that keeps old rows alive is named, with the statement that ends it; the clock and the disk are
/// looked at too. On a server of its own: nobody else's transactions are on it.
#[test]
fn the_doctor_names_the_session_that_pins_old_rows() {
    let durable = ["fsync", "synchronous_commit"].map(|name| (name.to_owned(), "on".to_owned()));
    let options = Options { settings: durable.to_vec(), ..Options::default() };
    let cluster = Cluster::start(&options).expect("a server starts");
    let stage = Stage::on_server(&cluster.url("postgres"));
    let find = |found: &Value, what: &str| -> (bool, String) {
        let all = found["findings"].as_array().unwrap();
        let finding = all.iter().find(|finding| text(finding, "what") == what).unwrap();
        (finding["ok"] == true, text(finding, "told").to_owned())
    };
    let well = stage.tidemill(&["--json", "doctor"]).value();
    assert_eq!(well["ok"], true, "{well}");
    assert_eq!(find(&well, "durability"), (true, "a commit waits for the disk".to_owned()));
    let (is_close, told) = find(&well, "clock");
    assert!(is_close && told.starts_with("this host and the database agree within "), "{told}");

    let url = format!("{}?application_name=forgotten", stage.url);
    let mut pin = stage.block(PgConnection::connect(&url)).expect("the server lets us in");
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ops.runs";
    stage.block(sqlx::raw_sql(begin).execute(&mut pin)).expect("a transaction begins");
    let pid: i32 = stage.block(sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut pin)).unwrap();
    let ill = until("the doctor finds the session", || {
        let ill = stage.tidemill(&["--json", "doctor"]);
        (ill.value()["ok"] == false).then_some(ill)
    });
    assert_eq!(ill.code, Some(3), "{ill:?}");
    let (is_well, told) = find(&ill.value(), "old rows");
    assert!(
        !is_well && told.starts_with(&format!("session {pid} (forgotten, user postgres, idle in tr")),
        "{told}"
    );
    assert!(told.ends_with(&format!("SELECT pg_terminate_backend({pid})")), "{told}");
    assert_eq!(ill.value()["pinning"][0]["pid"], pid);
    stage.block(pin.close()).expect("the session ends");
    assert_eq!(stage.tidemill(&["doctor"]).code, Some(0), "and then all is well");
}

fn the_address_comes_from_the_flag_the_environment_or_a_file(stage: &Stage) {
    let nowhere = stage.path("nowhere.db").display().to_string();
    let mut command = stage.command(&["--database", &stage.url, "project", "list"]);
    assert_eq!(
        run(command.env("TIDEMILL_DATABASE", &nowhere)).code,
        Some(0),
        "a flag comes before the environment"
    );
    stage.write("tidemill.toml", &format!("[database]\nurl = {nowhere:?}\n"));
    assert_eq!(
        run(&mut stage.command(&["project", "list"])).code,
        Some(0),
        "the environment before the file"
    );
    stage.write("tidemill.toml", &format!("[database]\nurl = {:?}\n", stage.url));
    let mut command = stage.command(&["project", "list"]);
    assert_eq!(run(command.env_remove("TIDEMILL_DATABASE")).code, Some(0), "the file before the default");
    let address = stage.write("address", &format!("{}\n", stage.url));
    let mut command = stage.command(&["--database", &format!("@{}", address.display()), "project", "list"]);
    assert_eq!(run(command.env_remove("TIDEMILL_DATABASE")).code, Some(0), "an address in a file");
    if stage.kind == Kind::Sqlite {
        let mut command =
            stage.command(&["--database", &format!("sqlite://{}", stage.url), "project", "list"]);
        assert_eq!(run(&mut command).code, Some(0));
    }
}

#[test]
fn a_copy_of_a_sqlite_file_is_whole_and_works() {
    let stage = Stage::new(Kind::Sqlite);
    let id = stage.queue(&[]);
    stage.ok(&["work", "--drain", "--", "echo", "built"]);
    // Somebody writes while the copy is taken.
    let mut worker = Process::worker(&stage, "mill", &[], "seq 200");
    (0..5).for_each(|_| drop(stage.queue(&[])));
    let target = stage.path("copy.db").display().to_string();
    let answer = stage.json(&["backup", &target]);
    assert_eq!(text(&answer, "target"), target);
    assert!(answer["bytes"].as_u64() > Some(0));
    let on_copy = |args: &[&str]| stage.ok(&[&["--database", &target], args].concat());
    assert!(on_copy(&["run", "events", id.as_str()]).contains("built"));
    on_copy(&["run", "queue", "--project", "shop", "--env", "staging"]);
    on_copy(&["work", "--drain", "--", "true"]);
    assert!(!on_copy(&["run", "list"]).contains("queued "), "the copy works as the original does");
    let again = stage.tidemill(&["backup", &target]);
    assert_eq!(again.code, Some(3), "{again:?}");
    assert!(again.stderr.contains("exists, and is not overwritten"), "{again:?}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));

    let postgres = Stage::new(Kind::Postgres);
    let refused = postgres.tidemill(&["backup", &target]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("hint: pg_dump"), "{refused:?}");
}

#[test]
fn the_configuration_is_printed_and_checked() {
    let stage = Stage::new(Kind::Sqlite);
    let default = stage.ok(&["config", "default"]);
    for key in
        ["[database]", "url = \"tidemill.db\"", "schema = \"ops\"", "[worker]", "beat = \"5s\"", "[upkeep]"]
    {
        assert!(default.contains(key), "{key}: {default}");
    }
    let file = stage.write("default.toml", &default).display().to_string();
    let mut command = std::process::Command::new(TIDEMILL);
    stage.adopt(&mut command);
    let told = run(command.args(["--config", &file, "config", "check"])).ok();
    assert!(told.contains("can be used as it is"), "{told}");
    assert_eq!(stage.json(&["config", "check"])["ok"], true);
}

#[test]
fn help_tells_every_command_and_the_exit_codes() {
    let stage = Stage::new(Kind::Sqlite);
    let help = stage.ok(&["--help"]);
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
        "Exit codes: 0 done · 1 ",
        " 2 ",
        " 3 ",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    let run_help = stage.ok(&["run", "--help"]);
    for word in ["queue", "list", "show", "events", "watch", "cancel", "retry", "why", "artifact"] {
        assert!(run_help.contains(word), "{word}: {run_help}");
    }
    assert!(stage.ok(&["--version"]).starts_with("tidemill "));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(stage.ok(&["completions", shell]).contains("schedule"), "{shell}");
    }
    let script = stage.write("completions.bash", &stage.ok(&["completions", "bash"]));
    let mut bash = std::process::Command::new("bash");
    stage.adopt(&mut bash);
    assert_eq!(run(bash.arg("-n").arg(script)).code, Some(0), "bash can read its script");
    let nothing = stage.tidemill(&[]);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    let unknown = stage.tidemill(&["runs"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("run"), "a near miss is suggested: {unknown:?}");
}

#[test]
fn roles_are_made_once_and_only_where_there_are_any() {
    let stage = Stage::new(Kind::Postgres);
    let prefix = format!("tm_{}", std::process::id());
    let roles = crate::worker_script::Roles::new(&stage, &prefix);
    let answer = stage.json(&["roles", "create", "--prefix", &prefix]);
    assert_eq!(text(&answer, "worker"), format!("{prefix}_worker"));
    let told = stage.ok(&["roles", "create", "--prefix", &prefix]);
    assert!(told.contains(&format!("{prefix}_reader may read the tables")), "{told}");
    // What a migration makes anew belongs to the roles too.
    stage.sql("UPDATE ops.tidemill_settings SET value = 'old' WHERE setting = 'code'").unwrap();
    assert!(stage.ok(&["migrate"]).contains("functions renewed"));
    let granted = format!(
        "SELECT has_function_privilege('{prefix}_worker', p.oid, 'EXECUTE')::text FROM pg_proc p \
         WHERE p.proname = 'finish_run' AND p.pronamespace = 'ops'::regnamespace"
    );
    assert_eq!(stage.sql(&granted).unwrap(), ["true"]);
    drop((stage, roles));

    let refused = Stage::new(Kind::Sqlite).tidemill(&["roles", "create"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("SQLite has no roles"), "{refused:?}");
}

/// The demo of runs: nothing but the binary, and nothing left behind.
#[test]
fn the_demo_ends_every_request_exactly_once() {
    let stage = Stage::bare(Kind::Sqlite);
    let kept = stage.path("kept.db").display().to_string();
    let mut command = std::process::Command::new(TIDEMILL);
    stage.adopt(&mut command);
    command.args(["demo", "--runs", "--keep", &kept]).env("TMPDIR", stage.path(""));
    let ran = run_within(&mut command, Duration::from_secs(90));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for word in
        ["kill -9 ", "each exactly once, in spite of the kill", "queued again as try 2", "worker lost"]
    {
        assert!(ran.stdout.contains(word), "{word}: {ran:?}");
    }
    let runs = stage.json(&["--database", &kept, "run", "list", "--limit", "100"]);
    let successes = runs.as_array().unwrap().iter().filter(|run| text(run, "status") == "success").count();
    assert_eq!(successes, 12);
    let refused = run(command.env("TIDEMILL_LOG", "off"));
    assert_eq!(refused.code, Some(3), "an existing file is left alone: {refused:?}");
}

/// The demo as a new user starts it, with fewer stones: the table equals the source, three times over.
#[test]
fn the_demo_brings_a_feed_into_its_table() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let stage = Stage::bare(kind);
        let mut command = std::process::Command::new(TIDEMILL);
        stage.adopt(&mut command);
        command.args(["demo", "--stones", "3000", "--json"]).env("TMPDIR", stage.path(""));
        if kind == Kind::Postgres {
            command.args(["--database", &stage.url]);
        }
        let ran = run_within(&mut command, Duration::from_mins(2));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let told: serde_json::Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
        assert_eq!((&told["equal"], &told["killed"]), (&true.into(), &"worker-1".into()), "{told}");
        assert_eq!(
            (&told["full"]["stones"], &told["deleted"]["deleted"]),
            (&3_000.into(), &30.into()),
            "{told}"
        );
        assert_eq!(told["deleted"]["stones"], 2_970, "{told}");
    }
}
