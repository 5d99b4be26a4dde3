//! Cursors of run lists.

use super::Run;
use crate::{RunId, Timestamp};
use std::fmt;
use std::str::FromStr;

/// A position in a list of runs, which is ordered by creation time and id: `MICROSECONDS.RUN`, or the id of a run that
/// exists.
///
/// With the time, the position stays valid when the run is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunCursor {
    /// Creation time of the run.
    pub created_at: Option<Timestamp>,
    /// Id of the run.
    pub run_id: RunId,
}

impl RunCursor {
    /// Makes the cursor at this run.
    pub fn at(run: &Run) -> Self {
        Self { created_at: Some(run.created_at), run_id: run.run_id.clone() }
    }
}

impl From<RunId> for RunCursor {
    fn from(run_id: RunId) -> Self {
        Self { created_at: None, run_id }
    }
}

impl fmt::Display for RunCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.created_at {
            Some(at) => write!(f, "{}.{}", at.timestamp_micros(), self.run_id),
            None => write!(f, "{}", self.run_id),
        }
    }
}

/// A text that is not a position in a list of runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a position in a list of runs; use `next` of the previous page, or the id of a run")]
pub struct InvalidCursorError(String);

impl FromStr for RunCursor {
    type Err = InvalidCursorError;

    fn from_str(text: &str) -> Result<Self, InvalidCursorError> {
        let refused = || InvalidCursorError(text.chars().take(80).collect());
        let (created_at, id) = match text.split_once('.') {
            Some((micros, id)) if !text.starts_with("run-") => {
                let micros: i64 = micros.parse().map_err(|_| refused())?;
                let at = crate::time::from_micros(micros);
                (Some(at).filter(|at| at.timestamp_micros() == micros), id)
            }
            Some(_) | None => (None, text),
        };
        if created_at.is_none() && id != text {
            return Err(refused());
        }
        Ok(Self { created_at, run_id: id.parse().map_err(|_| refused())? })
    }
}

impl serde::Serialize for RunCursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for RunCursor {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for RunCursor {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RunCursor".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "pattern": "^(-?[0-9]{1,18}[.])?run-"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_survives_its_text_form() {
        for text in ["run-uuid-1234", "run-a.b", "1771065000000000.run-uuid-1234", "-5.run-a.b", "0.run-É x"]
        {
            let cursor: RunCursor = text.parse().expect(text);
            assert_eq!(cursor.to_string(), text);
        }
        let cursor: RunCursor = "1771065000000000.run-a".parse().expect("a cursor");
        assert_eq!(cursor.created_at, Some(crate::time::from_micros(1_771_065_000_000_000)));
        assert_eq!(cursor.run_id.as_str(), "run-a");
    }

    #[test]
    fn text_without_a_run_or_with_a_wrong_time_is_rejected() {
        for text in ["", "7", "7.", "7.run-", "7.job-1", "x.run-a", ".run-a", "999999999999999999.run-a"] {
            assert!(text.parse::<RunCursor>().is_err(), "{text}");
        }
    }
}
