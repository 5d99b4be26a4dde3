//! File names that must not be told as they are: those that hold a secret, and those that are not UTF-8.

use crate::stage::{Ground, order, well};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use tidemill_core::task::TaskResult;

const SECRET: &str = "hush-7f3a9c5e1b";

fn with_secret(ground: &Ground) -> tidemill_agent::Settings {
    let path = ground.path("secrets");
    fs::write(&path, format!("TOKEN={SECRET}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let mut settings = ground.settings();
    settings.secrets = Some(path);
    settings
}

/// Shows that a secret in the name of a file is masked wherever the name is told.
#[tokio::test]
async fn secret_in_a_file_name_is_masked() {
    let ground = Ground::new().await;
    let _agent = ground.agent_with(with_secret(&ground));
    // A name that is cut where the secret stands must not show its beginning.
    let long =
        "touch \"$(head -c 193 /dev/zero | tr '\\0' x)$TOKEN\"; touch \"$TOKEN.txt\"; mkfifo \"$TOKEN.csv\"";
    let mut job = order(&ground, "hint", long);
    job["work"]["secrets"] = json!(["TOKEN"]);
    job["work"]["outputs"] = json!({"wanted": "lost.txt", "all": "*.csv"});
    ground.server.order(job);
    let result = ground.result("hint-001").await;
    let TaskResult::Ended { hint, .. } = &result else { panic!("{result:?}") };
    assert!(hint.iter().any(|name| name == "•••.txt"), "{hint:?}");
    assert!(hint.iter().any(|name| name.starts_with("xxx") && name.ends_with("x•••")), "{hint:?}");
    assert!(!format!("{result:?}").contains(&SECRET[..6]), "{result:?}");
    // A file that would have to be handed on under such a name is refused.
    let mut job = order(&ground, "output", "echo x > \"$TOKEN.csv\"");
    job["work"]["secrets"] = json!(["TOKEN"]);
    job["work"]["outputs"] = json!({"all": "*.csv"});
    ground.server.order(job);
    ground.result("output-001").await;
    let report = ground.server.result("output-001").unwrap();
    assert!(!format!("{report:?}").contains(&SECRET[..6]), "{report:?}");
    let TaskResult::Failed { fatal: true, message, .. } = &report.result else { panic!("{report:?}") };
    assert!(message.contains("•••.csv") && message.contains("secret"), "{message}");
}

/// Shows that a file which matches and whose name is not UTF-8 is not left out silently.
#[tokio::test]
async fn file_name_that_is_not_utf8_is_told() {
    let ground = Ground::new().await;
    let _agent = ground.agent();
    let line = "mkdir -p out; touch out/good.csv \"out/$(printf 'caf\\351').csv\"";
    let mut job = order(&ground, "file", line);
    job["work"]["outputs"] = json!({"all": "out/*.csv"});
    ground.server.order(job);
    let mut job = order(&ground, "dir", "d=$(printf 'caf\\351'); mkdir $d; touch $d/a.csv good.csv");
    job["work"]["outputs"] = json!({"good": "good.csv", "all": "*/a.csv"});
    ground.server.order(job);
    // A name that no pattern matches is nobody's business.
    let mut job = order(&ground, "other", "touch \"$(printf 'caf\\351').txt\" good.csv");
    job["work"]["outputs"] = json!({"good": "good.csv"});
    ground.server.order(job);
    let mut job = order(&ground, "hint", "touch \"$(printf 'caf\\351').txt\"");
    job["work"]["outputs"] = json!({"good": "good.csv"});
    ground.server.order(job);
    for (task, name) in [("file-001", "out/caf\\xE9.csv"), ("dir-001", "caf\\xE9/a.csv")] {
        let result = ground.result(task).await;
        let TaskResult::Failed { fatal: true, message, .. } = &result else { panic!("{result:?}") };
        assert!(message.contains(name) && message.contains("UTF-8"), "{message}");
    }
    assert_eq!(ground.result("other-001").await, well());
    let result = ground.result("hint-001").await;
    let TaskResult::Ended { hint, unmatched, .. } = &result else { panic!("{result:?}") };
    assert_eq!((hint[0].as_str(), unmatched[0].as_str()), ("caf\\xE9.txt", "good (good.csv)"));
}
