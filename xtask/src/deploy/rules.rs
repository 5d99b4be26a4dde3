//! Rules of the objects that no schema expresses: privileges, secrets, probes, disruption budgets, network access and
//! scaling.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Objects;

const NAME: &str = "app.kubernetes.io/name";
const COMPONENT: &str = "app.kubernetes.io/component";
/// Capabilities of the agent for the isolation of tasks (ADR 28).
const AGENT_CAPABILITIES: [&str; 7] =
    ["SYS_ADMIN", "SETUID", "SETGID", "CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL"];
/// Variables whose values must name a file.
const SECRET_VARIABLES: [&str; 2] = ["TIDEMILL_DATABASE", "TIDEMILL_TOKEN"];
/// Ports that each component may connect to, and ports that it accepts.
const NETWORK: [(&str, &[u64], &[u64]); 9] = [
    ("agent", &[53, 443, 7171], &[9171]),
    ("consolidator", &[53, 443, 5432], &[9171]),
    ("controller", &[53, 443, 5432], &[9171]),
    ("migrate", &[53, 5432], &[]),
    ("scheduler", &[53, 443, 5432], &[9171]),
    ("server", &[53, 443, 5432], &[7171]),
    ("sweep", &[53, 443, 5432], &[9171]),
    ("work", &[53, 7171], &[9171]),
    ("worker", &[53, 443, 5432], &[9171]),
];
/// Settings of a trigger by its type. KEDA ignores misspelt ones.
const TRIGGERS: [(&str, &[&str]); 2] = [
    ("postgresql", &["activationTargetQueryValue", "query", "targetQueryValue"]),
    ("prometheus", &["activationThreshold", "ignoreNullValues", "query", "serverAddress", "threshold"]),
];

/// Returns one finding for each violation.
pub(super) fn findings(objects: &Objects) -> Vec<String> {
    let mut rules = Rules { objects, findings: Vec::new() };
    let mut components = BTreeSet::new();
    for (name, object) in objects {
        match text(&object["kind"]) {
            "Deployment" | "StatefulSet" | "Job" => {
                rules.workload(name, object);
                components.insert(text(&object["spec"]["template"]["metadata"]["labels"][COMPONENT]));
            }
            "ScaledObject" => rules.scaled_object(name, object),
            "Secret" => rules.add(name, "contains a secret; refer to it instead"),
            _ => {}
        }
    }
    rules.require("NetworkPolicy", "tidemill-default-deny", "policies");
    let known: BTreeSet<&str> = NETWORK.iter().map(|(component, ..)| *component).collect();
    if components != known {
        rules.add("the list of components", &format!("is {components:?}, and the rules know {known:?}"));
    }
    rules.network();
    rules.findings
}

/// Returns one finding for each difference between the two ways to scale, except for their triggers.
pub(super) fn different_scaling(one: &Objects, other: &Objects) -> Vec<String> {
    let described = |objects: &Objects| -> BTreeSet<String> {
        let scaled = objects.values().filter(|object| object["kind"] == "ScaledObject");
        scaled
            .map(|object| {
                let mut object = object.clone();
                let metadata = object["spec"]["triggers"][0]["metadata"].take();
                object["spec"]["triggers"] = json!([]);
                object["target"] = match metadata.get("targetQueryValue") {
                    Some(target) => target.clone(),
                    None => metadata["threshold"].clone(),
                };
                object.to_string()
            })
            .collect()
    };
    let (one, other) = (described(one), described(other));
    one.symmetric_difference(&other).map(|object| format!("only one way to scale has {object}")).collect()
}

struct Rules<'a> {
    objects: &'a Objects,
    findings: Vec<String>,
}

