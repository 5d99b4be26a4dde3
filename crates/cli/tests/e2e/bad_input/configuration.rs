//! A configuration with faults, and secrets that must not be told.

use super::{OUTAGE, REFUSED, USAGE, refusal};
use crate::process::run;
use crate::stage::{Kind, Stage};

#[test]
fn every_fault_of_the_configuration_is_told_at_once() {
    let stage = Stage::new(Kind::Sqlite);
    stage.queue(&[]);
    let before = stage.dump();
    stage.write(
        "tidemill.toml",
        "[worker]\nbeat = \"fast\"\nslot = 3\nslots = 0\n[database]\nconnections = 1.5\npooler = \"maybe\"\n\
         schema = \"No!\"\n[upkeep]\nretention = \"1s\"\n[colour]\nred = true\n",
    );
    for args in [&["config", "check"][..], &["run", "list"], &["work", "--drain", "--", "true"]] {
        let mut command = stage.command(args);
        let ran = run(command.env("TIDEMILL_WORKER_GRACE", "later").env("TIDEMILL_UPKEEP_EVERY", "0"));
        refusal(USAGE, "the configuration is wrong: ").hint("tidemill config default").check("faults", &ran);
        for fault in [
            "worker.beat: ",
            "worker.slot: there is no such key",
            "worker.slots: it must be a number between 1 and 256",
            "database.connections: ",
            "database.pooler: it must be session or transaction",
            "database.schema: `No!`",
            "upkeep.retention: it must be between 1h and ",
            "colour.red: there is no such key",
            "TIDEMILL_WORKER_GRACE: write a number and a unit",
            "TIDEMILL_UPKEEP_EVERY: ",
        ] {
            assert!(ran.stderr.contains(fault), "{fault}: {ran:?}");
        }
    }
    stage.write("tidemill.toml", "[worker\n");
    refusal(USAGE, "tidemill.toml: ")
        .hint("config default")
        .check("not TOML", &stage.tidemill(&["config", "check"]));
    std::fs::remove_file(stage.path("tidemill.toml")).unwrap();
    let ran = stage.tidemill(&["--config", "nowhere.toml", "run", "list"]);
    refusal(USAGE, "could not read `nowhere.toml`").check("no file", &ran);
    let ran = run(stage
        .command(&["config", "check"])
        .env("TIDEMILL_WORKER_DEAD_AFTER", "1s")
        .env("TIDEMILL_WORKER_BEAT", "1s"));
    refusal(USAGE, "three beats must fit into worker.dead-after").hint("config default").check("beats", &ran);
    let ran = run(stage.command(&["--database", "@nowhere", "run", "list"]).env_remove("TIDEMILL_DATABASE"));
    refusal(USAGE, "could not read the address from `nowhere`").check("no address", &ran);
    assert!(stage.dump() == before, "something was written");
}

#[test]
fn a_password_on_the_command_line_earns_a_warning_and_is_never_told() {
    const SECRET: &str = "s3cr3t-wort";
    let stage = Stage::new(Kind::Postgres);
    let authority = stage.url.split("://").nth(1).unwrap();
    let place = authority.rsplit_once('@').unwrap().1;
    let (host, name) = place.split_once('/').unwrap();
    let warned = |url: &str| {
        let ran = run(stage.command(&["--database", url, "run", "list"]).env_remove("TIDEMILL_DATABASE"));
        assert!(!format!("{ran:?}").contains(SECRET), "{ran:?}");
        (ran.stderr.contains("warning: the password on the command line can be seen by others"), ran)
    };
    // A server that trusts everybody takes the password; one that does not refuses it.
    assert!(warned(&format!("postgres://postgres:{SECRET}@{place}")).0);
    assert!(warned(&format!("postgres://postgres@{place}?password={SECRET}")).0);
    assert!(!warned(&stage.url).0, "there is no password in it");
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
            let ran = run(stage.command(args).env("TIDEMILL_DATABASE", &url).env("TIDEMILL_LOG", "debug"));
            assert_eq!(ran.code, Some(code), "{args:?} {url}: {ran:?}");
            assert!(!format!("{ran:?}").contains(SECRET), "{ran:?}");
        }
    }
    // A password from the environment is used, and no warning is due.
    let ran = run(stage.command(&["run", "list"]).env("PGPASSWORD", SECRET));
    assert!(ran.code == Some(0) && !ran.stderr.contains("warning"), "{ran:?}");
}
