//! Reports of the linters.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Severity of an error in Spectral's reports.
const SPECTRAL_ERROR: u64 = 0;

/// The result of a linter.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// One line for each error: its place, rule and message.
    pub(super) errors: Vec<String>,
    /// Number of less severe findings.
    pub(super) warnings: usize,
}

impl Report {
    fn add(&mut self, is_error: bool, place: &str, rule: &Value, message: &Value) {
        if is_error {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            self.errors.push(format!("{place}: {} ({})", text(message), text(rule)));
        } else {
            self.warnings += 1;
        }
    }
}

/// Runs a linter, and returns its report. Its exit code is ignored: it is 1 if the report has errors.
pub(super) fn run(mut linter: Command, arguments: &[&str]) -> Result<Value> {
    linter.args(arguments).stdin(Stdio::null());
    let output = linter.output().with_context(|| format!("could not run {linter:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{linter:?} printed no report ({}): {}", output.status, errors.trim()))
}

/// Reads a report of Redocly.
pub(super) fn redocly(report: &Value) -> Result<Report> {
    let problems = report["problems"].as_array().context("the report of Redocly has no list of problems")?;
    let mut read = Report::default();
    for problem in problems {
        let place = problem["location"][0]["pointer"].as_str().unwrap_or_default();
        read.add(problem["severity"] == "error", place, &problem["ruleId"], &problem["message"]);
    }
    Ok(read)
}

/// Reads a report of Spectral.
pub(super) fn spectral(report: &Value) -> Result<Report> {
    let results = report.as_array().context("the report of Spectral is not a list")?;
    let mut read = Report::default();
    for result in results {
        let parts = result["path"].as_array().into_iter().flatten();
        let parts = parts.map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned));
        let place = parts.collect::<Vec<_>>().join(".");
        let is_error = result["severity"].as_u64() == Some(SPECTRAL_ERROR);
        read.add(is_error, &place, &result["code"], &result["message"]);
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn redocly_errors_are_lines_and_warnings_are_counted() {
        let report = redocly(&json!({"problems": [
            {"ruleId": "struct", "severity": "error", "message": "must be an object",
             "location": [{"pointer": "#/paths"}]},
            {"ruleId": "tag-description", "severity": "warn", "message": "no description", "location": []},
        ]}));
        let expected = Report { errors: vec!["#/paths: must be an object (struct)".to_owned()], warnings: 1 };
        assert_eq!(report.unwrap(), expected);
        assert!(redocly(&json!({})).is_err());
    }

    #[test]
    fn spectral_errors_are_lines_and_warnings_are_counted() {
        let report = spectral(&json!([
            {"code": "oas3-schema", "severity": 0, "message": "wrong type", "path": ["paths", "/v1/runs", 7]},
            {"code": "info-contact", "severity": 1, "message": "no contact", "path": ["info"]},
        ]));
        let expected =
            Report { errors: vec!["paths./v1/runs.7: wrong type (oas3-schema)".to_owned()], warnings: 1 };
        assert_eq!(report.unwrap(), expected);
        assert!(spectral(&json!({})).is_err());
    }
}