impl Rules<'_> {
    fn add(&mut self, name: &str, problem: &str) {
        self.findings.push(format!("{name} {problem}"));
    }

    fn check(&mut self, name: &str, holds: bool, problem: &str) {
        if !holds {
            self.add(name, problem);
        }
    }

    /// Checks that an object exists that `user` refers to.
    fn require(&mut self, kind: &str, name: &str, user: &str) {
        if !self.objects.contains_key(&format!("{kind} {name}")) {
            self.add(user, &format!("need {kind} {name}, which does not exist"));
        }
    }

    fn workload(&mut self, name: &str, object: &Value) {
        let template = &object["spec"]["template"];
        let (labels, pod) = (&template["metadata"]["labels"], &template["spec"]);
        let is_agent = labels[COMPONENT] == "agent";
        self.check(name, labels[NAME] == "tidemill", "is not selected by the network policies");
        self.check(name, pod["automountServiceAccountToken"] == false, "mounts a token of Kubernetes");
        self.check(name, pod["enableServiceLinks"] == false, "gets variables of services");
        let context = &pod["securityContext"];
        self.check(name, context["seccompProfile"]["type"] == "RuntimeDefault", "has no seccomp profile");
        self.check(name, is_agent || context["runAsNonRoot"] == true, "may run as root");
        for container in list(&pod["containers"]) {
            self.privileges(name, container, is_agent);
            self.container(name, container);
        }
        for volume in list(&pod["volumes"]) {
            if let Some(config) = volume["configMap"]["name"].as_str() {
                self.require("ConfigMap", config, name);
            }
        }
        if object["kind"] == "Job" {
            return;
        }
        self.require("ServiceAccount", text(&pod["serviceAccountName"]), name);
        let selector = &object["spec"]["selector"]["matchLabels"];
        let is_budget = |other: &&Value| {
            other["kind"] == "PodDisruptionBudget" && other["spec"]["selector"]["matchLabels"] == *selector
        };
        let budgets = self.objects.values().filter(is_budget).count();
        self.check(name, budgets == 1, "has no disruption budget, or several");
        for container in list(&pod["containers"]) {
            self.probes(name, container);
        }
    }

    fn privileges(&mut self, name: &str, container: &Value, is_agent: bool) {
        let context = &container["securityContext"];
        let capabilities = &context["capabilities"];
        self.check(name, context["readOnlyRootFilesystem"] == true, "may write to its root file system");
        self.check(name, capabilities["drop"] == json!(["ALL"]), "keeps capabilities");
        self.check(name, context["privileged"].is_null(), "is privileged");
        if is_agent {
            let arguments: Vec<&str> = list(&container["args"]).iter().map(text).collect();
            let is_isolated = arguments.windows(2).any(|pair| pair == ["--isolation", "required"]);
            self.check(name, is_isolated, "does not require isolation");
            self.check(name, capabilities["add"] == json!(AGENT_CAPABILITIES), "has other capabilities");
        } else {
            self.check(name, context["allowPrivilegeEscalation"] == false, "may escalate its privileges");
            self.check(name, capabilities["add"].is_null(), "adds capabilities");
        }
    }

    fn container(&mut self, name: &str, container: &Value) {
        let version = concat!(":", env!("CARGO_PKG_VERSION"));
        self.check(name, text(&container["image"]).ends_with(version), "has an image of another version");
        let resources = &container["resources"];
        let is_sized = resources["requests"]["cpu"].is_string()
            && resources["requests"]["memory"].is_string()
            && resources["limits"]["memory"].is_string();
        self.check(name, is_sized, "has no requests of CPU and memory, or no limit of memory");
        for variable in list(&container["env"]) {
            if SECRET_VARIABLES.contains(&text(&variable["name"])) {
                let is_file = text(&variable["value"]).starts_with('@');
                self.check(name, is_file, &format!("has the secret {} as a value", variable["name"]));
            }
        }
    }

    fn probes(&mut self, name: &str, container: &Value) {
        self.check(name, container["startupProbe"].is_object(), "has no startup probe");
        let liveness = &container["livenessProbe"];
        self.check(name, liveness.is_object(), "has no liveness probe");
        self.check(name, liveness["httpGet"]["path"] != "/readyz", "restarts when the database is down");
    }

    /// Compares the ports that the policies allow with the list of this file.
    fn network(&mut self) {
        for (component, out, into) in NETWORK {
            for (direction, expected) in [("egress", out), ("ingress", into)] {
                let selecting = self.objects.values().filter(|object| selects(object, component));
                let rules = selecting.flat_map(|policy| list(&policy["spec"][direction]));
                let ports = rules.flat_map(|rule| list(&rule["ports"]));
                let allowed: BTreeSet<u64> = ports.filter_map(|port| port["port"].as_u64()).collect();
                if allowed != expected.iter().copied().collect() {
                    let problem = format!("has {direction} to the ports {allowed:?} instead of {expected:?}");
                    self.add(component, &problem);
                }
            }
        }
        for (name, object) in self.objects.iter().filter(|(_, object)| object["kind"] == "NetworkPolicy") {
            let rules = list(&object["spec"]["ingress"]).iter().chain(list(&object["spec"]["egress"]));
            let is_open = rules.clone().any(|rule| list(&rule["ports"]).is_empty());
            self.check(name, !is_open, "allows all ports");
        }
    }

    fn scaled_object(&mut self, name: &str, object: &Value) {
        let spec = &object["spec"];
        let target = text(&spec["scaleTargetRef"]["name"]);
        self.require("Deployment", target, name);
        let replicas = self.objects.get(&format!("Deployment {target}")).map(|it| &it["spec"]["replicas"]);
        self.check(
            name,
            replicas.is_some_and(Value::is_null),
            "scales a Deployment with a number of replicas",
        );
        for trigger in list(&spec["triggers"]) {
            let settings: Vec<&str> =
                trigger["metadata"].as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
            let known = TRIGGERS.contains(&(text(&trigger["type"]), settings.as_slice()));
            self.check(name, known, "has a trigger with other settings");
            if let Some(authentication) = trigger["authenticationRef"]["name"].as_str() {
                self.require("TriggerAuthentication", authentication, name);
            }
        }
    }
}

