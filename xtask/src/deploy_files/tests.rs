//! Each rule of the checks finds a file that breaks it.

use super::*;

use serde_json::json;

/// A compose file that passes.
fn good() -> Value {
    let role = json!({
        "command": ["worker"],
        "networks": ["database", "default"],
        "environment": {"TIDEMILL_DATABASE": "@/run/secrets/database"},
        "secrets": ["database"],
        "depends_on": {"migrate": {"condition": "service_completed_successfully"}},
        "healthcheck": {"test": ["CMD", "/usr/bin/tidemill", "health"]},
    });
    let mut services: Map<String, Value> =
        SERVICES.iter().map(|name| ((*name).to_owned(), role.clone())).collect();
    services["postgres"]["healthcheck"]["test"] = json!(["CMD", "pg_isready"]);
    services["agent"]["networks"] = json!(["default"]);
    services["server"]["ports"] = json!(["127.0.0.1:7171:7171"]);
    json!({
        "services": services,
        "networks": {"database": {"internal": true}},
        "secrets": {"database": {"file": "secrets/database"}},
    })
}

#[test]
fn compose_file_that_breaks_a_rule_is_found() {
    assert_eq!(compose_findings(&good()), Vec::<String>::new());
    let broken = |pointer: &str, value: Value| {
        let mut file = good();
        *file.pointer_mut(pointer).unwrap() = value;
        let findings = compose_findings(&file);
        assert!(!findings.is_empty(), "{pointer}");
        findings[0].clone()
    };
    let published = broken("/services/server/ports", json!(["7171:7171"]));
    assert!(published.starts_with("server: publishes 7171:7171"), "{published}");
    let plain = broken("/services/worker/environment/TIDEMILL_DATABASE", json!("postgres://a:b@c/d"));
    assert!(plain.contains("is not read from a secret"), "{plain}");
    let secret = broken("/secrets/database", json!({"environment": "DATABASE"}));
    assert!(secret.contains("`database` is not a file"), "{secret}");
    let probe = broken("/services/worker/healthcheck", json!(null));
    assert!(probe.contains("has no health check"), "{probe}");
    let dependency = broken("/services/worker/depends_on", json!({"migration": {}}));
    assert!(dependency.contains("unknown service `migration`"), "{dependency}");
    let network = broken("/services/agent/networks", json!(["database"]));
    assert!(network.contains("only the agent stays out"), "{network}");
    let open = broken("/networks/database/internal", json!(false));
    assert!(open.contains("is not internal"), "{open}");
}

#[test]
fn terraform_that_breaks_a_rule_is_found() {
    let app = |secret: Value| {
        let role = json!({"secret": [secret], "template": [{"secret_name": "a"}]});
        json!([{"azurerm_container_app": {"role": role}}])
    };
    let role =
        |min, max, depth| json!({"replicas_min": min, "replicas_max": max, "messages_per_replica": depth});
    let roles = json!({
        "worker": role(0, Some(30), Some(1)),
        "consolidator": role(1, Some(3), Some(1)),
        "server": role(2, Some(10), None::<u64>),
    });
    let reference = json!({"name": "a", "key_vault_secret_id": "${var.a}"});
    let mut blocks = json!({"locals": [{"roles": roles}], "resource": app(reference)});
    assert_eq!(terraform_findings(&blocks), Vec::<String>::new());
    blocks["resource"] = app(json!({"name": "a", "value": "open sesame"}));
    assert!(terraform_findings(&blocks)[0].contains("is not a reference"));
    blocks["resource"] = app(json!({"name": "b", "key_vault_secret_id": "${var.a}"}));
    assert!(terraform_findings(&blocks)[0].contains("`a` is not declared"));
    blocks["locals"][0]["roles"]["worker"]["replicas_max"] = json!(200);
    assert!(terraform_findings(&blocks)[0].contains("the replicas of worker"));
}

#[test]
fn names_must_be_declared_and_used() {
    let blocks = json!({"variable": [{"a": {}}], "locals": [{"b": 1}]});
    let text = "x = var.a\n# var.comment\ny = \"${local.b}\" == local.b.c\n";
    assert_eq!(reference_findings(&blocks, text), Vec::<String>::new());
    assert_eq!(reference_findings(&blocks, "x = var.a\ny = var.c + local.b\n").len(), 1);
    assert_eq!(reference_findings(&blocks, "x = var.a\n").len(), 1);
}
