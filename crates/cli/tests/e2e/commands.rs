//! Commands of runs, projects, schedules and administration, on both databases.

mod administration;
mod audit;
mod connections;
mod install;
mod queue_many;
mod readme;
mod run_lifecycle;
mod scaling;
mod schedules;

use serde_json::Value;

/// Returns the value at a path such as `a.b.0.c`.
pub(crate) fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(value, |value, key| match key.parse::<usize>() {
        Ok(index) => &value[index],
        Err(_) => &value[key],
    })
}

/// Returns the text at a path.
#[track_caller]
pub(crate) fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    at(value, path).as_str().unwrap_or_else(|| panic!("{path} is not a text in {value}"))
}