/// Whether a network policy applies to a component.
fn selects(policy: &Value, component: &str) -> bool {
    let selector = &policy["spec"]["podSelector"];
    let labels = &selector["matchLabels"];
    policy["kind"] == "NetworkPolicy"
        && labels[NAME] == "tidemill"
        && labels.get(COMPONENT).is_none_or(|label| label == component)
        && list(&selector["matchExpressions"]).iter().all(|expression| {
            expression["key"] == COMPONENT
                && expression["operator"] == "In"
                && list(&expression["values"]).iter().any(|value| value == component)
        })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(object: &Value) -> Vec<String> {
        let name = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
        let objects = Objects::from([(name.clone(), object.clone())]);
        findings(&objects).into_iter().filter(|finding| finding.starts_with(&name)).collect()
    }

    fn deployment() -> Value {
        json!({
            "kind": "Job", "metadata": {"name": "a"},
            "spec": {"template": {
                "metadata": {"labels": {NAME: "tidemill", COMPONENT: "migrate"}},
                "spec": {
                    "automountServiceAccountToken": false, "enableServiceLinks": false,
                    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{
                        "image": concat!("tidemill-server:", env!("CARGO_PKG_VERSION")),
                        "env": [{"name": "TIDEMILL_TOKEN", "value": "@/run/token"}],
                        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
                        "securityContext": {
                            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }],
                },
            }},
        })
    }

    #[test]
    fn hardened_pod_has_no_finding() {
        assert_eq!(finding(&deployment()), Vec::<String>::new());
    }

    #[test]
    fn each_missing_restriction_is_found() {
        let pod = "/spec/template/spec";
        for (path, value) in [
            ("/automountServiceAccountToken", json!(true)),
            ("/enableServiceLinks", json!(true)),
            ("/securityContext/runAsNonRoot", json!(false)),
            ("/securityContext/seccompProfile", json!({"type": "Unconfined"})),
            ("/containers/0/image", json!("tidemill-server:0.0.1")),
            ("/containers/0/env/0/value", json!("tm_secret")),
            ("/containers/0/resources/limits", json!({})),
            ("/containers/0/securityContext/allowPrivilegeEscalation", json!(true)),
            ("/containers/0/securityContext/readOnlyRootFilesystem", json!(false)),
            ("/containers/0/securityContext/capabilities", json!({})),
            ("/containers/0/securityContext/capabilities", json!({"drop": ["ALL"], "add": ["KILL"]})),
        ] {
            let mut object = deployment();
            *object.pointer_mut(&format!("{pod}{path}")).unwrap() = value;
            assert_eq!(finding(&object).len(), 1, "{path}");
        }
    }

    #[test]
    fn policies_apply_by_component() {
        let policy = |selector: Value| json!({"kind": "NetworkPolicy", "spec": {"podSelector": selector}});
        let all = policy(json!({"matchLabels": {NAME: "tidemill"}}));
        let one = policy(json!({"matchLabels": {NAME: "tidemill", COMPONENT: "work"}}));
        let some = policy(json!({
            "matchLabels": {NAME: "tidemill"},
            "matchExpressions": [{"key": COMPONENT, "operator": "In", "values": ["agent", "work"]}],
        }));
        for (component, expected) in
            [("work", [true; 3]), ("agent", [true, false, true]), ("server", [true, false, false])]
        {
            assert_eq!([&all, &one, &some].map(|policy| selects(policy, component)), expected, "{component}");
        }
    }

    #[test]
    fn scaling_that_differs_is_found() {
        let scaled = |most: u32, settings: Value| {
            let object = json!({
                "kind": "ScaledObject",
                "spec": {"maxReplicaCount": most, "triggers": [{"type": "x", "metadata": settings}]},
            });
            Objects::from([("ScaledObject a".to_owned(), object)])
        };
        let query = scaled(3, json!({"targetQueryValue": "1"}));
        assert_eq!(different_scaling(&query, &scaled(3, json!({"threshold": "1"}))).len(), 0);
        assert_eq!(different_scaling(&query, &scaled(4, json!({"threshold": "1"}))).len(), 2);
        assert_eq!(different_scaling(&query, &scaled(3, json!({"threshold": "2"}))).len(), 2);
    }
}
