//! The command line from the first command to the last, the same steps on both stores.

mod doors;
mod life;
mod pasted;
mod rest;
mod schedules;

use serde_json::Value;

/// The value under a path such as `a.b.0.c`.
pub(crate) fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(value, |value, key| match key.parse::<usize>() {
        Ok(index) => &value[index],
        Err(_) => &value[key],
    })
}

/// The text under a path.
#[track_caller]
pub(crate) fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    at(value, path).as_str().unwrap_or_else(|| panic!("{path} is no text in {value}"))
}
