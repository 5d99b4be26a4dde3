//! Databases that cannot be used: missing, foreign, too new, read-only, full.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use super::{OUTAGE, REFUSED, USAGE, must_refuse, refusal};
use crate::fixture::{Fixture, Kind, TIDEMILL, on_both};
use crate::process::{run, run_within};

on_both!(empty_database_error_suggests_migrate, schema_of_a_newer_release_is_refused_unchanged);

/// Commands that need the tables.
const COMMANDS: [&[&str]; 6] = [
    &["run", "queue", "--project", "shop", "--env", "staging"],
    &["run", "list"],
    &["work", "--drain", "--", "true"],
    &["sweep"],
    &["doctor"],
    &["project", "create", "bank", "--env", "staging"],
];

fn empty_database_error_suggests_migrate(fixture: &Fixture) {
    let empty = Fixture::bare(fixture.kind);
    for args in COMMANDS {
        must_refuse(
            &empty,
            args,
            refusal(REFUSED, "there are no Tidemill tables in ").hint("tidemill migrate"),
        );
    }
}

fn schema_of_a_newer_release_is_refused_unchanged(fixture: &Fixture) {
    fixture.sql("UPDATE ops.tidemill_migrations SET oldest_binary = '99.1.0'").unwrap();
    for args in COMMANDS.into_iter().chain([&["migrate"][..]]) {
        let expected =
            refusal(REFUSED, "the schema needs Tidemill 99.1.0 or newer").hint("install Tidemill 99.1.0");
        must_refuse(fixture, args, expected);
    }
    fixture.sql("UPDATE ops.tidemill_migrations SET oldest_binary = '0.0.1'").unwrap();
    fixture.queue(&[]);
}

#[test]
fn unreachable_database_address_is_reported() {
    let fixture = Fixture::new(Kind::Sqlite);
    let at =
        |url: &str| run(fixture.command(&["--database", url, "run", "list"]).env_remove("TIDEMILL_DATABASE"));
    let bad = "is not a supported database URL";
    let forms = "use postgres://user@host/database, sqlite://path, or a path";
    for url in ["mysql://host/x", "http://host", "postgres://host:port/x", "sqlite://"] {
        refusal(USAGE, bad).hint(forms).check(url, &at(url));
    }
    let server = "check the address and that the server is running";
    refusal(OUTAGE, "could not open postgres://127.0.0.1:1/x")
        .hint(server)
        .check("refused", &at("postgres://127.0.0.1:1/x"));
    let ran = at("postgres://no-such-host.invalid/x");
    refusal(OUTAGE, "could not open postgres://no-such-host.invalid/x").hint(server).check("no host", &ran);
    let nowhere = fixture.path("nowhere.db");
    refusal(REFUSED, "nowhere.db` does not exist")
        .hint("tidemill migrate")
        .check("no file", &at(&nowhere.display().to_string()));
    assert!(!nowhere.exists(), "a reading command created a file");
    let deep = fixture.path("no/such/folder.db").display().to_string();
    let ran = fixture.tidemill(&["--database", &deep, "migrate"]);
    refusal(REFUSED, "the file cannot be opened or created")
        .hint("check that its directory exists")
        .check("no folder", &ran);
}

