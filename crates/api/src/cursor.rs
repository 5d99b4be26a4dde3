//! List cursors that consist of several values. They are encoded as JSON, so names with any characters survive.

use crate::error::ApiError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_wire::FieldError;

pub(crate) fn encode(cursor: &impl Serialize) -> String {
    serde_json::to_string(cursor).unwrap_or_default()
}

pub(crate) fn decode<T: DeserializeOwned>(text: &str) -> Result<T, ApiError> {
    let nul = text.contains("\\u0000");
    serde_json::from_str(text).ok().filter(|_| !nul).ok_or_else(|| {
        let problem = "is not a cursor of this list; pass `next` of the previous page".to_owned();
        ApiError::invalid(vec![FieldError { field: "after".to_owned(), problem }])
    })
}
