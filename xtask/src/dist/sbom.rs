//! The bill of materials: CycloneDX 1.5, as JSON.

use serde_json::{Value, json};

use super::Release;
use super::packages::Package;

/// Returns the document. It contains no time and no random number, so it is the same for the same packages.
pub(super) fn document(release: &Release) -> String {
    let (own, others): (Vec<&Package>, Vec<&Package>) =
        release.packages.iter().partition(|package| package.name == "tidemill");
    let components: Vec<Value> = others.iter().map(|package| component(package, "library")).collect();
    let dependencies: Vec<Value> = release.packages.iter().map(dependencies).collect();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": own.first().map(|package| component(package, "application")),
            "properties": [{"name": "tidemill:target", "value": release.target}],
        },
        "components": components,
        "dependencies": dependencies,
    });
    format!("{document:#}\n")
}

/// Package URL, which names the package in databases of vulnerabilities.
fn url(name: &str, version: &str) -> String {
    // Only the `+` of build metadata needs an escape: names and versions of cargo have no other special characters.
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

fn component(package: &Package, kind: &str) -> Value {
    let url = url(&package.name, &package.version);
    let mut component = json!({
        "type": kind, "name": package.name, "version": package.version, "bom-ref": url, "purl": url,
    });
    if let Some(licence) = &package.licence {
        // Old manifests separate alternatives by a slash, which is not SPDX.
        let alternatives: Vec<&str> = licence.split('/').map(str::trim).collect();
        component["licenses"] = json!([{"expression": alternatives.join(" OR ")}]);
    }
    if let Some(description) = &package.description {
        component["description"] = json!(description.trim());
    }
    if let Some(checksum) = &package.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if let Some(repository) = &package.repository {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    component
}

fn dependencies(package: &Package) -> Value {
    let on: Vec<String> = package.dependencies.iter().map(|(name, version)| url(name, version)).collect();
    json!({"ref": url(&package.name, &package.version), "dependsOn": on})
}
