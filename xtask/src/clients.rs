//! `clients`: lints the OpenAPI document, and checks the clients that generators make from it.
//!
//! Redocly and Spectral lint the document. openapi-python-client and openapi-typescript generate a client each. Each
//! client must read and write the examples of the document, and queue and read runs on a server.

mod lint;
mod server;
mod tools;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{out, workspace};
pub(crate) use server::Server;
use tools::Tools;

/// The document in the folder of the tools.
const DOCUMENT: &str = "openapi.json";
/// The generated Python package and TypeScript file.
const PYTHON_CLIENT: &str = "tidemill_client";
const TYPESCRIPT_CLIENT: &str = "schema.d.ts";

/// Starts a server, and checks the document and the clients.
pub(crate) fn command() -> Result<ExitCode> {
    check(&Server::start()?)?;
    Ok(ExitCode::SUCCESS)
}

/// Checks the document, and the clients on a server.
pub(crate) fn check(server: &Server) -> Result<()> {
    let tools = Tools::install(&workspace::target()?.join("clients"))?;
    let document = tidemill_api::document();
    fs::write(tools.path(DOCUMENT), format!("{document:#}\n")).context("could not write the document")?;
    lint(&tools)?;
    check_python(&tools, server).context("the Python client is wrong")?;
    check_typescript(&tools, server, document).context("the TypeScript client is wrong")?;
    out::line("the generated Python and TypeScript clients work");
    Ok(())
}

/// Lints the document with both linters. Only errors fail.
fn lint(tools: &Tools) -> Result<()> {
    let redocly = tools.node("@redocly/cli/bin/cli.js");
    let redocly = lint::run(redocly, &["lint", DOCUMENT, "--config", "redocly.yaml", "--format", "json"])?;
    let spectral = tools.node("@stoplight/spectral-cli/dist/index.js");
    let arguments = ["lint", DOCUMENT, "--ruleset", "spectral.yaml", "--format", "json", "--quiet"];
    let spectral = lint::run(spectral, &arguments)?;
    let (redocly, spectral) = (lint::redocly(&redocly)?, lint::spectral(&spectral)?);
    for error in redocly.errors.iter().chain(&spectral.errors) {
        out::line(format!("docs/reference/openapi.json: {error}"));
    }
    out::line(format!(
        "linted the OpenAPI document: {} warnings of Redocly, {} of Spectral",
        redocly.warnings, spectral.warnings
    ));
    let errors = redocly.errors.len() + spectral.errors.len();
    ensure!(errors == 0, "the OpenAPI document has {errors} errors; correct crates/api/src/openapi");
    Ok(())
}

fn check_python(tools: &Tools, server: &Server) -> Result<()> {
    let client = tools.path(PYTHON_CLIENT);
    if client.exists() {
        fs::remove_dir_all(&client).context("could not remove the previous client")?;
    }
    let mut generate = tools.python("-m");
    generate.args(["openapi_python_client", "generate", "--meta", "none", "--fail-on-warning"]);
    generate.args(["--config", "openapi-python-client.yaml", "--path", DOCUMENT]);
    tools::run(generate.args(["--output-path", PYTHON_CLIENT]))?;
    tools::run(tools.python("examples.py").arg(DOCUMENT))?;
    tools::run(tools.python("queue_runs.py").args([&server.url, &server.token]))
}

fn check_typescript(tools: &Tools, server: &Server, document: &Value) -> Result<()> {
    let mut generate = tools.node("openapi-typescript/bin/cli.js");
    tools::run(generate.args([DOCUMENT, "--output", TYPESCRIPT_CLIENT]))?;
    fs::write(tools.path("examples.ts"), typed_examples(document)).context("could not write the examples")?;
    let _ = fs::remove_dir_all(tools.path("out"));
    tools::run(&mut tools.node("typescript/bin/tsc"))?;
    tools::run(tools.program(Path::new("out/queue_runs.js")).args([&server.url, &server.token]))
}

/// Returns a TypeScript program that declares the example of each body and response with its generated type.
fn typed_examples(document: &Value) -> String {
    let mut text = "import type { operations } from \"./schema.js\";\n".to_owned();
    let mut declare = |id: &str, part: &str, described: &Value| {
        let content = &described["content"]["application/json"];
        if let Some(example) = content.get("example") {
            let name = part.replace(|letter: char| !letter.is_ascii_alphanumeric(), "");
            let place = format!("operations[\"{id}\"]{part}[\"content\"][\"application/json\"]");
            let _ = writeln!(text, "export const {id}_{name}: {place} = {example};");
        }
    };
    let paths = document["paths"].as_object().into_iter().flatten();
    for operation in
        paths.flat_map(|(_, methods)| methods.as_object().into_iter().flatten()).map(|(_, it)| it)
    {
        let id = operation["operationId"].as_str().unwrap_or_default();
        declare(id, "[\"requestBody\"]", &operation["requestBody"]);
        for (status, response) in operation["responses"].as_object().into_iter().flatten() {
            declare(id, &format!("[\"responses\"][{status}]"), response);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn examples_are_declared_with_their_types() {
        let json = |example: Value| json!({"content": {"application/json": {"example": example}}});
        let text = typed_examples(&json!({"paths": {"/v1/runs": {"post": {
            "operationId": "post_runs",
            "requestBody": json(json!({"env": "staging"})),
            "responses": {"201": json(json!(7)), "404": {"$ref": "#/components/responses/Missing"}},
        }}}}));
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let expected = [
            "export const post_runs_requestBody: operations[\"post_runs\"][\"requestBody\"][\"content\"]\
             [\"application/json\"] = {\"env\":\"staging\"};",
            "export const post_runs_responses201: operations[\"post_runs\"][\"responses\"][201][\"content\"]\
             [\"application/json\"] = 7;",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn every_operation_of_the_document_has_a_typed_example() {
        let text = typed_examples(tidemill_api::document());
        assert!(text.lines().count() > 150, "{text}");
        assert!(text.contains("export const post_runs_requestBody: "), "{text}");
    }
}
