//! File names that contain a secret, and file names that are not valid UTF-8.

use crate::fixture::{Fixture, order, success};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use tidemill_core::task::TaskResult;

const SECRET: &str = "hush-7f3a9c5e1b";

fn with_secret(fixture: &Fixture) -> tidemill_agent::Settings {
    let path = fixture.path("secrets");
    fs::write(&path, format!("TOKEN={SECRET}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let mut settings = fixture.settings();
    settings.secrets = Some(path);
    settings
}

#[tokio::test]
async fn secret_in_a_file_name_is_masked() {
    let fixture = Fixture::new().await;
    let _agent = fixture.agent_with(with_secret(&fixture));
    // A name that is truncated within the secret must not show the beginning of the secret.
    let long =
        "touch \"$(head -c 193 /dev/zero | tr '\\0' x)$TOKEN\"; touch \"$TOKEN.txt\"; mkfifo \"$TOKEN.csv\"";
    let mut job = order(&fixture, "hint", long);
    job["work"]["secrets"] = json!(["TOKEN"]);
    job["work"]["outputs"] = json!({"wanted": "lost.txt", "all": "*.csv"});
    fixture.server.order(job);
    let result = fixture.result("hint-001").await;
    let TaskResult::Ended { hint, .. } = &result else { panic!("{result:?}") };
    assert!(hint.iter().any(|name| name == "•••.txt"), "{hint:?}");
    assert!(hint.iter().any(|name| name.starts_with("xxx") && name.ends_with("x•••")), "{hint:?}");
    assert!(!format!("{result:?}").contains(&SECRET[..6]), "{result:?}");
    // An output with such a name is rejected.
    let mut job = order(&fixture, "output", "echo x > \"$TOKEN.csv\"");
    job["work"]["secrets"] = json!(["TOKEN"]);
    job["work"]["outputs"] = json!({"all": "*.csv"});
    fixture.server.order(job);
    fixture.result("output-001").await;
    let report = fixture.server.result("output-001").unwrap();
    assert!(!format!("{report:?}").contains(&SECRET[..6]), "{report:?}");
    let TaskResult::Failed { fatal: true, message, .. } = &report.result else { panic!("{report:?}") };
    assert!(message.contains("•••.csv") && message.contains("secret"), "{message}");
}

#[tokio::test]
async fn matching_file_name_that_is_not_utf8_is_rejected() {
    let fixture = Fixture::new().await;
    let _agent = fixture.agent();
    let line = "mkdir -p out; touch out/good.csv \"out/$(printf 'caf\\351').csv\"";
    let mut job = order(&fixture, "file", line);
    job["work"]["outputs"] = json!({"all": "out/*.csv"});
    fixture.server.order(job);
    let mut job = order(&fixture, "dir", "d=$(printf 'caf\\351'); mkdir $d; touch $d/a.csv good.csv");
    job["work"]["outputs"] = json!({"good": "good.csv", "all": "*/a.csv"});
    fixture.server.order(job);
    // A name that matches no pattern is not rejected.
    let mut job = order(&fixture, "other", "touch \"$(printf 'caf\\351').txt\" good.csv");
    job["work"]["outputs"] = json!({"good": "good.csv"});
    fixture.server.order(job);
    let mut job = order(&fixture, "hint", "touch \"$(printf 'caf\\351').txt\"");
    job["work"]["outputs"] = json!({"good": "good.csv"});
    fixture.server.order(job);
    for (task, name) in [("file-001", "out/caf\\xE9.csv"), ("dir-001", "caf\\xE9/a.csv")] {
        let result = fixture.result(task).await;
        let TaskResult::Failed { fatal: true, message, .. } = &result else { panic!("{result:?}") };
        assert!(message.contains(name) && message.contains("UTF-8"), "{message}");
    }
    assert_eq!(fixture.result("other-001").await, success());
    let result = fixture.result("hint-001").await;
    let TaskResult::Ended { hint, unmatched, .. } = &result else { panic!("{result:?}") };
    assert_eq!((hint[0].as_str(), unmatched[0].as_str()), ("caf\\xE9.txt", "good (good.csv)"));
}
