//! Invalid configurations, and secrets that must not be printed.

use super::{OUTAGE, REFUSED, USAGE, refusal};
use crate::fixture::{Fixture, Kind};
use crate::process::run;

#[test]
fn all_configuration_errors_are_reported_together() {
    let fixture = Fixture::new(Kind::Sqlite);
    fixture.queue(&[]);
    let before = fixture.dump();
    fixture.write(
        "tidemill.toml",
        "[worker]\nbeat = \"fast\"\nslot = 3\nslots = 0\n[database]\nconnections = 1.5\npooler = \"maybe\"\n\
         schema = \"No!\"\n[upkeep]\nretention = \"1s\"\n[colour]\nred = true\n",
    );
    for args in [&["config", "check"][..], &["run", "list"], &["work", "--drain", "--", "true"]] {
        let mut command = fixture.command(args);
        let ran = run(command.env("TIDEMILL_WORKER_GRACE", "later").env("TIDEMILL_UPKEEP_EVERY", "0"));
        refusal(USAGE, "invalid configuration: ").hint("tidemill config default").check("invalid", &ran);
        for error in [
            "worker.beat: ",
            "worker.slot is not a configuration key",
            "worker.slots: it must be a number between 1 and 256",
            "database.connections: ",
            "database.pooler: it must be session or transaction",
            "database.schema: invalid schema name `No!`",
            "upkeep.retention: it must be between 1h and ",
            "colour.red is not a configuration key",
            "TIDEMILL_WORKER_GRACE: write a number and a unit",
            "TIDEMILL_UPKEEP_EVERY: ",
        ] {
            assert!(ran.stderr.contains(error), "{error}: {ran:?}");
        }
    }
    fixture.write("tidemill.toml", "[worker\n");
    refusal(USAGE, "tidemill.toml: ")
        .hint("config default")
        .check("not TOML", &fixture.tidemill(&["config", "check"]));
    std::fs::remove_file(fixture.path("tidemill.toml")).unwrap();
    let ran = fixture.tidemill(&["--config", "nowhere.toml", "run", "list"]);
    refusal(USAGE, "could not read `nowhere.toml`").check("no file", &ran);
    let ran = run(fixture
        .command(&["config", "check"])
        .env("TIDEMILL_WORKER_DEAD_AFTER", "1s")
        .env("TIDEMILL_WORKER_BEAT", "1s"));
    refusal(USAGE, "worker.beat must be at most a third of worker.dead-after")
        .hint("config default")
        .check("heartbeat interval", &ran);
    let ran =
        run(fixture.command(&["--database", "@nowhere", "run", "list"]).env_remove("TIDEMILL_DATABASE"));
    refusal(USAGE, "could not read the database address from `nowhere`").check("no address", &ran);
    assert!(fixture.dump() == before, "the database was changed");
}

#[test]
fn password_on_command_line_is_warned_of_and_never_printed() {
    const SECRET: &str = "s3cr3t-wort";
    let fixture = Fixture::new(Kind::Postgres);
    let authority = fixture.url.split("://").nth(1).unwrap();
    let address = authority.rsplit_once('@').unwrap().1;
    let (host, name) = address.split_once('/').unwrap();
    let warned = |url: &str| {
        let ran = run(fixture.command(&["--database", url, "run", "list"]).env_remove("TIDEMILL_DATABASE"));
        assert!(!format!("{ran:?}").contains(SECRET), "{ran:?}");
        (ran.stderr.contains("warning: other users can read the password on the command line"), ran)
    };
    // A server with trust authentication accepts the password; another one refuses it.
    assert!(warned(&format!("postgres://postgres:{SECRET}@{address}")).0);
    assert!(warned(&format!("postgres://postgres@{address}?password={SECRET}")).0);
    assert!(!warned(&fixture.url).0, "the address contains no password");
    for (url, code) in [
        (format!("postgres://postgres:{SECRET}@127.0.0.1:1/{name}"), OUTAGE),
        (format!("postgres://postgres:{SECRET}@{host}/nowhere"), REFUSED),
        (format!("postgres://nobody-such:{SECRET}@{host}/{name}"), REFUSED),
        (format!("postgres://postgres:{SECRET}@127.0.0.1:port/{name}"), USAGE),
        (format!("postgres://postgres:{SECRET}@[::1/{name}"), USAGE),
        (format!("postgres://postgres:{SECRET}@{host}/{name}?sslmode=maybe"), USAGE),
        (format!("mysql://root:{SECRET}@{host}/{name}"), USAGE),
    ] {
        let ran = warned(&url).1;
        assert_eq!(ran.code, Some(code), "{url}: {ran:?}");
        for args in [&["--json", "stats"][..], &["migrate"], &["work", "--drain", "--", "true"], &["doctor"]]
        {
            let ran = run(fixture.command(args).env("TIDEMILL_DATABASE", &url).env("TIDEMILL_LOG", "debug"));
            assert_eq!(ran.code, Some(code), "{args:?} {url}: {ran:?}");
            assert!(!format!("{ran:?}").contains(SECRET), "{ran:?}");
        }
    }
    // A password from the environment is used without a warning.
    let ran = run(fixture.command(&["run", "list"]).env("PGPASSWORD", SECRET));
    assert!(ran.code == Some(0) && !ran.stderr.contains("warning"), "{ran:?}");
}
