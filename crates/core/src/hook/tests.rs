//! Tests of the decisions about deliveries.

use super::*;
use serde_json::json;

const SHA: &str = "6113728f27ae82c7b1a177c8d03f9e96e0adf246";

fn hook(rules: Vec<HookRule>) -> Hook {
    Hook {
        hook: "shop".to_owned(),
        project_id: "shop".to_owned(),
        kind: HookKind::Github,
        secret_env: "SHOP_SECRET".to_owned(),
        rules,
        defined_by: DefinedBy::Operator,
        paused_at: None,
        created_at: Timestamp::UNIX_EPOCH,
    }
}

fn push(git_ref: &str) -> Json {
    json!({
        "ref": git_ref, "before": "0".repeat(40), "after": SHA, "deleted": false, "commits": [],
        "repository": {"full_name": "acme/shop"}, "sender": {"login": "ann"},
        "head_commit": {"message": "mend the till\n\nand more"},
    })
}

fn queued(hook: &Hook, event: &str, payload: &Json) -> QueueRun {
    match decide(hook, event, "d-1", payload) {
        Ok(Decision::Queue(run)) => *run,
        other => panic!("{other:?}"),
    }
}

#[test]
fn patterns_match_components_and_paths() {
    for (pattern, name, is) in [
        ("main", "main", true),
        ("main", "maintenance", false),
        ("release/*", "release/1.2", true),
        ("release/*", "release/1/2", false),
        ("release/**", "release/1/2", true),
        ("release/*", "release/", true),
        ("*", "main", true),
        ("*", "a/b", false),
        ("**", "a/b", true),
        ("*-fix", "a-fix-fix", true),
        ("a*b*c", "a--b--b-c", true),
        ("a*b*c", "a--b--b-d", false),
        ("**/x", "x", false),
        ("ünter*", "ünterwegs", true),
        ("", "", true),
    ] {
        assert_eq!(matches(pattern, name), is, "{pattern} {name}");
    }
}

#[test]
fn pattern_with_many_stars_matches_quickly() {
    let began = std::time::Instant::now();
    assert!(!matches(&"*a".repeat(128), &"a".repeat(1_000).replace("aaaa", "aaab")));
    // Exponential backtracking would take years.
    assert!(began.elapsed() < std::time::Duration::from_mins(1));
}

#[test]
fn default_rules_map_branches_to_environments() {
    let hook = hook(default_rules());
    for (git_ref, env) in [
        ("refs/heads/main", "staging"),
        ("refs/heads/release/1.2", "prod"),
        ("refs/heads/feature/till", "dev"),
        ("refs/heads/release/1/2", "dev"),
    ] {
        let run = queued(&hook, "push", &push(git_ref));
        assert_eq!((run.env.as_str(), run.project.as_str()), (env, "shop"), "{git_ref}");
        assert_eq!(run.git_sha.as_deref(), Some(SHA));
        assert_eq!(run.git_ref.as_deref(), git_ref.strip_prefix("refs/heads/"));
        assert_eq!(run.idempotency_key.as_deref(), Some("github:d-1"));
        assert_eq!(run.metadata["github"]["sender"], "ann");
        assert_eq!(run.metadata["github"]["commit_message"], "mend the till");
        assert!(run.check().is_ok());
    }
}

#[test]
fn tag_is_ignored_without_a_rule_for_tags() {
    let tag = push("refs/tags/v1");
    assert!(matches!(decide(&hook(default_rules()), "push", "d", &tag), Ok(Decision::Ignore(_))));
    let rule = HookRule { pattern: "refs/tags/v*".to_owned(), env: "prod".to_owned() };
    let run = queued(&hook(vec![rule]), "push", &tag);
    assert_eq!((run.env.as_str(), run.git_ref.as_deref()), ("prod", Some("refs/tags/v1")));
}

