//! Queries: the filters of a count or a page, and their parameters.

use super::FeedDefinition;
use super::cast::{timestamp, write_time};
use super::number::unscaled;
use super::paging::{Bound, CursorKind, Incremental, Partition, RangeKind, RangeSpec, TimeFormat};
use super::request::{Param, ParamValue};
use crate::Timestamp;
use crate::limits::FEED_VALUES_MAX;
use chrono::TimeDelta;

/// The filter of a count or a page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct RecordQuery {
    /// Half-open range of the partition field, in the unit of its kind.
    pub range: Option<QueryRange>,
    /// Value of a partition by values.
    pub value: Option<String>,
    /// Smallest value of the incremental cursor; `None` for all records.
    pub updated_from: Option<CursorValue>,
}

/// A half-open range of an ordered field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct QueryRange {
    /// Lowest value, inclusive.
    pub from: i64,
    /// Highest value, exclusive.
    pub to: i64,
}

/// A value of the incremental cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CursorValue {
    Time(Timestamp),
    Number(i64),
}

/// Why a query does not fit the definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    #[error("the feed has no ordered partition field, so it cannot filter the range {from} to {to}")]
    NoRange { from: i64, to: i64 },
    #[error("the range {from} to {to} is empty")]
    EmptyRange { from: i64, to: i64 },
    #[error("the boundary {value} is not a multiple of the granularity {granularity}")]
    Granularity { value: i64, granularity: i64 },
    #[error("the feed has no partition by values, so it cannot filter the value `{value}`")]
    NoValues { value: String },
    #[error("the feed has no incremental cursor")]
    NoIncremental,
    #[error("the incremental cursor has another type")]
    CursorType,
    #[error("the boundary {value} is not a valid time")]
    InvalidTime { value: i64 },
}

impl FeedDefinition {
    /// Returns the parameters of a query.
    pub fn filter_params(&self, query: &RecordQuery) -> Result<Vec<Param>, QueryError> {
        let mut params = Vec::new();
        if let Some(range) = query.range {
            let spec =
                self.partition.range().ok_or(QueryError::NoRange { from: range.from, to: range.to })?;
            spec.add_params(range, &mut params)?;
        }
        match (&query.value, &self.partition) {
            (Some(value), Partition::Values { param, .. }) => {
                params.push((param.clone(), ParamValue::Text(value.clone())));
            }
            (Some(value), Partition::None | Partition::Heatmap { .. } | Partition::TimeWindows { .. }) => {
                return Err(QueryError::NoValues { value: value.clone() });
            }
            (None, _) => {}
        }
        match (query.updated_from, &self.incremental) {
            (Some(from), Some(incremental)) => {
                params.push((incremental.start.clone(), incremental.spell(from)?));
            }
            (Some(_), None) => return Err(QueryError::NoIncremental),
            (None, Some(incremental)) => {
                params.extend(incremental.initial().map(|value| (incremental.start.clone(), value)));
            }
            (None, None) => {}
        }
        Ok(params)
    }
}

impl Partition {
    /// Returns the ordered field, if there is one.
    pub const fn range(&self) -> Option<&RangeSpec> {
        match self {
            Self::Heatmap { range, .. } | Self::TimeWindows { range, .. } => Some(range),
            Self::None | Self::Values { .. } => None,
        }
    }

    /// Returns the queries of the partitions that need no counts. `None` for a heatmap.
    ///
    /// The last time window ends at `now`; its query has no upper filter, so it contains later records too.
    pub fn fixed_queries(&self, now: Timestamp) -> Option<Vec<RecordQuery>> {
        match self {
            Self::None => Some(vec![RecordQuery::default()]),
            Self::Heatmap { .. } => None,
            Self::Values { values, .. } => {
                let query =
                    |value: &String| RecordQuery { value: Some(value.clone()), ..RecordQuery::default() };
                Some(values.iter().map(query).collect())
            }
            Self::TimeWindows { range, window_secs } => {
                let end = range.max.unwrap_or_else(|| now.timestamp()).max(range.min + 1);
                let wanted = i64::from(*window_secs).max(1);
                // Too many windows are merged to longer ones.
                let count =
                    ((end - range.min) / wanted + 1).min(i64::try_from(FEED_VALUES_MAX).unwrap_or(i64::MAX));
                let length = wanted.max((end - range.min) / count.max(1) + 1);
                let length = length.div_euclid(range.granularity).max(1) * range.granularity;
                let starts = (0..).map(|index| range.min + index * length).take_while(|from| *from < end);
                let windows = starts.map(|from| QueryRange { from, to: from + length });
                let query = |range| RecordQuery { range: Some(range), ..RecordQuery::default() };
                let mut queries: Vec<RecordQuery> = windows.map(query).collect();
                if let Some(RecordQuery { range: Some(last), .. }) = queries.last_mut() {
                    last.to = i64::MAX;
                }
                Some(queries)
            }
        }
    }
}

