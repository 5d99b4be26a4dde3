//! The reference page of the HTTP routes, generated from the OpenAPI document.

use std::fmt::Write as _;

use serde_json::Value;

/// Renders all operations, in the order of their tags.
pub(super) fn page(document: &Value) -> String {
    let mut page = String::from(
        "# HTTP routes\n\nThis page is generated from the OpenAPI document, which a server returns at `/openapi.json` \
         and which is stored in [openapi.json](openapi.json). [HTTP API](../http.md) explains tokens, errors, \
         retries and streams. Error responses are the same for all routes and are left out here.\n",
    );
    for tag in list(&document["tags"]) {
        let name = text(&tag["name"]);
        let _ = write!(page, "\n## {name}\n\n{}\n", text(&tag["description"]));
        for (path, method, operation) in operations(document) {
            if operation["tags"][0] == *name {
                add_operation(&mut page, document, path, method, operation);
            }
        }
    }
    page
}

fn operations(document: &Value) -> impl Iterator<Item = (&String, &String, &Value)> {
    let paths = document["paths"].as_object().into_iter().flatten();
    paths.flat_map(|(path, methods)| {
        methods.as_object().into_iter().flatten().map(move |(method, operation)| (path, method, operation))
    })
}

fn add_operation(page: &mut String, document: &Value, path: &str, method: &str, operation: &Value) {
    let _ = write!(
        page,
        "\n### {} {path}\n\n{}. {}\n",
        method.to_uppercase(),
        text(&operation["summary"]),
        text(&operation["description"])
    );
    let mut lines = Vec::new();
    for parameter in list(&operation["parameters"]) {
        let needed = if parameter["required"] == true { ", required" } else { "" };
        let place = text(&parameter["in"]);
        lines.push(described(text(&parameter["name"]), &format!("{place}{needed}"), parameter));
    }
    let body = resolve(document, &operation["requestBody"]["content"]["application/json"]["schema"]);
    for (name, field) in body["properties"].as_object().into_iter().flatten() {
        let needed = if list(&body["required"]).any(|known| known == name) { ", required" } else { "" };
        lines.push(described(name, &format!("body{needed}"), field));
    }
    if !lines.is_empty() {
        let _ = write!(page, "\n{}\n", lines.join("\n"));
    }
    page.push('\n');
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        if let Some(description) = response["description"].as_str() {
            let _ = writeln!(page, "- **{status}**: {}", plain(description));
        }
    }
    let call = text(&operation["x-codeSamples"][0]["source"]);
    let _ = write!(page, "\n```sh\n{call}\n```\n");
}

fn described(name: &str, place: &str, item: &Value) -> String {
    let description = text(&item["description"]);
    let gap = if description.is_empty() { "" } else { ": " };
    format!("- `{name}` ({place}){gap}{}", plain(description))
}

/// Makes a text safe for a list item: on one line, and without HTML or links.
fn plain(text: &str) -> String {
    text.replace('\n', " ").replace('<', "&lt;").replace('[', "\\[")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let path = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
    path.and_then(|path| document.pointer(path)).unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_every_operation_with_its_example() {
        let page = page(tidemill_api::document());
        let operations: Vec<_> = operations(tidemill_api::document()).collect();
        assert!(operations.len() > 100, "{}", operations.len());
        for (path, method, _) in &operations {
            let heading = format!("\n### {} {path}\n", method.to_uppercase());
            assert_eq!(page.matches(&heading).count(), 1, "{heading}");
        }
        assert_eq!(page.matches("```sh\ncurl -sS -X ").count(), operations.len());
    }
}