#[test]
fn deleted_branch_and_unknown_event_are_ignored() {
    let hook = hook(default_rules());
    let mut gone = push("refs/heads/main");
    gone["deleted"] = true.into();
    assert!(matches!(decide(&hook, "push", "d", &gone), Ok(Decision::Ignore(_))));
    for event in ["ping", "issues", ""] {
        assert!(matches!(decide(&hook, event, "d", &json!([])), Ok(Decision::Ignore(_))), "{event}");
    }
}

#[test]
fn dispatch_has_inputs_and_no_commit() {
    let payload = json!({
        "ref": "main", "inputs": {"colour": "blue"}, "workflow": ".github/workflows/go.yml",
        "repository": {"full_name": "acme/shop"}, "sender": {"login": "ann"}, "after": "nonsense",
    });
    let run = queued(&hook(default_rules()), "workflow_dispatch", &payload);
    assert_eq!((run.env.as_str(), run.git_sha, run.git_ref.as_deref()), ("staging", None, Some("main")));
    assert_eq!(run.metadata["github"]["inputs"]["colour"], "blue");
}

#[test]
fn metadata_from_the_payload_is_bounded() {
    let mut payload = push("refs/heads/main");
    payload["sender"]["login"] = "ä".repeat(10_000).into();
    payload["inputs"] = json!({"much": "x".repeat(100_000)});
    payload["repository"]["full_name"] = "a\u{0}b".into();
    let run = queued(&hook(default_rules()), "push", &payload);
    assert!(run.metadata.to_string().len() < 4_096);
    assert_eq!(run.metadata["github"]["repository"], "ab");
    assert!(run.check().is_ok());
}

#[test]
fn event_header_must_agree_with_the_signed_body() {
    let hook = hook(default_rules());
    let dispatch = json!({"ref": "main", "inputs": null, "workflow": "go.yml"});
    let created = json!({"ref": "main", "ref_type": "branch", "master_branch": "main"});
    for (event, payload) in [
        ("workflow_dispatch", &push("refs/heads/main")),
        ("push", &dispatch),
        ("issues", &push("refs/heads/main")),
        ("ping", &dispatch),
        ("push", &created),
        ("workflow_dispatch", &created),
    ] {
        let errors = decide(&hook, event, "d", payload).unwrap_err().0;
        assert_eq!(errors[0].field, "X-GitHub-Event", "{event} {payload}");
    }
    assert!(matches!(decide(&hook, "create", "d", &created), Ok(Decision::Ignore(_))));
    assert!(matches!(decide(&hook, "workflow_dispatch", "d", &dispatch), Ok(Decision::Queue(_))));
}

#[test]
fn malformed_payload_is_rejected() {
    let hook = hook(default_rules());
    for payload in [json!({}), json!({"ref": 3}), json!({"ref": "refs/heads/main", "after": "x"}), json!(7)] {
        assert!(decide(&hook, "push", "d", &payload).is_err(), "{payload}");
    }
    let long = push(&format!("refs/heads/{}", "a".repeat(2_000)));
    assert!(decide(&hook, "push", "d", &long).is_err());
}

#[test]
fn generic_body_gets_project_and_environment() {
    let mut hook = hook(default_rules());
    hook.kind = HookKind::Generic;
    let filled = fill_in(&hook, json!({"git_ref": "main"})).unwrap();
    assert_eq!(filled, json!({"git_ref": "main", "env": "staging", "project": "shop"}));
    let filled = fill_in(&hook, json!({"env": "qa"})).unwrap();
    assert_eq!(filled["env"], "qa");
    for bad in [json!({}), json!([]), json!({"env": "qa", "project": "bank"})] {
        assert!(fill_in(&hook, bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn hook_check_reports_every_error() {
    let mut bad = hook(vec![HookRule { pattern: String::new(), env: "Pro d".to_owned() }]);
    bad.hook = "Shop".to_owned();
    bad.secret_env = "whsec=abc/def".to_owned();
    let errors = bad.check().unwrap_err().0;
    assert_eq!(errors.len(), 4, "{errors:?}");
    assert!(!format!("{errors:?}").contains("whsec"), "a possible secret is not repeated");
    assert!(hook(default_rules()).check().is_ok());
    assert!(hook(Vec::new()).check().is_err());
}