impl RangeSpec {
    /// Adds the filter of a range. A range that begins at the lowest boundary has no lower filter, and one that ends
    /// at the highest has no upper filter, so that no record is outside all partitions.
    fn add_params(&self, range: QueryRange, params: &mut Vec<Param>) -> Result<(), QueryError> {
        let QueryRange { from, to } = range;
        if from >= to {
            return Err(QueryError::EmptyRange { from, to });
        }
        if from > self.min {
            self.check_granularity(from)?;
            params.push((self.from.clone(), self.spell(from)?));
        }
        if to < self.max.unwrap_or(i64::MAX) {
            self.check_granularity(to)?;
            let last = match self.to_bound {
                Bound::Exclusive => self.spell(to)?,
                Bound::Inclusive => self.spell_before(to)?,
            };
            params.push((self.to.clone(), last));
        }
        Ok(())
    }

    fn check_granularity(&self, value: i64) -> Result<(), QueryError> {
        let granularity = self.granularity.max(1);
        if (value - self.min).rem_euclid(granularity) == 0 {
            return Ok(());
        }
        Err(QueryError::Granularity { value, granularity })
    }

    /// Writes the largest value below a boundary, for a source whose upper boundary is inclusive: the boundary minus
    /// one unit of its format. A value with more digits is in no partition, which the comparison of the counts detects.
    fn spell_before(&self, value: i64) -> Result<ParamValue, QueryError> {
        let RangeKind::Time { format } = self.kind else { return self.spell(value.saturating_sub(1)) };
        let end = Timestamp::from_timestamp(value, 0).ok_or(QueryError::InvalidTime { value })?;
        let step = match format {
            TimeFormat::Rfc3339 => TimeDelta::microseconds(1),
            TimeFormat::UnixMs => TimeDelta::milliseconds(1),
            TimeFormat::Date | TimeFormat::Unix => TimeDelta::seconds(1),
        };
        let last = end.checked_sub_signed(step).ok_or(QueryError::InvalidTime { value })?;
        Ok(time_param(last, format))
    }

    /// Writes a boundary as the source expects it.
    pub fn spell(&self, value: i64) -> Result<ParamValue, QueryError> {
        Ok(match self.kind {
            RangeKind::Money { decimals: 0 } | RangeKind::Number => ParamValue::Integer(value),
            RangeKind::Money { decimals } => ParamValue::Decimal(unscaled(value, decimals)),
            RangeKind::Time { format } => {
                let time = Timestamp::from_timestamp(value, 0).ok_or(QueryError::InvalidTime { value })?;
                time_param(time, format)
            }
        })
    }
}

/// Writes a time as the source expects it: as an integer if its format is one.
fn time_param(time: Timestamp, format: TimeFormat) -> ParamValue {
    match format {
        TimeFormat::Unix => ParamValue::Integer(time.timestamp()),
        TimeFormat::UnixMs => ParamValue::Integer(time.timestamp_millis()),
        TimeFormat::Rfc3339 | TimeFormat::Date => ParamValue::Text(write_time(time, format)),
    }
}

impl Incremental {
    /// Returns the start value of a feed that has no watermark yet.
    fn initial(&self) -> Option<ParamValue> {
        let text = self.initial_value.as_ref()?;
        let is_number = match self.kind {
            CursorKind::Number { .. } => true,
            CursorKind::Time { format, .. } => matches!(format, TimeFormat::Unix | TimeFormat::UnixMs),
        };
        let number = if is_number { text.parse().ok() } else { None };
        Some(number.map_or_else(|| ParamValue::Text(text.clone()), ParamValue::Integer))
    }

    fn spell(&self, value: CursorValue) -> Result<ParamValue, QueryError> {
        match (value, self.kind) {
            (CursorValue::Time(time), CursorKind::Time { format, .. }) => Ok(time_param(time, format)),
            (CursorValue::Number(number), CursorKind::Number { .. }) => Ok(ParamValue::Integer(number)),
            (CursorValue::Time(_), CursorKind::Number { .. })
            | (CursorValue::Number(_), CursorKind::Time { .. }) => Err(QueryError::CursorType),
        }
    }

    /// Returns the first value of the next incremental sync: the watermark minus the overlap.
    #[must_use]
    pub fn start_after(&self, watermark: CursorValue) -> CursorValue {
        match (watermark, self.kind) {
            (CursorValue::Time(time), CursorKind::Time { overlap_secs, .. }) => {
                CursorValue::Time(time - chrono::Duration::seconds(overlap_secs.into()))
            }
            (CursorValue::Number(number), CursorKind::Number { overlap }) => {
                CursorValue::Number(number.saturating_sub_unsigned(overlap))
            }
            (watermark, CursorKind::Time { .. } | CursorKind::Number { .. }) => watermark,
        }
    }

    /// Reads the cursor of a record. `None` if it is absent or cannot be read.
    pub fn cursor_of(&self, record: &super::JsonValue) -> Option<CursorValue> {
        let text = self.cursor_path.select(record)?.scalar()?;
        match self.kind {
            CursorKind::Time { format, .. } => timestamp(text, Some(format)).map(CursorValue::Time),
            CursorKind::Number { .. } => text.parse().ok().map(CursorValue::Number),
        }
    }
}

#[cfg(test)]
mod tests;