#[test]
fn file_that_is_not_a_database_is_refused_unchanged() {
    let fixture = Fixture::new(Kind::Sqlite);
    let text = "Dear diary,\n".repeat(1_000);
    let file = fixture.write("diary.txt", &text).display().to_string();
    for args in COMMANDS.into_iter().chain([&["migrate"][..]]) {
        let ran = fixture.tidemill(&[&["--database", &file], args].concat());
        refusal(REFUSED, "the file is not a SQLite database")
            .hint("choose another file")
            .check(&format!("{args:?}"), &ran);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let folder = fixture.path("").display().to_string();
    let ran = fixture.tidemill(&["--database", &folder, "run", "list"]);
    assert_eq!(ran.code, Some(REFUSED), "{ran:?}");
}

#[test]
fn foreign_tables_are_refused_and_another_schema_works() {
    let fixture = Fixture::bare(Kind::Postgres);
    fixture.sql("CREATE SCHEMA ops").unwrap();
    fixture.sql("CREATE TABLE ops.runs (run_id text PRIMARY KEY, status text, note text)").unwrap();
    fixture.sql("INSERT INTO ops.runs VALUES ('run-1', 'queued', 'theirs')").unwrap();
    let expected =
        refusal(REFUSED, "schema `ops` holds tables that Tidemill did not create: ").hint("--schema NAME");
    must_refuse(&fixture, &["migrate"], expected);
    let message = fixture.tidemill(&["migrate"]).stderr;
    assert!(message.contains("table runs lacks attempt, "), "the difference is reported: {message}");
    must_refuse(&fixture, &["run", "list"], expected);
    let builder = |args: &[&str]| fixture.ok(&[&["--schema", "builder"], args].concat());
    builder(&["migrate"]);
    builder(&["project", "create", "shop", "--env", "staging"]);
    let id = builder(&["run", "queue", "--project", "shop", "--env", "staging"]);
    builder(&["work", "--drain", "--", "true"]);
    assert!(builder(&["run", "show", id.trim()]).contains("It succeeded"));
    assert_eq!(fixture.sql("SELECT note FROM ops.runs").unwrap(), ["theirs"]);
    let ran = fixture.tidemill(&["--schema", "Robert'); DROP", "run", "list"]);
    assert!(matches!(ran.code, Some(USAGE | REFUSED)), "{ran:?}");
    assert!(ran.stderr.contains("invalid schema name"), "{ran:?}");

    let file = Fixture::bare(Kind::Sqlite);
    file.sql("CREATE TABLE runs (id integer)").unwrap();
    must_refuse(
        &file,
        &["migrate"],
        refusal(REFUSED, "holds tables that Tidemill did not create").hint("--schema"),
    );
}

/// Root may write every file, so the binary runs as another user if the tests run as root.
#[test]
fn read_only_file_is_refused() {
    let fixture = Fixture::new(Kind::Sqlite);
    fixture.queue(&[]);
    // A read-only file can be read only after its WAL was checkpointed and no other process has it open.
    let copy = fixture.path("locked/copy.db");
    fs::create_dir(fixture.path("locked")).unwrap();
    fixture.ok(&["backup", &copy.display().to_string()]);
    let bytes = fs::read(&copy).unwrap();
    let open = |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(fixture.path(""), 0o755);
    open(fixture.path("locked"), 0o555);
    open(copy.clone(), 0o444);
    let run_unprivileged = |args: &[&str]| {
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", TIDEMILL]);
            command
        } else {
            Command::new(TIDEMILL)
        };
        fixture.prepare(&mut command);
        run(command.args(args).env("TIDEMILL_DATABASE", &copy))
    };
    for args in COMMANDS.into_iter().chain([&["migrate"][..]]) {
        let ran = run_unprivileged(args);
        let expected = refusal(REFUSED, "the file is read-only");
        expected
            .hint("check the permissions of the file and its directory")
            .check(&format!("{args:?}"), &ran);
    }
    // The directory is writable, the file is not.
    open(fixture.path("locked"), 0o777);
    for args in [COMMANDS[0], COMMANDS[2], &["migrate"]] {
        let ran = run_unprivileged(args);
        assert_eq!(ran.code, Some(REFUSED), "{ran:?}");
        assert!(ran.stderr.contains("read"), "{ran:?}");
    }
    assert!(fs::read(&copy).unwrap() == bytes, "the file was changed");
    open(fixture.path("locked"), 0o755);
}

