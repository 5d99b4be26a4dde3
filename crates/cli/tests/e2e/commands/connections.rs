//! Connections through a pooler and with a password, and output on a terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use tidemill_testkit::cluster::{Address, Cluster, Options, server_url};
use tidemill_testkit::pgbouncer::Pgbouncer;

use super::text;
use crate::fixture::{Fixture, Kind, TIDEMILL};
use crate::process::run;

/// Behind pgbouncer in transaction mode no command may use session state.
#[test]
fn commands_work_behind_a_transaction_pooler() {
    let fixture = Fixture::bare(Kind::Postgres);
    let pooler = Pgbouncer::start(&server_url().expect("a server is available")).expect("pgbouncer starts");
    let url = pooler.url(fixture.url.rsplit('/').next().unwrap_or_default());
    let tidemill = |args: &[&str]| {
        let mut command = fixture.command(args);
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

/// The password comes from PGPASSWORD, PGPASSFILE, a file with the address, or the address itself.
#[test]
fn password_is_read_from_every_documented_source() {
    const PASSWORD: &str = "p w'd:@%\\x";
    let cluster = Cluster::start(&Options::default()).expect("a server starts");
    let fixture = Fixture::on_server(&cluster.url("postgres"));
    fixture.sql("CREATE ROLE ann LOGIN SUPERUSER").unwrap();
    fixture.sql(&format!("ALTER ROLE ann PASSWORD '{}'", PASSWORD.replace('\'', "''"))).unwrap();
    let rules = cluster.log().parent().expect("the log is in a directory").join("data/pg_hba.conf");
    fs::write(&rules, "host all ann 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n").unwrap();
    fixture.sql("SELECT pg_reload_conf()::text").unwrap();
    let server = Address::parse(&fixture.url).expect("the address is valid");
    let name = fixture.url.rsplit('/').next().unwrap_or_default();
    let address = format!("{}:{}/{name}", server.host, server.port);
    let list_projects = |variables: &[(&str, &str)], url: &str| {
        let mut command = fixture.command(&["project", "list"]);
        run(command.env("TIDEMILL_DATABASE", url).envs(variables.iter().copied()))
    };
    let plain = format!("postgres://ann@{address}");
    let refused = crate::fixture::wait_until("the server requires a password", || {
        let refused = list_projects(&[], &plain);
        (refused.code != Some(0)).then_some(refused)
    });
    assert_eq!(refused.code, Some(3), "{refused:?}");
    let refused = list_projects(&[("PGPASSWORD", "not-this-one")], &plain);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("hint: check the user and PGPASSFILE or PGPASSWORD"), "{refused:?}");
    assert!(!refused.stderr.contains("not-this-one"), "{refused:?}");

    assert_eq!(list_projects(&[("PGPASSWORD", PASSWORD)], &plain).code, Some(0));
    let escaped = PASSWORD.replace('\\', "\\\\").replace(':', "\\:");
    let file = fixture.write("pgpass", &format!("127.0.0.1:{}:*:ann:{escaped}\n", server.port));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let ran = list_projects(&[("PGPASSFILE", &file.display().to_string())], &plain);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let encoded = "p%20w%27d%3A%40%25%5Cx";
    let with_password = format!("postgres://ann:{encoded}@{address}");
    let ran = list_projects(&[], &with_password);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(0), ""),
        "an address in the environment causes no warning"
    );
    let address = fixture.write("address", &with_password);
    assert_eq!(list_projects(&[], &format!("@{}", address.display())).code, Some(0));
    // The password is neither in the output nor in the log.
    let mut doctor = fixture.command(&["doctor"]);
    let ran = run(doctor.env("TIDEMILL_DATABASE", &with_password).env("TIDEMILL_LOG", "trace"));
    assert!(!ran.stdout.contains(encoded) && !ran.stderr.contains(encoded), "{ran:?}");
    assert!(!ran.stdout.contains("w'd") && !ran.stderr.contains("w'd"), "{ran:?}");
}

/// Returns whether the first occurrence of a text follows an escape code of a colour.
fn has_colour(page: &str, text: &str) -> bool {
    let before = page.split(text).next().unwrap_or_default();
    let code = before.rsplit('\u{1b}').next().unwrap_or_default();
    code.starts_with("[3") && code.ends_with('m')
}

/// A terminal gets colours and relative times. A pipe, NO_COLOR and --json get no colours.
#[test]
fn terminal_output_has_colours_and_piped_output_has_none() {
    let fixture = Fixture::new(Kind::Sqlite);
    let id = fixture.queue(&[]);
    fixture.ok(&["work", "--drain", "--", "true"]);
    let on_terminal = |args: &str, no_colour: &str| {
        let mut command = Command::new("script");
        fixture.prepare(&mut command);
        command.args(["--quiet", "--return", "--command", &format!("'{TIDEMILL}' {args}"), "/dev/null"]);
        run(command.env("TIDEMILL_DATABASE", &fixture.url).env("TERM", "xterm").env("NO_COLOR", no_colour))
            .ok()
    };
    let page = on_terminal("run list", "");
    assert!(has_colour(&page, "success") && page.contains(" ago"), "{page:?}");
    assert!(!on_terminal("run list", "1").contains('\u{1b}'));
    assert!(!fixture.ok(&["run", "list"]).contains('\u{1b}'));
    let answer = on_terminal(&format!("--json run show {id}"), "");
    let answer: serde_json::Value =
        serde_json::from_str(answer.trim()).expect("JSON is JSON on a terminal too");
    assert_eq!(text(&answer, "status"), "success");
    let watched = on_terminal(&format!("run watch {id}"), "");
    assert!(watched.contains("It succeeded"), "{watched:?}");
}
