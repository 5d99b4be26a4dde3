//! Other ways in: through a pooler, with a password, and from a terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use tidemill_testkit::cluster::{Address, Cluster, Options, server_url};
use tidemill_testkit::pgbouncer::Pgbouncer;

use super::text;
use crate::process::run;
use crate::stage::{Kind, Stage, TIDEMILL};

/// Behind pgbouncer in transaction mode nothing may lean on a session.
#[test]
fn everything_works_behind_a_pooler_in_transaction_mode() {
    let stage = Stage::bare(Kind::Postgres);
    let pooler = Pgbouncer::start(&server_url().expect("there is a server")).expect("pgbouncer starts");
    let url = pooler.url(stage.url.rsplit('/').next().unwrap_or_default());
    let tidemill = |args: &[&str]| {
        let mut command = stage.command(args);
        run(command.env("TIDEMILL_DATABASE", &url).env("TIDEMILL_DATABASE_POOLER", "transaction")).ok()
    };
    tidemill(&["migrate"]);
    tidemill(&["project", "create", "shop", "--env", "staging"]);
    let queue =
        ["run", "queue", "--project", "shop", "--env", "staging", "--attempts", "2", "--backoff", "0s"];
    let id = tidemill(&queue);
    let script = r#"seq 3; [ "$TIDEMILL_ATTEMPT" = 2 ]"#;
    tidemill(&["work", "--drain", "--slots", "3", "--", "sh", "-c", script]);
    let watched = tidemill(&["run", "watch", id.trim()]);
    assert!(watched.contains("It succeeded"), "{watched}");
    for args in
        [&["stats"][..], &["sweep"], &["run", "list"], &["project", "list"], &["run", "why", id.trim()]]
    {
        tidemill(args);
    }
}

/// A server that wants a password gets it from PGPASSWORD, PGPASSFILE, a file with the address, or the address itself.
#[test]
fn a_password_is_taken_from_where_it_is_kept() {
    const PASSWORD: &str = "p w'd:@%\\x";
    let cluster = Cluster::start(&Options::default()).expect("a server starts");
    let stage = Stage::on_server(&cluster.url("postgres"));
    stage.sql("CREATE ROLE ann LOGIN SUPERUSER").unwrap();
    stage.sql(&format!("ALTER ROLE ann PASSWORD '{}'", PASSWORD.replace('\'', "''"))).unwrap();
    let rules = cluster.log().parent().expect("the log is in a folder").join("data/pg_hba.conf");
    fs::write(&rules, "host all ann 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n").unwrap();
    stage.sql("SELECT pg_reload_conf()::text").unwrap();
    let server = Address::parse(&stage.url).expect("the address is one");
    let name = stage.url.rsplit('/').next().unwrap_or_default();
    let place = format!("{}:{}/{name}", server.host, server.port);
    let ask = |variables: &[(&str, &str)], url: &str| {
        let mut command = stage.command(&["project", "list"]);
        run(command.env("TIDEMILL_DATABASE", url).envs(variables.iter().copied()))
    };
    let plain = format!("postgres://ann@{place}");
    let refused = crate::stage::until("the server wants a password", || {
        let refused = ask(&[], &plain);
        (refused.code != Some(0)).then_some(refused)
    });
    assert_eq!(refused.code, Some(3), "{refused:?}");
    let refused = ask(&[("PGPASSWORD", "not-this-one")], &plain);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("hint: check the user, and PGPASSFILE or PGPASSWORD"), "{refused:?}");
    assert!(!refused.stderr.contains("not-this-one"), "{refused:?}");

    assert_eq!(ask(&[("PGPASSWORD", PASSWORD)], &plain).code, Some(0));
    let escaped = PASSWORD.replace('\\', "\\\\").replace(':', "\\:");
    let file = stage.write("pgpass", &format!("127.0.0.1:{}:*:ann:{escaped}\n", server.port));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let ran = ask(&[("PGPASSFILE", &file.display().to_string())], &plain);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let encoded = "p%20w%27d%3A%40%25%5Cx";
    let whole = format!("postgres://ann:{encoded}@{place}");
    let ran = ask(&[], &whole);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(0), ""),
        "an address in the environment earns no warning"
    );
    let address = stage.write("address", &whole);
    assert_eq!(ask(&[], &format!("@{}", address.display())).code, Some(0));
    // Nothing of it reaches what people and logs see.
    let mut doctor = stage.command(&["doctor"]);
    let ran = run(doctor.env("TIDEMILL_DATABASE", &whole).env("TIDEMILL_LOG", "trace"));
    assert!(!ran.stdout.contains(encoded) && !ran.stderr.contains(encoded), "{ran:?}");
    assert!(!ran.stdout.contains("w'd") && !ran.stderr.contains("w'd"), "{ran:?}");
}

/// People get colour and relative times on a terminal; a pipe, NO_COLOR and --json get none.
#[test]
fn a_terminal_gets_colour_and_a_pipe_does_not() {
    let stage = Stage::new(Kind::Sqlite);
    let id = stage.queue(&[]);
    stage.ok(&["work", "--drain", "--", "true"]);
    let on_terminal = |args: &str, no_colour: &str| {
        let mut command = Command::new("script");
        stage.adopt(&mut command);
        command.args(["--quiet", "--return", "--command", &format!("{TIDEMILL} {args}"), "/dev/null"]);
        run(command.env("TIDEMILL_DATABASE", &stage.url).env("TERM", "xterm").env("NO_COLOR", no_colour)).ok()
    };
    let page = on_terminal("run list", "");
    assert!(page.contains("\u{1b}[32msuccess\u{1b}[0m") && page.contains(" ago"), "{page:?}");
    assert!(!on_terminal("run list", "1").contains('\u{1b}'));
    assert!(!stage.ok(&["run", "list"]).contains('\u{1b}'));
    let answer = on_terminal(&format!("--json run show {id}"), "");
    let answer: serde_json::Value =
        serde_json::from_str(answer.trim()).expect("JSON is JSON on a terminal too");
    assert_eq!(text(&answer, "status"), "success");
    let watched = on_terminal(&format!("run watch {id}"), "");
    assert!(watched.contains("It succeeded"), "{watched:?}");
}
