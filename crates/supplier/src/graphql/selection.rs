//! Selections of fields: expands fragments and rejects unsupported syntax.

use async_graphql_parser::Positioned;
use async_graphql_parser::types::{Directive, Field, FragmentDefinition, Selection, SelectionSet};
use async_graphql_value::Name;
use std::cell::Cell;
use std::collections::HashMap;

pub(super) const TOO_DEEP: &str = "the query is nested too deeply";
const TOO_MANY_FIELDS: &str = "the query has more than 2000 fields";
const FIELDS_MAX: usize = 2_000;

/// Expands the selections of one document.
pub(crate) struct Selections<'a> {
    fragments: &'a HashMap<Name, Positioned<FragmentDefinition>>,
    fields: Cell<usize>,
}

impl<'a> Selections<'a> {
    pub(crate) fn new(fragments: &'a HashMap<Name, Positioned<FragmentDefinition>>) -> Self {
        Self { fragments, fields: Cell::new(0) }
    }

    /// Returns the fields of a selection on `type_name`, with expanded fragments. `depth` counts from 1.
    pub(crate) fn fields(
        &self,
        selection: &'a SelectionSet,
        type_name: &str,
        depth: usize,
    ) -> Result<Vec<&'a Field>, String> {
        let mut fields = Vec::new();
        self.expand(selection, type_name, depth, &mut fields)?;
        Ok(fields)
    }

    fn expand(
        &self,
        selection: &'a SelectionSet,
        type_name: &str,
        depth: usize,
        fields: &mut Vec<&'a Field>,
    ) -> Result<(), String> {
        if depth > super::DEPTH_MAX {
            return Err(TOO_DEEP.to_owned());
        }
        for item in &selection.items {
            reject_directives(item.node.directives())?;
            match &item.node {
                Selection::Field(field) => self.add(&field.node, type_name, fields)?,
                Selection::FragmentSpread(spread) => {
                    let name = &spread.node.fragment_name.node;
                    let fragment = self.fragments.get(name);
                    let fragment = &fragment.ok_or_else(|| format!("unknown fragment `{name}`"))?.node;
                    reject_directives(&fragment.directives)?;
                    let on = &fragment.type_condition.node.on.node;
                    if on != type_name {
                        return Err(format!("fragment `{name}` is for type `{on}`, not `{type_name}`"));
                    }
                    self.expand(&fragment.selection_set.node, type_name, depth + 1, fields)?;
                }
                Selection::InlineFragment(fragment) => {
                    let on = fragment.node.type_condition.as_ref().map(|condition| &condition.node.on.node);
                    if let Some(on) = on.filter(|on| *on != type_name) {
                        return Err(format!("an inline fragment is for type `{on}`, not `{type_name}`"));
                    }
                    self.expand(&fragment.node.selection_set.node, type_name, depth + 1, fields)?;
                }
            }
        }
        Ok(())
    }

    fn add(&self, field: &'a Field, type_name: &str, fields: &mut Vec<&'a Field>) -> Result<(), String> {
        self.fields.set(self.fields.get() + 1);
        if self.fields.get() > FIELDS_MAX {
            return Err(TOO_MANY_FIELDS.to_owned());
        }
        let key = response_key(field);
        if fields.iter().any(|other| response_key(other) == key) {
            return Err(format!("`{key}` is selected twice in type `{type_name}`; use an alias"));
        }
        fields.push(field);
        Ok(())
    }
}

pub(super) fn reject_directives(directives: &[Positioned<Directive>]) -> Result<(), String> {
    if directives.is_empty() { Ok(()) } else { Err("directives are not supported".to_owned()) }
}

/// Returns the key of a field in the response: its alias or its name.
pub(crate) fn response_key(field: &Field) -> &str {
    field.response_key().node.as_str()
}

/// Returns the subselection of a field of an object type.
pub(crate) fn subselection<'a>(field: &'a Field, type_name: &str) -> Result<&'a SelectionSet, String> {
    let selection = &field.selection_set.node;
    if selection.items.is_empty() {
        let name = &field.name.node;
        return Err(format!("field `{name}` of type `{type_name}` needs a selection of fields"));
    }
    Ok(selection)
}

/// Checks that a scalar field has no subselection.
pub(crate) fn check_leaf(field: &Field, type_name: &str) -> Result<(), String> {
    if field.selection_set.node.items.is_empty() {
        return Ok(());
    }
    Err(format!("field `{}` of type `{type_name}` has no fields", field.name.node))
}

pub(crate) fn unknown_field(field: &Field, type_name: &str) -> String {
    format!("type `{type_name}` has no field `{}`", field.name.node)
}
