//! A database that cannot be used as it is: absent, foreign, too new, read-only, full.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use super::{OUTAGE, REFUSED, USAGE, must_refuse, refusal};
use crate::process::{run, run_within};
use crate::stage::{Kind, Stage, TIDEMILL, on_both};

on_both!(an_empty_database_is_told_to_be_migrated, a_schema_that_excludes_this_binary_is_left_alone);

/// Commands that need the tables, one of each kind.
const COMMANDS: [&[&str]; 6] = [
    &["run", "queue", "--project", "shop", "--env", "staging"],
    &["run", "list"],
    &["work", "--drain", "--", "true"],
    &["sweep"],
    &["doctor"],
    &["project", "create", "bank", "--env", "staging"],
];

fn an_empty_database_is_told_to_be_migrated(stage: &Stage) {
    let empty = Stage::bare(stage.kind);
    for args in COMMANDS {
        must_refuse(
            &empty,
            args,
            refusal(REFUSED, "there are no Tidemill tables in ").hint("tidemill migrate"),
        );
    }
}

fn a_schema_that_excludes_this_binary_is_left_alone(stage: &Stage) {
    stage.sql("UPDATE ops.tidemill_migrations SET oldest_binary = '99.1.0'").unwrap();
    for args in COMMANDS.into_iter().chain([&["migrate"][..]]) {
        let expected =
            refusal(REFUSED, "the schema needs Tidemill 99.1.0 or newer").hint("install Tidemill 99.1.0");
        must_refuse(stage, args, expected);
    }
    stage.sql("UPDATE ops.tidemill_migrations SET oldest_binary = '0.0.1'").unwrap();
    stage.queue(&[]);
}

#[test]
fn an_address_that_leads_nowhere_is_told() {
    let stage = Stage::new(Kind::Sqlite);
    let at =
        |url: &str| run(stage.command(&["--database", url, "run", "list"]).env_remove("TIDEMILL_DATABASE"));
    let bad = "is not a database that Tidemill can use";
    let forms = "use postgres://user@host/database, sqlite://path, or a path";
    for url in ["mysql://host/x", "http://host", "postgres://host:port/x", "sqlite://"] {
        refusal(USAGE, bad).hint(forms).check(url, &at(url));
    }
    let server = "check the address, and that the server runs";
    refusal(OUTAGE, "could not open postgres://127.0.0.1:1/x")
        .hint(server)
        .check("refused", &at("postgres://127.0.0.1:1/x"));
    let ran = at("postgres://no-such-host.invalid/x");
    refusal(OUTAGE, "could not open postgres://no-such-host.invalid/x").hint(server).check("no host", &ran);
    let nowhere = stage.path("nowhere.db");
    refusal(REFUSED, "there is no database at ")
        .hint("tidemill migrate makes one")
        .check("no file", &at(&nowhere.display().to_string()));
    assert!(!nowhere.exists(), "a command that only looks has made a file");
    let deep = stage.path("no/such/folder.db").display().to_string();
    let ran = stage.tidemill(&["--database", &deep, "migrate"]);
    refusal(REFUSED, "the file cannot be opened or made")
        .hint("check that its folder exists")
        .check("no folder", &ran);
}

