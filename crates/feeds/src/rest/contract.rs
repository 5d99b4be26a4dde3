//! The schema contract: what happens to a record that does not fit the table.

use super::MappedRow;
use tidemill_core::feed_definition::target::ContractMode;
use tidemill_core::feed_definition::{ColumnError, ColumnValue, Target};

/// The decision about a mapped record.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    Row(ContractRow),
    /// The record is rejected, the others are written.
    Reject(String),
    /// The sync fails with a reason.
    Freeze(String),
}

/// A record that fits the table.
#[derive(Debug, Clone, PartialEq)]
pub struct ContractRow {
    /// Names and values of the columns.
    pub values: Vec<(String, ColumnValue)>,
    /// New keys of the source, for which the table has no column.
    pub new_keys: Vec<String>,
}

/// Applies the contract of a table to a mapped record. New keys count only if the columns were inferred, because an
/// explicit list of columns is complete.
pub fn apply_contract(into: &Target, columns_are_inferred: bool, row: MappedRow) -> Verdict {
    let mode = into.schema_contract.columns;
    let MappedRow { mut values, errors, unused_keys, absent: _, is_deleted: _ } = row;
    for error in errors {
        match (mode, column_of(&error)) {
            (ContractMode::Freeze, _) => return Verdict::Freeze(error.to_string()),
            (ContractMode::DiscardValue, Some(column)) if is_nullable(into, column) => {
                values.push((column.to_owned(), ColumnValue::Null));
            }
            (ContractMode::Evolve | ContractMode::DiscardRow | ContractMode::DiscardValue, _) => {
                return Verdict::Reject(error.to_string());
            }
        }
    }
    let mut new_keys = if columns_are_inferred { unused_keys } else { Vec::new() };
    match (mode, new_keys.first()) {
        (_, None) | (ContractMode::Evolve, Some(_)) => {}
        (ContractMode::Freeze, Some(key)) => {
            return Verdict::Freeze(format!(
                "the source has the new field `{key}`, and the columns are frozen"
            ));
        }
        (ContractMode::DiscardRow, Some(key)) => {
            return Verdict::Reject(format!("the record has the new field `{key}`"));
        }
        (ContractMode::DiscardValue, Some(_)) => new_keys.clear(),
    }
    Verdict::Row(ContractRow { values, new_keys })
}

/// Returns the column whose value did not fit; `None` if a required value is missing.
fn column_of(error: &ColumnError) -> Option<&str> {
    match error {
        ColumnError::Cast { column, .. } | ColumnError::Expression { column, .. } => Some(column),
        ColumnError::Missing { .. } => None,
    }
}

fn is_nullable(into: &Target, name: &str) -> bool {
    into.columns.iter().any(|column| column.name == name && column.nullable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(mode: &str, columns: &str, payload: &str, inferred: bool) -> Verdict {
        let text = format!(
            "version: 1\nfeed: f\nclient: {{base_url: https://x.test}}\nresource: {{path: /x, primary_key: id}}\n\
             into:\n  table: s.t\n  schema_contract: {{columns: {mode}}}\n  columns:\n    \
             id: {{nullable: false}}\n{columns}"
        );
        let definition = crate::rest::parse_definition(&text).unwrap_or_else(|errors| panic!("{errors:#?}"));
        let row = crate::rest::Mapper::new(&definition, 1_000).unwrap().map(payload).unwrap();
        apply_contract(&definition.into, inferred, row)
    }

    #[test]
    fn value_that_does_not_fit_follows_the_contract() {
        let columns = "    n: {type: integer}\n";
        let payload = r#"{"id":"a","n":"many"}"#;
        let reason = "the column `n`: `many` is not an integer".to_owned();
        assert_eq!(judge("evolve", columns, payload, false), Verdict::Reject(reason.clone()));
        assert_eq!(judge("discard_row", columns, payload, false), Verdict::Reject(reason.clone()));
        assert_eq!(judge("freeze", columns, payload, false), Verdict::Freeze(reason));
        let Verdict::Row(row) = judge("discard_value", columns, payload, false) else { panic!() };
        assert_eq!(row.values[1], ("n".to_owned(), ColumnValue::Null));
    }

    #[test]
    fn required_value_that_is_missing_rejects_the_record() {
        for mode in ["evolve", "discard_row", "discard_value"] {
            let verdict = judge(mode, "    n: {type: integer, nullable: false}\n", r#"{"id":"a"}"#, false);
            assert_eq!(verdict, Verdict::Reject("the column `n` is missing".to_owned()), "{mode}");
        }
    }

    #[test]
    fn new_key_matters_only_for_inferred_columns() {
        let payload = r#"{"id":"a","new":1}"#;
        for mode in ["evolve", "freeze", "discard_row", "discard_value"] {
            let Verdict::Row(row) = judge(mode, "", payload, false) else { panic!("{mode}") };
            assert_eq!(row.new_keys, Vec::<String>::new(), "{mode}");
        }
        let Verdict::Row(row) = judge("evolve", "", payload, true) else { panic!() };
        assert_eq!(row.new_keys, ["new"]);
        assert!(matches!(judge("freeze", "", payload, true), Verdict::Freeze(_)));
        assert!(matches!(judge("discard_row", "", payload, true), Verdict::Reject(_)));
        let Verdict::Row(row) = judge("discard_value", "", payload, true) else { panic!() };
        assert_eq!(row.new_keys, Vec::<String>::new());
    }
}
