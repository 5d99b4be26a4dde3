//! Which feeds may write the same table: only those whose rows cannot have the same key.

use crate::feed_definition::ColumnValue;
use crate::feed_definition::target::{Column, ColumnSource, Target, WriteDisposition};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The rows of a table that a feed may write, update and delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableClaim {
    /// Whether the feed only inserts rows, and never updates or deletes one.
    appends: bool,
    /// Columns of the primary key that have the same value in all rows of the feed.
    constants: BTreeMap<String, String>,
}

impl TableClaim {
    /// Returns the claim of a definition.
    pub fn of(into: &Target) -> Self {
        let constant = |key: &String| {
            let column = into.columns.iter().find(|column| column.name == *key)?;
            Some((key.clone(), comparable(column)?))
        };
        Self {
            appends: into.write_disposition == WriteDisposition::Append,
            constants: into.primary_key.iter().filter_map(constant).collect(),
        }
    }

    /// Whether the rows of two feeds cannot meet: both only append, or one column of both keys has a constant that
    /// differs.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        if self.appends || other.appends {
            return self.appends && other.appends;
        }
        self.constants.iter().any(|(column, value)| {
            other.constants.get(column).is_some_and(|other_value| other_value != value)
        })
    }
}

/// Returns the constant of a column, spelled alike for values that a database may take for equal. The type of the
/// table's column can ignore case, outer spaces, or leading zeros. `None` for types with more spellings, such as times.
fn comparable(column: &Column) -> Option<String> {
    let ColumnSource::Constant(literal) = &column.source else { return None };
    let text = match column.cast_literal(literal).ok()? {
        ColumnValue::Text(text) | ColumnValue::Integer(text) => text.trim().to_lowercase(),
        ColumnValue::Boolean(flag) => flag.to_string(),
        ColumnValue::Null
        | ColumnValue::Decimal(_)
        | ColumnValue::Timestamp(_)
        | ColumnValue::Date(_)
        | ColumnValue::Json(_) => return None,
    };
    Some(text.parse::<i128>().map_or(text, |number| number.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Json;
    use crate::feed_definition::path::JsonPath;
    use crate::feed_definition::target::{ColumnType, SchemaContract, TableName};
    use serde_json::json;

    fn column(name: &str, source: ColumnSource, column_type: ColumnType) -> Column {
        Column { name: name.to_owned(), source, column_type, format: None, default: None, nullable: false }
    }

    fn claim(write: WriteDisposition, keys: &[&str], region: (Json, ColumnType)) -> TableClaim {
        TableClaim::of(&Target {
            table: TableName { schema: "public".to_owned(), table: "both".to_owned() },
            primary_key: keys.iter().map(|key| (*key).to_owned()).collect(),
            columns: vec![
                column("id", ColumnSource::Path(JsonPath::key("id")), ColumnType::Text),
                column("region", ColumnSource::Constant(region.0), region.1),
            ],
            write_disposition: write,
            deleted_at: None,
            schema_contract: SchemaContract::default(),
        })
    }

    fn of(region: Json, column_type: ColumnType) -> TableClaim {
        claim(WriteDisposition::Merge, &["region", "id"], (region, column_type))
    }

    #[test]
    fn constants_of_a_common_key_column_decide() {
        let text = |region: &str| of(region.into(), ColumnType::Text);
        assert!(text("eu").is_disjoint(&text("us")));
        assert!(!text("eu").is_disjoint(&text("eu")));
        let keyless = claim(WriteDisposition::Merge, &["id"], ("us".into(), ColumnType::Text));
        assert!(!text("eu").is_disjoint(&keyless), "the column is in one key only");
        assert!(!keyless.is_disjoint(&keyless));
    }

    #[test]
    fn spellings_of_one_value_are_not_different() {
        for (one, other) in [
            (of("EU".into(), ColumnType::Text), of(" eu".into(), ColumnType::Text)),
            (of("01".into(), ColumnType::Text), of(json!(1), ColumnType::Integer)),
            (of("true".into(), ColumnType::Text), of(json!(true), ColumnType::Boolean)),
            (of("1.0".into(), ColumnType::Decimal), of("1".into(), ColumnType::Decimal)),
        ] {
            assert!(!one.is_disjoint(&other), "{one:?} {other:?}");
        }
        assert!(of(json!(1), ColumnType::Integer).is_disjoint(&of(json!(2), ColumnType::Integer)));
    }

    #[test]
    fn only_two_appending_feeds_need_no_constant() {
        let appends = claim(WriteDisposition::Append, &[], ("eu".into(), ColumnType::Text));
        assert!(appends.is_disjoint(&appends));
        assert!(!appends.is_disjoint(&of("us".into(), ColumnType::Text)));
        assert!(!of("us".into(), ColumnType::Text).is_disjoint(&appends));
    }
}
