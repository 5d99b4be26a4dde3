//! The audit log on the command line: list, export, head and verification.

use serde_json::Value;

use crate::fixture::{Fixture, Kind, on_both};
use crate::worker_script::Script;

on_both!(audit_log_is_listed_exported_and_verified, manipulated_audit_log_is_reported_with_exit_code_3,);

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("one JSON object per line")).collect()
}

/// Makes two changes and a mistake, and seals them.
fn change_and_seal(fixture: &Fixture, name: &str) {
    fixture.ok(&["project", "create", name, "--env", "staging"]);
    fixture.ok(&["token", "create", name, "--role", "viewer"]);
    assert_eq!(fixture.tidemill(&["token", "revoke", "00000000-0000-4000-8000-000000000000"]).code, Some(3));
    fixture.ok(&["sweep"]);
}

fn audit_log_is_listed_exported_and_verified(fixture: &Fixture) {
    change_and_seal(fixture, "one");
    let listed = lines(&fixture.ok(&["--json", "audit", "list", "--limit", "2"]));
    let told: Vec<_> = listed.iter().map(|entry| (&entry["action"], &entry["outcome"])).collect();
    // A mistake beside the database is not an attempt, and is not recorded.
    assert_eq!(told[0], (&"tokens.create".into(), &"applied".into()), "{listed:?}");
    assert_eq!(told[1], (&"projects.put".into(), &"applied".into()), "{listed:?}");
    assert!(listed.iter().all(|entry| entry["role"] == "admin" && entry["seal_no"].is_i64()), "{listed:?}");
    assert!(fixture.ok(&["audit", "list"]).contains("projects.put"));

    let head = fixture.write("head.json", &fixture.ok(&["audit", "head"])).display().to_string();
    change_and_seal(fixture, "two");
    fixture.ok(&["project", "create", "three", "--env", "staging"]);
    let verified = fixture.ok(&["audit", "verify", "--from-head", &head]);
    assert!(
        verified.contains("the audit log is intact") && verified.contains("not sealed yet: 1"),
        "{verified}"
    );

    let export = fixture.ok(&["audit", "export"]);
    let kinds: Vec<Value> = lines(&export).iter().map(|line| line["type"].clone()).collect();
    assert_eq!((&kinds[0], kinds.last()), (&"entry".into(), Some(&"entry".into())), "{export}");
    let file = fixture.write("audit.jsonl", &export).display().to_string();
    fixture.ok(&["audit", "verify", "--file", &file, "--from-head", &head]);

    // An export that was changed, or that ends too early, is not intact.
    let changed = fixture.write("changed.jsonl", &export.replacen("projects.put", "projects.get", 1));
    let refused = fixture.tidemill(&["audit", "verify", "--file", &changed.display().to_string()]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("was changed after seal 1"), "{refused:?}");
    let short = fixture.write("short.jsonl", "").display().to_string();
    let refused = fixture.tidemill(&["audit", "verify", "--file", &short, "--from-head", &head]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("the tail was cut off"), "{refused:?}");
}

fn manipulated_audit_log_is_reported_with_exit_code_3(fixture: &Fixture) {
    change_and_seal(fixture, "one");
    let head = fixture.write("head.json", &fixture.ok(&["audit", "head"])).display().to_string();
    let (disarm, table) = match fixture.kind {
        Kind::Postgres => ("ALTER TABLE ops.audit DISABLE TRIGGER USER", "ops.audit"),
        Kind::Sqlite => ("DROP TRIGGER audit_change", "audit"),
    };
    fixture.sql(disarm).expect("the guard is removed");
    fixture.sql(&format!("UPDATE {table} SET who = 'bob'")).expect("the entries are changed");
    for args in [&["audit", "verify"][..], &["audit", "verify", "--from-head", &head]] {
        let refused = fixture.tidemill(args);
        assert_eq!(refused.code, Some(3), "{refused:?}");
        assert!(refused.stderr.contains("the audit log is not intact: entry"), "{refused:?}");
    }
}

#[test]
fn roles_created_are_audited() {
    let script = Script::new();
    let created = || {
        let entries = lines(&script.fixture.ok(&["--json", "audit", "list"]));
        entries.into_iter().filter(|entry| entry["action"] == "roles.create").collect::<Vec<_>>()
    };
    let entries = created();
    assert_eq!(entries.len(), 1, "{entries:?}");
    let entry = &entries[0];
    assert_eq!((&entry["subject"], &entry["outcome"]), (&script.prefix.as_str().into(), &"applied".into()));
    assert_eq!(entry["role"], "admin", "{entry}");
    let user = script.fixture.sql("SELECT session_user::text").expect("the user is read").remove(0);
    assert_eq!(entry["detail"]["database_user"], user.as_str());
    // A refused call creates nothing and is not recorded.
    assert_ne!(script.fixture.tidemill(&["roles", "create", "--prefix", "Not a name"]).code, Some(0));
    assert_eq!(created().len(), 1);
}