/// Fills a disk of two megabytes, and prints the results of commands as `name=value` lines.
const FULL_DISK_SCRIPT: &str = r#"
        set -eu
        mount -t tmpfs -o size=2m tmpfs disk
        export TIDEMILL_DATABASE=disk/tidemill.db
        tidemill() { "$TIDEMILL" "$@"; }
        queue() { tidemill run queue --project shop --env staging "$@"; }
        fill() { dd if=/dev/zero of=disk/filler bs=4k 2>/dev/null || true; }
        big="{\"a\": \"$(head -c 100000 /dev/zero | tr '\0' x)\"}"
        tidemill migrate >/dev/null
        tidemill project create shop --env staging >/dev/null
        first=$(queue)

        # While other processes have the file open, only new writes fail.
        "$TIDEMILL" sweep --loop 2>keeper.log & keeper=$!
        while ! grep -q SIGTERM keeper.log; do sleep 0.01; done
        "$TIDEMILL" server --listen 127.0.0.1:0 2>server.log & server=$!
        while ! grep -q 'listening on http' server.log; do sleep 0.01; done
        url=$(sed -n 's/.*listening on \(http[^ ]*\).*/\1/p' server.log | head -n 1)
        fill
        code=0
        for try in 1 2 3; do queue --metadata "$big" >out 2>error || { code=$?; break; }; done
        echo "full=$code"; sed 's/^/full said /' error out
        code=0
        env -u TIDEMILL_DATABASE TIDEMILL_SERVER="$url" "$TIDEMILL" run queue --project shop --env staging \
            --metadata "$big" >out 2>error || code=$?
        echo "remote=$code"; sed 's/^/remote said /' error out
        kill $server; wait $server
        echo "runs=$(tidemill --json run list | jq length)"
        # A worker that finds no space does not exit, and executes the run when there is space again.
        "$TIDEMILL" work --drain -- seq 2000 2>worker.log & worker=$!
        sleep 2
        kill -0 $worker && echo worker=waits
        rm disk/filler
        code=0; wait $worker || code=$?
        echo "worker=$code"
        echo "status=$(tidemill --json run show "$first" | jq -r .status)"
        echo "lines=$(tidemill --json run events "$first" --limit 5000 | jq '[.[] | select(.payload.stream)] | length')"
        queue >/dev/null
        kill $keeper; wait $keeper

        # When no process has the file open, there may be no space to open it either.
        fill
        code=0; queue >out 2>error || code=$?
        echo "closed=$code"; sed 's/^/closed said /' error out
        rm disk/filler
        echo "runs_left=$(tidemill --json run list | jq length)"
        echo "damage=$(tidemill --json doctor | jq -c '[.findings[] | select(.what == "file")]')"
    "#;

/// A full disk of two megabytes: writes are refused, nothing is half written, and a worker waits for space.
///
/// The disk exists only in the mount namespace of the shell.
#[test]
fn full_disk_loses_no_data() {
    let fixture = Fixture::bare(Kind::Sqlite);
    fs::create_dir(fixture.path("disk")).unwrap();
    let mut command = Command::new("unshare");
    fixture.prepare(&mut command);
    command.args(["--mount", "--map-root-user", "bash", "-c", FULL_DISK_SCRIPT]).env("TIDEMILL", TIDEMILL);
    command.env("TIDEMILL_WORKER_BEAT", "300ms").env("TIDEMILL_UPKEEP_EVERY", "200ms");
    let ran = run_within(&mut command, Duration::from_mins(4));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for line in [
        "full=1",
        "full said hint: free space on the disk of the database, then repeat the command",
        "remote=1",
        "remote said error: the disk of the database is full; try again later",
        "remote said hint: free space on the disk of the database, then repeat the command",
        "runs=1",
        "worker=waits",
        "worker=0",
        "status=success",
        "lines=2000",
        "closed=1",
        "closed said hint: free space on the disk of the database, then repeat the command",
        "runs_left=2",
        "damage=[]",
    ] {
        assert!(ran.stdout.lines().any(|printed| printed == line), "{line}: {ran:?}");
    }
    let printed: Vec<&str> = ran.stdout.lines().filter(|line| line.contains(" said ")).collect();
    assert_eq!(printed.len(), 6, "one message and one hint each, and no run id: {printed:?}");
    let full = "full said error: the disk of the database is full; the database could not ";
    assert!(printed[0].starts_with(full) && printed[4].contains("disk is full"), "{printed:?}");
}
