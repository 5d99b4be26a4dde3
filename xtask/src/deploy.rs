//! Checks the files of `deploy/kustomize` and `deploy/helm` without a cluster.
//!
//! Every object is rendered by kubectl or Helm, and validated against the schemas of Kubernetes and KEDA. The chart
//! must render the objects of the base and of the production overlay. Other rules are in `rules.rs`.

mod rules;
mod tools;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::out;
use tools::Tools;

/// The oldest and the newest version of Kubernetes whose schemas the objects must match.
const VERSIONS: [&str; 2] = ["1.30", "1.37"];

/// Objects by kind and name.
type Objects = BTreeMap<String, Value>;

/// Renders and checks all objects.
pub(crate) fn check() -> Result<()> {
    let tools = Tools::install()?;
    let base = tools.kustomize("base")?;
    let development = tools.kustomize("overlays/development")?;
    let production = tools.kustomize("overlays/production")?;
    let prometheus = tools.kustomize("keda/prometheus")?;
    let mut findings = rules::findings(&production);
    for objects in [&base, &development] {
        findings.extend(rules::findings(objects));
    }
    findings.extend(rules::different_scaling(&production, &prometheus));
    // The overlay with the other way to scale: its objects have the same names.
    let mut alternative = production.clone();
    alternative.extend(prometheus);
    findings.extend(rules::findings(&alternative));
    match tools.helm()? {
        Some(chart) => {
            findings.extend(differences("the chart", &chart.default, "the base", &base));
            findings.extend(differences(
                "the chart with values-production.yaml",
                &chart.production,
                "the overlay `production`",
                &production,
            ));
        }
        None => out::line(
            "skipped the Helm chart: no package of helm exists for this machine; install helm to include it",
        ),
    }
    findings.sort();
    findings.dedup();
    for finding in &findings {
        out::line(finding);
    }
    ensure!(findings.is_empty(), "the files of deploy/ have {} findings; fix them", findings.len());
    out::line(format!("checked {} objects of deploy/", base.len() + development.len() + production.len()));
    Ok(())
}

/// Returns one finding for each object that only one side has, or that differs.
fn differences(left: &str, lefts: &Objects, right: &str, rights: &Objects) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, object) in lefts {
        match rights.get(name) {
            None => findings.push(format!("{name} is in {left} and not in {right}")),
            Some(other) => {
                if let Some(path) = first_difference(object, other) {
                    findings.push(format!("{name} differs between {left} and {right} at {path}"));
                }
            }
        }
    }
    for name in rights.keys().filter(|name| !lefts.contains_key(*name)) {
        findings.push(format!("{name} is in {right} and not in {left}"));
    }
    findings
}

/// Returns the path of the first value that differs.
fn first_difference(left: &Value, right: &Value) -> Option<String> {
    if left == right {
        return None;
    }
    let inner = match (left, right) {
        (Value::Object(lefts), Value::Object(rights)) => {
            let keys = lefts.keys().chain(rights.keys());
            keys.map(|key| (key.clone(), &left[key], &right[key])).find(|(_, one, other)| one != other)
        }
        (Value::Array(lefts), Value::Array(rights)) if lefts.len() == rights.len() => {
            let pairs = lefts.iter().zip(rights).enumerate();
            pairs.map(|(at, (one, other))| (at.to_string(), one, other)).find(|(_, one, other)| one != other)
        }
        _ => None,
    };
    // A key whose value is null on one side and missing on the other differs, but its values do not.
    Some(inner.map_or_else(String::new, |(key, one, other)| {
        format!("/{key}{}", first_difference(one, other).unwrap_or_default())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn difference_names_the_object_and_the_path() {
        let objects = |value: Value| Objects::from([("Deployment a".to_owned(), value)]);
        let left = objects(json!({"spec": {"list": [1, {"x": 2}]}}));
        let right = objects(json!({"spec": {"list": [1, {"x": 3}]}}));
        assert_eq!(differences("l", &left, "r", &left), Vec::<String>::new());
        assert_eq!(
            differences("l", &left, "r", &right),
            ["Deployment a differs between l and r at /spec/list/1/x"]
        );
        assert_eq!(differences("l", &left, "r", &Objects::new()), ["Deployment a is in l and not in r"]);
        assert_eq!(differences("l", &Objects::new(), "r", &left), ["Deployment a is in r and not in l"]);
    }
}