#[test]
fn a_file_that_is_not_a_database_is_left_alone() {
    let stage = Stage::new(Kind::Sqlite);
    let text = "Dear diary,\n".repeat(1_000);
    let file = stage.write("diary.txt", &text).display().to_string();
    for args in COMMANDS.into_iter().chain([&["migrate"][..]]) {
        let ran = stage.tidemill(&[&["--database", &file], args].concat());
        refusal(REFUSED, "it is not a SQLite database")
            .hint("name another file")
            .check(&format!("{args:?}"), &ran);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let folder = stage.path("").display().to_string();
    let ran = stage.tidemill(&["--database", &folder, "run", "list"]);
    assert_eq!(ran.code, Some(REFUSED), "{ran:?}");
}

#[test]
fn foreign_tables_are_kept_and_another_schema_works() {
    let stage = Stage::bare(Kind::Postgres);
    stage.sql("CREATE SCHEMA ops").unwrap();
    stage.sql("CREATE TABLE ops.runs (run_id text PRIMARY KEY, status text, note text)").unwrap();
    stage.sql("INSERT INTO ops.runs VALUES ('run-1', 'queued', 'theirs')").unwrap();
    let expected =
        refusal(REFUSED, "schema `ops` holds tables that Tidemill did not make: ").hint("--schema NAME");
    must_refuse(&stage, &["migrate"], expected);
    let told = stage.tidemill(&["migrate"]).stderr;
    assert!(told.contains("table runs lacks attempt, "), "what differs is told: {told}");
    must_refuse(&stage, &["run", "list"], expected);
    let mill = |args: &[&str]| stage.ok(&[&["--schema", "mill"], args].concat());
    mill(&["migrate"]);
    mill(&["project", "create", "shop", "--env", "staging"]);
    let id = mill(&["run", "queue", "--project", "shop", "--env", "staging"]);
    mill(&["work", "--drain", "--", "true"]);
    assert!(mill(&["run", "show", id.trim()]).contains("It succeeded"));
    assert_eq!(stage.sql("SELECT note FROM ops.runs").unwrap(), ["theirs"]);
    let ran = stage.tidemill(&["--schema", "Robert'); DROP", "run", "list"]);
    assert!(matches!(ran.code, Some(USAGE | REFUSED)), "{ran:?}");
    assert!(ran.stderr.contains("cannot be the name of the schema"), "{ran:?}");

    let file = Stage::bare(Kind::Sqlite);
    file.sql("CREATE TABLE runs (id integer)").unwrap();
    must_refuse(
        &file,
        &["migrate"],
        refusal(REFUSED, "holds tables that Tidemill did not make").hint("--schema"),
    );
}

/// Root may write everything, so the binary runs as another user where the tests run as root.
#[test]
fn a_file_that_can_only_be_read_is_told() {
    let stage = Stage::new(Kind::Sqlite);
    stage.queue(&[]);
    // Reading needs the log beside the file to be folded into it, and nobody else to have it open.
    let copy = stage.path("locked/copy.db");
    fs::create_dir(stage.path("locked")).unwrap();
    stage.ok(&["backup", &copy.display().to_string()]);
    let bytes = fs::read(&copy).unwrap();
    let open = |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(stage.path(""), 0o755);
    open(stage.path("locked"), 0o555);
    open(copy.clone(), 0o444);
    let as_nobody = |args: &[&str]| {
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", TIDEMILL]);
            command
        } else {
            Command::new(TIDEMILL)
        };
        stage.adopt(&mut command);
        run(command.args(args).env("TIDEMILL_DATABASE", &copy))
    };
    for args in COMMANDS.into_iter().chain([&["migrate"][..]]) {
        let ran = as_nobody(args);
        let expected = refusal(REFUSED, "it can only be read, and Tidemill has to write");
        expected.hint("check who owns the file and its folder").check(&format!("{args:?}"), &ran);
    }
    // The folder can be written, the file cannot.
    open(stage.path("locked"), 0o777);
    for args in [COMMANDS[0], COMMANDS[2], &["migrate"]] {
        let ran = as_nobody(args);
        assert_eq!(ran.code, Some(REFUSED), "{ran:?}");
        assert!(ran.stderr.contains("read"), "{ran:?}");
    }
    assert!(fs::read(&copy).unwrap() == bytes, "the file was changed");
    open(stage.path("locked"), 0o755);
}

/// A disk of two megabytes that is filled up: what cannot be kept is refused, nothing is half written, a worker waits
/// for room, and everything goes on when there is some. The disk exists only for the shell that mounts it.
#[test]
fn a_full_disk_loses_nothing() {
    let stage = Stage::bare(Kind::Sqlite);
    fs::create_dir(stage.path("disk")).unwrap();
    let script = r#"
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

        # While others have the file open, there is only no room for more.
        "$TIDEMILL" sweep --loop 2>keeper.log & keeper=$!
        while ! grep -q stopped keeper.log; do sleep 0.01; done
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
        echo "far=$code"; sed 's/^/far said /' error out
        kill $server; wait $server
        echo "runs=$(tidemill --json run list | jq length)"
        # A worker that finds no room does not end, and carries the run out when there is some.
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

        # When nobody has it open, there may be no room to open it either.
        fill
        code=0; queue >out 2>error || code=$?
        echo "closed=$code"; sed 's/^/closed said /' error out
        rm disk/filler
        echo "runs_left=$(tidemill --json run list | jq length)"
        echo "damage=$(tidemill --json doctor | jq -c '[.findings[] | select(.what == "file")]')"
    "#;
    let mut command = Command::new("unshare");
    stage.adopt(&mut command);
    command.args(["--mount", "--map-root-user", "bash", "-c", script]).env("TIDEMILL", TIDEMILL);
    command.env("TIDEMILL_WORKER_BEAT", "300ms").env("TIDEMILL_UPKEEP_EVERY", "200ms");
    let ran = run_within(&mut command, Duration::from_mins(4));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for line in [
        "full=1",
        "full said hint: free space on the disk of the database, then repeat the command",
        "far=1",
        "far said error: the disk of the database is full; ask again when there is room",
        "far said hint: free space on the disk of the database, then repeat the command",
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
        assert!(ran.stdout.lines().any(|said| said == line), "{line}: {ran:?}");
    }
    let said: Vec<&str> = ran.stdout.lines().filter(|line| line.contains(" said ")).collect();
    assert_eq!(said.len(), 6, "one sentence and one hint each, and no run id: {said:?}");
    let full = "full said error: the disk of the database is full; it could not ";
    assert!(said[0].starts_with(full) && said[4].contains("disk is full"), "{said:?}");
}
